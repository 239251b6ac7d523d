"""Extending the arrival index: input files that it does not know are read once, by one small Spark job."""

from __future__ import annotations

import fcntl
import logging
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from backstream.definition.model import Definition
from backstream.native.supported import read_spec, reason_not_readable
from backstream.native.task import IndexTask
from backstream.native.task_cuts import group_files_by_rows
from backstream.native.task_runner import run_index_task
from backstream.runs.manifest import require_input_files
from backstream.runs.plan import InputFile
from backstream.source.arrival_index import ArrivalIndex, BucketGrid, IndexFolder, write_batch
from backstream.spark import source
from backstream.spark.native.engine import can_fall_back, task_error_text
from backstream.spark.schemas import (
    PARTITION_NUMBER,
    int64_literal,
    integer_quotient,
    partition_to_group_by,
    with_partition_as_text,
)
from backstream.spark.session import ship_package, task_memory_mb

log = logging.getLogger(__name__)

_TASK_ROWS = 1_000_000
"""Rows of the files that a native task reads, at least."""


def extend_index(
    spark: SparkSession,
    definition: Definition,
    inputs: Sequence[InputFile],
    folder: IndexFolder,
    schema: StructType,
) -> ArrivalIndex:
    """The index of these files, after reading those that are new to it. Runs a job if there are any.

    Args:
        spark: the session.
        definition: what an event is.
        inputs: the files.
        folder: where the index lies.
        schema: what is read of each file.

    Raises:
        PlanError: when a new one is not as it was planned.
    """
    known = ArrivalIndex.from_folder(folder, inputs)
    if not known.missing(inputs):
        return known
    with _alone(folder):
        fresh = ArrivalIndex.from_folder(folder, inputs).missing(
            inputs
        )  # another chunk may have read them meanwhile
        if fresh:
            write_batch(folder, _batch(spark, definition, fresh, folder.grid, schema), uuid.uuid4().hex)
    return ArrivalIndex.from_folder(folder, inputs)


def bucket_events(events: DataFrame, grid: BucketGrid, file: Sequence[str]) -> DataFrame:
    """Normalised events as rows of the index: one per file, partition and two buckets.

    Args:
        events: with columns that tell files apart.
        grid: the buckets.
        file: these columns.
    """
    buckets = {
        "event_bucket": event_bucket_column(F.col("event_time_ms"), grid),
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


def event_bucket_column(event_time_ms: Column, grid: BucketGrid) -> Column:
    """Twin of `BucketGrid.bucket`: 2 n between the first cut number n and its second, 2 n + 1 after that one."""
    since_ms = event_time_ms - int64_literal(grid.first_cut_ms)
    within_ms = F.pmod(since_ms, int64_literal(grid.step_ms))
    number = integer_quotient(since_ms - within_ms, int64_literal(grid.step_ms))
    return number * int64_literal(2) + (within_ms >= int64_literal(grid.second_cut_ms)).cast("long")


def arrival_bucket_column(arrival_time_ms: Column, grid: BucketGrid) -> Column:
    """The number of the bucket, counted from 1970, in which something arrived."""
    within_ms = F.pmod(arrival_time_ms, int64_literal(grid.arrival_width_ms))
    return integer_quotient(arrival_time_ms - within_ms, int64_literal(grid.arrival_width_ms))


def _placed(events: DataFrame) -> DataFrame:
    """Records that cannot be read have no place in time: of each file they make one row of nulls."""
    places = ("source_partition", PARTITION_NUMBER, "event_time_ms", "arrival_time_ms")
    names = [name for name in places if name in events.columns]
    return events.withColumns({name: F.when(F.col(source.REASON).isNull(), F.col(name)) for name in names})


def _batch(
    spark: SparkSession, definition: Definition, files: Sequence[InputFile], grid: BucketGrid, schema: StructType
) -> pa.Table:
    columns = {field.name: field.dataType.simpleString() for field in schema.fields}
    if definition.backfill.engine != "spark" and reason_not_readable(definition, columns) is None:
        try:
            return _batch_natively(spark, definition, files, grid, columns)
        except Exception as error:
            if not can_fall_back(definition, error):
                raise
            log.warning("%s; Spark reads the new files instead", task_error_text(error))
    counts = Counter(file.size_bytes for file in files)
    shared = [size_bytes for size_bytes, count in counts.items() if count > 1]
    path, size_bytes = F.col("_metadata.file_path"), F.col("_metadata.file_size")
    # Paths take as long to group by as all the rest, and sizes mostly tell files apart.
    told_apart = {source.FILE_SIZE: size_bytes}
    if shared:
        told_apart[source.FILE] = F.when(size_bytes.isin(shared), path).otherwise(F.lit(""))
    rows = source.load_files(spark, [file.path for file in files], schema)
    events = rows.transform(source.normalize_events(definition)).withColumns(told_apart).transform(_placed)
    found = bucket_events(events, grid, tuple(told_apart)).toArrow()
    # What was written anew meanwhile would be taken for what was planned, or be lost.
    require_input_files(files, "extend the arrival index")
    known = pa.Table.from_pylist([_identity(file, is_size_shared=file.size_bytes in shared) for file in files])
    # A file without a record is known all the same.
    return known.join(found, list(told_apart), join_type="left outer").drop_columns(
        [source.FILE_SIZE, source.FILE]
    )


def _batch_natively(
    spark: SparkSession,
    definition: Definition,
    files: Sequence[InputFile],
    grid: BucketGrid,
    columns: Mapping[str, str],
) -> pa.Table:
    context, reading = spark.sparkContext, read_spec(definition, columns)
    ship_package(context)
    rows = max(_TASK_ROWS, sum(file.rows for file in files) // (4 * context.defaultParallelism))
    tasks = [IndexTask(reading, grid, paths, task_memory_mb(spark)) for paths in group_files_by_rows(files, rows)]
    found = pa.concat_tables(context.parallelize(tasks, len(tasks)).map(run_index_task).collect())
    require_input_files(files, "extend the arrival index")
    known = pa.table(
        {
            "path": [file.path for file in files],
            "size_bytes": [file.size_bytes for file in files],
            "modified_ms": [file.modified_ms for file in files],
        }
    )
    return known.join(found, "path", join_type="left outer")


def _identity(file: InputFile, *, is_size_shared: bool) -> dict[str, str | int]:
    """What tells a file apart while it is read, and by what the index knows it again."""
    return {
        source.FILE_SIZE: file.size_bytes,
        source.FILE: source.file_uri(file.path) if is_size_shared else "",
        "path": file.path,
        "size_bytes": file.size_bytes,
        "modified_ms": file.modified_ms,
    }


@contextmanager
def _alone(folder: IndexFolder) -> Iterator[None]:
    """Parallel chunks of a run wait for the first instead of reading the same files. Results do not need it."""
    folder.path.mkdir(parents=True, exist_ok=True)
    with folder.lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
