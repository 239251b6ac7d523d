"""Find the current metadata file of a table in the catalog; an SQLite catalog is read without PyIceberg."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from urllib.parse import quote

from backstream.lake.catalog_address import CatalogAddress, table_identifier
from backstream.runs.home import Home

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
    address = CatalogAddress.from_home(home)
    file = address.sqlite_file
    if file is None:
        return _find_with_pyiceberg(home, name)
    if not file.exists():
        return None
    *levels, table = table_identifier(name)
    try:
        with closing(
            sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True, timeout=_TIMEOUT_S)
        ) as database:
            row = database.execute(_QUERY, (address.name, ".".join(levels), table)).fetchone()
    except sqlite3.Error:  # PyIceberg raises a readable error, or creates the missing tables
        return _find_with_pyiceberg(home, name)
    return None if row is None else str(row[0])


def _find_with_pyiceberg(home: Home, name: str) -> str | None:
    from pyiceberg.exceptions import NoSuchTableError

    from backstream.lake.catalog import open_catalog_for_reading

    with open_catalog_for_reading(home) as catalog:
        try:
            return catalog.load_table(table_identifier(name)).metadata_location
        except NoSuchTableError:
            return None
