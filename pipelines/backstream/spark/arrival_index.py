"""Read the rows of the arrival index with Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from backstream.definition.model import Definition
from backstream.runs.plan import InputFile
from backstream.source.arrival_index import BucketGrid
from backstream.spark import source
from backstream.spark.schemas import (
    PARTITION_NUMBER,
    int64_literal,
    integer_quotient,
    partition_to_group_by,
    with_partition_as_text,
)
from backstream.storage.files import file_uri


def bucket_events(events: DataFrame, grid: BucketGrid, file: Sequence[str]) -> DataFrame:
    """Return the rows of the index: one per file, partition, and two buckets.

    Args:
        events: normalized events, with columns that distinguish files.
        grid: the buckets.
        file: the names of these columns.
    """
    buckets = {
        "event_bucket": _event_bucket_column(F.col("event_time_ms"), grid),
        "arrival_bucket": arrival_bucket_column(F.col("arrival_time_ms"), grid),
    }
    return (
        events.withColumns(buckets)
        .groupBy(*file, partition_to_group_by(events), *buckets)
        .agg(
            F.count(F.lit(1)).alias("events"),
            F.min("event_time_ms").alias("first_event_ms"),
            F.max("event_time_ms").alias("last_event_ms"),
            F.min("arrival_time_ms").alias("first_arrival_ms"),
            F.max("arrival_time_ms").alias("last_arrival_ms"),
        )
        .transform(with_partition_as_text)
    )


def _event_bucket_column(event_time_ms: Column, grid: BucketGrid) -> Column:
    """Return `BucketGrid.bucket` as a column.

    The bucket is 2 n between the first and the second cut number n, and 2 n + 1 after the second one.
    """
    since_ms = event_time_ms - int64_literal(grid.first_cut_ms)
    within_ms = F.pmod(since_ms, int64_literal(grid.step_ms))
    number = integer_quotient(since_ms - within_ms, int64_literal(grid.step_ms))
    return number * int64_literal(2) + (within_ms >= int64_literal(grid.second_cut_ms)).cast("long")


def arrival_bucket_column(arrival_time_ms: Column, grid: BucketGrid) -> Column:
    """Return the number of the arrival bucket, counted from 1970."""
    within_ms = F.pmod(arrival_time_ms, int64_literal(grid.arrival_width_ms))
    return integer_quotient(arrival_time_ms - within_ms, int64_literal(grid.arrival_width_ms))


def _clear_unreadable(events: DataFrame) -> DataFrame:
    """Replace the columns of unreadable records by nulls, so that they make one row per file."""
    columns = ("source_partition", PARTITION_NUMBER, "event_time_ms", "arrival_time_ms")
    names = [name for name in columns if name in events.columns]
    return events.withColumns({name: F.when(F.col(source.REASON).isNull(), F.col(name)) for name in names})


def read_index_rows(
    spark: SparkSession, definition: Definition, files: Sequence[InputFile], grid: BucketGrid, schema: StructType
) -> pa.Table:
    """Return the rows of the arrival index for some files. Runs a job.

    Args:
        spark: the session.
        definition: the definition of the events.
        files: the files.
        grid: the buckets of the index.
        schema: the columns that are read from each file.
    """
    counts = Counter(file.size_bytes for file in files)
    shared_sizes = [size_bytes for size_bytes, count in counts.items() if count > 1]
    path, size_bytes = F.col("_metadata.file_path"), F.col("_metadata.file_size")
    # Grouping by path takes as long as all other work, and most files have a unique size.
    file_columns = {source.FILE_SIZE: size_bytes}
    if shared_sizes:
        file_columns[source.FILE] = F.when(size_bytes.isin(shared_sizes), path).otherwise(F.lit(""))
    records = source.load_files(spark, [file.path for file in files], schema)
    events = (
        records.transform(source.normalize_events(definition))
        .withColumns(file_columns)
        .transform(_clear_unreadable)
    )
    rows = bucket_events(events, grid, tuple(file_columns)).toArrow()
    indexed = pa.Table.from_pylist(
        [_file_row(file, is_size_shared=file.size_bytes in shared_sizes) for file in files]
    )
    # A file without records is in the index, too.
    return indexed.join(rows, list(file_columns), join_type="left outer").drop_columns(
        [source.FILE_SIZE, source.FILE]
    )


def _file_row(file: InputFile, *, is_size_shared: bool) -> dict[str, str | int]:
    """Return the columns that identify a file while it is read, and later in the index."""
    return {
        source.FILE_SIZE: file.size_bytes,
        source.FILE: file_uri(file.path) if is_size_shared else "",
        "path": file.path,
        "size_bytes": file.size_bytes,
        "modified_ms": file.modified_ms,
    }
