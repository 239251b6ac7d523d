"""Read recorded events with Spark, for their watermarks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from backstream.definition.model import Definition
from backstream.runs.plan import InputFile
from backstream.source.arrival_index import BucketGrid
from backstream.spark.arrival_index import arrival_bucket_column, read_index_rows
from backstream.spark.schemas import partition_to_group_by, plan_literals, with_partition_as_text
from backstream.spark.shuffle_free import compress_files
from backstream.spark.source import EventFiles
from backstream.spark.watermarks.compress import count_ticks_before
from backstream.spark.watermarks.user_generators import timeline_of_events
from backstream.watermarks.streams import CELL_BYTES, StreamPart
from backstream.watermarks.timeline import WatermarkTimeline


@dataclass(frozen=True, slots=True)
class SparkReader:
    """A `StreamReader` with Spark: each method runs a job."""

    recorded: EventFiles
    definition: Definition
    schema: StructType
    """The columns that are read from each file."""

    @property
    def max_rows(self) -> int:
        """About how many cells fit into the driver."""
        return max_driver_rows(self.recorded.spark)

    def read_index(self, files: Sequence[InputFile], grid: BucketGrid) -> pa.Table:
        """Return the rows of the arrival index for some files."""
        return read_index_rows(self.recorded.spark, self.definition, files, grid, self.schema)

    def read_cells(self, part: StreamPart) -> pa.Table:
        """Return the cells of events; see `StreamReader`."""
        return compress_files(self._select(part), part.emission, part.clock)

    def read_partitions(self, part: StreamPart) -> pa.Table:
        """Return the source partitions that have events."""
        events = self._select(part).all()
        partitions = events.groupBy(partition_to_group_by(events)).agg(F.count(F.lit(1)))
        return partitions.transform(with_partition_as_text).toArrow()

    def read_timeline(self, part: StreamPart, expected: Iterable[str]) -> WatermarkTimeline:
        """Return the watermarks of events: Spark shuffles all of them."""
        return timeline_of_events(self._select(part).all(), part.emission, part.clock, expected)

    def _select(self, part: StreamPart) -> EventFiles:
        conditions: list[Column] = []
        spark, read = self.recorded.spark, self.recorded.read
        if part.blocks is not None:
            start, stop = plan_literals(spark, part.blocks.start, part.blocks.stop)
            block = count_ticks_before(part.clock)
            conditions += [block >= start, block < stop]
        buckets = part.buckets
        if buckets is None:
            return EventFiles(spark, part.files, lambda paths: read(paths).where(_all_of(conditions)))
        kept = F.broadcast(spark.createDataFrame(pa.table({"bucket": buckets.numbers})))
        is_kept = arrival_bucket_column(F.col("arrival_time_ms"), buckets.grid) == F.col("bucket")
        return EventFiles(
            spark,
            part.files,
            lambda paths: read(paths).where(_all_of(conditions)).join(kept, is_kept, how="leftsemi"),
        )


def _all_of(conditions: Iterable[Column]) -> Column:
    whole = F.lit(True)  # noqa: FBT003 - a literal
    for condition in conditions:
        whole &= condition
    return whole


def max_driver_rows(spark: SparkSession) -> int:
    """Return about how many cells fit into the driver: into Spark's maximum result size, and a third of the heap.

    A third, since two chunk groups may run at the same time.
    """
    max_result = _parse_bytes(spark.conf.get("spark.driver.maxResultSize", "1g") or "1g", "b")
    heap = _parse_bytes(spark.conf.get("spark.driver.memory", "1g") or "1g", "m")
    return int(min(max_result * 0.8 if max_result > 0 else heap, heap / 3) / CELL_BYTES)


def _parse_bytes(size: str, unit: str) -> int:
    """Return the bytes of a size in Spark's notation, e.g., 512m or 1gb; `unit` is the unit of a bare number."""
    ((number, suffix),) = re.findall(r"(-?\d+)([bkmgtp]?)", size.lower())
    return int(number) << 10 * "bkmgtp".index(suffix or unit)
