"""Convert a condition in SQL to a filter of PyIceberg, by which partitions and files are left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from typing import Any

import sqlglot
from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Or,
    Reference,
)
from pyiceberg.expressions.literals import Literal, literal
from pyiceberg.schema import Schema
from pyiceberg.types import DateType, IcebergType, IntegerType, LongType, StringType, TimestamptzType
from sqlglot import exp
from sqlglot.errors import SqlglotError

from backstream.definition.source_section import Source
from backstream.eventtime.instants import epoch_ms

_COMPARISONS: Mapping[type[exp.Expr], tuple[type[BooleanExpression], type[BooleanExpression]]] = {
    exp.EQ: (EqualTo, EqualTo),
    exp.GT: (GreaterThan, LessThan),
    exp.GTE: (GreaterThanOrEqual, LessThanOrEqual),
    exp.LT: (LessThan, GreaterThan),
    exp.LTE: (LessThanOrEqual, GreaterThanOrEqual),
}
"""Comparisons by their class in SQL, and with exchanged sides."""


def necessary_filter(source: Source, schema: Schema) -> BooleanExpression:
    """Return a filter that all records which meet `source.where` also meet; other records may meet it too.

    It contains comparisons of columns with constants. Anything else, such as a function, is left out of it.
    """
    if source.where is None or source.transform is not None:
        return AlwaysTrue()
    try:
        parsed = sqlglot.parse_one(source.where, dialect="spark")
    except SqlglotError:  # Spark reports it
        return AlwaysTrue()
    types = {field.name: field.field_type for field in schema.fields if field.name not in source.derive}
    return _convert(parsed, types)


def _convert(node: exp.Expr, types: Mapping[str, IcebergType]) -> BooleanExpression:
    if isinstance(node, exp.Between):
        low = exp.GTE(this=node.this, expression=node.args["low"])
        return _convert(exp.And(this=low, expression=exp.LTE(this=node.this, expression=node.args["high"])), types)
    if isinstance(node, exp.And | exp.Or):
        combine = And if isinstance(node, exp.And) else Or
        return combine(_convert(node.left, types), _convert(node.right, types))
    if isinstance(node, exp.In) and node.expressions:
        return _convert_list(node, types)
    if isinstance(node, exp.Paren):
        return _convert(node.this, types)
    return _compare(node, types) if type(node) in _COMPARISONS else AlwaysTrue()


def _compare(node: exp.Expr, types: Mapping[str, IcebergType]) -> BooleanExpression:
    straight, exchanged = _COMPARISONS[type(node)]
    for column, constant, kind in (
        (node.this, node.expression, straight),
        (node.expression, node.this, exchanged),
    ):
        value = _value(column, constant, types)
        if value is not None:
            return kind(Reference(column.name), value)  # type: ignore[call-arg] # all five take these
    return AlwaysTrue()


def _convert_list(node: exp.In, types: Mapping[str, IcebergType]) -> BooleanExpression:
    values = [_value(node.this, constant, types) for constant in node.expressions]
    if None in values:
        return AlwaysTrue()
    literals: Any = set(values)
    return In(term=Reference(node.this.name), values=literals)


def _value(column: exp.Expr, constant: exp.Expr, types: Mapping[str, IcebergType]) -> Literal[Any] | None:
    """Return the constant as a value of the column's type; None if Spark may compare them in another way."""
    if not isinstance(column, exp.Column) or len(column.parts) > 1:
        return None
    parse = _PARSERS.get(type(types.get(column.name)))
    text = _constant_text(constant)
    if parse is None or text is None:
        return None
    try:
        return parse(constant, text)
    except ValueError:
        return None


def _constant_text(constant: exp.Expr) -> str | None:
    """Return the text of `'a'`, `1`, `date '2024-03-01'`, or `timestamp '2024-03-01'`."""
    inner = constant.this if isinstance(constant, exp.Cast) else constant
    return str(inner.this) if isinstance(inner, exp.Literal) else None


def _parse_instant(constant: exp.Expr, text: str) -> Literal[Any] | None:
    """Return an instant in microseconds; Spark's session reads times without a zone as UTC."""
    at = datetime.fromisoformat(text.strip())
    is_known = (
        _is_text(constant, exp.DataType.Type.TIMESTAMP, exp.DataType.Type.TIMESTAMPTZ) and not at.microsecond
    )
    return literal(epoch_ms(at if at.tzinfo else at.replace(tzinfo=UTC)) * 1_000) if is_known else None


def _parse_date(constant: exp.Expr, text: str) -> Literal[Any] | None:
    day = date.fromisoformat(text.strip()).isoformat()
    return literal(day) if _is_text(constant, exp.DataType.Type.DATE) else None


def _parse_text(constant: exp.Expr, text: str) -> Literal[Any] | None:
    return literal(text) if _is_text(constant) else None


def _parse_integer(constant: exp.Expr, text: str) -> Literal[Any] | None:
    return literal(int(text)) if isinstance(constant, exp.Literal) and not constant.is_string else None


def _is_text(constant: exp.Expr, *kinds: object) -> bool:
    """Return whether a constant is text, or text with a cast to one of these types."""
    if isinstance(constant, exp.Cast):
        return constant.to.this in kinds and bool(constant.this.is_string)
    return bool(constant.is_string)


_PARSERS: Mapping[type, Callable[[exp.Expr, str], Literal[Any] | None]] = {
    TimestamptzType: _parse_instant,
    DateType: _parse_date,
    StringType: _parse_text,
    IntegerType: _parse_integer,
    LongType: _parse_integer,
}
