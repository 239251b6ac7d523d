"""Aggregates in steps: over records, over what those gave, and the value in the end.

What can be merged is counted once per small group, and the groups are then merged as often as needed: buckets into
sessions, slices into sliding windows. A result is the direct aggregate's in value and type; only a sum of doubles,
and an average, may differ in the last bit, as they do in Spark itself with the order of rows.
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
    """One aggregate in steps, as SQL: `partial` and `merged_by` per column, and the value over merged columns."""

    name: str
    columns: tuple[str, ...]
    partial: tuple[str, ...]
    merged_by: tuple[str, ...]
    value: Callable[[Sequence[str]], str]


@dataclass(frozen=True, slots=True)
class PartialAggregates:
    """Columns for each step of several aggregates."""

    steps: tuple[PartialAggregate, ...]

    @property
    def partial(self) -> list[Column]:
        """Aggregates over records."""
        return [
            F.expr(sql).alias(column)
            for step in self.steps
            for column, sql in zip(step.columns, step.partial, strict=True)
        ]

    @property
    def merged(self) -> list[Column]:
        """Aggregates over the columns of `partial`, under the same names, so that they can be merged again."""
        return [F.expr(f"{by}({column})").alias(column) for column, by in self._each()]

    def merged_where(self, condition: str, suffix: str) -> list[Column]:
        """The same over the rows that meet a condition, each name with a suffix."""
        return [
            F.expr(f"{by}({column}) FILTER (WHERE {condition})").alias(f"{column}__{suffix}")
            for column, by in self._each()
        ]

    @property
    def values(self) -> list[Column]:
        """One column per aggregate, made of the merged columns."""
        return [F.expr(step.value(step.columns)).alias(step.name) for step in self.steps]

    def values_of(self, suffix: str) -> dict[str, Column]:
        """The aggregates by name, made of the merged columns with a suffix."""
        return {
            step.name: F.expr(step.value([f"{column}__{suffix}" for column in step.columns]))
            for step in self.steps
        }

    def _each(self) -> Iterator[tuple[str, str]]:
        for step in self.steps:
            yield from zip(step.columns, step.merged_by, strict=True)


def split_aggregates(records: DataFrame, aggregates: Mapping[str, str]) -> PartialAggregates | None:
    """The steps of these aggregates over such records, or None when one of them does not merge exactly.

    No job is run: only the types of the columns are looked at.

    Args:
        records: has the columns that the aggregates name.
        aggregates: name to SQL aggregate call.
    """
    found = [_steps(records, name, call) for name, call in aggregates.items()]
    known = tuple(step for step in found if step is not None)
    return PartialAggregates(known) if len(known) == len(found) else None


def _steps(records: DataFrame, name: str, call: str) -> PartialAggregate | None:
    step = mergeable_aggregate(call)
    if step is None:
        return None
    columns = _named(name, step)
    direct = records.agg(F.expr(step.call).alias("value"))
    first = [F.expr(sql).alias(column) for column, sql in zip(columns, step.partial, strict=True)]
    then = [F.expr(f"{by}({column})").alias(column) for column, by in zip(columns, step.merged_by, strict=True)]
    stepwise = records.agg(*first).agg(*then).select(F.expr(step.value(columns)).alias("value"))
    wanted, got = _type(direct), _type(stepwise)
    # A sum of sums has room for more digits; a decimal average rounds in between, and cannot be put together.
    is_wider = isinstance(wanted, DecimalType) and isinstance(got, DecimalType) and wanted.scale == got.scale
    if wanted != got and not is_wider:
        return None
    cast = "" if wanted == got else wanted.simpleString()

    def value(merged: Sequence[str]) -> str:
        return with_cast_of(call, f"cast({step.value(merged)} as {cast})" if cast else step.value(merged))

    return PartialAggregate(name, tuple(columns), step.partial, step.merged_by, value)


def _named(name: str, step: MergeableAggregate) -> list[str]:
    """Names that no aggregate can have: theirs never have two underscores in a row."""
    return [f"part__{name}__{number}" for number in range(len(step.partial))]


def _type(frame: DataFrame) -> DataType:
    return frame.schema.fields[0].dataType
