"""Compute aggregates per key and window: final values, panes, and firings.

A plan depends on the data: Spark can count before or after the shuffle, and shuffle by key or by key and window.
`DataProfile` decides it, and never changes a result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from backstream.definition.aggregates import is_window_function, with_filter
from backstream.eventtime.records import Fate
from backstream.eventtime.windows import FixedWindow
from backstream.runs.table_schemas import PANES_KEPT, pane_count_column
from backstream.spark.schemas import ARRIVAL_ORDER, int64_literal
from backstream.spark.watermarks.firing_time_columns import FiringTimeColumns, GridColumns
from backstream.spark.windows.assignment import window_start_column
from backstream.spark.windows.fates import EXPIRED, SLICE, add_slices, late_columns, window_end_columns
from backstream.spark.windows.partial_aggregates import PartialAggregates, split_aggregates

_NUMBER = "window_number"
"""The column of a window's number in the grid; grouping by it is cheaper than by two times."""
MANY_EVENTS = 1_000_000
"""The number of events from which a job that samples the events saves time."""
_SAMPLE = 50_000
WORTHWHILE = 10
"""Counting before the shuffle saves time if it reduces the number of rows at least by this factor."""
HOT = 0.25
"""The share of all rows from which one key is too much for one task."""
GROUPED_AT_ONCE = 400_000
"""The number of events per task if a slice is in many windows.

The groups of more events exceed the processor's cache, and then each lookup takes twice as long.
"""
_MAX_TASKS = 2_000
"""The largest number of tasks; with more, each task writes too many small shuffle blocks."""


@dataclass(frozen=True, slots=True)
class DataProfile:
    """The number of events to group, and the properties of a sample of them."""

    events: int = 0
    is_reduced: bool = True
    """True if counting before the shuffle reduces the rows a lot."""
    has_hot_key: bool = False
    """True if one key has too many events for one task."""


@dataclass(frozen=True, slots=True)
class AggregationRequest:
    """The aggregates to compute for the windows of a grid. `shape` changes the plan, never the result."""

    window: FixedWindow
    grid: GridColumns
    keys: Sequence[str]
    aggregates: Mapping[str, str]
    shape: DataProfile = DataProfile()


def profile_events(events: DataFrame, expected: int, keys: Sequence[str], width_ms: int) -> DataProfile:
    """Return a profile of the events from a sample. Runs a small job.

    Args:
        events: the events.
        expected: about how many they are.
        keys: key columns.
        width_ms: the width of the time slices whose events are grouped per key.
    """
    if not keys:
        return DataProfile(expected)
    slice_ms = window_start_column(F.col("event_time_ms"), F.lit(0), F.lit(width_ms))
    groups = events.limit(_SAMPLE).groupBy(*keys, slice_ms.alias(SLICE)).count()
    by_key = groups.groupBy(*keys).agg(F.count(F.lit(1)).alias("groups"), F.sum("count").alias("rows"))
    ((group_count, rows, max_rows),) = by_key.agg(F.sum("groups"), F.sum("rows"), F.max("rows")).collect()
    if not rows:
        return DataProfile(expected)
    return DataProfile(expected, group_count * WORTHWHILE <= rows, max_rows > rows * HOT)


def aggregate_windows(events: DataFrame, request: AggregationRequest) -> DataFrame:
    """Return the value of each aggregate per key and window over all its events: keys, window, aggregates."""
    parts, by = _split_if_sliced(events, request), [*request.keys, _NUMBER]
    if parts is None:
        rows = _shuffle_if_sparse(_add_window_number(events, "event_time_ms", request), request)
        return _add_window_bounds(_windows_of_rows(rows, by, request.aggregates), request)
    windows = _aggregate_slices(events, request, parts, None).groupBy(*by).agg(*parts.merges)
    return _add_window_bounds(windows.select(*by, *parts.values), request)


def aggregate_panes(events: DataFrame, request: AggregationRequest, firing_times: FiringTimeColumns) -> DataFrame:
    """Return the first, live, and final value of each aggregate per key and window, as `panes_of_rows`."""
    parts, by, number = _split_if_sliced(events, request), [*request.keys, _NUMBER], F.col(_NUMBER)
    if parts is None:
        timing = {
            _IS_ON_TIME: ~firing_times.is_fired(number) & firing_times.ever_fires(number),
            _IS_ACCEPTED: ~firing_times.is_cleaned_up(number),
        }
        timed = _add_window_number(events, "event_time_ms", request).withColumns(timing)
        panes = panes_of_rows(_shuffle_if_sparse(timed, request), by, request.aggregates)
        return _add_window_bounds(_without_late_firings(panes, firing_times), request)
    position = [F.col(name) for name in late_columns(firing_times)]
    is_early = position[0].isNull()
    timing = {
        _IS_ON_TIME: (is_early | ~firing_times.is_fired(number, position)) & firing_times.ever_fires(number),
        _IS_ACCEPTED: is_early | ~firing_times.is_cleaned_up(number, position),
    }
    timed = _aggregate_slices(events, request, parts, firing_times).withColumns(timing)
    panes = _panes_of_partials(timed, by, parts)
    return _add_window_bounds(_without_late_firings(panes, firing_times), request)


def _without_late_firings(panes: DataFrame, firing_times: FiringTimeColumns) -> DataFrame:
    """Return panes with no late firing in a stream without an end.

    There, an open window has records and no first pane, and a fired window is removed at once.
    """
    return panes if firing_times.values.fires_at_end else panes.withColumn("late_firings", int64_literal(0))


def _split_if_sliced(events: DataFrame, request: AggregationRequest) -> PartialAggregates | None:
    """Return partial aggregates for slices, if windows overlap and the aggregates can be merged; else None."""
    return split_aggregates(events, request.aggregates) if request.window.has_overlaps else None


def _aggregate_slices(
    events: DataFrame,
    request: AggregationRequest,
    parts: PartialAggregates,
    firing_times: FiringTimeColumns | None,
) -> DataFrame:
    """Return one row per slice and window, with the slice's partial aggregates and `late_columns`.

    There is one shuffle, by key, so slices and windows are both grouped without another one.
    """
    slices = events.transform(add_slices(request.window, firing_times))
    keys, shape = [F.col(key) for key in request.keys], request.shape
    if keys and not shape.is_reduced and not shape.has_hot_key:
        slices = slices.repartition(_count_tasks(slices.sparkSession, shape.events), *keys)
    counted = slices.groupBy(*keys, SLICE, *late_columns(firing_times)).agg(
        F.count(F.lit(1)).alias(_EVENTS), *parts.partial
    )
    return _add_window_number(counted, SLICE, request)


def _count_tasks(spark: SparkSession, events: int) -> int:
    """Return the number of tasks that share the events by key."""
    tasks = min(math.ceil(events / GROUPED_AT_ONCE), _MAX_TASKS)
    return max(tasks, spark.sparkContext.defaultParallelism)


def _add_window_number(rows: DataFrame, time_ms: str, request: AggregationRequest) -> DataFrame:
    """Return one row per row and requested window of its time, with the window's number."""
    window, grid, time = request.window, request.grid, F.col(time_ms)
    if not window.has_overlaps:
        end_ms = time + int64_literal(
            grid.step_ms
        )  # any time in the window plus one step has the number of its end
        return rows.where(grid.requested.hold(time)).withColumn(_NUMBER, grid.number(end_ms))
    earliest_ms, latest_ms = window_end_columns(window, time)
    first = F.greatest(grid.number(earliest_ms), F.lit(0))
    last = F.least(grid.number(latest_ms), F.lit(grid.count - 1))
    in_grid = rows.where((latest_ms > time) & (first <= last))
    return in_grid.withColumn(_NUMBER, F.explode(F.sequence(first, last)))


def _add_window_bounds(windows: DataFrame, request: AggregationRequest) -> DataFrame:
    """Replace the window's number by its start and end."""
    window, grid = request.window, request.grid
    end_ms = grid.end_ms(F.col(_NUMBER))
    start_ms = end_ms - int64_literal(window.size_ms)
    if window.windows_per_start > 1:
        start_ms = window_start_column(
            end_ms - int64_literal(1), int64_literal(window.offset_ms), int64_literal(window.size_ms)
        )
    return windows.withColumns(dict(zip(WINDOW, (start_ms, end_ms), strict=True))).drop(_NUMBER)


def _shuffle_if_sparse(rows: DataFrame, request: AggregationRequest) -> DataFrame:
    """Shuffle the rows before they are grouped, if nearly every row is a group of its own.

    Spark counts before the shuffle, which costs time without effect in this case.
    """
    if request.shape.is_reduced:
        return rows
    return rows.repartition(*(F.col(name) for name in (*request.keys, _NUMBER)))


WINDOW = ("window_start_ms", "window_end_ms")

_EVENTS = "slice__events"
"""The column of the number of records of a row of partial aggregates."""
_IS_ON_TIME, _IS_ACCEPTED = "is_on_time", "is_accepted"
"""The columns for records that arrived before their window fired, and before its state was removed."""
_IN_PANE = {"first": _IS_ON_TIME, "live": _IS_ACCEPTED, "final": "true"}


def panes_of_rows(timed: DataFrame, by: Sequence[str], aggregates: Mapping[str, str]) -> DataFrame:
    """Return the first, live, and final value of each aggregate per key and window.

    Args:
        timed: one row per record and window, with `is_on_time` and `is_accepted`.
        by: the columns that name a key and a window.
        aggregates: name to SQL aggregate call.

    Returns:
        `by`, `<name>__first`, `<name>__live`, `<name>__final`, `late_firings`, and `record_count__<pane>`. `first`
        is null if no record was on time. `live` is null if every record was too late, so that the stream published
        nothing.
    """
    # If the definition has a count of events too, Spark computes it once.
    calls = {pane_count_column(pane): with_filter("count(*)", condition) for pane, condition in _IN_PANE.items()}
    # A pane without records doesn't exist, so all its aggregates are null, even a count.
    values: dict[str, str] = {}
    for name, aggregate in aggregates.items():
        for pane, condition in _IN_PANE.items():
            column = f"{name}__{pane}"
            calls[column] = with_filter(aggregate, condition)
            values[column] = f"CASE WHEN {pane_count_column(pane)} > 0 THEN {column} END"
    # Every accepted late record fires its window again.
    values["late_firings"] = f"{pane_count_column('live')} - {pane_count_column('first')}"
    grouped = timed.groupBy(*by).agg(*(F.expr(call).alias(name) for name, call in calls.items()))
    return grouped.withColumns({name: F.expr(sql) for name, sql in values.items()})


def _panes_of_partials(timed: DataFrame, by: Sequence[str], parts: PartialAggregates) -> DataFrame:
    """Return the result of `panes_of_rows` from rows with partial aggregates of many records."""
    counts = [
        F.expr(f"coalesce(sum({_EVENTS}) FILTER (WHERE {condition}), 0)").alias(pane_count_column(pane))
        for pane, condition in _IN_PANE.items()
    ]
    merged = [column for pane, condition in _IN_PANE.items() for column in parts.merges_where(condition, pane)]
    totals = timed.groupBy(*by).agg(*counts, *merged)
    values = {f"{name}__{pane}": value for pane in PANES_KEPT for name, value in parts.values_of(pane).items()}
    fired = {
        column: F.when(F.col(pane_count_column(column.rpartition("__")[2])) > 0, value)
        for column, value in values.items()
    }
    late_firings = F.col(pane_count_column("live")) - F.col(pane_count_column("first"))
    return totals.withColumns(fired | {"late_firings": late_firings})


def _windows_of_rows(assigned: DataFrame, by: Sequence[str], aggregates: Mapping[str, str]) -> DataFrame:
    """Return the value of each aggregate per key and window over all its records."""
    values = [F.expr(aggregate).alias(name) for name, aggregate in aggregates.items()]
    return assigned.groupBy(*by).agg(*values)


def aggregate_on_time(timed: DataFrame, keys: Sequence[str], aggregates: Mapping[str, str]) -> DataFrame:
    """Return the on-time firing of each window with a record that arrived before the watermark reached its end."""
    on_time = timed.where(F.col("timing") == F.lit(Fate.ON_TIME))
    return _windows_of_rows(on_time, [*keys, *WINDOW], aggregates)


def aggregate_late(timed: DataFrame, keys: Sequence[str], aggregates: Mapping[str, str]) -> DataFrame:
    """Return one firing per late record, over all records up to it in `ARRIVAL_ORDER`.

    Only windows with a late record are sorted. `watermark_ms` at the arrival of the record is kept if it exists.
    """
    of_window = Window.partitionBy(*keys, *WINDOW)
    is_late = F.col("timing") == F.lit(Fate.LATE)
    # All on-time records precede the late ones, since watermarks never fall.
    so_far = of_window.orderBy(is_late, *ARRIVAL_ORDER).rowsBetween(Window.unboundedPreceding, 0)
    accepted = timed.where(F.col("timing") != F.lit(EXPIRED))
    with_late = accepted.withColumn("has_late", F.max(is_late).over(of_window)).where("has_late")
    late_before = F.sum(is_late.cast("long")).over(so_far)
    had_on_time = F.max((~is_late).cast("long")).over(of_window)
    index = {"pane_index": had_on_time + late_before - F.lit(1)}
    kept = [name for name in ("watermark_ms",) if name in timed.columns]
    columns = [*keys, *WINDOW, "pane_index", *kept, *ARRIVAL_ORDER, *aggregates]
    if all(map(is_window_function, aggregates.values())):
        values = {name: F.expr(aggregate).over(so_far) for name, aggregate in aggregates.items()}
        return with_late.withColumns({**values, **index}).where(is_late).select(*columns)
    counted = with_late.withColumns({**index, _LATE: late_before, _LATE_COUNT: F.max(late_before).over(of_window)})
    return _aggregate_per_firing(counted, is_late, [*keys, *WINDOW], aggregates, kept).select(*columns)


_LATE, _LATE_COUNT, _FIRING = "late__number", "late__count", "late__firing"


def _aggregate_per_firing(
    counted: DataFrame, is_late: Column, by: Sequence[str], aggregates: Mapping[str, str], kept: Sequence[str]
) -> DataFrame:
    """Return the firings of aggregates that Spark can't compute over a frame of rows: a row per record and firing.

    Args:
        counted: the records of windows with a late record, with the number of late records so far and in all.
        is_late: whether a record is late.
        by: the columns that name a key and a window.
        aggregates: name to SQL aggregate call.
        kept: further columns of the late record.
    """
    numbers = F.sequence(F.greatest(F.col(_LATE), int64_literal(1)), F.col(_LATE_COUNT))
    members = counted.withColumn(_FIRING, F.explode(numbers))
    # The late record that causes a firing is its only member with this number.
    is_cause = is_late & (F.col(_LATE) == F.col(_FIRING))
    causes = [F.max(F.when(is_cause, F.col(name))).alias(name) for name in ("pane_index", *kept, *ARRIVAL_ORDER)]
    values = [F.expr(aggregate).alias(name) for name, aggregate in aggregates.items()]
    return members.groupBy(*by, _FIRING).agg(*causes, *values)
