"""Open the Iceberg catalog, load its tables, and turn its errors into readable messages."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog, SqlCatalogBaseTable
from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchTableError
from pyiceberg.table import Table
from sqlalchemy import inspect
from sqlalchemy.engine import Engine, create_engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from backstream import __version__
from backstream.errors import CatalogError, LedgerError, PlanError, SetupError, StorageError, storage_error
from backstream.lake.metadata_pointers import CATALOG_NAME, NAMESPACE
from backstream.lake.storage import Warehouse, create_folder
from backstream.runs.home import Home
from backstream.source.object_stores import describe_store_error, is_from_store

__all__ = ["NAMESPACE", "load_table", "mask_password", "open_catalog", "open_catalog_for_writing"]

FORMAT = "backstream.format"
"""Table property: the version of the table format."""
FORMAT_VERSION = 2
MADE_BY = "backstream.made_by"
"""Table property: the version of backstream that created the table."""
DEFINITION = "backstream.definition"
"""Table property: the absolute path of the definition that writes the table."""
KEYS = "backstream.keys"
"""Table property: the key columns of the table's rows, a JSON list."""

_MAX_ATTEMPTS = 8
_MAX_PAUSE_S = 0.05


def open_catalog(home: Home) -> SqlCatalog:
    """Return the catalog of a home, and create it if it is missing; several processes may do so at once.

    The caller closes it; `open_catalog_for_writing` closes it by itself.

    Raises:
        SetupError: if the address of the catalog or warehouse is invalid, or the database driver isn't installed.
        CatalogError: if the database cannot be reached.
        StorageError: if the folder of the warehouse cannot be created, or its object store has no such bucket.
    """
    Warehouse.from_home(home).require_exists()
    create_folder(home.path, "the home folder")
    return _open_with(home, _create_catalog)


def _open_with(home: Home, opener: Callable[[Home], SqlCatalog]) -> SqlCatalog:
    address = mask_password(home.catalog_uri)
    try:
        return opener(home)
    except (ModuleNotFoundError, NoSuchModuleError) as error:
        msg = f"no database driver for the catalog {address}\n  {error}"
        raise SetupError(msg) from error
    except SQLAlchemyError as error:
        msg = f"cannot open the catalog {address}\n  {_cause(error)}"
        raise CatalogError(msg) from error


@contextmanager
def open_catalog_for_writing(home: Home) -> Iterator[SqlCatalog]:
    """Open the catalog for the length of a block, and translate errors of the database, disk, and object store.

    Raises:
        CatalogError: with the database and the attempted action.
        StorageError: with the warehouse and the attempted action.
    """
    with _translate_errors(home, open_catalog(home)) as catalog:
        yield catalog


@contextmanager
def open_catalog_for_reading(home: Home) -> Iterator[SqlCatalog]:
    """Open the catalog for a block that only reads; a missing catalog is not created but read as an empty one.

    Raises:
        SetupError: as `open_catalog` does.
        CatalogError: with the database, if it cannot be reached or read.
        StorageError: with the warehouse, if it cannot be read or its object store has no such bucket.
    """
    warehouse = Warehouse.from_home(home)
    if not warehouse.is_on_disk:
        warehouse.require_exists()
    with _translate_errors(home, _open_with(home, _open_existing)) as catalog:
        yield catalog


@contextmanager
def _translate_errors(home: Home, catalog: SqlCatalog) -> Iterator[SqlCatalog]:
    try:
        yield catalog
    except SQLAlchemyError as error:
        raise _catalog_failed(home, error) from error
    except OSError as error:
        raise _storage_failed(home, error) from error
    finally:
        catalog.close()


def load_table(catalog: Catalog, name: str) -> Table:
    """Return a table in its current state.

    Raises:
        LedgerError: if there is no such table.
        PlanError: if a newer version of backstream created it.
    """
    try:
        return require_known_format(catalog.load_table((NAMESPACE, name)))
    except NoSuchTableError:
        msg = f"no table `{name}` in the lake ({mask_password(catalog.properties['uri'])})"
        raise LedgerError(msg) from None


def require_known_format(table: Table) -> Table:
    """Return the table if this version supports its format; a newer format may give its columns another meaning.

    Raises:
        PlanError: with both versions.
    """
    found = table.properties.get(FORMAT, "1")  # the first format had no such property
    if found == str(FORMAT_VERSION):
        return table
    is_older = found.isdecimal() and int(found) < FORMAT_VERSION
    lake = "point BACKSTREAM_HOME and BACKSTREAM_CATALOG_URI at another lake"
    msg = (
        f"table `{table.name()[-1]}` has format {found}, and backstream {__version__} reads only format"
        f" {FORMAT_VERSION}\n  it was created by backstream"
        f" {table.properties.get(MADE_BY, 'of an unknown version')}"
        f"\n\nhint: {lake + ', and run its ranges again' if is_older else 'update backstream here, or ' + lake}"
    )
    raise PlanError(msg)


def mask_password(uri: str) -> str:
    """Return the URI without its password, as it may be displayed.

    Raises:
        SetupError: if it is not a database URI.
    """
    try:
        return make_url(uri).render_as_string(hide_password=True)
    except ArgumentError:
        msg = "the catalog URI must be a database URI such as sqlite:///catalog.db (BACKSTREAM_CATALOG_URI)"
        raise SetupError(msg) from None  # the value may hold a password


def _catalog_failed(home: Home, error: SQLAlchemyError) -> CatalogError:
    facts = f"the catalog failed: {mask_password(home.catalog_uri)}\n  {_cause(error)}"
    if not (action := _attempt_text(error)):
        return CatalogError(facts)
    return CatalogError(
        f"could not {action}: {facts}\n\n"
        "hint: run the same command again when the catalog is available; committed work is not repeated"
    )


def _storage_failed(home: Home, error: OSError) -> StorageError:
    warehouse, failure = Warehouse.from_home(home), f"could not {_attempt_text(error) or 'write to the lake'}"
    if isinstance(error, FileNotFoundError):
        msg = f"a file of the lake is missing: {error.filename or error}\n  the lake is in {warehouse.shown}"
        return StorageError(msg)
    if not is_from_store(error):
        return storage_error(failure, warehouse.shown, error)
    return StorageError(
        f"{failure}: {describe_store_error(error)}\n  {warehouse.shown}\n\n"
        "hint: run the same command again when the store is available;"
        " finished chunks are kept, and published ranges are complete"
    )


def _attempt_text(error: Exception) -> str:
    return next(iter(getattr(error, "__notes__", ())), "")


def _create_catalog(home: Home) -> SqlCatalog:
    """Create the catalog, and try again while another process creates the same tables."""
    for attempt in range(1, _MAX_ATTEMPTS):
        try:
            return _with_namespace(home)
        except DBAPIError as error:
            if not _exists_already(error):
                raise
            time.sleep(random.uniform(0, _MAX_PAUSE_S * attempt))  # noqa: S311 - jitter, not a secret
    return _with_namespace(home)


def _with_namespace(home: Home) -> SqlCatalog:
    engine = _engine(home)
    SqlCatalogBaseTable.metadata.create_all(engine)
    catalog = _catalog(home, engine)
    with suppress(NamespaceAlreadyExistsError):
        catalog.create_namespace(NAMESPACE)
    return catalog


def _open_existing(home: Home) -> SqlCatalog:
    """Return the catalog of a home; an empty one in memory if there is none."""
    if (file := _sqlite_file(home.catalog_uri)) and not file.exists():  # SQLite would create it
        return _empty_catalog(home)
    engine = _engine(home)
    existing_tables = set(inspect(engine).get_table_names())
    if not existing_tables.issuperset(SqlCatalogBaseTable.metadata.tables):
        return _empty_catalog(home)
    catalog = _catalog(home, engine)
    return catalog if catalog.namespace_exists(NAMESPACE) else _empty_catalog(home)


def _sqlite_file(uri: str) -> Path | None:
    """Return the file of an SQLite catalog; None for another database, or if the URI has no path."""
    url = make_url(uri)
    name = (url.database or "") if url.get_backend_name() == "sqlite" else ""
    return Path(name) if name and not name.startswith((":", "file:")) else None


def _empty_catalog(home: Home) -> SqlCatalog:
    catalog = SqlCatalog(CATALOG_NAME, **_properties(home) | {"uri": "sqlite://"})
    catalog.create_namespace(NAMESPACE)
    catalog.properties["uri"] = home.catalog_uri
    return catalog


def _engine(home: Home) -> Engine:
    # One connection per use: no connection stays open or is shared with a forked process.
    return create_engine(home.catalog_uri, poolclass=NullPool)


def _catalog(home: Home, engine: Engine) -> SqlCatalog:
    """Return the catalog of a home in a database that has the tables of a catalog."""
    catalog = SqlCatalog(CATALOG_NAME, **_properties(home))
    catalog.engine.dispose()
    catalog.engine = engine
    return catalog


def _properties(home: Home) -> dict[str, str]:
    warehouse = Warehouse.from_home(home)
    return {"uri": home.catalog_uri, "warehouse": warehouse.location, **warehouse.properties}


def _exists_already(error: DBAPIError) -> bool:
    return isinstance(error, IntegrityError) or "already exists" in str(error.orig)


def _cause(error: SQLAlchemyError) -> str:
    """Return the message of the database itself, without the statement and its parameters."""
    return str(error.orig if isinstance(error, DBAPIError) else error).strip().replace("\n", "\n  ")
