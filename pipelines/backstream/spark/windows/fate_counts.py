"""Count the fates of records, and the metrics of windows per source partition.

Both are computed from one small table. It has one row per fate, slice of event time, and source partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from backstream.eventtime.duplicates import RecordGap
from backstream.eventtime.records import SIDE_OUTPUT, TIMING_BY_FATE, Fate
from backstream.eventtime.windows import FixedWindow, Sliding, Tumbling
from backstream.native.fate_counts import ChunkCounts
from backstream.spark.chunk_group import CHUNK
from backstream.spark.schemas import IntervalColumns, partition_to_group_by, with_partition_as_text
from backstream.spark.watermarks.firing_time_columns import FiringTimeColumns
from backstream.spark.windows.aggregation import WINDOW
from backstream.spark.windows.assignment import assign_windows, latest_window_start
from backstream.spark.windows.fates import EXPIRED, SLICE, add_slices, late_columns, timing_column


@dataclass(frozen=True, slots=True)
class FateCounts:
    """The small table `rows`, and how it is grouped. Persist `rows`, since several results need it."""

    rows: DataFrame
    cells: Tumbling | Sliding
    owned: IntervalColumns
    firing_times: FiringTimeColumns | None

    def by_chunk(self) -> ChunkCounts:
        """Return the numbers of records of each chunk. Runs a job.

        If no chunk of the group owns the latest window of a record, its fate is `halo`.
        """
        start_ms, _ = latest_window_start(self.cells)
        is_owned = (F.col("fate") == F.lit(Fate.QUARANTINED)) | self.owned.hold(start_ms)
        fate = F.when(is_owned, F.col("fate")).otherwise(F.lit(Fate.HALO)).alias("fate")
        grouped = self.rows.groupBy(CHUNK, "source_partition", fate)
        return ChunkCounts.from_rows(grouped.agg(*map(F.sum, ("events", *RecordGap))).collect())

    def records_in_windows(self, window: FixedWindow) -> int:
        """Return the number of records in the owned windows, once per window of a record. Runs a job."""
        owned = self._in_windows(window).where(self.owned.hold(F.col("window_start_ms")))
        ((count,),) = owned.agg(F.coalesce(F.sum("events"), F.lit(0))).collect()
        return int(count)

    def _in_windows(self, window: FixedWindow) -> DataFrame:
        accepted_or_dropped = self.rows.where(F.col("fate").isin(*TIMING_BY_FATE))
        return accepted_or_dropped.transform(assign_windows(window))

    def metrics(self) -> DataFrame:
        """Return one row per window and source partition, with the number of events and their classification.

        `events = on_time + late + dropped + expired`. An `expired` event was accepted by a later window only.
        """
        in_windows = self._in_windows(self.cells)
        timing = timing_column(self.firing_times)
        if isinstance(self.cells, Tumbling):
            own = (F.when(F.col("fate") == F.lit(fate), F.lit(own)) for fate, own in TIMING_BY_FATE.items())
            timing = F.coalesce(*own)
        owned = in_windows.where(self.owned.hold(F.col("window_start_ms"))).withColumn("timing", timing)
        is_too_late = F.col("timing").isin(EXPIRED, Fate.DROPPED)
        is_dropped = F.col("fate").isin(*SIDE_OUTPUT)
        counts = {
            "events": F.expr("true"),
            "on_time": F.col("timing") == F.lit(Fate.ON_TIME),
            "late": F.col("timing") == F.lit(Fate.LATE),
            "dropped": is_too_late & is_dropped,
            "expired": is_too_late & ~is_dropped,
        }
        metrics = [
            F.sum(F.when(condition, F.col("events")).otherwise(F.lit(0))).alias(name)
            for name, condition in counts.items()
        ]
        arrivals = {"first_arrival": F.min("first_arrival_ms"), "last_arrival": F.max("last_arrival_ms")}
        metrics += [F.timestamp_millis(time_ms).alias(name) for name, time_ms in arrivals.items()]
        grouped = owned.groupBy(*WINDOW, "source_partition").agg(*metrics)
        fired_at = F.lit(None).cast("timestamp")
        if self.firing_times:
            fired_at = self.firing_times.fired_at(self.firing_times.grid.number(F.col("window_end_ms")))
        return grouped.withColumn("fired_at", fired_at)


def count_fates(
    records: DataFrame,
    cells: Tumbling | Sliding,
    owned: IntervalColumns,
    firing_times: FiringTimeColumns | None,
    gaps: Sequence[Column],
    *,
    window: FixedWindow | None = None,
    by: Sequence[str] = (),
) -> FateCounts:
    """Count records by slice, source partition, and fate.

    Args:
        records: normalized events with `fate` and `CHUNK`.
        cells: the windows of the metrics.
        owned: the interval of the starts of owned windows.
        firing_times: the firing times of the windows; None if no record is late.
        gaps: the number of records with each `RecordGap`.
        window: the windows of the results, if they are finer than `cells`.
        by: further columns of the records to group by.
    """
    # If a record has one window, its fate is enough. In sliding windows, it can be late for some windows only.
    late = firing_times if isinstance(cells, Sliding) else None
    slices = records.transform(add_slices(window or cells, late))
    by = ["fate", CHUNK, *by, *late_columns(late)]
    partition = partition_to_group_by(records)
    rows = slices.groupBy(F.col(SLICE).alias("event_time_ms"), partition, *by).agg(
        F.count(F.lit(1)).alias("events"),
        F.min("arrival_time_ms").alias("first_arrival_ms"),
        F.max("arrival_time_ms").alias("last_arrival_ms"),
        *gaps,
    )
    rows = rows.transform(with_partition_as_text).fillna("unknown", ["source_partition"])
    return FateCounts(rows, cells, owned, firing_times)
