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

from backstream.definition.aggregates import MergeableAggregate, mergeable_aggregate, with_cast_of


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
    def merged(self) -> list[Column]:
        """The aggregates over the columns of `partial`, under the same names, so that they can be merged again."""
        return [F.expr(f"{by}({column})").alias(column) for column, by in self._column_merges()]

    def merged_where(self, condition: str, suffix: str) -> list[Column]:
        """Return `merged` over the rows that meet a condition; each name gets a suffix."""
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


def _split_aggregate(records: DataFrame, name: str, call: str) -> PartialAggregate | None:
    step = mergeable_aggregate(call)
    if step is None:
        return None
    columns = _column_names(name, step)
    direct = records.agg(F.expr(step.call).alias("value"))
    first = [F.expr(sql).alias(column) for column, sql in zip(columns, step.partial, strict=True)]
    second = [F.expr(f"{by}({column})").alias(column) for column, by in zip(columns, step.merged_by, strict=True)]
    stepwise = records.agg(*first).agg(*second).select(F.expr(step.value(columns)).alias("value"))
    expected, actual = _type(direct), _type(stepwise)
    # A sum of sums has a type with more digits. A decimal average rounds its parts, so it can't be merged.
    is_wider = (
        isinstance(expected, DecimalType) and isinstance(actual, DecimalType) and expected.scale == actual.scale
    )
    if expected != actual and not is_wider:
        return None
    cast = "" if expected == actual else expected.simpleString()

    def value(merged: Sequence[str]) -> str:
        return with_cast_of(call, f"cast({step.value(merged)} as {cast})" if cast else step.value(merged))

    return PartialAggregate(name, tuple(columns), step.partial, step.merged_by, value)


def _column_names(name: str, step: MergeableAggregate) -> list[str]:
    """Return column names that no aggregate has: names in a definition never have two underscores in a row."""
    return [f"part__{name}__{number}" for number in range(len(step.partial))]


def _type(frame: DataFrame) -> DataType:
    return frame.schema.fields[0].dataType
