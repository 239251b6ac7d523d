"""The catalog of the lake: where the tables are known, and the errors of reaching it."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog, SqlCatalogBaseTable
from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchTableError
from pyiceberg.table import Table
from sqlalchemy.engine import create_engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from backstream.core.errors import CatalogError, LedgerError, SetupError, StorageError, unwritable
from backstream.core.folders import Home
from backstream.lake.formats import known
from backstream.lake.pointers import CATALOG_NAME, NAMESPACE
from backstream.lake.warehouse import Warehouse, is_from_store, make_folder, store_said

__all__ = ["NAMESPACE", "loaded", "open_catalog", "opened", "shown_uri"]

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
    Warehouse.of(home).require_there()
    make_folder(home.path, "the home folder")
    shown = shown_uri(home.catalog_uri)
    try:
        return _settled(home)
    except (ModuleNotFoundError, NoSuchModuleError) as error:
        msg = f"no database driver for the catalog {shown}\n  {error}"
        raise SetupError(msg) from error
    except SQLAlchemyError as error:
        msg = f"cannot open the catalog {shown}\n  {_cause(error)}"
        raise CatalogError(msg) from error


@contextmanager
def opened(home: Home) -> Iterator[SqlCatalog]:
    """The catalog for the length of a block; what its database, the disk or the store refuses is said in words.

    Raises:
        CatalogError: naming the database, and what could not be done.
        StorageError: naming the warehouse, and what could not be done.
    """
    catalog = open_catalog(home)
    try:
        yield catalog
    except SQLAlchemyError as error:
        raise _catalog_failed(home, error) from error
    except OSError as error:
        raise _storage_failed(home, error) from error
    finally:
        catalog.close()


def loaded(catalog: Catalog, name: str) -> Table:
    """A table of the lake as it is now.

    Raises:
        LedgerError: when there is no such table.
        PlanError: when a newer version made it.
    """
    try:
        return known(catalog.load_table((NAMESPACE, name)))
    except NoSuchTableError:
        msg = f"no table `{name}` in the lake ({shown_uri(catalog.properties['uri'])})"
        raise LedgerError(msg) from None


def shown_uri(uri: str) -> str:
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
    facts = f"the catalog failed: {shown_uri(home.catalog_uri)}\n  {_cause(error)}"
    if not (what := _attempted(error)):
        return CatalogError(facts)
    return CatalogError(
        f"could not {what}: {facts}\n\n"
        "hint: run the same again when the catalog answers: what it has committed is found, and not done twice"
    )


def _storage_failed(home: Home, error: OSError) -> StorageError:
    warehouse, what = Warehouse.of(home), f"could not {_attempted(error) or 'write to the lake'}"
    if isinstance(error, FileNotFoundError):
        msg = f"a file of the lake is gone: {error.filename or error}\n  the lake lies in {warehouse.shown}"
        return StorageError(msg)
    if not is_from_store(error):
        return unwritable(what, warehouse.shown, error)
    return StorageError(
        f"{what}: {store_said(error)}\n  {warehouse.shown}\n\n"
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
    # A connection per use: none is left open, and none is shared with a forked process.
    engine = create_engine(home.catalog_uri, poolclass=NullPool)
    SqlCatalogBaseTable.metadata.create_all(engine)
    warehouse = Warehouse.of(home)
    properties = {"uri": home.catalog_uri, "warehouse": warehouse.location, **warehouse.properties}
    catalog = SqlCatalog(CATALOG_NAME, **properties)
    catalog.engine.dispose()
    catalog.engine = engine
    with suppress(NamespaceAlreadyExistsError):
        catalog.create_namespace(NAMESPACE)
    return catalog


def _was_overtaken(error: DBAPIError) -> bool:
    return isinstance(error, IntegrityError) or "already exists" in str(error.orig)


def _cause(error: SQLAlchemyError) -> str:
    """What the database itself said, without the statement and its parameters."""
    return str(error.orig if isinstance(error, DBAPIError) else error).strip().replace("\n", "\n  ")
