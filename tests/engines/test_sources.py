"""Tables that Spark wrote with each kind of row-level delete and evolution are sources with the right sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.engines.conftest import Orders, Spark

import backstream
from backstream.lake.reader import load_rows
from backstream.runs.home import Home

pytestmark = pytest.mark.engines
Record = Callable[[str, str, str], None]
ROWS = (
    "SELECT id, timestamp '2024-03-01' + make_interval(0, 0, 0, 0, id) AS at, concat('u', id % 5) AS user,"
    " cast(id AS decimal(9, 2)) AS amount FROM range({first}, {last})"
)
INSERT = f"INSERT INTO {{t}} {ROWS}"
CHANGES = (
    "DELETE FROM {t} WHERE id % 7 = 0",
    "UPDATE {t} SET amount = amount + 1 WHERE id % 5 = 0",
    (
        "MERGE INTO {t} AS t USING (SELECT * FROM {t} WHERE id < 10) AS s ON t.id = s.id"
        " WHEN MATCHED AND t.id < 5 THEN DELETE WHEN MATCHED THEN UPDATE SET amount = 100"
    ),
)
MERGE_ON_READ = ", ".join(f"'write.{each}.mode' = 'merge-on-read'" for each in ("delete", "update", "merge"))
DEFINITION = """\
name = "{name}"

[source]
format = "iceberg"
path = "archive.sales.{name}"
event_time = "at"
key = ["user"]

[window]
kind = "tumbling"
size = "6h"

[aggregates]
n = "count(*)"
total = "sum(amount)"
"""
TABLES = {
    "v1_copy_on_write": ("'format-version' = '1'", CHANGES),
    "v2_positions": (f"'format-version' = '2', {MERGE_ON_READ}", CHANGES),
    "v3_vectors": (f"'format-version' = '3', {MERGE_ON_READ}", CHANGES),
    "columns": (
        "'format-version' = '2'",
        (
            "ALTER TABLE {t} RENAME COLUMN amount TO price",
            "ALTER TABLE {t} ADD COLUMN amount decimal(18, 2) AFTER id",
            "ALTER TABLE {t} DROP COLUMN price",
            "UPDATE {t} SET amount = id",
        ),
    ),
    "partitions": (
        f"'format-version' = '2', {MERGE_ON_READ}",
        (
            "ALTER TABLE {t} ADD PARTITION FIELD days(at)",
            INSERT.format(t="{t}", first=90, last=100),
            "DELETE FROM {t} WHERE id % 9 = 0",
            "ALTER TABLE {t} REPLACE PARTITION FIELD days(at) WITH bucket(4, user)",
            INSERT.format(t="{t}", first=100, last=110),
        ),
    ),
    "orc": ("'format-version' = '2', 'write.format.default' = 'orc'", ()),
}


@pytest.fixture(scope="module")
def archive(orders: Orders, spark41: Spark) -> Spark:
    """Return Spark with a second catalog, in a database of its own."""
    folder = orders.folder / "archive"
    folder.mkdir()
    prefix = "spark.sql.catalog.archive"
    settings = {
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}.type": "jdbc",
        f"{prefix}.uri": f"jdbc:sqlite:{folder}/archive.db",
        f"{prefix}.warehouse": f"file://{folder}/warehouse",
        f"{prefix}.jdbc.schema-version": "V1",
    }
    answer = spark41.ask("CREATE NAMESPACE archive.sales", **settings)
    assert "error" not in answer, answer
    return spark41


@pytest.mark.parametrize("name", TABLES)
def test_the_sums_are_those_of_spark(
    name: str, orders: Orders, archive: Spark, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    (properties, changes), table = TABLES[name], f"archive.sales.{name}"
    definition = _define(orders.folder, name, monkeypatch)
    archive.rows(f"CREATE TABLE {table} TBLPROPERTIES ({properties}) AS {ROWS.format(first=0, last=120)}")
    for statement in changes:
        archive.rows(statement.format(t=table))
    sums = "count(*) AS n, cast(sum(amount) AS string) AS total"
    counted = f"SELECT user, {sums} FROM {table} GROUP BY user ORDER BY user"

    assert _published_sums(orders, definition, name) == [tuple(row.values()) for row in archive.rows(counted)]

    every = "options => map('rewrite-all','true')"
    archive.rows(f"CALL archive.system.rewrite_data_files(table => 'sales.{name}', {every})")
    stale = orders.command("stale", str(definition))
    assert stale.stdout.startswith(f"{name}: none of 5 published days is stale"), stale.stdout + stale.stderr
    [found] = archive.rows(f"SELECT count(*) AS n FROM {table}")
    record(f"spark {archive.version}", f"source: {name}", f"{found['n']} rows, sums equal; compaction: none stale")


def _define(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    for key, value in {"uri": f"sqlite:///{folder}/archive/archive.db", "type": "sql"}.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__ARCHIVE__{key.upper()}", value)
    file = folder / f"{name}.toml"
    file.write_text(DEFINITION.format(name=name))
    return file


def _published_sums(orders: Orders, definition: Path, name: str) -> Sequence[tuple[str, int, str]]:
    days = ("2024-03-01", "2024-03-06")
    backstream.run(
        definition, *days, home=orders.home, runner="local", mode="recompute", allow_unsealed=True, replan=True
    )
    rows = load_rows(Home(orders.home), name).to_pylist()
    users = sorted({row["user"] for row in rows})
    of_user = {user: [row for row in rows if row["user"] == user] for user in users}
    return [
        (user, sum(row["n"] for row in of), str(sum(row["total"] for row in of))) for user, of in of_user.items()
    ]
