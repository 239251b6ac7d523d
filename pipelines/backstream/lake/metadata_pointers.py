"""Where the metadata of a table lies now, as the catalog tells it; SQLite is asked without PyIceberg."""

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
_ASKED = (
    "select metadata_location from iceberg_tables"
    " where catalog_name = ? and table_namespace = ? and table_name = ? and metadata_location is not null"
)


def find_metadata_location(home: Home, name: str) -> str | None:
    """Return where the metadata of a table lies; None where there is no such table. It is another for each state.

    Raises:
        CatalogError: when the catalog cannot be reached.
    """
    file = _sqlite_file(home.catalog_uri)
    if file is None:
        return _told_by_pyiceberg(home, name)
    if not file.exists():
        return None
    try:
        with closing(
            sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True, timeout=_TIMEOUT_S)
        ) as database:
            found = database.execute(_ASKED, (CATALOG_NAME, NAMESPACE, name)).fetchone()
    except sqlite3.Error:  # PyIceberg finds the same, and it is said in words; or it makes what is missing
        return _told_by_pyiceberg(home, name)
    return None if found is None else str(found[0])


def _sqlite_file(uri: str) -> Path | None:
    """The file of a catalog in SQLite; None where another database keeps it."""
    path = uri.removeprefix(_SQLITE).partition("?")[0]
    return Path(path) if uri.startswith(_SQLITE) and path and path != ":memory:" else None


def _told_by_pyiceberg(home: Home, name: str) -> str | None:
    from backstream.lake.catalog import open_catalog_for_writing

    with open_catalog_for_writing(home) as catalog:
        place = (NAMESPACE, name)
        return catalog.load_table(place).metadata_location if catalog.table_exists(place) else None
