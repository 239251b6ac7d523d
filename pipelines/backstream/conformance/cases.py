"""Load conformance cases: recorded streams with Flink's results.

A file has one JSON object per line, `{"case": input, "flink": result}`, as described in `docs/semantics.md`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from backstream.conformance.repeating_timers import RepeatingTimers
from backstream.conformance.top_rows import RankedBy, TopOfCase
from backstream.errors import BackstreamError, SpecError
from backstream.eventtime.emission import Emission, EmissionModel, Topology
from backstream.eventtime.instants import DAY_MS, instant_ms
from backstream.eventtime.joins.join_function import JoinKind, JoinSemantics, inputs_of
from backstream.eventtime.joins.rule import JoinType
from backstream.eventtime.records import Record, SourceClock
from backstream.eventtime.time_zones import find_zone
from backstream.eventtime.union import UnionSource
from backstream.eventtime.watermark_generators import StrategyKind, WatermarkStrategy
from backstream.eventtime.windows import Cumulate, Session, Sliding, TimeWindow, Tumbling, WindowSpec

_KINDS = {
    "none": StrategyKind.NONE,
    "monotonous": StrategyKind.MONOTONOUS,
    "bounded": StrategyKind.BOUNDED,
    "punctuated": StrategyKind.PUNCTUATED,
    "time_lag": StrategyKind.TIME_LAG,
    "sql": StrategyKind.FLINK_SQL,
}

"""The parts of a case that no definition can say."""
_CONDITION = "left.value < right.value"
"""The condition of recorded joins."""


@dataclass(frozen=True, slots=True)
class RecordedJoin:
    """The join of a recording. Its condition compares the values of both records."""

    kind: JoinKind
    join_type: JoinType
    semantics: JoinSemantics
    bounds_ms: tuple[int, int]
    has_condition: bool


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
    top: TopOfCase | None = None
    join: RecordedJoin | None = None


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
    records = tuple(_parse_record(record) for record in case["records"])
    interval_ms = _or_default(case["strategy"].get("interval_ms"), 200)
    partitions = case.get("partitions", 1 + max((record.source_partition for record in records), default=0))
    lateness_ms = _or_default(case.get("allowed_lateness_ms"), 0)
    _require_valid_records(records, partitions, lateness_ms)
    start_ms = _or_default(case.get("start_ms"), records[0].arrival_time_ms if records else 0)
    end_ms = _or_default(case.get("end_ms"), records[-1].arrival_time_ms if records else start_ms)
    emission, top = _parse_emission(case, interval_ms), _parse_top(case.get("top"))
    window = _parse_window(case["window"]) if "window" in case else Tumbling(DAY_MS)
    return Case(
        name=case.get("name", "?"),
        records=top.with_keys(records) if top else records,
        partitions=tuple(range(partitions)),
        emission=emission,
        clock=SourceClock(start_ms, emission.tick_ms, end_ms),
        window=replace(window, zone=find_zone(case.get("time_zone"))),
        allowed_lateness_ms=lateness_ms,
        timers=_parse_timers(case.get("timers")),
        top=top,
        join=_parse_join(case["join"], case) if "join" in case else None,
    )


def _parse_join(join: Mapping[str, Any], case: Mapping[str, Any]) -> RecordedJoin:
    if join.get("condition", _CONDITION) != _CONDITION:
        msg = f"join condition {join['condition']!r}"
        raise UnsupportedCaseError(msg)
    if join["kind"] not in set(JoinKind):
        msg = f"join kind {join['kind']!r}"
        raise UnsupportedCaseError(msg)
    bounds_ms = (0, 0)
    if join["kind"] == JoinKind.INTERVAL:
        bounds_ms = (
            join["lower_ms"] + join.get("lower_exclusive", False),
            join["upper_ms"] - join.get("upper_exclusive", False),
        )
    return RecordedJoin(
        JoinKind(join["kind"]),
        # The function of `coGroup` gets both lists, so it can emit every row.
        JoinType.FULL if join["type"] == "cogroup" else JoinType(join["type"]),
        JoinSemantics.FLINK_SQL if "sql" in case else JoinSemantics.FLINK_DATASTREAM,
        bounds_ms,
        has_condition="condition" in join,
    )


def _parse_emission(case: Mapping[str, Any], interval_ms: int) -> Emission:
    drops_finished = case.get("partition_end") == "release"
    if case.get("topology") in ("union", "two_inputs"):
        # The partitions of a recording have numbers, so the sources have numbers as names.
        sources = [
            UnionSource(str(number), _parse_strategy(source["strategy"], interval_ms), tuple(source["partitions"]))
            for number, source in enumerate(case["sources"])
        ]
        emission = Emission.from_sources(sources, drops_finished_splits=drops_finished)
        if "join" in case:
            join = _parse_join(case["join"], case)
            return replace(emission, inputs=inputs_of(join.kind, join.semantics))
        return emission
    return Emission(
        _parse_strategy(case["strategy"], interval_ms),
        _topology("operator" if case.get("watermarks_by") == "assigner" else case.get("topology", "splits")),
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


def _parse_top(top: Mapping[str, Any] | None) -> TopOfCase | None:
    if top is None:
        return None
    if top["of"] not in set(RankedBy):
        msg = f"top-N of {top['of']}"
        raise UnsupportedCaseError(msg)
    return TopOfCase(RankedBy(top["of"]), top["n"])


def window_of_firing(firing: Mapping[str, Any]) -> TimeWindow:
    """Return the window of a recorded firing; in local time, it has local texts."""
    if "start" in firing:
        return TimeWindow(firing["start"], firing["end"])
    return TimeWindow(*(instant_ms(f"{firing[name]}Z", name) for name in ("start_local", "end_local")))


def list_late_records(flink: Mapping[str, Any]) -> list[int]:
    """Return the late records of a recording; if Flink counted partial aggregates, those that no window has."""
    return sorted(flink["late"] if "late" in flink else flink["never_fired"])


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
