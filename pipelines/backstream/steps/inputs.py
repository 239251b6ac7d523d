"""What lies in a source: its Parquet files, as their footers describe them. No row is read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from backstream.core.errors import PlanError
from backstream.core.instants import epoch_ms
from backstream.core.plan import InputFile
from backstream.definition.model import Source


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


def inspected(files: Sequence[Path], source: Source) -> tuple[tuple[InputFile, ...], dict[str, str]]:
    """Each file's rows, bytes and time bounds, and the columns with their Spark SQL types.

    Raises:
        PlanError: when a file is not Parquet.
    """
    footers = [(path, _footer(path)) for path in files]
    inputs = tuple(_described(path, footer, source) for path, footer in footers)
    schema: pa.Schema = footers[0][1].schema.to_arrow_schema()
    return inputs, {field.name: _spark_type(field.type) for field in schema}


def _footer(path: Path) -> Any:
    try:
        return pq.read_metadata(path)
    except (pa.ArrowInvalid, OSError) as error:
        msg = f"not a Parquet file: {path}\n  {error}"
        raise PlanError(msg) from None


def _described(path: Path, footer: Any, source: Source) -> InputFile:
    event, arrival = (_bounds(footer, column) for column in (source.event_time, source.arrival_time))
    return InputFile(str(path), footer.num_rows, path.stat().st_size, *event, *arrival)


def _bounds(footer: Any, column: str | None) -> tuple[int | None, int | None]:
    """Least and greatest instant of a column over all row groups, floored to ms; None where any does not tell."""
    positions = {footer.schema.column(number).path: number for number in range(footer.num_columns)}
    if column not in positions or not footer.num_row_groups:
        return None, None
    groups = [footer.row_group(number).column(positions[column]) for number in range(footer.num_row_groups)]
    told = [group.statistics for group in groups if group.num_values]
    if not told or not all(each is not None and each.has_min_max for each in told):
        return None, None
    values = [_epoch_ms(value) for each in told for value in (each.min, each.max)]
    known = [value for value in values if value is not None]
    return (min(known), max(known)) if len(known) == len(values) else (None, None)


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
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return _SPARK_TYPES.get(kind, "binary")


def arrival_bounds(inputs: Iterable[InputFile]) -> tuple[int, int] | None:
    """First and last arrival over all files; None when some file does not tell."""
    bounds = [(file.min_arrival_ms, file.max_arrival_ms) for file in inputs if file.rows]
    known = [(low, high) for low, high in bounds if low is not None and high is not None]
    if not known or len(known) < len(bounds):
        return None
    return min(low for low, _ in known), max(high for _, high in known)
