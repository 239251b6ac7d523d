"""Replay a recorded stream with the reference engine, in one part or in two parts that meet at a cut."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, Self

from backstream.eventtime.emission import Emission
from backstream.eventtime.process_functions import ProcessFunction
from backstream.eventtime.records import Record, SourceClock
from backstream.eventtime.source_run import SourceRun
from backstream.eventtime.stream_state import OpenWindow, ProcessState, StreamState
from backstream.eventtime.timers import ProcessOperator, ProcessResults
from backstream.eventtime.watermark_sources import new_source_run
from backstream.eventtime.watermarks import Watermarks
from backstream.eventtime.window_operator import WindowOperator, WindowResults
from backstream.eventtime.windows import WindowSpec


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """The settings of a replay; `clock` has the same start in all parts of a stream."""

    emission: Emission
    clock: SourceClock
    partitions: tuple[int, ...]
    window: WindowSpec
    allowed_lateness_ms: int = 0
    new_function: Callable[[], ProcessFunction] | None = None


@dataclass(frozen=True, slots=True)
class ReplayState:
    """All state at a cut: watermarks, open windows, and the state of a process function by key."""

    stream: StreamState
    windows: tuple[OpenWindow, ...]
    keys: tuple[ProcessState, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the state as an object for JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Return the state that `to_json` wrote."""
        return cls(
            StreamState.from_json(content["stream"]),
            tuple(map(OpenWindow.from_json, content["windows"])),
            tuple(map(ProcessState.from_json, content["keys"])),
        )


def localize(records: Sequence[Record], window: WindowSpec) -> Sequence[Record]:
    """Return records with the event times by which windows are assigned."""
    if window.zone is None:
        return records
    return [replace(record, event_time_ms=window.local_ms(record.event_time_ms)) for record in records]


class ReplayResults(NamedTuple):
    """The results of one part of a stream."""

    watermarks: Watermarks
    windows: WindowResults
    process: ProcessResults | None


def replay_to_cut(
    records: Sequence[Record],
    settings: StreamSettings,
    state: ReplayState | None = None,
    *,
    at_ms: int | None = None,
    continuing: Collection[int] = (),
) -> tuple[ReplayResults, ReplayState]:
    """Replay records without the end of their input, and return the state after them.

    Args:
        records: the records before the cut, in arrival order.
        settings: the settings of the stream.
        state: the state at an earlier cut, where these records begin.
        at_ms: the instant of the cut: ticks up to it run; None: no tick runs after the last record.
        continuing: partitions that have records after the cut; without them, a partition is finished.

    Raises:
        SpecError: when records are not in arrival order, or JSON cannot hold a value of the state.
    """
    parts = _Parts.create(settings, state)
    parts.source.process(records, continuing)
    if at_ms is not None:
        parts.source.advance(at_ms)
    return parts.run_operators(records), parts.snapshot()


def replay_to_end(
    records: Sequence[Record], settings: StreamSettings, state: ReplayState | None = None
) -> ReplayResults:
    """Replay records up to the end of their input.

    Args:
        records: all records of the stream, or those after a cut.
        settings: the settings of the stream.
        state: the state at the cut; None: the stream begins.

    Raises:
        SpecError: when records are not in arrival order, or a custom generator fails.
    """
    parts = _Parts.create(settings, state)
    parts.source.process(records)
    parts.source.finish()
    return parts.run_operators(records)


@dataclass(frozen=True, slots=True)
class _Parts:
    """The source and the operators behind it."""

    source: SourceRun
    windows: WindowOperator
    process: ProcessOperator | None

    @classmethod
    def create(cls, settings: StreamSettings, state: ReplayState | None) -> _Parts:
        stream = state.stream if state else None
        source = new_source_run(settings.emission, settings.clock, settings.partitions, stream)
        windows = WindowOperator(settings.window, settings.allowed_lateness_ms)
        process = ProcessOperator(settings.new_function) if settings.new_function else None
        if state:
            windows.restore(state.windows, state.stream.watermark_ms)
        if state and process:
            process.restore(state.keys)
        return cls(source, windows, process)

    def run_operators(self, records: Sequence[Record]) -> ReplayResults:
        watermarks = self.source.output
        results = self.windows.run(localize(records, self.windows.spec), watermarks)
        return ReplayResults(watermarks, results, self.process.run(records, watermarks) if self.process else None)

    def snapshot(self) -> ReplayState:
        keys = tuple(self.process.snapshot()) if self.process else ()
        return ReplayState(self.source.snapshot(), tuple(self.windows.snapshot()), keys)
