"""Spark 4.1 with Iceberg reads and maintains a published table, and writes tables that are sources."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.table import Table
from tests.engines.conftest import Orders, Spark

from backstream.lake.catalog import open_catalog_for_reading
from backstream.lake.catalog_address import table_identifier
from backstream.runs.home import Home

pytestmark = pytest.mark.engines
Record = Callable[[str, str, str], None]
ORDERS = "backstream.backstream.orders"
COUNTS = "count(*) AS rows, sum(n) AS n, cast(sum(total) AS string) AS total"


def load(orders: Orders, name: str) -> Table:
    with open_catalog_for_reading(Home(orders.home)) as catalog:
        return catalog.load_table(table_identifier(name))


def sorted_rows(rows: list[dict[str, Any]]) -> list[str]:
    """Return rows as texts that both sides write the same way."""
    return sorted(json.dumps(row, default=str, sort_keys=True) for row in rows)


def counts(orders: Orders) -> dict[str, Any]:
    """Return what Spark must count, by PyIceberg."""
    rows = load(orders, "orders").scan().to_arrow()
    return {"rows": rows.num_rows, "n": sum(rows["n"].to_pylist()), "total": str(sum(rows["total"].to_pylist()))}


@pytest.mark.parametrize("name", ["orders", "orders__metrics", "orders__quarantine", "runs", "checks"])
def test_all_rows_and_types_are_equal(name: str, orders: Orders, spark41: Spark, record: Record) -> None:
    expected = load(orders, name).scan().to_arrow().to_pylist()

    found = spark41.rows(f"SELECT * FROM backstream.backstream.{name}")

    assert sorted_rows(found) == sorted_rows(expected)
    record(f"spark {spark41.version}", f"rows of {name}", f"{len(found):,} equal")


def test_a_range_a_run_and_the_tables_of_metadata_are_read(orders: Orders, spark41: Spark, record: Record) -> None:
    table = load(orders, "orders")
    days = "window_start >= '2024-03-02' AND window_start < '2024-03-03'"
    [found] = spark41.rows(f"SELECT count(*) AS rows FROM {ORDERS} WHERE {days}")
    condition = "window_start >= '2024-03-02T00:00:00+00:00' and window_start < '2024-03-03T00:00:00+00:00'"
    assert found["rows"] == table.scan(row_filter=condition).to_arrow().num_rows == 28
    record(f"spark {spark41.version}", "range of one day", f"{found['rows']} rows")

    tag = next(name for name in table.refs() if name.startswith("run/"))
    [found] = spark41.rows(f"SELECT count(*) AS rows FROM {ORDERS} VERSION AS OF '{tag}'")
    assert found["rows"] == table.scan(snapshot_id=table.refs()[tag].snapshot_id).to_arrow().num_rows
    assert len(spark41.rows(f"SELECT * FROM {ORDERS}.refs")) == len(table.refs())
    record(f"spark {spark41.version}", "tag of a run", f"{found['rows']} rows, {len(table.refs())} references")


MAINTENANCE = (
    "rewrite_data_files(table => '{t}', options => {all})",
    "rewrite_data_files(table => '{t}', strategy => 'sort', sort_order => 'n DESC', options => {all})",
    "rewrite_data_files(table => '{t}', strategy => 'sort', sort_order => 'zorder(n, last)', options => {all})",
    "rewrite_manifests('{t}')",
    "rewrite_position_delete_files('{t}')",
    "expire_snapshots(table => '{t}', older_than => TIMESTAMP '2100-01-01', retain_last => 1)",
    "remove_orphan_files(table => '{t}', older_than => TIMESTAMP '2024-01-01')",
)


def test_maintenance_changes_no_row_and_takes_no_rollback_away(
    orders: Orders, spark41: Spark, record: Record
) -> None:
    before = counts(orders)
    spark41.rows(f"ALTER TABLE {ORDERS} CREATE BRANCH audit")
    for statement in MAINTENANCE:
        spark41.rows("CALL backstream.system." + statement.format(t=ORDERS, all="map('rewrite-all','true')"))
        [found] = spark41.rows(f"SELECT {COUNTS} FROM {ORDERS}")
        assert found == counts(orders) == before, statement

    vacuum = orders.command("vacuum", "orders", "--grace", "0s")
    assert vacuum.returncode == 0, vacuum.stderr
    assert counts(orders) == before
    stale = orders.command("stale", str(orders.definition))
    assert stale.returncode == 0, stale.stderr
    assert stale.stdout.startswith("orders: none of 4 published days is stale"), stale.stdout
    done = orders.run("2024-03-03", "2024-03-04")
    assert counts(orders) == before
    undone = orders.command("rollback", done.run_id, "--yes", "--reason", "test")
    assert undone.returncode == 0, undone.stderr
    assert counts(orders) == before
    assert "audit" in load(orders, "orders").refs()
    record(
        f"spark {spark41.version}", "maintenance, then run and rollback", f"{len(MAINTENANCE)} procedures, equal"
    )


def test_columns_and_rows_of_the_owner_beside_ours_are_kept(
    orders: Orders, spark41: Spark, record: Record
) -> None:
    spark41.rows(f"ALTER TABLE {ORDERS} ADD COLUMN note string")
    times = ", ".join(f"window_{name} + INTERVAL 10 DAYS" for name in ("start", "end"))
    later = f"SELECT {times}, * EXCEPT (window_start, window_end)"
    spark41.rows(f"INSERT INTO {ORDERS} {later} FROM {ORDERS} WHERE window_start < '2024-03-02'")
    before = counts(orders)

    orders.run("2024-03-01", "2024-03-02")

    assert counts(orders) == before
    assert "note" in load(orders, "orders").schema().column_names
    record(f"spark {spark41.version}", "column and rows of another program", f"{before['rows']} rows kept")
