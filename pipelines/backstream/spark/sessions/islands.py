"""Islands: per key, events no further than a gap apart. Without lateness, an island is a session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from backstream.core.instants import MAX_MS
from backstream.spark.schemas import long
from backstream.spark.windows.partials import Partials

START, LAST, EVENTS, IS_CLEAN = (
    "session__start_ms",
    "session__last_ms",
    "session__events",
    "session__is_clean",
)
"""An island: its first and last event time, its events, and whether lateness left it alone."""
_GAP, _LATENESS, _BUCKET, _FIRST = (
    "session__gap_ms",
    "session__lateness_ms",
    "session__bucket_ms",
    "session__first_ms",
)
_IN_TIME_FIRST, _IN_TIME_LAST = "session__in_time_first_ms", "session__in_time_last_ms"
_LATE_FIRST, _LATE_MET = "session__late_first_ms", "session__late_met_ms"
_BACKBONE_FIRST, _BACKBONE_LAST, _CHAINS = (
    "session__backbone_first_ms",
    "session__backbone_last_ms",
    "session__backbone_chains",
)
_BEGINS = "session__begins"
_ISLAND_BUCKET, _ISLAND_KEY = "session__island_bucket_ms", "session__key"


@dataclass(frozen=True, slots=True)
class SessionColumns:
    """A session's parameters as columns: literals in a run, a row's own where many streams are played at once."""

    gap_ms: Column
    allowed_lateness_ms: Column

    @classmethod
    def of(cls, gap_ms: int, allowed_lateness_ms: int) -> SessionColumns:
        """The parameters of one definition as literals."""
        return cls(long(gap_ms), long(allowed_lateness_ms))


def islands(
    events: DataFrame,
    keys: Sequence[str],
    window: SessionColumns,
    parts: Partials | None = None,
    *,
    is_replay: bool,
    is_skewed: bool = False,
) -> DataFrame:
    """One row per key and island: `START`, `LAST`, `EVENTS`, `IS_CLEAN` and the merged columns of `parts`.

    Two events within one stretch as long as the gap are always in one island, so only such buckets are put in
    order, not events.

    Args:
        events: with the key columns and `event_time_ms`; in a replay also `watermark_ms`.
        keys: key columns.
        window: the gap and the allowed lateness.
        parts: aggregates to carry along.
        is_replay: whether an island can be other than clean.
        is_skewed: a few keys have most of the events.
    """
    # Where a bucket holds few events, aggregating before the exchange hardly shrinks anything: moving the events
    # by key once is quicker. One hot key's events would then all go to one task, so they are shrunk first.
    moved = events if is_skewed else events.repartition(*(F.col(key) for key in keys))
    bounds, merged = (_of_bucket(), _of_island()) if is_replay else ({}, {})
    buckets = moved.groupBy(*keys, *_parameters(window)).agg(
        F.min("event_time_ms").alias(_FIRST),
        F.max("event_time_ms").alias(LAST),
        F.count(F.lit(1)).alias(EVENTS),
        *(column.alias(name) for name, column in bounds.items()),
        *(parts.partial if parts else ()),
    )
    placed = buckets.withColumns(_backbone()) if is_replay else buckets
    joined = (
        _started(placed, keys, is_replay=is_replay)
        .groupBy(*keys, START, _GAP, _LATENESS)
        .agg(
            F.max(LAST).alias(LAST),
            F.sum(EVENTS).alias(EVENTS),
            *(column.alias(name) for name, column in merged.items()),
            *(parts.merged if parts else ()),
        )
    )
    return joined.withColumn(IS_CLEAN, _is_clean() if is_replay else F.expr("true")).drop(*merged)


def end_ms() -> Column:
    """Where the session of an island ends: one gap after its last event."""
    return F.col(LAST) + F.col(_GAP)


def with_islands(
    events: DataFrame, found: DataFrame, keys: Sequence[str], window: SessionColumns, how: str
) -> DataFrame:
    """Events of these islands with `START` and `IS_CLEAN`; `how="left"`: all events, null for those of others.

    An island fills the buckets between its ends, and no other island of its key has an event in them.
    """
    stretch = F.sequence(_bucket_ms(F.col(START), F.col(_GAP)), _bucket_ms(F.col(LAST), F.col(_GAP)), F.col(_GAP))
    names = {key: f"{_ISLAND_KEY}_{number}" for number, key in enumerate(keys)}
    by_bucket = found.select(
        *(F.col(key).alias(name) for key, name in names.items()),
        START,
        IS_CLEAN,
        F.explode(stretch).alias(_ISLAND_BUCKET),
    )
    placed = events.withColumn(_BUCKET, _bucket_ms(F.col("event_time_ms"), window.gap_ms))
    same = [F.col(key).eqNullSafe(F.col(name)) for key, name in names.items()]
    is_in = reduce(and_, [*same, F.col(_BUCKET) == F.col(_ISLAND_BUCKET)])
    return placed.join(by_bucket, is_in, how=how).select(*events.columns, START, IS_CLEAN)


def _parameters(window: SessionColumns) -> tuple[Column, Column, Column]:
    """Grouped by, so that they are there afterwards; Spark leaves literals out of the grouping."""
    return (
        _bucket_ms(F.col("event_time_ms"), window.gap_ms).alias(_BUCKET),
        window.gap_ms.alias(_GAP),
        window.allowed_lateness_ms.alias(_LATENESS),
    )


def _of_bucket() -> dict[str, Column]:
    """What a bucket keeps of its events to tell whether lateness touched the island.

    One millisecond more than `not late`: an event exactly at the bound can miss a session that has just fired.
    """
    event_ms, watermark_ms = F.col("event_time_ms"), F.col("watermark_ms")
    is_in_time = watermark_ms < event_ms - F.lit(1)
    return {
        _IN_TIME_FIRST: F.min(F.when(is_in_time, event_ms)),
        _IN_TIME_LAST: F.max(F.when(is_in_time, event_ms)),
        _LATE_FIRST: F.min(F.when(~is_in_time, event_ms)),
        _LATE_MET: F.max(F.when(~is_in_time, watermark_ms)),
    }


def _backbone() -> dict[str, Column]:
    """The events of a bucket that are sure to meet each other in time, and what is late beside them.

    No session that holds an event of the bucket ends within a gap of its first event. So if all of them came
    before the watermark got there, they are one session, however late: all are backbone. Else those in time are.
    """
    is_met_whole = F.coalesce(F.col(_LATE_MET) < _fires_ms(F.col(_FIRST)), F.expr("true"))
    return {
        _BACKBONE_FIRST: F.when(is_met_whole, F.col(_FIRST)).otherwise(F.col(_IN_TIME_FIRST)),
        _BACKBONE_LAST: F.when(is_met_whole, F.col(LAST)).otherwise(F.col(_IN_TIME_LAST)),
        _LATE_FIRST: F.when(~is_met_whole, F.col(_LATE_FIRST)),
    }


def _of_island() -> dict[str, Column]:
    """The same of an island, of what its buckets keep. Of late events only those outside the backbone."""
    return {
        _CHAINS: F.sum(_CHAINS),
        _BACKBONE_FIRST: F.min(_BACKBONE_FIRST),
        _BACKBONE_LAST: F.max(_BACKBONE_LAST),
        _LATE_FIRST: F.min(_LATE_FIRST),
        _LATE_MET: F.max(F.when(F.col(_LATE_FIRST).isNotNull(), F.col(_LATE_MET))),
    }


def _is_clean() -> Column:
    """Whether the island fired once, on time and whole, with nothing dropped.

    A backbone that is one chain fires no part of itself: whoever is to join a session arrives before the watermark
    gets to its end. Another event then finds the session in flight, if it lies behind the first of the backbone
    (its neighbour in the chain has arrived, or neither has fired) and comes before the watermark reaches the end
    of the chain. And the session must not be kept beyond the limit of 64 bits, where the stream fails.
    """
    is_behind = F.col(_LATE_FIRST) >= F.col(_BACKBONE_FIRST)
    finds_it = F.col(_LATE_MET) < _fires_ms(F.col(_BACKBONE_LAST))
    is_bounded = F.col(LAST) <= F.lit(MAX_MS) - F.col(_LATENESS) - F.col(_GAP)
    is_one_chain = F.col(_CHAINS) == F.lit(1)
    has_others = F.col(_LATE_FIRST).isNotNull()
    return is_one_chain & is_bounded & (~has_others | F.coalesce(is_behind & finds_it, F.expr("false")))


def _fires_ms(last_ms: Column) -> Column:
    """The watermark that fires a session whose last event this is; null beyond the limit of 64 bits."""
    return F.try_add(last_ms, F.col(_GAP) - F.lit(1))


def _started(buckets: DataFrame, keys: Sequence[str], *, is_replay: bool) -> DataFrame:
    """Add `START`: when the island of each bucket began; and whether a chain of its backbone begins in it."""
    of_key = Window.partitionBy(*keys).orderBy(_BUCKET)
    before = of_key.rowsBetween(Window.unboundedPreceding, -1)
    so_far = of_key.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    begins = {_BEGINS: _is_apart(F.col(_FIRST), F.max(LAST).over(before))}
    if is_replay:
        begins[_CHAINS] = _begins_chain(F.max(_BACKBONE_LAST).over(before)).cast("long")
    begun = buckets.withColumns(begins)
    return begun.withColumn(START, F.max(F.when(F.col(_BEGINS), F.col(_FIRST))).over(so_far)).drop(_BEGINS)


def _begins_chain(before_ms: Column) -> Column:
    """Whether a bucket's backbone is not sure to meet what ends at `before_ms`; not where it has none.

    An event in time meets a session that reaches it. A late one does if it came before that session fired.
    """
    is_met_in_time = ~_is_apart(F.col(_IN_TIME_FIRST), before_ms) & F.col(_IN_TIME_FIRST).isNotNull()
    has_late_first = F.col(_BACKBONE_FIRST) < F.coalesce(_IN_TIME_FIRST, F.lit(MAX_MS))
    is_met_late = ~_is_apart(F.col(_BACKBONE_FIRST), before_ms) & (F.col(_LATE_MET) < _fires_ms(before_ms))
    is_met = is_met_in_time | F.coalesce(has_late_first & is_met_late, F.expr("false"))
    return F.col(_BACKBONE_FIRST).isNotNull() & ~is_met


def _is_apart(first_ms: Column, before_ms: Column) -> Column:
    """Whether a chain begins: more than a gap after what was before, or nothing was. Not where nothing is."""
    return F.coalesce(first_ms - before_ms > F.col(_GAP), first_ms.isNotNull())


def _bucket_ms(time_ms: Column, gap_ms: Column) -> Column:
    """Start of the gap-wide stretch that a time is in; `pmod`, since buckets before 1970 must not be wider."""
    return time_ms - F.pmod(time_ms, gap_ms)
