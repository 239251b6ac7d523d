"""Per key and window the values to publish: what is grouped, and in which order it is sent to be grouped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from backstream.core.intervals import Interval
from backstream.core.windows import Tumbling
from backstream.spark import panes as grouped
from backstream.spark.metrics import is_within
from backstream.spark.panes import EVENTS, IS_ACCEPTED, IS_ON_TIME, WINDOW
from backstream.spark.partials import Partials, partials
from backstream.spark.schemas import EVENT
from backstream.spark.slices import SLICE, late_columns, sliced
from backstream.spark.thresholds import JudgedBy
from backstream.spark.windows import FixedWindow, WindowColumns, window_start_ms, windowed

MANY_EVENTS = 1_000_000
"""From here on it pays to look at a sample of the events before they are grouped."""
_SAMPLE = 50_000
_WORTHWHILE = 10
"""Counting before the exchange pays where it makes a tenth of the rows or less."""
_HOT = 0.25
"""Share of all rows from which on one key is too much for one task."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a sample of the events says about their grouping."""

    is_reduced: bool = True
    """Counting before the exchange makes far fewer rows."""
    has_hot_key: bool = False
    """One key has so many of the events that no task should get all of them."""


@dataclass(frozen=True, slots=True)
class Grouping:
    """What is asked of the windows.

    `owned`: only windows that start in here count; None: all. `shape` changes the plan, never the result.
    """

    window: FixedWindow
    keys: Sequence[str]
    aggregates: Mapping[str, str]
    owned: Interval | None = None
    shape: Shape = Shape()


def shape_of(events: DataFrame, keys: Sequence[str], width_ms: int) -> Shape:
    """Look at the first events: how many fall into one stretch of a key. Runs a small job."""
    if not keys:
        return Shape()
    stretch_ms = window_start_ms(F.col("event_time_ms"), F.lit(0), F.lit(width_ms))
    groups = events.limit(_SAMPLE).groupBy(*keys, stretch_ms.alias(SLICE)).count()
    of_key = groups.groupBy(*keys).agg(F.count(F.lit(1)).alias("groups"), F.sum("count").alias("rows"))
    ((found, rows, most),) = of_key.agg(F.sum("groups"), F.sum("rows"), F.max("rows")).collect()
    return Shape(found * _WORTHWHILE <= rows, most > rows * _HOT) if rows else Shape()


def recomputed(events: DataFrame, grouping: Grouping) -> DataFrame:
    """The value of each aggregate per key and window over all its events: keys, window, aggregates."""
    parts = _parts(events, grouping)
    if parts is None:
        return grouped.recomputed(_sent(_assigned(events, grouping), grouping), grouping.keys, grouping.aggregates)
    of_windows = _of_slices(events, grouping, parts, None).groupBy(*grouping.keys, *WINDOW).agg(*parts.merged)
    return of_windows.select(*grouping.keys, *WINDOW, *parts.values)


def panes(events: DataFrame, grouping: Grouping, judged: JudgedBy) -> DataFrame:
    """First, live and final value of each aggregate per key and window: the columns of `spark.panes.panes`."""
    parts = _parts(events, grouping)
    end_ms = F.col("window_end_ms")
    if parts is None:
        assigned = _assigned(events, grouping)
        told = assigned.withColumns({IS_ON_TIME: ~judged.is_fired(end_ms), IS_ACCEPTED: ~judged.is_gone(end_ms)})
        return grouped.panes(_sent(told.drop(*EVENT), grouping), grouping.keys, grouping.aggregates)
    place = [F.col(name) for name in late_columns(judged)]
    is_early = place[0].isNull()
    told = _of_slices(events, grouping, parts, judged).withColumns(
        {
            IS_ON_TIME: is_early | ~judged.is_fired(end_ms, place),
            IS_ACCEPTED: is_early | ~judged.is_gone(end_ms, place),
        }
    )
    return grouped.merged_panes(told, grouping.keys, parts)


def _parts(events: DataFrame, grouping: Grouping) -> Partials | None:
    """Where an event is in several windows it is counted once, in a slice, if its aggregates can be merged."""
    return None if isinstance(grouping.window, Tumbling) else partials(events, grouping.aggregates)


def _assigned(events: DataFrame, grouping: Grouping) -> DataFrame:
    """One row per event and window."""
    return events.transform(windowed(WindowColumns.of(grouping.window))).where(_is_owned(grouping))


def _of_slices(events: DataFrame, grouping: Grouping, parts: Partials, judged: JudgedBy | None) -> DataFrame:
    """One row per slice and window, with the slice's partial aggregates and `late_columns`.

    There is one exchange, by key: slices and windows are then both grouped where they are.
    """
    slices = events.transform(sliced(grouping.window, judged))
    keys, shape = [F.col(key) for key in grouping.keys], grouping.shape
    if keys and not shape.is_reduced and not shape.has_hot_key:
        slices = slices.repartition(*keys)
    slice_ms = F.col(SLICE).alias("event_time_ms")
    counted = slices.groupBy(*keys, slice_ms, *late_columns(judged)).agg(
        F.count(F.lit(1)).alias(EVENTS), *parts.partial
    )
    return counted.transform(windowed(WindowColumns.of(grouping.window))).where(_is_owned(grouping))


def _sent(assigned: DataFrame, grouping: Grouping) -> DataFrame:
    """Rows as they are sent to be grouped.

    Spark counts before the exchange, which is wasted where nearly every row is a group of its own: then raw rows
    are exchanged, and grouped once.
    """
    if grouping.shape.is_reduced:
        return assigned
    return assigned.repartition(*(F.col(name) for name in (*grouping.keys, *WINDOW)))


def _is_owned(grouping: Grouping) -> Column:
    if grouping.owned is None:
        return F.expr("true")
    return is_within(F.col("window_start_ms"), grouping.owned)
