"""What an aggregate says of the records it is made of: their number, a sum over them, or something else."""

from __future__ import annotations

import sqlglot
from sqlglot import exp


def is_record_count(call: str) -> bool:
    """Whether an aggregate is the plain number of records: `count(*)` or `count(1)`."""
    parsed = sqlglot.parse_one(call, dialect="spark")
    if not isinstance(parsed, exp.Count) or parsed.expressions:
        return False
    return isinstance(parsed.this, exp.Star | exp.Literal)


def is_sum(call: str) -> bool:
    """Whether twice the records make twice the value: a count or a sum, unless of distinct values."""
    parsed = sqlglot.parse_one(call, dialect="spark")
    inner = parsed.this if isinstance(parsed, exp.Filter) else parsed
    return isinstance(inner, exp.Count | exp.CountIf | exp.Sum) and not isinstance(inner.this, exp.Distinct)
