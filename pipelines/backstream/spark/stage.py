"""Staging: results as Parquet files that the lake can adopt as they are, field ids and all.

Each attempt writes into a folder of its own, so what a failed one left is never picked up.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from backstream.core.manifest import StagedFile
from backstream.core.plan import PlannedTable
from backstream.spark.schemas import conforming

_SPARK_TYPES = {"long": "bigint", "timestamptz": "timestamp"}
_DAY = "staging_day"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of one chunk of one run; its files share a folder per table."""

    run_id: str
    chunk_id: str
    attempt: str

    def folder(self, table: PlannedTable) -> str:
        """Where this attempt stages files of a table."""
        return f"{table.location}/data/{self.run_id}/{self.chunk_id}-{self.attempt}"


def staged(rows: DataFrame, table: PlannedTable, attempt: Attempt) -> tuple[StagedFile, ...]:
    """Write the rows as the planned table wants them, and return the files. Runs a job.

    Raises:
        ContractError: when a column is missing or of another type than planned.
    """
    with_run = rows.withColumn("run_id", F.lit(attempt.run_id))
    ready = with_run.transform(conforming(table.name, {name: kind for name, kind, _, _ in _columns(table)}))
    ready = ready.select(*(F.col(name).alias(name, metadata=meta) for name, _, meta, _ in _columns(table)))
    folder = attempt.folder(table)
    if table.day_column:
        # One file holds one day, the lake's partition; `rebalance` keeps a day together unless it is large.
        days = ready.withColumn(_DAY, F.to_date(table.day_column)).hint("rebalance", _DAY)
        days.write.partitionBy(_DAY).parquet(folder)
    else:
        ready.hint("rebalance").write.parquet(folder)
    return _files(Path(folder))


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
