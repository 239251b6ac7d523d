"""Compute the state of a recorded stream at a cut with DuckDB: watermarks, positions, and open windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from backstream.definition.model import Definition
from backstream.errors import SpecError
from backstream.eventtime.instants import MIN_MS
from backstream.eventtime.intervals import Interval
from backstream.eventtime.records import SourceClock
from backstream.eventtime.stream_state import StreamState
from backstream.eventtime.union import complete_partitions
from backstream.eventtime.windows import FixedWindow, Session
from backstream.handover.handover_sessions import Rises, SessionIslands
from backstream.native.database import register_firing_times
from backstream.native.handover_queries import (
    CutQueries,
    first_open_end_ms,
    fixed_members_query,
    fixed_pane_index,
    open_records_query,
    open_windows_query,
    partial_columns,
    quoted_keys,
)
from backstream.native.record_scans import column_alias
from backstream.native.records import RecordsQuery, group_files_by_schema
from backstream.native.sql import PARTITION_TEXT, is_after, join_firing_times
from backstream.native.supported import parse_aggregate, read_spec
from backstream.native.task import Aggregate, ReadSpec
from backstream.runs.plan import InputFile
from backstream.watermarks.cut_state import find_cut_state
from backstream.watermarks.firing_times import FiringTimes, WindowGrid
from backstream.watermarks.timeline import WatermarkTimeline

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True, slots=True)
class CutStream:
    """A recorded stream that is cut at an arrival instant.

    `columns` are the columns of the source with their Spark SQL types. `partitions` must deliver records although
    they may have none.
    """

    definition: Definition
    columns: Mapping[str, str]
    files: Sequence[InputFile]
    clock_start_ms: int
    at_ms: int
    partitions: Sequence[str] = ()

    @property
    def clock(self) -> SourceClock:
        """The clock of the source, which ends at the cut."""
        start_ms = min(self.clock_start_ms, self.at_ms)
        return SourceClock(start_ms, self.definition.watermark.emit_interval, self.at_ms)

    @property
    def aggregates(self) -> list[Aggregate]:
        """The aggregates that have partial values."""
        calls = self.definition.aggregates.items()
        parsed = (parse_aggregate(name, call, self.columns) for name, call in calls)
        return [aggregate for aggregate in parsed if aggregate is not None]

    @property
    def holistic_aggregates(self) -> list[str]:
        """The names of the aggregates that need all records of a window."""
        merged = {aggregate.name for aggregate in self.aggregates}
        return [name for name in self.definition.aggregates if name not in merged]

    @property
    def needs_records(self) -> bool:
        """Return whether the live job needs the records of open windows: for an aggregate, or for duplicates."""
        return bool(self.holistic_aggregates or self.definition.source.deduplicate_on)

    @property
    def read_spec(self) -> ReadSpec:
        """The columns of a record that the state depends on."""
        source = self.definition.timed_source
        columns = [*source.key, *source.deduplicate_on]
        columns += [aggregate.column for aggregate in self.aggregates if aggregate.column]
        columns += [self.definition.marker] if self.definition.marker else []
        return read_spec(self.definition, self.columns, [*columns, *(self.columns if self.needs_records else ())])


@dataclass(frozen=True, slots=True)
class CutState:
    """The state of a stream at a cut.

    `positions` has a row per source partition. `windows` and `records` are the tables of the bundle; `records` is
    None if no aggregate needs them.
    """

    stream: StreamState
    partitions: tuple[str, ...]
    positions: pa.Table
    windows: pa.Table
    records: pa.Table | None


def compute_cut_state(database: duckdb.DuckDBPyConnection, cut: CutStream) -> CutState:
    """Return the state of a stream at its cut.

    Raises:
        SpecError: when the positions of a source partition do not ascend with the arrival time at the cut.
    """
    definition, reading = cut.definition, cut.read_spec
    groups = group_files_by_schema([file.path for file in cut.files], reading)
    queries = CutQueries(reading, groups, cut.at_ms, definition.marker, definition.watermark.delay)
    positions = database.sql(queries.positions()).to_arrow_table()
    if reading.sequence:
        _require_ascending_positions(positions, cut)
    emission = definition.emission
    names = complete_partitions(
        emission.source_names, [*cut.partitions, *positions["source_partition"].to_pylist()]
    )
    cells = database.sql(queries.cells(emission, cut.clock)).to_arrow_table()
    records = sum(positions["records"].to_pylist())
    stream, timeline = find_cut_state(cells, emission, cut.clock, names, records)
    keys, window = quoted_keys(definition.source.key, reading), definition.window.spec()
    if isinstance(window, Session):
        islands = SessionIslands(database, window, definition.lateness.allowed, list(keys.values()))
        select = partial(_select_records, database, cut)
        islands.create_candidates(select, reading.valid.start_ms, stream.watermark_ms)
        members, pane_index = islands.open_members(stream.watermark_ms, Rises(timeline, cut.clock))
    else:
        members, pane_index = _fixed_members(database, cut, stream.watermark_ms, timeline)
    partials = partial_columns(cut.aggregates, reading)
    windows = open_windows_query(members, keys, partials, pane_index, stream.watermark_ms)
    return CutState(
        stream,
        tuple(names),
        positions,
        database.sql(windows).to_arrow_table(),
        _open_records(database, cut, members) if cut.needs_records else None,
    )


def _open_records(database: duckdb.DuckDBPyConnection, cut: CutStream, members: str) -> pa.Table:
    payload = {name: column_alias(cut.read_spec, name) for name in cut.columns}
    return database.sql(open_records_query(members, payload)).to_arrow_table()


def _require_ascending_positions(positions: pa.Table, cut: CutStream) -> None:
    """Check that one position per partition separates the records before the cut from those after it."""
    for row in positions.to_pylist():
        last, first = row["last_seq"], row["first_seq_after"]
        if last is not None and first is not None and first <= last:
            msg = (
                f"cannot hand over {cut.definition.name} at this instant: no position separates its records\n"
                f"  source partition {row['source_partition']}: {cut.definition.source.sequence} {last:,} arrived"
                f" before it, and {first:,} arrived after it\n\n"
                "hint: choose an instant at which arrival times ascend with the sequence"
            )
            raise SpecError(msg)


def _fixed_members(
    database: duckdb.DuckDBPyConnection, cut: CutStream, watermark_ms: int, timeline: WatermarkTimeline
) -> tuple[str, str]:
    """Return a query of the records of open windows, and the index of the next pane as an aggregate.

    The watermark never falls. So each open window has accepted all its records so far.
    """
    window = cut.definition.window.spec()
    assert isinstance(window, FixedWindow)  # noqa: S101 - sessions have another function
    reading = cut.read_spec
    above_ms = max(watermark_ms - cut.definition.lateness.allowed, reading.valid.start_ms - window.size_ms)
    first_end_ms = first_open_end_ms(window, above_ms)
    records = _select_records(database, cut, first_end_ms - window.size_ms)
    members = fixed_members_query(records, window, first_end_ms)
    step_ms = window.end_step_ms
    fired = max(0, (watermark_ms + 1 - first_end_ms) // step_ms + 1) if watermark_ms > MIN_MS else 0
    if not fired:
        return members, "0"
    grid = WindowGrid(window, first_end_ms, fired)
    firing_times = FiringTimes.from_timeline(timeline, grid, cut.clock, 0)
    register_firing_times(database, firing_times)
    number = f"((window_end_ms - {first_end_ms}) // {step_ms})"
    joined = join_firing_times(members, number, firing_times)
    place = ("arrival_ms", "arrival_seq", PARTITION_TEXT)
    is_late = f"coalesce({is_after(firing_times, 't_fired', place)}, false)"
    return joined, fixed_pane_index(is_late, watermark_ms)


def _select_records(database: duckdb.DuckDBPyConnection, cut: CutStream, start_ms: int) -> str:
    """Return a query of the records before the cut with an event time from an instant on, without duplicates."""
    reading = cut.read_spec
    interval = Interval(max(start_ms, reading.valid.start_ms), max(start_ms + 1, reading.valid.end_ms))
    reach = cut.definition.source.identity.reach(interval)
    paths = [file.path for file in cut.files if file.may_hold(reach)] or [cut.files[0].path]
    times = {reading.event_time, reading.arrival_time, reading.partition, reading.sequence}
    others = [name for name in reading.types if name not in times or name in cut.columns]
    groups = group_files_by_schema(paths, reading)
    query = RecordsQuery(reading, groups, others, cut.definition.source.identity)
    database.execute("DROP TABLE IF EXISTS marked_records; DROP TABLE IF EXISTS copies")
    query.mark_duplicates(database, interval)
    return f"SELECT * FROM ({query.select_once(interval)}) WHERE arrival_ms < {cut.at_ms}"
