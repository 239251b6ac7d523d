"""Conformance cases: a recorded stream with its settings, and what real Flink did with it.

One JSON object per line, `{"case": input, "flink": result}`, as described in `docs/semantics.md`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from backstream.errors import BackstreamError, SpecError
from backstream.eventtime.records import Record, SourceClock
from backstream.eventtime.timers import Repeating
from backstream.eventtime.watermark_generators import StrategyKind, WatermarkStrategy
from backstream.eventtime.watermarks import Emission, EmissionModel, Topology
from backstream.eventtime.windows import Cumulate, Session, Sliding, Tumbling, WindowSpec

_KINDS = {
    "none": StrategyKind.NONE,
    "monotonous": StrategyKind.MONOTONOUS,
    "bounded": StrategyKind.BOUNDED,
    "punctuated": StrategyKind.PUNCTUATED,
    "time_lag": StrategyKind.TIME_LAG,
}


@dataclass(frozen=True, slots=True)
class Case:
    """A recorded stream and the settings under which it was played."""

    name: str
    records: tuple[Record, ...]
    partitions: tuple[int, ...]
    emission: Emission
    clock: SourceClock
    window: WindowSpec
    allowed_lateness_ms: int
    timers: Repeating | None = None


@dataclass(frozen=True, slots=True, order=True)
class RecordedFiring:
    """One firing, comparable. Those with the same `by` and kind are a set: their order is open in Flink."""

    by: int
    kind: str
    start: int
    end: int
    key: str
    records: tuple[int, ...]
    wm: int


@dataclass(slots=True)
class EngineResult:
    """What an engine makes of a case; None where it does not say."""

    firings: list[RecordedFiring]
    late: list[int]
    record_wm: list[int] | None = None
    watermarks: list[tuple[int, int]] | None = None
    is_final: bool | None = None
    timers: list[tuple[int, int, str, int, int]] | None = None


class UnsupportedCaseError(BackstreamError):
    """The engine does not know how to play this case yet."""

    is_retryable = False  # it learns that by a change of code


Engine = Callable[[Sequence[Case]], Sequence[EngineResult | BackstreamError]]
"""Plays cases; what it answers for one that fails is the error, in the same place."""


@dataclass(slots=True)
class Tally:
    """How many cases agree with Flink, and a line for each that does not."""

    agree: int = 0
    differ: list[str] = field(default_factory=list)
    unsupported: list[str] = field(default_factory=list)

    @property
    def cases(self) -> int:
        """All of them."""
        return self.agree + len(self.differ) + len(self.unsupported)

    def __str__(self) -> str:
        counts = f"agree: {self.agree}  differ: {len(self.differ)}  unsupported: {len(self.unsupported)}"
        return f"cases: {self.cases}  {counts}"


def find_difference(lines: Sequence[Mapping[str, Any]], engine: Engine) -> Tally:
    """Play every case on an engine and hold it against Flink's result."""
    parsed = [_parsed(line["case"]) for line in lines]
    played = iter(engine([case for case in parsed if isinstance(case, Case)]))
    tally = Tally()
    for line, case in zip(lines, parsed, strict=True):
        ours = next(played) if isinstance(case, Case) else case
        try:
            _count(tally, line["case"].get("name", "?"), line["flink"], ours)
        except (KeyError, TypeError, AttributeError) as error:
            raise _malformed(line["case"], error) from error
    return tally


def _parsed(case: Mapping[str, Any]) -> Case | BackstreamError:
    try:
        return parse_case(case)
    except BackstreamError as error:
        return error
    except (KeyError, TypeError, AttributeError) as error:
        raise _malformed(case, error) from error


def _malformed(case: Mapping[str, Any], error: Exception) -> SpecError:
    return SpecError(f"conformance case {case.get('name', '?')!r} is not of the form it must have: {error!r}")


def _count(tally: Tally, name: str, flink: Mapping[str, Any], ours: EngineResult | BackstreamError) -> None:
    if isinstance(ours, UnsupportedCaseError):
        tally.unsupported.append(f"unsupported: {name}: {ours}")
        return
    if isinstance(ours, BackstreamError):
        found = None if "error" in flink else f"raised {type(ours).__name__}: {ours}"
    else:
        found = _difference(flink, ours)
    if found:
        tally.differ.append(f"differs: {name}: {found}")
    else:
        tally.agree += 1


def load_cases(paths: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """The cases in files, one JSON object per line.

    Raises:
        SpecError: when a file or a line cannot be read, naming it.
    """
    for path in paths:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            msg = f"cannot read conformance cases at {path}: {reason}"
            raise SpecError(msg) from error
        for number, line in enumerate(text.splitlines(), start=1):
            if line.strip():
                yield _object(line, f"{path}:{number}")


def _object(line: str, where: str) -> dict[str, Any]:
    try:
        content = json.loads(line)
    except ValueError as error:
        msg = f"conformance case is not JSON: {error} ({where})"
        raise SpecError(msg) from error
    parts = [content.get(part) for part in ("case", "flink")] if isinstance(content, dict) else [None]
    if not all(isinstance(part, dict) for part in parts):
        msg = f"conformance case must be an object with the objects `case` and `flink` ({where})"
        raise SpecError(msg)
    return dict(content)


def parse_case(case: Mapping[str, Any]) -> Case:
    """A case from its JSON form.

    Raises:
        SpecError: when a setting is not allowed, as in Flink.
        UnsupportedCaseError: when a strategy, topology or window is of a kind that is not known here.
    """
    records = tuple(_record(each) for each in case["records"])
    settings = case["strategy"]
    strategy = WatermarkStrategy(
        _strategy_kind(settings["kind"]),
        delay_ms=_or_default(settings.get("delay_ms"), 0),
        interval_ms=_or_default(settings.get("interval_ms"), 200),
        idle_timeout_ms=settings.get("idle_timeout_ms") or 0,
    )
    partitions = case.get("partitions", 1 + max((r.source_partition for r in records), default=0))
    lateness_ms = _or_default(case.get("allowed_lateness_ms"), 0)
    _require_playable(records, partitions, lateness_ms)
    start_ms = _or_default(case.get("start_ms"), records[0].arrival_time_ms if records else 0)
    end_ms = _or_default(case.get("end_ms"), records[-1].arrival_time_ms if records else start_ms)
    emission = Emission(
        strategy,
        _topology(case.get("topology", "splits")),
        drops_finished_splits=case.get("partition_end") == "release",
        suppresses_final_when_idle=case.get("end_of_input") == "raw",
        model=_emission_model(case.get("emission", "periodic")),
    )
    return Case(
        name=case.get("name", "?"),
        records=records,
        partitions=tuple(range(partitions)),
        emission=emission,
        clock=SourceClock(start_ms, strategy.interval_ms, end_ms),
        window=_window(case["window"]),
        allowed_lateness_ms=lateness_ms,
        timers=_process_function(case.get("timers")),
    )


def _require_playable(records: Sequence[Record], partitions: int, lateness_ms: int) -> None:
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


def _record(each: Mapping[str, Any]) -> Record:
    return Record(
        each["arrival_ms"],
        each["partition"],
        each["key"],
        each["ts"],
        each.get("value", 1),
        each.get("marker"),
        tuple(each.get("delete_timers", ())),
    )


def _process_function(timers: Mapping[str, Any] | None) -> Repeating | None:
    if timers is None:
        return None
    return Repeating(timers["delays_ms"], timers.get("on_timer_period_ms", 0), timers.get("max_repeat", 0))


def _window(window: Mapping[str, Any]) -> WindowSpec:
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


def _difference(flink: Mapping[str, Any], ours: EngineResult) -> str | None:
    """The first thing that is not as in Flink, in words."""
    if "error" in flink:
        return f"Flink fails with {flink['error']!r}, we do not"
    expected = [_firing(each) for each in flink["firings"]]
    pairs: dict[str, tuple[Any, Any]] = {
        "watermarks": ([(each["wm"], each["after"]) for each in flink["watermarks"]], ours.watermarks),
        "watermark in force": (flink["record_wm"], ours.record_wm),
        "order of firings": (_order(expected), _order(ours.firings)),
        "firings": (sorted(expected), sorted(ours.firings)),
        "late records": (sorted(flink["late"]), sorted(ours.late)),
        "number of late records": (flink["num_late_dropped"], len(ours.late)),
        "final watermark": (flink["final_watermark"], ours.is_final),
        "timers": (sorted(_timer(each) for each in flink.get("timers", [])), ours.timers),
    }
    for what, (theirs, mine) in pairs.items():
        if mine is not None and theirs != mine:
            return f"{what}: {_first_difference(theirs, mine)}"
    return None


def _timer(each: Mapping[str, Any]) -> tuple[int, int, str, int, int]:
    return each["by"], each["ts"], each["key"], each["wm"], each["after"]


def _firing(each: Mapping[str, Any]) -> RecordedFiring:
    records = tuple(sorted(each["records"]))
    return RecordedFiring(each["by"], each["kind"], each["start"], each["end"], each["key"], records, each["wm"])


def _order(firings: Sequence[RecordedFiring]) -> list[tuple[str, int, int]]:
    """The order that Flink defines: which watermark or record, and then by window end or start."""
    return [(each.kind, each.by, each.end) for each in firings]


def _first_difference(theirs: Any, mine: Any) -> str:
    if not isinstance(theirs, list):
        return f"Flink {theirs}, we {mine}"
    for number, (one, other) in enumerate(zip(theirs, mine, strict=False)):
        if one != other:
            return f"at {number} Flink {one}, we {other}"
    return f"Flink has {len(theirs)}, we have {len(mine)}"
