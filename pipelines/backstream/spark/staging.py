"""Stage results as Parquet files that an Iceberg table can adopt unchanged, with field ids."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    IntegerType,
    ShortType,
    StructField,
    StructType,
)

from backstream.chunks.attempt import Attempt
from backstream.chunks.native_engine import find_refusal, refused_write_error
from backstream.chunks.staged import Staged, explain_read_errors, list_staged_files
from backstream.definition.columns import spark_type_name
from backstream.native.small_files import split_files
from backstream.native.sql import STAGING_CHUNK, STAGING_DAY
from backstream.native.staged_files import add_element_ids
from backstream.runs.plan import PlannedTable
from backstream.runs.table_schemas import METRICS, PANES, WINDOWS, WITHHELD
from backstream.spark.chunk_group import CHUNK
from backstream.spark.counted_writes import write_parquet
from backstream.spark.failures import (
    EXPRESSION_ERRORS,
    expression_error,
    unreadable_file_error,
)
from backstream.spark.schemas import Step, conform, parse_type
from backstream.spark.session import ship_package
from backstream.spark.source import load_files

_DAY, _CHUNK = STAGING_DAY, STAGING_CHUNK
_GROUPED = (WINDOWS, METRICS, PANES, WITHHELD)
"""The tables with aggregated rows; the other tables have a few rows of input files."""
_MAX_EVENTS_OF_ONE_TASK = 100_000
"""Up to this number of events, one task groups them, since Spark coalesces small tasks."""
_MANY_EVENTS = 500_000
"""From this number of events per core, files have some megabytes."""


def write_staged_files(rows: DataFrame, suffix: str, attempt: Attempt) -> Staged:
    """Write the rows with the schema of a planned table, split by `CHUNK`, and return the files. Runs a job.

    Raises:
        ContractError: when a column is missing or has another type than planned.
        CountError: when the driver doesn't find every row that a task has written.
    """
    table, folder = attempt.plan.tables[suffix], attempt.folder(suffix)
    with_run = rows.withColumn("run_id", F.lit(attempt.plan.run_id))
    contract = {name: kind for name, kind, _, _ in _columns(table)} | {CHUNK: IntegerType()}
    checked = with_run.transform(_fit_types(contract)).transform(conform(table.name, contract))
    columns = [F.col(name).alias(name, metadata=meta) for name, _, meta, _ in _columns(table)]
    spark, only_folder = rows.sparkSession, attempt.only_folder(suffix)
    if only_folder is not None:
        # All rows go to the same folder, so they need no shuffle or sort.
        result = checked.select(*columns)
        has_good_size = suffix in _GROUPED and _has_good_file_size(spark, attempt)
        writer = (result if has_good_size else result.hint("rebalance")).write
        written = write_parquet(spark, writer, only_folder)
        return list_staged_files(suffix, attempt, _add_element_ids(spark, suffix, attempt), written)
    names = [_CHUNK, _DAY] if table.day_column else [_CHUNK]
    split_columns = [F.col(CHUNK).cast("int").alias(_CHUNK)]
    if table.day_column:
        # One file has one day, the table partition.
        split_columns.append(F.to_date(table.day_column).alias(_DAY))
    # The rows of a file go to one task, unless the file is large.
    balanced = checked.select(*columns, *split_columns).hint("rebalance", *names)
    is_small = attempt.has_small_files
    writer = balanced.sortWithinPartitions(*names).write if is_small else balanced.write.partitionBy(*names)
    written = write_parquet(spark, writer, folder)
    if is_small:
        with explain_read_errors(folder):
            split_files(folder, names)
    return list_staged_files(suffix, attempt, _add_element_ids(spark, suffix, attempt), written)


def _add_element_ids(spark: SparkSession, suffix: str, attempt: Attempt) -> list[Path]:
    """Return the files of an attempt, after their list columns have the field ids of elements. Runs a job."""
    paths, ids = sorted(attempt.folder(suffix).rglob("*.parquet")), attempt.plan.element_ids.get(suffix)
    if ids and paths:
        ship_package(spark.sparkContext)
        tasks = min(len(paths), spark.sparkContext.defaultParallelism)
        spark.sparkContext.parallelize(list(map(str, paths)), tasks).foreach(
            partial(add_element_ids, ids=dict(ids))
        )
    return paths


_NARROW = (ByteType(), ShortType())


def _fit_types(contract: Mapping[str, DataType]) -> Step:
    """Widen integers that Iceberg doesn't have, and let the elements of lists be null, as Iceberg's may be."""

    def step(rows: DataFrame) -> DataFrame:
        types = {field.name: field.dataType for field in rows.schema.fields}
        casts = {
            name: F.col(name).cast(kind)
            for name, kind in contract.items()
            if name in types and _differs_in_width(types[name], kind)
        }
        return rows.withColumns(casts) if casts else rows

    return step


def _differs_in_width(actual: DataType, wanted: DataType) -> bool:
    if isinstance(actual, ArrayType) and isinstance(wanted, ArrayType) and actual != wanted:
        return actual.elementType == wanted.elementType or _differs_in_width(
            actual.elementType, wanted.elementType
        )
    return actual in _NARROW and wanted == IntegerType()


def _has_good_file_size(spark: SparkSession, attempt: Attempt) -> bool:
    """Return whether the tasks that group events write files of a good size: one small file, or large ones."""
    events = sum(chunk.expected_events for chunk in attempt.chunks)
    return events < _MAX_EVENTS_OF_ONE_TASK or events >= _MANY_EVENTS * spark.sparkContext.defaultParallelism


def load_staged_rows(spark: SparkSession, attempt: Attempt, suffix: str, files: Staged) -> DataFrame | None:
    """Return the rows that an attempt wrote for a table, with their windows in ms; None if there are no rows."""
    paths = [file.path for of_chunk in files.values() for file in of_chunk]
    if not paths:
        return None
    columns = attempt.columns(suffix)
    schema = StructType([StructField(name, spark_type_of_name(kind)) for name, kind, _, _ in columns])
    rows = load_files(spark, paths, schema)
    return rows.withColumns({f"{name}_ms": F.unix_millis(name) for name in ("window_start", "window_end")})


@contextmanager
def explain_job_errors(spark: SparkSession, attempt: Attempt) -> Iterator[None]:
    """Raise readable errors while chunks run, without Java traces.

    Raises:
        StorageError: naming the folders that Spark writes to, if the disk fails.
        ContractError: naming the input file that can't be read.
        SpecError: naming the expression that Spark refuses, or that has no value for a record, e.g., because of an
            overflow.
    """
    try:
        yield
    except Exception as error:
        if refusal := find_refusal(error):
            scratch = (spark.conf.get("spark.local.dir", None) or os.environ.get("TMPDIR")) or "/tmp"  # noqa: S108 - as Spark does
            line = f"  Spark writes temporary files to {scratch}\n"
            raise refused_write_error(attempt, refusal, line) from error
        if unreadable := unreadable_file_error(str(error), attempt.plan):
            raise unreadable from None
        if isinstance(error, (AnalysisException, *EXPRESSION_ERRORS)):
            raise expression_error(error, str(attempt), attempt.plan) from None
        raise


def _columns(table: PlannedTable) -> Sequence[tuple[str, DataType, dict[str, int], bool]]:
    return [
        (name, spark_type_of_name(kind), {"parquet.field.id": field_id}, required)
        for name, kind, field_id, required in table.columns
    ]


def spark_type_of_name(kind: str) -> DataType:
    """Return the Spark type for the name of an Iceberg type."""
    return parse_type(spark_type_name(kind.replace(" ", "")))
