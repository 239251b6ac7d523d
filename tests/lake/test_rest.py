"""Publish through a REST catalog: a server process that checks the requirements of commits and can fail."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.workflow.history import CLICKS, at, write_clicks, write_definition

import backstream
from backstream.errors import CatalogError, ConflictError, PlanError
from backstream.lake.catalog import catalog_properties, open_catalog_for_writing
from backstream.lake.catalog_address import CatalogAddress, namespace
from backstream.lake.connect import connection_text
from backstream.lake.ledger import record_run, run_row
from backstream.lake.maintenance import vacuum_tables
from backstream.lake.publication.publish import publish_range
from backstream.lake.publication.rollback import roll_back_run
from backstream.lake.run_rows import list_runs
from backstream.runs.home import Home
from backstream.runs.status import RunStatus
from backstream.text import ReadingEngine
from backstream.variables import CATALOG_VARIABLE, NAMESPACE_VARIABLE, WAREHOUSE_VARIABLE

if TYPE_CHECKING:
    from tests.lake.conftest import Lake
    from tests.sources.rest_server import RestCatalog

RANGE = ("2013-02-01", "2013-02-02")


def test_a_range_is_published_replaced_and_rolled_back(lake: Lake) -> None:
    first = lake.publish(*RANGE, {"2013-02-01T05:00Z": 3})
    plan = lake.plan(*RANGE, "again")
    manifests = lake.staged(plan, {"2013-02-01T06:00Z": 4}, metrics=[("EWR", 4)])

    assert publish_range(plan, manifests).replaced_rows == 1
    assert lake.departures() == {"2013-02-01T06:00Z": 4}
    assert publish_range(plan, manifests).already
    assert len(lake.table().snapshots()) == 2

    roll_back_run(lake.home, plan.run_id)
    assert lake.departures() == {"2013-02-01T05:00Z": 3}
    assert set(lake.table().refs()) == {"main", f"run/{first.run_id}"} | {
        f"run/{run_id}" for run_id in (plan.run_id, f"rollback-{plan.run_id}")
    }


def test_the_tables_are_in_the_namespace_of_the_installation(lake: Lake) -> None:
    lake.publish(*RANGE, {"2013-02-01T05:00Z": 3})

    with open_catalog_for_writing(lake.home) as catalog:
        assert len(namespace()) == 2
        assert sorted(catalog.list_tables(namespace())) == [
            (*namespace(), "flights"),
            (*namespace(), "flights__metrics"),
        ]


CLICKS_ROWS = [(at(f"1 {hour:02}:00"), at(f"1 {hour:02}:01"), "A", hour, "home") for hour in range(24)]


def run_clicks(folder: Path, mode: str) -> int | None:
    """Run a definition by processes of this machine, and return its published rows."""
    definition = write_definition(folder, CLICKS)
    days = ("2024-03-01", "2024-03-02")
    done = backstream.run(
        definition, *days, mode=mode, home=folder / "home", runner="local", allow_unsealed=True, replan=True
    )
    return done.publication.rows


@pytest.mark.parametrize("chooses", [True, False])
def test_the_first_run_publishes_if_the_catalog_chooses_the_locations(
    chooses: bool, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(WAREHOUSE_VARIABLE)
    write_clicks(tmp_path / "data/a.parquet", CLICKS_ROWS)
    place = f"file://{tmp_path}/theirs"
    with open_catalog_for_writing(lake.home) as catalog:
        catalog.create_namespace((*namespace(), "own"), {"chooses": place} if chooses else {"location": place})
    monkeypatch.setenv(NAMESPACE_VARIABLE, ".".join((*namespace(), "own")))

    assert run_clicks(tmp_path, "replay") == 24
    assert run_clicks(tmp_path, "recompute") == 24

    with open_catalog_for_writing(lake.home) as catalog:
        table = catalog.load_table((*namespace(), "clicks"))
    assert table.location().startswith(f"{place}/clicks_" if chooses else f"{place}/clicks")
    assert [*table.sort_orders()] == [0, 1]
    assert len(table.snapshots()) == 2


def test_the_name_of_the_warehouse_of_a_service_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(WAREHOUSE_VARIABLE, str(tmp_path / "warehouse"))
    address = CatalogAddress.from_uri("https://example.com/catalog?warehouse=lake")
    assert catalog_properties(Home(tmp_path), address)["warehouse"] == "lake"
    assert "warehouse" not in catalog_properties(Home(tmp_path), CatalogAddress.from_uri("https://example.com"))
    of_a_file = catalog_properties(Home(tmp_path), CatalogAddress.from_uri("sqlite:///catalog.db"))
    assert of_a_file["warehouse"] == f"file://{tmp_path}/warehouse"


def test_the_texts_for_engines_name_variables_and_no_secret(
    lake: Lake, rest_catalog: RestCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.publish(*RANGE, {"2013-02-01T05:00Z": 3})
    monkeypatch.setenv(CATALOG_VARIABLE, f"{rest_catalog.address}?warehouse=lake&token=confidential")

    texts = {engine: connection_text(lake.home, "flights", engine) for engine in ReadingEngine}

    assert not [engine for engine, text in texts.items() if "confidential" in text]
    unnamed = [engine for engine, text in texts.items() if "PYICEBERG_CATALOG__BACKSTREAM__TOKEN" not in text]
    assert unnamed == [ReadingEngine.CLICKHOUSE]  # it reads the files of a disk
    for line in ("iceberg.catalog.type=rest", f"iceberg.rest-catalog.uri={rest_catalog.address}"):
        assert line in texts[ReadingEngine.TRINO]
    for name in ("type=rest", f"uri={rest_catalog.address}", "warehouse=lake"):
        assert f'--conf "spark.sql.catalog.backstream.{name}"' in texts[ReadingEngine.SPARK]
    monkeypatch.setenv("PYICEBERG_CATALOG__BACKSTREAM__TOKEN", "confidential")
    names: dict[str, Any] = {}
    exec(texts[ReadingEngine.PYICEBERG], names)  # noqa: S102 - our own text
    assert names["rows"]["departures"].to_pylist() == [3]


def test_an_overlapping_publication_is_a_conflict(lake: Lake) -> None:
    plan = lake.plan(*RANGE)
    manifests = lake.staged(plan, {"2013-02-01T05:00Z": 2})
    lake.publish("2013-02-01", "2013-02-03", {}, trigger="other")

    with pytest.raises(ConflictError, match="the table changed since it was planned"):
        publish_range(plan, manifests)

    assert lake.departures() == {}


@pytest.mark.parametrize("answer", ["500", "502", "504"])
def test_a_commit_that_the_server_may_have_lost_is_repeated(
    lake: Lake, rest_catalog: RestCatalog, answer: str
) -> None:
    plan = lake.plan(*RANGE)
    manifests = lake.staged(plan, {"2013-02-01T05:00Z": 3})
    rest_catalog.fail_next("flights", answer)

    assert publish_range(plan, manifests).rows == 1

    assert lake.departures() == {"2013-02-01T05:00Z": 3}
    assert len(lake.table().snapshots()) == 1


@pytest.mark.parametrize("answer", ["applied 500", "applied 409", "applied cut"])
def test_a_commit_whose_answer_is_lost_or_wrong_is_found_and_not_repeated(
    lake: Lake, rest_catalog: RestCatalog, answer: str
) -> None:
    lake.publish(*RANGE, {"2013-02-01T05:00Z": 1})
    plan = lake.plan(*RANGE, "again")
    manifests = lake.staged(plan, {"2013-02-01T05:00Z": 3}, metrics=[("EWR", 3)])
    rest_catalog.fail_next("flights", answer)

    assert not publish_range(plan, manifests).already

    assert lake.departures() == {"2013-02-01T05:00Z": 3}  # its manifests were not removed
    assert len(lake.table().snapshots()) == 2
    assert sum(result.files for result in vacuum_tables(lake.home, "flights", 0)) == 0


def test_a_server_that_stays_broken_is_named_and_a_later_run_completes_the_publication(
    lake: Lake, rest_catalog: RestCatalog
) -> None:
    plan = lake.plan(*RANGE)
    manifests = lake.staged(plan, {"2013-02-01T05:00Z": 3})
    rest_catalog.fail_next("flights", *["500"] * 8)

    with pytest.raises(CatalogError) as caught:
        publish_range(plan, manifests)

    assert str(caught.value) == (
        "could not publish flights 2013-02-01T00:00Z to 2013-02-02T00:00Z:"
        f" the catalog failed: {rest_catalog.address}\n"
        "  InternalServerError: the server failed before the commit\n\n"
        "hint: run the same command again when the catalog is available; committed work is not repeated"
    )
    assert lake.departures() == {}
    assert publish_range(plan, manifests).rows == 1


def test_a_row_of_the_ledger_without_a_key_is_not_recorded_twice(lake: Lake, rest_catalog: RestCatalog) -> None:
    plan = lake.plan(*RANGE)
    lake.make(plan)
    record_run(lake.home, run_row(plan, RunStatus.FAILED, (0, 1)))
    rest_catalog.fail_next("runs", "applied 500")

    record_run(lake.home, run_row(plan, RunStatus.FAILED, (2, 3)))

    assert [row.finished_at_ms for row in list_runs(lake.home)] == [3, 1]


def test_of_two_definitions_that_checked_at_once_only_one_publishes(lake: Lake, tmp_path: Path) -> None:
    plans = []
    for name in ("one", "two"):
        (tmp_path / f"{name}.toml").write_text('name = "flights"')
        plan = lake.plan(*RANGE if name == "one" else ("2013-02-02", "2013-02-03"), name)
        object.__setattr__(plan, "definition_path", str(tmp_path / f"{name}.toml"))
        plans.append(plan)
    first, second = plans
    manifests = lake.staged(first, {"2013-02-01T05:00Z": 3})
    with lake.table().transaction() as transaction:  # as if the second one had recorded itself at the same moment
        transaction.remove_properties("backstream.definition", "backstream.keys")
    staged = lake.staged(second, {"2013-02-02T05:00Z": 3})
    with lake.table().transaction() as transaction:
        transaction.remove_properties("backstream.definition", "backstream.keys")
    publish_range(first, manifests)

    with pytest.raises(PlanError, match="two definitions have the name 'flights'"):
        publish_range(second, staged)


def test_an_error_names_an_unreachable_catalog_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CATALOG_VARIABLE, "http://me:secret@127.0.0.1:9/api?token=secret")

    with pytest.raises(CatalogError) as caught, open_catalog_for_writing(Home(tmp_path)):
        pass

    text = str(caught.value)
    assert text.startswith("cannot open the catalog http://me:***@127.0.0.1:9/api\n")
    assert "secret" not in text
