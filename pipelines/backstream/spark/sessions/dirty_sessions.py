"""Replay the islands that late events may have split, in arrival order, by an Arrow function."""

from __future__ import annotations

from functools import reduce
from operator import and_

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from backstream.native.sessions.arrow_replay import (
    FIRST,
    GAP,
    LAST,
    LATENESS,
    MET,
    POSITION,
    SEQ,
    ReplayColumns,
    fated,
)
from backstream.spark.session import ship_package
from backstream.spark.sessions.clean_sessions import broadcast_if_small
from backstream.spark.sessions.found_sessions import Sessions
from backstream.spark.sessions.islands import IS_CLEAN, ORDER, START, add_islands, to_unit


def add_late_fates(out_of_order: DataFrame, sessions: Sessions) -> DataFrame:
    """Add `fate` and `refusal` to the out-of-order events of dirty islands."""
    in_time = dirty_units(sessions).where(F.col(MET).isNull())
    in_time = in_time.select(*sessions.keys, START, FIRST, LAST, MET, ORDER, GAP, LATENESS)
    units = _as_units(out_of_order, sessions).unionByName(in_time, allowMissingColumns=True)
    return replay_in_order(units, sessions, fated)


def _dirty_islands(sessions: Sessions) -> DataFrame:
    """Return the dirty islands that overlap the owned interval."""
    dirty = sessions.special.where(~F.col(IS_CLEAN))
    if sessions.owned:
        overlaps = (F.col(START) < sessions.owned.end_ms) & (F.col(LAST) >= sessions.owned.start_ms)
        dirty = dirty.where(overlaps)
    return broadcast_if_small(sessions, dirty)


def dirty_units(sessions: Sessions) -> DataFrame:
    """Return the units of dirty islands."""
    names = {name: f"session__dirty_{number}" for number, name in enumerate((*sessions.keys, START))}
    dirty = _dirty_islands(sessions).select(*(F.col(name).alias(other) for name, other in names.items()))
    is_same = reduce(and_, [F.col(name).eqNullSafe(F.col(other)) for name, other in names.items()])
    return sessions.units.join(dirty, is_same, how="leftsemi")


def dirty_events(sessions: Sessions) -> DataFrame:
    """Return the events of dirty islands, each as a unit of its own."""
    events = add_islands(sessions.events, _dirty_islands(sessions), sessions.keys, sessions.window, how="inner")
    return _as_units(events, sessions)


def _as_units(events: DataFrame, sessions: Sessions) -> DataFrame:
    event_ms, window = F.col("event_time_ms"), sessions.window
    span = {FIRST: event_ms, LAST: event_ms, GAP: window.gap_ms, LATENESS: window.allowed_lateness_ms}
    return events.withColumns({**span, **to_unit()})


def replay_in_order(units: DataFrame, sessions: Sessions, columns: ReplayColumns) -> DataFrame:
    """Replay each dirty island in arrival order, and add the resulting columns."""
    # The window function distributes the islands of a hot key over several tasks, and sorts within an island.
    # Units in time have no arrival position and come first.
    order = Window.partitionBy(*sessions.keys, START).orderBy(ORDER, FIRST)
    units = units.withColumns({SEQ: F.col(ORDER).arrival_seq, POSITION: F.row_number().over(order)}).drop(ORDER)
    schema = StructType([*units.schema.fields])
    for name, kind in columns.types.items():
        schema.add(name, kind)
    ship_package(units.sparkSession.sparkContext)
    return units.mapInArrow(columns, schema)
