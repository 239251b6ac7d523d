"""Finding the watermarks of a month of many source partitions: what has to fit into the driver."""

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
    """Watermarks found on the driver, from a stream of many source partitions; nothing else is made of it."""

    name: str
    spark: SparkSession
    parquet: Path
    find: Callable[[EventFiles], int]

    def run(self) -> None:
        """Find them."""
        self.checked()

    def checked(self) -> Sums:
        """How many there are."""
        of_eight = ours.recorded(self.spark, self.parquet)
        stream = EventFiles(self.spark, of_eight.files, lambda paths: _spread(of_eight.read(paths)))
        return Sums(self.find(stream), 0, 0)


def _spread(events: DataFrame) -> DataFrame:
    """The events as if they had come from more source partitions."""
    number = F.pmod(F.xxhash64("arrival_seq"), F.lit(PARTITIONS))
    return events.withColumns({"source_partition": number.cast("string"), PARTITION_NUMBER: number})


def per_window(stream: EventFiles) -> int:
    """When each window of a minute fires and is gone."""
    window = Tumbling(MINUTE_MS)
    return ours.thresholds(stream.all(), window, WindowGrid.from_window(window, SPAN), CLOCK, _NAMES).grid.count


def per_tick(stream: EventFiles) -> int:
    """Every rise, as sessions need them."""
    return len(timeline_of_files(stream, ours.EMISSION, CLOCK, _NAMES).watermark_ms)


WAYS = {"64 partitions, per window": per_window, "64 partitions, per tick": per_tick}
