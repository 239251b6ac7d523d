"""What lies in a source: its Parquet files, as their footers describe them. No row is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from backstream.core.errors import PlanError
from backstream.core.instants import epoch_ms
from backstream.core.plan import InputFile
from backstream.definition.aggregates import columns_named
from backstream.definition.model import Definition, Source


def source_files(source: Source, where: str) -> list[Path]:
    """The files under a source's path; names that begin with a dot or an underscore are not data.

    Raises:
        PlanError: when there is no such path, or nothing in it.
    """
    root = Path(source.path)
    if not root.exists():
        msg = f"no file or folder at {root} ({where}, source.path)"
        raise PlanError(msg)
    found = [root] if root.is_file() else sorted(path for path in root.rglob("*") if _is_data(path, root))
    if not found:
        msg = f"no Parquet files under {root} ({where}, source.path)"
        raise PlanError(msg)
    return found


def _is_data(path: Path, root: Path) -> bool:
    parts = path.relative_to(root).parts
    return path.is_file() and not any(part.startswith((".", "_")) for part in parts)


@dataclass(frozen=True, slots=True)
class Inspected:
    """What the footers say: the files, each column's Spark SQL type, and which files lack a column of others."""

    inputs: tuple[InputFile, ...]
    types: Mapping[str, str]
    lacking: Mapping[str, tuple[Path, ...]]


def inspected(files: Sequence[Path], source: Source) -> Inspected:
    """Each file's rows, bytes and time bounds, and the columns of all of them. No row is read.

    Raises:
        PlanError: when a file is not Parquet, or has a column that Spark cannot read beside the others.
    """
    footers = [(path, _footer(path)) for path in files]
    inputs = tuple(_described(path, footer, source) for path, footer in footers)
    schemas = {path: footer.schema.to_arrow_schema() for path, footer in footers}
    types = _types(schemas)
    lacking = {name: tuple(path for path, schema in schemas.items() if name not in schema.names) for name in types}
    return Inspected(inputs, types, {name: paths for name, paths in lacking.items() if paths})


def require_everywhere(definition: Definition, lacking: Mapping[str, Sequence[Path]], where: str) -> None:
    """Check that every file has the columns that a definition names: they would be null, and nobody would know.

    Raises:
        PlanError: naming the first such column, and the first file without it.
    """
    for name in columns_named(definition):
        if name in lacking:
            msg = f"column {name!r} is not in all files of the source ({where})\n  {len(lacking[name])} lack it"
            msg += f", the first: {lacking[name][0]}"
            raise PlanError(msg)


def _types(schemas: Mapping[Path, pa.Schema]) -> dict[str, str]:
    found: dict[str, tuple[str, Path]] = {}
    known: list[pa.Schema] = []
    for path, schema in schemas.items():
        if any(schema.equals(each) for each in known):
            continue
        known.append(schema)
        for field in schema:
            _require_microseconds(field, path)
            kind, first_path = found.setdefault(field.name, (_spark_type(field.type), path))
            if _spark_type(field.type) != kind:
                raise _two_types(field, (kind, first_path), path)
    return {name: kind for name, (kind, _) in found.items()}


def _require_microseconds(field: pa.Field, path: Path) -> None:
    if pa.types.is_timestamp(field.type) and field.type.unit == "ns":
        msg = (
            f"column {field.name!r} has nanoseconds, which Spark cannot read ({path})\n\n"
            "hint: write microseconds; pyarrow does with coerce_timestamps='us'"
        )
        raise PlanError(msg)


def _two_types(field: pa.Field, first: tuple[str, Path], path: Path) -> PlanError:
    """Spark reads all files by one schema."""
    facts = f"\n  {first[0]} in {first[1]}\n  {_spark_type(field.type)} in {path}"
    return PlanError(f"column {field.name!r} must be of one type in all files, got two{facts}")


def _footer(path: Path) -> Any:
    try:
        return pq.read_metadata(path)
    except (pa.ArrowInvalid, OSError) as error:
        msg = f"not a Parquet file: {path}\n  {error}"
        raise PlanError(msg) from None


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


_SPARK_TYPES = {
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.date32(): "date",
}


def _spark_type(kind: pa.DataType) -> str:
    """How Spark names an Arrow type; `binary` for what no aggregate or key can use."""
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pa.types.is_dictionary(kind):
        return _spark_type(kind.value_type)  # pandas' categories; in the file they are plain
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return _SPARK_TYPES.get(kind, "binary")


def arrival_bounds(inputs: Iterable[InputFile]) -> tuple[int, int] | None:
    """First and last arrival over all files, 0 and 0 when they have no rows; None when some file does not tell."""
    bounds = [(file.min_arrival_ms, file.max_arrival_ms) for file in inputs if file.rows]
    known = [(low, high) for low, high in bounds if low is not None and high is not None]
    if not bounds:
        return 0, 0
    if len(known) < len(bounds):
        return None
    return min(low for low, _ in known), max(high for _, high in known)
