"""The files of a task: which of them have the same columns, and whether the engine reads their types."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow.parquet as pq

from backstream.core.errors import ContractError
from backstream.native.sql import FILE_NUMBER
from backstream.native.task import Reading

_ARROW_TYPES: dict[str, Sequence[str]] = {
    "timestamp": ("timestamp[us, tz=UTC]", "timestamp[ms, tz=UTC]"),
    "timestamp_ntz": ("timestamp[us]", "timestamp[ms]"),
    "tinyint": ("int8",),
    "smallint": ("int8", "int16"),
    "int": ("int8", "int16", "int32"),
    "bigint": ("int8", "int16", "int32", "int64"),
    "string": ("string", "large_string"),
    "date": ("date32[day]",),
    "boolean": ("bool",),
    "float": ("float",),
    "double": ("float", "double"),
}
"""Which types of a file's column are read as a Spark SQL type."""


def files_alike(files: Sequence[str], reading: Reading) -> list[tuple[list[str], list[str]]]:
    """Put files together that have the same of the columns that are read, each of the same type.

    DuckDB reads all files of a list with the types of the first one, and refuses a value that is too large for it.

    Raises:
        ContractError: naming a file, a column and its type that the engine does not read.
    """
    found: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for file in files:
        found.setdefault(tuple(_columns(file, reading)), []).append(file)
    return [(alike, [name for name, _ in columns]) for columns, alike in found.items()]


def _columns(file: str, reading: Reading) -> Iterator[tuple[str, str]]:
    """Return which of the columns that are read a file has, and their types."""
    schema = pq.read_schema(file)
    if any(name.lower() == FILE_NUMBER for name in schema.names):
        msg = f"the native engine reads no file with a column {FILE_NUMBER!r}\n  {file}"
        raise ContractError(msg)
    for name, kind in reading.types.items():
        alike = [each for each in schema.names if each.lower() == name.lower()]
        if not alike:
            continue
        if alike != [name]:
            msg = f"the native engine takes columns for the same if only their case differs: {alike}\n  {file}"
            raise ContractError(msg)
        said = str(schema.field(name).type)
        allowed = _ARROW_TYPES.get(kind, (kind.replace("decimal", "decimal128").replace(",", ", "),))
        if said not in allowed:
            msg = f"the native engine reads a {kind} of {', '.join(allowed)}, column {name!r} is {said}\n  {file}"
            raise ContractError(msg)
        yield name, said
