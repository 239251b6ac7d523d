"""Extend the arrival index: read each new input file once, in one small Spark job."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from backstream.definition.model import Definition
from backstream.native.supported import read_spec, reason_not_readable
from backstream.native.task import IndexTask
from backstream.native.task_cuts import group_files_by_rows
from backstream.native.task_runner import run_index_task
from backstream.runs.plan import InputFile
from backstream.source.arrival_index import (
    ArrivalIndex,
    BucketGrid,
    IndexFolder,
    join_index_rows,
    write_index_batch,
)
from backstream.source.input_versions import require_input_files
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
from backstream.storage.files import file_uri
from backstream.storage.stores import Stores
from backstream.text import text_logger

log = text_logger(__name__)

_TASK_ROWS = 1_000_000
"""The minimum number of rows that a native task reads."""


def extend_index(
    spark: SparkSession,
    definition: Definition,
    inputs: Sequence[InputFile],
    folder: IndexFolder,
    schema: StructType,
) -> ArrivalIndex:
    """Return the index of these files, after new files are read. Runs a job if there are any.

    Args:
        spark: the session.
        definition: the definition of the events.
        inputs: the files.
        folder: the folder of the index.
        schema: the columns that are read from each file.

    Raises:
        PlanError: when a new file differs from the planned one.
    """
    index = ArrivalIndex.from_folder(folder, inputs)
    if not index.list_unindexed(inputs):
        return index
    with _lock(folder):
        # Another chunk may have read the files before this one got the lock.
        new_files = ArrivalIndex.from_folder(folder, inputs).list_unindexed(inputs)
        if new_files:
            rows = _index_files(spark, definition, new_files, folder.grid, schema)
            write_index_batch(folder, rows, uuid.uuid4().hex)
    return ArrivalIndex.from_folder(folder, inputs)


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


def _index_files(
    spark: SparkSession, definition: Definition, files: Sequence[InputFile], grid: BucketGrid, schema: StructType
) -> pa.Table:
    columns = {field.name: field.dataType.simpleString() for field in schema.fields}
    if definition.backfill.engine != "spark" and reason_not_readable(definition, columns) is None:
        try:
            return _index_files_natively(spark, definition, files, grid, columns)
        except Exception as error:
            if not can_fall_back(definition, error):
                raise
            log.warning("%s; Spark reads the new files instead", task_error_text(error))
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
    # If a file was replaced meanwhile, its rows would be stored for the planned file, or be lost.
    require_input_files(files, "extend the arrival index")
    indexed = pa.Table.from_pylist(
        [_file_row(file, is_size_shared=file.size_bytes in shared_sizes) for file in files]
    )
    # A file without records is in the index, too.
    return indexed.join(rows, list(file_columns), join_type="left outer").drop_columns(
        [source.FILE_SIZE, source.FILE]
    )


def _index_files_natively(
    spark: SparkSession,
    definition: Definition,
    files: Sequence[InputFile],
    grid: BucketGrid,
    columns: Mapping[str, str],
) -> pa.Table:
    context, reading = spark.sparkContext, read_spec(definition, columns)
    ship_package(context)
    task_rows = max(_TASK_ROWS, sum(file.rows for file in files) // (4 * context.defaultParallelism))
    groups = group_files_by_rows(files, task_rows)
    tasks = [IndexTask(reading, grid, paths, task_memory_mb(spark)) for paths in groups]
    index_files = partial(run_index_task, stores=Stores.from_environment())
    rows = pa.concat_tables(context.parallelize(tasks, len(tasks)).map(index_files).collect())
    require_input_files(files, "extend the arrival index")
    return join_index_rows(files, rows)


def _file_row(file: InputFile, *, is_size_shared: bool) -> dict[str, str | int]:
    """Return the columns that identify a file while it is read, and later in the index."""
    return {
        source.FILE_SIZE: file.size_bytes,
        source.FILE: file_uri(file.path) if is_size_shared else "",
        "path": file.path,
        "size_bytes": file.size_bytes,
        "modified_ms": file.modified_ms,
    }


@contextmanager
def _lock(folder: IndexFolder) -> Iterator[None]:
    """Lock the folder, so that parallel chunks don't read the same files twice. Results don't need the lock."""
    from filelock import FileLock  # executors import this module, and have no such package

    folder.path.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.lock):
        yield
