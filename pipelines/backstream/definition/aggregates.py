"""Checking a definition against the columns of its source: parsed with sqlglot, so nothing is executed."""

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
_PLAIN_DECIMAL = (10, 0)
"""What Spark takes `decimal` without numbers for."""
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
_SHOWN = 20


def key_columns(definition: Definition, source: Mapping[str, str]) -> tuple[Column, ...]:
    """The key columns with their Iceberg types.

    Args:
        definition: what names them.
        source: column name to Spark SQL type, such as `{"origin": "string"}`.

    Raises:
        SpecError: when a key is of a type that no table can hold.
    """
    return tuple(
        Column(name, _key_type(f"source.key {name!r} of {definition.name}", source[name]))
        for name in definition.source.key
    )


def value_columns(definition: Definition, source: Mapping[str, str]) -> tuple[Column, ...]:
    """One column per aggregate, with the type it yields over the source's columns.

    Raises:
        SpecError: when the type cannot be told.
    """
    return tuple(
        Column(name, _aggregate_type(f"aggregates.{name} of {definition.name}", call, source))
        for name, call in definition.aggregates.items()
    )


def require_columns(definition: Definition, source: Mapping[str, str], where: str) -> None:
    """Check that every column a definition names is there, and that aggregates are aggregates.

    Raises:
        SpecError: naming each key of the definition, its value, and the columns there are.
    """
    found = [*_missing_columns(definition, source), *_wrong_aggregates(definition, source)]
    found = found or _hidden_columns(definition)
    if found:
        is_column_sought = any(_NO_COLUMN in line for line in found)
        hint = f"\n\nhint: the source has {_listed(source)}" if is_column_sought else ""
        raise SpecError(format_problems("problems", found, where) + hint)


def payload_columns(definition: Definition) -> list[str]:
    """The source columns that a run has to read, besides those that say when and where."""
    named = {*definition.source.key, *definition.source.deduplicate_on}
    for call in definition.aggregates.values():
        named |= _names(_parsed(call))
    return sorted(named)


def source_columns(definition: Definition) -> list[str]:
    """Every source column that a definition names, those that say when and where included."""
    plan = definition.source
    named = {*payload_columns(definition), *(name for name in (plan.partition, plan.sequence) if name)}
    for expression in _expressions(definition).values():
        named |= _names(_parsed(expression))
    return sorted(named)


def with_filter(call: str, condition: str) -> str:
    """The aggregate call over the rows that meet a condition, as SQL; a cast around it stays around it."""
    parsed = _parsed(call)
    inner = parsed.this if isinstance(parsed, exp.Cast) else parsed
    where = exp.Where(this=sqlglot.parse_one(condition, dialect="spark"))
    narrowed = exp.Filter(this=inner.copy(), expression=where)
    if isinstance(parsed, exp.Cast):
        parsed.set("this", narrowed)  # so that try_cast stays one
        return parsed.sql(dialect="spark")
    return narrowed.sql(dialect="spark")


def _missing_columns(definition: Definition, source: Mapping[str, str]) -> list[str]:
    plan = definition.source
    named = [("partition", plan.partition), ("sequence", plan.sequence)]
    named += [("key", column) for column in plan.key]
    named += [("deduplicate_on", column) for column in plan.deduplicate_on]
    found = [
        f"source.{key} names {column!r}, {_NO_COLUMN}" for key, column in named if column and column not in source
    ]
    for key, expression in _expressions(definition).items():
        found += _unknown(key, expression, source)
    return found


def _expressions(definition: Definition) -> dict[str, str]:
    """What a definition computes of each record, besides aggregates: its key, and the SQL."""
    plan = definition.source
    written = {
        "source.event_time": plan.event_time,
        "source.arrival_time": plan.arrival_time,
        "watermark.marker": definition.watermark.marker,
    }
    return {key: expression for key, expression in written.items() if expression}


def _hidden_columns(definition: Definition) -> list[str]:
    """Columns with a name that a run gives to one of its own; what says partition and order may have theirs."""
    plan = definition.source
    own = {"source_partition": plan.partition, "arrival_seq": plan.sequence}
    return [
        f"column {name!r} cannot be used, since a run has its own of that name"
        for name in payload_columns(definition)
        if name.lower() in WORKING_COLUMNS and own.get(name) != name
    ]


def _wrong_aggregates(definition: Definition, source: Mapping[str, str]) -> list[str]:
    found = []
    for name, call in definition.aggregates.items():
        key = f"aggregates.{name}"
        unknown = _unknown(key, call, source)
        complaint = None if unknown else _complaint(_parsed(call), definition)
        found += [f"{key} {complaint}, got {call!r}"] if complaint else unknown
    return found


def _complaint(parsed: exp.Expr, definition: Definition) -> str | None:
    """Why this is no aggregate that a run can compute."""
    inner = parsed.this if isinstance(parsed, exp.Cast) else parsed
    if not isinstance(inner, exp.AggFunc) or inner.this is None:
        return "must be one aggregate call such as count(*) or avg(x)"
    if inner.find(exp.Window, exp.Select):
        return "must not use OVER or a sub-query"
    if any(each is not inner for each in inner.find_all(exp.AggFunc)):
        return "must not hold an aggregate within another"
    if isinstance(inner, _ORDER_DEPENDENT):
        return "depends on the order of rows, which no recomputation keeps"
    if definition.backfill.keep_firings and inner.find(exp.Distinct):
        return "cannot be distinct with backfill.keep_firings = true"
    return None


def _unknown(key: str, text: str, source: Mapping[str, str]) -> list[str]:
    try:
        names = _names(_parsed(text))
    except SpecError as error:
        return [f"{key} {error}"]
    return [f"{key} names {name!r}, {_NO_COLUMN}, in {text!r}" for name in sorted(names - set(source))]


def _names(parsed: exp.Expr) -> set[str]:
    return {column.name for column in parsed.find_all(exp.Column) if not isinstance(column.this, exp.Star)}


def _listed(source: Mapping[str, str]) -> str:
    more = len(source) - _SHOWN
    return ", ".join(list(source)[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _parsed(text: str) -> exp.Expr:
    """The expression. What is raised names no key: that is said by whoever knows it."""
    try:
        return sqlglot.parse_one(text, dialect="spark")
    except SqlglotError as error:
        msg = f"is not SQL: {_reason(error)}, got {text!r}"
        raise SpecError(msg) from None


def _reason(error: SqlglotError) -> str:
    if not isinstance(error, ParseError):
        return "a quotation has no end"
    # Which of sqlglot's own classes lacks what is nothing to a reader.
    return str(error.errors[0]["description"]).partition(" for <class")[0] if error.errors else "it is empty"


def _aggregate_type(key: str, call: str, source: Mapping[str, str]) -> str:
    """Spark's result types of the aggregates that people use; others say theirs with a cast."""
    parsed = _parsed(call)
    if isinstance(parsed, exp.Cast):
        return _iceberg_type(parsed.to, key)
    if isinstance(parsed, exp.Count | exp.CountIf | exp.ApproxDistinct):
        return _LONG
    argument = _typed(parsed.this, source)
    if argument and isinstance(parsed, exp.Min | exp.Max) and isinstance(parsed.this, exp.Column | exp.Cast):
        return _iceberg_type(argument, key)
    if argument and isinstance(parsed, (exp.Sum, *_MEANS)):
        _require_number(key, call, argument)
        found = _sum_type(argument) if isinstance(parsed, exp.Sum) else _mean_type(argument)
        if found:
            return found
    msg = f"cannot tell the type of {key}: {call!r}\n\nhint: say it, as in cast({call} as double)"
    raise SpecError(msg)


def _typed(argument: exp.Expr, source: Mapping[str, str]) -> exp.DataType | None:
    """The type of an aggregate's argument; None where it is not known for certain to be Spark's."""
    # A cast tells the annotator each column's type without a schema to qualify names against.
    typed = argument.copy().transform(
        lambda node: exp.cast(node, source[node.name], dialect="spark") if isinstance(node, exp.Column) else node
    )
    if isinstance(typed, exp.Cast):
        said: exp.DataType = typed.to
        return said
    kind: exp.DataType | None = annotate_types(typed, dialect="spark").type
    # Spark takes 1.5 for a decimal, and has rules of its own for the precision of decimals.
    is_decimal_near = any(node.is_number and not node.is_int for node in typed.find_all(exp.Literal))
    if kind is None or is_decimal_near or kind.this.value in ("UNKNOWN", "NULL", "DECIMAL"):
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
    precision, scale = ([int(part.name) for part in kind.expressions] + [*_PLAIN_DECIMAL])[:2]
    return precision, scale


def _iceberg_type(kind: exp.DataType, key: str) -> str:
    if kind.this.value == "DECIMAL":
        precision, scale = _precision(kind)
        return f"decimal({precision},{scale})"
    try:
        return _ICEBERG_TYPES[kind.this.value]
    except KeyError:
        msg = f"{key} has the type {kind.sql(dialect='spark').lower()}, which a result column cannot hold"
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
    """An aggregate in steps, as SQL: over rows, over what rows gave, and what that comes to.

    `call` is the aggregate itself, without a cast around it; `merged_by` names an aggregate for each of `partial`.
    """

    call: str
    partial: tuple[str, ...]
    merged_by: tuple[str, ...]

    def value(self, merged: Sequence[str]) -> str:
        """The value of `call` over the columns that hold the merged parts."""
        if len(merged) > 1:
            total, count = merged
            return f"{total} / nullif({count}, 0)"
        is_count = self.call.startswith("COUNT")
        return f"coalesce({merged[0]}, 0)" if is_count else merged[0]


def mergeable_aggregate(call: str) -> MergeableAggregate | None:
    """The steps of an aggregate that can be computed from parts; None for one that needs all its rows at once."""
    inner = _uncast(_parsed(call))
    if inner.find(exp.Distinct):
        return None
    said = inner.sql(dialect="spark")
    if type(inner) is exp.Avg:
        argument = inner.this.sql(dialect="spark")
        # Spark's own avg adds up doubles, whatever the numbers are.
        return MergeableAggregate(said, (f"sum(cast({argument} as double))", f"count({argument})"), ("sum", "sum"))
    merged_by = _MERGED_BY.get(type(inner))
    return MergeableAggregate(said, (said,), (merged_by,)) if merged_by else None


def with_cast_of(call: str, value: str) -> str:
    """The value with the cast around it that the aggregate call has, if it has one."""
    parsed = _parsed(call)
    if not isinstance(parsed, exp.Cast):
        return value
    parsed.set("this", _parsed(value))  # so that try_cast stays one
    return parsed.sql(dialect="spark")


def _uncast(parsed: exp.Expr) -> exp.Expr:
    inner: exp.Expr = parsed.this if isinstance(parsed, exp.Cast) else parsed
    return inner
