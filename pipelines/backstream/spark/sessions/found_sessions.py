"""Find the sessions of an interval of events, and compute those without late events."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from backstream.eventtime.intervals import Interval
from backstream.native.sessions.arrow_replay import GAP, LAST
from backstream.runs.table_schemas import RECORD_COUNT
from backstream.spark.schemas import IntervalColumns
from backstream.spark.sessions.islands import (
    EVENTS,
    IS_CLEAN,
    START,
    SessionColumns,
    add_islands,
    build_islands,
    build_units,
    island_end_ms,
)
from backstream.spark.windows.aggregation import WINDOW
from backstream.spark.windows.partial_aggregates import PartialAggregates, split_aggregates

_MAX_BROADCAST_BUCKETS = 500_000
"""The largest number of island buckets that Spark broadcasts to find the events of islands without a shuffle."""
Keep = Callable[[DataFrame], DataFrame]
"""A function that persists a frame until all results are computed."""
UNOWNED = "unowned_records"
"""The name under which `aggregate_sessions` counts the records of sessions that other chunks own."""


@dataclass(frozen=True, slots=True)
class Sessions:
    """The sessions of an interval of events, and the frames that all results are computed from.

    Every result needs `islands`. In a replay it also needs the `units` of dirty islands. `persist_sessions`
    computes both once.
    """

    events: DataFrame
    keys: Sequence[str]
    window: SessionColumns
    aggregates: Mapping[str, str]
    units: DataFrame
    islands: DataFrame
    parts: PartialAggregates | None
    is_replay: bool
    owned: IntervalColumns | None
    is_broadcast: bool = False

    @property
    def special(self) -> DataFrame:
        """The islands whose events need more than their own time: dirty islands, and those across a boundary."""
        is_special = ~F.col(IS_CLEAN)
        for boundary_ms in (self.owned.start_ms, self.owned.end_ms) if self.owned else ():
            is_special |= (F.col(START) < boundary_ms) & (F.col(LAST) >= boundary_ms)
        return self.islands.where(is_special).select(*self.keys, START, LAST, GAP, IS_CLEAN)


def find_sessions(
    events: DataFrame,
    keys: Sequence[str],
    window: SessionColumns,
    aggregates: Mapping[str, str],
    *,
    is_replay: bool,
    owned: Interval | None = None,
    is_skewed: bool = False,
) -> Sessions:
    """Return the sessions of these events; no job is run.

    Args:
        events: normalized events without duplicates, with `watermark_ms` in a replay. They extend beyond `owned`
            as far as `session_windows.find_halo` returns.
        keys: key columns.
        window: the session gap and the allowed lateness.
        aggregates: name to SQL aggregate call.
        is_replay: False if the only watermarks are -inf and +inf, so that no event is late.
        owned: the interval in which sessions must start to be counted; None if all sessions count.
        is_skewed: whether a few keys have most of the events.
    """
    parts = split_aggregates(events, aggregates)
    owned_columns = None
    if owned:
        per_ms = window.per_ms
        in_instants = Interval(owned.start_ms * per_ms, owned.end_ms * per_ms)
        owned_columns = IntervalColumns.from_interval(events.sparkSession, in_instants)
    units = build_units(events, keys, window, parts, is_replay=is_replay, is_skewed=is_skewed)
    islands = build_islands(units, keys, window, parts, is_replay=is_replay)
    return Sessions(events, keys, window, aggregates, units, islands, parts, is_replay, owned_columns)


def persist_sessions(sessions: Sessions, keep: Keep) -> Sessions:
    """Persist the units and islands, and choose how Spark finds the events of islands. Runs a job."""
    units = keep(sessions.units)
    islands = keep(
        build_islands(units, sessions.keys, sessions.window, sessions.parts, is_replay=sessions.is_replay)
    )
    persisted = replace(sessions, units=units, islands=islands)
    buckets = F.sum((island_end_ms() - F.col(START)) / F.col(GAP) + F.lit(1))
    ((count,),) = persisted.special.agg(F.coalesce(buckets, F.lit(0.0))).collect()
    return replace(persisted, is_broadcast=count <= _MAX_BROADCAST_BUCKETS)


def owns_start(owned: IntervalColumns | None, start_ms: Column) -> Column:
    """Return whether the chunks own a session with this start: it is in the half-open interval `owned`."""
    return F.expr("true") if owned is None else owned.hold(start_ms)


def aggregate_sessions(sessions: Sessions, tally: Observation | None = None) -> DataFrame:
    """Return one row per key and session: keys, window, aggregates, `record_count`.

    Args:
        sessions: the sessions of a recompute.
        tally: gets `UNOWNED` when the rows are computed; None if the number isn't needed.
    """
    is_owned = owns_start(sessions.owned, F.col(WINDOW[0]))
    unowned = F.coalesce(F.sum(F.when(~is_owned, F.col(EVENTS))), F.lit(0)).alias(UNOWNED)
    windows = _clean_windows(sessions)
    counted = windows.observe(tally, unowned) if tally else windows
    return counted.where(is_owned).select(
        *sessions.keys, *WINDOW, *sessions.aggregates, F.col(EVENTS).alias(RECORD_COUNT)
    )


def count_unowned(sessions: Sessions) -> int:
    """Return the number of records of the sessions of a recompute that other chunks own. Runs a job."""
    others = _clean_windows(sessions).where(~owns_start(sessions.owned, F.col(WINDOW[0])))
    ((count,),) = others.agg(F.coalesce(F.sum(EVENTS), F.lit(0))).collect()
    return int(count)


def owned_clean_windows(sessions: Sessions) -> DataFrame:
    """Return the sessions of clean islands that the chunks own: keys, window, `EVENTS`, aggregates."""
    return _clean_windows(sessions).where(owns_start(sessions.owned, F.col(WINDOW[0])))


def _clean_windows(sessions: Sessions) -> DataFrame:
    """Return the sessions of all clean islands, including those of other chunks."""
    clean = sessions.islands.where(IS_CLEAN)
    if sessions.parts:
        values = (START, island_end_ms().alias(WINDOW[1]), EVENTS, *sessions.parts.values)
        windows = clean.select(*sessions.keys, *values)
    else:
        events = add_islands(sessions.events, clean, sessions.keys, sessions.window, how="inner")
        end_ms = F.max(sessions.window.event_time + sessions.window.gap_ms).alias(WINDOW[1])
        windows = events.groupBy(*sessions.keys, START).agg(
            end_ms, F.count(F.lit(1)).alias(EVENTS), *aggregate_columns(sessions.aggregates)
        )
    return windows.withColumnRenamed(START, WINDOW[0])


def split_on_time(sessions: Sessions) -> tuple[DataFrame, DataFrame | None]:
    """Split the events into those that are certainly on time, and all others; None in a recompute.

    Both have `START`, which is null if the island is not one of `Sessions.special`.
    """
    islands = broadcast_if_small(sessions, sessions.special)
    events = add_islands(sessions.events, islands, sessions.keys, sessions.window, how="left")
    if not sessions.is_replay:
        return events, None
    is_on_time = F.coalesce(IS_CLEAN, F.expr("true")) | sessions.window.is_in_time()
    return events.where(is_on_time), events.where(~is_on_time)


def broadcast_if_small(sessions: Sessions, islands: DataFrame) -> DataFrame:
    """Return the islands, with a hint to broadcast them if they are few."""
    return islands.hint("broadcast") if sessions.is_broadcast else islands


def aggregate_columns(aggregates: Mapping[str, str]) -> list[Column]:
    """Return one column per aggregate call."""
    return [F.expr(aggregate).alias(name) for name, aggregate in aggregates.items()]
