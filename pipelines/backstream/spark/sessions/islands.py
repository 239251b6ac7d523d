"""Islands: per key, events no further than a gap apart. Without lateness, an island is a session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from backstream.eventtime.instants import MAX_MS
from backstream.native.sessions.arrow_replay import FIRST, GAP, LAST, LATENESS, MET
from backstream.spark.schemas import ARRIVAL_ORDER, int64_literal
from backstream.spark.windows.partial_aggregates import PartialAggregates

START, EVENTS, IS_CLEAN = "session__start_ms", "session__events", "session__is_clean"
"""An island: its first event time, its events, and whether lateness left it alone; beside `LAST`."""
ORDER = "session__order"
"""The place of a straggler in arrival order; null where all events of a unit came in time."""
_BUCKET, _ALONE = "session__bucket_ms", "session__alone"
_BACKBONE_FIRST, _BACKBONE_LAST, _OTHERS_FIRST, _OTHERS_MET = (
    "session__backbone_first_ms",
    "session__backbone_last_ms",
    "session__others_first_ms",
    "session__others_met_ms",
)
_BEGINS, _CHAINS = "session__begins", "session__chains"
_ISLAND_BUCKET, _ISLAND_KEY = "session__island_bucket_ms", "session__key"
_FAR_MS = MAX_MS // 4
"""Beyond it a merge may overflow, which fails the stream at a record: there, each stands for itself."""


@dataclass(frozen=True, slots=True)
class SessionColumns:
    """A session's parameters as columns: literals in a run, a row's own where many streams are played at once."""

    gap_ms: Column
    allowed_lateness_ms: Column

    @classmethod
    def from_settings(cls, gap_ms: int, allowed_lateness_ms: int) -> SessionColumns:
        """The parameters of one definition as literals."""
        return cls(int64_literal(gap_ms), int64_literal(allowed_lateness_ms))

    def is_in_time(self) -> Column:
        """Whether a record was at least two milliseconds ahead of the watermark it met.

        Such records may all be taken for the first to arrive, and no result differs: whatever could fire, or be
        forgotten, before one of them ended more than a gap before it. One millisecond less would not do: an event
        exactly at the bound can miss a session that has just fired.
        """
        event_ms, far_ms = F.col("event_time_ms"), F.lit(_FAR_MS)
        is_near = (event_ms <= far_ms) & (self.gap_ms <= far_ms) & (self.allowed_lateness_ms <= far_ms)
        return (F.col("watermark_ms") < event_ms - F.lit(1)) & is_near


def build_units(
    events: DataFrame,
    keys: Sequence[str],
    window: SessionColumns,
    parts: PartialAggregates | None = None,
    *,
    is_replay: bool,
    is_skewed: bool = False,
) -> DataFrame:
    """What islands are made of, each unit with the `START` of its island; enough to play a stream.

    Events in time within one stretch as long as the gap are one unit, since they are always in one session; each
    straggler is a unit of its own. So only units are put in order, not events.

    Args:
        events: with the key columns and `event_time_ms`; in a replay also `watermark_ms`, never
            null, and `ARRIVAL_ORDER`.
        keys: key columns.
        window: the gap and the allowed lateness.
        parts: aggregates to carry along.
        is_replay: whether there can be stragglers.
        is_skewed: a few keys have most of the events.

    Returns:
        Keys, `START`, `FIRST`, `LAST`, `EVENTS`, `GAP`, `LATENESS` and the columns of `parts`; in a replay also
        `MET` and `ORDER`.
    """
    if is_replay:
        # Records may be alike in every column; each straggler is a unit all the same.
        told = [column.alias(name) for name, column in to_unit().items()]
        alone = F.struct(*told, F.monotonically_increasing_id())
        events = events.withColumn(_ALONE, F.when(~window.is_in_time(), alone))
    found = _grouped(events, keys, window, parts, is_replay=is_replay, is_skewed=is_skewed)
    return _started(found, keys, is_replay=is_replay)


def build_islands(
    of: DataFrame, keys: Sequence[str], parts: PartialAggregates | None = None, *, is_replay: bool
) -> DataFrame:
    """One row per key and island: `START`, `LAST`, `EVENTS`, `IS_CLEAN` and the merged columns of `parts`."""
    merged = _of_island() if is_replay else {}
    joined = of.groupBy(*keys, START, GAP, LATENESS).agg(
        F.max(LAST).alias(LAST),
        F.sum(EVENTS).alias(EVENTS),
        *(column.alias(name) for name, column in merged.items()),
        *(parts.merged if parts else ()),
    )
    return joined.withColumn(IS_CLEAN, _is_clean() if is_replay else F.expr("true")).drop(*merged)


def island_end_ms() -> Column:
    """Where the session of an island ends: one gap after its last event."""
    return F.col(LAST) + F.col(GAP)


def add_islands(
    events: DataFrame, found: DataFrame, keys: Sequence[str], window: SessionColumns, how: str
) -> DataFrame:
    """Events of these islands with `START` and `IS_CLEAN`; `how="left"`: all events, null for those of others.

    An island fills the buckets between its ends, and no other island of its key has an event in them.
    """
    stretch = F.sequence(_bucket_ms(F.col(START), F.col(GAP)), _bucket_ms(F.col(LAST), F.col(GAP)), F.col(GAP))
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


def _grouped(
    events: DataFrame,
    keys: Sequence[str],
    window: SessionColumns,
    parts: PartialAggregates | None,
    *,
    is_replay: bool,
    is_skewed: bool,
) -> DataFrame:
    # Where a bucket holds few events, aggregating before the exchange hardly shrinks anything: moving the events
    # by key once is quicker. One hot key's events would then all go to one task, so they are shrunk first.
    moved = events if is_skewed else events.repartition(*(F.col(key) for key in keys))
    bucket_ms, alone = _bucket_ms(F.col("event_time_ms"), window.gap_ms), []
    if is_replay:
        # Near the limit of 64 bits, where each stands for itself, there may be no room for a bucket.
        bucket_ms, alone = F.when(F.col(_ALONE).isNull(), bucket_ms), [_ALONE]
    # The parameters are grouped by, so that they are there afterwards; Spark leaves literals out of the grouping.
    by = {_BUCKET: bucket_ms, **_parameters(window)}
    found = moved.groupBy(*keys, *alone, *(column.alias(name) for name, column in by.items())).agg(
        F.min("event_time_ms").alias(FIRST),
        F.max("event_time_ms").alias(LAST),
        F.count(F.lit(1)).alias(EVENTS),
        *(parts.partial if parts else ()),
    )
    told = {name: F.col(f"{_ALONE}.{name}") for name in (MET, ORDER)} if is_replay else {}
    return found.withColumns(told).drop(_BUCKET, _ALONE)


def to_unit() -> dict[str, Column]:
    """What tells how a record arrived that stands for itself."""
    return {MET: F.col("watermark_ms"), ORDER: F.struct(*ARRIVAL_ORDER)}


def _parameters(window: SessionColumns) -> dict[str, Column]:
    return {GAP: window.gap_ms, LATENESS: window.allowed_lateness_ms}


def _is_backbone() -> Column:
    """Whether a unit is sure to be in a session that waits: in time, or before its own window was due."""
    return F.coalesce(F.col(MET) < _fires_ms(F.col(FIRST)), F.col(MET).isNull())


def _of_island() -> dict[str, Column]:
    """What an island keeps of its units, to tell whether lateness touched it."""
    is_backbone = _is_backbone()
    return {
        _CHAINS: F.sum(_CHAINS),
        _BACKBONE_FIRST: F.min(F.when(is_backbone, F.col(FIRST))),
        _BACKBONE_LAST: F.max(F.when(is_backbone, F.col(LAST))),
        _OTHERS_FIRST: F.min(F.when(~is_backbone, F.col(FIRST))),
        _OTHERS_MET: F.max(F.when(~is_backbone, F.col(MET))),
    }


def _is_clean() -> Column:
    """Whether the island fired once, on time and whole, with nothing dropped.

    A backbone that is one chain fires no part of itself: whoever is to join a session arrives before the watermark
    gets to its end. Another event then finds the session in flight, if it lies behind the first of the backbone
    (its neighbour in the chain has arrived, or neither has fired) and comes before the watermark reaches the end
    of the chain. And the session must not be kept beyond the limit of 64 bits, where the stream fails.
    """
    is_behind = F.col(_OTHERS_FIRST) >= F.col(_BACKBONE_FIRST)
    finds_it = F.col(_OTHERS_MET) < _fires_ms(F.col(_BACKBONE_LAST))
    is_bounded = F.col(LAST) <= F.lit(MAX_MS) - F.col(LATENESS) - F.col(GAP)
    is_one_chain = F.col(_CHAINS) == F.lit(1)
    has_others = F.col(_OTHERS_FIRST).isNotNull()
    return is_one_chain & is_bounded & (~has_others | F.coalesce(is_behind & finds_it, F.expr("false")))


def _fires_ms(last_ms: Column) -> Column:
    """The watermark that fires a session whose last event this is; null beyond the limit of 64 bits."""
    return F.try_add(last_ms, F.col(GAP) - F.lit(1))


def _started(found: DataFrame, keys: Sequence[str], *, is_replay: bool) -> DataFrame:
    """Add `START`: when the island of each unit began; and whether a chain of its backbone begins in it."""
    # The order must not hang on chance: what is made twice has to be cut into the same islands.
    of_key = Window.partitionBy(*keys).orderBy(FIRST, *((MET,) if is_replay else ()))
    before = of_key.rowsBetween(Window.unboundedPreceding, -1)
    so_far = of_key.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    begins = {_BEGINS: _is_apart(F.max(LAST).over(before))}
    if is_replay:
        last_ms = F.max(F.when(_is_backbone(), F.col(LAST))).over(before)
        begins[_CHAINS] = _begins_chain(last_ms).cast("long")
    begun = found.withColumns(begins)
    return begun.withColumn(START, F.max(F.when(F.col(_BEGINS), F.col(FIRST))).over(so_far)).drop(_BEGINS)


def _begins_chain(before_ms: Column) -> Column:
    """Whether a unit of the backbone is not sure to meet what ends at `before_ms`.

    Events in time meet a session that reaches them. A straggler does if it came before that session fired.
    """
    is_met = F.col(MET).isNull() | F.coalesce(F.col(MET) < _fires_ms(before_ms), F.expr("false"))
    return _is_backbone() & ~(is_met & ~_is_apart(before_ms))


def _is_apart(before_ms: Column) -> Column:
    """Whether a unit begins more than a gap after what was before, or nothing was."""
    return F.coalesce(F.col(FIRST) - before_ms > F.col(GAP), F.expr("true"))


def _bucket_ms(time_ms: Column, gap_ms: Column) -> Column:
    """Start of the gap-wide stretch that a time is in; `pmod`, since buckets before 1970 must not be wider."""
    return time_ms - F.pmod(time_ms, gap_ms)
