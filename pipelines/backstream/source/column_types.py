"""Columns of Parquet files by Spark's types, and the one type that holds those of several files. No Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.parquet as pq

_PLAIN = {
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.uint8(): "smallint",
    pa.uint16(): "int",
    pa.uint32(): "bigint",
    pa.uint64(): "decimal(20,0)",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.date32(): "date",
    pa.null(): "void",
}
NANOSECONDS = "timestamp in nanoseconds"
_WIDENED = (("tinyint", "smallint", "int", "bigint"), ("float", "double"))
"""Each type of a list holds all values of those before it, and Spark reads a column of theirs as one of it."""


def spark_type_of_arrow(kind: pa.DataType) -> str | None:
    """Return how Spark names an Arrow type; None for one that Spark cannot read.

    Nanoseconds are numbers to Spark 4.3: `TIMESTAMP(NANOS)` can be read as `bigint`, and as nothing else.
    """
    if pa.types.is_dictionary(kind):
        return spark_type_of_arrow(kind.value_type)  # pandas' categories; in the file they are plain
    if pa.types.is_nested(kind):
        return _nested_type(kind)
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        zoned = "timestamp" if kind.tz else "timestamp_ntz"
        return "bigint" if kind.unit == "ns" else zoned
    is_binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    return "binary" if is_binary else _PLAIN.get(kind)


def _nested_type(kind: pa.DataType) -> str | None:
    if pa.types.is_map(kind):
        inner = [spark_type_of_arrow(kind.key_type), spark_type_of_arrow(kind.item_type)]
        return None if None in inner else f"map<{inner[0]},{inner[1]}>"
    if pa.types.is_struct(kind):
        fields = [(field.name, spark_type_of_arrow(field.type)) for field in kind]
        told = ",".join(f"{quote_column(name)}:{each}" for name, each in fields)
        return None if any(each is None for _, each in fields) else f"struct<{told}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        element = spark_type_of_arrow(kind.value_type)
        return None if element is None else f"array<{element}>"
    return None


def type_name(kind: pa.DataType) -> str:
    """Return what a type is called to people."""
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return NANOSECONDS
    return spark_type_of_arrow(kind) or str(kind)


def quote_column(name: str) -> str:
    """Return a column's name as Spark's SQL takes it, whatever is in it."""
    return f"`{name.replace('`', '``')}`"


def common_type(one: str, other: str) -> str | None:
    """Return the type of two that holds all values of both, or one that does; None: there is none.

    Only what Spark's Parquet reader widens by itself: smaller integers, floats, and decimals of the same scale.
    """
    if one == other:
        return one
    for types in _WIDENED:
        if one in types and other in types:
            return max(one, other, key=types.index)
    decimal, another = _decimal(one), _decimal(other)
    if decimal and another and decimal[1] == another[1]:
        return f"decimal({max(decimal[0], another[0])},{decimal[1]})"
    return None


def _decimal(kind: str) -> tuple[int, int] | None:
    if not kind.startswith("decimal("):
        return None
    precision, scale = kind.removeprefix("decimal(").removesuffix(")").split(",")
    return int(precision), int(scale)


def group_by_schema(paths: Iterable[str]) -> list[tuple[Mapping[str, str], list[str]]]:
    """Return files in groups of the same columns, each with the Spark SQL types of these."""
    groups: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for path in paths:
        groups.setdefault(tuple(_columns(path).items()), []).append(path)
    return [(dict(columns), of_group) for columns, of_group in groups.items()]


def _columns(path: str) -> dict[str, str]:
    """Columns that Spark can read. Of names that differ in case only it can read none."""
    metadata = pq.read_metadata(path)
    int96 = {
        metadata.schema.column(number).path
        for number in range(metadata.num_columns)
        if metadata.schema.column(number).physical_type == "INT96"
    }
    schema = metadata.schema.to_arrow_schema()
    times = Counter(name.lower() for name in schema.names)
    kinds = {
        field.name: "timestamp" if field.name in int96 else spark_type_of_arrow(field.type) for field in schema
    }
    return {name: kind for name, kind in kinds.items() if kind is not None and times[name.lower()] == 1}
