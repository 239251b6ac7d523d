"""Real engines beside a published table; each test adds a cell to a matrix of engines and features."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from threading import Timer
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.engines.parts import JARS, UnreachableError, fetch_jar, fetch_python

import backstream
from backstream.variables import CATALOG_VARIABLE, HOME_VARIABLE, NAMESPACE_VARIABLE, WAREHOUSE_VARIABLE

_CELL = "engine and feature"
_LIMIT_S = 150.0
"""The time in which Spark must answer a statement."""
DEFINITION = """\
name = "orders"

[source]
path = "{folder}/orders"
event_time = "at"
key = ["user"]

[window]
kind = "tumbling"
size = "6h"

[aggregates]
n = "count(*)"
total = "sum(amount)"
mean = "avg(score)"
last = "max(at)"
any = "max(flag)"
"""
USERS = (None, "", "café", 'a"b', "a b%2F", "u1", "u2")


@pytest.fixture(scope="session")
def python() -> Path:
    """Return the Python that has the engines, or skip the tests that need one."""
    try:
        return fetch_python()
    except UnreachableError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def jars() -> Sequence[Path]:
    """Return the jars for Spark, or skip the tests that need them."""
    try:
        return [fetch_jar(each) for each in JARS]
    except UnreachableError as error:
        pytest.skip(str(error))


def without_spark() -> dict[str, str]:
    """Return the environment without the Spark of the project, which a test of this process may have started."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}


def write_orders(folder: Path, days: int = 4, count: int = 600) -> None:
    """Write orders of some days from 2024-03-01 on, one file."""
    start = datetime(2024, 3, 1, tzinfo=UTC)
    rows = {
        "at": [start + timedelta(seconds=number * days * 86_400 // count) for number in range(count)],
        "user": [USERS[number % len(USERS)] for number in range(count)],
        "amount": [Decimal(number * 7_919 % 100_000).scaleb(-4) for number in range(count)],
        "score": [float("nan") if number % 50 == 0 else number / 7 for number in range(count)],
        "flag": [number % 3 == 0 for number in range(count)],
    }
    kinds = {"at": pa.timestamp("us", "UTC"), "amount": pa.decimal128(18, 4)}
    folder.mkdir(parents=True, exist_ok=True)
    table = pa.table({name: pa.array(values, kinds.get(name)) for name, values in rows.items()})
    pq.write_table(table, folder / "a.parquet")


@dataclass(frozen=True)
class Orders:
    """A folder with orders and a home in which they are published."""

    folder: Path

    @property
    def home(self) -> Path:
        """The home."""
        return self.folder / "home"

    @property
    def definition(self) -> Path:
        """The definition."""
        return self.folder / "orders.toml"

    def run(self, since: str = "2024-03-01", until: str = "2024-03-05", **options: Any) -> Any:
        """Run a range by processes of this machine."""
        given: dict[str, Any] = {"home": self.home, "runner": "local", "mode": "recompute"} | options
        return backstream.run(self.definition, since, until, allow_unsealed=True, replan=True, **given)

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of backstream, and return what it has printed."""
        environment = os.environ | {HOME_VARIABLE: str(self.home)}
        return subprocess.run(
            [Path(".venv/bin/backstream").resolve(), *arguments],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def settings(self, jars: Sequence[Path]) -> dict[str, str]:
        """Return the settings of Spark that `backstream connect` prints."""
        printed = self.command("connect", "orders", "--engine", "spark").stdout
        options = [line.split('"')[1] for line in printed.splitlines() if line.startswith("  --conf")]
        own = {
            "spark.master": "local[2]",
            "spark.jars": ",".join(map(str, jars)),
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "1g",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "2",
        }
        return own | dict(option.split("=", 1) for option in options)


def publish_orders(folder: Path) -> Orders:
    """Publish four days of orders, and the second one again."""
    write_orders(folder / "orders")
    (folder / "orders.toml").write_text(DEFINITION.replace("{folder}", str(folder)))
    orders = Orders(folder)
    orders.run()
    orders.run("2024-03-02", "2024-03-03")
    return orders


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Orders]:
    """Return published orders of each type; no catalog of the environment is used."""
    with pytest.MonkeyPatch.context() as patch:
        for name in (CATALOG_VARIABLE, NAMESPACE_VARIABLE, WAREHOUSE_VARIABLE):
            patch.delenv(name, raising=False)
        yield publish_orders(tmp_path_factory.mktemp("engines"))


@dataclass
class Spark:
    """A running Spark with Iceberg."""

    process: subprocess.Popen[str]
    version: str = field(default="", init=False)

    def ask(self, sql: str, **settings: str) -> dict[str, Any]:
        """Return the rows or the error of a statement; a value without a type of JSON is its text."""
        return self._send({"sql": sql, "settings": settings})

    def read_stream(self, table: str, checkpoint: Path, **options: str) -> list[tuple[int, list[int]]]:
        """Return the ids that each batch of a streaming query reads until it has read all of a table."""
        named = {name.replace("_", "-"): value for name, value in options.items()}
        answer = self._send({"stream": {"table": table, "checkpoint": str(checkpoint), "options": named}})
        assert "error" not in answer, answer["error"][:2_000]
        return [(number, ids) for number, ids in answer["rows"]]

    def _send(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self.read()

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """Return the rows of a statement that must not fail."""
        answer = self.ask(sql)
        assert "error" not in answer, answer["error"][:2_000]
        return list(answer["rows"])

    def read(self) -> dict[str, Any]:
        """Return the next answer; a statement without an answer ends Spark, so that no test waits for ever."""
        assert self.process.stdout
        limit = Timer(_LIMIT_S, self.process.kill)
        limit.start()
        try:
            for line in self.process.stdout:
                if line.startswith("{"):
                    return dict(json.loads(line))
        finally:
            limit.cancel()
        msg = f"Spark ended with {self.process.wait()}; a statement may take {_LIMIT_S:.0f} s"
        raise AssertionError(msg)


@pytest.fixture(scope="module")
def spark41(python: Path, jars: Sequence[Path], orders: Orders) -> Iterator[Spark]:
    """Return a Spark 4.1 with Iceberg on the catalog of the published table."""
    settings = orders.folder / "spark.json"
    settings.write_text(json.dumps(orders.settings(jars)))
    program = Path(__file__).parent / "spark.py"
    log = (orders.folder / "spark.log").open("w")
    with (
        log,
        subprocess.Popen(
            [python, program, settings],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=without_spark(),
        ) as process,
    ):
        spark = Spark(process)
        spark.version = spark.read()["version"]
        yield spark
        assert process.stdin
        process.stdin.close()


@pytest.fixture
def record(record_property: Callable[[str, object], None]) -> Callable[[str, str, str], None]:
    """Return a function that adds a cell to the matrix: an engine, a feature, and the finding."""
    return lambda engine, feature, found: record_property(_CELL, (engine, feature, found))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the matrix of engines and features."""
    reports = (report for reports in terminalreporter.stats.values() for report in reports)
    cells = {
        tuple(value[:2]): value[2]
        for report in reports
        if getattr(report, "when", "") == "call"
        for name, value in report.user_properties
        if name == _CELL
    }
    if cells:
        terminalreporter.section("engines and features")
        terminalreporter.write_line("| engine | feature | found |\n| --- | --- | --- |")
        for (engine, feature), found in sorted(cells.items()):
            terminalreporter.write_line(f"| {engine} | {feature} | {found} |")
