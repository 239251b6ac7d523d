"""Read the types of the columns of a Parquet, ORC, or Avro file, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from backstream.source.avro_files import load_avro_schema
from backstream.source.column_types import int96_columns, quote_column, spark_type_of_arrow
from backstream.source.files import read_error_text
from backstream.source.reader import UnreadableError

_AVRO_TYPES = {"long": "bigint", "bytes": "binary", "fixed": "binary", "enum": "string"}
_LOGICAL_TYPES = {
    "date": "date",
    **dict.fromkeys(("timestamp-millis", "timestamp-micros"), "timestamp"),
    **dict.fromkeys(("local-timestamp-millis", "local-timestamp-micros"), "timestamp_ntz"),
}


_EMPTY = {"orc", "avro"}
"""Formats of which Spark reads a file of 0 bytes as no records."""


def load_column_types(format_name: str, path: str) -> Mapping[str, str]:
    """Return the Spark SQL type of each column of a file; a type that Spark lacks has its own name.

    A time in nanoseconds is a timestamp, because a preparation rounds it to microseconds. The types of a file
    without rows are often arbitrary, so it has none, except for Avro.

    Args:
        format_name: `parquet`, `iceberg`, `orc`, or `avro`.
        path: the file.

    Raises:
        UnreadableError: when the file is damaged.
    """
    try:
        if format_name in _EMPTY and not Path(path).stat().st_size:
            return {}
        return dict(_READERS[format_name](path))
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, ValueError, EOFError) as error:
        raise UnreadableError(path, read_error_text(error)) from None


def _parquet_types(path: str) -> Iterator[tuple[str, str]]:
    metadata = pq.read_metadata(path)
    int96 = int96_columns(metadata)
    for field in metadata.schema.to_arrow_schema() if metadata.num_rows else ():
        if field.name in int96:
            yield field.name, "timestamp"
        else:
            yield from _arrow_types(pa.schema([field]))


def _arrow_types(schema: pa.Schema) -> Iterator[tuple[str, str]]:
    for field in schema:
        kind = field.type
        if pa.types.is_timestamp(kind):
            kind = pa.timestamp("us", kind.tz)
        yield field.name, spark_type_of_arrow(kind) or str(kind)


def _orc_types(path: str) -> Iterator[tuple[str, str]]:
    file = orc.ORCFile(path)
    return _arrow_types(file.schema) if file.nrows else iter(())


def _avro_types(path: str) -> Iterator[tuple[str, str]]:
    with Path(path).open("rb") as stream:
        schema = load_avro_schema(stream, path)
    names = dict[str, str]()
    for field in schema.get("fields", []) if isinstance(schema, dict) else ():
        yield field["name"], _avro_type(field["type"], names)


def _avro_type(kind: Any, names: dict[str, str]) -> str:
    """Return the Spark SQL type of a type; `names` has those of the named types so far."""
    if isinstance(kind, list):
        return _union_type([_avro_type(each, names) for each in kind if each != "null"])
    if not isinstance(kind, dict):
        return _AVRO_TYPES.get(kind) or names.get(kind, str(kind))
    found = _complex_type(kind, names)
    if name := kind.get("name"):
        names[name] = found
    return found


def _union_type(kinds: Sequence[str]) -> str:
    for wide in ("bigint", "double"):
        if {*kinds} in ({"int", "bigint"}, {"float", "double"}) and wide in kinds:
            return wide
    members = ",".join(f"member{number}:{kind}" for number, kind in enumerate(kinds))
    return kinds[0] if len(kinds) == 1 else f"struct<{members}>"


def _complex_type(kind: Mapping[str, Any], names: dict[str, str]) -> str:
    logical, plain = kind.get("logicalType"), kind["type"]
    if logical == "decimal":
        return f"decimal({kind['precision']},{kind.get('scale', 0)})"
    if logical in _LOGICAL_TYPES:
        return _LOGICAL_TYPES[logical]
    match plain:
        case "record":
            fields = [(field["name"], _avro_type(field["type"], names)) for field in kind["fields"]]
            return f"struct<{','.join(f'{quote_column(name)}:{inner}' for name, inner in fields)}>"
        case "array":
            return f"array<{_avro_type(kind['items'], names)}>"
        case "map":
            return f"map<string,{_avro_type(kind['values'], names)}>"
    return _avro_type(plain, names)


_READERS: Mapping[str, Callable[[str], Iterator[tuple[str, str]]]] = {
    "parquet": _parquet_types,
    "iceberg": _parquet_types,
    "orc": _orc_types,
    "avro": _avro_types,
}
