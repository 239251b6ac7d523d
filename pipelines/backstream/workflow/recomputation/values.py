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


def are_equal(first: object, second: object) -> bool:
    """Return whether two values of an aggregate are equal; doubles may differ in their last digits."""
    if isinstance(first, float) or isinstance(second, float):
        if first is None or second is None:
            return first is second
        one, other = float(first), float(second)  # type: ignore[arg-type]
        return (one != one and other != other) or math.isclose(one, other, rel_tol=_RELATIVE_TOLERANCE)  # noqa: PLR0124
    return _with_zone(first) == _with_zone(second)


def _with_zone(value: object) -> object:
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value
