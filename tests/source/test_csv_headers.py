"""Columns of CSV files are found by the names in the header of each file."""

from __future__ import annotations

import gzip
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from backstream.chunks.preparation.settings import Preparation
from backstream.definition.loader import load_definition, resolve_raw_paths
from backstream.errors import BackstreamError
from backstream.runs.home import Home
from backstream.spark.preparation.prepare import prepare_files

DEFINITION = """
name = "orders"
[source]
path = "data"
format = "csv"
event_time = "at"
key = ["user"]
options = { header = "true", sep = ";" }
[source.columns]
amount = "double"
at = "string"
user = "string"
note = "string"
[window]
kind = "tumbling"
size = "1h"
[aggregates]
revenue = "sum(amount)"
last_note = "max(note)"
"""


def write_files(folder: Path) -> list[dict[str, object]]:
    """Write two files with other columns in another order, and return their rows."""
    rows: list[dict[str, object]] = [
        {"id": n, "user": "ab"[n % 2], "at": f"2026-01-01T0{n}:00:00Z", "amount": n * 1.5} for n in range(5)
    ]
    folder.mkdir()
    pd.DataFrame(rows).to_csv(folder / "a.csv", index=False, sep=";")
    renamed = [{"amount": row["amount"], "text": "x;y", "at": row["at"], "User": row["user"]} for row in rows]
    (folder / "b.csv.gz").write_bytes(gzip.compress(pd.DataFrame(renamed).to_csv(index=False, sep=";").encode()))
    return rows


def test_files_with_other_columns_in_another_order_have_the_same_values(
    tmp_path: Path, spark: SparkSession
) -> None:
    rows = write_files(tmp_path / "data")
    (tmp_path / "orders.toml").write_text(DEFINITION.replace('"data"', f'"{tmp_path}/data"'))
    definition = resolve_raw_paths(load_definition(tmp_path / "orders.toml"), Home(tmp_path / "home"))
    paths = [str(tmp_path / "data" / name) for name in ("a.csv", "b.csv.gz")]

    counts, _ = prepare_files(spark, Preparation(definition, "here"), paths, tmp_path / "prepared")

    assert (counts.read, counts.unreadable) == (10, 0)
    found = pq.read_table(tmp_path / "prepared", columns=["user", "amount", "note"]).to_pylist()
    expected = [{"user": row["user"], "amount": row["amount"], "note": None} for row in rows * 2]
    assert sorted(found, key=str) == sorted(expected, key=str)


def test_a_file_without_a_header_among_others_is_refused_because_its_first_record_would_be_lost(
    tmp_path: Path, spark: SparkSession
) -> None:
    write_files(tmp_path / "data")
    (tmp_path / "data/c.csv").write_text("7;a;2026-01-01T07:00:00Z;1.5\n8;b;2026-01-01T08:00:00Z;2.5\n")
    (tmp_path / "orders.toml").write_text(DEFINITION.replace('"data"', f'"{tmp_path}/data"'))
    definition = resolve_raw_paths(load_definition(tmp_path / "orders.toml"), Home(tmp_path / "home"))
    paths = [str(tmp_path / "data" / name) for name in ("a.csv", "c.csv")]

    with pytest.raises(BackstreamError) as raised:
        prepare_files(spark, Preparation(definition, "here"), paths, tmp_path / "prepared")

    assert str(raised.value).startswith(
        f"cannot read input file {tmp_path}/data/c.csv: its first line has no name of a column in source.columns:"
        " '7,a,2026-01-01T07:00:00Z,1.5'; add the line with the names (here, source.path)"
    )
