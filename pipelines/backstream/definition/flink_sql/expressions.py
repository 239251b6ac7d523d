"""Translate expressions of Flink SQL into Spark SQL with the same values, or refuse them.

Each result has its type in Flink. Spark runs with ANSI rules in UTC. Where Flink wraps around an overflow or
returns infinity, Spark fails, so that no value is another one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from sqlglot import exp
from sqlglot.dialects.spark import Spark

from backstream.definition.flink_sql.script import ScriptText
from backstream.definition.flink_sql.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    INTERVAL,
    NULL,
    STRING,
    TIMESTAMP,
    TIMESTAMP_LTZ,
    FlinkType,
    decimal_type,
    type_of_cast,
    wider_type,
)

_AGGREGATES = frozenset(("COUNT", "SUM", "AVG", "MIN", "MAX"))
_UNITS_MS = {"SECOND": 1_000, "MINUTE": 60_000, "HOUR": 3_600_000, "DAY": 86_400_000}
_NUMBER_OF_UNIT = re.compile(r"\d+(\.\d{1,3})?")
_RESERVED = frozenset((*Spark.Tokenizer.KEYWORDS, "USER", "CURRENT_USER", "SESSION_USER", "CURRENT_DATE"))
_PLAIN = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_LITERAL_INT_LIMIT = 2**31
_MICROSECONDS = 6
"""The precision of times in Spark."""
_MAX_SHOWN = 60
"""The length of an expression in a message."""
_DATE_PATTERN = re.compile(r"(?:yyyy|MM|dd|HH|mm|ss|[-:/. ]|'[A-Za-z]')+")


class SqlValue(NamedTuple):
    """An expression of Spark SQL with its type in Flink. `is_atom` is true if it needs no parentheses."""

    sql: str
    kind: FlinkType
    is_atom: bool = True

    @property
    def operand(self) -> str:
        """The expression as the operand of an operator."""
        return self.sql if self.is_atom else f"({self.sql})"


def quote_identifier(name: str) -> str:
    """Return a name for Spark SQL, in backquotes if a parser could take it for another thing."""
    is_plain = _PLAIN.fullmatch(name) and name.upper() not in _RESERVED
    return name if is_plain else "`" + name.replace("`", "``") + "`"


def _quote_literal(text: str) -> str:
    """Return a text as a literal of Spark SQL, in which a backslash has a meaning."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def place_of(node: exp.Expr) -> int:
    """Return the offset of an expression in the script."""
    return min((int(each.meta["start"]) for each in node.walk() if "start" in each.meta), default=0)


def interval_ms(node: exp.Expr | None) -> int | None:
    """Return the length of an INTERVAL of days to milliseconds; None if the expression is something else."""
    if not isinstance(node, exp.Interval) or node.this is None or node.unit is None:
        return None
    unit, number = node.unit.name.upper().removesuffix("S"), node.this.name.strip()
    if unit not in _UNITS_MS or not _NUMBER_OF_UNIT.fullmatch(number) or ("." in number and unit != "SECOND"):
        return None
    whole, _, fraction = number.partition(".")
    return int(whole) * _UNITS_MS[unit] + int(fraction.ljust(3, "0") or 0)


@dataclass(frozen=True, slots=True)
class Expressions:
    """The translation of expressions over columns.

    `column` returns the value of a column, or of a result column that a placeholder names. `known` returns the
    value of a key or an aggregate, and None for other expressions. `zone` is the local time zone, None for UTC.
    """

    source: ScriptText
    column: Callable[[exp.Expr, Sequence[str]], SqlValue]
    known: Callable[[exp.Expr], SqlValue | None] = lambda _: None
    zone: str | None = None

    def refuse(self, node: exp.Expr, sentence: str, hint: str = "") -> NoReturn:
        """Raise the error of an expression."""
        self.source.refuse(place_of(node), sentence, hint)

    def refuse_local_time(self, node: exp.Expr, one: FlinkType, other: FlinkType = STRING) -> None:
        """Refuse an expression that reads a TIMESTAMP_LTZ as a time on the clock of another zone than UTC."""
        if self.zone and one.name != other.name and TIMESTAMP_LTZ.name in (one.name, other.name):
            self.refuse(
                node,
                f"a TIMESTAMP_LTZ as a time of table.local-time-zone = {self.zone!r} is not possible in"
                f" {_shorten(node)}: only windows are in local time",
            )

    def condition(self, node: exp.Expr) -> str:
        """Return a condition."""
        found = self.of(node)
        if found.kind != BOOLEAN:
            self.refuse(node, f"a condition must be a BOOLEAN, got {found.kind}")
        return found.sql

    def of(self, node: exp.Expr) -> SqlValue:
        """Return an expression of Spark SQL with the same value.

        Raises:
            SpecError: with line and column, if there is none that is certain.
        """
        if (value := self.known(node)) is not None:
            return value
        if isinstance(node, exp.Anonymous):
            return _function(self, node)
        for kinds, translate in _FORMS:
            if isinstance(node, kinds):
                return translate(self, node)
        self.refuse(node, f"the expression {_shorten(node)} is not possible")
        raise AssertionError


def _column(over: Expressions, node: exp.Expr) -> SqlValue:
    path = [node.name] if isinstance(node, exp.Placeholder) else _path_of_dot(node)
    if not path:
        over.refuse(node, f"the expression {_shorten(node)} is not possible")
    return over.column(node, path)


def _literal(_over: Expressions, node: exp.Expr) -> SqlValue:
    text = str(node.this)
    if isinstance(node, exp.Literal) and node.is_string:
        return SqlValue(_quote_literal(text), STRING)
    if text.isdigit():
        return SqlValue(text, INT if int(text) < _LITERAL_INT_LIMIT else BIGINT)
    if "e" in text.lower():
        return SqlValue(text, DOUBLE)
    whole, _, fraction = text.partition(".")
    digits = len(whole.lstrip("0")) + len(fraction)
    return SqlValue(text, FlinkType("DECIMAL", max(digits, len(fraction) + 1), len(fraction)))


def _paren(over: Expressions, node: exp.Expr) -> SqlValue:
    found = over.of(node.this)
    return SqlValue(found.operand, found.kind)


def _comparison(over: Expressions, node: exp.Expr) -> SqlValue:
    left, right = over.of(node.this), over.of(node.expression)
    _require_comparable(over, node, left.kind, right.kind)
    operator = _COMPARISONS[node.key]
    if operator == "is distinct from":
        return SqlValue(f"not ({left.operand} <=> {right.operand})", BOOLEAN, is_atom=False)
    return SqlValue(f"{left.operand} {operator} {right.operand}", BOOLEAN, is_atom=False)


def _require_comparable(over: Expressions, node: exp.Expr, one: FlinkType, other: FlinkType) -> None:
    is_same = one.name == other.name or NULL in (one, other)
    are_both = (one.is_number and other.is_number) or (one.is_time and other.is_time)
    if not (is_same or are_both) or (one.spark is None and one != NULL):
        over.refuse(node, f"a comparison of {one} with {other} is not possible", "write a CAST")
    if are_both:
        over.refuse_local_time(node, one, other)


def _connector(over: Expressions, node: exp.Expr) -> SqlValue:
    word = "and" if isinstance(node, exp.And) else "or"
    parts = [
        f"({part})" if isinstance(each, exp.Or | exp.And) and type(each) is not type(node) else part
        for each in (node.this, node.expression)
        for part in [over.condition(each)]
    ]
    return SqlValue(f" {word} ".join(parts), BOOLEAN, is_atom=False)


def _not(over: Expressions, node: exp.Expr) -> SqlValue:
    inner = node.this
    if isinstance(inner, exp.Is) and isinstance(inner.expression, exp.Null):
        return SqlValue(f"{over.of(inner.this).operand} is not null", BOOLEAN, is_atom=False)
    return SqlValue(f"not ({over.condition(inner)})", BOOLEAN, is_atom=False)


def _is(over: Expressions, node: exp.Expr) -> SqlValue:
    word = node.expression
    left = over.of(node.this)
    if isinstance(word, exp.Null):
        return SqlValue(f"{left.operand} is null", BOOLEAN, is_atom=False)
    if isinstance(word, exp.Boolean) and left.kind == BOOLEAN:
        return SqlValue(f"{left.operand} is {str(word.this).lower()}", BOOLEAN, is_atom=False)
    over.refuse(node, f"the condition {_shorten(node)} is not possible")
    raise AssertionError


def _in(over: Expressions, node: exp.Expr) -> SqlValue:
    left = over.of(node.this)
    if node.args.get("query") or not node.expressions:
        over.refuse(node, "IN with a query is not possible: it is a join")
    values = [over.of(each) for each in node.expressions]
    for value in values:
        _require_comparable(over, node, left.kind, value.kind)
    return SqlValue(f"{left.operand} in ({', '.join(value.sql for value in values)})", BOOLEAN, is_atom=False)


def _between(over: Expressions, node: exp.Expr) -> SqlValue:
    left, low, high = over.of(node.this), over.of(node.args["low"]), over.of(node.args["high"])
    _require_comparable(over, node, left.kind, low.kind)
    _require_comparable(over, node, left.kind, high.kind)
    return SqlValue(f"{left.operand} between {low.operand} and {high.operand}", BOOLEAN, is_atom=False)


def _like(over: Expressions, node: exp.Expr) -> SqlValue:
    left, pattern = over.of(node.this), node.expression
    if not (isinstance(pattern, exp.Literal) and pattern.is_string) or "\\" in pattern.name:
        over.refuse(node, "LIKE needs a pattern in quotes without a backslash")
    if left.kind != STRING:
        over.refuse(node, f"LIKE needs a STRING, got {left.kind}")
    word = "not like" if node.args.get("negate") else "like"
    return SqlValue(f"{left.operand} {word} {_quote_literal(pattern.name)}", BOOLEAN, is_atom=False)


def _negation(over: Expressions, node: exp.Expr) -> SqlValue:
    found = over.of(node.this)
    if not found.kind.is_number:
        over.refuse(node, f"a minus needs a number, got {found.kind}")
    return SqlValue(f"-{found.operand}", found.kind, is_atom=False)


def _arithmetic(over: Expressions, node: exp.Expr) -> SqlValue:
    operator = _ARITHMETIC[node.key]
    left, right = over.of(node.this), over.of(node.expression)
    if left.kind.is_time and right.kind == INTERVAL and operator in "+-":
        return SqlValue(f"{left.operand} {operator} {right.sql}", left.kind, is_atom=False)
    if not (left.kind.is_number and right.kind.is_number):
        over.refuse(node, f"{left.kind} {operator} {right.kind} is not possible", "write a CAST")
    if left.kind.is_integral and right.kind.is_integral:
        return _integral(operator, left, right)
    if left.kind.is_floating or right.kind.is_floating:
        if FlinkType("FLOAT") in (left.kind, right.kind):
            over.refuse(node, "arithmetic with FLOAT is not possible", "write CAST(.. AS DOUBLE)")
        if operator == "%":
            over.refuse(node, "MOD of a DOUBLE is not possible")
        return SqlValue(f"{left.operand} {operator} {right.operand}", DOUBLE, is_atom=False)
    return _decimal(over, node, operator, left, right)


def _integral(operator: str, left: SqlValue, right: SqlValue) -> SqlValue:
    """Return integer arithmetic. A quotient is rounded toward zero, and has the type of the wider operand."""
    wider = wider_type(left.kind, right.kind) or BIGINT
    if operator == "/":
        return _as_type(SqlValue(f"{left.operand} div {right.operand}", BIGINT, is_atom=False), wider)
    value = SqlValue(f"{left.operand} {operator} {right.operand}", wider, is_atom=False)
    return _as_type(value, right.kind) if operator == "%" else value


def _as_type(value: SqlValue, kind: FlinkType) -> SqlValue:
    return value if value.kind == kind else SqlValue(f"cast({value.sql} as {kind.spark})", kind)


def _decimal(over: Expressions, node: exp.Expr, operator: str, left: SqlValue, right: SqlValue) -> SqlValue:
    """Return decimal arithmetic with operands and a result of Flink's types; both systems round half up."""
    parts = ((node.this, left.kind), (node.expression, right.kind))
    if operator == "/" and any(isinstance(part, exp.Literal) and not kind.is_integral for part, kind in parts):
        over.refuse(node, "a quotient with a decimal literal is not possible", "write CAST(.. AS DECIMAL(p, s))")
    one, other = left.kind.as_decimal, right.kind.as_decimal
    result = _decimal_result(operator, one, other) if one and other else None
    # Spark gives a product one digit more, and loses others if there are more than 38.
    if (
        one is None
        or other is None
        or result is None
        or (decimal_type(one.precision + other.precision + 1, 0) is None and operator == "*")
    ):
        over.refuse(
            node, f"{left.kind} {operator} {right.kind} has too many digits", "write CAST(.. AS DECIMAL(p, s))"
        )
    operands = [
        each.operand
        if each.kind.name == "DECIMAL" and not isinstance(part, exp.Literal)
        else f"cast({each.sql} as {each.kind.as_decimal.spark})"  # type: ignore[union-attr]
        for each, part in ((left, node.this), (right, node.expression))
    ]
    return SqlValue(f"cast({operands[0]} {operator} {operands[1]} as {result.spark})", result)


def _cast(over: Expressions, node: exp.Expr) -> SqlValue:
    found, target = over.of(node.this), type_of_cast(node.args["to"])
    if target is None or target.spark is None:
        over.refuse(node, f"CAST to {node.args['to'].sql()} is not possible")
    if found.kind == target:
        return found
    over.refuse_local_time(node, found.kind, target)
    if target == DATE and isinstance(node.this, exp.Literal):
        return SqlValue(f"date {found.sql}", DATE)
    if (found.kind.name, target.name) not in _CASTS and not (found.kind.is_number and target.is_number):
        over.refuse(node, f"CAST of {found.kind} to {target} is not possible: its values differ in Spark")
    function = "try_cast" if isinstance(node, exp.TryCast) else "cast"
    sql = found.sql if found.kind.is_time and target.is_time else f"{function}({found.sql} as {target.spark})"
    if target.is_time and target.precision < (found.kind.precision if found.kind.is_time else _MICROSECONDS):
        unit = {0: "second", 3: "millisecond", _MICROSECONDS: "microsecond"}.get(target.precision)
        if unit is None:
            over.refuse(node, f"CAST to {target} is not possible: the precision must be 0, 3, or 6")
        sql = f"date_trunc('{unit}', {sql})"
    return SqlValue(sql, target, is_atom=sql.endswith(")") or found.is_atom)


def _case(over: Expressions, node: exp.Expr) -> SqlValue:
    if node.args.get("this"):
        over.refuse(node, "CASE with a value is not possible", "write CASE WHEN with conditions")
    branches = [(over.condition(each.this), over.of(each.args["true"])) for each in node.args["ifs"]]
    default = node.args.get("default")
    otherwise = over.of(default) if default else SqlValue("null", NULL)
    kind = _common(over, node, [value for _, value in branches] + [otherwise])
    arms = " ".join(f"when {condition} then {value.sql}" for condition, value in branches)
    more = f" else {otherwise.sql}" if default else ""
    return SqlValue(f"case {arms}{more} end", kind)


def _common(over: Expressions, node: exp.Expr, values: Sequence[SqlValue]) -> FlinkType:
    """Return the common type of alternatives, which both systems find by the same rules."""
    kind = NULL
    for value in values:
        wider = wider_type(kind, value.kind)
        if wider is None:
            over.refuse(node, f"alternatives of {kind} and {value.kind} are not possible", "write a CAST")
        kind = wider
    return kind


def _interval(over: Expressions, node: exp.Expr) -> SqlValue:
    length_ms = interval_ms(node)
    if length_ms is None:
        over.refuse(node, "the INTERVAL must be a number of seconds, minutes, hours, or days")
    return SqlValue(f"interval {length_ms} milliseconds", INTERVAL)


def _extract(over: Expressions, node: exp.Expr) -> SqlValue:
    return _field_of_time(over, node, node.name.upper(), node.expression)


def _field_of_time(over: Expressions, node: exp.Expr, unit: str, argument: exp.Expr) -> SqlValue:
    function = _FIELDS_OF_TIME.get(unit)
    value = over.of(argument)
    if function is None or not (value.kind.is_time or value.kind == DATE):
        over.refuse(node, f"{unit} of {value.kind} is not possible")
    over.refuse_local_time(node, value.kind)
    return SqlValue(f"cast({function}({value.sql}) as bigint)", BIGINT)


def _substring(over: Expressions, node: exp.Expr) -> SqlValue:
    return _substring_of(
        over, node, [part for part in (node.this, node.args.get("start"), node.args.get("length")) if part]
    )


def _substring_of(over: Expressions, node: exp.Expr, parts: Sequence[exp.Expr]) -> SqlValue:
    numbers = [part.name for part in parts[1:]]
    if not numbers or not all(number.isdigit() for number in numbers) or numbers[0] == "0":
        over.refuse(node, "SUBSTRING needs a start from 1, and a length, as numbers")
    return SqlValue(f"substring({_text(over, parts[0])}, {', '.join(numbers)})", STRING)


def _trim(over: Expressions, node: exp.Expr) -> SqlValue:
    if any(node.args.get(key) for key in ("expression", "position", "collation")):
        over.refuse(node, "TRIM with a side or a character is not possible")
    return SqlValue(f"trim({_text(over, node.this)})", STRING)


def _concatenation(over: Expressions, node: exp.Expr) -> SqlValue:
    return SqlValue(f"concat({_text(over, node.this)}, {_text(over, node.expression)})", STRING)


def _text(over: Expressions, node: exp.Expr) -> str:
    found = over.of(node)
    if found.kind not in (STRING, NULL):
        over.refuse(node, f"a STRING is needed here, got {found.kind}", "write CAST(.. AS STRING)")
    return found.sql


def _function(over: Expressions, node: exp.Anonymous) -> SqlValue:
    name, arguments = node.name.upper(), node.expressions
    if name in _AGGREGATES:
        over.refuse(node, f"the aggregate {name} is not possible here")
    if name in CLOCKS:
        over.refuse(node, f"{name} is not possible: a replay has no clock of the wall")
    translate = _FUNCTIONS.get(name)
    if translate is None or not translate[0] <= len(arguments) <= translate[1]:
        known = "has other arguments here" if translate else "is not one of the tested functions"
        over.refuse(node, f"the function {name} {known}", "docs/flink-sql.md lists the functions")
    return translate[2](over, node, arguments)


def _texts(over: Expressions, node: exp.Anonymous, arguments: Sequence[exp.Expr]) -> SqlValue:
    kind = INT if node.name.upper() in ("CHAR_LENGTH", "CHARACTER_LENGTH") else STRING
    texts = ", ".join(_text(over, each) for each in arguments)
    return SqlValue(f"{_TEXT_FUNCTIONS[node.name.upper()]}({texts})", kind)


def _alternatives(over: Expressions, node: exp.Anonymous, arguments: Sequence[exp.Expr]) -> SqlValue:
    values = [over.of(each) for each in arguments]
    return SqlValue(f"coalesce({', '.join(value.sql for value in values)})", _common(over, node, values))


def _nullif(over: Expressions, node: exp.Anonymous, arguments: Sequence[exp.Expr]) -> SqlValue:
    values = [over.of(each) for each in arguments]
    _require_comparable(over, node, values[0].kind, values[1].kind)
    return SqlValue(f"nullif({values[0].sql}, {values[1].sql})", values[0].kind)


def _if(over: Expressions, node: exp.Expr) -> SqlValue:
    condition, values = over.condition(node.this), [over.of(node.args[arm]) for arm in ("true", "false")]
    kind = _common(over, node, values)
    return SqlValue(f"if({condition}, {values[0].sql}, {values[1].sql})", kind)


def _absolute(over: Expressions, node: exp.Anonymous, arguments: Sequence[exp.Expr]) -> SqlValue:
    value = over.of(arguments[0])
    if not value.kind.is_number:
        over.refuse(node, f"ABS needs a number, got {value.kind}")
    return SqlValue(f"abs({value.sql})", value.kind)


def _whole(over: Expressions, node: exp.Anonymous, arguments: Sequence[exp.Expr]) -> SqlValue:
    value, name = over.of(arguments[0]), node.name.lower().replace("ceiling", "ceil")
    if value.kind.is_integral:
        return value
    if value.kind.name != "DECIMAL":
        over.refuse(node, f"{name.upper()} of {value.kind} is not possible", "write CAST(.. AS DECIMAL(p, s))")
    kind = FlinkType("DECIMAL", value.kind.precision, 0)
    return SqlValue(f"cast({name}({value.sql}) as {kind.spark})", kind)


def _rounding(over: Expressions, node: exp.Anonymous, arguments: Sequence[exp.Expr]) -> SqlValue:
    value, digits = over.of(arguments[0]), arguments[1].name if len(arguments) > 1 else "0"
    is_possible = value.kind == DOUBLE or (value.kind.name == "DECIMAL" and int(digits or 0) < value.kind.scale)
    if not digits.isdigit() or not is_possible:
        over.refuse(node, f"ROUND of {value.kind} to {digits or 'an expression'} is not possible")
    kind = value.kind
    if kind.name == "DECIMAL":
        kind = FlinkType("DECIMAL", 1 + kind.precision - kind.scale + int(digits), int(digits))
    return SqlValue(f"round({value.sql}, {digits})", kind)


def _remainder(over: Expressions, node: exp.Anonymous, arguments: Sequence[exp.Expr]) -> SqlValue:
    left, right = (over.of(each) for each in arguments)
    if not (left.kind.is_integral and right.kind.is_integral):
        over.refuse(node, f"MOD of {left.kind} and {right.kind} is not possible")
    return _integral("%", left, right)


def _date_format(over: Expressions, node: exp.Anonymous, arguments: Sequence[exp.Expr]) -> SqlValue:
    value, pattern = over.of(arguments[0]), arguments[1]
    if not value.kind.is_time or not (isinstance(pattern, exp.Literal) and _DATE_PATTERN.fullmatch(pattern.name)):
        over.refuse(node, "DATE_FORMAT needs a timestamp, and a pattern of yyyy, MM, dd, HH, mm, and ss")
    over.refuse_local_time(node, value.kind)
    return SqlValue(f"date_format({value.sql}, {_quote_literal(pattern.name)})", STRING)


def _part_of_time(over: Expressions, node: exp.Anonymous, arguments: Sequence[exp.Expr]) -> SqlValue:
    return _field_of_time(over, node, node.name.upper().replace("DAYOFMONTH", "DAY"), arguments[0])


def _split_index(over: Expressions, node: exp.Anonymous, arguments: Sequence[exp.Expr]) -> SqlValue:
    separator, index = arguments[1], arguments[2]
    is_plain = isinstance(separator, exp.Literal) and separator.is_string and len(separator.name) == 1
    if not is_plain or not separator.name.isprintable() or separator.name in "^]\\[" or not index.name.isdigit():
        over.refuse(node, "SPLIT_INDEX needs one plain character, and a number from 0")
    text = _text(over, arguments[0])
    parts = f"split({text}, {_quote_literal(f'[{separator.name}]')}, -1)"
    return SqlValue(f"get({parts}, if({text} = '', -1, {index.name}))", STRING)


def _substring_function(over: Expressions, node: exp.Anonymous, arguments: Sequence[exp.Expr]) -> SqlValue:
    return _substring_of(over, node, arguments)


def _epoch(over: Expressions, node: exp.Anonymous, arguments: Sequence[exp.Expr]) -> SqlValue:
    value, precision = over.of(arguments[0]), arguments[1].name if len(arguments) > 1 else "3"
    function = {"0": "timestamp_seconds", "3": "timestamp_millis"}.get(precision)
    if function is None or not value.kind.is_integral:
        over.refuse(node, "TO_TIMESTAMP_LTZ needs a whole number, and 0 for seconds or 3 for milliseconds")
    return SqlValue(f"{function}({value.sql})", TIMESTAMP_LTZ)


def _parsed_time(over: Expressions, node: exp.Anonymous, arguments: Sequence[exp.Expr]) -> SqlValue:
    text = _text(over, arguments[0])
    if len(arguments) == 1:
        return SqlValue(f"try_cast({text} as timestamp)", TIMESTAMP)
    pattern = arguments[1]
    if not (isinstance(pattern, exp.Literal) and pattern.is_string):
        over.refuse(node, "TO_TIMESTAMP needs a pattern in quotes")
    return SqlValue(f"try_to_timestamp({text}, {_quote_literal(pattern.name)})", TIMESTAMP)


def is_aggregate(node: exp.Expr) -> bool:
    """Return whether an expression is a call of an aggregate, with or without FILTER."""
    call = node.this if isinstance(node, exp.Filter) else node
    return isinstance(call, exp.Anonymous) and call.name.upper() in _AGGREGATES


def _path_of_dot(node: exp.Expr) -> list[str]:
    if isinstance(node, exp.Dot):
        path = _path_of_dot(node.this)
        return [*path, node.expression.name] if path else []
    return [part.name for part in node.parts] if isinstance(node, exp.Column) else []


def _decimal_result(operator: str, one: FlinkType, other: FlinkType) -> FlinkType | None:
    """Return the type of decimal arithmetic in Flink; None if it has too many digits."""
    if operator in ("+", "-"):
        scale = max(one.scale, other.scale)
        return decimal_type(max(one.precision - one.scale, other.precision - other.scale) + scale + 1, scale)
    if operator == "*":
        return decimal_type(one.precision + other.precision, one.scale + other.scale)
    if operator == "/":
        scale = max(6, one.scale + other.precision + 1)
        return decimal_type(one.precision - one.scale + other.scale + scale, scale)
    return None


def _shorten(node: exp.Expr) -> str:
    text = node.sql()
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}.."


_COMPARISONS = {
    "eq": "=",
    "neq": "<>",
    "lt": "<",
    "lte": "<=",
    "gt": ">",
    "gte": ">=",
    "nullsafeneq": "is distinct from",
    "nullsafeeq": "<=>",
}
_ARITHMETIC = {"add": "+", "sub": "-", "mul": "*", "div": "/", "mod": "%"}
_FIELDS_OF_TIME = {name: name.lower() for name in ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")}
CLOCKS = frozenset(
    (
        *("PROCTIME", "NOW", "CURRENT_TIMESTAMP", "LOCALTIMESTAMP", "CURRENT_DATE", "CURRENT_TIME", "LOCALTIME"),
        *("CURRENT_ROW_TIMESTAMP", "UNIX_TIMESTAMP", "RAND", "RAND_INTEGER", "UUID", "CURRENT_WATERMARK"),
    )
)
_CASTS = {
    *((name, "STRING") for name in ("TINYINT", "SMALLINT", "INT", "BIGINT", "DECIMAL", "STRING")),
    *(("STRING", name) for name in ("INT", "BIGINT", "DOUBLE", "DECIMAL", "TIMESTAMP")),
    *((one, other) for one in ("TIMESTAMP", "TIMESTAMP_LTZ") for other in ("TIMESTAMP", "TIMESTAMP_LTZ", "DATE")),
}
"""The casts with the same values in both systems, besides those between numbers."""
_FORMS: Sequence[
    tuple[type[exp.Expr] | tuple[type[exp.Expr], ...], Callable[[Expressions, exp.Expr], SqlValue]]
] = (
    ((exp.Column, exp.Dot, exp.Placeholder), _column),
    (exp.Literal, _literal),
    (exp.Null, lambda _over, _node: SqlValue("null", NULL)),
    (exp.Boolean, lambda _over, node: SqlValue(str(node.this).lower(), BOOLEAN)),
    (exp.Paren, _paren),
    ((exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeNEQ, exp.NullSafeEQ), _comparison),
    ((exp.And, exp.Or), _connector),
    (exp.Not, _not),
    (exp.Is, _is),
    (exp.In, _in),
    (exp.Between, _between),
    (exp.Like, _like),
    (exp.Neg, _negation),
    ((exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod), _arithmetic),
    ((exp.Cast, exp.TryCast), _cast),
    (exp.Case, _case),
    (exp.If, _if),
    (exp.Interval, _interval),
    (exp.Extract, _extract),
    (exp.Substring, _substring),
    (exp.Trim, _trim),
    (exp.DPipe, _concatenation),
)
_TEXT_FUNCTIONS = {
    "UPPER": "upper",
    "LOWER": "lower",
    "CHAR_LENGTH": "char_length",
    "CHARACTER_LENGTH": "char_length",
    "CONCAT": "concat",
    "CONCAT_WS": "concat_ws",
}
_FUNCTIONS: Mapping[str, tuple[int, int, Callable[[Expressions, exp.Anonymous, Sequence[exp.Expr]], SqlValue]]] = {
    **dict.fromkeys(("UPPER", "LOWER", "CHAR_LENGTH", "CHARACTER_LENGTH"), (1, 1, _texts)),
    "CONCAT": (1, 100, _texts),
    "CONCAT_WS": (2, 100, _texts),
    "COALESCE": (1, 100, _alternatives),
    "IFNULL": (2, 2, _alternatives),
    "NULLIF": (2, 2, _nullif),
    "ABS": (1, 1, _absolute),
    "FLOOR": (1, 1, _whole),
    "CEIL": (1, 1, _whole),
    "CEILING": (1, 1, _whole),
    "ROUND": (1, 2, _rounding),
    "MOD": (2, 2, _remainder),
    "SUBSTR": (2, 3, _substring_function),
    "SPLIT_INDEX": (3, 3, _split_index),
    "DATE_FORMAT": (2, 2, _date_format),
    "TO_TIMESTAMP_LTZ": (1, 2, _epoch),
    "TO_TIMESTAMP": (1, 2, _parsed_time),
    **dict.fromkeys(("YEAR", "MONTH", "DAYOFMONTH", "HOUR", "MINUTE", "SECOND"), (1, 1, _part_of_time)),
}
"""The functions with the same values in both systems: the fewest and most arguments, and the translation."""
