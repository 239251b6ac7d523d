"""Open Iceberg catalogs in a database; several processes may create one at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog, SqlCatalogBaseTable
from sqlalchemy import inspect
from sqlalchemy.engine import Engine, create_engine
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.pool import NullPool
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random

from backstream.lake.catalog_address import CatalogAddress

_MAX_ATTEMPTS = 8
_MAX_PAUSE_S = 0.2
_OWNER_ONLY = 0o600


def create_sql_catalog(
    address: CatalogAddress, properties: Mapping[str, str], prepare: Callable[[SqlCatalog], None]
) -> SqlCatalog:
    """Return a catalog after creating its tables and preparing it, while other processes do the same."""
    if (file := address.sqlite_file) is not None:
        _create_private_file(file)
    retrying = Retrying(
        retry=retry_if_exception(_exists_already),
        stop=stop_after_attempt(_MAX_ATTEMPTS),
        wait=wait_random(max=_MAX_PAUSE_S),
        reraise=True,
    )
    return retrying(_create_once, address, properties, prepare)


def find_sql_catalog(address: CatalogAddress, properties: Mapping[str, str]) -> SqlCatalog | None:
    """Return a catalog without creating anything; None if the database has none."""
    if (file := address.sqlite_file) and not file.exists():  # SQLite would create it
        return None
    engine = _engine(address)
    if not set(inspect(engine).get_table_names()).issuperset(SqlCatalogBaseTable.metadata.tables):
        return None
    return _catalog(address, properties, engine)


def _create_once(
    address: CatalogAddress, properties: Mapping[str, str], prepare: Callable[[SqlCatalog], None]
) -> SqlCatalog:
    engine = _engine(address)
    SqlCatalogBaseTable.metadata.create_all(engine)
    catalog = _catalog(address, properties, engine)
    prepare(catalog)
    return catalog


def _create_private_file(file: Path) -> None:
    """Create the file that only its owner can read: the properties of tables may have secrets."""
    with suppress(OSError):  # SQLite raises a readable error
        os.close(os.open(file, os.O_CREAT | os.O_RDWR, _OWNER_ONLY))


def _engine(address: CatalogAddress) -> Engine:
    # One connection per use: no connection stays open or is shared with a forked process.
    return create_engine(address.uri, poolclass=NullPool)


def _catalog(address: CatalogAddress, properties: Mapping[str, str], engine: Engine) -> SqlCatalog:
    catalog = SqlCatalog(address.name, **properties)
    catalog.engine.dispose()
    catalog.engine = engine
    return catalog


def _exists_already(error: BaseException) -> bool:
    return isinstance(error, DBAPIError) and (
        isinstance(error, IntegrityError) or "already exists" in str(error.orig)
    )
