"""Test PySpark with Arrow tables of several batches."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import SparkSession


def test_rows_behind_an_empty_chunk_survive_only_when_chunks_are_combined(spark: SparkSession) -> None:
    """Explain why `conformance` combines batches. If this fails, PySpark has fixed it, and the line can go."""
    pieces = [pa.table({"number": pa.array(values, pa.int64())}) for values in ([1], [], [2])]
    table = pa.concat_tables(pieces)

    assert spark.createDataFrame(table).toArrow()["number"].to_pylist() == [1]
    assert spark.createDataFrame(table.combine_chunks()).toArrow()["number"].to_pylist() == [1, 2]
