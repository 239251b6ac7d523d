"""Generate the queries of a hand-over: positions, cells for the watermarks, and the windows open at a cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from backstream.eventtime.emission import Emission, EmissionModel
from backstream.eventtime.instants import MIN_MS
from backstream.eventtime.records import SourceClock
from backstream.eventtime.windows import FixedWindow, Session, Sliding
from backstream.native.aggregates import aggregates_over_records
from backstream.native.record_scans import Groups, column_alias, scan_query
from backstream.native.sql import (
    PARTITION_TEXT,
    quote_name,
    select_list,
    window_ends,
    window_start,
)
from backstream.native.task import INTEGERS, Aggregate, ReadSpec

PARTIAL_SUFFIXES: Mapping[str, Sequence[str]] = {"avg": ("__sum", "__count")}
"""Suffixes of the columns of a partial aggregate; other aggregates have one column with their own name."""
_ROW = ("event_ms", "arrival_ms", "arrival_seq", "source_partition")


@dataclass(frozen=True, slots=True)
class CutQueries:
    """The queries over all records that arrived before `at_ms`; `marker` is a column with watermarks, or None."""

    reading: ReadSpec
    groups: Groups
    at_ms: int
    marker: str | None = None
    marker_delay_ms: int = 0

    def positions(self) -> str:
        """Return a query of one row per source partition, with the records on both sides of the cut."""
        before = f"FILTER (WHERE arrival_ms < {self.at_ms})"
        after = f"FILTER (WHERE arrival_ms >= {self.at_ms})"
        columns = {
            "source_partition": PARTITION_TEXT,
            "records": f"count(*) {before}",
            "last_arrival_ms": f"max(arrival_ms) {before}",
            "last_seq": f"max(arrival_seq) {before}",
            "first_seq_after": f"min(arrival_seq) {after}",
        }
        return f"SELECT {select_list(columns)} FROM ({self._readable()}) GROUP BY ALL ORDER BY 1"

    def cells(self, emission: Emission, clock: SourceClock) -> str:
        """Return a query of the cells and markers of `compress_events`."""
        interval_ms = clock.interval_ms
        block = f"greatest(arrival_ms - {clock.start_ms}, 0) // {interval_ms}" if interval_ms else "0"
        blocks = f"SELECT *, ({block})::BIGINT AS block FROM ({self._before()})"
        last = "max(struct_pack(a := arrival_ms, s := arrival_seq))"
        cells = (
            f"SELECT {PARTITION_TEXT} AS source_partition, block, max(event_ms) AS event_time_ms,"
            f" {last}.a AS arrival_time_ms, {last}.s AS arrival_seq, NULL::BIGINT AS marker_ms"
            f" FROM ({blocks}) GROUP BY source_partition, block"
        )
        marker = self._marker(emission)
        if marker is None:
            return cells
        return (
            f"{cells} UNION ALL SELECT {PARTITION_TEXT}, block, event_ms, arrival_ms, arrival_seq, marker_ms"
            f" FROM (SELECT *, {marker} AS marker_ms FROM ({blocks})) WHERE marker_ms IS NOT NULL"
        )

    def _marker(self, emission: Emission) -> str | None:
        if emission.model is EmissionModel.RECORD:
            arrived = "PARTITION BY source_partition ORDER BY arrival_ms, arrival_seq"
            so_far = f"OVER ({arrived} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
            is_marker = f"event_ms > coalesce(max(event_ms) {so_far}, {MIN_MS})"
            if emission.strategy.idle_timeout_ms:
                is_marker += f" OR lag(block) OVER ({arrived}) IS DISTINCT FROM block"
            return f"CASE WHEN {is_marker} THEN event_ms - {emission.delay_ms + 1} END"
        if self.marker is None:
            return None
        name, type_name = column_alias(self.reading, self.marker), self.reading.types[self.marker]
        if type_name == "boolean":
            return f"CASE WHEN {name} THEN event_ms - {self.marker_delay_ms} END"
        return name if type_name == "bigint" else f"epoch_ms({name})"

    def _readable(self) -> str:
        return scan_query(self.groups, self.reading)

    def _before(self) -> str:
        return f"SELECT * FROM ({self._readable()}) WHERE arrival_ms < {self.at_ms}"


def fixed_members_query(records: str, window: FixedWindow, first_end_ms: int) -> str:
    """Return a query of records, one row for each of their windows that end at `first_end_ms` or later."""
    first, last = window_ends(window, "event_ms")
    step_ms = window.end_step_ms
    # The first window that is open is on the grid of ends, as each `first` is.
    ends = f"unnest(range(greatest({first}, {first_end_ms}), {last} + 1, {step_ms}))"
    start = window_start(window, "window_end_ms")
    return f"SELECT *, {start} AS window_start_ms FROM (SELECT *, {ends} AS window_end_ms FROM ({records}))"


def first_open_end_ms(window: FixedWindow, above_ms: int) -> int:
    """Return the first window end whose last millisecond is above an instant."""
    step_ms = window.end_step_ms
    offset_ms = window.offset_ms + (window.size_ms if isinstance(window, Sliding) else 0)
    return above_ms + 2 + (offset_ms - above_ms - 2) % step_ms


def islands_query(records: str, keys: Sequence[str], window: Session) -> str:
    """Return a query of records with the number of their island: events of a key that are at most a gap apart."""
    by = f"PARTITION BY {', '.join(keys)}" if keys else ""
    order = f"{by} ORDER BY event_ms"
    is_first = f"coalesce(event_ms - lag(event_ms) OVER ({order}) > {window.gap_ms}, true)"
    numbered = (
        f"SELECT *, sum(is_first::BIGINT) OVER ({order} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
        f" AS island FROM (SELECT *, {is_first} AS is_first FROM ({records}))"
    )
    spans = f"OVER (PARTITION BY {', '.join([*keys, 'island'])})"
    return (
        f"SELECT * EXCLUDE (is_first), min(event_ms) {spans} AS island_start_ms, max(event_ms) {spans} AS"
        f" island_last_ms, max(arrival_ms) {spans} AS island_arrival_ms FROM ({numbered})"
    )


def partial_columns(aggregates: Sequence[Aggregate], reading: ReadSpec) -> dict[str, str]:
    """Return the expressions of all partial aggregates by column name.

    Integers are added in 128 bits; their sum is cast, so that Parquet stores it exactly.
    """
    columns: dict[str, str] = {}
    for aggregate in aggregates:
        suffixes = PARTIAL_SUFFIXES.get(aggregate.function, ("",))
        values = aggregates_over_records(aggregate, reading)
        is_integer = aggregate.column is not None and reading.types[aggregate.column] in INTEGERS
        cast = "::BIGINT" if is_integer and aggregate.function == "sum" else ""
        columns |= {
            f"{aggregate.name}{suffix}": f"{value}{cast}" for suffix, value in zip(suffixes, values, strict=True)
        }
    return columns


def open_windows_query(
    members: str, keys: Mapping[str, str], partials: Mapping[str, str], next_pane_index: str, watermark_ms: int
) -> str:
    """Return a query of the rows of `windows.parquet`.

    Args:
        members: a query of records with `window_start_ms` and `window_end_ms`.
        keys: the key columns, with their aliases.
        partials: the partial aggregates.
        next_pane_index: the index of the next pane, as an aggregate.
        watermark_ms: the watermark at the cut.
    """
    columns = {
        **keys,
        "window_start_ms": "window_start_ms",
        "window_end_ms": "window_end_ms",
        "record_count": "count(*)",
        "is_pending": f"window_end_ms - 1 > {watermark_ms}",
        "next_pane_index": f"({next_pane_index})::BIGINT",
        **partials,
    }
    by = ", ".join([*keys.values(), "window_start_ms", "window_end_ms"])
    order = ", ".join([*(f"{alias} NULLS FIRST" for alias in keys.values()), "window_start_ms", "window_end_ms"])
    return f"SELECT {select_list(columns)} FROM ({members}) GROUP BY {by} ORDER BY {order}"


def fixed_pane_index(is_late: str, watermark_ms: int) -> str:
    """Return the index of the next pane: the number of firings, one on time and one per late record.

    Args:
        is_late: the condition of a record that arrived after its window had fired.
        watermark_ms: the watermark at the cut.
    """
    had_on_time = f"(count(*) FILTER (WHERE NOT {is_late}) > 0)::BIGINT"
    firings = f"{had_on_time} + count(*) FILTER (WHERE {is_late})"
    return f"CASE WHEN window_end_ms - 1 > {watermark_ms} THEN 0 ELSE {firings} END"


def open_records_query(members: str, columns: Mapping[str, str]) -> str:
    """Return a query of the rows of `records.parquet`: each record once per open window, in arrival order."""
    selected = {
        "window_start_ms": "window_start_ms",
        "window_end_ms": "window_end_ms",
        "event_time_ms": "event_ms",
        "arrival_time_ms": "arrival_ms",
        "arrival_seq": "arrival_seq",
        "source_partition": PARTITION_TEXT,
        **columns,
    }
    order = "arrival_ms, arrival_seq, source_partition, window_end_ms"
    return f"SELECT {select_list(selected)} FROM ({members}) ORDER BY {order}"


def quoted_keys(keys: Sequence[str], reading: ReadSpec) -> dict[str, str]:
    """Return the key columns with their aliases in a scan."""
    return {key: quote_name(column_alias(reading, key)) for key in keys}
