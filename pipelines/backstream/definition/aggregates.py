"""Checking a definition against the columns of its source: parsed with sqlglot, so nothing is executed."""

from __future__ import annotations

from collections.abc import Mapping

import sqlglot
from sqlglot import exp
from sqlglot.optimizer.annotate_types import annotate_types

from backstream.core.errors import SpecError, problems
from backstream.core.tables import Column
from backstream.definition.model import Definition

_LONG = "long"
_INTEGRAL = {"TINYINT", "SMALLINT", "INT", "BIGINT"}
_ICEBERG_TYPES = {
    "TINYINT": "int",
    "SMALLINT": "int",
    "INT": "int",
    "BIGINT": _LONG,
    "FLOAT": "float",
    "DOUBLE": "double",
    "BOOLEAN": "boolean",
    "DATE": "date",
    "TEXT": "string",
    "VARCHAR": "string",
    "CHAR": "string",
    "TIMESTAMP": "timestamptz",
    "TIMESTAMPTZ": "timestamptz",
    "TIMESTAMPLTZ": "timestamptz",
}
_MAX_PRECISION = 38
_ORDER_DEPENDENT = (exp.First, exp.Last, exp.AnyValue)


def key_columns(definition: Definition, source: Mapping[str, str]) -> tuple[Column, ...]:
    """The key columns with their Iceberg types.

    Args:
        definition: what names them.
        source: column name to Spark SQL type, such as `{"origin": "string"}`.

    Raises:
        SpecError: when a key is of a type that no table can hold.
    """
    return tuple(
        Column(key, _iceberg_type(exp.DataType.build(source[key], dialect="spark"), f"source.key {key!r}"))
        for key in definition.source.key
    )


def value_columns(definition: Definition, source: Mapping[str, str]) -> tuple[Column, ...]:
    """One column per aggregate, with the type it yields over the source's columns.

    Raises:
        SpecError: when the type cannot be told.
    """
    return tuple(
        Column(name, _aggregate_type(f"aggregates.{name}", call, source))
        for name, call in definition.aggregates.items()
    )


def require_columns(definition: Definition, source: Mapping[str, str], where: str) -> None:
    """Check that every column a definition names is there, and that aggregates are aggregates.

    Raises:
        SpecError: naming each key of the definition, its value, and the columns there are.
    """
    found = [*_missing_columns(definition, source), *_wrong_aggregates(definition, source)]
    if found:
        raise SpecError(problems("problems", found, where) + f"\n\nhint: the source has {', '.join(source)}")


def columns_used(definition: Definition) -> list[str]:
    """The source columns that a run has to read, besides those that say when and where."""
    named = {*definition.source.key, *definition.source.deduplicate_on}
    for call in definition.aggregates.values():
        named |= _names(_parsed("aggregate", call))
    return sorted(named)


def filtered(call: str, condition: str) -> str:
    """The aggregate call over the rows that meet a condition, as SQL; a cast around it stays around it."""
    parsed = _parsed("aggregate", call)
    inner = parsed.this if isinstance(parsed, exp.Cast) else parsed
    where = exp.Where(this=sqlglot.parse_one(condition, dialect="spark"))
    narrowed = exp.Filter(this=inner.copy(), expression=where)
    if isinstance(parsed, exp.Cast):
        return exp.cast(narrowed, parsed.to.copy()).sql(dialect="spark")
    return narrowed.sql(dialect="spark")


def _missing_columns(definition: Definition, source: Mapping[str, str]) -> list[str]:
    plan = definition.source
    named = [("partition", plan.partition), ("sequence", plan.sequence)]
    named += [("key", column) for column in plan.key]
    named += [("deduplicate_on", column) for column in plan.deduplicate_on]
    found = [
        f"source.{key} names {column!r}, which is not a column"
        for key, column in named
        if column and column not in source
    ]
    for key, expression in (("event_time", plan.event_time), ("arrival_time", plan.arrival_time)):
        if expression:
            found += _unknown(f"source.{key}", _parsed(f"source.{key}", expression), source)
    return found


def _wrong_aggregates(definition: Definition, source: Mapping[str, str]) -> list[str]:
    found = []
    for name, call in definition.aggregates.items():
        key = f"aggregates.{name}"
        parsed = _parsed(key, call)
        inner = parsed.this if isinstance(parsed, exp.Cast) else parsed
        if not isinstance(inner, exp.AggFunc):
            found.append(f"{key} must be one aggregate call such as count(*) or avg(x), got {call!r}")
        elif inner.find(exp.Window, exp.Select):
            found.append(f"{key} must not use OVER or a sub-query, got {call!r}")
        elif inner.find(*_ORDER_DEPENDENT):
            found.append(f"{key} depends on the order of rows, which no recomputation keeps, got {call!r}")
        elif definition.backfill.panes == "all" and inner.find(exp.Distinct):
            found.append(f'{key} cannot be distinct with backfill.panes = "all", got {call!r}')
        else:
            found += _unknown(key, parsed, source)
    return found


def _unknown(key: str, parsed: exp.Expr, source: Mapping[str, str]) -> list[str]:
    return [
        f"{key} names {name!r}, which is not a column, in {parsed.sql(dialect='spark')!r}"
        for name in sorted(_names(parsed) - set(source))
    ]


def _names(parsed: exp.Expr) -> set[str]:
    return {column.name for column in parsed.find_all(exp.Column) if not isinstance(column.this, exp.Star)}


def _parsed(key: str, text: str) -> exp.Expr:
    try:
        return sqlglot.parse_one(text, dialect="spark")
    except sqlglot.ParseError as error:
        reason = error.errors[0]["description"] if error.errors else str(error)
        msg = f"{key} is not SQL: {reason}, got {text!r}"
        raise SpecError(msg) from None


def _aggregate_type(key: str, call: str, source: Mapping[str, str]) -> str:
    """Spark's result types of the aggregates that people use; others say theirs with a cast."""
    parsed = _parsed(key, call)
    if isinstance(parsed, exp.Cast):
        return _iceberg_type(parsed.to, key)
    if isinstance(parsed, exp.Count | exp.CountIf | exp.ApproxDistinct):
        return _LONG
    argument = _typed(parsed.this, source)
    if isinstance(parsed, exp.Min | exp.Max) and argument:
        return _iceberg_type(argument, key)
    if isinstance(parsed, exp.Sum) and argument:
        return _sum_type(argument, key, call)
    is_decimal = argument is not None and argument.this is exp.DataType.Type.DECIMAL
    if isinstance(parsed, exp.Avg | exp.Stddev | exp.StddevSamp | exp.StddevPop | exp.Variance) and not is_decimal:
        return "double"
    msg = f"cannot tell the type of {key}: {call!r}\n\nhint: say it, as in cast({call} as double)"
    raise SpecError(msg)


def _typed(argument: exp.Expr, source: Mapping[str, str]) -> exp.DataType | None:
    # A cast tells the annotator each column's type without a schema to qualify names against.
    typed = argument.copy().transform(
        lambda node: exp.cast(node, source[node.name], dialect="spark") if isinstance(node, exp.Column) else node
    )
    annotated = annotate_types(typed, dialect="spark")
    kind = annotated.type
    if kind is None or kind.this in (exp.DataType.Type.UNKNOWN, exp.DataType.Type.NULL):
        return None
    return kind


def _sum_type(argument: exp.DataType, key: str, call: str) -> str:
    if argument.this.value in _INTEGRAL:
        return _LONG
    if argument.this.value in ("FLOAT", "DOUBLE"):
        return "double"
    if argument.this is exp.DataType.Type.DECIMAL:
        precision, scale = (int(part.name) for part in argument.expressions)
        return f"decimal({min(_MAX_PRECISION, precision + 10)},{scale})"
    msg = f"{key} cannot sum a {argument.sql(dialect='spark').lower()}, got {call!r}"
    raise SpecError(msg)


def _iceberg_type(kind: exp.DataType, key: str) -> str:
    if kind.this is exp.DataType.Type.DECIMAL and len(kind.expressions) == 2:  # noqa: PLR2004 - precision and scale
        precision, scale = (int(part.name) for part in kind.expressions)
        return f"decimal({precision},{scale})"
    try:
        return _ICEBERG_TYPES[kind.this.value]
    except KeyError:
        msg = f"{key} has the type {kind.sql(dialect='spark').lower()}, which a result column cannot hold"
        raise SpecError(msg) from None
