"""Aggregate the records of a pane in plain Python, and compare the values with published ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from backstream.native.recomputed_aggregates import ALL, ANY, COUNT_DISTINCT, COUNT_IF, PERCENTILE
from backstream.native.task import FLOATING, Aggregate

_RELATIVE_TOLERANCE = 1e-9
"""The last digits of a sum of doubles depend on the order of addition."""


def aggregate_values(
    aggregates: Sequence[Aggregate], types: Mapping[str, str], rows: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the value of each aggregate over the rows of a pane.

    Args:
        aggregates: the aggregates.
        types: the Spark SQL types of the columns.
        rows: the records; null values do not count, except in `count(*)`.
    """
    return {aggregate.name: _aggregate(aggregate, types, rows) for aggregate in aggregates}


def _aggregate(aggregate: Aggregate, types: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> Any:
    column = aggregate.column
    if column is None:
        return len(rows)
    values = [row[column] for row in rows if row[column] is not None]
    if aggregate.function in _COUNTS:
        return _COUNTS[aggregate.function](values)
    if not values:
        return None
    if aggregate.function.startswith(PERCENTILE):
        return _percentile(values, float(aggregate.function.partition(":")[2]))
    return _VALUES[aggregate.function](values, types[column])


def _average(values: Sequence[Any], _: str) -> Any:
    return math.fsum(values) / len(values) if all(map(math.isfinite, values)) else sum(values) / len(values)


def _sum(values: Sequence[Any], type_name: str) -> Any:
    return math.fsum(values) if type_name in FLOATING and all(map(math.isfinite, values)) else sum(values)


def _percentile(values: Sequence[float], share: float) -> float:
    """Return an exact percentile, interpolated between two values as in Spark; NaN is above all numbers."""
    ordered = sorted(values, key=lambda value: (value != value, value))  # noqa: PLR0124 - only NaN
    position = (len(ordered) - 1) * share
    low, high = math.floor(position), math.ceil(position)
    if low == high:
        return float(ordered[low])
    return (high - position) * ordered[low] + (position - low) * ordered[high]


def _extreme(choose: Callable[..., Any]) -> Callable[[Sequence[Any], str], Any]:
    """Return the minimum or the maximum with NaN above all numbers, as in Spark."""
    return lambda values, _: choose(values, key=lambda value: (value != value, value))  # noqa: PLR0124 - only NaN


_COUNTS: Mapping[str, Callable[[Sequence[Any]], int]] = {
    "count": len,
    COUNT_DISTINCT: lambda values: len(set(values)),
    COUNT_IF: sum,
}
"""The functions that are 0 without values."""
_VALUES: Mapping[str, Callable[[Sequence[Any], str], Any]] = {
    "avg": _average,
    "sum": _sum,
    "min": _extreme(min),
    "max": _extreme(max),
    ALL: lambda values, _: all(values),
    ANY: lambda values, _: any(values),
}
"""The functions of values and the type of their column."""


def rounding_error(aggregate: Aggregate, types: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> float:
    """Return the largest difference between sums of the same doubles in two orders; 0 for other aggregates.

    It is 2 (n - 1) u times the sum of the absolute values, with u = 2**-53 (Higham, Accuracy and Stability of
    Numerical Algorithms, 4.2). If values cancel, it can be much larger than the last digits of the sum.
    """
    column = aggregate.column
    if column is None or aggregate.function not in ("sum", "avg") or types[column] not in FLOATING:
        return 0.0
    values = [abs(row[column]) for row in rows if row[column] is not None]
    error: float = len(values) * 2.0**-52 * sum(values)
    if not math.isfinite(error):
        return 0.0
    return error / max(1, len(values)) if aggregate.function == "avg" else error


def are_equal(first: object, second: object, error: float = 0.0) -> bool:
    """Return whether two values of an aggregate are equal.

    Args:
        first: a value.
        second: another value.
        error: the largest difference of equal doubles; their last digits may always differ.
    """
    if isinstance(first, float) or isinstance(second, float):
        if first is None or second is None:
            return first is second
        one, other = float(first), float(second)  # type: ignore[arg-type]
        is_close = math.isclose(one, other, rel_tol=_RELATIVE_TOLERANCE, abs_tol=error)
        return is_close or (math.isnan(one) and math.isnan(other))
    return _with_zone(first) == _with_zone(second)


def _with_zone(value: object) -> object:
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value
