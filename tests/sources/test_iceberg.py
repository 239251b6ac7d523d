"""An Iceberg table is a source: its runs publish the windows of its events, from any kind of catalog."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.prepared.events import FIRST_DAY, NO_TIME, make_events, sums_by_hour
from tests.sources import tables
from tests.sources.definitions import (
    PLAIN,
    RANGE,
    published_orders,
    require_one_bad_record,
    rows_of_second_day,
    run_orders,
    write_orders,
)
from tests.sources.rest_server import serving
from tests.sources.tables import Archive

import backstream
from backstream.errors import CatalogError, PlanError, QualityError
from backstream.eventtime.instants import DAY_MS, epoch_ms
from backstream.runs.home import Home
from backstream.runs.input_notes import describe_inputs
from backstream.runs.plan import Plan
from backstream.workflow.inputs.prepare import prepare_source
from backstream.workflow.late_data.stale import find_stale_days
from backstream.workflow.runners import SparkRunner

pytestmark = pytest.mark.slow

ORDERS = 'format = "iceberg"\npath = "archive.sales.orders"\nkey = ["user"]\n' + PLAIN


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Archive:
    made = tables.on_disk(tmp_path / "archive")
    made.configure(monkeypatch.setenv)
    return made


@pytest.fixture
def rest(archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The same tables, by a REST catalog."""
    with serving(archive, tmp_path / "rest.log") as served:
        monkeypatch.setenv("PYICEBERG_CATALOG__SERVED__URI", served.address)
        monkeypatch.setenv("PYICEBERG_CATALOG__SERVED__TYPE", "rest")
        yield served.address


def stale_days(definition: Path, home: Home, spark: SparkSession) -> list[int]:
    """Return the stale days, counted from the first day of the events."""
    prepare_source(definition, home, SparkRunner(lambda: spark))
    return [(day.day_ms - epoch_ms(FIRST_DAY)) // DAY_MS for day in find_stale_days(definition, home).days]


@pytest.mark.parametrize("mode", ["recompute", "replay"])
def test_a_table_is_run_and_its_changes_are_found(
    archive: Archive, mode: str, spark: SparkSession, tmp_path: Path
) -> None:
    events, home, definition = make_events(), Home(tmp_path / "home"), write_orders(tmp_path, ORDERS)
    archive.append(events[:80])
    archive.append(events[80:150])

    run_orders(definition, home, mode)
    assert published_orders(home) == sums_by_hour(events[:150])
    with archive.table() as table:
        snapshot = table.metadata.current_snapshot_id
    (plan,) = [Plan.read(path) for path in (home.path / "runs/orders").glob("*/plan.json")]
    assert plan.source_snapshots == {"archive.sales.orders": snapshot}
    assert describe_inputs(plan) == [("Iceberg", f"snapshot {snapshot} of table archive.sales.orders")]
    assert stale_days(definition, home, spark) == []
    assert rows_of_second_day(definition, home) == [70]  # of two files

    tables.compact(archive)
    assert stale_days(definition, home, spark) == []
    archive.append([*events[150:], NO_TIME])  # arrived in the evening of the second day
    assert stale_days(definition, home, spark) == [1]
    run_orders(definition, home, mode)
    assert published_orders(home) == sums_by_hour(events)
    require_one_bad_record(home)
    assert stale_days(definition, home, spark) == []


def test_removed_records_are_reported_like_removed_files(
    archive: Archive, spark: SparkSession, tmp_path: Path
) -> None:
    events, home, definition = make_events(), Home(tmp_path / "home"), write_orders(tmp_path, ORDERS)
    archive.append(events)
    run_orders(definition, home)

    with archive.table() as table:
        table.delete("user = 'a'")

    assert stale_days(definition, home, spark) == [0, 1]
    with pytest.raises(QualityError, match="every input file of earlier runs still exists"):
        run_orders(definition, home)
    backstream.run(
        definition, *RANGE, home=home.path, allow_unsealed=True, gate_override="a customer's data was deleted"
    )
    assert published_orders(home) == sums_by_hour(event for event in events if event.user != "a")

    with archive.table() as table:
        (task,) = table.scan().plan_files()
    kept = [event for event in events if event.user != "a"]
    tables.delete_positions(archive, task.file.file_path, [0, 1, 2])
    backstream.run(definition, *RANGE, home=home.path, allow_unsealed=True, gate_override="deleted by position")
    assert published_orders(home) == sums_by_hour(kept[3:])


@pytest.mark.usefixtures("rest")
def test_a_rest_catalog_serves_the_same_table(archive: Archive, spark: SparkSession, tmp_path: Path) -> None:
    events, home = make_events(), Home(tmp_path / "home")
    archive.append(events)
    with archive.table() as table, table.update_schema() as update:
        update.rename_column("user", "customer")  # PyIceberg reads the files by their field ids
    definition = write_orders(tmp_path, ORDERS.replace("archive.", "served.").replace('["user"]', '["customer"]'))

    run_orders(definition, home)

    assert published_orders(home, "customer") == sums_by_hour(events)

    write_orders(tmp_path, ORDERS.replace("archive.", "gone."))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYICEBERG_CATALOG__GONE__URI", "http://127.0.0.1:1")
        with pytest.raises(CatalogError, match=r"^cannot open the catalog 'gone': .*orders.toml, source.path\)$"):
            prepare_source(definition, home, SparkRunner(lambda: spark))


def test_conditions_and_columns_of_a_definition_work_on_tables_too(
    archive: Archive, spark: SparkSession, tmp_path: Path
) -> None:
    events, home = make_events(), Home(tmp_path / "home")
    source = ORDERS.replace('["user"]', '["customer"]') + (
        'where = "user <> \'b\'"\n[source.derive]\ncustomer = "upper(user)"\n'
    )
    definition = write_orders(tmp_path, source)
    archive.append(events[:80])
    run_orders(definition, home)
    archive.append(events[80:150])
    tables.compact(archive)
    archive.append(events[150:])

    assert stale_days(definition, home, spark) == [0, 1]
    run_orders(definition, home)

    expected = sums_by_hour(event for event in events if event.user != "b")
    assert published_orders(home, "customer") == {(user.upper(), at): row for (user, at), row in expected.items()}
    tables.compact(archive)
    assert stale_days(definition, home, spark) == []


def test_a_table_and_files_are_united(archive: Archive, spark: SparkSession, tmp_path: Path) -> None:
    events, home = make_events(), Home(tmp_path / "home")
    live, old = events[::2], events[1::2]
    archive.append(live[:50])
    (tmp_path / "old").mkdir()
    pq.write_table(tables.to_rows(old), tmp_path / "old/1.parquet")
    first = f'name = "live"\n{ORDERS}'
    second = f'name = "old"\npath = "{tmp_path}/old"\nkey = ["user"]\n{PLAIN}'
    definition = write_orders(tmp_path, f"{first}[[source]]\n{second}")
    definition.write_text(definition.read_text().replace("\n[source]\n", "\n[[source]]\n"))

    run_orders(definition, home, "replay")
    assert published_orders(home) == sums_by_hour([*live[:50], *old])
    tables.compact(archive)
    assert stale_days(definition, home, spark) == []
    archive.append(live[50:])
    run_orders(definition, home, "replay")
    assert published_orders(home) == sums_by_hour(events)


def test_the_folder_of_a_table_is_no_source(archive: Archive, spark: SparkSession, tmp_path: Path) -> None:
    archive.append(make_events())
    table = tmp_path / "archive/warehouse/sales/orders"

    for folder in (table, table / "data"):
        definition = write_orders(tmp_path, f'path = "{folder}"\nkey = ["user"]\n{PLAIN}')
        with pytest.raises(PlanError) as raised:
            prepare_source(definition, Home(tmp_path / "home"), SparkRunner(lambda: spark))
        assert str(raised.value) == (
            f"{table} is the folder of an Iceberg table, which also has files with removed records"
            f" ({definition}, source.path)\n\n"
            'hint: set source.format = "iceberg", and source.path to the name of the table, e.g.,'
            ' "catalog.namespace.table"'
        )


@pytest.mark.usefixtures("spark")
def test_a_published_table_is_a_source(archive: Archive, tmp_path: Path) -> None:
    events, home = make_events(), Home(tmp_path / "home")
    archive.append(events)
    run_orders(write_orders(tmp_path, ORDERS), home)
    second = (tmp_path / "orders.toml").read_text().replace('"orders"', '"totals"')
    second = second.replace("archive.sales.orders", "backstream.backstream.orders")
    source = 'event_time = "window_start"\n'
    second = second.replace(PLAIN, source).replace("count(*)", "sum(orders)").replace("amount", "revenue")
    definition = tmp_path / "totals.toml"
    definition.write_text(second.replace('strategy = "bounded_out_of_orderness"\ndelay = "30m"', ""))

    backstream.run(definition, *RANGE, home=home.path, allow_unsealed=True)

    rows = backstream.read("totals", home=home.path).to_pylist()
    found = {(row["user"], row["window_start"]): (row["orders"], row["revenue"]) for row in rows}
    assert found == sums_by_hour(events)
    assert json.loads(next((home.path / "runs/totals").glob("*/plan.json")).read_text())["source_snapshots"]
