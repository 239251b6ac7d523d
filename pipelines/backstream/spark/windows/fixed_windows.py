"""Compute all results of chunks with tumbling, sliding, or cumulating windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from backstream.chunks.lateness import ReplayLateness, load_timeline
from backstream.definition.aggregates import spark_aggregates
from backstream.definition.columns import payload_columns
from backstream.eventtime.instants import MIN_MS
from backstream.eventtime.intervals import Interval
from backstream.eventtime.records import SIDE_OUTPUT, Fate
from backstream.eventtime.windows import FixedWindow
from backstream.runs.table_schemas import RECORD_COUNT
from backstream.spark import chunk_group as reading
from backstream.spark.chunk_group import ChunkRecords, SparkGroup
from backstream.spark.schemas import ARRIVAL_ORDER, EVENT, int64_literal
from backstream.spark.shuffle_free import aggregate_by_time_range
from backstream.spark.source import IS_FILTERED, count_gaps, fate_outside_windows, is_for_windows
from backstream.spark.user_jobs import IN_FINAL, add_pane_index
from backstream.spark.watermarks.firing_time_columns import FiringTimeColumns, GridColumns
from backstream.spark.watermarks.join import add_watermarks
from backstream.spark.windows import aggregation
from backstream.spark.windows.aggregation import WINDOW, AggregationRequest, DataProfile
from backstream.spark.windows.assignment import assign_windows, latest_window_start
from backstream.spark.windows.fate_counts import FateCounts, count_fates
from backstream.spark.windows.fates import EXPIRED, fate_in_gap, timing_of, undecided_fate, window_end_columns
from backstream.watermarks.firing_times import WindowGrid


@dataclass(frozen=True)
class FixedWindows:
    """The results of a chunk group; no job runs before a result is computed."""

    work: SparkGroup
    window: FixedWindow
    lateness: ReplayLateness | None
    """The firing times of the windows; None in a recompute."""

    def records(self) -> ChunkRecords:
        """Return every record that the chunks read, with its `fate`.

        Records of the halo are classified like all others; ownership is decided later.
        """
        lateness, start_ms = self.lateness, self.work.interval.start_ms
        records = reading.load_records(self.work, Interval(start_ms, self.work.halo_end_ms))
        if lateness is not None and lateness.timeline is not None and self.window.has_gaps:
            records = records.transform(add_watermarks(self.work.spark, lateness.timeline, self.work.clock))
        if lateness is not None and lateness.firing_times.undecided:
            first_ms, last_ms = window_end_columns(self.window, F.col("event_time_ms"))
            numbers = map(self._firing_times.grid.number, (first_ms, last_ms))
            records = records.transform(self._firing_times.add_undecided(*numbers))
        fate = self._fate()
        return records.transform(lambda events: events.withColumn("fate", fate).drop("is_undecided"))

    def counts(self, records: DataFrame) -> FateCounts:
        """Return the fates and metrics."""
        firing_times = self._firing_times if self.lateness else None
        return count_fates(
            records,
            self.work.definition.metric_windows,
            self.work.owned_interval,
            firing_times,
            count_gaps(self.work.definition.source, records),
            window=self.window,
        )

    def records_in_windows(self, counts: FateCounts) -> int:
        """Return the number of records in the owned windows, once per window of a record. Runs a job."""
        return counts.records_in_windows(self.window)

    def values(self, records: DataFrame) -> DataFrame:
        """Return the value to publish per key and window; in a replay the first, live, and final value."""
        definition = self.work.definition
        keys, aggregates = definition.source.key, spark_aggregates(definition)
        if self.lateness is None:
            aggregates[RECORD_COUNT] = "count(*)"  # panes have their own counts
        grid = WindowGrid.from_window(self.window, self.work.interval)
        is_many = self.work.expected_events >= aggregation.MANY_EVENTS
        # Without a shuffle, records are read again. Then duplicates would have to be searched again, too.
        if is_many and not definition.source.deduplicate_on:
            values = aggregate_by_time_range(
                self.work.event_files,
                self.window,
                grid,
                lambda events, windows: self._aggregate(
                    events.where(~F.col(IS_FILTERED)), AggregationRequest(self.window, windows, keys, aggregates)
                ),
            )
            if values is not None:
                return values
        events = self._usable(records, payload_columns(definition))
        profile = DataProfile()
        if is_many:
            profile = aggregation.profile_events(events, self.work.expected_events, keys, self.window.slice_ms)
        all_windows = GridColumns.from_grid(self.work.spark, grid)
        return self._aggregate(events, AggregationRequest(self.window, all_windows, keys, aggregates, profile))

    def _aggregate(self, events: DataFrame, request: AggregationRequest) -> DataFrame:
        if self.lateness is None:
            return aggregation.aggregate_windows(events, request)
        return aggregation.aggregate_panes(events, request, self._firing_times)

    def members(self, records: DataFrame) -> DataFrame:
        """Return the records as a job gets them: one row per record and owned window. Runs jobs."""
        work = self.work
        if self.lateness is not None and "watermark_ms" not in records.columns:
            reach = Interval(work.interval.start_ms, work.halo_end_ms)
            timeline = self.lateness.timeline or load_timeline(work, reach, work.reader)
            records = records.transform(add_watermarks(work.spark, timeline, work.clock))
        elif self.lateness is None:
            records = records.withColumn("watermark_ms", int64_literal(MIN_MS))
        payload = payload_columns(work.definition, work.schema.names)
        in_windows = self._add_timing(records, [*payload, "fate", "watermark_ms"])
        timing = F.when(F.col("timing") != F.lit(EXPIRED), F.col("timing"))
        timed = in_windows.withColumns({"pane_timing": timing, IN_FINAL: F.expr("true")}).drop("timing")
        is_late = self.lateness is not None and bool(
            timed.where(F.col("pane_timing") == F.lit(Fate.LATE)).limit(1).count()
        )
        return add_pane_index(timed, work.definition.source.key, ARRIVAL_ORDER, is_late=is_late)

    def firings(self, records: DataFrame) -> DataFrame:
        """Return every pane that each window fired, in order."""
        definition, firing_times = self.work.definition, self._firing_times
        keys, aggregates = definition.source.key, spark_aggregates(definition)
        in_windows = self._add_timing(records, payload_columns(definition))
        first = aggregation.aggregate_on_time(in_windows, keys, aggregates).withColumns(
            {
                "pane_index": int64_literal(0),
                "pane_timing": F.lit(Fate.ON_TIME),
                "fired_at": firing_times.fired_at(firing_times.grid.number(F.col("window_end_ms"))),
            }
        )
        later = aggregation.aggregate_late(in_windows, keys, aggregates).withColumns(
            {"pane_timing": F.lit(Fate.LATE), "fired_at": F.timestamp_millis("arrival_time_ms")}
        )
        columns = [*keys, *WINDOW, "pane_index", "pane_timing", "fired_at", *aggregates]
        return first.select(*columns).unionByName(later.select(*columns))

    def dropped_events(self, records: DataFrame) -> DataFrame:
        """Return the dropped records of the side output.

        `cleaned_up_at` is when the state of their last window was removed.
        """
        start_ms, end_ms = latest_window_start(self.window)
        dropped = records.where(F.col("fate").isin(*SIDE_OUTPUT) & self.work.owned_interval.hold(start_ms))
        firing_times = self._firing_times
        return dropped.withColumn("cleaned_up_at", firing_times.cleaned_up_at(firing_times.grid.number(end_ms)))

    @cached_property
    def _firing_times(self) -> FiringTimeColumns:
        assert self.lateness is not None  # noqa: S101 - only a replay gets here
        return FiringTimeColumns(self.work.spark, self.lateness.firing_times)

    def _fate(self) -> Column:
        """Return the fate of a record: that of a record without windows, or the timing in its latest window."""
        _, end_ms = latest_window_start(self.window)
        fate = F.lit(Fate.ON_TIME)
        if self.lateness is not None:
            firing_times = self._firing_times
            number = firing_times.grid.number(end_ms)
            fate = timing_of(firing_times.is_fired(number), firing_times.is_cleaned_up(number), Fate.DROPPED)
            fate = undecided_fate(fate) if firing_times.values.undecided else fate
        if self.window.has_gaps:
            fate = F.when(F.col("event_time_ms") >= end_ms, self._fate_in_gap()).otherwise(fate)
        return fate_outside_windows(fate)

    def _fate_in_gap(self) -> Column:
        if self.lateness is None:
            return F.lit(Fate.UNASSIGNED)
        return fate_in_gap(int64_literal(self.work.definition.lateness.allowed))

    def _usable(self, records: DataFrame, columns: Sequence[str]) -> DataFrame:
        """Return the records that can be in a window, including records of the halo."""
        needed = list(dict.fromkeys([*EVENT, *self.work.definition.source.key, *columns]))
        return records.where(is_for_windows()).select(*needed)

    def _add_timing(self, records: DataFrame, columns: Sequence[str]) -> DataFrame:
        """Return one row per record and owned window, with `timing`."""
        in_windows = self._usable(records, columns).transform(assign_windows(self.window))
        owned = in_windows.where(self.work.owned_interval.hold(F.col("window_start_ms")))
        if self.lateness is None:
            return owned.withColumn("timing", F.lit(Fate.ON_TIME))
        firing_times = self._firing_times
        number = firing_times.grid.number(F.col("window_end_ms"))
        timing = timing_of(firing_times.is_fired(number), firing_times.is_cleaned_up(number), EXPIRED)
        return owned.withColumn("timing", timing)
