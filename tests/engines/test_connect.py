"""Each text of `backstream connect` reads the published rows in its engine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.engines.conftest import Orders, without_spark

pytestmark = pytest.mark.engines
Record = Callable[[str, str, str], None]


@pytest.fixture(scope="module")
def sums(orders: Orders) -> tuple[int, int]:
    """Return the number of published rows and the sum of `n`."""
    rows = read_by(orders, "pyiceberg").to_pylist()
    assert sum(row["n"] for row in rows) == 600
    return len(rows), sum(row["n"] for row in rows)


def read_by(orders: Orders, engine: str) -> Any:
    names: dict[str, Any] = {}
    printed = orders.command("connect", "orders", "--engine", engine)
    assert printed.returncode == 0, printed.stderr
    exec(printed.stdout, names)  # noqa: S102 - our own text
    return names["rows"]


@pytest.mark.filterwarnings("ignore:Iceberg scan planning with the polars_iceberg plugin")
@pytest.mark.parametrize("engine", ["polars", "duckdb", "pyiceberg"])
def test_python_reads_what_the_text_loads(
    engine: str, orders: Orders, sums: tuple[int, int], record: Record
) -> None:
    rows = read_by(orders, engine)

    table = rows if engine == "pyiceberg" else rows.to_arrow() if engine == "polars" else rows.to_arrow_table()
    found = (table.num_rows, sum(table["n"].to_pylist()))
    assert found == sums
    record(engine, "connect", f"{found[0]:,} rows, sums equal")


def test_clickhouse_reads_by_the_text(python: Path, orders: Orders, sums: tuple[int, int], record: Record) -> None:
    text = orders.command("connect", "orders", "--engine", "clickhouse").stdout
    source = text.partition("SELECT * FROM ")[2]
    code = "import sys, chdb; print(chdb.query('SELECT count(*), sum(n) FROM ' + sys.argv[1], 'CSV'))"
    ended = subprocess.run([python, "-c", code, source], cwd="/", capture_output=True, text=True, check=False)
    assert ended.stdout.strip() == f"{sums[0]},{sums[1]}", ended.stderr
    record("clickhouse", "connect", f"{sums[0]:,} rows, sums equal")


def test_spark_reads_and_maintains_by_the_text(
    python: Path, jars: Sequence[Path], orders: Orders, sums: tuple[int, int], record: Record
) -> None:
    command, _, statements = orders.command("connect", "orders", "--engine", "spark").stdout.partition("\n\n")
    packages = next(line for line in command.splitlines() if "--packages" in line).removesuffix(" \\")
    assert all(jar.stem in packages.replace(":", "-") for jar in jars)
    counted = statements.replace("SELECT *", "SELECT count(*), sum(n)").replace("\n", " ").replace("'", '"')
    here = f"--jars {','.join(map(str, jars))} --driver-memory 1g --conf spark.ui.enabled=false"
    shell = command.replace(packages.strip(), here) + f" -e '{counted}'"
    path = f"{python.parent}:{os.environ['PATH']}"
    ended = subprocess.run(
        ["bash", "-c", shell], env=without_spark() | {"PATH": path}, capture_output=True, text=True, check=False
    )
    assert f"{sums[0]}\t{sums[1]}\n" in ended.stdout, ended.stderr
    assert "ERROR" not in ended.stdout + ended.stderr
    record("spark", "connect", f"{sums[0]:,} rows, sums equal; its procedure ran")


def test_trino_is_told_which_catalogs_it_can_open(orders: Orders) -> None:
    refused = orders.command("connect", "orders", "--engine", "trino")
    assert refused.returncode == 1
    assert "it has no driver for SQLite\n\nhint: set BACKSTREAM_CATALOG_URI" in refused.stderr
