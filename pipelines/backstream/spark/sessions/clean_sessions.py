"""Compute sessions without late events, and split the events that are certainly on time from the others."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from backstream.runs.table_schemas import RECORD_COUNT
from backstream.spark.sessions.found_sessions import Sessions, owns_start
from backstream.spark.sessions.islands import EVENTS, IS_CLEAN, START, add_islands, island_end_ms
from backstream.spark.windows.aggregation import WINDOW

UNOWNED = "unowned_records"
"""The name under which `aggregate_sessions` counts the records of sessions that other chunks own."""


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
        end_ms = F.max(F.col("event_time_ms") + sessions.window.gap_ms).alias(WINDOW[1])
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
