"""What chunks count: the fate of every record they read, and of every window per source partition.

Both come from one small table: records with the same fate, in the same slice of event time and of the same source
partition, are one row of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from backstream.eventtime.records import Fate
from backstream.eventtime.windows import Sliding, Tumbling
from backstream.spark.chunk_group import CHUNK
from backstream.spark.schemas import IntervalColumns, partition_to_group_by, with_partition_as_text
from backstream.spark.watermarks.firing_times import FiringTimeColumns
from backstream.spark.windows.aggregation import WINDOW
from backstream.spark.windows.assignment import FixedWindow, WindowColumns, assign_windows, latest_window_start
from backstream.spark.windows.fates import EXPIRED, SLICE, add_slices, late_columns, timing_column

IN_A_WINDOW = (Fate.ON_TIME, Fate.LATE, Fate.DROPPED)


@dataclass(frozen=True, slots=True)
class FateCounts:
    """The small table, `rows`, and what it is cut by. Worth keeping: several results rest on it."""

    rows: DataFrame
    cells: Tumbling | Sliding
    owned: IntervalColumns
    judged: FiringTimeColumns | None

    def fates(self) -> dict[int, dict[str, dict[str, int]]]:
        """Number of the chunk, to source partition, to fate, to number of records. Runs a job.

        A record whose latest window none of the chunks owns is `halo`.
        """
        start_ms, _ = latest_window_start(WindowColumns.from_window(self.cells))
        is_ours = (F.col("fate") == F.lit(Fate.QUARANTINED)) | self.owned.hold(start_ms)
        fate = F.when(is_ours, F.col("fate")).otherwise(F.lit(Fate.HALO)).alias("fate")
        counted = self.rows.groupBy(CHUNK, "source_partition", fate).agg(F.sum("events")).collect()
        found: dict[int, dict[str, dict[str, int]]] = {}
        for number, partition, of, events in sorted(counted):
            found.setdefault(number, {}).setdefault(partition, {})[of] = events
        return found

    def records_in_windows(self, window: FixedWindow) -> int:
        """How many records the windows of the chunks hold: one in three windows counts three times. Runs a job."""
        held = self._in_windows(window).where(self.owned.hold(F.col("window_start_ms")))
        ((found,),) = held.agg(F.coalesce(F.sum("events"), F.lit(0))).collect()
        return int(found)

    def _in_windows(self, window: FixedWindow) -> DataFrame:
        in_some = self.rows.where(F.col("fate").isin(*IN_A_WINDOW))
        return in_some.transform(assign_windows(WindowColumns.from_window(window)))

    def metrics(self) -> DataFrame:
        """One row per window and source partition: how many events it has, and what became of them there.

        `events = on_time + late + dropped + expired`; `expired` ones were taken by a later window.
        """
        in_windows = self._in_windows(self.cells)
        timing = F.col("fate") if isinstance(self.cells, Tumbling) else timing_column(self.judged)
        owned = in_windows.where(self.owned.hold(F.col("window_start_ms"))).withColumn("timing", timing)
        is_gone = F.col("timing").isin(EXPIRED, Fate.DROPPED)
        is_dropped = F.col("fate") == F.lit(Fate.DROPPED)
        counts = {
            "events": F.expr("true"),
            "on_time": F.col("timing") == F.lit(Fate.ON_TIME),
            "late": F.col("timing") == F.lit(Fate.LATE),
            "dropped": is_gone & is_dropped,
            "expired": is_gone & ~is_dropped,
        }
        wanted = [
            F.sum(F.when(each, F.col("events")).otherwise(F.lit(0))).alias(name) for name, each in counts.items()
        ]
        arrivals = {"first_arrival": F.min("first_arrival_ms"), "last_arrival": F.max("last_arrival_ms")}
        wanted += [F.timestamp_millis(each).alias(name) for name, each in arrivals.items()]
        grouped = owned.groupBy(*WINDOW, "source_partition").agg(*wanted)
        nothing = F.lit(None).cast("timestamp")
        return grouped.withColumn(
            "fired_at",
            self.judged.fired_at(self.judged.grid.number(F.col("window_end_ms"))) if self.judged else nothing,
        )


def count_fates(
    records: DataFrame,
    cells: Tumbling | Sliding,
    owned: IntervalColumns,
    judged: FiringTimeColumns | None,
    *,
    window: FixedWindow | None = None,
    by: Sequence[str] = (),
) -> FateCounts:
    """Count records by slice, source partition and fate.

    Args:
        records: normalised events with `fate` and `CHUNK`.
        cells: the windows that metrics are kept for.
        owned: the starts of the windows that the chunks answer for.
        judged: how lateness is told; None: nothing is late.
        window: those that results are made of, where they are finer than `cells`.
        by: columns of the records to keep counts apart by.
    """
    # With one window per record its fate says all; else a late record is late for some of its windows only.
    late = judged if isinstance(cells, Sliding) else None
    slices = records.transform(add_slices(window or cells, late))
    by = ["fate", CHUNK, *by, *late_columns(late)]
    of_partition = partition_to_group_by(records)
    rows = slices.groupBy(F.col(SLICE).alias("event_time_ms"), of_partition, *by).agg(
        F.count(F.lit(1)).alias("events"),
        F.min("arrival_time_ms").alias("first_arrival_ms"),
        F.max("arrival_time_ms").alias("last_arrival_ms"),
    )
    named = rows.transform(with_partition_as_text).fillna("unknown", ["source_partition"])
    return FateCounts(named, cells, owned, judged)
