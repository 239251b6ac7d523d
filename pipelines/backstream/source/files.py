"""What lies in a source: its Parquet files, as their footers describe them. No row is read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backstream.definition.loader import load_definition
from backstream.definition.model import Source
from backstream.errors import BackstreamError, PlanError
from backstream.eventtime.instants import epoch_ms
from backstream.runs.input_files import HIDDEN, FileList, reason_ignored
from backstream.runs.plan import InputFile

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class SourceFiles:
    """The data files of a source, and those beside them that are not data, by reason."""

    paths: tuple[Path, ...]
    ignored: Mapping[str, FileList]


def list_source_files(source: Source, where: str) -> SourceFiles:
    """Return the files under a source's path; a path that is a file is one itself, whatever its suffix.

    Raises:
        PlanError: when there is no such path, or no data in it.
    """
    root = Path(source.path)
    if not root.exists():
        msg = f"no file or folder at {root} ({where}, source.path)"
        raise PlanError(msg)
    if root.is_file():
        _require_visible(root, where)
        return SourceFiles((root,), {})
    data, ignored = [], defaultdict[str, list[Path]](list)
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        reason = reason_ignored(path.relative_to(root).parts)
        if reason:
            ignored[reason].append(path)
        else:
            data.append(path)
    found = {reason: FileList.from_paths(paths) for reason, paths in sorted(ignored.items())}
    if not data:
        left = "".join(f"\n  {files.counted} with {reason}: {files}" for reason, files in found.items())
        msg = f"no Parquet files under {root} ({where}, source.path){left}"
        raise PlanError(msg)
    return SourceFiles(tuple(data), found)


def sum_source_bytes(definition: Path) -> int | None:
    """Return the size of all files of a definition's source. It is None where planning will fail, and say why."""
    try:
        source = load_definition(definition).source
        return sum(path.stat().st_size for path in list_source_files(source, str(definition)).paths)
    except (BackstreamError, OSError):
        return None


def _require_visible(file: Path, where: str) -> None:
    if reason_ignored((file.name,)) == HIDDEN:
        msg = (
            f"Spark reads nothing from a file whose name begins with _ or .: {file} ({where}, source.path)\n\n"
            "hint: give the file another name"
        )
        raise PlanError(msg)


@dataclass(frozen=True, slots=True)
class DamagedFile:
    """A file whose footer cannot be read, and why."""

    path: str
    size_bytes: int
    modified_ms: int
    reason: str


@dataclass(frozen=True, slots=True)
class SchemaGroup:
    """Files with the same columns of the same types; `has_rows` says whether any of them has a row."""

    schema: pa.Schema
    paths: list[str]
    has_rows: bool


@dataclass(frozen=True, slots=True)
class FileInspection:
    """What the footers say: the files with one that can be read, those without, and which columns there are."""

    inputs: tuple[InputFile, ...]
    damaged: tuple[DamagedFile, ...]
    shapes: tuple[SchemaGroup, ...]


def inspect_files(found: SourceFiles, source: Source) -> FileInspection:
    """Return each file's rows, bytes and time bounds, and the columns of all of them. No row is read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    inputs: list[InputFile] = []
    damaged: list[DamagedFile] = []
    shapes: list[SchemaGroup] = []
    for path in found.paths:
        try:
            footer = pq.read_metadata(path)
            schema = _schema(footer)
        except (pa.ArrowException, OSError) as error:
            damaged.append(_damaged(path, error))
            continue
        inputs.append(_described(path, footer, source))
        _add_to(shapes, schema, inputs[-1])
    return FileInspection(tuple(inputs), tuple(damaged), tuple(shapes))


def _schema(footer: Any) -> pa.Schema:
    """The columns of a file. What Spark has long written as INT96 is an instant; Arrow says nanoseconds."""
    import pyarrow as pa

    schema = footer.schema.to_arrow_schema()
    columns = [footer.schema.column(number) for number in range(footer.num_columns)]
    int96 = {column.path for column in columns if column.physical_type == "INT96"}
    for name in int96.intersection(schema.names):
        schema = schema.set(schema.get_field_index(name), pa.field(name, pa.timestamp("us", "UTC")))
    return schema


def _add_to(shapes: list[SchemaGroup], schema: pa.Schema, file: InputFile) -> None:
    has_rows = file.rows > 0
    for shape in reversed(shapes):
        if shape.has_rows == has_rows and schema.equals(shape.schema):
            shape.paths.append(file.path)
            return
    shapes.append(SchemaGroup(schema, [file.path], has_rows))


def _damaged(path: Path, error: Exception) -> DamagedFile:
    try:
        found = path.stat()
    except OSError:  # it went while it was looked at
        return DamagedFile(str(path), 0, 0, read_error_text(error))
    return DamagedFile(str(path), found.st_size, found.st_mtime_ns // 1_000_000, read_error_text(error))


def read_error_text(error: Exception) -> str:
    """Return why a file cannot be read, in one line."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    line = str(error).partition("\n")[0].rstrip(".")  # which may quote what is in the file
    return "".join(each if each.isprintable() else "?" for each in line) or type(error).__name__


def _described(path: Path, footer: Any, source: Source) -> InputFile:
    event, arrival = (_bounds(footer, column) for column in (source.event_time, source.arrival_time))
    found = path.stat()
    modified_ms = found.st_mtime_ns // 1_000_000
    return InputFile(str(path), footer.num_rows, found.st_size, *event, *arrival, modified_ms)


def _bounds(footer: Any, column: str | None) -> tuple[int | None, int | None]:
    """Least and greatest instant of a column over all row groups, floored to ms; None where any does not tell."""
    positions = {footer.schema.column(number).path: number for number in range(footer.num_columns)}
    if column not in positions or not footer.num_row_groups:
        return None, None
    groups = [footer.row_group(number).column(positions[column]) for number in range(footer.num_row_groups)]
    told = [group.statistics for group in groups if group.num_values and not _is_null(group)]
    if not told or not all(each is not None and each.has_min_max for each in told):
        return None, None
    values = [_epoch_ms(value) for each in told for value in (each.min, each.max)]
    known = [value for value in values if value is not None]
    return (min(known), max(known)) if len(known) == len(values) else (None, None)


def _is_null(group: Any) -> bool:
    """Whether a row group has nothing but nulls in the column, and so nothing to tell."""
    found = group.statistics
    return found is not None and found.has_null_count and found.null_count == group.num_values


def _epoch_ms(value: object) -> int | None:
    if not isinstance(value, datetime):
        return None
    return epoch_ms(value if value.tzinfo else value.replace(tzinfo=UTC))


def find_arrival_bounds(inputs: Iterable[InputFile]) -> tuple[int, int] | None:
    """First and last arrival over all files, 0 and 0 when they have no rows; None when some file does not tell."""
    bounds = [(file.min_arrival_ms, file.max_arrival_ms) for file in inputs if file.rows]
    known = [(low, high) for low, high in bounds if low is not None and high is not None]
    if not bounds:
        return 0, 0
    if len(known) < len(bounds):
        return None
    return min(low for low, _ in known), max(high for _, high in known)
