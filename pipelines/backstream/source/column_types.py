"""Map columns of Parquet files to Spark types, find the common type of several files, and check types of times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.parquet as pq

_PRIMITIVE_TYPES = {
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
_WIDENING = (("tinyint", "smallint", "int", "bigint"), ("float", "double"))
"""Lists of types in which each holds all values of those before it; Spark reads the earlier as the later."""
_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_INSTANTS = ("timestamp", "string")
"""Accepted types. A text column is parsed per record; a record with an invalid instant is quarantined."""


def spark_type_of_arrow(kind: pa.DataType) -> str | None:
    """Return the Spark name of an Arrow type; None for a type that Spark cannot read.

    Spark 4.3 reads nanoseconds as numbers: `TIMESTAMP(NANOS)` is a `bigint`.
    """
    if pa.types.is_dictionary(kind):
        return spark_type_of_arrow(kind.value_type)  # a pandas category, which the file stores as plain values
    if pa.types.is_nested(kind):
        return _nested_type(kind)
    if pa.types.is_decimal(kind) and kind.precision <= _MAX_PRECISION:
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        timestamp = "timestamp" if kind.tz else "timestamp_ntz"
        return "bigint" if kind.unit == "ns" else timestamp
    is_binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    return "binary" if is_binary else _PRIMITIVE_TYPES.get(kind)


def _nested_type(kind: pa.DataType) -> str | None:
    if pa.types.is_map(kind):
        inner = [spark_type_of_arrow(kind.key_type), spark_type_of_arrow(kind.item_type)]
        return None if None in inner else f"map<{inner[0]},{inner[1]}>"
    if pa.types.is_struct(kind):
        fields = [(field.name, spark_type_of_arrow(field.type)) for field in kind]
        members = ",".join(f"{quote_column(name)}:{spark_type}" for name, spark_type in fields)
        return None if any(spark_type is None for _, spark_type in fields) else f"struct<{members}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        element = spark_type_of_arrow(kind.value_type)
        return None if element is None else f"array<{element}>"
    return None


def type_name(kind: pa.DataType) -> str:
    """Return the name of a type for people."""
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return NANOSECONDS
    return spark_type_of_arrow(kind) or str(kind)


def quote_column(name: str) -> str:
    """Return a column name quoted for Spark SQL; it may contain any character."""
    return f"`{name.replace('`', '``')}`"


def common_type(first: str, second: str) -> str | None:
    """Return the type that holds all values of both types; None: there is none.

    Only the widening of Spark's Parquet reader counts: smaller integers, floats, and decimals of the same scale.
    """
    if first == second:
        return first
    for types in _WIDENING:
        if first in types and second in types:
            return max(first, second, key=types.index)
    first_decimal, second_decimal = _decimal(first), _decimal(second)
    if first_decimal and second_decimal and first_decimal[1] == second_decimal[1]:
        return f"decimal({max(first_decimal[0], second_decimal[0])},{first_decimal[1]})"
    return None


_INTEGER_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
_MAX_PRECISION = 38


def united_type(first: str, second: str) -> str | None:
    """Return the type to which a preparation converts the values of both types; None: there is none.

    It is a type of numbers, or that of a column of which another file has only nulls. A `double` does not hold all
    integers; the caller checks the values.
    """
    if "void" in (first, second):
        return first if second == "void" else second
    if common := common_type(first, second):
        return common
    floats = {first, second} & {"float", "double"}
    if floats and not ({first, second} - floats - _INTEGER_DIGITS.keys()):
        return "double"
    decimals = [_decimal(kind) or (_INTEGER_DIGITS.get(kind, 0), 0) for kind in (first, second)]
    if any(precision == 0 for precision, _ in decimals):
        return None
    scale = max(scale for _, scale in decimals)
    precision = scale + max(precision - scale for precision, scale in decimals)
    return f"decimal({precision},{scale})" if precision <= _MAX_PRECISION else None


def _decimal(kind: str) -> tuple[int, int] | None:
    if not kind.startswith("decimal("):
        return None
    precision, scale = kind.removeprefix("decimal(").removesuffix(")").split(",")
    return int(precision), int(scale)


def group_by_schema(paths: Iterable[str]) -> list[tuple[Mapping[str, str], list[str]]]:
    """Return groups of files with the same columns, each with the Spark SQL type by column."""
    groups: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for path in paths:
        groups.setdefault(tuple(_columns(path).items()), []).append(path)
    return [(dict(columns), group) for columns, group in groups.items()]


def _columns(path: str) -> dict[str, str]:
    """Return the columns that Spark can read; it reads none of several names that differ only in case."""
    metadata = pq.read_metadata(path)
    int96 = int96_columns(metadata)
    schema = metadata.schema.to_arrow_schema()
    spellings = Counter(name.lower() for name in schema.names)
    types = {
        field.name: "timestamp" if field.name in int96 else spark_type_of_arrow(field.type) for field in schema
    }
    return {
        name: spark_type
        for name, spark_type in types.items()
        if spark_type is not None and spellings[name.lower()] == 1
    }


def int96_columns(metadata: pq.FileMetaData) -> set[str]:
    """Return the paths of the columns of a Parquet file with timestamps in the old form INT96."""
    columns = map(metadata.schema.column, range(metadata.num_columns))
    return {column.path for column in columns if column.physical_type == "INT96"}


def reason_not_a_time(key: str, expression: str, kind: str, where: str = "") -> str | None:
    """Return the error message for an expression that is not an instant, with a hint; None for an instant.

    Args:
        key: key of the definition, e.g., `source.event_time`.
        expression: value of the key.
        kind: Spark SQL type of the expression.
        where: file of the definition.
    """
    if kind in _INSTANTS:
        return None
    hint = ""
    if kind in _INTEGERS:
        hint = f"\n\nhint: use timestamp_millis({expression}) or timestamp_seconds({expression})"
    if kind == "timestamp_ntz":
        utc = f"to_utc_timestamp(cast({expression} as timestamp), 'America/New_York')"
        hint = f"\n\nhint: use {utc}"
    location = f" ({where})" if where else ""
    return f"{key} must be an instant, got {kind} from {expression!r}{location}{hint}"


def reason_not_prepared_time(
    key: str, expression: str, kind: str, *, unit: str | None, zone: str | None
) -> str | None:
    """Return the error message for an expression that a preparation cannot make an instant of; None if it can.

    Args:
        key: key of the definition, e.g., `source.event_time`.
        expression: value of the key.
        kind: Spark SQL type of the expression.
        unit: the unit of numbers.
        zone: the time zone of times without one.
    """
    if kind in ("timestamp", "string"):
        return None
    hint = "use an expression that is a timestamp, a number, or text"
    if kind == "timestamp_ntz":
        if zone is not None:
            return None
        hint = 'set source.time_zone, e.g., "UTC"'
    elif kind in (*_INTEGERS, "float", "double") or kind.startswith("decimal"):
        if unit is not None:
            return None
        hint = f'set {key}_unit to "s", "ms", "us", or "ns"'
    return f"{key} must be an instant, got {kind} from {expression!r}\n\nhint: {hint}"
