"""Staging: results as Parquet files that the lake can adopt as they are, field ids and all.

Each attempt writes into a folder of its own, so what a failed one left is never picked up.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from backstream.core.errors import StorageError
from backstream.core.manifest import StagedFile
from backstream.core.plan import Chunk, Plan, PlannedTable
from backstream.core.tables import WINDOWS
from backstream.spark.schemas import conforming

_SPARK_TYPES = {"long": "bigint", "timestamptz": "timestamp"}
_DAY = "staging_day"
_REFUSALS = tuple(os.strerror(code) for code in (errno.ENOSPC, errno.EDQUOT, errno.EROFS))
"""What Java passes on, word for word, of an operating system that does not let it write."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of one chunk of one run; its files share a folder per table."""

    plan: Plan
    chunk_id: str
    attempt: str

    def folder(self, suffix: str) -> Path:
        """Where this attempt stages files of a table."""
        return self.plan.staging(suffix) / f"{self.chunk_id}-{self.attempt}"


def staged(rows: DataFrame, suffix: str, attempt: Attempt) -> tuple[StagedFile, ...]:
    """Write the rows as a planned table wants them, and return the files. Runs a job.

    Raises:
        ContractError: when a column is missing or of another type than planned.
    """
    table = attempt.plan.tables[suffix]
    with_run = rows.withColumn("run_id", F.lit(attempt.plan.run_id))
    ready = with_run.transform(conforming(table.name, {name: kind for name, kind, _, _ in _columns(table)}))
    ready = ready.select(*(F.col(name).alias(name, metadata=meta) for name, _, meta, _ in _columns(table)))
    folder = attempt.folder(suffix)
    if table.day_column:
        # One file holds one day, the lake's partition; `rebalance` keeps a day together unless it is large.
        days = ready.withColumn(_DAY, F.to_date(table.day_column)).hint("rebalance", _DAY)
        days.write.partitionBy(_DAY).parquet(str(folder))
    else:
        ready.hint("rebalance").write.parquet(str(folder))
    return _files(folder)


@contextmanager
def writable(spark: SparkSession, plan: Plan, chunk: Chunk) -> Iterator[None]:
    """What a disk refuses while a chunk is run, said without Java's traces.

    Raises:
        StorageError: naming the folders that Spark writes to.
    """
    try:
        yield
    except Exception as error:
        said = next((reason for reason in _REFUSALS if reason in str(error)), None)
        if said is None:
            raise
        scratch = (spark.conf.get("spark.local.dir", None) or os.environ.get("TMPDIR")) or "/tmp"  # noqa: S108 - as Spark does
        msg = (
            f"could not run chunk {chunk.chunk_id} of {plan.run_id}: {said}\n"
            f"  it stages files in {plan.staging(WINDOWS)}, and beside it\n"
            f"  Spark keeps scratch files in {scratch}\n\n"
            "hint: once there is room, run the same again: what was finished is kept"
        )
        raise StorageError(msg) from error


def _columns(table: PlannedTable) -> Sequence[tuple[str, DataType, dict[str, int], bool]]:
    return [
        (name, spark_type(kind), {"parquet.field.id": field_id}, required)
        for name, kind, field_id, required in table.columns
    ]


def spark_type(kind: str) -> DataType:
    """The Spark type of an Iceberg type's name."""
    plain = re.sub(r"\s", "", kind)
    ddl = f"c {_SPARK_TYPES.get(plain, plain)}"
    return cast("StructType", StructType.fromDDL(ddl)).fields[0].dataType


def _files(folder: Path) -> tuple[StagedFile, ...]:
    """What was written, from the footers; Spark writes one empty file for no rows, which is left out."""
    found = [
        StagedFile(str(path), path.stat().st_size, pq.read_metadata(path).num_rows)
        for path in sorted(folder.rglob("*.parquet"))
    ]
    return tuple(file for file in found if file.rows)
