"""Classify aggregates: record counts, sums over records, and others."""

from __future__ import annotations

import sqlglot
from sqlglot import exp


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
