"""How far a chunk reads beyond itself, so that each of its sessions is there whole. No session is ever cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from backstream.core.instants import MIN_MS
from backstream.core.intervals import Interval
from backstream.native.sessions.rows import LAST
from backstream.spark.arrays import looked_up
from backstream.spark.sessions.islands import START, SessionColumns, islands, units

EventsBetween = Callable[[int, int], DataFrame]
"""Events with event times in `[start, end)` ms; only `event_time_ms` and the keys are read."""


def halo(
    events_between: EventsBetween,
    keys: Sequence[str],
    gap_ms: int,
    owned: Interval,
    *,
    is_replay: bool,
    may_be: Callable[[Interval], bool] = lambda _: True,
) -> Interval:
    """The smallest stretch of event time to read for the windows that start in `owned`.

    A recompute looks back by one gap: that tells whether a session began before. In a replay a session can have
    fired in parts, and what starts in here may be a part of one that began long before, so every island that
    reaches in is read from its first event to its last. Runs a job or more, each of which looks twice as far; none
    where no event can be within a gap of the boundary.

    Args:
        events_between: where events come from.
        keys: key columns.
        gap_ms: the session gap.
        owned: what the windows start in.
        is_replay: whether a session can have fired in parts.
        may_be: whether there may be an event in an interval.
    """
    is_followed = may_be(Interval(owned.end_ms, owned.end_ms + gap_ms))
    last_ms = first_ms = None
    if not is_replay:
        since_ms = owned.start_ms - gap_ms
        looked_at = Interval(since_ms, owned.end_ms)
        if is_followed:
            last_ms = _reach(events_between, keys, gap_ms, looked_at, counts_from_ms=owned.start_ms)
        return Interval(since_ms, _past(last_ms, owned.end_ms))
    if is_followed:
        last_ms = _reach(events_between, keys, gap_ms, Interval(owned.end_ms - gap_ms, owned.end_ms))
    if may_be(Interval(owned.start_ms - gap_ms, owned.start_ms)):
        back = Interval(1 - owned.start_ms - gap_ms, 1 - owned.start_ms)
        first_ms = _reach(_mirrored(events_between), keys, gap_ms, back)
    return Interval(1 - _past(first_ms, 1 - owned.start_ms), _past(last_ms, owned.end_ms))


def _past(last_ms: int | None, boundary_ms: int) -> int:
    return boundary_ms if last_ms is None else last_ms + 1


def _mirrored(events_between: EventsBetween) -> EventsBetween:
    """The same events with time running backwards, so that looking back is looking ahead."""

    def between(start_ms: int, end_ms: int) -> DataFrame:
        events = events_between(1 - end_ms, 1 - start_ms)
        return events.withColumn("event_time_ms", -F.col("event_time_ms"))

    return between


def _reach(
    events_between: EventsBetween,
    keys: Sequence[str],
    gap_ms: int,
    before: Interval,
    counts_from_ms: int = MIN_MS,
) -> int | None:
    """The last event of all islands that cross the end of `before`; None: none crosses it.

    Args:
        events_between: where events come from.
        keys: key columns.
        gap_ms: the session gap.
        before: what is read to know the islands that come to the boundary; at least one gap.
        counts_from_ms: islands that start earlier do not count.
    """
    window = SessionColumns.of(gap_ms, 0)
    furthest_ms: int | None = None
    seen_until_ms, ahead_ms = before.end_ms, 4 * gap_ms
    events = events_between(before.start_ms, seen_until_ms + ahead_ms).select(*keys, "event_time_ms")
    while True:
        from_ms, until_ms, open_ms = looked_up(
            events.sparkSession, counts_from_ms, seen_until_ms, seen_until_ms + ahead_ms - gap_ms
        )
        crosses = F.col(START).between(from_ms, until_ms - F.lit(1)) & (F.col(LAST) >= until_ms)
        # Its lineage is cut, since each round would otherwise read again what those before it have read.
        found = islands(units(events, keys, window, is_replay=False), keys, is_replay=False)
        crossing = found.where(crosses).localCheckpoint()
        seen_until_ms += ahead_ms
        is_open = F.col(LAST) >= open_ms
        ((last_ms, is_any_open),) = crossing.agg(F.max(LAST), F.bool_or(is_open)).collect()
        furthest_ms = furthest_ms if last_ms is None else last_ms
        if not is_any_open:
            return furthest_ms
        ahead_ms *= 2
        ends = crossing.where(is_open).select(*keys, F.col(LAST).alias("event_time_ms"))
        events = ends.unionByName(events_between(seen_until_ms, seen_until_ms + ahead_ms).select(*ends.columns))
        counts_from_ms = MIN_MS
