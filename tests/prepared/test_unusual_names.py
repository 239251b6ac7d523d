"""Columns with any name can be a key, identify a record, and be in an aggregate."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import backstream
from backstream.definition.loader import load_definition
from backstream.runs.home import Home
from backstream.workflow.checks.check_sample import check_sample

AT = datetime(2024, 3, 1, tzinfo=UTC)
NAMES = ("a b", "a-b", "a@b", "[x]", "\u00fc", "select", 'a"b', "a'b", "a{b", "1a", "count(*)", "a,b", "A=b")
"""Names that the result has, too."""
RENAMED = {"c.d": "c_d", "c`e": "c_e", "f. 1": "f_ 1", ".g": "_g"}
DEFINITION = """
name = "orders"
[source]
format = "{format}"
path = "{folder}/data"
event_time = "{time}"
key = {key}
deduplicate_on = {key}
{source}
[window]
kind = "tumbling"
size = "1h"
[aggregates]
n = "count(*)"
{aggregates}
[quality]
verify = 3
missing_ratio = {{ warn = 1.0, fail = 1.0 }}
duplicate_ratio = {{ warn = 1.0, fail = 1.0 }}
[backfill]
engine = "{engine}"
"""


def quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def write_records(folder: Path, format_name: str, names: Sequence[str]) -> str:
    """Write three records, of which two are equal; return the settings of the source."""
    rows: list[Mapping[str, Any]] = [
        {name: f"{position}{number % 2}" for position, name in enumerate(names)} | {"at.s": AT.isoformat()}
        for number in range(3)
    ]
    data = folder / "data"
    data.mkdir()
    columns = ", ".join(f'{json.dumps(name)} = "string"' for name in (*names, "at.s"))
    declared = f"columns = {{ {columns} }}\n"
    if format_name == "json":
        (data / "a.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        return declared
    if format_name == "csv":
        with (data / "a.csv").open("w", newline="") as stream:
            writer = csv.DictWriter(stream, [*names, "at.s"])
            writer.writeheader()
            writer.writerows(rows)
        return declared + """options = { header = "true", escape = '"' }\n"""
    table = pa.Table.from_pylist([*rows]).drop(["at.s"])
    pq.write_table(table.append_column("at.s", pa.array([AT] * 3, pa.timestamp("us", "UTC"))), data / "a.parquet")
    return ""


def write_definition(
    folder: Path, format_name: str, names: Sequence[str], *, are_quoted: bool, **more: str
) -> Path:
    source = write_records(folder, format_name, names) + more.get("source", "")
    key = json.dumps([quoted(name) if are_quoted else name for name in names])
    aggregates = "\n".join(
        f"v{number} = {json.dumps(f'max({quoted(name)})')}" for number, name in enumerate(names)
    )
    text = DEFINITION.format(
        format=format_name,
        folder=folder,
        time="`at.s`",
        key=key,
        source=source,
        aggregates=aggregates,
        engine=more.get("engine", "auto"),
    )
    (folder / "orders.toml").write_text(text)
    return folder / "orders.toml"


CASES = [("json", ""), ("csv", ""), ("parquet", ""), ("parquet", "prepare = true\n")]


@pytest.mark.parametrize("has_dots", [False, True])
@pytest.mark.parametrize(("format_name", "source"), CASES)
def test_each_name_can_be_a_key_and_in_an_aggregate(
    spark: SparkSession, tmp_path: Path, format_name: str, source: str, *, has_dots: bool
) -> None:
    names = [*NAMES, *(RENAMED if has_dots else ())]
    path = write_definition(tmp_path, format_name, names, are_quoted=has_dots, source=source)

    sample = check_sample(spark, path, 100, Home(tmp_path / "home"))

    keys = {RENAMED.get(name, name): f"{position}" for position, name in enumerate(names)}
    assert sample.duplicates == 1
    assert [
        {name: row[name] for name in keys} | {f"v{number}": row[f"v{number}"] for number in range(len(names))}
        for row in sample.rows.to_pylist()
    ] == [
        {name: f"{text}{number}" for name, text in keys.items()}
        | {f"v{position}": f"{position}{number}" for position in range(len(names))}
        for number in range(2)
    ]


@pytest.mark.parametrize("engine", ["auto", "spark"])
@pytest.mark.parametrize("format_name", ["json", "parquet"])
def test_results_with_unusual_names_are_published_and_verified(
    tmp_path: Path, format_name: str, engine: str
) -> None:
    path = write_definition(tmp_path, format_name, [*NAMES, *RENAMED], are_quoted=False, engine=engine)

    backstream.run(path, "2024-03-01", "2024-03-02", home=tmp_path / "home", allow_unsealed=True)

    home = tmp_path / "home"
    rows = backstream.read("orders", home=home).to_pylist()
    assert sorted((row["a b"], row["c_d"], row["n"]) for row in rows) == [("00", "130", 1), ("01", "131", 1)]
    key = {RENAMED.get(name, name): f"{position}1" for position, name in enumerate([*NAMES, *RENAMED])}
    explanation = backstream.explain("orders", "2024-03-01T00:00Z", key, home=home)
    assert explanation.is_confirmed


def test_backticks_around_a_name_are_those_of_sql(tmp_path: Path) -> None:
    path = write_definition(tmp_path, "json", ["a b", "c.d", "c`e"], are_quoted=True)

    assert load_definition(path).source.key == ("a b", "c.d", "c`e")
