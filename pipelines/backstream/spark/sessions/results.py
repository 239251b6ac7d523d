"""What a chunk yields for session windows, which depend on the other events of their key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from backstream.core.fates import Fate
from backstream.core.intervals import Interval
from backstream.core.windows import Session
from backstream.spark import work as reading
from backstream.spark.read import REASON
from backstream.spark.sessions import sessions
from backstream.spark.sessions.halo import halo
from backstream.spark.sessions.islands import SessionColumns
from backstream.spark.sessions.sessions import Sessions
from backstream.spark.streams.heard import Heard
from backstream.spark.streams.lateness import met
from backstream.spark.streams.lookup import watermarked
from backstream.spark.windows import values
from backstream.spark.windows.metrics import IN_A_WINDOW, Counts, counted
from backstream.spark.work import Records, Work

IS_OWNED = "is_owned"
"""Whether the session of a record, all events known, is the chunks'."""


@dataclass(frozen=True)
class SessionWindows:
    """The results of chunks that run together.

    They own the sessions that start in them, and the fate of the records that happened in them. What they read
    reaches beyond them as far as their sessions do.
    """

    work: Work
    window: Session
    span: Interval
    """The event times of what is read."""
    heard: Heard | None
    """The watermarks that were met there; None in a recompute."""
    keep: Callable[[DataFrame], DataFrame]
    """Keeps a frame until the chunks are done."""
    recomputed: Observation = field(default_factory=Observation)
    """What a recompute counts of the sessions it makes."""

    @classmethod
    def of(cls, work: Work, window: Session, keep: Callable[[DataFrame], DataFrame]) -> SessionWindows:
        """Find how far their sessions reach, and in a replay the watermarks met there; runs small jobs."""
        owned, source = work.interval, work.definition.source
        between, is_replay = partial(_between, work), work.is_replay
        reach = halo(between, source.key, window.gap_ms, owned, is_replay=is_replay, may_be=partial(_may_be, work))
        span = Interval(min(reach.start_ms, owned.start_ms), reach.end_ms)
        return cls(work, window, span, met(work, span) if is_replay else None, keep)

    @cached_property
    def _read(self) -> Records:
        """All that is read; in a replay with the watermark that each event met."""
        # Sessions are found before records are counted, whatever is asked.
        found = reading.records(self.work, self.span)
        events, work = found.tallied, self.work
        if self.heard is not None:
            events = events.transform(watermarked(work.spark, self.heard, work.clock))
        # All that follows rests on it, and finding copies compares all records.
        kept = self.keep(events) if work.definition.source.deduplicate_on else events
        return found._replace(known=kept, tallied=kept)

    def records(self) -> Records:
        """Every record the chunks read, with its `fate`."""
        is_unreadable = F.col(REASON).isNotNull()
        events = self._read.known
        unused = events.where(is_unreadable | F.col("is_duplicate"))
        fate = F.when(is_unreadable, F.lit(Fate.QUARANTINED)).otherwise(F.lit(Fate.DUPLICATE))
        in_time = self._usable.withColumn("fate", F.lit(Fate.ON_TIME))
        judged = sessions.records(self._sessions) if self.work.is_replay else in_time
        added = ["fate", *self._added]
        known = judged.select(*events.columns, *added).unionByName(
            unused.withColumns({"fate": fate, **dict.fromkeys(self._added, F.expr("false"))})
        )
        return self._read._replace(known=known, tallied=known)

    def counts(self, known: DataFrame) -> Counts:
        """Fates, and metrics per hour."""
        return counted(known, self.work.definition.cells, self.work.owned, None, by=self._added)

    def records_in_windows(self, counts: Counts) -> int:
        """How many records the sessions of the chunks hold. Runs a job.

        In a recompute only once its rows have been staged: they are counted on the way.
        """
        in_sessions = counts.rows.where(F.col("fate").isin(*IN_A_WINDOW))
        if self.work.is_replay:
            in_sessions = in_sessions.where(IS_OWNED)
        ((found,),) = in_sessions.agg(F.coalesce(F.sum("events"), F.lit(0))).collect()
        return int(found) if self.work.is_replay else int(found) - int(self.recomputed.get[sessions.UNOWNED])

    @property
    def _added(self) -> tuple[str, ...]:
        """A replay finds out whose session a record is in; a recompute counts the sessions of others."""
        return (IS_OWNED,) if self.work.is_replay else ()

    def values(self, _: DataFrame) -> DataFrame:
        """Per key and session the value to publish, and in a replay first, live and final beside it."""
        if self.work.is_replay:
            return sessions.panes(self._sessions)
        return sessions.recomputed(self._sessions, self.recomputed)

    def firings(self, _: DataFrame) -> DataFrame:
        """Every pane that each session fired, in order; when, is not known."""
        return sessions.firings(self._sessions).withColumn("fired_at", F.lit(None).cast("timestamp"))

    def dropped(self, known: DataFrame) -> DataFrame:
        """The side output: records that no session took."""
        is_ours = self.work.owned.hold(F.col("event_time_ms"))
        behind = known.where((F.col("fate") == F.lit(Fate.DROPPED)) & is_ours)
        return behind.withColumn("gone_at", F.lit(None).cast("timestamp"))

    @property
    def _usable(self) -> DataFrame:
        return self._read.known.where(F.col(REASON).isNull() & ~F.col("is_duplicate"))

    @cached_property
    def _sessions(self) -> Sessions:
        definition = self.work.definition
        these = sessions.found(
            self._usable,
            definition.source.key,
            SessionColumns.of(self.window.gap_ms, definition.lateness.allowed),
            definition.aggregates,
            is_replay=self.work.is_replay,
            owned=self.work.interval,
            is_skewed=self._is_skewed(),
        )
        if not self.work.is_replay:
            return these
        return sessions.kept(these, self.keep)

    def _is_skewed(self) -> bool:
        if self.work.expected_events < values.MANY_EVENTS:
            return False
        # Not of the records that are counted as they are read: a sample would be taken for all of them.
        sample = self.work.recorded.between(self.work.interval)
        keys, expected = self.work.definition.source.key, self.work.expected_events
        return values.shape_of(sample, expected, keys, self.window.gap_ms).has_hot_key


def _may_be(work: Work, interval: Interval) -> bool:
    return any(file.may_hold(interval) for file in work.plan.inputs)


def _between(work: Work, start_ms: int, end_ms: int) -> DataFrame:
    return work.recorded.between(Interval(start_ms, end_ms))
