"""Reject runs that need files of executors, if executors share only an object store with the driver.

Then native tasks read the input from the store, and write their results to it. Spark's own readers and writers
need a home that executors share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from backstream.chunks.engine_choice import needs_spark_error, reason_for_spark
from backstream.definition.model import Definition
from backstream.definition.prepared import list_paths, list_single_sources, reason_to_convert
from backstream.errors import SpecError
from backstream.eventtime.windows import Session
from backstream.installed_spark import require_queries
from backstream.runs.home import Home
from backstream.runs.plan import Mode, PlannedTable
from backstream.source.files import SourceFiles
from backstream.source.in_place import is_readable_in_place
from backstream.storage.stores import Stores, is_below, is_in_store
from backstream.variables import HOME_VARIABLE, SHARED_HOME_VARIABLE, WAREHOUSE_VARIABLE


def require_stored_source(definition: Definition, home: Home, where: str) -> None:
    """Check that tasks can read the input of a run and write its results in an object store.

    Raises:
        SpecError: naming the part of the definition, or the setting, that needs a shared home.
    """
    _require(definition, home, where, _list_source_reasons(definition, home))


def require_native_tasks(
    definition: Definition, mode: Mode, columns: Mapping[str, str], files: SourceFiles, home: Home, where: str
) -> None:
    """Check that native tasks do all work of a run that reads or writes files.

    Raises:
        SpecError: naming the part of the definition that needs Spark's own readers or writers.
    """
    if home.is_shared:
        return
    if isinstance(definition.window.spec(), Session):
        _require(definition, home, where, iter(["tasks exchange parts of sessions on a disk"]))
    _require(definition, home, where, _list_engine_reasons(definition, mode, columns, files))


def require_runner(
    definition: Definition, mode: Mode, columns: Mapping[str, str], files: SourceFiles, where: str
) -> None:
    """Check that the runner of a definition, and the installed Spark, can do their part of the work of a run.

    Raises:
        SpecError: naming the part of the definition that needs Spark, or a newer one.
    """
    if reason := next(_list_engine_reasons(definition, mode, columns, files), None):
        if definition.backfill.runner == "local":
            raise needs_spark_error(reason, where)
        require_queries(f"run {definition.name}: {reason}", where)


def require_stored_tables(
    definition: Definition, tables: Mapping[str, PlannedTable], home: Home, where: str
) -> None:
    """Check that the tables of a run are in the warehouse.

    Raises:
        SpecError: naming the first table that is elsewhere.
    """
    warehouse = Stores.from_environment().warehouse
    elsewhere = (table for table in tables.values() if not is_below(table.location, warehouse))
    _require(definition, home, where, (f"table `{table.name}` is in {table.location}" for table in elsewhere))


def require_files_on_disk(definition: Definition, action: str, where: str) -> None:
    """Check that Spark can read the input, for work that native tasks don't do.

    Raises:
        SpecError: when the input is read in an object store.
    """
    if stored := [path for path in definition.source.paths if is_in_store(path)]:
        msg = (
            f"cannot {action} {definition.name}: Spark cannot read {stored[0]} ({where})\n\n"
            f"hint: for this command, use a home on a disk ({HOME_VARIABLE}) and {SHARED_HOME_VARIABLE}=yes;"
            " it then copies the input to the home"
        )
        raise SpecError(msg)


def _require(definition: Definition, home: Home, where: str, reasons: Iterator[str]) -> None:
    if home.is_shared:
        return
    if reason := next(reasons, None):
        hint = f"mount the home on the machines of all executors, and set {SHARED_HOME_VARIABLE}=yes"
        if home.address:
            hint = f"set {HOME_VARIABLE} to a folder that all machines share"
        msg = (
            f"cannot run {definition.name} on executors that do not share the home: {reason} ({where})\n\n"
            f"hint: {hint}"
        )
        raise SpecError(msg)


def _list_source_reasons(definition: Definition, home: Home) -> Iterator[str]:
    if not Stores.from_environment().warehouse:
        yield f"the warehouse is not an address in S3 ({WAREHOUSE_VARIABLE})"
    sources = [single.source for single in list_single_sources(definition)]
    if not home.address and (reason := reason_to_convert(definition)):
        yield f"{reason}, and the home is on a disk"
    if any(source.format == "iceberg" for source in sources):
        yield "source.format is iceberg"
    if definition.inputs:
        yield "there are side inputs"
    yield from (
        f"source.path is on a disk: {path}" for source in sources for path in source.paths if not is_in_store(path)
    )


def _list_engine_reasons(
    definition: Definition, mode: Mode, columns: Mapping[str, str], files: SourceFiles
) -> Iterator[str]:
    if reason := reason_for_spark(definition, columns, mode):
        yield reason
    first = files.paths[0]
    with Stores.from_environment().open_file(first) as stream:
        if not is_readable_in_place(first, definition.source, list_paths(definition), stream):
            cause = "its times are INT96 or in nanoseconds, or a column is in its path only"
            yield f"Spark must convert {first}: {cause}"
