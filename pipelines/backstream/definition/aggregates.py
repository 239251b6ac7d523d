"""Check a definition against the columns of its source, and analyze its aggregates, with sqlglot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types

from backstream.definition.model import Definition
from backstream.errors import SpecError, format_problems
from backstream.runs.table_schemas import WORKING_COLUMNS, Column

_LONG = "long"
_INTEGRAL = {"TINYINT", "SMALLINT", "INT", "BIGINT"}
_FLOATING = {"FLOAT", "DOUBLE"}
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
_DEFAULT_DECIMAL = (10, 0)
"""Precision and scale of `decimal` without numbers in Spark."""
_ORDER_DEPENDENT = (
    exp.First,
    exp.FirstValue,
    exp.Last,
    exp.LastValue,
    exp.AnyValue,
    exp.ArrayAgg,
    exp.ArrayUniqueAgg,
    exp.GroupConcat,
)
_MEANS = (exp.Avg, exp.Stddev, exp.StddevSamp, exp.StddevPop, exp.Variance)
_NO_COLUMN = "which is not a column"
_MAX_COLUMNS_SHOWN = 20


def key_columns(definition: Definition, source: Mapping[str, str]) -> tuple[Column, ...]:
    """Return the key columns with their Iceberg types.

    Args:
        definition: definition with the keys.
        source: map from column name to Spark SQL type, e.g., `{"origin": "string"}`.

    Raises:
        SpecError: when a result column cannot have the type of a key.
    """
    return tuple(
        Column(name, _key_type(f"source.key {name!r} of {definition.name}", source[name]))
        for name in definition.source.key
    )


def value_columns(definition: Definition, source: Mapping[str, str]) -> tuple[Column, ...]:
    """Return a column per aggregate, with the result type for the columns of the source.

    Raises:
        SpecError: when the type cannot be determined.
    """
    return tuple(
        Column(name, _aggregate_type(f"aggregates.{name} of {definition.name}", call, source))
        for name, call in definition.aggregates.items()
    )


def require_columns(definition: Definition, source: Mapping[str, str], where: str) -> None:
    """Check that the source has all columns of a definition, and that the aggregates are valid.

    Raises:
        SpecError: with the key and the value of each error, and the columns of the source.
    """
    problems = [*_missing_columns(definition, source), *_invalid_aggregates(definition, source)]
    problems = problems or _reserved_columns(definition)
    if problems:
        has_missing_column = any(_NO_COLUMN in problem for problem in problems)
        hint = f"\n\nhint: the source has {_listed(source)}" if has_missing_column else ""
        raise SpecError(format_problems("problems", problems, where) + hint)


def payload_columns(definition: Definition) -> list[str]:
    """Return the source columns of keys, deduplication, and aggregates."""
    named = {*definition.source.key, *definition.source.deduplicate_on}
    for call in definition.aggregates.values():
        named |= _names(_parse(call))
    return sorted(named)


def source_columns(definition: Definition) -> list[str]:
    """Return all source columns of a definition, with those of times, partition, and sequence."""
    spec = definition.source
    named = {*payload_columns(definition), *(name for name in (spec.partition, spec.sequence) if name)}
    for expression in _expressions(definition).values():
        named |= _names(_parse(expression))
    return sorted(named)


def with_filter(call: str, condition: str) -> str:
    """Return the aggregate call with a filter, as SQL; a cast around the call stays around it."""
    parsed = _parse(call)
    inner = _without_cast(parsed)
    where = exp.Where(this=sqlglot.parse_one(condition, dialect="spark"))
    filtered = exp.Filter(this=inner.copy(), expression=where)
    if isinstance(parsed, exp.Cast):
        parsed.set("this", filtered)  # keeps try_cast
        return parsed.sql(dialect="spark")
    return filtered.sql(dialect="spark")


def _missing_columns(definition: Definition, source: Mapping[str, str]) -> list[str]:
    spec = definition.source
    named = [("partition", spec.partition), ("sequence", spec.sequence)]
    named += [("key", column) for column in spec.key]
    named += [("deduplicate_on", column) for column in spec.deduplicate_on]
    problems = [
        f"source.{key} names {column!r}, {_NO_COLUMN}" for key, column in named if column and column not in source
    ]
    for key, expression in _expressions(definition).items():
        problems += _unknown_columns(key, expression, source)
    return problems


def _expressions(definition: Definition) -> dict[str, str]:
    """Return the SQL expressions that a definition computes for each record, by key."""
    spec = definition.source
    expressions = {
        "source.event_time": spec.event_time,
        "source.arrival_time": spec.arrival_time,
        "watermark.marker": definition.watermark.marker,
    }
    return {key: expression for key, expression in expressions.items() if expression}


def _reserved_columns(definition: Definition) -> list[str]:
    """Return problems of columns with reserved names; the partition and the sequence can have their own names."""
    spec = definition.source
    own = {"source_partition": spec.partition, "arrival_seq": spec.sequence}
    return [
        f"column {name!r} cannot be used, because backstream reserves this name"
        for name in payload_columns(definition)
        if name.lower() in WORKING_COLUMNS and own.get(name) != name
    ]


def _invalid_aggregates(definition: Definition, source: Mapping[str, str]) -> list[str]:
    problems = []
    for name, call in definition.aggregates.items():
        key = f"aggregates.{name}"
        unknown = _unknown_columns(key, call, source)
        problem = None if unknown else _aggregate_problem(_parse(call), definition)
        problems += [f"{key} {problem}, got {call!r}"] if problem else unknown
    return problems


def _aggregate_problem(parsed: exp.Expr, definition: Definition) -> str | None:
    """Return the reason why a run cannot compute an expression as an aggregate; None if it can."""
    inner = _without_cast(parsed)
    if not isinstance(inner, exp.AggFunc) or inner.this is None:
        return "must be one aggregate call such as count(*) or avg(x)"
    if inner.find(exp.Window, exp.Select):
        return "must not use OVER or a sub-query"
    if any(call is not inner for call in inner.find_all(exp.AggFunc)):
        return "must not hold an aggregate within another"
    if isinstance(inner, _ORDER_DEPENDENT):
        return "depends on the order of rows, which a recomputation does not keep"
    if definition.backfill.keep_firings and inner.find(exp.Distinct):
        return "cannot be distinct with backfill.keep_firings = true"
    return None


def _unknown_columns(key: str, text: str, source: Mapping[str, str]) -> list[str]:
    try:
        names = _names(_parse(text))
    except SpecError as error:
        return [f"{key} {error}"]
    return [f"{key} names {name!r}, {_NO_COLUMN}, in {text!r}" for name in sorted(names - set(source))]


def _names(parsed: exp.Expr) -> set[str]:
    return {column.name for column in parsed.find_all(exp.Column) if not isinstance(column.this, exp.Star)}


def _listed(source: Mapping[str, str]) -> str:
    more = len(source) - _MAX_COLUMNS_SHOWN
    return ", ".join(list(source)[:_MAX_COLUMNS_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _parse(text: str) -> exp.Expr:
    """Return the parsed expression; the caller adds the key to the message of an error."""
    try:
        return sqlglot.parse_one(text, dialect="spark")
    except SqlglotError as error:
        msg = f"is not SQL: {_parse_problem(error)}, got {text!r}"
        raise SpecError(msg) from None


def _parse_problem(error: SqlglotError) -> str:
    if not isinstance(error, ParseError):
        return "a quotation is not closed"
    # The rest of the text names a class of sqlglot, which doesn't help a reader.
    return str(error.errors[0]["description"]).partition(" for <class")[0] if error.errors else "it is empty"


def _aggregate_type(key: str, call: str, source: Mapping[str, str]) -> str:
    """Return Spark's result type of a common aggregate; other aggregates need a cast."""
    parsed = _parse(call)
    if isinstance(parsed, exp.Cast):
        return _iceberg_type(parsed.to, key)
    if isinstance(parsed, exp.Count | exp.CountIf | exp.ApproxDistinct):
        return _LONG
    argument = _argument_type(parsed.this, source)
    if argument and isinstance(parsed, exp.Min | exp.Max) and isinstance(parsed.this, exp.Column | exp.Cast):
        return _iceberg_type(argument, key)
    if argument and isinstance(parsed, (exp.Sum, *_MEANS)):
        _require_number(key, call, argument)
        result = _sum_type(argument) if isinstance(parsed, exp.Sum) else _mean_type(argument)
        if result:
            return result
    msg = f"cannot determine the type of {key}: {call!r}\n\nhint: add a cast, e.g., cast({call} as double)"
    raise SpecError(msg)


def _argument_type(argument: exp.Expr, source: Mapping[str, str]) -> exp.DataType | None:
    """Return the type of the argument of an aggregate; None if Spark's type is not certain."""
    # With a cast of each column, the annotator needs no schema to qualify names against.
    with_casts = argument.copy().transform(
        lambda node: exp.cast(node, source[node.name], dialect="spark") if isinstance(node, exp.Column) else node
    )
    if isinstance(with_casts, exp.Cast):
        target: exp.DataType = with_casts.to
        return target
    kind: exp.DataType | None = annotate_types(with_casts, dialect="spark").type
    # In Spark, 1.5 is a decimal, and the precision of decimals has rules of its own.
    has_decimal = any(node.is_number and not node.is_int for node in with_casts.find_all(exp.Literal))
    if kind is None or has_decimal or kind.this.value in ("UNKNOWN", "NULL", "DECIMAL"):
        return None
    return kind


def _require_number(key: str, call: str, argument: exp.DataType) -> None:
    if argument.this.value not in {*_INTEGRAL, *_FLOATING, "DECIMAL"}:
        kind = argument.sql(dialect="spark").lower()
        msg = f"{key} must be over numbers, got {call!r} over a {kind}"
        raise SpecError(msg)


def _sum_type(argument: exp.DataType) -> str:
    if argument.this.value == "DECIMAL":
        precision, scale = _precision(argument)
        return f"decimal({min(_MAX_PRECISION, precision + 10)},{scale})"
    return _LONG if argument.this.value in _INTEGRAL else "double"


def _mean_type(argument: exp.DataType) -> str | None:
    return None if argument.this.value == "DECIMAL" else "double"


def _key_type(key: str, kind: str) -> str:
    return _iceberg_type(exp.DataType.build(kind, dialect="spark"), key)


def _precision(kind: exp.DataType) -> tuple[int, int]:
    precision, scale = ([int(part.name) for part in kind.expressions] + [*_DEFAULT_DECIMAL])[:2]
    return precision, scale


def _iceberg_type(kind: exp.DataType, key: str) -> str:
    if kind.this.value == "DECIMAL":
        precision, scale = _precision(kind)
        return f"decimal({precision},{scale})"
    try:
        return _ICEBERG_TYPES[kind.this.value]
    except KeyError:
        msg = f"{key} has the type {kind.sql(dialect='spark').lower()}, which a result column cannot have"
        raise SpecError(msg) from None


_MERGED_BY: Mapping[type[exp.Expr], str] = {
    exp.Count: "sum",
    exp.CountIf: "sum",
    exp.Sum: "sum",
    exp.Min: "min",
    exp.Max: "max",
}


@dataclass(frozen=True, slots=True)
class MergeableAggregate:
    """Aggregate in steps, as SQL: partial aggregates over rows, merged ones, and the final value.

    `call` is the aggregate without a cast. `merged_by` has a merging aggregate for each one in `partial`.
    """

    call: str
    partial: tuple[str, ...]
    merged_by: tuple[str, ...]

    def value(self, merged: Sequence[str]) -> str:
        """Return the SQL of the value of `call` from the columns of the merged aggregates."""
        if len(merged) > 1:
            total, count = merged
            return f"{total} / nullif({count}, 0)"
        is_count = self.call.startswith("COUNT")
        return f"coalesce({merged[0]}, 0)" if is_count else merged[0]


def mergeable_aggregate(call: str) -> MergeableAggregate | None:
    """Return the steps of an aggregate; None if the aggregate needs all its rows at once."""
    inner = _without_cast(_parse(call))
    if inner.find(exp.Distinct):
        return None
    sql = inner.sql(dialect="spark")
    if type(inner) is exp.Avg:
        argument = inner.this.sql(dialect="spark")
        # Spark's avg adds doubles for all types of numbers.
        return MergeableAggregate(sql, (f"sum(cast({argument} as double))", f"count({argument})"), ("sum", "sum"))
    merged_by = _MERGED_BY.get(type(inner))
    return MergeableAggregate(sql, (sql,), (merged_by,)) if merged_by else None


def with_cast_of(call: str, value: str) -> str:
    """Return the value with the cast of the aggregate call around it, if the call has one."""
    parsed = _parse(call)
    if not isinstance(parsed, exp.Cast):
        return value
    parsed.set("this", _parse(value))  # keeps try_cast
    return parsed.sql(dialect="spark")


def _without_cast(parsed: exp.Expr) -> exp.Expr:
    inner: exp.Expr = parsed.this if isinstance(parsed, exp.Cast) else parsed
    return inner
