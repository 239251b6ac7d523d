"""Expressions that are translated into DuckDB's SQL have the values of Spark; others are not translated."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import product
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from backstream.native.expressions import Typed, list_columns, translate

TYPES = {"i": "int", "l": "bigint", "s": "string", "b": "boolean", "t": "timestamp", "d": "double"}
ARROW = {
    "i": pa.int32(),
    "l": pa.int64(),
    "s": pa.string(),
    "b": pa.bool_(),
    "t": pa.timestamp("us", "UTC"),
    "d": pa.float64(),
}
VALUES: dict[str, list[Any]] = {
    "i": [None, 0, -7, 3],
    "l": [None, 2**40, 3],
    "s": [None, "", "x", "X "],
    "b": [None, True, False],
    "t": [None, datetime(1969, 12, 31, 23, 59, 59, 999_500, tzinfo=UTC), datetime(2024, 3, 1, tzinfo=UTC)],
    "d": [None, 0.1, float("nan"), -0.0],
}
TRANSLATED = [
    "b",
    "NOT b",
    "b AND i > 0 OR s = 'x'",
    "i <=> l",
    "i <> 3",
    "d >= 0",
    "s < 'x'",
    "s IN ('x', '')",
    "i IN (0, NULL)",
    "i BETWEEN -7 AND 0",
    "NOT (i BETWEEN 0 AND l)",
    "s IS NULL OR b IS NOT NULL",
    "i + 1",
    "i - l * 2",
    "-i * i",
    "d * i + 0",
    "coalesce(i, l, -1)",
    "nullif(i, 0)",
    "if(b, i, l)",
    "CASE WHEN i > 0 THEN 'more' WHEN i = 0 THEN s END",
    "CAST(i AS bigint) * 3000000000L",
    "unix_millis(t)",
    "timestamp_millis(coalesce(l, unix_millis(t) - 75L))",
    "timestamp_seconds(i)",
    "t >= timestamp_millis(0)",
    "`i` = 3",
]
NOT_TRANSLATED = [
    "i / 2",
    "i % 2",
    "CAST(s AS int)",
    "CAST(l AS int)",
    "upper(s)",
    "s = 3",
    "i = 1.5",
    "unknown",
    "x.i",
    "rand() > 0.5",
    "CASE i WHEN 1 THEN 2 END",
    "s LIKE 'x%'",
    "exists(SELECT 1)",
    "if(i, 1, 2)",
    "((",
]


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a file with records of all combinations of values."""
    rows = [dict(zip(VALUES, row, strict=True)) for row in product(*VALUES.values())]
    path = tmp_path_factory.mktemp("records") / "records.parquet"
    pq.write_table(pa.Table.from_pylist(rows, pa.schema(list(ARROW.items()))), path)
    return str(path)


@pytest.mark.slow
def test_values_are_those_of_spark(spark: SparkSession, records: str) -> None:
    columns = {name: Typed(f'"{name}"', kind) for name, kind in TYPES.items()}
    translated = [translate(text, columns) for text in TRANSLATED]
    assert None not in translated
    expected = spark.read.parquet(records).selectExpr(*(f"{text} AS c{n}" for n, text in enumerate(TRANSLATED)))
    selected = ", ".join(f"{each.sql} AS c{n}" for n, each in enumerate(translated) if each)
    with duckdb.connect() as database:
        database.execute("SET timezone = 'UTC'")
        actual = database.sql(f"SELECT {selected} FROM read_parquet('{records}')").to_arrow_table()  # noqa: S608 - texts of this test

    theirs = expected.toArrow()
    for number, text in enumerate(TRANSLATED):
        mine, its = (_texts(table.column(number)) for table in (actual, theirs))
        assert mine == its, text
    kinds = [field.dataType.simpleString() for field in expected.schema]
    assert [each.type_name for each in translated if each] == kinds


def _texts(column: pa.ChunkedArray) -> list[str]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    return [str(value) for value in column.to_pylist()]


@pytest.mark.parametrize("text", NOT_TRANSLATED)
def test_an_expression_outside_the_common_part_is_not_translated(text: str) -> None:
    columns = {name: Typed(f'"{name}"', kind) for name, kind in TYPES.items()}

    assert translate(text, columns) is None


def test_the_columns_of_an_expression_are_listed() -> None:
    assert sorted(list_columns("if(a > 1, `b c`, 2)")) == ["a", "b c"]
    assert list_columns("((") == []
