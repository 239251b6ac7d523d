"""Translate SQL of Spark into SQL of DuckDB: a small part of it, in which both have the same values.

Types are followed from the columns up. An expression is translated only if each of its parts has a known type and
the same meaning in both; any other one needs Spark. With Spark's ANSI rules both fail on an overflow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from backstream.native.sql import quote_text
from backstream.native.task import INTEGERS, duckdb_type

_WIDTHS = list(INTEGERS)
_NUMBERS = (*INTEGERS, "double")
_COMPARED = ("boolean", "string", "date", "timestamp", "timestamp_ntz")
_UNKNOWN = "void"
"""The type of a bare NULL."""
_COMPARISONS: Mapping[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM",
}
_ARITHMETIC: Mapping[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}
_MAX_INT = 2**31 - 1


class Typed(NamedTuple):
    """SQL of DuckDB with its Spark SQL type."""

    sql: str
    type_name: str


class _UntranslatableError(Exception):
    """An expression that is not in the common part."""


def translate(text: str, columns: Mapping[str, Typed]) -> Typed | None:
    """Return an expression in DuckDB's SQL; None if it has a part without a translation.

    Args:
        text: SQL of Spark.
        columns: the SQL and the type of each column.
    """
    try:
        return _Translation(columns).translate(sqlglot.parse_one(text, dialect="spark"))
    except (SqlglotError, _UntranslatableError):
        return None


def list_columns(text: str) -> list[str]:
    """Return the names of the columns in SQL of Spark; empty if it cannot be parsed."""
    try:
        return [column.name for column in sqlglot.parse_one(text, dialect="spark").find_all(exp.Column)]
    except SqlglotError:
        return []


class _Translation:
    """The translation of one expression."""

    def __init__(self, columns: Mapping[str, Typed]) -> None:
        self._columns = columns

    def translate(self, node: exp.Expr) -> Typed:
        kind = type(node)
        if sign := _COMPARISONS.get(kind):
            return _compare(sign, self.translate(node.this), self.translate(node.args["expression"]))
        if sign := _ARITHMETIC.get(kind):
            return _calculate(sign, self._number(node.this), self._number(node.args["expression"]))
        if method := _FORMS.get(kind):
            return method(self, node)
        is_other = isinstance(node, exp.Anonymous)
        function = _FUNCTIONS.get(str(node.this if is_other else kind.__name__).lower())
        if function is None:
            raise _UntranslatableError
        arguments = node.expressions if is_other else [node.this]
        return function([self.translate(argument) for argument in arguments])

    def paren(self, node: exp.Expr) -> Typed:
        return self.translate(node.this)

    def column(self, node: exp.Expr) -> Typed:
        if node.args.get("table") or node.name not in self._columns:
            raise _UntranslatableError
        return self._columns[node.name]

    def constant(self, node: exp.Expr) -> Typed:
        return Typed("NULL", _UNKNOWN) if isinstance(node, exp.Null) else Typed(str(node.this).lower(), "boolean")

    def literal(self, node: exp.Expr) -> Typed:
        if node.args["is_string"]:
            return Typed(quote_text(node.this), "string")
        if not str(node.this).isdecimal():
            raise _UntranslatableError
        kind = "int" if int(node.this) <= _MAX_INT else "bigint"
        return Typed(f"CAST({node.this} AS {duckdb_type(kind)})", kind)

    def negative(self, node: exp.Expr) -> Typed:
        value = self._number(node.this)
        return Typed(f"(-{value.sql})", value.type_name)

    def negation(self, node: exp.Expr) -> Typed:
        return Typed(f"(NOT {self._boolean(node.this)})", "boolean")

    def connection(self, node: exp.Expr) -> Typed:
        word = "AND" if isinstance(node, exp.And) else "OR"
        return Typed(f"({self._boolean(node.this)} {word} {self._boolean(node.args['expression'])})", "boolean")

    def is_null(self, node: exp.Expr) -> Typed:
        if not isinstance(node.args["expression"], exp.Null):
            raise _UntranslatableError
        return Typed(f"({self.translate(node.this).sql} IS NULL)", "boolean")

    def between(self, node: exp.Expr) -> Typed:
        value = self.translate(node.this)
        low, high = (self.translate(node.args[name]) for name in ("low", "high"))
        return Typed(f"({_compare('>=', value, low).sql} AND {_compare('<=', value, high).sql})", "boolean")

    def one_of(self, node: exp.Expr) -> Typed:
        value = self.translate(node.this)
        if not node.expressions:  # a subquery
            raise _UntranslatableError
        each = [_compare("=", value, self.translate(other)).sql for other in node.expressions]
        return Typed(f"({' OR '.join(each)})", "boolean")

    def choice(self, node: exp.Expr) -> Typed:
        return self._case([(node.this, node.args["true"])], node.args.get("false"))

    def case_when(self, node: exp.Expr) -> Typed:
        if node.this is not None:
            raise _UntranslatableError
        return self._case([(each.this, each.args["true"]) for each in node.args["ifs"]], node.args.get("default"))

    def first_value(self, node: exp.Expr) -> Typed:
        values = self._common([node.this, *node.expressions])
        return Typed(f"coalesce({', '.join(value.sql for value in values)})", values[0].type_name)

    def null_if(self, node: exp.Expr) -> Typed:
        value, other = self.translate(node.this), self.translate(node.args["expression"])
        is_equal = _compare("=", value, other).sql
        return Typed(f"(CASE WHEN {is_equal} THEN NULL ELSE {value.sql} END)", value.type_name)

    def _case(self, branches: Sequence[tuple[exp.Expr, exp.Expr]], default: exp.Expr | None) -> Typed:
        values = self._common([value for _, value in branches] + [default or exp.Null()])
        *chosen, otherwise = values
        conditions = [self._boolean(condition) for condition, _ in branches]
        cases = " ".join(f"WHEN {one} THEN {value.sql}" for one, value in zip(conditions, chosen, strict=True))
        return Typed(f"(CASE {cases} ELSE {otherwise.sql} END)", otherwise.type_name)

    def cast(self, node: exp.Expr) -> Typed:
        """Return a widening of an integer, the only cast that cannot fail or round."""
        value, target = self._number(node.this), node.args["to"].sql("spark").lower()
        if value.type_name == target:
            return value
        is_wider = target in INTEGERS and _width(value.type_name) <= _width(target)
        if not (is_wider or (target == "double" and value.type_name in INTEGERS)):
            raise _UntranslatableError
        return Typed(f"CAST({value.sql} AS {duckdb_type(target)})", target)

    def _common(self, nodes: Sequence[exp.Expr]) -> list[Typed]:
        """Return expressions with one type."""
        values = [self.translate(node) for node in nodes]
        kinds = {value.type_name for value in values} - {_UNKNOWN}
        if len(kinds) > 1 and kinds <= INTEGERS.keys():
            kinds = {max(kinds, key=_width)}
        if len(kinds) != 1:
            raise _UntranslatableError
        (kind,) = kinds
        return [Typed(f"CAST({value.sql} AS {duckdb_type(kind)})", kind) for value in values]

    def _boolean(self, node: exp.Expr) -> str:
        value = self.translate(node)
        if value.type_name not in ("boolean", _UNKNOWN):
            raise _UntranslatableError
        return value.sql

    def _number(self, node: exp.Expr) -> Typed:
        value = self.translate(node)
        if value.type_name not in _NUMBERS:
            raise _UntranslatableError
        return value


def _width(type_name: str) -> int:
    return _WIDTHS.index(type_name)


def _compare(sign: str, left: Typed, right: Typed) -> Typed:
    """Return a comparison of two values of one kind; NaN and texts have the same order in both engines."""
    kinds = {left.type_name, right.type_name} - {_UNKNOWN}
    if not (kinds <= {*_NUMBERS} or (len(kinds) == 1 and kinds <= {*_COMPARED})):
        raise _UntranslatableError
    return Typed(f"({left.sql} {sign} {right.sql})", "boolean")


def _calculate(sign: str, left: Typed, right: Typed) -> Typed:
    """Return a sum, difference, or product in the wider of both types, as Spark has it."""
    kinds = {left.type_name, right.type_name}
    kind = "double" if "double" in kinds else max(kinds, key=_width)
    name = duckdb_type(kind)
    return Typed(f"(CAST({left.sql} AS {name}) {sign} CAST({right.sql} AS {name}))", kind)


def _only(values: Sequence[Typed], *kinds: str) -> str:
    (value,) = values
    if value.type_name not in kinds:
        raise _UntranslatableError
    return value.sql


def _milliseconds_of(values: Sequence[Typed]) -> Typed:
    micros = f"epoch_us({_only(values, 'timestamp')})"
    return Typed(f"(CASE WHEN {micros} < 0 THEN {micros} - 999 ELSE {micros} END // 1000)", "bigint")


def _instant(units_per_second: int) -> Callable[[Sequence[Typed]], Typed]:
    micros = 1_000_000 // units_per_second
    return lambda values: Typed(
        f"make_timestamptz(CAST({_only(values, *INTEGERS)} AS BIGINT) * {micros})", "timestamp"
    )


_FUNCTIONS: Mapping[str, Callable[[Sequence[Typed]], Typed]] = {
    "unixmillis": _milliseconds_of,
    "timestamp_millis": _instant(1_000),
    "timestamp_seconds": _instant(1),
    "timestamp_micros": _instant(1_000_000),
}
_FORMS: Mapping[type[exp.Expr], Callable[[_Translation, exp.Expr], Typed]] = {
    exp.Paren: _Translation.paren,
    exp.Column: _Translation.column,
    exp.Boolean: _Translation.constant,
    exp.Null: _Translation.constant,
    exp.Literal: _Translation.literal,
    exp.Neg: _Translation.negative,
    exp.Not: _Translation.negation,
    exp.And: _Translation.connection,
    exp.Or: _Translation.connection,
    exp.Is: _Translation.is_null,
    exp.Between: _Translation.between,
    exp.In: _Translation.one_of,
    exp.If: _Translation.choice,
    exp.Case: _Translation.case_when,
    exp.Coalesce: _Translation.first_value,
    exp.Nullif: _Translation.null_if,
    exp.Cast: _Translation.cast,
    exp.TryCast: _Translation.cast,
}
