"""Per key and window the values to publish: what is grouped, and in which order it is sent to be grouped."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from backstream.definition.aggregates import with_filter
from backstream.eventtime.records import Fate
from backstream.eventtime.windows import Cumulate, Tumbling
from backstream.runs.table_schemas import PANES_KEPT, pane_count
from backstream.spark.schemas import ARRIVAL_ORDER, int64_literal
from backstream.spark.watermarks.firing_times import FiringTimeColumns, GridColumns
from backstream.spark.windows.assignment import FixedWindow, window_start_column
from backstream.spark.windows.fates import EXPIRED, SLICE, add_slices, late_columns, window_end_columns
from backstream.spark.windows.partial_aggregates import PartialAggregates, split_aggregates

NUMBER = "window_number"
"""A window's number in the grid: half as wide as its times, and grouped by."""
MANY_EVENTS = 1_000_000
"""From here on it pays to look at a sample of the events before they are grouped."""
_SAMPLE = 50_000
WORTHWHILE = 10
"""Counting before the exchange pays where it makes a tenth of the rows or less."""
HOT = 0.25
"""Share of all rows from which on one key is too much for one task."""
GROUPED_AT_ONCE = 400_000
"""Events of a task whose slices are in many windows each. The groups of more do not stay near the processor, and
then it takes twice as long to find one."""
_MOST_TASKS = 2_000
"""With more of them, every task that sends events writes too many small pieces."""


@dataclass(frozen=True, slots=True)
class DataProfile:
    """How many events there are to group, and what a sample of them says."""

    events: int = 0
    is_reduced: bool = True
    """Counting before the exchange makes far fewer rows."""
    has_hot_key: bool = False
    """One key has so many of the events that no task should get all of them."""


@dataclass(frozen=True, slots=True)
class AggregationRequest:
    """What is asked of the windows of a grid. `shape` changes the plan, never the result."""

    window: FixedWindow
    grid: GridColumns
    keys: Sequence[str]
    aggregates: Mapping[str, str]
    shape: DataProfile = DataProfile()


def profile_events(events: DataFrame, expected: int, keys: Sequence[str], width_ms: int) -> DataProfile:
    """Look at the first of about `expected` events: how many fall into one stretch of a key. Runs a small job."""
    if not keys:
        return DataProfile(expected)
    stretch_ms = window_start_column(F.col("event_time_ms"), F.lit(0), F.lit(width_ms))
    groups = events.limit(_SAMPLE).groupBy(*keys, stretch_ms.alias(SLICE)).count()
    of_key = groups.groupBy(*keys).agg(F.count(F.lit(1)).alias("groups"), F.sum("count").alias("rows"))
    ((found, rows, most),) = of_key.agg(F.sum("groups"), F.sum("rows"), F.max("rows")).collect()
    return DataProfile(expected, found * WORTHWHILE <= rows, most > rows * HOT) if rows else DataProfile(expected)


def aggregate_windows(events: DataFrame, grouping: AggregationRequest) -> DataFrame:
    """The value of each aggregate per key and window over all its events: keys, window, aggregates."""
    parts, by = _parts(events, grouping), [*grouping.keys, NUMBER]
    if parts is None:
        sent = _sent(_numbered(events, "event_time_ms", grouping), grouping)
        return _placed(windows_of_rows(sent, by, grouping.aggregates), grouping)
    of_windows = _of_slices(events, grouping, parts, None).groupBy(*by).agg(*parts.merged)
    return _placed(of_windows.select(*by, *parts.values), grouping)


def aggregate_panes(events: DataFrame, grouping: AggregationRequest, judged: FiringTimeColumns) -> DataFrame:
    """First, live and final value of each aggregate per key and window: the columns of `spark.panes.panes`."""
    parts, by, number = _parts(events, grouping), [*grouping.keys, NUMBER], F.col(NUMBER)
    if parts is None:
        timing = {IS_ON_TIME: ~judged.is_fired(number), IS_ACCEPTED: ~judged.is_cleaned_up(number)}
        told = _numbered(events, "event_time_ms", grouping).withColumns(timing)
        return _placed(panes_of_rows(_sent(told, grouping), by, grouping.aggregates), grouping)
    place = [F.col(name) for name in late_columns(judged)]
    is_early = place[0].isNull()
    timing = {
        IS_ON_TIME: is_early | ~judged.is_fired(number, place),
        IS_ACCEPTED: is_early | ~judged.is_cleaned_up(number, place),
    }
    told = _of_slices(events, grouping, parts, judged).withColumns(timing)
    return _placed(panes_of_partials(told, by, parts), grouping)


def _parts(events: DataFrame, grouping: AggregationRequest) -> PartialAggregates | None:
    """Where an event is in several windows it is counted once, in a slice, if its aggregates can be merged."""
    return None if isinstance(grouping.window, Tumbling) else split_aggregates(events, grouping.aggregates)


def _of_slices(
    events: DataFrame, grouping: AggregationRequest, parts: PartialAggregates, judged: FiringTimeColumns | None
) -> DataFrame:
    """One row per slice and window, with the slice's partial aggregates and `late_columns`.

    There is one exchange, by key: slices and windows are then both grouped where they are.
    """
    slices = events.transform(add_slices(grouping.window, judged))
    keys, shape = [F.col(key) for key in grouping.keys], grouping.shape
    if keys and not shape.is_reduced and not shape.has_hot_key:
        slices = slices.repartition(_tasks(slices.sparkSession, shape.events), *keys)
    counted = slices.groupBy(*keys, SLICE, *late_columns(judged)).agg(
        F.count(F.lit(1)).alias(EVENTS), *parts.partial
    )
    return _numbered(counted, SLICE, grouping)


def _tasks(spark: SparkSession, events: int) -> int:
    """Over how many tasks so many events are spread by key."""
    wanted = min(math.ceil(events / GROUPED_AT_ONCE), _MOST_TASKS)
    return max(wanted, spark.sparkContext.defaultParallelism)


def _numbered(rows: DataFrame, time_ms: str, grouping: AggregationRequest) -> DataFrame:
    """One row per row and window that holds its time and is asked for, with the window's number."""
    window, grid, time = grouping.window, grouping.grid, F.col(time_ms)
    if isinstance(window, Tumbling):
        end_ms = time + int64_literal(grid.step_ms)  # not of the window: of one that has the same number
        return rows.where(grid.asked.hold(time)).withColumn(NUMBER, grid.number(end_ms))
    earliest_ms, latest_ms = window_end_columns(window, time)
    first = F.greatest(grid.number(earliest_ms), F.lit(0))
    last = F.least(grid.number(latest_ms), F.lit(grid.count - 1))
    some = rows.where((latest_ms > time) & (first <= last))
    return some.withColumn(NUMBER, F.explode(F.sequence(first, last)))


def _placed(of_windows: DataFrame, grouping: AggregationRequest) -> DataFrame:
    """The window's start and end in place of its number."""
    window, grid = grouping.window, grouping.grid
    end_ms = grid.end_ms(F.col(NUMBER))
    start_ms = end_ms - int64_literal(window.size_ms)
    if isinstance(window, Cumulate):
        start_ms = window_start_column(
            end_ms - int64_literal(1), int64_literal(window.offset_ms), int64_literal(window.size_ms)
        )
    return of_windows.withColumns(dict(zip(WINDOW, (start_ms, end_ms), strict=True))).drop(NUMBER)


def _sent(numbered: DataFrame, grouping: AggregationRequest) -> DataFrame:
    """Rows as they are sent to be grouped.

    Spark counts before the exchange, which is wasted where nearly every row is a group of its own: then raw rows
    are exchanged, and grouped once.
    """
    if grouping.shape.is_reduced:
        return numbered
    return numbered.repartition(*(F.col(name) for name in (*grouping.keys, NUMBER)))


WINDOW = ("window_start_ms", "window_end_ms")

EVENTS = "slice__events"
"""How many records a row of partial aggregates stands for."""
IS_ON_TIME, IS_ACCEPTED = "is_on_time", "is_accepted"
"""Whether a record came before its window fired; and whether before that was gone."""
_IN_PANE = {"first": IS_ON_TIME, "live": IS_ACCEPTED, "final": "true"}


def panes_of_rows(timed: DataFrame, by: Sequence[str], aggregates: Mapping[str, str]) -> DataFrame:
    """First, live and final value of each aggregate per key and window.

    Args:
        timed: one row per record and window, with `is_on_time` and `is_accepted`.
        by: the columns that name a key and a window.
        aggregates: name to SQL aggregate call.

    Returns:
        `by`, `<name>__first` (null: nothing was on time), `<name>__live` (null: every record came
        too late, so the stream published nothing), `<name>__final`, `late_firings`, and `record_count__<pane>`.
    """
    # A count of events that the definition asks for too is computed once: Spark sees that they are the same.
    calls = {pane_count(pane): with_filter("count(*)", condition) for pane, condition in _IN_PANE.items()}
    # An aggregate over nothing is no value, not even a count of 0: that pane did not exist.
    told: dict[str, str] = {}
    for name, aggregate in aggregates.items():
        for pane, condition in _IN_PANE.items():
            column = f"{name}__{pane}"
            calls[column] = with_filter(aggregate, condition)
            told[column] = f"CASE WHEN {pane_count(pane)} > 0 THEN {column} END"
    # Every late record that was accepted fired its window once more.
    told["late_firings"] = f"{pane_count('live')} - {pane_count('first')}"
    grouped = timed.groupBy(*by).agg(*(F.expr(call).alias(name) for name, call in calls.items()))
    return grouped.withColumns({name: F.expr(sql) for name, sql in told.items()})


def panes_of_partials(timed: DataFrame, by: Sequence[str], parts: PartialAggregates) -> DataFrame:
    """`panes` of rows that hold partial aggregates of many records each."""
    counts = [
        F.expr(f"coalesce(sum({EVENTS}) FILTER (WHERE {condition}), 0)").alias(pane_count(pane))
        for pane, condition in _IN_PANE.items()
    ]
    merged = [column for pane, condition in _IN_PANE.items() for column in parts.merged_where(condition, pane)]
    totals = timed.groupBy(*by).agg(*counts, *merged)
    values = {f"{name}__{pane}": value for pane in PANES_KEPT for name, value in parts.values_of(pane).items()}
    fired = {
        column: F.when(F.col(pane_count(column.rpartition("__")[2])) > 0, value)
        for column, value in values.items()
    }
    late_firings = F.col(pane_count("live")) - F.col(pane_count("first"))
    return totals.withColumns(fired | {"late_firings": late_firings})


def windows_of_rows(assigned: DataFrame, by: Sequence[str], aggregates: Mapping[str, str]) -> DataFrame:
    """The value of each aggregate per key and window over all its records."""
    values = [F.expr(aggregate).alias(name) for name, aggregate in aggregates.items()]
    return assigned.groupBy(*by).agg(*values)


def aggregate_on_time(timed: DataFrame, keys: Sequence[str], aggregates: Mapping[str, str]) -> DataFrame:
    """The firing of each window that had a record before the watermark reached its end."""
    on_time = timed.where(F.col("timing") == F.lit(Fate.ON_TIME))
    return windows_of_rows(on_time, [*keys, *WINDOW], aggregates)


def aggregate_late(timed: DataFrame, keys: Sequence[str], aggregates: Mapping[str, str]) -> DataFrame:
    """One firing per late record, with all that came before it: the order of arrival in `ARRIVAL_ORDER`.

    Only windows that had a late record are ordered. `watermark_ms`, what the record met, is kept if it is there.
    """
    of_window = Window.partitionBy(*keys, *WINDOW)
    is_late = F.col("timing") == F.lit(Fate.LATE)
    # On-time records all precede the late ones: watermarks do not fall.
    so_far = of_window.orderBy(is_late, *ARRIVAL_ORDER).rowsBetween(Window.unboundedPreceding, 0)
    accepted = timed.where(F.col("timing") != F.lit(EXPIRED))
    re_fired = accepted.withColumn("has_late", F.max(is_late).over(of_window)).where("has_late")
    values = {name: F.expr(aggregate).over(so_far) for name, aggregate in aggregates.items()}
    late_before = F.sum(is_late.cast("long")).over(so_far)
    had_on_time = F.max((~is_late).cast("long")).over(of_window)
    firings = re_fired.withColumns({**values, "pane_index": had_on_time + late_before - F.lit(1)})
    met = [name for name in ("watermark_ms",) if name in timed.columns]
    return firings.where(is_late).select(*keys, *WINDOW, "pane_index", *met, *ARRIVAL_ORDER, *aggregates)
