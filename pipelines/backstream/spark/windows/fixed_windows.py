"""What a chunk yields for windows that depend on an event's time alone: tumbling, sliding, cumulating ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from backstream.definition.aggregates import payload_columns
from backstream.eventtime.intervals import Interval
from backstream.eventtime.records import Fate
from backstream.runs.table_schemas import RECORD_COUNT
from backstream.spark import chunk_group as reading
from backstream.spark.chunk_group import ChunkGroup, ChunkRecords
from backstream.spark.schemas import EVENT, int64_literal
from backstream.spark.shuffle_free import aggregate_by_time_range
from backstream.spark.source import REASON
from backstream.spark.watermarks.firing_times import FiringTimeColumns, WindowGrid
from backstream.spark.watermarks.join import add_watermarks
from backstream.spark.watermarks.resolve import ReplayLateness, has_gaps
from backstream.spark.windows import aggregation
from backstream.spark.windows import aggregation as grouped
from backstream.spark.windows.aggregation import WINDOW, AggregationRequest, DataProfile
from backstream.spark.windows.assignment import FixedWindow, WindowColumns, assign_windows, latest_window_start
from backstream.spark.windows.fate_counts import FateCounts, count_fates
from backstream.spark.windows.fates import EXPIRED, saturating_sum_ms, slice_width_of


@dataclass(frozen=True, slots=True)
class FixedWindows:
    """The results of chunks that run together; no job is run before one of them is taken."""

    work: ChunkGroup
    window: FixedWindow
    lateness: ReplayLateness | None
    """None in a recompute."""

    def records(self) -> ChunkRecords:
        """Every record the chunks read, with the `fate` that its stream gave it.

        Whose record it is, is not asked here: the halo's are judged like all others.
        """
        late, start_ms = self.lateness, self.work.interval.start_ms
        found = reading.load_records(self.work, Interval(start_ms, self.work.halo_end_ms))
        if late is not None and late.timeline is not None and has_gaps(self.window):
            found = found.transform(add_watermarks(self.work.spark, late.timeline, self.work.clock))
        fate = self._fate()
        return found.transform(lambda events: events.withColumn("fate", fate))

    def counts(self, known: DataFrame) -> FateCounts:
        """Fates and metrics."""
        judged = self.lateness.firing_times if self.lateness else None
        return count_fates(known, self.work.definition.metric_windows, self.work.owned, judged, window=self.window)

    def records_in_windows(self, counts: FateCounts) -> int:
        """How many records the windows of the chunks hold, each as often as it is in one. Runs a job."""
        return counts.records_in_windows(self.window)

    def values(self, known: DataFrame) -> DataFrame:
        """Per key and window the value to publish, and in a replay first, live and final beside it."""
        definition = self.work.definition
        keys, aggregates = definition.source.key, dict(definition.aggregates)
        if self.lateness is None:
            aggregates[RECORD_COUNT] = "count(*)"  # panes have one each
        grid = WindowGrid.from_window(self.window, self.work.interval)
        is_many = self.work.expected_events >= aggregation.MANY_EVENTS
        # Where copies are looked for, the records were kept once those were found; of records read anew they would
        # have to be found again.
        if is_many and not definition.source.deduplicate_on:
            found = aggregate_by_time_range(
                self.work.recorded,
                self.window,
                grid,
                lambda events, some: self._grouped(
                    events, AggregationRequest(self.window, some, keys, aggregates)
                ),
            )
            if found is not None:
                return found
        events = self._usable(known, payload_columns(definition))
        shape = DataProfile()
        if is_many:
            shape = aggregation.profile_events(
                events, self.work.expected_events, keys, slice_width_of(self.window)
            )
        every = grid.as_columns(self.work.spark)
        return self._grouped(events, AggregationRequest(self.window, every, keys, aggregates, shape))

    def _grouped(self, events: DataFrame, grouping: AggregationRequest) -> DataFrame:
        if self.lateness is None:
            return aggregation.aggregate_windows(events, grouping)
        return aggregation.aggregate_panes(events, grouping, self.lateness.firing_times)

    def firings(self, known: DataFrame) -> DataFrame:
        """Every pane that each window fired, in order."""
        definition, judged = self.work.definition, self._judged()
        keys, aggregates = definition.source.key, definition.aggregates
        in_windows = self._timed(known, payload_columns(definition))
        first = grouped.aggregate_on_time(in_windows, keys, aggregates).withColumns(
            {
                "pane_index": int64_literal(0),
                "pane_timing": F.lit(Fate.ON_TIME),
                "fired_at": judged.fired_at(judged.grid.number(F.col("window_end_ms"))),
            }
        )
        later = grouped.aggregate_late(in_windows, keys, aggregates).withColumns(
            {"pane_timing": F.lit(Fate.LATE), "fired_at": F.timestamp_millis("arrival_time_ms")}
        )
        columns = [*keys, *WINDOW, "pane_index", "pane_timing", "fired_at", *aggregates]
        return first.select(*columns).unionByName(later.select(*columns))

    def dropped(self, known: DataFrame) -> DataFrame:
        """The side output: records that came when their last window was gone, and since when it was."""
        start_ms, end_ms = latest_window_start(self._columns)
        behind = known.where((F.col("fate") == F.lit(Fate.DROPPED)) & self.work.owned.hold(start_ms))
        return behind.withColumn("cleaned_up_at", self._judged().cleaned_up_at(self._judged().grid.number(end_ms)))

    @property
    def _columns(self) -> WindowColumns:
        return WindowColumns.from_window(self.window)

    def _judged(self) -> FiringTimeColumns:
        assert self.lateness is not None  # noqa: S101 - only a replay gets here
        return self.lateness.firing_times

    def _fate(self) -> Column:
        """Unreadable, seen before, or judged by the latest of its windows."""
        _, end_ms = latest_window_start(self._columns)
        fate = F.lit(Fate.ON_TIME)
        if self.lateness is not None:
            number = self._judged().grid.number(end_ms)
            is_fired, is_gone = self._judged().is_fired(number), self._judged().is_cleaned_up(number)
            fate = F.when(~is_fired, fate).when(~is_gone, F.lit(Fate.LATE)).otherwise(F.lit(Fate.DROPPED))
        if has_gaps(self.window):
            fate = F.when(F.col("event_time_ms") >= end_ms, self._fate_in_hole()).otherwise(fate)
        return (
            F.when(F.col(REASON).isNotNull(), F.lit(Fate.QUARANTINED))
            .when(F.col("is_duplicate"), F.lit(Fate.DUPLICATE))
            .otherwise(fate)
        )

    def _fate_in_hole(self) -> Column:
        if self.lateness is None:
            return F.lit(Fate.UNASSIGNED)
        # Flink reports a record without a window as late once its own time and the lateness have passed.
        gone_ms = saturating_sum_ms(F.col("event_time_ms"), int64_literal(self.work.definition.lateness.allowed))
        is_gone = gone_ms <= F.col("watermark_ms")
        return F.when(is_gone, F.lit(Fate.DROPPED)).otherwise(F.lit(Fate.UNASSIGNED))

    def _usable(self, known: DataFrame, columns: Sequence[str]) -> DataFrame:
        """The records that can be in a window. The halo's are in here."""
        needed = list(dict.fromkeys([*EVENT, *self.work.definition.source.key, *columns]))
        return known.where(F.col(REASON).isNull() & ~F.col("is_duplicate")).select(*needed)

    def _timed(self, known: DataFrame, columns: Sequence[str]) -> DataFrame:
        """One row per record and window that the chunk owns, with `timing`."""
        in_windows = self._usable(known, columns).transform(assign_windows(self._columns))
        owned = in_windows.where(self.work.owned.hold(F.col("window_start_ms")))
        number = self._judged().grid.number(F.col("window_end_ms"))
        is_fired, is_gone = self._judged().is_fired(number), self._judged().is_cleaned_up(number)
        late = F.when(~is_gone, F.lit(Fate.LATE)).otherwise(F.lit(EXPIRED))
        return owned.withColumn("timing", F.when(~is_fired, F.lit(Fate.ON_TIME)).otherwise(late))
