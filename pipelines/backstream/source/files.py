"""List the files of a source, and inspect the footers of its Parquet files. No row is read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backstream.definition.loader import load_definition, resolve_raw_paths
from backstream.definition.prepared import (
    list_single_sources,
    reads_copies,
    reads_prepared_files,
    reason_to_copy,
)
from backstream.definition.source_section import Source
from backstream.errors import BackstreamError, PlanError
from backstream.eventtime.instants import epoch_ms
from backstream.eventtime.suspect_times import TimeCounts
from backstream.runs.home import Home
from backstream.runs.input_files import HIDDEN, FileList, reason_ignored
from backstream.runs.plan import InputFile
from backstream.source.prepared import PreparedSource
from backstream.source.raw_files import expand_path, list_raw_files, list_source
from backstream.source.wildcards import walk_files
from backstream.storage.stores import NO_STORES, FileVersion, Stores, is_in_store, map_files

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class SourceFiles:
    """The data files of a source, and by reason the files that are not data.

    `versions` has those of objects in a store, which the listing of the store contains.
    """

    paths: tuple[str, ...]
    ignored: Mapping[str, FileList]
    versions: Mapping[str, FileVersion] = field(default_factory=dict)

    def find_version(self, path: str) -> FileVersion | None:
        """Return the version of a file; None if it was removed."""
        return self.versions.get(path) or NO_STORES.find_versions([path])[0]


def list_source_files(source: Source, where: str) -> SourceFiles:
    """Return the files under a source's path; a path to a file is a data file itself, whatever its suffix.

    Raises:
        PlanError: when the path does not exist, or contains no data.
    """
    is_prepared = reads_prepared_files(source) or reads_copies(source)
    if is_prepared and not all(PreparedSource.from_location(path).folder.is_dir() for path in source.paths):
        msg = (
            f"the source has no prepared files yet ({where})\n\nhint: run `backstream prepare` for the definition"
        )
        raise PlanError(msg)
    if is_prepared and any(map(is_in_store, source.paths)):
        return _list_stored_batches(source, where)
    if any(map(is_in_store, source.paths)):
        listing = list_source(source, where)
        versions = {file.path: FileVersion(file.size_bytes, file.modified_ms) for file in listing.files}
        return SourceFiles(tuple(versions), listing.ignored, versions)
    data, ignored = set[Path](), defaultdict[str, set[Path]](set)
    for root in [root for path in source.paths for root in expand_path(path, where)]:
        if root.is_file():
            _require_visible(root, where)
            data.add(root)
            continue
        for parts, entry in walk_files(root):
            if reason := reason_ignored(parts):
                ignored[reason].add(Path(entry.path))
            else:
                data.add(Path(entry.path))
    by_reason = {reason: FileList.from_paths(paths) for reason, paths in sorted(ignored.items())}
    if not data and is_prepared:
        raise _no_prepared_error(source, where)
    if not data:
        others = "".join(f"\n  {files.count_text} with {reason}: {files}" for reason, files in by_reason.items())
        msg = f"no Parquet files under {', '.join(source.paths)} ({where}, source.path){others}"
        raise PlanError(msg)
    # The other files beside prepared ones are those of backstream itself.
    in_order = sorted(data, key=lambda path: path.parts)  # faster than the order of `Path`, and the same
    return SourceFiles(tuple(map(str, in_order)), {} if is_prepared else by_reason)


def _no_prepared_error(source: Source, where: str) -> PlanError:
    """Return the error for a preparation without any record, with the damaged files that it skipped."""
    batches = [batch for path in source.paths for batch in PreparedSource.from_location(path).batches()]
    skipped = [file for batch in batches for file in batch.skipped]
    damaged = f"; {len(skipped):,} of them are damaged:\n  {skipped[0]}\n\nhint: restore them" if skipped else ""
    count = sum(len(batch.files) for batch in batches)
    return PlanError(f"no record is in the {count:,} files of the source ({where}, source.path){damaged}")


def _list_stored_batches(source: Source, where: str) -> SourceFiles:
    """Return the prepared files of a home in an object store, by the lists in its copy."""
    batches = [batch for path in source.paths for batch in PreparedSource.from_location(path).batches()]
    versions = {
        file.path: FileVersion(file.size_bytes, file.modified_ms) for batch in batches for file in batch.stored
    }
    if not versions:
        msg = f"no prepared files under {', '.join(source.paths)} ({where}, source.path)"
        raise PlanError(msg)
    return SourceFiles(tuple(sorted(versions)), {}, versions)


def sum_source_bytes(
    definition: Path, home: Home, table_bytes: Callable[[str, Home, str], int] | None = None
) -> int | None:
    """Return the size of all files of a definition's source in bytes; None if it is not known.

    Args:
        definition: the TOML file.
        home: the folder that `${BACKSTREAM_HOME}` in paths means.
        table_bytes: returns the size of an Iceberg table; without it, and in an object store, it is not known.
    """
    try:
        resolved = resolve_raw_paths(load_definition(definition), home)
        sources = [single.source for single in list_single_sources(resolved)]
        of_tables, others = (
            [source for source in sources if (source.format == "iceberg") is is_table]
            for is_table in (True, False)
        )
        if any(map(reason_to_copy, others)) or (of_tables and table_bytes is None):
            return None
        where = str(definition)
        sizes = [table_bytes(str(source.path), home, where) for source in of_tables] if table_bytes else []
        return sum(sizes) + sum(file.size_bytes for source in others for file in list_raw_files(source, where))
    except (BackstreamError, OSError):
        return None


def _require_visible(file: Path, where: str) -> None:
    if reason_ignored((file.name,)) == HIDDEN:
        msg = (
            f"Spark ignores files whose name begins with _ or .: {file} ({where}, source.path)\n\n"
            "hint: rename the file"
        )
        raise PlanError(msg)


@dataclass(frozen=True, slots=True)
class DamagedFile:
    """A file whose footer cannot be read, with the reason."""

    path: str
    size_bytes: int
    modified_ms: int
    reason: str


@dataclass(frozen=True, slots=True)
class SchemaGroup:
    """Files with the same schema; `has_rows` is the same for all of them."""

    schema: pa.Schema
    paths: list[str]
    has_rows: bool


FileTimes = Mapping[str, TimeCounts]
"""The counts of `event_time` and `arrival_time` of a file, as far as its footer is not enough."""


@dataclass(frozen=True, slots=True)
class FileInspection:
    """The content of footers: files with a readable footer, damaged files, and groups of files by schema.

    `times` has the counts of the times of files whose footers are not enough, by path.
    """

    inputs: tuple[InputFile, ...]
    damaged: tuple[DamagedFile, ...]
    shapes: tuple[SchemaGroup, ...]
    times: Mapping[str, FileTimes] = field(default_factory=dict)


def inspect_files(files: SourceFiles, source: Source) -> FileInspection:
    """Return the rows, bytes and time bounds of each file, and the schemas of all.

    Of row groups whose bounds may hold suspect times, the times are read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    stores = Stores.from_environment()

    def inspect(path: str) -> tuple[InputFile, pa.Schema, FileTimes] | DamagedFile:
        try:
            if not is_in_store(path):
                footer = pq.read_metadata(path)
            else:
                footer = pq.read_metadata(pa.BufferReader(stores.read_footer(path).content))
            schema = _read_schema(footer)
        except (pa.ArrowException, OSError, ValueError) as error:
            return _describe_damaged(path, files.find_version(path), error)
        version = files.find_version(path) or FileVersion(0, 0)
        return _describe_file(path, version, footer, source), schema, _count_times(path, footer, source, stores)

    inspected = map_files(inspect, {path: path for path in files.paths})
    damaged = tuple(file for file in inspected if isinstance(file, DamagedFile))
    inputs: list[InputFile] = []
    shapes: list[SchemaGroup] = []
    times: dict[str, FileTimes] = {}
    for file, schema, own_times in (file for file in inspected if not isinstance(file, DamagedFile)):
        inputs.append(file)
        _add_to_groups(shapes, schema, file)
        if own_times:
            times[file.path] = own_times
    return FileInspection(tuple(inputs), damaged, tuple(shapes), times)


def _count_times(path: str, footer: Any, source: Source, stores: Stores) -> FileTimes:
    """Return the counts of the times of a file; none if it is damaged, which the reader of its rows reports."""
    import pyarrow as pa

    from backstream.source.time_counts import count_times

    expressions = {"event_time": source.event_time, "arrival_time": source.arrival_time}
    try:
        counted = {
            name: count_times(path, footer, expression, lambda: stores.parquet_source(path))
            for name, expression in expressions.items()
            if expression is not None
        }
    except (pa.ArrowException, OSError):
        return {}
    return {name: counts for name, counts in counted.items() if counts is not None}


def _read_schema(footer: Any) -> pa.Schema:
    """Return the schema of a file.

    Spark has long written instants as INT96, which Arrow reads as nanoseconds; the schema has microseconds
    instead.
    """
    import pyarrow as pa

    schema = footer.schema.to_arrow_schema()
    columns = [footer.schema.column(number) for number in range(footer.num_columns)]
    int96 = {column.path for column in columns if column.physical_type == "INT96"}
    for name in int96.intersection(schema.names):
        schema = schema.set(schema.get_field_index(name), pa.field(name, pa.timestamp("us", "UTC")))
    return schema


def _add_to_groups(shapes: list[SchemaGroup], schema: pa.Schema, file: InputFile) -> None:
    has_rows = file.rows > 0
    for shape in reversed(shapes):
        if shape.has_rows == has_rows and schema.equals(shape.schema):
            shape.paths.append(file.path)
            return
    shapes.append(SchemaGroup(schema, [file.path], has_rows))


def _describe_damaged(path: str, version: FileVersion | None, error: Exception) -> DamagedFile:
    known = version or FileVersion(0, 0)  # the file may have been removed meanwhile
    return DamagedFile(path, known.size_bytes, known.modified_ms, read_error_text(error))


def read_error_text(error: Exception) -> str:
    """Return why a file cannot be read, in one line."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    line = str(error).partition("\n")[0].rstrip(".")  # the message may quote content of the file
    return "".join(char if char.isprintable() else "?" for char in line) or type(error).__name__


def _describe_file(path: str, version: FileVersion, footer: Any, source: Source) -> InputFile:
    event, arrival = (_time_bounds(footer, column) for column in (source.event_time, source.arrival_time))
    is_unreadable = any(_has_only_nulls(footer, column) for column in (source.event_time, source.arrival_time))
    bounds = (*event, *arrival)
    return InputFile(path, footer.num_rows, version.size_bytes, *bounds, version.modified_ms, is_unreadable)


def _groups_of(footer: Any, column: str | None) -> list[Any]:
    """Return the descriptions of a column in all row groups; none if the file lacks it."""
    positions = {footer.schema.column(number).path: number for number in range(footer.num_columns)}
    if column not in positions:
        return []
    return [footer.row_group(number).column(positions[column]) for number in range(footer.num_row_groups)]


def _has_only_nulls(footer: Any, column: str | None) -> bool:
    groups = _groups_of(footer, column)
    return bool(groups) and all(map(_is_all_null, groups))


def _time_bounds(footer: Any, column: str | None) -> tuple[int | None, int | None]:
    """Return the bounds of a time column over all row groups, floored to ms; None if a row group lacks them."""
    groups = _groups_of(footer, column)
    statistics = [group.statistics for group in groups if group.num_values and not _is_all_null(group)]
    if not statistics or not all(bounds is not None and bounds.has_min_max for bounds in statistics):
        return None, None
    try:
        values = [_epoch_ms(value) for bounds in statistics for value in (bounds.min, bounds.max)]
    except (OverflowError, ValueError):  # Python has no time after the year 9999
        return None, None
    instants = [value for value in values if value is not None]
    return (min(instants), max(instants)) if len(instants) == len(values) else (None, None)


def _is_all_null(group: Any) -> bool:
    """Return whether a row group has only nulls in the column, and so no bounds."""
    statistics = group.statistics
    return statistics is not None and statistics.has_null_count and statistics.null_count == group.num_values


def _epoch_ms(value: object) -> int | None:
    if not isinstance(value, datetime):
        return None
    return epoch_ms(value if value.tzinfo else value.replace(tzinfo=UTC))


def find_arrival_bounds(inputs: Iterable[InputFile]) -> tuple[int, int] | None:
    """Return the first and last arrival over all files: 0 and 0 without any, None if a file lacks its bounds."""
    files = [file for file in inputs if file.rows and not file.is_unreadable]
    bounds = [(file.min_arrival_ms, file.max_arrival_ms) for file in files]
    complete = [(low, high) for low, high in bounds if low is not None and high is not None]
    if not bounds:
        return 0, 0
    if len(complete) < len(bounds):
        return None
    return min(low for low, _ in complete), max(high for _, high in complete)
