"""Group the events of each key into islands: events with no distance larger than the gap.

Without late events, an island is a session. Terms of this package:

- An event is *in time* if it was at least two milliseconds ahead of the watermark. All others are *out of order*.
- A *unit* is a group of events in time in one gap-wide bucket, or one event that is out of order.
- The *backbone* of an island has the units that are certainly in a session that hasn't fired at their arrival.
- A *chain* is a part of the backbone in which each unit certainly joins the session of the one before.
- An island is *clean* if it fired once, on time, with all its events, and *dirty* otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from backstream.eventtime.instants import MAX_MS, MIN_MS
from backstream.eventtime.windows import Session
from backstream.native.sessions.arrow_replay import FIRST, GAP, LAST, LATENESS, MET
from backstream.spark.schemas import ARRIVAL_ORDER, EVENT_TIME_US, int64_literal
from backstream.spark.windows.partial_aggregates import PartialAggregates

START, EVENTS, IS_CLEAN = "session__start_ms", "session__events", "session__is_clean"
"""Columns of an island beside `LAST`: its first event time, its number of events, and whether it is clean."""
ORDER = "session__order"
"""The arrival position of an out-of-order event; null for events in time."""
_BUCKET, _ALONE = "session__bucket_ms", "session__alone"
_BACKBONE_FIRST, _BACKBONE_LAST, _OTHERS_FIRST, _OTHERS_MET = (
    "session__backbone_first_ms",
    "session__backbone_last_ms",
    "session__others_first_ms",
    "session__others_met_ms",
)
_BEGINS, _CHAINS = "session__begins", "session__chains"
_ISLAND_BUCKET, _ISLAND_KEY = "session__island_bucket_ms", "session__key"
_US_PER_MS = 1_000
_FAR_MS = MAX_MS // 4
"""Beyond this time a merge may overflow and fail the stream at a record, so each event is a unit of its own."""


@dataclass(frozen=True, slots=True)
class SessionColumns:
    """The parameters of session windows as columns.

    They are literals in a run, and columns of the row if several streams are replayed in one job. With
    `emitted_until`, all are in microseconds; see `eventtime.windows.Session`.
    """

    gap_ms: Column
    allowed_lateness_ms: Column
    emitted_until: int | None = None

    @classmethod
    def from_settings(cls, window: Session, allowed_lateness_ms: int) -> SessionColumns:
        """Return the parameters of one definition as literals."""
        return cls(int64_literal(window.gap), int64_literal(allowed_lateness_ms), window.emitted_until)

    @property
    def per_ms(self) -> int:
        """The number of instants in a millisecond."""
        return 1 if self.emitted_until is None else _US_PER_MS

    @property
    def event_time(self) -> Column:
        """The event time of a record."""
        return F.col("event_time_ms" if self.emitted_until is None else EVENT_TIME_US)

    @property
    def watermark(self) -> Column:
        """The last instant that the watermark had reached when a record arrived; no session ends near -inf."""
        if self.emitted_until is None:
            return F.col("watermark_ms")
        finite_ms = F.greatest(F.col("watermark_ms"), int64_literal(MIN_MS // _US_PER_MS))
        return finite_ms * int64_literal(_US_PER_MS) + int64_literal(_US_PER_MS - 1)

    def is_in_time(self) -> Column:
        """Return whether a record was at least two milliseconds ahead of the watermark at its arrival.

        The result doesn't change if all such records arrive first: any window that could fire or be removed before
        one of them ended more than a gap before it. One millisecond is not enough, since an event exactly at the
        bound can miss a session that has just fired.
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
    """Return the units of all islands, each with the `START` of its island.

    Events in time in one gap-wide bucket are always in one session, so they are one unit. Only units are sorted,
    not events.

    Args:
        events: events with the key columns and `event_time_ms`; in a replay also with `watermark_ms`, never null,
            and `ARRIVAL_ORDER`.
        keys: key columns.
        window: the gap and the allowed lateness.
        parts: partial aggregates to compute per unit.
        is_replay: whether events can be out of order.
        is_skewed: whether a few keys have most of the events.

    Returns:
        Keys, `START`, `FIRST`, `LAST`, `EVENTS`, `GAP`, `LATENESS` and the columns of `parts`; in a replay also
        `MET` and `ORDER`.
    """
    if is_replay:
        # Two records can be equal in every column, so an id makes each of them a unit.
        columns = [column.alias(name) for name, column in to_unit(window).items()]
        unit = F.struct(*columns, F.monotonically_increasing_id())
        events = events.withColumn(_ALONE, F.when(~window.is_in_time(), unit))
    units = _group_units(events, keys, window, parts, is_replay=is_replay, is_skewed=is_skewed)
    return _add_island_starts(units, keys, is_replay=is_replay)


def build_islands(
    units: DataFrame,
    keys: Sequence[str],
    window: SessionColumns,
    parts: PartialAggregates | None = None,
    *,
    is_replay: bool,
) -> DataFrame:
    """Return per key and island `START`, `LAST`, `EVENTS`, `IS_CLEAN`, and the merged columns of `parts`."""
    lateness = _lateness_columns() if is_replay else {}
    islands = units.groupBy(*keys, START, GAP, LATENESS).agg(
        F.max(LAST).alias(LAST),
        F.sum(EVENTS).alias(EVENTS),
        *(column.alias(name) for name, column in lateness.items()),
        *(parts.merges if parts else ()),
    )
    return islands.withColumn(IS_CLEAN, _is_clean(window) if is_replay else F.expr("true")).drop(*lateness)


def island_end_ms() -> Column:
    """Return the end of the session of an island: one gap after its last event."""
    return F.col(LAST) + F.col(GAP)


def add_islands(
    events: DataFrame, islands: DataFrame, keys: Sequence[str], window: SessionColumns, how: str
) -> DataFrame:
    """Return the events of these islands with `START` and `IS_CLEAN`.

    With `how="left"`, all events are returned, with nulls for events of other islands. The buckets between the
    ends of an island have no events of other islands of its key.
    """
    buckets = F.sequence(_bucket_ms(F.col(START), F.col(GAP)), _bucket_ms(F.col(LAST), F.col(GAP)), F.col(GAP))
    names = {key: f"{_ISLAND_KEY}_{number}" for number, key in enumerate(keys)}
    by_bucket = islands.select(
        *(F.col(key).alias(name) for key, name in names.items()),
        START,
        IS_CLEAN,
        F.explode(buckets).alias(_ISLAND_BUCKET),
    )
    bucketed = events.withColumn(_BUCKET, _bucket_ms(window.event_time, window.gap_ms))
    same = [F.col(key).eqNullSafe(F.col(name)) for key, name in names.items()]
    is_in_island = reduce(and_, [*same, F.col(_BUCKET) == F.col(_ISLAND_BUCKET)])
    return bucketed.join(by_bucket, is_in_island, how=how).select(*events.columns, START, IS_CLEAN)


def _group_units(
    events: DataFrame,
    keys: Sequence[str],
    window: SessionColumns,
    parts: PartialAggregates | None,
    *,
    is_replay: bool,
    is_skewed: bool,
) -> DataFrame:
    # If a bucket has few events, aggregation before the shuffle removes few rows, so shuffling events by key is
    # faster. With a hot key, one task would get most events, so they are aggregated first.
    shuffled = events if is_skewed else events.repartition(*(F.col(key) for key in keys))
    bucket_ms, unit = _bucket_ms(window.event_time, window.gap_ms), []
    if is_replay:
        # Near the limit of 64 bits a bucket could overflow. There each event is a unit of its own.
        bucket_ms, unit = F.when(F.col(_ALONE).isNull(), bucket_ms), [_ALONE]
    # Grouping by the parameters keeps them as columns; Spark removes literals from the grouping.
    by = {_BUCKET: bucket_ms, **_parameters(window)}
    units = shuffled.groupBy(*keys, *unit, *(column.alias(name) for name, column in by.items())).agg(
        F.min(window.event_time).alias(FIRST),
        F.max(window.event_time).alias(LAST),
        F.count(F.lit(1)).alias(EVENTS),
        *(parts.partial if parts else ()),
    )
    arrival = {name: F.col(f"{_ALONE}.{name}") for name in (MET, ORDER)} if is_replay else {}
    return units.withColumns(arrival).drop(_BUCKET, _ALONE)


def to_unit(window: SessionColumns) -> dict[str, Column]:
    """Return the columns of a unit of one record: its watermark and its arrival position."""
    return {MET: window.watermark, ORDER: F.struct(*ARRIVAL_ORDER)}


def _parameters(window: SessionColumns) -> dict[str, Column]:
    return {GAP: window.gap_ms, LATENESS: window.allowed_lateness_ms}


def _is_backbone() -> Column:
    """Return whether a unit is in the backbone: in time, or before its own window was due."""
    return F.coalesce(F.col(MET) < _fires_ms(F.col(FIRST)), F.col(MET).isNull())


def _lateness_columns() -> dict[str, Column]:
    """Return the aggregates over units that `_is_clean` needs."""
    is_backbone = _is_backbone()
    return {
        _CHAINS: F.sum(_CHAINS),
        _BACKBONE_FIRST: F.min(F.when(is_backbone, F.col(FIRST))),
        _BACKBONE_LAST: F.max(F.when(is_backbone, F.col(LAST))),
        _OTHERS_FIRST: F.min(F.when(~is_backbone, F.col(FIRST))),
        _OTHERS_MET: F.max(F.when(~is_backbone, F.col(MET))),
    }


def _is_clean(window: SessionColumns) -> Column:
    """Return whether the island fired once, on time, with all its events, and nothing was dropped.

    If the backbone is one chain, no part of it fires alone, since each unit joins the session before the watermark
    reaches its end. Any other event then finds this session unfired under two conditions. It is not before the
    first event of the backbone, so that its neighbor in the chain has arrived, or neither has fired. And it
    arrives before the watermark reaches the end of the chain. Also, the cleanup time must not exceed 64 bits,
    since the stream fails there.

    In a job of Structured Streaming, any other event is dropped, and sessions after the end of the logs are open.
    """
    is_after_first = F.col(_OTHERS_FIRST) >= F.col(_BACKBONE_FIRST)
    is_before_firing = F.col(_OTHERS_MET) < _fires_ms(F.col(_BACKBONE_LAST))
    is_bounded = F.col(LAST) <= F.lit(MAX_MS) - F.col(LATENESS) - F.col(GAP)
    is_one_chain = F.col(_CHAINS) == F.lit(1)
    has_others = F.col(_OTHERS_FIRST).isNotNull()
    if window.emitted_until is not None:
        return is_one_chain & ~has_others & (island_end_ms() <= int64_literal(window.emitted_until))
    return (
        is_one_chain & is_bounded & (~has_others | F.coalesce(is_after_first & is_before_firing, F.expr("false")))
    )


def _fires_ms(last_ms: Column) -> Column:
    """Return the watermark that fires a session with this last event; null if it exceeds 64 bits."""
    return F.try_add(last_ms, F.col(GAP) - F.lit(1))


def _add_island_starts(units: DataFrame, keys: Sequence[str], *, is_replay: bool) -> DataFrame:
    """Add `START`, the start of the unit's island, and whether a chain of the backbone begins with the unit."""
    # The order must be deterministic: if Spark computes the units twice, the islands must be the same.
    of_key = Window.partitionBy(*keys).orderBy(FIRST, *((MET,) if is_replay else ()))
    before = of_key.rowsBetween(Window.unboundedPreceding, -1)
    so_far = of_key.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    begins = {_BEGINS: _is_apart(F.max(LAST).over(before))}
    if is_replay:
        last_ms = F.max(F.when(_is_backbone(), F.col(LAST))).over(before)
        begins[_CHAINS] = _begins_chain(last_ms).cast("long")
    units = units.withColumns(begins)
    return units.withColumn(START, F.max(F.when(F.col(_BEGINS), F.col(FIRST))).over(so_far)).drop(_BEGINS)


def _begins_chain(before_ms: Column) -> Column:
    """Return whether a unit of the backbone might not join the session that ends at `before_ms`.

    Events in time join a session that they reach. An out-of-order event does if it arrived before the session
    fired.
    """
    is_unfired = F.col(MET).isNull() | F.coalesce(F.col(MET) < _fires_ms(before_ms), F.expr("false"))
    return _is_backbone() & ~(is_unfired & ~_is_apart(before_ms))


def _is_apart(before_ms: Column) -> Column:
    """Return whether a unit begins more than a gap after the units before, or is the first."""
    return F.coalesce(F.col(FIRST) - before_ms > F.col(GAP), F.expr("true"))


def _bucket_ms(time_ms: Column, gap_ms: Column) -> Column:
    """Return the start of the gap-wide bucket of a time; `%` would make the bucket at 1970 wider than `pmod`."""
    return time_ms - F.pmod(time_ms, gap_ms)
