"""A column with several types in the files gets one type, or the files are refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyspark.sql import SparkSession

import backstream
from backstream.definition.prepared_columns import MALFORMED_RECORD, REASON
from backstream.errors import PlanError
from backstream.runs.home import Home
from backstream.workflow.inputs.prepare import prepare_source
from backstream.workflow.runners import SparkRunner

AT = datetime(2024, 3, 1, tzinfo=UTC)
BIG = 2**53 + 1
_File = tuple[pa.DataType, list[Any]]
DEFINITION = """
name = "orders"
[source]
format = "{format}"
path = "{folder}/data"
event_time = "{event_time}"
prepare = true
{source}
[window]
kind = "tumbling"
size = "1h"
[aggregates]
values = "max(x)"
[quality]
missing_ratio = {{ warn = 1.0, fail = 1.0 }}
"""
_AVRO = {
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
}


def write(folder: Path, name: str, format_name: str, kind: pa.DataType, values: Sequence[Any]) -> Path:
    path = folder / "data" / f"{name}.{format_name}"
    path.parent.mkdir(exist_ok=True)
    at = [AT.isoformat() for _ in values]
    table = pa.table({"at": pa.array(at), "x": pa.array(values, kind), "unread": pa.array(values, kind)})
    if format_name == "parquet":
        pq.write_table(table, path)
    elif format_name == "orc":
        orc.write_table(table, path)
    else:
        fields = [{"name": "at", "type": "string"}]
        fields += [{"name": column, "type": ["null", _AVRO[kind]]} for column in ("x", "unread")]  # type: ignore[dict-item]
        with path.open("wb") as stream:
            fastavro.writer(stream, {"type": "record", "name": "r", "fields": fields}, table.to_pylist())
    return path


def prepared_values(spark: SparkSession, folder: Path, **parts: str) -> list[Any]:
    """Return the values of a preparation, with the reason in place of the value of an unreadable record."""
    given: Mapping[str, str] = {
        "folder": str(folder),
        "event_time": "at",
        "source": "",
        "format": "parquet",
    } | parts
    (folder / "orders.toml").write_text(DEFINITION.format_map(given))
    prepare_source(folder / "orders.toml", Home(folder / "home"), SparkRunner(lambda: spark))
    files = sorted((folder / "home/prepared").glob("orders/*/batch-*/*.parquet"))
    tables = [pq.read_table(file, columns=["x", REASON]) for file in files]
    rows = [row for table in tables for row in table.to_pylist()]
    return sorted((row[REASON] or row["x"] for row in rows), key=str)


UNITED: Mapping[str, tuple[_File, _File, list[Any]]] = {
    "int and bigint": ((pa.int32(), [1]), (pa.int64(), [BIG]), [1, BIG]),
    "bigint and double": ((pa.int64(), [3, BIG]), (pa.float64(), [0.5]), [0.5, 3.0, MALFORMED_RECORD]),
    "int and float": ((pa.int32(), [7]), (pa.float32(), [0.5]), [0.5, 7.0]),
}


@pytest.mark.parametrize("format_name", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("case", UNITED)
@pytest.mark.parametrize("names", ["ab", "ba"])
def test_numbers_of_several_types_keep_their_values(
    spark: SparkSession, tmp_path: Path, case: str, format_name: str, names: str
) -> None:
    first, second, expected = UNITED[case]
    for name, (kind, values) in zip(names, (first, second), strict=True):
        write(tmp_path, name, format_name, kind, values)

    assert prepared_values(spark, tmp_path, format=format_name) == expected


def test_decimals_of_several_scales_keep_their_values(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, "a", "parquet", pa.decimal128(10, 2), [Decimal("12345678.25")])
    write(tmp_path, "b", "parquet", pa.decimal128(8, 4), [Decimal("0.1234")])
    write(tmp_path, "c", "parquet", pa.int64(), [BIG])

    assert prepared_values(spark, tmp_path) == [Decimal("0.1234"), Decimal("12345678.2500"), Decimal(BIG)]


@pytest.mark.parametrize("format_name", ["parquet", "orc", "avro"])
def test_types_that_do_not_fit_are_refused_with_both_files(
    spark: SparkSession, tmp_path: Path, format_name: str
) -> None:
    first = write(tmp_path, "a", format_name, pa.string(), ["1.50"])
    second = write(tmp_path, "b", format_name, pa.int64(), [BIG])

    with pytest.raises(PlanError) as refused:
        prepared_values(spark, tmp_path, format=format_name)

    assert str(refused.value) == (
        "column 'x' has two types in the files, and no type holds the values of both\n"
        f"  string in {first}\n  bigint in {second}\n\n"
        'hint: declare its type, e.g., columns = { "x" = "string" } in [source]'
    )
    columns = 'columns = {{ x = "{}" }}'
    assert prepared_values(spark, tmp_path, format=format_name, source=columns.format("string")) == [
        "1.50",
        str(BIG),
    ]


def test_a_declared_type_quarantines_what_it_cannot_hold(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, "a", "parquet", pa.string(), ["1.50", "abc", "7", "1.55"])
    write(tmp_path, "b", "parquet", pa.float64(), [2.0, 0.25])

    found = prepared_values(spark, tmp_path, source='columns = { x = "decimal(10,1)" }')

    assert found == [Decimal("1.5"), Decimal("2.0"), Decimal("7.0"), *[MALFORMED_RECORD] * 3]


def test_times_and_dates_are_refused_together(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, "a", "parquet", pa.date32(), [date(2024, 3, 1)])
    write(tmp_path, "b", "parquet", pa.timestamp("ns", "UTC"), [AT])

    with pytest.raises(PlanError, match=r"date in .*\n  timestamp in "):
        prepared_values(spark, tmp_path)
    assert prepared_values(spark, tmp_path, source='columns = { x = "timestamp" }') == [AT, AT]


def test_parquet_files_are_prepared_if_a_column_of_numbers_has_several_types(tmp_path: Path) -> None:
    write(tmp_path, "a", "parquet", pa.int64(), [3, 4])
    write(tmp_path, "b", "parquet", pa.float64(), [0.5, None])
    write(tmp_path, "c", "parquet", pa.null(), [None])
    write(tmp_path, "d", "parquet", pa.string(), [])
    for path in (tmp_path / "data").glob("*.parquet"):
        table = pq.read_table(path)
        pq.write_table(table.set_column(0, "at", pa.array([AT] * len(table), pa.timestamp("us", "UTC"))), path)
    text = DEFINITION.replace("prepare = true\n", "")
    (tmp_path / "orders.toml").write_text(
        text.format(folder=tmp_path, event_time="at", source="", format="parquet")
    )

    result = backstream.run(
        tmp_path / "orders.toml", "2024-03-01", "2024-03-02", home=tmp_path / "home", allow_unsealed=True
    )

    assert result.plan.prepared["read"] == 5
    assert dict(result.plan.columns)["x"] == "double"
