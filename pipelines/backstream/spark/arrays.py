"""Small tables as arrays that a plan holds once, to be looked into by position: no join, no exchange."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import Column, SparkSession


def as_arrays(spark: SparkSession, columns: Mapping[str, pa.Array]) -> dict[str, Column]:
    """Each column as one array value, for `F.get`: the one row of a scalar subquery."""
    wrapped = {name: _one_row(values) for name, values in columns.items()}
    row = spark.createDataFrame(pa.table(wrapped)).coalesce(1)
    return {name: row.select(name).scalar() for name in columns}


def _one_row(values: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
