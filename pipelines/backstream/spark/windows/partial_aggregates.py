"""Split aggregates into steps: over records, over partial results, and the final value.

Mergeable aggregates are computed once per small group, and the groups are merged as often as needed: buckets into
sessions, slices into sliding windows. A result has the value and type of the direct aggregate. Only sums of
doubles and averages may differ in the last bit, as they do in Spark with another order of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DecimalType

from backstream.definition.mergeable import MergeableCall, mergeable_aggregate


@dataclass(frozen=True, slots=True)
class PartialAggregate:
    """One aggregate in steps, as SQL: `partial` and `merged_by` per column, and the value of merged columns."""

    name: str
    columns: tuple[str, ...]
    partial: tuple[str, ...]
    merged_by: tuple[str, ...]
    value: Callable[[Sequence[str]], str]


@dataclass(frozen=True, slots=True)
class PartialAggregates:
    """The columns of all steps of several aggregates."""

    steps: tuple[PartialAggregate, ...]

    @property
    def partial(self) -> list[Column]:
        """The aggregates over records."""
        return [
            F.expr(sql).alias(column)
            for step in self.steps
            for column, sql in zip(step.columns, step.partial, strict=True)
        ]

    @property
    def merges(self) -> list[Column]:
        """The aggregates over the columns of `partial`, under the same names, so that they can be merged again."""
        return [F.expr(f"{by}({column})").alias(column) for column, by in self._column_merges()]

    def merges_where(self, condition: str, suffix: str) -> list[Column]:
        """Return `merges` over the rows that meet a condition; each name gets a suffix."""
        return [
            F.expr(f"{by}({column}) FILTER (WHERE {condition})").alias(f"{column}__{suffix}")
            for column, by in self._column_merges()
        ]

    @property
    def values(self) -> list[Column]:
        """One column per aggregate, computed from the merged columns."""
        return [F.expr(step.value(step.columns)).alias(step.name) for step in self.steps]

    def values_of(self, suffix: str) -> dict[str, Column]:
        """Return the aggregates by name, computed from the merged columns with a suffix."""
        return {
            step.name: F.expr(step.value([f"{column}__{suffix}" for column in step.columns]))
            for step in self.steps
        }

    def _column_merges(self) -> Iterator[tuple[str, str]]:
        for step in self.steps:
            yield from zip(step.columns, step.merged_by, strict=True)


def split_aggregates(records: DataFrame, aggregates: Mapping[str, str]) -> PartialAggregates | None:
    """Return the steps of these aggregates, or None if one of them can't be merged exactly.

    No job is run; only the types of the columns are read.

    Args:
        records: the records that the aggregates will be computed over.
        aggregates: name to SQL aggregate call.
    """
    splits = [_split_aggregate(records, name, call) for name, call in aggregates.items()]
    steps = tuple(split for split in splits if split is not None)
    return PartialAggregates(steps) if len(steps) == len(splits) else None


def _split_aggregate(records: DataFrame, name: str, text: str) -> PartialAggregate | None:
    aggregate = mergeable_aggregate(text)
    if aggregate is None:
        return None
    columns = _column_names(name, aggregate.calls)
    casts = [_cast_of(records, call, names) for call, names in zip(aggregate.calls, columns, strict=True)]
    if None in casts:
        return None

    def value(merged: Sequence[str]) -> str:
        remaining, values = iter(merged), []
        for call, cast in zip(aggregate.calls, casts, strict=True):
            part = call.value([next(remaining) for _ in call.partial])
            values.append(f"cast({part} as {cast})" if cast else part)
        return aggregate.value(values)

    return PartialAggregate(
        name,
        tuple(column for names in columns for column in names),
        tuple(sql for call in aggregate.calls for sql in call.partial),
        tuple(sql for call in aggregate.calls for sql in call.merged_by),
        value,
    )


def _cast_of(records: DataFrame, call: MergeableCall, columns: Sequence[str]) -> str | None:
    """Return the type to which the value of merged columns must be cast; empty for none, None if no cast helps."""
    direct = records.agg(F.expr(call.call).alias("value"))
    first = [F.expr(sql).alias(column) for column, sql in zip(columns, call.partial, strict=True)]
    second = [F.expr(f"{by}({column})").alias(column) for column, by in zip(columns, call.merged_by, strict=True)]
    stepwise = records.agg(*first).agg(*second).select(F.expr(call.value(columns)).alias("value"))
    expected, actual = _type(direct), _type(stepwise)
    if expected == actual:
        return ""
    # A sum of sums has a type with more digits. A decimal average rounds its parts, so it can't be merged.
    is_wider = (
        isinstance(expected, DecimalType) and isinstance(actual, DecimalType) and expected.scale == actual.scale
    )
    return expected.simpleString() if is_wider else None


def _column_names(name: str, calls: Sequence[MergeableCall]) -> list[list[str]]:
    """Return column names that no aggregate has: names in a definition never have two underscores in a row."""
    numbers = iter(range(sum(len(call.partial) for call in calls)))
    return [[f"part__{name}__{next(numbers)}" for _ in call.partial] for call in calls]


def _type(frame: DataFrame) -> DataType:
    return frame.schema.fields[0].dataType
