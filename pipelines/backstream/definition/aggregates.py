"""Check aggregates by their function calls, and write them so that their value depends on no order of records."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import sqlglot
from sqlglot import exp

from backstream.definition.mergeable import mergeable_aggregate
from backstream.definition.model import Definition
from backstream.definition.result_sections import UserFunction
from backstream.definition.spark_functions import (
    AGGREGATES,
    GENERATORS,
    NOT_REPEATABLE,
    OTHERS,
    SINCE,
    WINDOW_FUNCTIONS,
)
from backstream.definition.sql_calls import Call, Span, add_condition, find_calls, replace_spans
from backstream.installed_spark import find_older_spark

Functions = Mapping[str, UserFunction]
"""The custom functions of a definition by name."""

_KNOWN = AGGREGATES | WINDOW_FUNCTIONS | GENERATORS | NOT_REPEATABLE | OTHERS
_OF_ONE_RECORD = ("first", "first_value", "last", "last_value", "any_value")
_LISTS = ("collect_list", "array_agg")
_SETS = ("collect_set", "collect_union")
_TEXTS = ("listagg", "string_agg")
_EXTREMES = ("max_by", "min_by")
_ARGUMENTS_OF_EXTREMES = 2
_LISTS_OF_EXTREMES_SINCE = "4.2"
"""The version of Spark whose `max_by` and `min_by` have a third argument."""
_MEANINGLESS = ("grouping", "grouping_id", "measure")
_ORDERLESS = ("sort_array", "array_sort", "size", "array_size", "cardinality", "array_max", "array_min")
"""Functions of an array whose value does not depend on its order."""
_EXAMPLE = "must have an aggregate such as count(*) or avg(x)"


def with_filter(call: str, condition: str) -> str:
    """Return an expression with a condition on the records of each of its aggregates, as SQL."""
    return add_condition(call, AGGREGATES, condition)


def is_window_function(text: str) -> bool:
    """Return whether Spark can compute an expression over a frame of rows: one aggregate call without clauses."""
    calls = find_calls(text)
    if not calls or calls[0].whole.of(text) != text.strip() or not all(is_known(call.name) for call in calls):
        return False
    call = calls[0]
    return call.name in AGGREGATES and not (call.is_distinct or call.order or call.condition)


def spark_aggregates(definition: Definition) -> dict[str, str]:
    """Return the aggregates as Spark computes them, with values that don't depend on the order of records."""
    return {name: _spark_sql(text, definition.functions) for name, text in definition.aggregates.items()}


def holistic_aggregates(definition: Definition) -> tuple[str, ...]:
    """Return the names of the aggregates that need all records of a window at once."""
    calls = spark_aggregates(definition)
    return tuple(name for name, text in calls.items() if mergeable_aggregate(text) is None)


def _is_aggregate(name: str, functions: Functions) -> bool:
    """Return whether a function is an aggregate: one of Spark, or a custom one."""
    return name in AGGREGATES or (name in functions and functions[name].kind == "aggregate")


def is_known(name: str) -> bool:
    """Return whether Spark has a function."""
    return name in _KNOWN


def aggregate_problem(text: str, functions: Functions, keys: Collection[str]) -> str | None:
    """Return the reason why a run cannot compute an expression as a column of the result; None if it can.

    Args:
        text: the expression, which is valid SQL.
        functions: the custom functions.
        keys: the key columns, which an expression may use outside of its aggregates.
    """
    calls = find_calls(text)
    problem = _function_problem(text, functions)
    if problem:
        return problem
    aggregates = [call for call in calls if _is_aggregate(call.name, functions)]
    if not aggregates:
        return _EXAMPLE
    if any(_is_within(inner, outer) for outer in aggregates for inner in aggregates):
        return "must not hold an aggregate within another"
    checks: Sequence[Callable[[Call], str | None]] = (
        _argument_problem,
        lambda call: _order_problem(text, call, calls),
    )
    problem = next((found for check in checks for call in aggregates if (found := check(call))), None)
    return problem or _outside_problem(text, aggregates, keys)


def record_problem(text: str, functions: Functions) -> str | None:
    """Return the reason why an expression has no value for one row, without other rows; None if it has."""
    if problem := _function_problem(text, functions):
        return problem
    names = [call.name for call in find_calls(text) if _is_aggregate(call.name, functions)]
    return f"must not have an aggregate such as {names[0]}" if names else None


def _function_problem(text: str, functions: Functions) -> str | None:
    """Return the reason why a function in an expression cannot be used; None if all can."""
    calls = find_calls(text)
    if any(call.is_over for call in calls) or sqlglot.parse_one(text, dialect="spark").find(
        exp.Window, exp.Select
    ):
        return "must not use OVER or a sub-query"
    return next((found for call in calls if (found := _name_problem(call.name, functions))), None)


def _spark_sql(text: str, functions: Functions) -> str:
    """Return an aggregate for Spark, with a value that doesn't depend on the order of records.

    Sets are sorted. Among several records with the extreme value, `max_by` takes the greatest value, and `min_by`
    the smallest; `mode` takes the smallest of several most frequent values. A custom aggregate gets its records
    sorted.
    """
    return replace_spans(text, _repeatable_calls(text, functions))


def _name_problem(name: str, functions: Functions) -> str | None:
    if name in WINDOW_FUNCTIONS:
        return f"must not use {name}, which needs OVER"
    if name in GENERATORS:
        return f"must not use {name}, which returns several rows"
    if name in NOT_REPEATABLE:
        return f"must not use {name}, because its value would differ in another run"
    if name in _MEANINGLESS:
        return f"must not use {name}, which has no meaning for windows"
    if name in functions or name in _KNOWN:
        return _version_problem(name)
    similar = difflib.get_close_matches(name, [*functions, *sorted(_KNOWN)], n=1, cutoff=0.8)
    suggestion = f"did you mean {similar[0]}?" if similar else "custom functions belong in [functions]"
    return f"uses the function {name}, which Spark does not have ({suggestion})"


def _version_problem(name: str) -> str | None:
    """Return the reason why the installed Spark lacks a function of a newer one; None if it has it."""
    version = find_older_spark(SINCE[name]) if name in SINCE else None
    return (
        version and f"uses the function {name}, which Spark {version} does not have (Spark {SINCE[name]} has it)"
    )


def _is_within(inner: Call, outer: Call) -> bool:
    return outer.whole.start < inner.whole.start < outer.whole.end


def _argument_problem(call: Call) -> str | None:
    count = len(call.arguments)
    if not count and not (call.name == "mode" and call.order):
        return f"calls {call.name} without an argument"
    has_list = call.name in _EXTREMES and count > _ARGUMENTS_OF_EXTREMES
    if has_list and (version := find_older_spark(_LISTS_OF_EXTREMES_SINCE)):
        since = f"which Spark {version} does not support (Spark {_LISTS_OF_EXTREMES_SINCE} does)"
        return f"calls {call.name} with {count} arguments, {since}"
    return None


def _order_problem(text: str, call: Call, calls: Sequence[Call]) -> str | None:
    """Return the reason why the value of an aggregate depends on the order of records; None if it doesn't."""
    name, argument = call.name, call.arguments[0].of(text) if call.arguments else ""
    if name in _OF_ONE_RECORD:
        return (
            f"depends on the order of records, which Spark does not keep: use min_by({argument}, ..) or"
            f" max_by({argument}, ..) with the column of the order instead of {name}"
        )
    if name in _LISTS and not _is_order_ignored(call, calls):
        return f"depends on the order of records, which Spark does not keep: use sort_array({call.whole.of(text)})"
    if name in _TEXTS and not _is_sorted_by(text, call, argument):
        separator = "".join(f", {each.of(text)}" for each in call.arguments[1:])
        return (
            "depends on the order of records, which Spark does not keep:"
            f" use {name}({argument}{separator}) within group (order by {argument})"
        )
    if name == "histogram_numeric":
        return (
            "depends on the order of records, which Spark does not keep: use percentile for an exact distribution"
        )
    return None


def _is_order_ignored(call: Call, calls: Sequence[Call]) -> bool:
    """Return whether the next function around a list ignores its order; a comparator may see equal elements."""
    around = [other for other in calls if _is_within(call, other)]
    outer = max(around, key=lambda other: other.whole.start, default=None)
    if outer is None or outer.name not in _ORDERLESS:
        return False
    return outer.name != "array_sort" or len(outer.arguments) == 1


def _is_sorted_by(text: str, call: Call, argument: str) -> bool:
    order = call.order.of(text).lower() if call.order else ""
    words = ("", " asc", " desc")
    return order in {argument.lower() + word for word in words}


def _outside_problem(text: str, aggregates: Sequence[Call], keys: Collection[str]) -> str | None:
    """Return the problem of a column outside of the aggregates, which has several values in a window."""
    rest = replace_spans(text, [(call.whole, "null") for call in aggregates])
    columns = sqlglot.parse_one(rest, dialect="spark").find_all(exp.Column)
    names = [column.parts[0].name for column in columns if not isinstance(column.this, exp.Star)]
    outside = [name for name in names if name not in keys]
    return f"uses {outside[0]!r} outside of an aggregate, and it is no key" if outside else None


def _repeatable_calls(text: str, functions: Functions) -> Iterator[tuple[Span, str]]:
    for call in find_calls(text):
        arguments = [argument.of(text) for argument in call.arguments]
        if call.name in functions and functions[call.name].kind == "aggregate":
            yield call.whole, _sorted_argument(text, call, arguments)
        elif call.name in _TEXTS:
            yield call.whole, _joined_text(text, call, arguments)
        elif call.name in _SETS:
            yield call.whole, f"sort_array({call.whole.of(text)})"
        elif call.name in _EXTREMES and len(arguments) > 1:
            value, by = arguments[:2]
            order = f"CASE WHEN ({by}) IS NOT NULL THEN struct({by}, {value}) END"
            yield call.arguments[1], order
        elif call.name == "mode" and len(arguments) == 1:
            yield call.arguments[0], f"{arguments[0]}, true"


def _joined_text(text: str, call: Call, arguments: Sequence[str]) -> str:
    """Return `listagg` as a sorted list: Spark 4.3 fails if a query has `listagg` with an order and `DISTINCT`."""
    values = f"collect_list({'DISTINCT ' if call.is_distinct else ''}{arguments[0]}){_filter(text, call)}"
    is_descending = call.order is not None and call.order.of(text).lower().endswith(" desc")
    separator = arguments[1] if len(arguments) > 1 else "''"
    joined = f"array_join(sort_array({values}, {'false' if is_descending else 'true'}), {separator})"
    return f"(CASE WHEN size({values}) > 0 THEN {joined} END)"


def _filter(text: str, call: Call) -> str:
    return f" FILTER (WHERE {call.condition.of(text)})" if call.condition else ""


def _sorted_argument(text: str, call: Call, arguments: Sequence[str]) -> str:
    """Return the call of a custom aggregate with all of its records as one array of structs."""
    distinct = "DISTINCT " if call.is_distinct else ""
    values = f"collect_list({distinct}struct({', '.join(arguments)})){_filter(text, call)}"
    return f"{call.name}(sort_array({values}))"
