"""Sessions: islands of touching events per key; only islands that lateness can have split are folded in order.

Events in time are told by a few numbers per gap-wide bucket, stragglers each by itself: these are the units of an
island (`islands`). An island that fired exactly once, whole, is their sum. The units of the others are played in
arrival order: that is the one place where rows go through Python, and a recompute never gets there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame, Observation, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from backstream.definition.aggregates import with_filter
from backstream.eventtime.intervals import Interval
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
    ReplayColumns,
    fated,
    in_firings,
    in_windows,
)
from backstream.runs.table_schemas import PANES_KEPT, RECORD_COUNT, pane_count
from backstream.spark.schemas import IntervalColumns, int64_literal
from backstream.spark.session import ship_package
from backstream.spark.sessions.islands import (
    EVENTS,
    IS_CLEAN,
    ORDER,
    START,
    SessionColumns,
    add_islands,
    build_islands,
    build_units,
    island_end_ms,
    to_unit,
)
from backstream.spark.windows.aggregation import WINDOW
from backstream.spark.windows.partial_aggregates import PartialAggregates, split_aggregates

FEW_BUCKETS = 500_000
"""Up to as many buckets of islands are sent to every task, so that their records can be picked out in passing."""

Keep = Callable[[DataFrame], DataFrame]
"""Keeps a frame until all results are taken."""


@dataclass(frozen=True, slots=True)
class Sessions:
    """The sessions of a stretch of events, and what their results are made of.

    Each result rests on `islands`, and in a replay on the `units` of those that are dirty. `kept` makes them once.
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
        """Islands whose records need more than their own time to be judged: dirty, or across a boundary."""
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
    """The sessions of these events; no job is run.

    Args:
        events: normalised events, no duplicates, with `watermark_ms` in a replay. They reach beyond `owned` as far
            as `session_halo.halo` says.
        keys: key columns.
        window: the session gap, and how long a fired session is kept.
        aggregates: name to SQL aggregate call.
        is_replay: False: no watermark but -inf and +inf exists, so nothing can be late.
        owned: only windows that start in here count; None: all.
        is_skewed: a few keys have most of the events.
    """
    parts = split_aggregates(events, aggregates)
    mine = IntervalColumns.from_interval(events.sparkSession, owned) if owned else None
    of = build_units(events, keys, window, parts, is_replay=is_replay, is_skewed=is_skewed)
    of_key = build_islands(of, keys, parts, is_replay=is_replay)
    return Sessions(events, keys, window, aggregates, of, of_key, parts, is_replay, mine)


def persist_sessions(these: Sessions, keep: Keep) -> Sessions:
    """Keep what several results rest on, and choose how records of islands are picked out. Runs a job."""
    of = keep(these.units)
    told = replace(
        these, units=of, islands=keep(build_islands(of, these.keys, these.parts, is_replay=these.is_replay))
    )
    buckets = F.sum((island_end_ms() - F.col(START)) / F.col(GAP) + F.lit(1))
    ((count,),) = told.special.agg(F.coalesce(buckets, F.lit(0.0))).collect()
    return replace(told, is_broadcast=count <= FEW_BUCKETS)


def owns_start(owned: IntervalColumns | None, start_ms: Column) -> Column:
    """Whether a chunk owns what starts there: of `[start, end)`, every session that starts inside."""
    return F.expr("true") if owned is None else owned.hold(start_ms)


UNOWNED = "unowned_records"
"""Under which name `recomputed` counts the records of sessions that are not its chunks'."""


def aggregate_sessions(these: Sessions, tally: Observation | None = None) -> DataFrame:
    """The value of each aggregate per key and session: keys, window, aggregates, `record_count`.

    Args:
        these: the sessions.
        tally: gets `UNOWNED`, once the rows have been computed; None: it is not asked.
    """
    is_ours = owns_start(these.owned, F.col(WINDOW[0]))
    unowned = F.coalesce(F.sum(F.when(~is_ours, F.col(EVENTS))), F.lit(0)).alias(UNOWNED)
    every = _all_whole(these)
    counted = every.observe(tally, unowned) if tally else every
    return counted.where(is_ours).select(
        *these.keys, *WINDOW, *these.aggregates, F.col(EVENTS).alias(RECORD_COUNT)
    )


def session_panes(these: Sessions) -> DataFrame:
    """First, live and final value of each aggregate per key and window.

    A window that fired and was extended later has a row of its own, with `live` and without `final`; the session
    as it is with all events has one with `final`, and without the others where the stream never fired it so.

    Returns:
        The columns of `spark.panes.panes`.

    Raises:
        PlanError: from within the job, when the lateness overflows in a merge of sessions, as it does in Flink.
    """
    columns = [*these.keys, *WINDOW, *_pane_counts(), *(name for name, _, _ in _pane_values(these))]
    whole = _whole(these).withColumns(
        {
            **dict.fromkeys(map(pane_count, PANES_KEPT), F.col(EVENTS)),
            "late_firings": int64_literal(0),
            **{column: F.col(name) for column, name, _ in _pane_values(these)},
        }
    )
    if not these.is_replay:
        return whole.select(*columns)
    return whole.select(*columns).unionByName(_dirty_panes(these).select(*columns))


def session_records(these: Sessions) -> DataFrame:
    """Every record with its `fate`, and `is_owned`: whether its session, all events known, is the chunk's."""
    columns = [*these.events.columns, "fate", "is_owned"]
    is_ours = owns_start(these.owned, F.coalesce(START, "event_time_ms"))
    plain, stragglers = _known(these)
    plain = plain.withColumns({"fate": F.lit(Fate.ON_TIME), "is_owned": is_ours}).select(*columns)
    if stragglers is None:
        return plain
    return plain.unionByName(_judged(stragglers, these).withColumn("is_owned", is_ours).select(*columns))


def session_firings(these: Sessions) -> DataFrame:
    """Every pane that each window fired, in order.

    Returns:
        Keys, window, `pane_index`, `pane_timing`, `watermark_ms` (null where a watermark caused the firing: it is
        the first that reaches the end of the window), aggregates.
    """
    columns = [*these.keys, *WINDOW, "pane_index", "pane_timing", "watermark_ms", *these.aggregates]
    on_time = {
        "pane_index": int64_literal(0),
        "pane_timing": F.lit(Fate.ON_TIME),
        "watermark_ms": int64_literal(None),
    }
    whole = _whole(these).withColumns(on_time).select(*columns)
    return whole.unionByName(_dirty_firings(these).select(*columns)) if these.is_replay else whole


def all_sessions(
    events: DataFrame,
    keys: Sequence[str],
    window: SessionColumns,
    aggregates: Mapping[str, str],
    *,
    is_offline: bool = False,
) -> tuple[DataFrame, DataFrame]:
    """Every record with its `fate`, and every firing.

    Args:
        events: normalised events with `watermark_ms`.
        keys: key columns.
        window: the session gap, and how long a fired session is kept.
        aggregates: name to SQL aggregate call.
        is_offline: no watermark but -inf and +inf exists, so nothing can be late.

    Returns:
        The records, with `refusal`: on the record at which the stream fails, why (later ones of its session have
        no fate); and the firings: keys, window, `watermark_ms` and `by_record` (the late record's `arrival_seq`;
        both null when a watermark caused the firing), aggregates.
    """
    these = find_sessions(events, keys, window, aggregates, is_replay=not is_offline)
    columns = [*events.columns, "fate", "refusal"]
    on_time = {"fate": F.lit(Fate.ON_TIME), "refusal": F.lit(None).cast("string")}
    plain, stragglers = _known(these)
    plain = plain.withColumns(on_time).select(*columns)
    fired = [*keys, *WINDOW, "watermark_ms", "by_record", *aggregates]
    whole = (
        _whole(these)
        .withColumns({"watermark_ms": int64_literal(None), "by_record": int64_literal(None)})
        .select(*fired)
    )
    if stragglers is None:
        return plain, whole
    met = _judged(stragglers, these).select(*columns)
    return plain.unionByName(met), whole.unionByName(_dirty_firings(these).select(*fired))


def _whole(these: Sessions) -> DataFrame:
    """Islands of the chunks that fired once, whole: keys, window, `EVENTS`, aggregates."""
    return _all_whole(these).where(owns_start(these.owned, F.col(WINDOW[0])))


def _all_whole(these: Sessions) -> DataFrame:
    """The same of all islands, whosever they are."""
    clean = these.islands.where(IS_CLEAN)
    if these.parts:
        values = (START, island_end_ms().alias(WINDOW[1]), EVENTS, *these.parts.values)
        whole = clean.select(*these.keys, *values)
    else:
        events = add_islands(these.events, clean, these.keys, these.window, how="inner")
        ends = F.max(F.col("event_time_ms") + these.window.gap_ms).alias(WINDOW[1])
        whole = events.groupBy(*these.keys, START).agg(
            ends, F.count(F.lit(1)).alias(EVENTS), *_values(these.aggregates)
        )
    return whole.withColumnRenamed(START, WINDOW[0])


def _known(these: Sessions) -> tuple[DataFrame, DataFrame | None]:
    """The events that are surely on time, and all others; None: there can be no others.

    Both with `START`, null where the island is not special.
    """
    known = add_islands(these.events, _sent(these, these.special), these.keys, these.window, how="left")
    if not these.is_replay:
        return known, None
    is_plain = F.coalesce(IS_CLEAN, F.expr("true")) | these.window.is_in_time()
    return known.where(is_plain), known.where(~is_plain)


def _judged(stragglers: DataFrame, these: Sessions) -> DataFrame:
    """Stragglers of dirty islands, with `fate` and `refusal`."""
    in_time = _dirty_units(these).where(F.col(MET).isNull())
    beside = in_time.select(*these.keys, START, FIRST, LAST, MET, ORDER, GAP, LATENESS)
    told = _as_units(stragglers, these).unionByName(beside, allowMissingColumns=True)
    return _folded(told, these, fated)


def _dirty(these: Sessions) -> DataFrame:
    """The islands that lateness touched and that reach into what is owned."""
    touched = these.special.where(~F.col(IS_CLEAN))
    if these.owned:
        reaches = (F.col(START) < these.owned.end_ms) & (F.col(LAST) >= these.owned.start_ms)
        touched = touched.where(reaches)
    return _sent(these, touched)


def _dirty_units(these: Sessions) -> DataFrame:
    """The units of such islands."""
    names = {name: f"session__dirty_{number}" for number, name in enumerate((*these.keys, START))}
    dirty = _dirty(these).select(*(F.col(name).alias(other) for name, other in names.items()))
    is_same = reduce(and_, [F.col(name).eqNullSafe(F.col(other)) for name, other in names.items()])
    return these.units.join(dirty, is_same, how="leftsemi")


def _dirty_events(these: Sessions) -> DataFrame:
    """The events of such islands, each a unit of its own."""
    return _as_units(add_islands(these.events, _dirty(these), these.keys, these.window, how="inner"), these)


def _as_units(events: DataFrame, these: Sessions) -> DataFrame:
    event_ms, window = F.col("event_time_ms"), these.window
    span = {FIRST: event_ms, LAST: event_ms, GAP: window.gap_ms, LATENESS: window.allowed_lateness_ms}
    return events.withColumns({**span, **to_unit()})


def _sent(these: Sessions, special: DataFrame) -> DataFrame:
    return special.hint("broadcast") if these.is_broadcast else special


def _folded(told: DataFrame, these: Sessions, columns: ReplayColumns) -> DataFrame:
    """Play dirty islands, each on its own, and add what the fold says."""
    # A hot key's islands are spread over the tasks; within one, a window function leaves them sorted. Units in
    # time, which have no place in arrival order, come first.
    order = Window.partitionBy(*these.keys, START).orderBy(ORDER, FIRST)
    told = told.withColumns({SEQ: F.col(ORDER).arrival_seq, POSITION: F.row_number().over(order)}).drop(ORDER)
    schema = StructType([*told.schema.fields])
    for name, kind in columns.types.items():
        schema.add(name, kind)
    ship_package(told.sparkSession.sparkContext)
    return told.mapInArrow(columns, schema)


def _dirty_panes(these: Sessions) -> DataFrame:
    """`panes` of the windows in dirty islands."""
    if parts := these.parts:
        members = _folded(_dirty_units(these), these, in_windows)
        held = f"sum({EVENTS}) FILTER (WHERE session__in_"
        counts = {pane: F.expr(f"coalesce({held}{pane}), 0)") for pane in PANES_KEPT}
        values = [value for pane in PANES_KEPT for value in parts.merged_where(f"session__in_{pane}", pane)]
        told = {f"{name}__{pane}": value for pane in PANES_KEPT for name, value in parts.values_of(pane).items()}
    else:
        members = _folded(_dirty_events(these), these, in_windows)
        counts = {pane: F.count_if(f"session__in_{pane}") for pane in PANES_KEPT}
        values = [
            F.expr(with_filter(these.aggregates[name], f"session__in_{pane}")).alias(column)
            for column, name, pane in _pane_values(these)
        ]
        told = {column: F.col(column) for column, _, _ in _pane_values(these)}
    late = F.max("session__late_firings").alias("late_firings")
    grouped = members.groupBy(*these.keys, *_window_of_members()).agg(
        *(count.alias(pane_count(pane)) for pane, count in counts.items()), late, *values
    )
    existing = {
        column: F.when(F.col(pane_count(pane)) > int64_literal(0), told[column])
        for column, _, pane in _pane_values(these)
    }
    return grouped.withColumns(existing).where(owns_start(these.owned, F.col(WINDOW[0])))


def _dirty_firings(these: Sessions) -> DataFrame:
    """`firings` of dirty islands, with `by_record`."""
    parts = these.parts
    members = _folded(_dirty_units(these) if parts else _dirty_events(these), these, in_firings)
    names = ("pane_index", "pane_timing", "by_record")
    firing = [F.col(f"session__{name}").alias(name) for name in names]
    met = F.col("session__met_ms").alias("watermark_ms")
    values = parts.merged if parts else _values(these.aggregates)
    grouped = members.groupBy(*these.keys, *_window_of_members(), *firing, met).agg(*values)
    told = grouped.select(*these.keys, *WINDOW, *names, "watermark_ms", *parts.values) if parts else grouped
    return told.where(owns_start(these.owned, F.col(WINDOW[0])))


def _window_of_members() -> list[Column]:
    return [F.col(member).alias(name) for member, name in zip(IN_WINDOW, WINDOW, strict=True)]


def _values(aggregates: Mapping[str, str]) -> list[Column]:
    return [F.expr(aggregate).alias(name) for name, aggregate in aggregates.items()]


def _pane_counts() -> list[str]:
    return [*map(pane_count, PANES_KEPT), "late_firings"]


def _pane_values(these: Sessions) -> list[tuple[str, str, str]]:
    """Column, aggregate and pane of each value that `panes` yields."""
    return [(f"{name}__{pane}", name, pane) for name in these.aggregates for pane in PANES_KEPT]
