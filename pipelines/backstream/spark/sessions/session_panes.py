"""Compute the sessions of a chunk: values, fates, and firings.

Events are reduced to units, and the units to islands (see `islands`). A clean island fired exactly once, on time
and with all of its events, so its value is the aggregate over its units. Late events may have split a dirty island
into several sessions. Its units are replayed in arrival order by an Arrow function. Only there does Python process
rows, and a recompute has no dirty islands.
"""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from backstream.definition.aggregates import with_filter
from backstream.eventtime.records import Fate
from backstream.native.sessions.arrow_replay import (
    FIRST,
    GAP,
    IN_WINDOW,
    LAST,
    LATENESS,
    MET,
    POSITION,
    SEQ,
    UNTIL,
    ReplayColumns,
    fated,
    in_firings,
    in_panes,
    in_windows,
)
from backstream.runs.table_schemas import PANES_KEPT, pane_count_column
from backstream.spark.schemas import int64_literal
from backstream.spark.session import ship_package
from backstream.spark.sessions.found_sessions import (
    Sessions,
    aggregate_columns,
    broadcast_if_small,
    owned_clean_windows,
    owns_start,
    split_on_time,
)
from backstream.spark.sessions.islands import (
    EVENTS,
    IS_CLEAN,
    ORDER,
    START,
    add_islands,
    island_end_ms,
    to_unit,
)
from backstream.spark.user_jobs import IN_FINAL
from backstream.spark.windows.aggregation import WINDOW


def session_panes(sessions: Sessions) -> DataFrame:
    """Return the first, live, and final value of each aggregate per key and window.

    If a window fired and grew later, it has a row of its own, with `live` and without `final`. The session of all
    events has a row with `final`. That row has no other values if the stream never fired this window.

    Returns:
        The columns of `spark.windows.aggregation.panes_of_rows`.

    Raises:
        PlanError: from within the job, when adding the allowed lateness overflows in a merge of sessions, as in
            Flink.
    """
    columns = [*sessions.keys, *WINDOW, *_pane_counts(), *(name for name, _, _ in _pane_values(sessions))]
    clean = owned_clean_windows(sessions).withColumns(
        {
            **dict.fromkeys(map(pane_count_column, PANES_KEPT), F.col(EVENTS)),
            "late_firings": int64_literal(0),
            **{column: F.col(name) for column, name, _ in _pane_values(sessions)},
        }
    )
    if not sessions.is_replay:
        return clean.select(*columns)
    return clean.select(*columns).unionByName(_dirty_panes(sessions).select(*columns))


def session_members(sessions: Sessions) -> DataFrame:
    """Return every record once per window, with the columns that a job gets, and `IN_FINAL`.

    A record has a row for each window that fired with it, and for the session of all events.
    """
    events = sessions.events
    clean = sessions.islands.where(IS_CLEAN)
    ends = clean.select(*sessions.keys, START, island_end_ms().alias(WINDOW[1]))
    in_clean = add_islands(events, clean, sessions.keys, sessions.window, how="inner").drop(IS_CLEAN)
    names = {name: f"session__clean_{number}" for number, name in enumerate((*sessions.keys, START))}
    renamed = ends.select(*(F.col(name).alias(other) for name, other in names.items()), WINDOW[1])
    is_same = reduce(and_, [F.col(name).eqNullSafe(F.col(other)) for name, other in names.items()])
    on_time = {
        WINDOW[0]: F.col(START),
        "fate": F.lit(Fate.ON_TIME),
        "pane_index": int64_literal(0),
        "pane_timing": F.lit(Fate.ON_TIME),
        IN_FINAL: F.expr("true"),
    }
    columns = [*events.columns, *WINDOW, "fate", "pane_index", "pane_timing", IN_FINAL]
    members = in_clean.join(renamed, is_same, how="inner").withColumns(on_time).select(*columns)
    if sessions.is_replay:
        replayed = _replay_in_order(_dirty_events(sessions), sessions, in_panes)
        added = {
            **dict(zip(WINDOW, map(F.col, IN_WINDOW), strict=True)),
            **{name: F.col(f"session__{name}") for name in ("fate", "pane_index", "pane_timing")},
            IN_FINAL: F.col("session__in_final"),
        }
        members = members.unionByName(replayed.withColumns(added).select(*columns))
    return members.where(owns_start(sessions.owned, F.col(WINDOW[0])))


def session_records(sessions: Sessions) -> DataFrame:
    """Return every record with `fate` and `is_owned`: whether the chunks own the session of all events."""
    columns = [*sessions.events.columns, "fate", "is_owned"]
    is_owned = owns_start(sessions.owned, F.coalesce(START, sessions.window.event_time))
    on_time, others = split_on_time(sessions)
    on_time = on_time.withColumns({"fate": F.lit(Fate.ON_TIME), "is_owned": is_owned}).select(*columns)
    if others is None:
        return on_time
    return on_time.unionByName(_add_late_fates(others, sessions).withColumn("is_owned", is_owned).select(*columns))


def session_firings(sessions: Sessions) -> DataFrame:
    """Return every pane that each window fired, in order.

    Returns:
        Keys, window, `pane_index`, `pane_timing`, `watermark_ms`, aggregates. `watermark_ms` is null if a
        watermark caused the firing: it is the first that reaches the end of the window.
    """
    columns = [*sessions.keys, *WINDOW, "pane_index", "pane_timing", "watermark_ms", *sessions.aggregates]
    on_time = {
        "pane_index": int64_literal(0),
        "pane_timing": F.lit(Fate.ON_TIME),
        "watermark_ms": int64_literal(None),
    }
    clean = owned_clean_windows(sessions).withColumns(on_time).select(*columns)
    return clean.unionByName(_dirty_firings(sessions).select(*columns)) if sessions.is_replay else clean


def _dirty_panes(sessions: Sessions) -> DataFrame:
    """Return the columns of `session_panes` for the windows in dirty islands."""
    panes = _pane_aggregates(sessions)
    late_firings = F.max("session__late_firings").alias("late_firings")
    windows = panes.members.groupBy(*sessions.keys, *_member_window()).agg(
        *(count.alias(pane_count_column(pane)) for pane, count in panes.counts.items()),
        late_firings,
        *panes.aggregates,
    )
    existing = {
        column: F.when(F.col(pane_count_column(pane)) > int64_literal(0), panes.values[column])
        for column, _, pane in _pane_values(sessions)
    }
    return windows.withColumns(existing).where(owns_start(sessions.owned, F.col(WINDOW[0])))


class _PaneAggregates(NamedTuple):
    """The computation of panes: `aggregates` group `members` by window, and `values` are computed from them."""

    members: DataFrame
    aggregates: list[Column]
    counts: dict[str, Column]
    """The number of events by pane."""
    values: dict[str, Column]
    """The value by column of `_pane_values`."""


def _pane_aggregates(sessions: Sessions) -> _PaneAggregates:
    """Return how panes are computed: from partial aggregates of units if they can be merged, else from events."""
    if parts := sessions.parts:
        count = f"sum({EVENTS}) FILTER (WHERE session__in_"
        return _PaneAggregates(
            _replay_in_order(_dirty_units(sessions), sessions, in_windows),
            [column for pane in PANES_KEPT for column in parts.merges_where(f"session__in_{pane}", pane)],
            {pane: F.expr(f"coalesce({count}{pane}), 0)") for pane in PANES_KEPT},
            {f"{name}__{pane}": value for pane in PANES_KEPT for name, value in parts.values_of(pane).items()},
        )
    columns = _pane_values(sessions)
    return _PaneAggregates(
        _replay_in_order(_dirty_events(sessions), sessions, in_windows),
        [
            F.expr(with_filter(sessions.aggregates[name], f"session__in_{pane}")).alias(column)
            for column, name, pane in columns
        ],
        {pane: F.count_if(f"session__in_{pane}") for pane in PANES_KEPT},
        {column: F.col(column) for column, _, _ in columns},
    )


def _dirty_firings(sessions: Sessions) -> DataFrame:
    """Return the columns of `session_firings` for dirty islands, with `by_record`."""
    parts = sessions.parts
    members = _replay_in_order(_dirty_units(sessions) if parts else _dirty_events(sessions), sessions, in_firings)
    names = ("pane_index", "pane_timing", "by_record")
    firing = [F.col(f"session__{name}").alias(name) for name in names]
    watermark_ms = F.col("session__met_ms").alias("watermark_ms")
    values = parts.merges if parts else aggregate_columns(sessions.aggregates)
    firings = members.groupBy(*sessions.keys, *_member_window(), *firing, watermark_ms).agg(*values)
    if parts:
        firings = firings.select(*sessions.keys, *WINDOW, *names, "watermark_ms", *parts.values)
    return firings.where(owns_start(sessions.owned, F.col(WINDOW[0])))


def _member_window() -> list[Column]:
    return [F.col(member).alias(name) for member, name in zip(IN_WINDOW, WINDOW, strict=True)]


def _pane_counts() -> list[str]:
    return [*map(pane_count_column, PANES_KEPT), "late_firings"]


def _pane_values(sessions: Sessions) -> list[tuple[str, str, str]]:
    """Return column, aggregate, and pane of each value that `session_panes` returns."""
    return [(f"{name}__{pane}", name, pane) for name in sessions.aggregates for pane in PANES_KEPT]


def _add_late_fates(out_of_order: DataFrame, sessions: Sessions) -> DataFrame:
    """Add `fate` and `refusal` to the out-of-order events of dirty islands."""
    in_time = _dirty_units(sessions).where(F.col(MET).isNull())
    in_time = in_time.select(*sessions.keys, START, FIRST, LAST, MET, ORDER, GAP, LATENESS)
    units = _as_units(out_of_order, sessions).unionByName(in_time, allowMissingColumns=True)
    return _replay_in_order(units, sessions, fated)


def _dirty_islands(sessions: Sessions) -> DataFrame:
    """Return the dirty islands that overlap the owned interval."""
    dirty = sessions.special.where(~F.col(IS_CLEAN))
    if sessions.owned:
        overlaps = (F.col(START) < sessions.owned.end_ms) & (F.col(LAST) >= sessions.owned.start_ms)
        dirty = dirty.where(overlaps)
    return broadcast_if_small(sessions, dirty)


def _dirty_units(sessions: Sessions) -> DataFrame:
    """Return the units of dirty islands."""
    names = {name: f"session__dirty_{number}" for number, name in enumerate((*sessions.keys, START))}
    dirty = _dirty_islands(sessions).select(*(F.col(name).alias(other) for name, other in names.items()))
    is_same = reduce(and_, [F.col(name).eqNullSafe(F.col(other)) for name, other in names.items()])
    return sessions.units.join(dirty, is_same, how="leftsemi")


def _dirty_events(sessions: Sessions) -> DataFrame:
    """Return the events of dirty islands, each as a unit of its own."""
    events = add_islands(sessions.events, _dirty_islands(sessions), sessions.keys, sessions.window, how="inner")
    return _as_units(events, sessions)


def _as_units(events: DataFrame, sessions: Sessions) -> DataFrame:
    at, window = sessions.window.event_time, sessions.window
    span = {FIRST: at, LAST: at, GAP: window.gap_ms, LATENESS: window.allowed_lateness_ms}
    return events.withColumns({**span, **to_unit(window)})


def _replay_in_order(units: DataFrame, sessions: Sessions, columns: ReplayColumns) -> DataFrame:
    """Replay each dirty island in arrival order, and add the resulting columns."""
    # The window function distributes the islands of a hot key over several tasks, and sorts within an island.
    # Units in time have no arrival position and come first.
    order = Window.partitionBy(*sessions.keys, START).orderBy(ORDER, FIRST)
    until = int64_literal(sessions.window.emitted_until)
    added = {SEQ: F.col(ORDER).arrival_seq, POSITION: F.row_number().over(order), UNTIL: until}
    units = units.withColumns(added).drop(ORDER)
    schema = StructType([*units.schema.fields])
    for name, kind in columns.types.items():
        schema.add(name, kind)
    ship_package(units.sparkSession.sparkContext)
    return units.mapInArrow(columns, schema)
