"""What a chunk counts: the fate of every record it read, and of every window per source partition."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from backstream.core.fates import Fate
from backstream.spark.fates import EXPIRED
from backstream.spark.panes import WINDOW


def fate_counts(records: DataFrame) -> dict[str, dict[str, int]]:
    """Source partition to fate to number of records. Runs a job."""
    partition = F.coalesce("source_partition", F.lit("unknown")).alias("source_partition")
    counted = records.groupBy(partition, "fate").count().collect()
    counts: dict[str, dict[str, int]] = {}
    for row in sorted(counted):
        counts.setdefault(row["source_partition"], {})[row["fate"]] = row["count"]
    return counts


def window_metrics(timed: DataFrame) -> DataFrame:
    """One row per window and source partition: how many events it has, and what became of them there.

    `events = on_time + late + dropped + expired`; `expired` ones were taken by a later window.
    """
    timing, is_dropped = F.col("timing"), F.col("fate") == F.lit(Fate.DROPPED)
    is_expired = timing == F.lit(EXPIRED)
    counts: dict[str, Column] = {
        "events": F.count(F.lit(1)),
        "on_time": F.count_if(timing == F.lit(Fate.ON_TIME)),
        "late": F.count_if(timing == F.lit(Fate.LATE)),
        "dropped": F.count_if(is_expired & is_dropped),
        "expired": F.count_if(is_expired & ~is_dropped),
        "first_arrival": F.timestamp_millis(F.min("arrival_time_ms")),
        "last_arrival": F.timestamp_millis(F.max("arrival_time_ms")),
    }
    return timed.groupBy(*WINDOW, "source_partition").agg(*(each.alias(name) for name, each in counts.items()))
