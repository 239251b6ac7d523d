"""Compute the rows of each table of a chunk group from the results of its windows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from backstream.chunks.lateness import resolve_lateness, resolve_process_lateness
from backstream.definition.model import Definition
from backstream.eventtime.records import SIDE_OUTPUT, Fate
from backstream.eventtime.windows import Session
from backstream.runs.table_schemas import (
    DROPPED,
    FIRINGS,
    METRICS,
    OUTPUTS,
    PANES,
    PANES_KEPT,
    QUARANTINE,
    RECORD_COUNT,
    SKIPPED,
    WINDOWS,
    WITHHELD,
    pane_count_column,
)
from backstream.spark.chunk_group import CHUNK, SparkGroup, load_quarantine
from backstream.spark.schemas import Step
from backstream.spark.sessions.session_windows import SessionWindows
from backstream.spark.windows.aggregation import WINDOW
from backstream.spark.windows.fate_counts import FateCounts
from backstream.spark.windows.fixed_windows import FixedWindows

Keep = Callable[[DataFrame], DataFrame]
"""A function that persists a frame until the group is done."""

Results = FixedWindows | SessionWindows


def window_results(group: SparkGroup, keep: Keep) -> Results:
    """Return the results of a chunk group by the kind of its windows. Only watermarks run jobs."""
    window = group.definition.window_spec
    if isinstance(window, Session):
        return SessionWindows.from_group(group, window, keep)
    if group.definition.process and group.is_replay:
        return FixedWindows(group, window, resolve_process_lateness(group, window, group.reader))
    return FixedWindows(group, window, resolve_lateness(group, window, group.reader))


class TableFrames(NamedTuple):
    """The frames that tables are computed from.

    `values` are computed for one table only. In a replay that is the table of panes; `staged_panes` reads its
    files for the other tables, which is cheaper than to persist `values` and takes no memory.
    """

    known: DataFrame
    counts: FateCounts
    values: DataFrame
    staged_panes: Callable[[], DataFrame | None]
    fates: Callable[[], set[str]]
    """Waits for the counts, and returns the fates with at least one record."""
    skipped: DataFrame | None = None
    """The windows for which user code returned no row; None without user code."""
    outputs: DataFrame | None = None
    """The side outputs; None without a process function."""


def table_frames(group: SparkGroup, results: Results, frames: TableFrames) -> Iterator[tuple[str, DataFrame]]:
    """Yield the rows of each table of the plan, with `CHUNK`; tables without rows are left out.

    Stage one frame before you ask for the next.
    """

    def by_window(rows: DataFrame) -> DataFrame:
        return rows.withColumn(CHUNK, group.chunk_number_at(F.col("window_start_ms")))

    definition, rows = group.definition, frames.values
    if not group.is_replay or definition.process:
        yield from window_frames(group, rows.transform(add_derived(definition)))
    else:
        yield PANES, by_window(rows.transform(add_derived_to_panes(definition)))
        if (panes := frames.staged_panes()) is not None:
            yield from window_frames(group, published_panes(group, panes))
    if frames.skipped is not None:
        yield SKIPPED, by_window(frames.skipped)
    if frames.outputs is not None:
        number = group.chunk_number_at(F.col("event_time_ms"))
        yield OUTPUTS, frames.outputs.withColumn(CHUNK, number)
    yield METRICS, by_window(frames.counts.metrics())
    yield from _record_frames(group, results, frames.fates(), frames.known)


def window_frames(group: SparkGroup, rows: DataFrame) -> Iterator[tuple[str, DataFrame]]:
    """Yield the rows of the table of windows, and the count of rows that don't meet the condition."""
    number = group.chunk_number_at(F.col("window_start_ms"))
    published = published_rows(rows, group.definition)
    yield WINDOWS, published.withColumn(CHUNK, number)
    if WITHHELD in group.plan.tables:
        yield WITHHELD, _count_withheld(rows, published).withColumn(CHUNK, number)


def _record_frames(
    group: SparkGroup, results: Results, fates: set[str], records: DataFrame
) -> Iterator[tuple[str, DataFrame]]:
    """Yield the rows of tables of single records, and of firings.

    Args:
        group: the chunks.
        results: their results.
        fates: the fates with at least one record.
        records: all records with their fate.
    """
    if Fate.QUARANTINED in fates:
        yield QUARANTINE, load_quarantine(group)
    if not group.is_replay:
        return
    if fates & {*SIDE_OUTPUT}:
        yield DROPPED, results.dropped_events(records)
    if FIRINGS in group.plan.tables:
        yield FIRINGS, firing_rows(group, results, records)


def firing_rows(group: SparkGroup, results: Results, records: DataFrame) -> DataFrame:
    """Return every pane that each window fired, with `CHUNK`."""
    firings = results.firings(records).transform(add_derived(group.definition))
    return firings.withColumn(CHUNK, group.chunk_number_at(F.col("window_start_ms")))


def published_panes(group: SparkGroup, panes: DataFrame) -> DataFrame:
    """Return the rows of the published table: the pane kind of `backfill.publish`."""
    pane = group.definition.backfill.publish
    count = F.col(pane_count_column(pane))
    existing = panes.where(count > F.lit(0)).withColumn(RECORD_COUNT, count)
    return existing.withColumns({name: F.col(f"{name}__{pane}") for name in group.definition.pane_names})


def existing_fates(fates: Mapping[int, Mapping[str, Mapping[str, int]]]) -> set[str]:
    """Return the fates with at least one record, of numbers of records by chunk number, partition, and fate."""
    return {
        fate
        for partitions in fates.values()
        for counts in partitions.values()
        for fate, count in counts.items()
        if count
    }


_RANK = "rank__"
"""A working column; no result column has such a name."""
_TIMES = {name.removesuffix("_ms"): name for name in WINDOW}


def add_derived(definition: Definition) -> Step:
    """Add the derived columns to rows with keys, window, and aggregates."""
    derived = {name: F.expr(text) for name, text in definition.derive_after.items()}
    return lambda rows: _with_times(rows).withColumns(derived) if derived else rows


def add_derived_to_panes(definition: Definition) -> Step:
    """Add the derived columns of each pane to rows with keys, window, and the aggregates of each pane."""

    def step(rows: DataFrame) -> DataFrame:
        if not definition.derive_after:
            return rows
        panes = _with_times(rows)
        for pane in PANES_KEPT:
            # SQL has the names of the aggregates, so the columns of one pane get these names for a moment.
            panes = panes.withColumns({name: F.col(f"{name}__{pane}") for name in definition.aggregates})
            is_existing = F.col(pane_count_column(pane)) > F.lit(0)
            panes = panes.withColumns(
                {
                    f"{name}__{pane}": F.when(is_existing, F.expr(text))
                    for name, text in definition.derive_after.items()
                }
            )
        return panes.drop(*definition.aggregates)

    return step


def _count_withheld(rows: DataFrame, published: DataFrame) -> DataFrame:
    """Return the number of rows per window that are not published, and of their records."""

    def counts_of(frame: DataFrame, sign: int) -> DataFrame:
        return frame.select(
            *WINDOW, F.lit(sign).alias("rows"), (F.lit(sign) * F.col(RECORD_COUNT)).alias(RECORD_COUNT)
        )

    # The difference needs no rank of the rows that are not published.
    counts = counts_of(rows, 1).unionByName(counts_of(published, -1)).groupBy(*WINDOW)
    withheld = counts.agg(F.sum("rows").alias("rows"), F.sum(RECORD_COUNT).alias(RECORD_COUNT))
    return withheld.where(F.col("rows") > F.lit(0))


def published_rows(rows: DataFrame, definition: Definition) -> DataFrame:
    """Return the rows that are published: they meet the condition, and their rank is not above the greatest one.

    A condition that is null is not met.
    """
    if not definition.withholds_rows:
        return rows
    published = _with_times(rows)
    if definition.having:
        published = published.where(F.expr(definition.having.condition))
    if top := definition.top:
        rank = top.over([*WINDOW, *top.partition_by], definition.source.key)
        # Spark needs the comparison directly after the rank: then it sorts only the best rows of each task.
        published = published.withColumn(_RANK, F.expr(rank)).where(F.col(_RANK) <= F.lit(top.n))
        if top.rank:
            published = published.withColumn(top.rank, F.col(_RANK).cast("bigint"))
        published = published.drop(_RANK)
    return published


def _with_times(rows: DataFrame) -> DataFrame:
    """Add the bounds of the window as timestamps, if the rows have them in milliseconds only."""
    return rows.withColumns(
        {name: F.timestamp_millis(in_ms) for name, in_ms in _TIMES.items() if name not in rows.columns}
    )
