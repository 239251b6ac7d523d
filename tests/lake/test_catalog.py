from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from backstream.errors import LedgerError, SetupError
from backstream.lake.catalog import load_table, open_catalog, open_catalog_for_writing
from backstream.lake.catalog_address import mask_password
from backstream.runs.home import Home
from backstream.variables import CATALOG_VARIABLE

if TYPE_CHECKING:
    from tests.lake.conftest import Lake


def test_a_new_home_gets_a_catalog_with_its_namespace(lake: Lake) -> None:
    with open_catalog_for_writing(lake.home) as catalog:
        assert catalog.name == "backstream"
        assert catalog.list_namespaces() == [("backstream",)]
        assert catalog.properties["warehouse"] == f"file://{lake.home.path}/warehouse"


def test_many_may_make_the_same_catalog_at_once(lake: Lake) -> None:
    barrier, failures = threading.Barrier(8), []

    def first_use() -> None:
        barrier.wait()
        try:
            open_catalog(lake.home).close()
        except Exception as error:  # noqa: BLE001 - a thread's error must reach the test
            failures.append(error)

    threads = [threading.Thread(target=first_use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []


def test_a_catalog_in_a_folder_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CATALOG_VARIABLE, f"sqlite:///{tmp_path}/nowhere/catalog.db")

    with pytest.raises(LedgerError) as caught:
        open_catalog(Home(tmp_path))

    assert str(caught.value) == (
        f"cannot open the catalog sqlite:///{tmp_path}/nowhere/catalog.db\n  unable to open database file"
    )


def test_a_catalog_whose_driver_is_not_installed_is_named_without_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CATALOG_VARIABLE, "firebird+nosuch://me:secret@db:5432/lake")

    with pytest.raises(SetupError) as caught:
        open_catalog(Home(tmp_path))

    assert str(caught.value) == (
        "no database driver for the catalog firebird+nosuch://me:***@db:5432/lake\n"
        "  Can't load plugin: sqlalchemy.dialects:firebird.nosuch"
    )


def test_an_invalid_uri_is_refused_and_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CATALOG_VARIABLE, "me:secret@db")

    with pytest.raises(SetupError) as caught:
        open_catalog(Home(tmp_path))

    assert str(caught.value) == (
        "the catalog address must be a database URI such as sqlite:///catalog.db,"
        " or https://, thrift:// or glue:// (BACKSTREAM_CATALOG_URI)"
    )


def test_a_file_that_is_no_database_is_named(lake: Lake) -> None:
    lake.home.path.mkdir(parents=True)
    (lake.home.path / "catalog.db").write_text("not a database, and long enough to be taken for one" * 100)

    with pytest.raises(LedgerError) as caught:
        open_catalog(lake.home)

    assert str(caught.value) == (f"cannot open the catalog {lake.home.catalog_uri}\n  file is not a database")


def break_in_use(home: Home) -> None:
    with open_catalog_for_writing(home) as catalog:
        with closing(sqlite3.connect(home.path / "catalog.db")) as database:
            database.execute("drop table iceberg_tables")
        load_table(catalog, "flights")


def test_a_catalog_that_fails_while_it_is_used_is_named(lake: Lake) -> None:
    with pytest.raises(LedgerError) as caught:
        break_in_use(lake.home)

    assert str(caught.value) == f"the catalog failed: {lake.home.catalog_uri}\n  no such table: iceberg_tables"


def test_a_table_that_is_not_there_is_named(lake: Lake) -> None:
    with pytest.raises(LedgerError) as caught, open_catalog_for_writing(lake.home) as catalog:
        load_table(catalog, "flights")

    assert str(caught.value) == f"no table `flights` in the lake ({lake.home.catalog_uri})"


def test_a_password_is_never_shown() -> None:
    assert mask_password("postgresql://me:secret@db:5432/lake") == "postgresql://me:***@db:5432/lake"
