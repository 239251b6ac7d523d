"""Read the types of the columns of a Parquet, ORC, or Avro file, without Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from backstream.source.column_types import int96_columns, spark_type_of_arrow
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
        schema: Any = fastavro.reader(stream).writer_schema
    for field in schema.get("fields", []):
        yield field["name"], _avro_type(field["type"])


def _avro_type(kind: Any) -> str:
    if isinstance(kind, list):
        kinds = [each for each in kind if each != "null"]
        return _avro_type(kinds[0]) if len(kinds) == 1 else json.dumps(kinds, sort_keys=True)
    if not isinstance(kind, dict):
        return _AVRO_TYPES.get(kind, str(kind))
    logical, plain = kind.get("logicalType"), kind["type"]
    if logical == "decimal":
        return f"decimal({kind['precision']},{kind.get('scale', 0)})"
    if logical in _LOGICAL_TYPES:
        return _LOGICAL_TYPES[logical]
    return json.dumps(kind, sort_keys=True) if plain in {"record", "array", "map"} else _avro_type(plain)


_READERS: Mapping[str, Callable[[str], Iterator[tuple[str, str]]]] = {
    "parquet": _parquet_types,
    "iceberg": _parquet_types,
    "orc": _orc_types,
    "avro": _avro_types,
}
