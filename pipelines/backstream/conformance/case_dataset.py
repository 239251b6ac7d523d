"""Write a recorded stream as what a user has: Parquet files and a definition, with the range to replay.

The aggregates are sums of bits: the record with the number n has bit n. So a sum names the records in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import lcm
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from backstream.conformance.cases import Case, RecordedJoin, UnsupportedCaseError
from backstream.conformance.join_results import JOIN_COLUMNS
from backstream.conformance.repeating_timers import RepeatingTimers
from backstream.conformance.top_rows import name_of_key
from backstream.definition.watermark_sections import DELAYED
from backstream.eventtime.emission import EmissionModel, Topology
from backstream.eventtime.instants import DAY_MS, instant_text
from backstream.eventtime.intervals import Interval
from backstream.eventtime.joins.join_function import JoinKind
from backstream.eventtime.records import Record
from backstream.eventtime.watermark_generators import StrategyKind, WatermarkStrategy
from backstream.eventtime.windows import Cumulate, Session, Sliding, Tumbling, WindowSpec, find_disorder

_BITS = 60
"""The bits of one column; a long has 63, and a sum of them must not overflow."""
VALID_TIMES = Interval(-62_135_596_800_000, 253_402_214_400_000)
"""The years 1 to 9999 without their last day, which a definition can name."""
_LONGEST_MS = 36_500 * DAY_MS
"""The longest duration in a definition. Idleness or lateness of this length has the effect of a longer one."""
_MARGIN_MS = 10 * DAY_MS
"""The valid times around a recording in local time: at other changes of clocks, windows may fire out of order."""
_CHUNKS = 8
"""The number of chunks of a long stream."""


@dataclass(frozen=True, slots=True)
class CaseDataset:
    """A definition and its files in a folder, with the range that has all windows of a case."""

    definition: Path
    interval: Interval
    bit_columns: tuple[str, ...]

    def records_of(self, row: Mapping[str, Any], suffix: str) -> tuple[int, ...]:
        """Return the numbers of the records in an aggregated row; empty if the row has no such pane."""
        return tuple(
            number + _BITS * column
            for column, name in enumerate(self.bit_columns)
            for number in range(_BITS)
            if (row[f"{name}{suffix}"] or 0) >> number & 1
        )


def write_dataset(case: Case, folder: Path, engine: str, process: Mapping[str, Any] | None = None) -> CaseDataset:
    """Write the files and the definition of a case.

    Args:
        case: the recorded stream.
        folder: an empty folder.
        engine: the value of `backfill.engine`.
        process: the section `[process]`, in place of the aggregates.

    Raises:
        UnsupportedCaseError: when no definition and no file can say what the case says.
    """
    _require_expressible(case)
    bit_columns = tuple(f"bits_{number}" for number in range(-(-len(case.records) // _BITS)))
    for source, partitions in _partitions_by_source(case).items():
        records = [
            (number, each) for number, each in enumerate(case.records) if each.source_partition in partitions
        ]
        (folder / source).mkdir()
        pq.write_table(_table_of(records, bit_columns), folder / source / "records.parquet")
    # Timers do not depend on windows, and a process function and a join need tumbling ones.
    window = Tumbling(DAY_MS) if process or case.join else case.window
    interval, chunk_ms = _range_of(case, window, case.timers if process else None)
    sums = {name: f"sum({name})" for name in bit_columns}
    results: dict[str, Any] = {"process": process} if process else {"aggregates": sums}
    backfill = {"engine": engine, "chunk": f"{chunk_ms}ms"}
    if case.top:
        results = {"aggregates": sums | case.top.aggregates, "top": case.top.section}
        backfill["publish"] = "live"  # SQL emits a row when its window fires
    if case.join:
        results = {"join": _join(case, case.join)}
    content = {
        "name": "recording",
        "window": _window(window),
        **_source_and_watermarks(case, folder),
        **results,
        "backfill": backfill,
        **_quality(case),
    }
    if process:
        content.pop("lateness", None)  # a process function gets all records
    if case.join:
        for part, columns in zip(content["source"], JOIN_COLUMNS, strict=True):
            part["derive"] = dict(zip(columns, ("seq", "value"), strict=True))
        if not case.allowed_lateness_ms:
            content.pop("lateness", None)
    definition = folder / "recording.toml"
    definition.write_text(
        "".join(f"{key} = {toml_value(value)}\n" for key, value in content.items()), encoding="utf-8"
    )
    return CaseDataset(definition, interval, bit_columns)


def _join(case: Case, join: RecordedJoin) -> dict[str, Any]:
    """Return the section `[join]`."""
    left, right = (dict.fromkeys(columns, "bigint") for columns in JOIN_COLUMNS)
    section: dict[str, Any] = {
        "kind": join.kind.value,
        "type": join.join_type.value,
        "semantics": join.semantics.value,
        "left": left,
        "right": right,
    }
    if join.has_condition:
        section["where"] = " < ".join(columns[1] for columns in JOIN_COLUMNS)
    if join.kind is JoinKind.INTERVAL:
        section |= {key: f"{ms}ms" for key, ms in zip(("lower", "upper"), join.bounds_ms, strict=True)}
    return section | ({"window": _window(case.window)} if join.kind is JoinKind.WINDOW else {})


def _require_expressible(case: Case) -> None:
    """Check that files and a definition can express the case.

    Raises:
        UnsupportedCaseError: with the reason.
    """
    for reason in _list_obstacles(case):
        raise UnsupportedCaseError(reason)


def _list_obstacles(case: Case) -> Iterator[str]:
    if not case.records:
        yield "no records"
    times_ms = [time_ms for record in case.records for time_ms in (record.event_time_ms, record.arrival_time_ms)]
    markers_ms = [record.marker for record in case.records if type(record.marker) is int]
    if not all(VALID_TIMES.start_ms <= time_ms < VALID_TIMES.end_ms for time_ms in (*times_ms, *markers_ms)):
        yield "times outside of the years 1 to 9999"
    if isinstance(case.window, Session) and max(case.allowed_lateness_ms, case.window.gap_ms) > _LONGEST_MS:
        yield "sessions with a gap or lateness of more than 100 years"  # a merge may overflow, as in Flink
    if case.records and case.window.zone and find_disorder(case.window, _event_span(case)) is not None:
        yield f"windows that fire out of order where the clocks of {case.window.zone.name} change"
    if case.emission.suppresses_final_when_idle:
        yield "no final watermark, which a definition cannot ask for"
    if case.emission.sources and case.emission.drops_finished_splits:
        yield "several sources whose finished partitions leave, which a definition cannot ask for"


def _event_span(case: Case) -> Interval:
    times_ms = [record.event_time_ms for record in case.records]
    return Interval(min(times_ms) - _MARGIN_MS, max(times_ms) + _MARGIN_MS)


def _partitions_by_source(case: Case) -> Mapping[str, Sequence[int]]:
    """Return the numbers of the partitions of each source, by the name of its folder."""
    sources = {_source_name(source.name): source.partitions for source in case.emission.sources}
    return sources or {"records": case.partitions}


def _source_name(number: str) -> str:
    return f"source{number}"


def _table_of(records: Sequence[tuple[int, Record]], bit_columns: Sequence[str]) -> pa.Table:
    """Return numbered records as a table."""
    instant, rows = pa.timestamp("us", "UTC"), [record for _, record in records]
    markers = [record.marker for record in rows]
    columns = {
        "happened": pa.array([record.event_time_ms * 1_000 for record in rows], instant),
        "arrived": pa.array([record.arrival_time_ms * 1_000 for record in rows], instant),
        "origin": pa.array([str(record.source_partition) for record in rows], pa.string()),
        "seq": pa.array([number for number, _ in records], pa.int64()),
        "key": pa.array([name_of_key(record.key) for record in rows], pa.string()),
        "value": pa.array([record.value for record in rows], pa.int64()),
        "marker_ms": pa.array([each if type(each) is int else None for each in markers], pa.int64()),
        "is_marker": pa.array([each is True for each in markers], pa.bool_()),
        "delete_timers_ms": pa.array([record.delete_timers_ms for record in rows], pa.list_(pa.int64())),
    }
    for place, name in enumerate(bit_columns):
        bits = [1 << number - place * _BITS if number // _BITS == place else 0 for number, _ in records]
        columns[name] = pa.array(bits, pa.int64())
    return pa.table(columns)


def _range_of(case: Case, window: WindowSpec, timers: RepeatingTimers | None) -> tuple[Interval, int]:
    """Return a range of whole days with all windows and timers of a case, and the length of a chunk."""
    times_ms = [window.local_ms(record.event_time_ms) for record in case.records]
    first_ms, last_ms = min(times_ms) - (0 if isinstance(window, Session) else window.size_ms), max(times_ms)
    if case.join:  # a row has the last millisecond of its window as its time
        last_ms += case.window.gap_ms if isinstance(case.window, Session) else case.window.size_ms
    if timers:
        first_ms += min(0, *timers.delays_ms)
        last_ms += max(0, *timers.delays_ms) + timers.period_ms * timers.most_repeats
        if last_ms >= VALID_TIMES.end_ms:
            msg = "timers outside of the years 1 to 9999"
            raise UnsupportedCaseError(msg)
    shortest_ms = lcm(1 if isinstance(window, Session) else window.start_step_ms, DAY_MS)
    chunk_ms = -(-(last_ms - first_ms) // (_CHUNKS * shortest_ms)) * shortest_ms
    first_ms = max(first_ms, VALID_TIMES.start_ms)
    return Interval(first_ms // DAY_MS * DAY_MS, (last_ms // DAY_MS + 1) * DAY_MS), max(chunk_ms, shortest_ms)


def _window(window: WindowSpec) -> dict[str, str]:
    section = {"time_zone": window.zone.name} if window.zone else {}
    if isinstance(window, Session):
        return {**section, "kind": "session", "gap": f"{window.gap_ms}ms"}
    section |= {
        "kind": type(window).__name__.lower(),
        "size": f"{window.size_ms}ms",
        "offset": f"{window.offset_ms}ms",
    }
    if isinstance(window, Sliding):
        section["slide"] = f"{window.slide_ms}ms"
    if isinstance(window, Cumulate):
        section["step"] = f"{window.step_ms}ms"
    return section


def _source_and_watermarks(case: Case, folder: Path) -> dict[str, Any]:
    """Return the sections `[source]`, `[watermark]`, and `[lateness]`."""
    emission, valid = case.emission, VALID_TIMES
    if case.window.zone:
        valid = _event_span(case)
    source = {
        "event_time": "happened",
        "arrival_time": "arrived",
        "partition": "origin",
        "sequence": "seq",
        "key": case.top.key if case.top else ["key"],
        "event_time_range": [instant_text(valid.start_ms), instant_text(valid.end_ms)],
    }
    if emission.sources:
        sources = [
            {
                **source,
                "name": _source_name(each.name),
                "path": str(folder / _source_name(each.name)),
                "watermark": _strategy(each.strategy),
            }
            for each in emission.sources
        ]
        content: dict[str, Any] = {"source": sources, "watermark": {}}
    else:
        is_batch = emission.model is EmissionModel.MICRO_BATCH  # with one maximum of all partitions
        watermark = _strategy(replace(emission.strategy, idle_timeout_ms=0) if is_batch else emission.strategy)
        content = {"source": {**source, "path": str(folder / "records")}, "watermark": watermark}
        if emission.topology is not Topology.SPLITS and not is_batch:
            content["watermark"]["topology"] = emission.topology.value
        if emission.model is not EmissionModel.TICK:
            content["watermark"]["emit"] = emission.model.value
        if emission.drops_finished_splits and not is_batch:
            content["watermark"]["finished_partitions"] = "release"
    if all(strategy.kind is StrategyKind.NONE for strategy in emission.strategies):
        return {**content, "watermark": {"strategy": StrategyKind.NONE.value}}
    content["watermark"] |= {
        "emit_interval": f"{emission.strategy.interval_ms}ms",
        "clock_start": instant_text(case.clock.start_ms),
    }
    return {**content, "lateness": {"allowed": f"{min(case.allowed_lateness_ms, _LONGEST_MS)}ms"}}


def _strategy(strategy: WatermarkStrategy) -> dict[str, str]:
    section = {"strategy": strategy.kind.value}
    if strategy.kind in DELAYED:
        section["delay"] = f"{strategy.delay_ms}ms"
    if strategy.idle_timeout_ms and strategy.interval_ms and strategy.kind is not StrategyKind.NONE:
        # Without ticks, no partition becomes idle.
        section["idle_timeout"] = f"{min(strategy.idle_timeout_ms, _LONGEST_MS)}ms"
    if strategy.kind is StrategyKind.PUNCTUATED:
        own_ms = f"unix_millis(happened) - {strategy.delay_ms}L"
        section["marker"] = f"timestamp_millis(coalesce(marker_ms, if(is_marker, {own_ms}, null)))"
    return section


def _quality(case: Case) -> dict[str, Any]:
    """Return the section `[quality]`, with all partitions if some have no records."""
    heard = {record.source_partition for record in case.records}
    if heard.issuperset(case.partitions):
        return {}
    names = {
        number: f"{_source_name(source.name)}/{number}"
        for source in case.emission.sources
        for number in source.partitions
    }
    return {"quality": {"expected_partitions": [names.get(number, str(number)) for number in case.partitions]}}


def toml_value(value: object) -> str:
    """Return a value in TOML's form; the texts, numbers, and lists of a case have that of JSON."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {toml_value(each)}" for key, each in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    return json.dumps(value)
