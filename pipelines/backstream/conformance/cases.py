"""Load conformance cases: recorded streams with Flink's results.

A file has one JSON object per line, `{"case": input, "flink": result}`, as described in `docs/semantics.md`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from backstream.conformance.repeating_timers import RepeatingTimers
from backstream.errors import BackstreamError, SpecError
from backstream.eventtime.emission import Emission, EmissionModel, Topology
from backstream.eventtime.records import Record, SourceClock
from backstream.eventtime.union import UnionSource
from backstream.eventtime.watermark_generators import StrategyKind, WatermarkStrategy
from backstream.eventtime.windows import Cumulate, Session, Sliding, Tumbling, WindowSpec

_KINDS = {
    "none": StrategyKind.NONE,
    "monotonous": StrategyKind.MONOTONOUS,
    "bounded": StrategyKind.BOUNDED,
    "punctuated": StrategyKind.PUNCTUATED,
    "time_lag": StrategyKind.TIME_LAG,
    "sql": StrategyKind.FLINK_SQL,
}

_NOT_YET = {"top": "top-N of windows", "time_zone": "windows in local time", "join": "joins of streams"}
"""The parts of a case that no definition can say."""


@dataclass(frozen=True, slots=True)
class Case:
    """A recorded stream and its settings."""

    name: str
    records: tuple[Record, ...]
    partitions: tuple[int, ...]
    emission: Emission
    clock: SourceClock
    window: WindowSpec
    allowed_lateness_ms: int
    timers: RepeatingTimers | None = None


Pairs = Mapping[str, tuple[Any, Any]]
"""The recorded value and the value of an engine, by what they are. An engine's None: it does not compute it."""


class UnsupportedCaseError(BackstreamError):
    """The engine does not support this case."""

    is_retryable = False  # only a change of the code can help


def load_cases(paths: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """Yield the cases in files, one JSON object per line.

    Raises:
        SpecError: when a file or a line cannot be read, with its name.
    """
    for path in paths:
        if path.is_dir():
            from backstream.conformance.script_cases import load_script_cases  # it imports the parser of SQL

            yield from load_script_cases(path)
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            msg = f"cannot read conformance cases at {path}: {reason}"
            raise SpecError(msg) from error
        for number, line in enumerate(text.splitlines(), start=1):
            if line.strip():
                yield _parse_line(line, f"{path}:{number}")


def _parse_line(line: str, where: str) -> dict[str, Any]:
    try:
        content = json.loads(line)
    except ValueError as error:
        msg = f"conformance case is not JSON: {error} ({where})"
        raise SpecError(msg) from error
    names = ("case", "spark" if isinstance(content, dict) and "spark" in content else "flink")
    parts = [content.get(name) for name in names] if isinstance(content, dict) else [None]
    if not all(isinstance(part, dict) for part in parts):
        msg = f"conformance case must be an object with the objects `case`, and `flink` or `spark` ({where})"
        raise SpecError(msg)
    return dict(content)


def parse_case(case: Mapping[str, Any]) -> Case:
    """Parse the JSON form of a case.

    Raises:
        SpecError: when a setting is not allowed, as in Flink.
        UnsupportedCaseError: when backstream does not support the strategy, topology or window.
    """
    for name, reason in _NOT_YET.items():
        if name in case:
            raise UnsupportedCaseError(reason)
    records = tuple(_parse_record(record) for record in case["records"])
    interval_ms = _or_default(case["strategy"].get("interval_ms"), 200)
    partitions = case.get("partitions", 1 + max((record.source_partition for record in records), default=0))
    lateness_ms = _or_default(case.get("allowed_lateness_ms"), 0)
    _require_valid_records(records, partitions, lateness_ms)
    start_ms = _or_default(case.get("start_ms"), records[0].arrival_time_ms if records else 0)
    end_ms = _or_default(case.get("end_ms"), records[-1].arrival_time_ms if records else start_ms)
    return Case(
        name=case.get("name", "?"),
        records=records,
        partitions=tuple(range(partitions)),
        emission=_parse_emission(case, interval_ms),
        clock=SourceClock(start_ms, interval_ms, end_ms),
        window=_parse_window(case["window"]),
        allowed_lateness_ms=lateness_ms,
        timers=_parse_timers(case.get("timers")),
    )


def _parse_emission(case: Mapping[str, Any], interval_ms: int) -> Emission:
    if case.get("watermarks_by") == "assigner":
        msg = "watermarks of Flink SQL that an operator of its plan makes"
        raise UnsupportedCaseError(msg)
    drops_finished = case.get("partition_end") == "release"
    if case.get("topology") == "union":
        # The partitions of a recording have numbers, so the sources have numbers as names.
        sources = [
            UnionSource(str(number), _parse_strategy(source["strategy"], interval_ms), tuple(source["partitions"]))
            for number, source in enumerate(case["sources"])
        ]
        return Emission.from_sources(sources, drops_finished_splits=drops_finished)
    return Emission(
        _parse_strategy(case["strategy"], interval_ms),
        _topology(case.get("topology", "splits")),
        drops_finished,
        suppresses_final_when_idle=case.get("end_of_input") == "raw",
        model=_emission_model(case["strategy"].get("emit") or case.get("emission", "periodic")),
    )


def _parse_strategy(strategy: Mapping[str, Any], interval_ms: int) -> WatermarkStrategy:
    return WatermarkStrategy(
        _strategy_kind(strategy["kind"]),
        delay_ms=_or_default(strategy.get("delay_ms"), 0),
        interval_ms=interval_ms,
        idle_timeout_ms=strategy.get("idle_timeout_ms") or 0,
    )


def _require_valid_records(records: Sequence[Record], partitions: int, lateness_ms: int) -> None:
    if lateness_ms < 0:
        msg = f"allowed lateness must not be negative, got {lateness_ms} ms"
        raise SpecError(msg)
    for record in records:
        if not 0 <= record.source_partition < partitions:
            msg = f"partition must be 0 to {partitions - 1}, got {record.source_partition}"
            raise SpecError(msg)
    for before, after in pairwise(records):
        if after.arrival_time_ms < before.arrival_time_ms:
            msg = f"records must be in arrival order, got {after.arrival_time_ms} ms after a later one"
            raise SpecError(msg)


def _strategy_kind(name: str) -> StrategyKind:
    if name not in _KINDS:
        msg = f"watermark strategy {name!r}"
        raise UnsupportedCaseError(msg)
    return _KINDS[name]


def _topology(name: str) -> Topology:
    if name not in set(Topology):
        msg = f"topology {name!r}"
        raise UnsupportedCaseError(msg)
    return Topology(name)


def _emission_model(name: str) -> EmissionModel:
    if name not in set(EmissionModel):
        msg = f"emission model {name!r}"
        raise UnsupportedCaseError(msg)
    return EmissionModel(name)


def _or_default(value: int | None, default: int) -> int:
    return default if value is None else value


def _parse_record(record: Mapping[str, Any]) -> Record:
    return Record(
        record["arrival_ms"],
        record["partition"],
        record["key"],
        record["ts"],
        record.get("value", 1),
        record.get("marker"),
        tuple(record.get("delete_timers", ())),
    )


def _parse_timers(timers: Mapping[str, Any] | None) -> RepeatingTimers | None:
    if timers is None:
        return None
    return RepeatingTimers(timers["delays_ms"], timers.get("on_timer_period_ms", 0), timers.get("max_repeat", 0))


def _parse_window(window: Mapping[str, Any]) -> WindowSpec:
    offset_ms = window.get("offset_ms", 0)
    match window["kind"]:
        case "tumbling":
            return Tumbling(window["size_ms"], offset_ms)
        case "sliding":
            return Sliding(window["size_ms"], window["slide_ms"], offset_ms)
        case "cumulate":
            return Cumulate(window["size_ms"], window["slide_ms"], offset_ms)
        case "session":
            return Session(window["gap_ms"])
        case kind:
            msg = f"window kind {kind!r}"
            raise UnsupportedCaseError(msg)
