"""Parse the aggregates that plain Python can recompute: those of the native engine, and some others."""

from __future__ import annotations

from collections.abc import Mapping

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from backstream.native.supported import parse_aggregate
from backstream.native.task import FLOATING, GROUPED, INTEGERS, TIMES, Aggregate

COUNT_DISTINCT, COUNT_IF, ALL, ANY, PERCENTILE = "count_distinct", "count_if", "all", "any", "percentile"
"""Functions besides those of the native engine; `PERCENTILE` is followed by `:` and the share."""
_BOOLEAN: Mapping[type[exp.Expr], str] = {exp.LogicalAnd: ALL, exp.LogicalOr: ANY, exp.CountIf: COUNT_IF}
_MEDIAN = 0.5


def parse_recomputed(name: str, call: str, columns: Mapping[str, str]) -> Aggregate | None:
    """Return the aggregate; None if only Spark can evaluate it.

    Args:
        name: the column of the result.
        call: the aggregate in Spark SQL.
        columns: the columns of the source with their Spark SQL types.
    """
    return parse_aggregate(name, call, columns) or _parse_other(name, call, columns)


def _parse_other(name: str, call: str, columns: Mapping[str, str]) -> Aggregate | None:
    try:
        parsed = sqlglot.parse_one(call, dialect="spark")
    except SqlglotError:
        return None
    if isinstance(parsed, exp.Count) and isinstance(parsed.this, exp.Distinct):
        arguments = parsed.this.expressions
        column = _column(arguments[0]) if len(arguments) == 1 and not parsed.this.args.get("on") else None
        # Floating-point numbers are left out: NaN is one value in Spark, and several in Python.
        return _aggregate(name, COUNT_DISTINCT, column, columns, {*GROUPED, *TIMES})
    if type(parsed) in _BOOLEAN:
        return _aggregate(name, _BOOLEAN[type(parsed)], _column(parsed.this), columns, {"boolean"})
    share = _percentile_share(parsed)
    if share is None or call.count(",") > 1:  # the parser drops the frequencies, a third argument
        return None
    return _aggregate(name, f"{PERCENTILE}:{share}", _column(parsed.this), columns, {*INTEGERS, *FLOATING})


def _percentile_share(parsed: exp.Expr) -> float | None:
    """Return the share of an exact percentile; None for another call."""
    if isinstance(parsed, exp.Median):
        return _MEDIAN
    if type(parsed) is not exp.Quantile or not isinstance(parsed.args.get("quantile"), exp.Literal):
        return None
    literal = parsed.args["quantile"]
    return None if literal.is_string else float(literal.this)


def _column(argument: object) -> str | None:
    is_plain = type(argument) is exp.Column and not argument.table and not isinstance(argument.this, exp.Star)
    return argument.name if is_plain and isinstance(argument, exp.Column) else None


def _aggregate(
    name: str, function: str, column: str | None, columns: Mapping[str, str], types: set[str]
) -> Aggregate | None:
    is_possible = column is not None and columns.get(column) in types
    return Aggregate(name, function, column) if is_possible else None
