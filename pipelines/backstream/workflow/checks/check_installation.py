"""Check the parts of an installation without a run, from Python to the warehouse."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from pyiceberg.io import FileIO, load_file_io

from backstream.definition.folder import list_definition_files
from backstream.definition.loader import load_definition
from backstream.errors import BackstreamError, SpecError
from backstream.eventtime.instants import SECOND_MS
from backstream.installed_spark import QUERIES_SINCE, find_older_spark
from backstream.lake.catalog import open_catalog_for_reading
from backstream.lake.catalog_address import CatalogAddress
from backstream.lake.catalog_history import ask_history
from backstream.lake.storage import Warehouse, filesystem_of
from backstream.runs.home import Home, definitions_folders
from backstream.runs.settings import find_project, misspelt_variables
from backstream.spark.heap import driver_heap
from backstream.spark.installation import find_overwritten_spark
from backstream.spark.java import find_java, require_java
from backstream.storage.object_stores import describe_store_error, explain_store_errors
from backstream.storage.stores import Stores
from backstream.variables import HOME_VARIABLE, WAREHOUSE_VARIABLE
from backstream.workflow.checks.findings import Finding, check_clock, fail, ok, warn

_LOWEST_PYTHON, _EXCLUDED_PYTHON = (3, 11), (3, 14)


def check_installation(home: Home) -> Iterator[Finding]:
    """Yield a finding per part of an installation. Nothing is left behind, and no Spark is started.

    Args:
        home: home of the installation.
    """
    checks: list[tuple[str, Callable[[str], Iterator[Finding]]]] = [
        ("python", _check_python),
        ("java", _check_java),
        ("spark", _check_spark),
        ("native", _check_native),
        ("settings", _check_settings),
        ("definitions", _check_definitions),
        ("home", lambda part: _check_home(part, home)),
        ("catalog", lambda part: _check_catalog(part, home)),
        ("warehouse", lambda part: _check_warehouse(part, home)),
    ]
    for part, check in checks:
        try:
            yield from check(part)
        except BackstreamError as error:
            yield Finding.from_error(part, error)


def _check_python(part: str) -> Iterator[Finding]:
    text = f"{platform.python_version()} ({sys.executable})"
    if _LOWEST_PYTHON <= sys.version_info[:2] < _EXCLUDED_PYTHON:
        yield ok(part, text)
    else:
        yield fail(part, f"must be 3.11, 3.12, or 3.13, got {text}", "install backstream into another environment")


_LOCAL = "native tasks run in processes of this machine; what only Spark can do is refused"


def _check_java(part: str) -> Iterator[Finding]:
    if find_java() is None:
        yield warn(part, f"no Java: {_LOCAL}", "install a Java 17 runtime, and set JAVA_HOME to its folder")
        return
    require_java()
    yield ok(part, str(find_java()))


def _check_spark(part: str) -> Iterator[Finding]:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        yield warn(part, f"pyspark is not installed: {_LOCAL}", "pip install 'backstream[spark]'")
        return
    found = find_overwritten_spark()
    folder = found.folder if found else Path(spec.origin).parent
    if not (folder / "jars").is_dir():
        yield fail(part, f"no jars in {folder}: it is pyspark-client", "pip install 'backstream[spark]'")
    elif old := find_older_spark(QUERIES_SINCE):
        text = f"{old} only runs tasks of the native engine"
        yield warn(part, text, f"pip install 'pyspark>={QUERIES_SINCE},<4.4'")
    elif found is None:
        yield ok(part, f"{version('pyspark')}, heap {driver_heap().description}")
    elif found.archive.is_file():
        text = f"files of pyspark {found.version} are those of pyspark-client {found.client_version}"
        yield warn(part, f"{text}; backstream uses the archive of pyspark, your own scripts do not", found.remedy)
    else:
        text = f"files of pyspark {found.version} are those of pyspark-client {found.client_version}"
        yield fail(part, text, found.remedy)


def _check_native(part: str) -> Iterator[Finding]:
    yield ok(part, f"DuckDB {version('duckdb')}")


def _check_settings(part: str) -> Iterator[Finding]:
    project = find_project()
    yield ok(part, f"project {project}" if project else "no project; settings are environment variables")
    for sentence in misspelt_variables():
        yield warn(part, sentence)


def _check_definitions(part: str) -> Iterator[Finding]:
    files = list_definition_files(*definitions_folders())
    folders = ", ".join(map(str, definitions_folders()))
    if not files:
        yield warn(part, f"none in {folders}", "backstream init orders --from data/orders")
        return
    yield ok(part, f"{len(files):,} in {folders}")
    for file in files:
        try:
            load_definition(file)
        except SpecError as error:
            yield Finding.from_error(part, error)


def _check_home(part: str, home: Home) -> Iterator[Finding]:
    if home.address:
        yield from _check_stored_home(part, home)
        return
    folder = _existing_folder(home.path)
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            difference_s = os.fstat(file.fileno()).st_mtime - time.time()
    except OSError as error:
        yield fail(part, f"cannot write to {folder}: {error.strerror}", f"set {HOME_VARIABLE} to another folder")
        return
    yield ok(part, str(home.path))
    yield from check_clock(f"the disk of {folder}", difference_s)


def _check_stored_home(part: str, home: Home) -> Iterator[Finding]:
    stores, location = Stores.from_environment(), f"{home.address}/backstream-doctor-{uuid.uuid4().hex}"
    home.path.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=home.path) as file, explain_store_errors("write", home.address):
        stores.upload(Path(file.name), location)
        [version] = stores.find_versions([location])
        stores.remove([location])
    yield ok(part, f"{home.address}, copied to {home.path}")
    if version:
        yield from check_clock(f"the store of {home.address}", version.modified_ms / SECOND_MS - time.time())


def _check_catalog(part: str, home: Home) -> Iterator[Finding]:
    with open_catalog_for_reading(home) as catalog:
        catalog.list_namespaces()
    history = ask_history(home)
    yield ok(part, CatalogAddress.from_home(home).display_text)
    if history.notice:
        yield warn(part, history.notice)


def _check_warehouse(part: str, home: Home) -> Iterator[Finding]:
    warehouse = Warehouse.from_home(home)
    if warehouse.is_on_disk:
        folder = _existing_folder(Path(warehouse.display_text))
        if os.access(folder, os.W_OK):
            yield ok(part, warehouse.display_text)
        else:
            remedy = f"set {WAREHOUSE_VARIABLE} to another folder"
            yield fail(part, f"cannot write to {folder}: Permission denied", remedy)
        return
    warehouse.require_exists()
    file = f"{warehouse.location}/backstream-doctor-{uuid.uuid4().hex}"
    store = load_file_io(dict(warehouse.properties), warehouse.location)
    try:
        with store.new_output(file).create() as stream:
            stream.write(b"written and deleted by `backstream doctor`")
        written_at_s = _written_at_s(store, file)
        store.delete(file)
    except OSError as error:
        text = f"cannot write to {warehouse.display_text}: {describe_store_error(error)}"
        yield fail(part, text, "permit this user to write and delete objects there")
    else:
        yield ok(part, warehouse.display_text)
        yield from check_clock(f"the store of {warehouse.display_text}", written_at_s - time.time())


def _written_at_s(store: FileIO, file: str) -> float:
    """Return when a store has written a file, by its own clock, in seconds since 1970."""
    filesystem, path = filesystem_of(store, file)
    return float(filesystem.get_file_info(path).mtime_ns) / 1e9


def _existing_folder(path: Path) -> Path:
    """Return the path, or its nearest parent that exists."""
    return next(each for each in (path, *path.parents) if each.is_dir())
