"""Stage results as Parquet files that an Iceberg table can adopt unchanged, with field ids.

Each attempt writes into its own folder, so files of a failed attempt are never used.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
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

from backstream.definition.aggregates import spark_type_name
from backstream.errors import CountError, StorageError
from backstream.eventtime.instants import DAY_MS, utc_datetime
from backstream.native.element_ids import add_element_ids
from backstream.native.small_files import SMALL_BYTES, load_columns, split_files
from backstream.native.sql import STAGING_CHUNK, STAGING_DAY
from backstream.runs.manifest import StagedFile
from backstream.runs.parquet_footer import Footer
from backstream.runs.plan import Chunk, Plan, PlannedTable
from backstream.runs.table_schemas import (
    METRICS,
    PANES,
    RECORD_COUNT,
    SKIPPED,
    WINDOWS,
    WITHHELD,
    pane_count_column,
)
from backstream.spark.chunk_group import CHUNK
from backstream.spark.counted_writes import TaskWrite, require_visible, write_parquet
from backstream.spark.failures import REFUSALS, unreadable_file_error
from backstream.spark.schemas import Step, conform
from backstream.spark.session import ship_package
from backstream.spark.source import load_files

_DAY, _CHUNK = STAGING_DAY, STAGING_CHUNK
_COUNTED = {
    WINDOWS: RECORD_COUNT,
    WITHHELD: RECORD_COUNT,
    PANES: pane_count_column("final"),
    SKIPPED: pane_count_column("final"),
}
"""The column of a table with the number of records of a row."""
_GROUPED = (WINDOWS, METRICS, PANES, WITHHELD)
"""The tables with aggregated rows; the other tables have a few rows of input files."""
_MAX_EVENTS_OF_ONE_TASK = 100_000
"""Up to this number of events, one task groups them, since Spark coalesces small tasks."""
_MANY_EVENTS = 500_000
"""From this number of events per core, files have some megabytes."""
_MAX_EVENTS_OF_SMALL_DAY = 10_000
"""The largest number of events of a day whose file the driver splits off; this is faster than a Spark write."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to run a chunk group; its files are in one folder per table."""

    plan: Plan
    chunks: Sequence[Chunk]
    attempt: str
    is_unfinished: bool = False
    """True if rows of windows and panes have no derived columns yet, so that their files are not staged."""

    def folder(self, suffix: str) -> Path:
        """Return the folder for the files of a table; its name has the first chunk."""
        if self.is_unfinished and suffix in (WINDOWS, PANES):
            return self.scratch / "unfinished" / (suffix or "windows")
        return self._staging(suffix)

    @property
    def scratch(self) -> Path:
        """The folder of files that the driver and the tasks exchange."""
        return self._staging(WINDOWS).with_suffix(".scratch")

    def _staging(self, suffix: str) -> Path:
        return self.plan.staging(suffix) / f"{self.chunks[0].chunk_id}-{self.attempt}"

    def columns(self, suffix: str) -> Sequence[tuple[str, str, int, bool]]:
        """Return name, type, field id, and necessity of the columns that a table has now."""
        derived = self.plan.definition.get("derive_after", {}) if self.is_unfinished else {}
        return [
            column for column in self.plan.tables[suffix].columns if column[0].partition("__")[0] not in derived
        ]

    def only_folder(self, suffix: str) -> Path | None:
        """Return the only subfolder for the rows of a table; None if they are split by chunk or day."""
        start_ms, end_ms = self.chunks[0].start_ms, self.chunks[-1].end_ms
        if len(self.chunks) > 1:
            return None
        chunk_folder = self.folder(suffix) / f"{_CHUNK}=0"
        if self.plan.tables[suffix].day_column is None:
            return chunk_folder
        day_ms = start_ms - start_ms % DAY_MS
        return chunk_folder / f"{_DAY}={utc_datetime(day_ms).date()}" if end_ms <= day_ms + DAY_MS else None

    @property
    def has_small_files(self) -> bool:
        """True if the chunks span several days with few events each."""
        days = (self.chunks[-1].end_ms - self.chunks[0].start_ms) / DAY_MS
        return days > 1 and sum(chunk.expected_events for chunk in self.chunks) <= days * _MAX_EVENTS_OF_SMALL_DAY

    def __str__(self) -> str:
        ids = [chunk.chunk_id for chunk in self.chunks]
        chunks = f"chunk {ids[0]}" if len(ids) == 1 else f"chunks {ids[0]} to {ids[-1]}"
        return f"{chunks} of {self.plan.run_id}"


Staged = dict[int, tuple[StagedFile, ...]]
"""The files by chunk number; a chunk without rows has no entry."""


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
        written = write_parquet(spark, writer.option("compression", "zstd"), only_folder)
        return _list_staged_files(suffix, attempt, _add_element_ids(spark, suffix, attempt), written)
    names = [_CHUNK, _DAY] if table.day_column else [_CHUNK]
    split_columns = [F.col(CHUNK).cast("int").alias(_CHUNK)]
    if table.day_column:
        # One file has one day, the table partition.
        split_columns.append(F.to_date(table.day_column).alias(_DAY))
    # The rows of a file go to one task, unless the file is large.
    balanced = checked.select(*columns, *split_columns).hint("rebalance", *names)
    is_small = attempt.has_small_files
    writer = balanced.sortWithinPartitions(*names).write if is_small else balanced.write.partitionBy(*names)
    written = write_parquet(spark, writer.option("compression", "zstd"), folder)
    if is_small:
        with _explain_read_errors(folder):
            split_files(folder, names)
    return _list_staged_files(suffix, attempt, _add_element_ids(spark, suffix, attempt), written)


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


def collect_task_files(suffix: str, attempt: Attempt, paths: Sequence[Path], written: list[TaskWrite]) -> Staged:
    """Return the files that native tasks have written into the folders of `write_staged_files`.

    Raises:
        CountError: when the driver doesn't find every row that a task has written.
    """
    return _list_staged_files(suffix, attempt, [path for path in paths if path.exists()], written)


def _list_staged_files(suffix: str, attempt: Attempt, paths: Sequence[Path], written: list[TaskWrite]) -> Staged:
    table, folder = attempt.plan.tables[suffix], attempt.folder(suffix)
    files = _read_footers(folder, paths, _COUNTED.get(suffix))
    seen = {Path(file.path): file.rows for of_chunk in files.values() for file in of_chunk}
    require_visible(f"table `{table.name}`", folder, written, seen)
    return files


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
def explain_write_errors(spark: SparkSession, attempt: Attempt) -> Iterator[None]:
    """Raise readable errors for disk failures and unreadable files while chunks run, without Java traces.

    Raises:
        StorageError: naming the folders that Spark writes to.
        ContractError: naming the input file that can't be read.
    """
    try:
        yield
    except Exception as error:
        reason = next((reason for reason in REFUSALS if reason in str(error)), None)
        if reason is None:
            if unreadable := unreadable_file_error(str(error), attempt.plan):
                raise unreadable from None
            raise
        plan = attempt.plan
        scratch = (spark.conf.get("spark.local.dir", None) or os.environ.get("TMPDIR")) or "/tmp"  # noqa: S108 - as Spark does
        msg = (
            f"could not run {attempt}: {reason}\n"
            f"  it stages files in {plan.staging(WINDOWS)}, and in folders beside it\n"
            f"  Spark writes temporary files to {scratch}\n\n"
            "hint: free disk space, and run the same command again; finished chunks are kept"
        )
        raise StorageError(msg) from error


def _columns(table: PlannedTable) -> Sequence[tuple[str, DataType, dict[str, int], bool]]:
    return [
        (name, spark_type_of_name(kind), {"parquet.field.id": field_id}, required)
        for name, kind, field_id, required in table.columns
    ]


def spark_type_of_name(kind: str) -> DataType:
    """Return the Spark type for the name of an Iceberg type."""
    ddl = f"c {spark_type_name(kind.replace(' ', ''))}"
    return cast("StructType", StructType.fromDDL(ddl)).fields[0].dataType


def _read_footers(folder: Path, paths: Sequence[Path], counted: str | None) -> Staged:
    """Return the written files by chunk number, from their footers.

    Spark writes one empty file if there are no rows; it is left out.

    Args:
        folder: the folder of the attempt.
        paths: the files.
        counted: the column with the number of records of a row; None if the table has none.

    Raises:
        CountError: naming the first file that can't be read.
    """
    files: Staged = {}
    for path in paths:
        with _explain_read_errors(path):
            file = _read_footer(path, counted)
        if file.rows:
            number = int(path.relative_to(folder).parts[0].removeprefix(f"{_CHUNK}="))
            files[number] = (*files.get(number, ()), file)
    return files


@contextmanager
def _explain_read_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # these include the errors of Arrow
        msg = f"a file that was just written cannot be read: {error}\n  {path}\n\nhint: run the same command again"
        raise CountError(msg) from error


def _read_footer(path: Path, counted: str | None) -> StagedFile:
    with open(path, "rb") as opened:  # noqa: PTH123 - for thousands of files `Path` is too slow
        content = opened.read(SMALL_BYTES + 1)
    if len(content) <= SMALL_BYTES:  # the footer is most of a small file, so it is read once
        footer, file = Footer.from_content(content), pq.ParquetFile(pa.BufferReader(content))
        rows = file.metadata.num_rows
        values = file.read([counted], use_threads=False) if counted and rows else None
    else:
        footer = Footer.from_file(path)
        rows = pq.read_metadata(pa.BufferReader(footer.content)).num_rows
        values = load_columns(path, [counted]) if counted and rows else None
    records = pc.sum(values[counted]).as_py() or 0 if values else 0
    return StagedFile(str(path), footer.size_bytes, rows, records, footer.digest)
