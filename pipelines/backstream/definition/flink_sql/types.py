"""The types of Flink SQL, and the types of Spark SQL that have the same values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

if TYPE_CHECKING:
    from backstream.definition.flink_sql.script import ScriptText, TokenCursor

_INTEGRAL = ("TINYINT", "SMALLINT", "INT", "BIGINT")
_INTEGRAL_DIGITS = {"TINYINT": 3, "SMALLINT": 5, "INT": 10, "BIGINT": 19}
_SPARK = {
    **{name: name.lower() for name in (*_INTEGRAL, "FLOAT", "DOUBLE", "BOOLEAN", "DATE", "STRING")},
    "TIMESTAMP": "timestamp",
    "TIMESTAMP_LTZ": "timestamp",
}
_SYNONYMS = {
    "INTEGER": "INT",
    "VARCHAR": "STRING",
    "DEC": "DECIMAL",
    "NUMERIC": "DECIMAL",
}
_WRITTEN_AS_TEXT = ("DECIMAL", "DATE", "TIMESTAMP", "TIMESTAMP_LTZ")
"""The types whose values JSON and CSV hold as text."""
_MAX_DIGITS = 38


@dataclass(frozen=True, slots=True)
class FlinkType:
    """A type of Flink SQL. `precision` and `scale` are those of a decimal; `fields` are those of a row."""

    name: str
    precision: int = 0
    scale: int = 0
    fields: tuple[tuple[str, FlinkType], ...] = ()

    def __str__(self) -> str:
        if self.name == "DECIMAL":
            return f"DECIMAL({self.precision}, {self.scale})"
        return f"{self.name}({self.precision})" if self.is_time else self.name

    @property
    def is_integral(self) -> bool:
        """Return whether values are whole numbers of a fixed width."""
        return self.name in _INTEGRAL

    @property
    def is_floating(self) -> bool:
        """Return whether values are binary floating-point numbers."""
        return self.name in ("FLOAT", "DOUBLE")

    @property
    def is_number(self) -> bool:
        """Return whether values are numbers."""
        return self.is_integral or self.is_floating or self.name == "DECIMAL"

    @property
    def is_time(self) -> bool:
        """Return whether values are a date with a time of day."""
        return self.name in ("TIMESTAMP", "TIMESTAMP_LTZ")

    @property
    def spark(self) -> str | None:
        """The type of the same values in Spark SQL; None if there is none."""
        if self.name == "DECIMAL":
            return f"decimal({self.precision}, {self.scale})"
        return _SPARK.get(self.name)

    @property
    def is_text_in_files(self) -> bool:
        """Return whether JSON holds values as text, so that they need a cast."""
        return self.name in _WRITTEN_AS_TEXT

    @property
    def as_decimal(self) -> FlinkType | None:
        """The decimal that holds all values of a type; None for other types."""
        if self.is_integral:
            return FlinkType("DECIMAL", _INTEGRAL_DIGITS[self.name])
        return self if self.name == "DECIMAL" else None


BOOLEAN, STRING, BIGINT, INT, DOUBLE = map(FlinkType, ("BOOLEAN", "STRING", "BIGINT", "INT", "DOUBLE"))
DATE, NULL = FlinkType("DATE"), FlinkType("NULL")
TIMESTAMP, TIMESTAMP_LTZ = FlinkType("TIMESTAMP", 3), FlinkType("TIMESTAMP_LTZ", 3)
INTERVAL = FlinkType("INTERVAL")


def decimal_type(precision: int, scale: int) -> FlinkType | None:
    """Return a decimal type; None if it has too many digits, of which the systems lose different ones."""
    return FlinkType("DECIMAL", precision, scale) if precision <= _MAX_DIGITS else None


def wider_type(one: FlinkType, other: FlinkType) -> FlinkType | None:
    """Return the type that holds the values of both types; None if there is none that is certain."""
    if other in (one, NULL):
        return one
    if one == NULL:
        return other
    if one.is_integral and other.is_integral:
        return max(one, other, key=lambda kind: _INTEGRAL.index(kind.name))
    if one.is_number and other.is_number and DOUBLE in (one, other):
        return DOUBLE
    left, right = one.as_decimal, other.as_decimal
    if left and right:
        scale = max(left.scale, right.scale)
        return decimal_type(max(left.precision - left.scale, right.precision - right.scale) + scale, scale)
    return one if one.name == other.name and one.is_time else None


def holds_all(sink: FlinkType, kind: FlinkType) -> bool:
    """Return whether each value of a type is a value of a sink's type, so that it needs no cast."""
    if sink.name == kind.name and sink.name != "DECIMAL":
        return True
    if sink.name == "DECIMAL" and (own := kind.as_decimal):
        return sink.scale >= own.scale and sink.precision - sink.scale >= own.precision - own.scale
    if sink.is_integral and kind.is_integral:
        return wider_type(sink, kind) == sink
    return kind == NULL or (sink == DOUBLE and (kind.is_floating or kind.name in ("TINYINT", "SMALLINT", "INT")))


def read_type(cursor: TokenCursor, source: ScriptText) -> FlinkType:
    """Return the type of a column at a place in its tokens."""
    at, name = cursor.at, cursor.word()
    cursor.advance()
    name = _SYNONYMS.get(name, name)
    if name == "ROW":
        fields = _parse_fields(cursor)
        return FlinkType("ROW", fields=fields)
    if name in ("ARRAY", "MAP", "MULTISET"):
        _skip_arguments(cursor)
        return FlinkType(name)
    cursor.accept("PRECISION")
    numbers = _parse_numbers(cursor, source)
    if name == "TIMESTAMP" and cursor.accept("WITH"):
        if cursor.accept("LOCAL"):
            name = "TIMESTAMP_LTZ"
        cursor.expect("TIME")
        cursor.expect("ZONE")
    elif name == "TIMESTAMP" and cursor.accept("WITHOUT"):
        cursor.expect("TIME")
        cursor.expect("ZONE")
    if name == "DECIMAL":
        return FlinkType(name, numbers[0] if numbers else 10, numbers[1] if len(numbers) > 1 else 0)
    if name in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        return FlinkType(name, numbers[0] if numbers else 6)
    if name in _SPARK or name in ("CHAR", "BINARY", "VARBINARY", "BYTES", "TIME"):
        return FlinkType(name)
    return source.refuse(at, f"the type {name} is not known")


def _parse_fields(cursor: TokenCursor) -> tuple[tuple[str, FlinkType], ...]:
    close = {"<": ">", "(": ")"}.get(cursor.word())
    if close is None:
        return ()
    cursor.advance()
    fields = []
    while not cursor.accept(close):
        name = cursor.advance().text
        fields.append((name, cursor.type()))
        while not cursor.is_at_end and not cursor.peek(",") and not cursor.peek(close):
            cursor.advance()  # NOT NULL, and comments
        cursor.accept(",")
    return tuple(fields)


def _skip_arguments(cursor: TokenCursor) -> None:
    depth = 0
    while not cursor.is_at_end:
        depth += cursor.word() == "<"
        depth -= {">": 1, ">>": 2}.get(cursor.word(), 0)
        cursor.advance()
        if depth <= 0:
            return


def _parse_numbers(cursor: TokenCursor, source: ScriptText) -> list[int]:
    at, texts = cursor.at, cursor.names() if cursor.peek("(") else []
    if not all(text.isdigit() for text in texts):
        source.refuse(at, "the numbers of a type are expected here")
    return [int(text) for text in texts]


_TYPES_OF_SQLGLOT = {
    "TEXT": "STRING",
    "VARCHAR": "STRING",
    "TIMESTAMPLTZ": "TIMESTAMP_LTZ",
    "TIMESTAMPNTZ": "TIMESTAMP",
    "DATETIME": "TIMESTAMP",
}


def type_of_cast(kind: exp.DataType) -> FlinkType | None:
    """Return the target of a CAST; None if the type is not known."""
    name = kind.this.name
    name = _TYPES_OF_SQLGLOT.get(name, name)
    numbers = [int(str(each.this)) for each in kind.expressions if str(each.this).isdigit()]
    if name == "DECIMAL":
        return FlinkType(name, numbers[0] if numbers else 10, numbers[1] if len(numbers) > 1 else 0)
    if name in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        return FlinkType(name, numbers[0] if numbers else 6)
    return FlinkType(name) if name in _SPARK else None
