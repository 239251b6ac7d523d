"""What a chunk yields for session windows, which depend on the other events of their key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from backstream.eventtime.instants import MIN_MS
from backstream.eventtime.intervals import Interval
from backstream.eventtime.records import Fate
from backstream.eventtime.windows import Session
from backstream.native.sessions.arrow_replay import LAST
from backstream.spark import chunk_group as reading
from backstream.spark.chunk_group import ChunkGroup, ChunkRecords
from backstream.spark.schemas import plan_literals
from backstream.spark.sessions import session_panes
from backstream.spark.sessions.islands import START, SessionColumns, build_islands, build_units
from backstream.spark.sessions.session_panes import Sessions
from backstream.spark.source import REASON
from backstream.spark.watermarks.join import add_watermarks
from backstream.spark.watermarks.resolve import load_timeline
from backstream.spark.watermarks.timeline import WatermarkTimeline
from backstream.spark.windows import aggregation
from backstream.spark.windows.fate_counts import IN_A_WINDOW, FateCounts, count_fates

IS_OWNED = "is_owned"
"""Whether the session of a record, all events known, is the chunks'."""


@dataclass(frozen=True)
class SessionWindows:
    """The results of chunks that run together.

    They own the sessions that start in them, and the fate of the records that happened in them. What they read
    reaches beyond them as far as their sessions do.
    """

    work: ChunkGroup
    window: Session
    span: Interval
    """The event times of what is read."""
    heard: WatermarkTimeline | None
    """The watermarks that were met there; None in a recompute."""
    keep: Callable[[DataFrame], DataFrame]
    """Keeps a frame until the chunks are done."""
    recomputed: Observation = field(default_factory=Observation)
    """What a recompute counts of the sessions it makes."""

    @classmethod
    def from_group(
        cls, work: ChunkGroup, window: Session, keep: Callable[[DataFrame], DataFrame]
    ) -> SessionWindows:
        """Find how far their sessions reach, and in a replay the watermarks met there; runs small jobs."""
        owned, source = work.interval, work.definition.source
        between, is_replay = partial(_between, work), work.is_replay
        reach = find_halo(
            between, source.key, window.gap_ms, owned, is_replay=is_replay, may_be=partial(_may_be, work)
        )
        span = Interval(min(reach.start_ms, owned.start_ms), reach.end_ms)
        return cls(work, window, span, load_timeline(work, span) if is_replay else None, keep)

    @cached_property
    def _read(self) -> ChunkRecords:
        """All that is read; in a replay with the watermark that each event met."""
        # Sessions are found before records are counted, whatever is asked.
        found = reading.load_records(self.work, self.span)
        events, work = found.with_metric, self.work
        if self.heard is not None:
            events = events.transform(add_watermarks(work.spark, self.heard, work.clock))
        # All that follows rests on it, and finding copies compares all records.
        kept = self.keep(events) if work.definition.source.deduplicate_on else events
        return found._replace(columns=kept, with_metric=kept)

    def records(self) -> ChunkRecords:
        """Every record the chunks read, with its `fate`."""
        is_unreadable = F.col(REASON).isNotNull()
        events = self._read.columns
        unused = events.where(is_unreadable | F.col("is_duplicate"))
        fate = F.when(is_unreadable, F.lit(Fate.QUARANTINED)).otherwise(F.lit(Fate.DUPLICATE))
        in_time = self._usable.withColumn("fate", F.lit(Fate.ON_TIME))
        judged = session_panes.session_records(self._sessions) if self.work.is_replay else in_time
        added = ["fate", *self._added]
        known = judged.select(*events.columns, *added).unionByName(
            unused.withColumns({"fate": fate, **dict.fromkeys(self._added, F.expr("false"))})
        )
        return self._read._replace(columns=known, with_metric=known)

    def counts(self, known: DataFrame) -> FateCounts:
        """Fates, and metrics per hour."""
        return count_fates(known, self.work.definition.metric_windows, self.work.owned, None, by=self._added)

    def records_in_windows(self, counts: FateCounts) -> int:
        """How many records the sessions of the chunks hold. Runs a job.

        In a recompute only once its rows have been staged: they are counted on the way.
        """
        in_sessions = counts.rows.where(F.col("fate").isin(*IN_A_WINDOW))
        if self.work.is_replay:
            in_sessions = in_sessions.where(IS_OWNED)
        ((found,),) = in_sessions.agg(F.coalesce(F.sum("events"), F.lit(0))).collect()
        return int(found) if self.work.is_replay else int(found) - int(self.recomputed.get[session_panes.UNOWNED])

    @property
    def _added(self) -> tuple[str, ...]:
        """A replay finds out whose session a record is in; a recompute counts the sessions of others."""
        return (IS_OWNED,) if self.work.is_replay else ()

    def values(self, _: DataFrame) -> DataFrame:
        """Per key and session the value to publish, and in a replay first, live and final beside it."""
        if self.work.is_replay:
            return session_panes.session_panes(self._sessions)
        return session_panes.aggregate_sessions(self._sessions, self.recomputed)

    def firings(self, _: DataFrame) -> DataFrame:
        """Every pane that each session fired, in order; when, is not known."""
        return session_panes.session_firings(self._sessions).withColumn("fired_at", F.lit(None).cast("timestamp"))

    def dropped(self, known: DataFrame) -> DataFrame:
        """The side output: records that no session took."""
        is_ours = self.work.owned.hold(F.col("event_time_ms"))
        behind = known.where((F.col("fate") == F.lit(Fate.DROPPED)) & is_ours)
        return behind.withColumn("cleaned_up_at", F.lit(None).cast("timestamp"))

    @property
    def _usable(self) -> DataFrame:
        return self._read.columns.where(F.col(REASON).isNull() & ~F.col("is_duplicate"))

    @cached_property
    def _sessions(self) -> Sessions:
        definition = self.work.definition
        these = session_panes.find_sessions(
            self._usable,
            definition.source.key,
            SessionColumns.from_settings(self.window.gap_ms, definition.lateness.allowed),
            definition.aggregates,
            is_replay=self.work.is_replay,
            owned=self.work.interval,
            is_skewed=self._is_skewed(),
        )
        if not self.work.is_replay:
            return these
        return session_panes.persist_sessions(these, self.keep)

    def _is_skewed(self) -> bool:
        if self.work.expected_events < aggregation.MANY_EVENTS:
            return False
        # Not of the records that are counted as they are read: a sample would be taken for all of them.
        sample = self.work.recorded.between(self.work.interval)
        keys, expected = self.work.definition.source.key, self.work.expected_events
        return aggregation.profile_events(sample, expected, keys, self.window.gap_ms).has_hot_key


def _may_be(work: ChunkGroup, interval: Interval) -> bool:
    return any(file.may_hold(interval) for file in work.plan.inputs)


def _between(work: ChunkGroup, start_ms: int, end_ms: int) -> DataFrame:
    return work.recorded.between(Interval(start_ms, end_ms))


EventsBetween = Callable[[int, int], DataFrame]
"""Events with event times in `[start, end)` ms; only `event_time_ms` and the keys are read."""


def find_halo(
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
    window = SessionColumns.from_settings(gap_ms, 0)
    furthest_ms: int | None = None
    seen_until_ms, ahead_ms = before.end_ms, 4 * gap_ms
    events = events_between(before.start_ms, seen_until_ms + ahead_ms).select(*keys, "event_time_ms")
    while True:
        from_ms, until_ms, open_ms = plan_literals(
            events.sparkSession, counts_from_ms, seen_until_ms, seen_until_ms + ahead_ms - gap_ms
        )
        crosses = F.col(START).between(from_ms, until_ms - F.lit(1)) & (F.col(LAST) >= until_ms)
        # Its lineage is cut, since each round would otherwise read again what those before it have read.
        found = build_islands(build_units(events, keys, window, is_replay=False), keys, is_replay=False)
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
