"""The catalog of the lake: where the tables are known, and the errors of reaching it."""

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
from backstream.lake.storage import Warehouse, create_folder, describe_store_error, is_from_store
from backstream.runs.home import Home

__all__ = ["NAMESPACE", "load_table", "mask_password", "open_catalog", "open_catalog_for_writing"]

_OPENINGS = 8
_PAUSE_S = 0.05


def open_catalog(home: Home) -> SqlCatalog:
    """The catalog of a home, made when it is missing; several processes may do so at once.

    The caller closes it; `opened` does.

    Raises:
        SetupError: when the address of catalog or warehouse is not one, or the database driver is not installed.
        CatalogError: when the database cannot be reached.
        StorageError: when the warehouse's folder cannot be made, or its object store does not have it.
    """
    Warehouse.from_home(home).require_there()
    create_folder(home.path, "the home folder")
    return _reached(home, _settled)


def _reached(home: Home, reach: Callable[[Home], SqlCatalog]) -> SqlCatalog:
    shown = mask_password(home.catalog_uri)
    try:
        return reach(home)
    except (ModuleNotFoundError, NoSuchModuleError) as error:
        msg = f"no database driver for the catalog {shown}\n  {error}"
        raise SetupError(msg) from error
    except SQLAlchemyError as error:
        msg = f"cannot open the catalog {shown}\n  {_cause(error)}"
        raise CatalogError(msg) from error


@contextmanager
def open_catalog_for_writing(home: Home) -> Iterator[SqlCatalog]:
    """The catalog for the length of a block; what its database, the disk or the store refuses is said in words.

    Raises:
        CatalogError: naming the database, and what could not be done.
        StorageError: naming the warehouse, and what could not be done.
    """
    with _closing(home, open_catalog(home)) as catalog:
        yield catalog


@contextmanager
def open_catalog_for_reading(home: Home) -> Iterator[SqlCatalog]:
    """As `opened`, for who writes nothing: a catalog that is not there yet is an empty one, and none is made.

    Raises:
        SetupError: as `open_catalog` does.
        CatalogError: naming the database, when it cannot be reached or read.
        StorageError: naming the warehouse, when it cannot be read, or its object store does not have it.
    """
    warehouse = Warehouse.from_home(home)
    if not warehouse.is_on_disk:
        warehouse.require_there()
    with _closing(home, _reached(home, _as_it_is)) as catalog:
        yield catalog


@contextmanager
def _closing(home: Home, catalog: SqlCatalog) -> Iterator[SqlCatalog]:
    try:
        yield catalog
    except SQLAlchemyError as error:
        raise _catalog_failed(home, error) from error
    except OSError as error:
        raise _storage_failed(home, error) from error
    finally:
        catalog.close()


def load_table(catalog: Catalog, name: str) -> Table:
    """A table of the lake as it is now.

    Raises:
        LedgerError: when there is no such table.
        PlanError: when a newer version made it.
    """
    try:
        return require_known_format(catalog.load_table((NAMESPACE, name)))
    except NoSuchTableError:
        msg = f"no table `{name}` in the lake ({mask_password(catalog.properties['uri'])})"
        raise LedgerError(msg) from None


def mask_password(uri: str) -> str:
    """The URI as it may be shown: without its password.

    Raises:
        SetupError: when it is not a database URI.
    """
    try:
        return make_url(uri).render_as_string(hide_password=True)
    except ArgumentError:
        msg = "the catalog's URI must be one such as sqlite:///catalog.db (BACKSTREAM_CATALOG_URI)"
        raise SetupError(msg) from None  # the value may hold a password


def _catalog_failed(home: Home, error: SQLAlchemyError) -> CatalogError:
    facts = f"the catalog failed: {mask_password(home.catalog_uri)}\n  {_cause(error)}"
    if not (what := _attempted(error)):
        return CatalogError(facts)
    return CatalogError(
        f"could not {what}: {facts}\n\n"
        "hint: run the same again when the catalog answers: what it has committed is found, and not done twice"
    )


def _storage_failed(home: Home, error: OSError) -> StorageError:
    warehouse, what = Warehouse.from_home(home), f"could not {_attempted(error) or 'write to the lake'}"
    if isinstance(error, FileNotFoundError):
        msg = f"a file of the lake is gone: {error.filename or error}\n  the lake lies in {warehouse.shown}"
        return StorageError(msg)
    if not is_from_store(error):
        return storage_error(what, warehouse.shown, error)
    return StorageError(
        f"{what}: {describe_store_error(error)}\n  {warehouse.shown}\n\n"
        "hint: run the same again when the store answers: what was finished is kept,"
        " and what is published is whole"
    )


def _attempted(error: Exception) -> str:
    return next(iter(getattr(error, "__notes__", ())), "")


def _settled(home: Home) -> SqlCatalog:
    """Try again while another process is making the same tables: the database says they exist already."""
    for opening in range(1, _OPENINGS):
        try:
            return _with_namespace(home)
        except DBAPIError as error:
            if not _was_overtaken(error):
                raise
            time.sleep(random.uniform(0, _PAUSE_S * opening))  # noqa: S311 - jitter, not a secret
    return _with_namespace(home)


def _with_namespace(home: Home) -> SqlCatalog:
    engine = _engine(home)
    SqlCatalogBaseTable.metadata.create_all(engine)
    catalog = _catalog(home, engine)
    with suppress(NamespaceAlreadyExistsError):
        catalog.create_namespace(NAMESPACE)
    return catalog


def _as_it_is(home: Home) -> SqlCatalog:
    """The catalog of a home; an empty one in memory where there is none."""
    if (file := _file(home.catalog_uri)) and not file.exists():  # connecting would make it
        return _empty(home)
    engine = _engine(home)
    there = set(inspect(engine).get_table_names())
    if not there.issuperset(SqlCatalogBaseTable.metadata.tables):
        return _empty(home)
    catalog = _catalog(home, engine)
    return catalog if catalog.namespace_exists(NAMESPACE) else _empty(home)


def _file(uri: str) -> Path | None:
    """The file of a catalog in SQLite; None for another database, or where no path names it."""
    url = make_url(uri)
    name = (url.database or "") if url.get_backend_name() == "sqlite" else ""
    return Path(name) if name and not name.startswith((":", "file:")) else None


def _empty(home: Home) -> SqlCatalog:
    catalog = SqlCatalog(CATALOG_NAME, **_properties(home) | {"uri": "sqlite://"})
    catalog.create_namespace(NAMESPACE)
    catalog.properties["uri"] = home.catalog_uri
    return catalog


def _engine(home: Home) -> Engine:
    # A connection per use: none is left open, and none is shared with a forked process.
    return create_engine(home.catalog_uri, poolclass=NullPool)


def _catalog(home: Home, engine: Engine) -> SqlCatalog:
    """The catalog of a home in a database that has its tables."""
    catalog = SqlCatalog(CATALOG_NAME, **_properties(home))
    catalog.engine.dispose()
    catalog.engine = engine
    return catalog


def _properties(home: Home) -> dict[str, str]:
    warehouse = Warehouse.from_home(home)
    return {"uri": home.catalog_uri, "warehouse": warehouse.location, **warehouse.properties}


def _was_overtaken(error: DBAPIError) -> bool:
    return isinstance(error, IntegrityError) or "already exists" in str(error.orig)


def _cause(error: SQLAlchemyError) -> str:
    """What the database itself said, without the statement and its parameters."""
    return str(error.orig if isinstance(error, DBAPIError) else error).strip().replace("\n", "\n  ")


FORMAT = "backstream.format"
"""Table property: the version of the format."""
FORMAT_VERSION = 2
MADE_BY = "backstream.made_by"
"""Table property: the version of backstream that made the table."""
DEFINITION = "backstream.definition"
"""Table property: the absolute path of the definition that writes the table."""
KEYS = "backstream.keys"
"""Table property: the key columns of its rows, a JSON list."""


def require_known_format(table: Table) -> Table:
    """Return the table if it has the format of this version: other formats have other columns, or other meanings.

    Raises:
        PlanError: with both formats.
    """
    found = table.properties.get(FORMAT, "1")  # the first format had no such property
    if found == str(FORMAT_VERSION):
        return table
    is_older = found.isdecimal() and int(found) < FORMAT_VERSION
    lake = "point BACKSTREAM_HOME and BACKSTREAM_CATALOG_URI at another lake"
    msg = (
        f"table `{table.name()[-1]}` has format {found}, and backstream {__version__} reads only format"
        f" {FORMAT_VERSION}\n  it was made by backstream {table.properties.get(MADE_BY, 'of an unknown version')}"
        f"\n\nhint: {lake + ', and run its ranges again' if is_older else 'update backstream here, or ' + lake}"
    )
    raise PlanError(msg)
