"""Find the current metadata file of a table in the catalog; an SQLite catalog is read without PyIceberg."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from backstream.runs.home import Home

CATALOG_NAME = "backstream"
NAMESPACE = "backstream"
_SQLITE = "sqlite:///"
_TIMEOUT_S = 60
_QUERY = (
    "select metadata_location from iceberg_tables"
    " where catalog_name = ? and table_namespace = ? and table_name = ? and metadata_location is not null"
)


def find_metadata_location(home: Home, name: str) -> str | None:
    """Return the location of a table's metadata, which changes with every commit; None if there is no table.

    Raises:
        CatalogError: if the catalog cannot be reached.
    """
    file = _sqlite_file(home.catalog_uri)
    if file is None:
        return _find_with_pyiceberg(home, name)
    if not file.exists():
        return None
    try:
        with closing(
            sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True, timeout=_TIMEOUT_S)
        ) as database:
            row = database.execute(_QUERY, (CATALOG_NAME, NAMESPACE, name)).fetchone()
    except sqlite3.Error:  # PyIceberg raises a readable error, or creates the missing tables
        return _find_with_pyiceberg(home, name)
    return None if row is None else str(row[0])


def _sqlite_file(uri: str) -> Path | None:
    """Return the file of an SQLite catalog; None for another database."""
    path = uri.removeprefix(_SQLITE).partition("?")[0]
    return Path(path) if uri.startswith(_SQLITE) and path and path != ":memory:" else None


def _find_with_pyiceberg(home: Home, name: str) -> str | None:
    from backstream.lake.catalog import open_catalog_for_writing

    with open_catalog_for_writing(home) as catalog:
        identifier = (NAMESPACE, name)
        return catalog.load_table(identifier).metadata_location if catalog.table_exists(identifier) else None
