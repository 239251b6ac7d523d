"""Staging: results as Parquet files that the lake can adopt as they are, field ids and all.

Each attempt writes into a folder of its own, so what a failed one left is never picked up.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, IntegerType, StructField, StructType

from backstream.errors import CountError, StorageError
from backstream.eventtime.instants import DAY_MS, utc_datetime
from backstream.native.small_files import SMALL_BYTES, load_columns, split_files
from backstream.native.sql import STAGING_CHUNK, STAGING_DAY
from backstream.runs.manifest import StagedFile
from backstream.runs.parquet_footer import Footer
from backstream.runs.plan import Chunk, Plan, PlannedTable
from backstream.runs.table_schemas import METRICS, PANES, RECORD_COUNT, WINDOWS, pane_count
from backstream.spark.chunk_group import CHUNK
from backstream.spark.counted_writes import TaskWrite, require_visible, write_parquet
from backstream.spark.failures import REFUSALS, unreadable_file_error
from backstream.spark.schemas import conform
from backstream.spark.source import load_files

_SPARK_TYPES = {"long": "bigint", "timestamptz": "timestamp"}
_DAY, _CHUNK = STAGING_DAY, STAGING_CHUNK
_COUNTED = {WINDOWS: RECORD_COUNT, PANES: pane_count("final")}
"""The column of a table that says how many records a row is made of."""
_GROUPED = (WINDOWS, METRICS, PANES)
"""The tables whose rows are groups; those of the others are rows of input files, a few of each."""
_FEW_EVENTS = 100_000
"""So few events are grouped by one task, since Spark puts small tasks together."""
_MANY_EVENTS = 500_000
"""So many events per core make a file of some megabytes, at least."""
FEW_EVENTS = 10_000
"""Of a day: the driver writes its file in less time than Spark needs besides writing the rows."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of some chunks of one run; their files share a folder per table."""

    plan: Plan
    chunks: Sequence[Chunk]
    attempt: str

    def folder(self, suffix: str) -> Path:
        """Where this attempt stages files of a table; named after the first chunk."""
        return self.plan.staging(suffix) / f"{self.chunks[0].chunk_id}-{self.attempt}"

    def only_folder(self, suffix: str) -> Path | None:
        """Where all rows of a table lie within `folder`; None: several chunks or days are told apart there."""
        start_ms, end_ms = self.chunks[0].start_ms, self.chunks[-1].end_ms
        if len(self.chunks) > 1:
            return None
        of_chunk = self.folder(suffix) / f"{_CHUNK}=0"
        if self.plan.tables[suffix].day_column is None:
            return of_chunk
        day_ms = start_ms - start_ms % DAY_MS
        return of_chunk / f"{_DAY}={utc_datetime(day_ms).date()}" if end_ms <= day_ms + DAY_MS else None

    @property
    def has_small_files(self) -> bool:
        """Whether there are several days, each with few events."""
        days = (self.chunks[-1].end_ms - self.chunks[0].start_ms) / DAY_MS
        return days > 1 and sum(chunk.expected_events for chunk in self.chunks) <= days * FEW_EVENTS

    def __str__(self) -> str:
        ids = [chunk.chunk_id for chunk in self.chunks]
        chunks = f"chunk {ids[0]}" if len(ids) == 1 else f"chunks {ids[0]} to {ids[-1]}"
        return f"{chunks} of {self.plan.run_id}"


Staged = dict[int, tuple[StagedFile, ...]]
"""The files of each chunk by its number; none of a chunk without rows."""


def write_staged_files(rows: DataFrame, suffix: str, attempt: Attempt) -> Staged:
    """Write the rows as a planned table wants them, apart by `CHUNK`, and return the files. Runs a job.

    Raises:
        ContractError: when a column is missing or of another type than planned.
        CountError: when the driver does not find each row that a task has written.
    """
    table, folder = attempt.plan.tables[suffix], attempt.folder(suffix)
    with_run = rows.withColumn("run_id", F.lit(attempt.plan.run_id))
    contract = {name: kind for name, kind, _, _ in _columns(table)} | {CHUNK: IntegerType()}
    ready = with_run.transform(conform(table.name, contract))
    named = [F.col(name).alias(name, metadata=meta) for name, _, meta, _ in _columns(table)]
    spark, only, is_small = rows.sparkSession, attempt.only_folder(suffix), False
    names = [_CHUNK, _DAY] if table.day_column else [_CHUNK]
    if only is None:
        apart = [F.col(CHUNK).cast("int").alias(_CHUNK)]
        if table.day_column:
            apart.append(F.to_date(table.day_column).alias(_DAY))  # one file holds one day, the lake's partition
        # What goes into one file is kept together, unless it is large.
        together = ready.select(*named, *apart).hint("rebalance", *names)
        is_small = attempt.has_small_files
        writer = together.sortWithinPartitions(*names).write if is_small else together.write.partitionBy(*names)
    else:
        # All rows go to the same place: they need not be moved or sorted to get there.
        kept = ready.select(*named)
        writer = (kept if suffix in _GROUPED and _is_well_cut(spark, attempt) else kept.hint("rebalance")).write
    written = write_parquet(spark, writer.option("compression", "zstd"), only or folder)
    if is_small:
        with _readable(folder):
            split_files(folder, names)
    return _seen(suffix, attempt, sorted(folder.rglob("*.parquet")), written)


def collect_task_files(suffix: str, attempt: Attempt, paths: Sequence[Path], written: list[TaskWrite]) -> Staged:
    """Return the files that tasks have written themselves into the folders that `staged` would have used.

    Raises:
        CountError: when the driver does not find each row that a task has written.
    """
    return _seen(suffix, attempt, [path for path in paths if path.exists()], written)


def _seen(suffix: str, attempt: Attempt, paths: Sequence[Path], written: list[TaskWrite]) -> Staged:
    table, folder = attempt.plan.tables[suffix], attempt.folder(suffix)
    files = _files(folder, paths, _COUNTED.get(suffix))
    seen = {Path(file.path): file.rows for several in files.values() for file in several}
    require_visible(f"table `{table.name}`", folder, written, seen)
    return files


def _is_well_cut(spark: SparkSession, attempt: Attempt) -> bool:
    """Whether the tasks that group events write files of a good size: one for few events, large ones for many."""
    events = sum(chunk.expected_events for chunk in attempt.chunks)
    return events < _FEW_EVENTS or events >= _MANY_EVENTS * spark.sparkContext.defaultParallelism


def load_staged_rows(spark: SparkSession, plan: Plan, suffix: str, files: Staged) -> DataFrame | None:
    """The rows that were staged for a table, with the times of their windows in ms; None: there are none."""
    paths = [file.path for several in files.values() for file in several]
    if not paths:
        return None
    schema = StructType([StructField(name, kind) for name, kind, _, _ in _columns(plan.tables[suffix])])
    rows = load_files(spark, paths, schema)
    return rows.withColumns({f"{name}_ms": F.unix_millis(name) for name in ("window_start", "window_end")})


@contextmanager
def explain_write_errors(spark: SparkSession, attempt: Attempt) -> Iterator[None]:
    """What a disk refuses while chunks are run, or a file that cannot be read, said without Java's traces.

    Raises:
        StorageError: naming the folders that Spark writes to.
        ContractError: naming the input file that cannot be read.
    """
    try:
        yield
    except Exception as error:
        said = next((reason for reason in REFUSALS if reason in str(error)), None)
        if said is None:
            if unreadable := unreadable_file_error(str(error), attempt.plan):
                raise unreadable from None
            raise
        plan = attempt.plan
        scratch = (spark.conf.get("spark.local.dir", None) or os.environ.get("TMPDIR")) or "/tmp"  # noqa: S108 - as Spark does
        msg = (
            f"could not run {attempt}: {said}\n"
            f"  it stages files in {plan.staging(WINDOWS)}, and beside it\n"
            f"  Spark keeps scratch files in {scratch}\n\n"
            "hint: once there is room, run the same again: what was finished is kept"
        )
        raise StorageError(msg) from error


def _columns(table: PlannedTable) -> Sequence[tuple[str, DataType, dict[str, int], bool]]:
    return [
        (name, spark_type_of_name(kind), {"parquet.field.id": field_id}, required)
        for name, kind, field_id, required in table.columns
    ]


def spark_type_of_name(kind: str) -> DataType:
    """The Spark type of an Iceberg type's name."""
    plain = re.sub(r"\s", "", kind)
    ddl = f"c {_SPARK_TYPES.get(plain, plain)}"
    return cast("StructType", StructType.fromDDL(ddl)).fields[0].dataType


def _files(folder: Path, paths: Sequence[Path], counted: str | None) -> Staged:
    """What was written, from the footers; Spark writes one empty file for no rows, which is left out.

    Args:
        folder: where to.
        paths: the files.
        counted: the column that says how many records a row is made of; None: the table has none.

    Raises:
        CountError: naming the first file that cannot be read.
    """
    found: Staged = {}
    for path in paths:
        with _readable(path):
            file = _described(path, counted)
        if file.rows:
            number = int(path.relative_to(folder).parts[0].removeprefix(f"{_CHUNK}="))
            found[number] = (*found.get(number, ()), file)
    return found


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # Arrow's own errors are among these
        msg = f"a file that was just written cannot be read: {error}\n  {path}\n\nhint: run the same again"
        raise CountError(msg) from error


def _described(path: Path, counted: str | None) -> StagedFile:
    with open(path, "rb") as opened:  # noqa: PTH123 - of thousands of files; a `Path` takes as long as reading
        content = opened.read(SMALL_BYTES + 1)
    if len(content) <= SMALL_BYTES:  # read once: the footer is the larger part of most files
        footer, file = Footer.from_content(content), pq.ParquetFile(pa.BufferReader(content))
        rows = file.metadata.num_rows
        values = file.read([counted], use_threads=False) if counted and rows else None
    else:
        footer = Footer.from_file(path)
        rows = pq.read_metadata(pa.BufferReader(footer.content)).num_rows
        values = load_columns(path, [counted]) if counted and rows else None
    records = pc.sum(values[counted]).as_py() or 0 if values else 0
    return StagedFile(str(path), footer.size_bytes, rows, records, footer.digest)
