"""Row filters, as PyIceberg wants them."""

from __future__ import annotations

from functools import reduce

from pyiceberg.expressions import And, BooleanExpression, EqualTo, GreaterThanOrEqual, LessThan, Reference
from pyiceberg.expressions.literals import literal

from backstream.core.intervals import Interval

_US_PER_MS = 1_000


def within(column: str, interval: Interval) -> BooleanExpression:
    """Rows whose timestamp lies in `[start, end)`."""
    since, until = (literal(value_ms * _US_PER_MS) for value_ms in (interval.start_ms, interval.end_ms))
    term = Reference(column)
    return And(GreaterThanOrEqual(term=term, value=since), LessThan(term=term, value=until))


def equal(**values: str) -> BooleanExpression:
    """Rows that have each of the values in the column of its name."""
    each: list[BooleanExpression] = [
        EqualTo(term=Reference(column), value=literal(value)) for column, value in values.items()
    ]
    return reduce(And, each)
