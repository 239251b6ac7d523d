"""A number that an integer type cannot hold makes its record malformed, in each text format and on each engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from backstream.definition.prepared_columns import REASON
from backstream.runs.home import Home
from backstream.workflow.inputs.prepare import prepare_source
from backstream.workflow.runners import SparkRunner

BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
DEFINITION = """
name = "orders"
[source]
format = "{format}"
path = "{folder}"
event_time = "at"
columns = {{ at = "string", x = "{kind}" }}
{source}
[window]
kind = "tumbling"
size = "1h"
[aggregates]
n = "sum({value})"
[backfill]
engine = "{engine}"
"""


def read_rows(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.ParquetFile(path).read().to_pylist()
    return rows


def read_back(spark: SparkSession, folder: Path, **parts: str) -> list[tuple[int | None, str | None]]:
    """Return the value and the reason of each record that is prepared from the files in a folder."""
    given = {"kind": "", "source": "", "value": "x", "folder": str(folder)} | parts
    path = folder.parent / f"{parts['format']}-{parts['engine']}.toml"
    path.write_text(DEFINITION.format_map(given))
    prepared = prepare_source(path, Home(folder.parent / f"{path.stem}-home"), SparkRunner(lambda: spark))
    assert prepared is not None
    assert prepared.inexact == ()
    column = given["value"].replace(".", "_")
    rows = [row for file in (folder.parent / f"{path.stem}-home").rglob("*.parquet") for row in read_rows(file)]
    return sorted(((row.get(column), row.get(REASON)) for row in rows), key=str)


@pytest.mark.parametrize("kind", BITS)
@pytest.mark.parametrize("text_format", ["json", "csv"])
def test_integers_beyond_their_type_are_malformed(
    spark: SparkSession, tmp_path: Path, kind: str, text_format: str
) -> None:
    least, most = -(2 ** (BITS[kind] - 1)), 2 ** (BITS[kind] - 1) - 1
    numbers = [least, most, 0, least - 1, most + 1, 2 * most + 1, 2 * most + 2]
    (tmp_path / "data").mkdir()
    if text_format == "json":
        lines = [f'{{"at": "2024-03-01T00:00:0{at}Z", "x": {number}}}' for at, number in enumerate(numbers)]
    else:
        lines = ["at,x", *(f"2024-03-01T00:00:0{at}Z,{number}" for at, number in enumerate(numbers))]
    (tmp_path / "data" / f"a.{text_format}").write_text("\n".join(lines) + "\n")
    source = 'options = { header = "true" }' if text_format == "csv" else ""

    for engine in ("auto", "spark"):
        rows = read_back(spark, tmp_path / "data", format=text_format, engine=engine, source=source, kind=kind)

        assert rows == sorted([*((n, None) for n in (least, most, 0)), *[(None, "malformed_record")] * 4], key=str)


def test_tinyint_in_fields_lists_and_maps(spark: SparkSession, tmp_path: Path) -> None:
    at = '"at": "2024-03-01T00:00:00Z"'
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.json").write_text(
        f'{{{at}, "x": {{"a": 127, "b": [null, -128], "c": {{"k": 1}}}}}}\n'
        f'{{{at}, "x": {{"a": 128}}}}\n'
        f'{{{at}, "x": {{"a": 1, "b": [1, -129]}}}}\n'
        f'{{{at}, "x": {{"a": 1, "c": {{"k": 255}}}}}}\n'
    )
    for engine in ("auto", "spark"):
        kind = "struct<a: tinyint, b: array<tinyint>, c: map<string, tinyint>>"
        rows = read_back(spark, tmp_path / "data", format="json", engine=engine, kind=kind, value="x.a")

        assert [value for value, reason in rows if reason is None] == [127]
        assert [reason for _, reason in rows if reason is not None] == ["malformed_record"] * 3
