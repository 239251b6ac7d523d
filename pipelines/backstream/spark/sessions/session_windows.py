"""Compute all results of chunks with session windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from backstream.chunks.halo import can_be_parts
from backstream.chunks.lateness import load_timeline
from backstream.definition.aggregates import spark_aggregates
from backstream.eventtime.instants import MIN_MS
from backstream.eventtime.intervals import Interval
from backstream.eventtime.records import TIMING_BY_FATE, Fate
from backstream.eventtime.windows import Session
from backstream.native.sessions.arrow_replay import LAST
from backstream.native.sessions.halo import mirror, search_halo
from backstream.spark import chunk_group as reading
from backstream.spark.chunk_group import ChunkRecords, SparkGroup
from backstream.spark.schemas import int64_literal, plan_literals
from backstream.spark.sessions import found_sessions, session_panes
from backstream.spark.sessions.found_sessions import Sessions
from backstream.spark.sessions.islands import START, SessionColumns, build_islands, build_units
from backstream.spark.source import IS_FILTERED, REASON, count_gaps, fate_outside_windows, is_for_windows
from backstream.spark.watermarks.join import add_watermarks
from backstream.spark.windows import aggregation
from backstream.spark.windows.aggregation import WINDOW
from backstream.spark.windows.fate_counts import FateCounts, count_fates
from backstream.watermarks.local_times import localize_watermarks
from backstream.watermarks.timeline import WatermarkTimeline

_IS_OWNED = "is_owned"
"""The column with whether the chunks own the session of a record, with all events counted."""


@dataclass(frozen=True)
class SessionWindows:
    """The results of a chunk group with session windows.

    The chunks own the sessions that start in their interval, and the fates of the records in it. They read beyond
    their interval as far as their sessions extend.
    """

    work: SparkGroup
    window: Session
    span: Interval
    """The interval of event time that is read."""
    timeline: WatermarkTimeline | None
    """The watermarks in that interval; None in a recompute."""
    keep: Callable[[DataFrame], DataFrame]
    """A function that persists a frame until the group is done."""
    recomputed: Observation = field(default_factory=Observation)
    """The count of unowned records in a recompute."""

    @classmethod
    def from_group(
        cls, group: SparkGroup, window: Session, keep: Callable[[DataFrame], DataFrame]
    ) -> SessionWindows:
        """Find how far the sessions extend, and in a replay the watermarks there. Runs small jobs."""
        owned, source = group.interval, group.definition.source
        halo = find_halo(
            partial(_events_between, group),
            source.key,
            window.gap_ms,
            owned,
            is_replay=can_be_parts(group),
            may_be=partial(_may_hold, group),
        )
        span = Interval(min(halo.start_ms, owned.start_ms), halo.end_ms)
        timeline = None
        if group.is_replay:
            timeline = localize_watermarks(load_timeline(group, span, group.reader), window.zone)
        return cls(group, window, span, timeline, keep)

    @cached_property
    def _read(self) -> ChunkRecords:
        """All records that are read; in a replay with the watermark at the arrival of each event."""
        # Sessions are computed before records are counted, so all jobs read the counted frame.
        records = reading.load_records(self.work, self.span)
        events, group = records.with_metric, self.work
        if self.timeline is not None:
            events = events.transform(add_watermarks(group.spark, self.timeline, group.clock))
        # All results need sessions rows, and the search for duplicates compares all records.
        persisted = self.keep(events) if group.definition.source.deduplicate_on else events
        return records._replace(columns=persisted, with_metric=persisted)

    def records(self) -> ChunkRecords:
        """Return every record that the chunks read, with its `fate`."""
        events = self._read.columns
        unused, fate = events.where(~is_for_windows()), fate_outside_windows(F.lit(Fate.ON_TIME))
        on_time = self._usable.withColumn("fate", F.lit(Fate.ON_TIME))
        records = session_panes.session_records(self._sessions) if self.work.is_replay else on_time
        added = ["fate", *self._added_columns]
        records = records.select(*events.columns, *added).unionByName(
            unused.withColumns({"fate": fate, **dict.fromkeys(self._added_columns, F.expr("false"))})
        )
        return self._read._replace(columns=records, with_metric=records)

    def counts(self, records: DataFrame) -> FateCounts:
        """Return the fates, and metrics per hour."""
        definition = self.work.definition
        return count_fates(
            records,
            definition.metric_windows,
            self.work.owned_interval,
            None,
            count_gaps(definition.source, records),
            by=self._added_columns,
        )

    def records_in_windows(self, counts: FateCounts) -> int:
        """Return the number of records in the sessions of the chunks. Runs a job.

        In a recompute, call this after the sessions are staged: their computation counts the unowned records.
        """
        in_sessions = counts.rows.where(F.col("fate").isin(*TIMING_BY_FATE))
        if self.work.is_replay:
            in_sessions = in_sessions.where(_IS_OWNED)
        ((count,),) = in_sessions.agg(F.coalesce(F.sum("events"), F.lit(0))).collect()
        if self.work.is_replay:
            return int(count)
        if self.work.definition.job:  # the aggregates, which would count them, were not computed
            return int(count) - found_sessions.count_unowned(self._sessions)
        return int(count) - int(self.recomputed.get[found_sessions.UNOWNED])

    @property
    def _added_columns(self) -> tuple[str, ...]:
        """The columns added to records; only a replay finds out which chunk owns the session of a record."""
        return (_IS_OWNED,) if self.work.is_replay else ()

    def values(self, _: DataFrame) -> DataFrame:
        """Return the value to publish per key and session; in a replay the first, live, and final value."""
        if self.work.is_replay:
            return self._in_ms(session_panes.session_panes(self._sessions))
        return self._in_ms(found_sessions.aggregate_sessions(self._sessions, self.recomputed))

    def members(self, _: DataFrame) -> DataFrame:
        """Return the records as a job gets them: one row per record and owned session."""
        members = session_panes.session_members(self._sessions)
        if not self.work.is_replay:
            members = members.withColumn("watermark_ms", int64_literal(MIN_MS))
        return members.drop(REASON, "is_duplicate", IS_FILTERED, reading.CHUNK)

    def firings(self, _: DataFrame) -> DataFrame:
        """Return every pane that each session fired, in order; the time of the firing is unknown."""
        firings = self._in_ms(session_panes.session_firings(self._sessions))
        return firings.withColumn("fired_at", F.lit(None).cast("timestamp"))

    def dropped_events(self, records: DataFrame) -> DataFrame:
        """Return the dropped records of the side output."""
        is_owned = self.work.owned_interval.hold(F.col("event_time_ms"))
        dropped = records.where((F.col("fate") == F.lit(Fate.DROPPED)) & is_owned)
        return dropped.withColumn("cleaned_up_at", F.lit(None).cast("timestamp"))

    def _in_ms(self, rows: DataFrame) -> DataFrame:
        """Return windows in milliseconds; those in microseconds also as timestamps, which have them exactly."""
        if self.window.per_ms == 1:
            return rows
        exact = {name.removesuffix("_ms"): F.timestamp_micros(name) for name in WINDOW}
        return rows.withColumns(exact).withColumns(
            {name: F.unix_millis(name.removesuffix("_ms")) for name in WINDOW}
        )

    @property
    def _usable(self) -> DataFrame:
        return self._read.columns.where(is_for_windows())

    @cached_property
    def _sessions(self) -> Sessions:
        definition = self.work.definition
        sessions = found_sessions.find_sessions(
            self._usable,
            definition.source.key,
            SessionColumns.from_settings(self.window, definition.lateness.allowed),
            spark_aggregates(definition),
            is_replay=self.work.is_replay,
            owned=self.work.interval,
            is_skewed=self._is_skewed(),
        )
        if not self.work.is_replay:
            return sessions
        return found_sessions.persist_sessions(sessions, self.keep)

    def _is_skewed(self) -> bool:
        if self.work.expected_events < aggregation.MANY_EVENTS:
            return False
        # The sample must not read the counted frame, since its count would be taken for the count of all records.
        sample = self.work.event_files.between(self.work.interval)
        keys, expected = self.work.definition.source.key, self.work.expected_events
        return aggregation.profile_events(sample, expected, keys, self.window.gap_ms).has_hot_key


def _may_hold(group: SparkGroup, interval: Interval) -> bool:
    return any(file.may_hold(interval) for file in group.plan.inputs)


def _events_between(group: SparkGroup, start_ms: int, end_ms: int) -> DataFrame:
    return group.event_files.between(Interval(start_ms, end_ms)).where(~F.col(IS_FILTERED))


EventsBetween = Callable[[int, int], DataFrame]
"""A function that returns the events in `[start, end)` ms; only `event_time_ms` and the keys are read."""


def find_halo(
    events_between: EventsBetween,
    keys: Sequence[str],
    gap_ms: int,
    owned: Interval,
    *,
    is_replay: bool,
    may_be: Callable[[Interval], bool] = lambda _: True,
) -> Interval:
    """Return the result of `search_halo` with Spark. Each part of the search is a job.

    Args:
        events_between: reads the events of an interval.
        keys: key columns.
        gap_ms: the session gap.
        owned: the interval of session starts.
        is_replay: whether a session can have fired in parts.
        may_be: returns whether there may be an event in an interval.
    """

    def new_search(direction: int) -> _SparkIslands:
        return _SparkIslands(events_between if direction > 0 else _mirror(events_between), keys, gap_ms)

    return search_halo(owned, gap_ms, new_search, is_replay=is_replay, may_be=may_be)


def _mirror(events_between: EventsBetween) -> EventsBetween:
    """Return the events with reversed time, so that the search for earlier events is a search for later ones."""

    def between(start_ms: int, end_ms: int) -> DataFrame:
        interval = mirror(Interval(start_ms, end_ms))
        events = events_between(interval.start_ms, interval.end_ms)
        return events.withColumn("event_time_ms", -F.col("event_time_ms"))

    return between


@dataclass(slots=True)
class _SparkIslands:
    """An `IslandSearch` with Spark."""

    events_between: EventsBetween
    keys: Sequence[str]
    gap_ms: int
    ends: DataFrame | None = None
    """The last events of open islands."""

    def read(
        self, interval: Interval, counts_from_ms: int, until_ms: int, open_ms: int
    ) -> tuple[int | None, bool]:
        """Read the next events; see `IslandSearch`."""
        events = self.events_between(interval.start_ms, interval.end_ms).select(*self.keys, "event_time_ms")
        if self.ends is not None:
            events = self.ends.unionByName(events)
        window = SessionColumns.from_settings(Session(self.gap_ms), 0)
        bounds = plan_literals(events.sparkSession, counts_from_ms, until_ms, open_ms)
        crosses = F.col(START).between(bounds[0], bounds[1] - F.lit(1)) & (F.col(LAST) >= bounds[1])
        islands = build_islands(
            build_units(events, self.keys, window, is_replay=False), self.keys, window, is_replay=False
        )
        # The checkpoint cuts the lineage. Without it, each round would repeat the reads of all earlier rounds.
        crossing, is_open = islands.where(crosses).localCheckpoint(), F.col(LAST) >= bounds[2]
        ((last_ms, is_any_open),) = crossing.agg(F.max(LAST), F.bool_or(is_open)).collect()
        self.ends = crossing.where(is_open).select(*self.keys, F.col(LAST).alias("event_time_ms"))
        return last_ms, bool(is_any_open)
