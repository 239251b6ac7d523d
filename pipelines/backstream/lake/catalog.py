"""Open the Iceberg catalog, load its tables, and turn its errors into readable messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    DynamoDbError,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    NotInstalledError,
    RESTError,
)
from pyiceberg.table import Table
from sqlalchemy.exc import DBAPIError, NoSuchModuleError, SQLAlchemyError

from backstream import __version__
from backstream.errors import (
    BackstreamError,
    CatalogError,
    LedgerError,
    PlanError,
    SetupError,
    StorageError,
    storage_error,
)
from backstream.lake.catalog_address import SQL, CatalogAddress, namespace, table_identifier
from backstream.lake.sql_catalog import create_sql_catalog, find_sql_catalog
from backstream.lake.storage import Warehouse, create_folder
from backstream.runs.home import Home
from backstream.storage.object_stores import describe_store_error, is_from_store
from backstream.text import visible_line
from backstream.variables import WAREHOUSE_VARIABLE

_CLIENTS = frozenset(("requests", "urllib3", "thrift", "hive_metastore", "botocore", "google"))
"""The packages with which PyIceberg calls the services of catalogs."""


def is_catalog_error(error: BaseException) -> bool:
    """Return whether an error is of a catalog, and not of a disk or an object store."""
    package = type(error).__module__.partition(".")[0]
    return isinstance(error, SQLAlchemyError | RESTError | DynamoDbError) or package in _CLIENTS


def _describe_cause(error: BaseException) -> str:
    """Return the message of the database or service itself, without the statement and its parameters."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    return str(cause).strip().replace("\n", "\n  ") or type(error).__name__


FORMAT = "backstream.format"
"""Table property: the version of the table format."""
FORMAT_VERSION = 2
MADE_BY = "backstream.made_by"
"""Table property: the version of backstream that created the table."""
_NO_CATALOG = "no catalog yet"
"""Name of the empty catalog that is read in place of a missing one."""
_SHOWN = "shown"
"""Property of an open catalog: its address without passwords."""
_PLACE = "location-of-tables"
"""Property of an open catalog: the location of the warehouse; empty if the catalog chooses those of new tables."""


def open_catalog(home: Home) -> Catalog:
    """Return the catalog of a home, and create it if it is missing; several processes may do so at once.

    The caller closes it; `open_catalog_for_writing` closes it by itself.

    Raises:
        SetupError: if the address of the catalog or warehouse is invalid, or a package for it isn't installed.
        CatalogError: if the catalog cannot be reached.
        StorageError: if the folder of the warehouse cannot be created, or its object store has no such bucket.
    """
    Warehouse.from_home(home).require_exists()
    create_folder(home.path, "the home folder")
    return _open_with(home, _create_catalog)


def _open_with(home: Home, opener: Callable[[CatalogAddress, Mapping[str, str]], Catalog | None]) -> Catalog:
    address = CatalogAddress.from_home(home)
    shown = address.display_text
    try:
        catalog = opener(address, catalog_properties(home, address))
    except (ImportError, NoSuchModuleError, NotInstalledError) as error:
        kind = "database driver" if address.kind == SQL else "client"
        msg = f"no {kind} for the catalog {shown}\n  {error}"
        raise SetupError(msg) from error
    except BackstreamError:
        raise
    except Exception as error:
        if not (is_catalog_error(error) or isinstance(error, ValueError)):
            raise
        msg = f"cannot open the catalog {shown}\n  {_describe_cause(error)}"
        raise (CatalogError if is_catalog_error(error) else SetupError)(msg) from error
    catalog = catalog or _empty_catalog(home)
    warehouse = Warehouse.from_home(home)
    catalog.properties |= {_SHOWN: shown, _PLACE: warehouse.location if warehouse.is_given else ""}
    return catalog


@contextmanager
def open_catalog_for_writing(home: Home) -> Iterator[Catalog]:
    """Open the catalog for the length of a block, and translate errors of the catalog, disk, and object store.

    Raises:
        CatalogError: with the catalog and the attempted action.
        StorageError: with the warehouse and the attempted action.
    """
    with _translate_errors(home, open_catalog(home)) as catalog:
        yield catalog


@contextmanager
def open_catalog_for_reading(home: Home) -> Iterator[Catalog]:
    """Open the catalog for a block that only reads; a missing catalog is not created but read as an empty one.

    Raises:
        SetupError: as `open_catalog` does.
        CatalogError: with the catalog, if it cannot be reached or read.
        StorageError: with the warehouse, if it cannot be read or its object store has no such bucket.
    """
    warehouse = Warehouse.from_home(home)
    if not warehouse.is_on_disk:
        warehouse.require_exists()
    with _translate_errors(home, _open_with(home, _find_catalog)) as catalog:
        yield catalog


def is_created(home: Home) -> bool:
    """Return whether the catalog has the namespace of the installation, which the first run creates."""
    with open_catalog_for_reading(home) as catalog:
        return catalog.name != _NO_CATALOG


@contextmanager
def _translate_errors(home: Home, catalog: Catalog) -> Iterator[Catalog]:
    try:
        yield catalog
    except BackstreamError:
        raise
    except Exception as error:
        if is_catalog_error(error):  # before the disk: a failed request is an `OSError` too
            raise _catalog_failed(catalog, error) from error
        if isinstance(error, OSError):
            raise _storage_failed(home, error) from error
        raise
    finally:
        catalog.close()


def load_table(catalog: Catalog, name: str) -> Table:
    """Return a table in its current state.

    Raises:
        LedgerError: if there is no such table.
        PlanError: if a newer version of backstream created it.
    """
    try:
        return require_known_format(catalog.load_table(table_identifier(name)))
    except NoSuchTableError:
        msg = f"no table `{visible_line(name)}` in the lake ({catalog.properties.get(_SHOWN, catalog.name)})"
        raise LedgerError(msg) from None


def new_table_location(catalog: Catalog, name: str) -> str | None:
    """Return the location of a table that does not exist yet; None if the catalog chooses it."""
    place = catalog.properties[_PLACE]
    return "/".join((place.rstrip("/"), *table_identifier(name))) if place else None


@contextmanager
def explain_missing_location(catalog: Catalog, name: str) -> Iterator[None]:
    """Raise a `SetupError` if a catalog that should choose the location of a new table knows none."""
    try:
        yield
    except ValueError as error:
        if "No default path" not in str(error):
            raise
        msg = (
            f"no location for the new table `{name}`: the namespace {'.'.join(table_identifier(name)[:-1])} of the"
            f" catalog {catalog.properties[_SHOWN]} has no property `location`\n\nhint: set {WAREHOUSE_VARIABLE}"
        )
        raise SetupError(msg) from None


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


def _catalog_failed(catalog: Catalog, error: Exception) -> CatalogError:
    facts = f"the catalog failed: {catalog.properties.get(_SHOWN, catalog.name)}\n  {_describe_cause(error)}"
    if not (action := _attempt_text(error)):
        return CatalogError(facts)
    return CatalogError(
        f"could not {action}: {facts}\n\n"
        "hint: run the same command again when the catalog is available; committed work is not repeated"
    )


def _storage_failed(home: Home, error: OSError) -> StorageError:
    warehouse, failure = Warehouse.from_home(home), f"could not {_attempt_text(error) or 'write to the lake'}"
    if isinstance(error, FileNotFoundError):
        msg = (
            f"a file of the lake is missing: {error.filename or error}\n  the lake is in {warehouse.display_text}"
        )
        return StorageError(msg)
    if not is_from_store(error):
        return storage_error(failure, warehouse.display_text, error)
    return StorageError(
        f"{failure}: {describe_store_error(error)}\n  {warehouse.display_text}\n\n"
        "hint: run the same command again when the store is available;"
        " finished chunks are kept, and published ranges are complete"
    )


def _attempt_text(error: Exception) -> str:
    return next(iter(getattr(error, "__notes__", ())), "")


def _create_catalog(address: CatalogAddress, properties: Mapping[str, str]) -> Catalog:
    if address.kind == SQL:
        return create_sql_catalog(address, properties, _create_namespace)
    catalog = _load_service(address, properties)
    if not _has_namespace(catalog):
        _create_namespace(catalog)
    return catalog


def _find_catalog(address: CatalogAddress, properties: Mapping[str, str]) -> Catalog | None:
    """Return the catalog with the namespace of the installation; None if there is none."""
    is_sql = address.kind == SQL
    catalog = find_sql_catalog(address, properties) if is_sql else _load_service(address, properties)
    return catalog if catalog and _has_namespace(catalog) else None


def _load_service(address: CatalogAddress, properties: Mapping[str, str]) -> Catalog:
    kind = {"type": address.kind} if address.kind else {}
    return load_catalog(address.name, **kind, **properties)


def _create_namespace(catalog: Catalog) -> None:
    levels = namespace()
    for depth in range(1, len(levels) + 1):
        with suppress(NamespaceAlreadyExistsError):
            catalog.create_namespace(levels[:depth])


def _has_namespace(catalog: Catalog) -> bool:
    try:
        catalog.load_namespace_properties(namespace())
    except NoSuchNamespaceError:
        return False
    return True


def _empty_catalog(home: Home) -> SqlCatalog:
    properties = Warehouse.from_home(home).catalog_properties
    catalog = SqlCatalog(_NO_CATALOG, **properties | {"uri": "sqlite://"})
    _create_namespace(catalog)
    return catalog


def catalog_properties(home: Home, address: CatalogAddress) -> dict[str, str]:
    """Return the properties of PyIceberg: those of the address, and over them those of the warehouse.

    For a service, `warehouse` is a name or a place of its own, which is kept.
    """
    properties = {**address.properties, **Warehouse.from_home(home).catalog_properties}
    if address.kind == SQL:
        return properties
    own = {name: value for name, value in address.properties.items() if name == "warehouse"}
    return {name: value for name, value in properties.items() if name != "warehouse"} | own
