"""The computation of watermarks for a month of many source partitions. Its data must fit into the driver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backstream.eventtime.instants import DAY_MS, MINUTE_MS
from backstream.eventtime.intervals import Interval
from backstream.eventtime.records import SourceClock
from backstream.eventtime.windows import Tumbling
from backstream.spark.schemas import PARTITION_NUMBER
from backstream.spark.source import EventFiles
from backstream.spark.watermarks.firing_times import WindowGrid
from backstream.spark.watermarks.partial_streams import timeline_of_files
from benchmarks import ours
from benchmarks.data import FIRST_DAY_MS
from benchmarks.jobs import Sums

PARTITIONS, DAYS = 64, 30
SPAN = Interval(FIRST_DAY_MS, FIRST_DAY_MS + DAYS * DAY_MS)
CLOCK = SourceClock(SPAN.start_ms, 200, SPAN.end_ms)
_NAMES = [str(number) for number in range(PARTITIONS)]


@dataclass(frozen=True, slots=True)
class WatermarkJob:
    """The computation of watermarks on the driver from many source partitions. It computes nothing else."""

    name: str
    spark: SparkSession
    parquet: Path
    find: Callable[[EventFiles], int]

    def run(self) -> None:
        """Compute the watermarks."""
        self.checked()

    def checked(self) -> Sums:
        """Compute the watermarks, and return their number."""
        recording = ours.recorded(self.spark, self.parquet)
        stream = EventFiles(self.spark, recording.files, lambda paths: _spread(recording.read(paths)))
        return Sums(self.find(stream), 0, 0)


def _spread(events: DataFrame) -> DataFrame:
    """Distribute the events over more source partitions."""
    number = F.pmod(F.xxhash64("arrival_seq"), F.lit(PARTITIONS))
    return events.withColumns({"source_partition": number.cast("string"), PARTITION_NUMBER: number})


def per_window(stream: EventFiles) -> int:
    """Compute the times at which each window of one minute fires and expires. Return the number of windows."""
    window = Tumbling(MINUTE_MS)
    return ours.thresholds(stream.all(), window, WindowGrid.from_window(window, SPAN), CLOCK, _NAMES).grid.count


def per_tick(stream: EventFiles) -> int:
    """Compute every rise of the watermark, as sessions need them. Return the number of rises."""
    return len(timeline_of_files(stream, ours.EMISSION, CLOCK, _NAMES).watermark_ms)


WAYS = {"64 partitions, per window": per_window, "64 partitions, per tick": per_tick}
