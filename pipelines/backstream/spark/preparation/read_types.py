"""Convert the declared columns of text files that Spark reads as another type, because its readers guess values.

Timestamps and dates are read as text: the readers would guess parts of an instant, for `2024` a day, for `08:00`
today, for a number in JSON a unit. In JSON, `tinyint` is read as `smallint`: the reader would make 200 -56.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DateType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from backstream.chunks.preparation.settings import MALFORMED
from backstream.definition.prepared_columns import ARRIVAL_TEXT, EVENT_TEXT, RECORD
from backstream.definition.source_section import Source
from backstream.definition.time_texts import WHITESPACE
from backstream.source.column_types import quote_column
from backstream.spark.time_texts import instant_of_text, is_local

_PATTERN_OPTIONS = {"timestamp": "timestampformat", "timestamp_ntz": "timestampntzformat", "date": "dateformat"}
"""The options of Spark's reader, in lower case, that have the patterns of types."""
_TIMES = (TimestampType, TimestampNTZType, DateType)
_TEXT = "prepared_text_of_"
"""Beginning of the names of columns with the values as which Spark reads those of declared types."""


def read_fields(declared: StructType, text_format: str) -> list[StructField]:
    """Return the declared columns with the types as which Spark reads them.

    Args:
        declared: the declared columns.
        text_format: `json`, or `csv`, whose reader refuses 200 as `tinyint`.
    """
    own = ByteType if text_format == "csv" else ()
    return [
        field if isinstance(field.dataType, own) else StructField(field.name, _read_type(field.dataType))
        for field in declared.fields
    ]


def _read_type(kind: DataType) -> DataType:
    """Return the type as which Spark reads a type in JSON."""
    match kind:
        case ByteType():
            return ShortType()
        case TimestampType() | TimestampNTZType() | DateType():
            return StringType()
        case StructType():
            return StructType([StructField(field.name, _read_type(field.dataType)) for field in kind.fields])
        case ArrayType():
            return ArrayType(_read_type(kind.elementType))
        case MapType():
            return MapType(kind.keyType, _read_type(kind.valueType))
    return kind


def convert_read_types(rows: DataFrame, declared: StructType, source: Source) -> DataFrame:
    """Return rows of text files with the declared types; a value without such a type makes its record malformed.

    If the column is the event time or the arrival time of the source, the record is not malformed: its text is in
    `EVENT_TEXT` or `ARRIVAL_TEXT`, and its columns are in `RECORD`.

    Args:
        rows: the rows, whose columns are `read_fields`.
        declared: the declared columns.
        source: the source; its options of Spark's reader can have patterns.
    """
    patterns = {name.lower(): value for name, value in source.options.items()}
    read = {field.name: field.dataType for field in rows.schema.fields}
    changed = {field.name: field.dataType for field in declared.fields if read[field.name] != field.dataType}
    if not changed:
        return rows
    own_paths = _paths_of_times(source, changed)
    names = rows.columns
    texts = rows.withColumnsRenamed({name: f"{_TEXT}{name}" for name in changed})
    # The instants are columns, so that Spark parses a text once, although the condition uses the instant, too.
    instants = texts.withColumns(
        {name: _value_of(_column(f"{_TEXT}{name}"), kind, patterns) for name, kind in changed.items()}
    )
    are_lost = [
        _is_lost(
            _column(f"{_TEXT}{name}"),
            _column(name),
            kind,
            [path[1:] for path in own_paths.values() if path[0] == name],
        )
        for name, kind in changed.items()
    ]
    written = F.struct(
        *(
            _column(f"{_TEXT}{name}" if name in changed else name).alias(name)
            for name in names
            if name != MALFORMED
        )
    )
    is_malformed, record = reduce(Column.__or__, are_lost), F.to_json(written, {"ignoreNullFields": "false"})
    malformed = F.coalesce(F.col(MALFORMED), F.when(is_malformed, record)).alias(MALFORMED)
    own_texts = {name: _text_of_lost_time(path) for name, path in own_paths.items()}
    if own_texts:
        own_texts[RECORD] = F.when(F.coalesce(*own_texts.values()).isNotNull(), record)
    return instants.select(
        *(malformed if name == MALFORMED else _column(name) for name in names),
        *(text.alias(name) for name, text in own_texts.items()),
    )


def _paths_of_times(source: Source, columns: Mapping[str, DataType]) -> dict[str, tuple[str, ...]]:
    """Return the paths of declared times that are a time of the source, by `EVENT_TEXT` and `ARRIVAL_TEXT`.

    A transformation or a derived column can change them before they are that time.
    """
    paths: dict[str, tuple[str, ...]] = {}
    derived = {*map(str.lower, source.derive)}
    for column, expression in ((EVENT_TEXT, source.event_time), (ARRIVAL_TEXT, source.arrival_time)):
        if expression is None or source.transform:
            continue
        for path in _list_time_paths(columns):
            forms = {".".join(path), ".".join(map(quote_column, path))}
            if expression.lower() in map(str.lower, forms) and path[0].lower() not in derived:
                paths[column] = path
    return paths


def _list_time_paths(columns: Mapping[str, DataType]) -> Iterator[tuple[str, ...]]:
    """Yield the paths of times in columns, also in structs."""
    for name, kind in columns.items():
        if isinstance(kind, StructType):
            inner = {field.name: field.dataType for field in kind}
            yield from ((name, *path) for path in _list_time_paths(inner))
        elif isinstance(kind, _TIMES):
            yield (name,)


def _text_of_lost_time(path: Sequence[str]) -> Column:
    """Return the text at a path if its instant is null."""
    first, *rest = path
    text = reduce(Column.getField, rest, _column(f"{_TEXT}{first}"))
    return F.when(reduce(Column.getField, rest, _column(first)).isNull(), text)


def _value_of(text: Column, kind: DataType, patterns: Mapping[str, str]) -> Column:
    """Return a value of a declared type by the value that Spark reads; one that has no such type becomes null."""
    if _read_type(kind) == kind:
        return text
    match kind:
        case StructType():
            fields = (
                _value_of(text.getField(each.name), each.dataType, patterns).alias(each.name) for each in kind
            )
            return F.when(text.isNotNull(), F.struct(*fields))
        case ArrayType():
            return F.transform(text, lambda each: _value_of(each, kind.elementType, patterns))
        case MapType():
            return F.transform_values(text, lambda _, value: _value_of(value, kind.valueType, patterns))
        case ByteType():
            return text.try_cast(kind)
    return _time(text, kind, patterns)


def _time(text: Column, kind: DataType, patterns: Mapping[str, str]) -> Column:
    """Return a timestamp or a date by its text; null if it is none."""
    pattern = patterns.get(_PATTERN_OPTIONS[kind.typeName()])
    instant = instant_of_text(text, pattern, None)
    if isinstance(kind, TimestampType):
        return instant
    if isinstance(kind, DateType) and pattern is None:  # the day in the zone that the text has
        return F.when(instant.isNotNull(), F.substring(F.btrim(text, F.lit(WHITESPACE)), 1, 10).try_cast(kind))
    return F.when(is_local(text, pattern), instant.cast(kind))


def _is_lost(text: Column, value: Column, kind: DataType, left_out: Sequence[Sequence[str]] = ()) -> Column:
    """Return whether a part of a value that Spark reads is null in the value of the declared type.

    `left_out` are paths of times in the value that do not count; an empty path is the value itself.
    """
    if () in left_out:
        return F.expr("false")
    match kind:
        case StructType():
            lost = (
                _is_lost(
                    text.getField(each.name),
                    value.getField(each.name),
                    each.dataType,
                    [path[1:] for path in left_out if path[0] == each.name],
                )
                for each in kind
                if _read_type(each.dataType) != each.dataType
            )
            return reduce(Column.__or__, lost)
        case ArrayType():
            each_lost = F.zip_with(text, value, lambda own, each: _is_lost(own, each, kind.elementType))
            return F.exists(each_lost, lambda each: each).eqNullSafe(F.expr("true"))
        case MapType():
            each_lost = F.map_zip_with(text, value, lambda _, own, value: _is_lost(own, value, kind.valueType))
            return F.exists(F.map_values(each_lost), lambda each: each).eqNullSafe(F.expr("true"))
    return text.isNotNull() & value.isNull()


def _column(name: str) -> Column:
    return F.col(quote_column(name))
