"""Derive the type of a Spark SQL expression without Spark; the type of an unlisted expression is unknown.

A test compares the types with those of Spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from sqlglot import exp

from backstream.definition.spark_functions import words

Types = Mapping[str, str]
"""Spark SQL types by name: of columns, or of the results of functions."""

_INTEGRAL = ("tinyint", "smallint", "int", "bigint")
"""The integral types, from narrow to wide."""
_FLOATING = ("float", "double")
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
"""The precision of the decimal that holds all values of an integral type."""
_MAX_PRECISION, _MIN_SCALE = 38, 6
_MAX_INT = 2**31
_DEFAULT_DECIMAL = "decimal(10,0)"
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_ARRAY = re.compile(r"array<(.+)>")

_FIXED: Mapping[str, str] = {
    name: kind
    for kind, names in {
        "bigint": "count countif approxdistinct regrcount intdiv unixmillis unixseconds unixmicros xxhash64",
        "boolean": "logicaland logicalor any some every isnan isnull isnotnull arraycontains contains startswith"
        " endswith exists",
        "date": "tsordstodate tsordsadd lastday addmonths datetrunc",
        "double": "stddev stddevsamp stddevpop std variance variancepop skewness kurtosis corr covarpop covarsamp"
        " regravgx regravgy regrintercept regrr2 regrslope regrsxx regrsxy regrsyy median percentilecont"
        " percentiledisc sqrt pow exp ln log safedivide",
        "int": "length arraysize cardinality year month day dayofmonth hour minute second dayofweek dayofyear"
        " weekofyear quarter datediff strposition hash",
        "string": "upper lower trim concatws substring replace regexpreplace regexpextract left right pad initcap"
        " timetostr unixtostr md5 sha2 arraytostring jsonformat jsonextractscalar groupconcat",
        "timestamp": "timestamptrunc strtotime timestamp_millis timestamp_micros timestamp_seconds",
    }.items()
    for name in names.split()
}
"""The type of functions that have one for all arguments, by the key of sqlglot or the name of a function."""
_OF_FIRST = words(
    "min max argmax argmin mode first last anyvalue abs reverse arraysort arraydistinct bitwiseandagg bitwiseoragg"
    " bitwisexoragg ignorenulls respectnulls filter paren neg distinct order ordered lowerbound"
)
"""Functions and clauses that have the type of their first argument."""
_OF_ALL = words("coalesce greatest least nullif")
"""Functions that have the common type of their arguments."""
_SUMS = words("sum try_sum")
_MEANS = words("avg mean try_avg")
_COLLECTIONS = words("arrayagg arrayuniqueagg")


class ResultTypes:
    """The types of expressions over some columns."""

    def __init__(self, columns: Types, functions: Types | None = None) -> None:
        """Remember the types of columns, and of the results of a definition's own functions."""
        self._columns, self._functions = columns, functions or {}

    def of(self, node: exp.Expr | None) -> str | None:
        """Return the type of an expression; None if it is unknown."""
        if node is None:
            return None
        name = _function_name(node)
        if kind := self._own_function(node, name):
            return kind
        for names, find in self._rules():
            if name in names:
                return find(node)
        if isinstance(node, exp.Condition) and isinstance(
            node, exp.Predicate | exp.Connector | exp.Not | exp.Boolean
        ):
            return "boolean"
        return _FIXED.get(name)

    def _rules(self) -> Sequence[tuple[Iterable[str], Callable[[exp.Expr], str | None]]]:
        return (
            (("column", "dot"), self._column),
            (("literal",), _literal_type),
            (("null",), lambda _: "void"),
            (("cast", "trycast"), lambda node: spark_type(node.args["to"])),
            (_OF_FIRST, lambda node: self.of(_first(node))),
            (("withingroup",), self._within_group),
            (_OF_ALL, lambda node: _shared_type(self._all(_arguments(node)))),
            (("if", "case", "nvl2"), self._arms),
            (("add", "sub", "mul", "div", "mod"), self._arithmetic),
            (("safeadd", "safesubtract", "safemultiply"), self._arithmetic),
            (_SUMS, lambda node: _sum_type(self.of(_first(node)))),
            (_MEANS, lambda node: _mean_type(self.of(_first(node)))),
            (_COLLECTIONS, lambda node: _array_of(self.of(_first(node)))),
            (("quantile",), lambda node: self._per_quantile(node, "double")),
            (("approxquantile",), lambda node: self._per_quantile(node, self.of(node.this))),
            (("arraymax", "arraymin", "bracket"), lambda node: _element_of(self.of(node.this))),
            (("array",), lambda node: _array_of(_shared_type(self._all(node.expressions)))),
            (("struct",), self._struct),
            (("concat", "dpipe"), self._concatenation),
            (("round", "bround", "ceil", "floor"), self._rounding),
        )

    def _own_function(self, node: exp.Expr, name: str) -> str | None:
        if not self._functions or not isinstance(node, exp.Func):
            return None
        # sqlglot has the functions of many systems, so an own function may have the name of one of them.
        names = [name] if isinstance(node, exp.Anonymous) else [each.lower() for each in node.sql_names()]
        return next((self._functions[each] for each in names if each in self._functions), None)

    def _all(self, nodes: Iterable[exp.Expr]) -> list[str | None]:
        return [self.of(node) for node in nodes]

    def _column(self, node: exp.Expr) -> str | None:
        path = column_path(node)
        if path is None:
            return None
        kind = self._columns.get(path[0])
        for field in path[1:]:
            kind = field_type(kind, field) if kind else None
        return kind

    def _within_group(self, node: exp.Expr) -> str | None:
        if _function_name(node.this) == "mode":
            return self.of(node.expression.expressions[0])
        return self._per_quantile(node.this, "double", node.this.this)

    def _arms(self, node: exp.Expr) -> str | None:
        arms = [node.args.get("true"), node.args.get("false"), node.args.get("default")]
        arms += [branch.args.get("true") for branch in node.args.get("ifs") or ()]
        return _shared_type(self._all(arm for arm in arms if arm is not None))

    def _arithmetic(self, node: exp.Expr) -> str | None:
        left, right = self.of(node.this), self.of(node.expression)
        if left is None or right is None:
            return None
        operator = _OPERATORS.get(node.key, node.key)
        if "double" in (left, right) and _are_numbers(left, right):
            return "double"
        if any(map(_DECIMAL.fullmatch, (left, right))):
            sizes = [_decimal_of(kind, part) for kind, part in ((left, node.this), (right, node.expression))]
            return _decimal_arithmetic(operator, sizes[0], sizes[1]) if sizes[0] and sizes[1] else None
        if operator == "div":
            return "double" if _are_numbers(left, right) else None
        if "float" in (left, right) and left != right:
            return "double" if _are_numbers(left, right) else None
        return _shared_type([left, right]) if _are_numbers(left, right) else None

    def _per_quantile(self, node: exp.Expr, kind: str | None, quantile: exp.Expr | None = None) -> str | None:
        asked = quantile or node.args.get("quantile") or node.expression
        return _array_of(kind) if _ARRAY.fullmatch(self.of(asked) or "") else kind

    def _struct(self, node: exp.Expr) -> str | None:
        fields = [(field.name, self.of(field.expression)) for field in node.expressions]
        members = ",".join(f"{name}:{kind}" for name, kind in fields)
        return None if any(kind is None for _, kind in fields) else f"struct<{members}>"

    def _concatenation(self, node: exp.Expr) -> str | None:
        kinds = set(self._all(_arguments(node)))
        return "string" if kinds == {"string"} else None

    def _rounding(self, node: exp.Expr) -> str | None:
        kind = self.of(node.this)
        is_whole = node.key in ("ceil", "floor") and not node.args.get("decimals")
        if is_whole:
            return "bigint" if kind in (*_INTEGRAL, *_FLOATING) else None
        return kind if kind in (*_INTEGRAL, *_FLOATING) and node.key not in ("ceil", "floor") else None


_OPERATORS = {"safeadd": "add", "safesubtract": "sub", "safemultiply": "mul"}


def column_path(node: exp.Expr) -> tuple[str, ...] | None:
    """Return a column and the fields of a struct behind it; None if the expression is something else."""
    if isinstance(node, exp.Column):
        parts = node.parts
        return tuple(part.name for part in parts) if not isinstance(node.this, exp.Star) else None
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        path = column_path(node.this)
        return (*path, node.expression.name) if path else None
    return None


def field_type(kind: str, field: str) -> str | None:
    """Return the type of a field of a struct; None if the type is no struct, or has no such field."""
    parsed = exp.DataType.build(kind, dialect="spark")
    if parsed.this is not exp.DType.STRUCT:
        return None
    found = [each for each in parsed.expressions if each.name == field]
    return spark_type(found[0].args["kind"]) if found else None


def spark_type(kind: exp.DataType) -> str:
    """Return the name of a type as Spark has it in a schema."""
    text = str(kind.sql(dialect="spark")).lower().replace(" ", "")
    return _DEFAULT_DECIMAL if text == "decimal" else text


def _shared_type(kinds: Sequence[str | None]) -> str | None:
    """Return the type that holds the values of all of these types; None if that is unknown."""
    if None in kinds:
        return None
    different = {kind for kind in kinds if kind not in (None, "void")}
    if len(different) <= 1:
        return next(iter(different), "void")
    if different <= set(_INTEGRAL):
        return max(different, key=_INTEGRAL.index)
    if "double" in different and _are_numbers(*different):
        return "double"
    sizes = [_decimal_of(kind) for kind in different]
    if None in sizes:
        return None
    scale = max(size[1] for size in sizes if size)
    return _decimal(max(size[0] - size[1] for size in sizes if size) + scale, scale)


def _sum_type(kind: str | None) -> str | None:
    """Return the type of a sum."""
    if kind is not None and (size := _decimal_size(kind)):
        return f"decimal({min(_MAX_PRECISION, size[0] + 10)},{size[1]})"
    if kind in _INTEGRAL:
        return "bigint"
    return "double" if kind in _FLOATING else None


def _mean_type(kind: str | None) -> str | None:
    """Return the type of an average."""
    if kind is not None and (size := _decimal_size(kind)):
        return f"decimal({min(_MAX_PRECISION, size[0] + 4)},{min(_MAX_PRECISION, size[1] + 4)})"
    return "double" if kind in (*_INTEGRAL, *_FLOATING) else None


def _function_name(node: exp.Expr) -> str:
    return node.name.lower() if isinstance(node, exp.Anonymous) else str(node.key)


def _arguments(node: exp.Expr) -> list[exp.Expr]:
    """Return the arguments of a function in their order."""
    first = node.args.get("this")
    others = [*([node.args["expression"]] if node.args.get("expression") else []), *node.expressions]
    return [*([first] if isinstance(first, exp.Expr) else []), *others]


def _first(node: exp.Expr) -> exp.Expr | None:
    return next(iter(_arguments(node)), None)


def _literal_type(node: exp.Expr) -> str:
    if node.is_string:
        return "string"
    text = str(node.this)
    if text.isdigit():
        return "int" if int(text) < _MAX_INT else "bigint"
    if "e" in text.lower():
        return "double"
    whole, _, fraction = text.partition(".")
    return f"decimal({max(len(whole.lstrip('0')) + len(fraction), 1)},{len(fraction)})"


def _array_of(kind: str | None) -> str | None:
    return f"array<{kind}>" if kind else None


def _element_of(kind: str | None) -> str | None:
    found = _ARRAY.fullmatch(kind or "")
    return found[1] if found else None


def _are_numbers(*kinds: str) -> bool:
    return all(kind in (*_INTEGRAL, *_FLOATING) or _DECIMAL.fullmatch(kind) for kind in kinds)


def _decimal_size(kind: str) -> tuple[int, int] | None:
    found = _DECIMAL.fullmatch(kind)
    return (int(found[1]), int(found[2])) if found else None


def _decimal_of(kind: str, node: exp.Expr | None = None) -> tuple[int, int] | None:
    """Return precision and scale of the decimal that holds a type, or an integral literal."""
    if isinstance(node, exp.Literal) and kind in _INTEGRAL:
        return len(str(node.this)), 0
    return (_DIGITS[kind], 0) if kind in _DIGITS else _decimal_size(kind)


def _decimal_arithmetic(operator: str, left: tuple[int, int], right: tuple[int, int]) -> str | None:
    """Return the type of decimal arithmetic by the rules of Spark, which Hive and SQL Server have, too."""
    (precision, scale), (other_precision, other_scale) = left, right
    if operator in ("add", "sub"):
        new_scale = max(scale, other_scale)
        return _decimal(max(precision - scale, other_precision - other_scale) + new_scale + 1, new_scale)
    if operator == "mul":
        return _decimal(precision + other_precision + 1, scale + other_scale)
    if operator == "div":
        new_scale = max(_MIN_SCALE, scale + other_precision + 1)
        return _decimal(precision - scale + other_scale + new_scale, new_scale)
    return None


def _decimal(precision: int, scale: int) -> str:
    """Return a decimal type; if it has too many digits, some after the point are lost."""
    if precision <= _MAX_PRECISION:
        return f"decimal({precision},{scale})"
    whole = precision - scale
    return f"decimal({_MAX_PRECISION},{max(_MAX_PRECISION - whole, min(scale, _MIN_SCALE))})"
