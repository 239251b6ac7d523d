"""Classify aggregates, and split them into steps as SQL: partial aggregates, merged ones, and the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlglot
from sqlglot import exp

from backstream.definition.spark_functions import AGGREGATES
from backstream.definition.sql_calls import Call, Span, find_calls, replace_spans


def is_record_count(call: str | None) -> bool:
    """Return whether an aggregate is the plain number of records: `count(*)` or `count(1)`.

    The call of a column of user code is None.
    """
    if call is None:
        return False
    parsed = sqlglot.parse_one(call, dialect="spark")
    if not isinstance(parsed, exp.Count) or parsed.expressions:
        return False
    return isinstance(parsed.this, exp.Star | exp.Literal)


def is_sum(call: str | None) -> bool:
    """Return whether duplicating all records doubles the value: a count or a sum without `DISTINCT`."""
    if call is None:
        return False
    parsed = sqlglot.parse_one(call, dialect="spark")
    inner = parsed.this if isinstance(parsed, exp.Filter) else parsed
    return isinstance(inner, exp.Count | exp.CountIf | exp.Sum) and not isinstance(inner.this, exp.Distinct)


_MERGED_BY: Mapping[str, str] = {"count": "sum", "count_if": "sum", "sum": "sum", "min": "min", "max": "max"}
_MEANS = ("avg", "mean")


@dataclass(frozen=True, slots=True)
class MergeableCall:
    """One aggregate call in steps; `merged_by` has a merging aggregate for each one in `partial`."""

    span: Span
    call: str
    partial: tuple[str, ...]
    merged_by: tuple[str, ...]

    def value(self, merged: Sequence[str]) -> str:
        """Return the SQL of the value of `call` from the columns of the merged aggregates."""
        if len(merged) > 1:
            total, count = merged
            return f"({total} / nullif({count}, 0))"
        is_count = self.call.lower().startswith("count")
        return f"coalesce({merged[0]}, 0)" if is_count else merged[0]


@dataclass(frozen=True, slots=True)
class MergeableAggregate:
    """An expression whose aggregate calls can all be computed in steps."""

    text: str
    calls: tuple[MergeableCall, ...]

    def value(self, values: Sequence[str]) -> str:
        """Return the SQL of the expression with the values of its calls."""
        return replace_spans(
            self.text, [(call.span, value) for call, value in zip(self.calls, values, strict=True)]
        )


def mergeable_aggregate(text: str) -> MergeableAggregate | None:
    """Return the steps of an expression; None if one of its aggregates needs all its records at once."""
    calls = [call for call in find_calls(text) if call.name in AGGREGATES]
    steps = [_steps(text, call) for call in calls]
    found = tuple(step for step in steps if step is not None)
    return MergeableAggregate(text, found) if calls and len(found) == len(steps) else None


def _steps(text: str, call: Call) -> MergeableCall | None:
    if call.is_distinct or call.order or not call.arguments:
        return None
    whole, condition = call.whole.of(text), ""
    if call.condition:
        condition = f" FILTER (WHERE {call.condition.of(text)})"
    if call.name in _MEANS and len(call.arguments) == 1:
        argument = call.arguments[0].of(text)
        # Spark's avg adds doubles for all types of numbers.
        partial = (f"sum(cast({argument} as double)){condition}", f"count({argument}){condition}")
        return MergeableCall(call.whole, whole, partial, ("sum", "sum"))
    merged_by = _MERGED_BY.get(call.name)
    return MergeableCall(call.whole, whole, (whole,), (merged_by,)) if merged_by else None
