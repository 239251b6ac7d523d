"""Compute the columns derived from the columns of a result, and withhold the rows that don't meet a condition."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from backstream.definition.model import Definition
from backstream.runs.table_schemas import PANES_KEPT, RECORD_COUNT, pane_count_column
from backstream.spark.schemas import Step
from backstream.spark.windows.aggregation import WINDOW

_TIMES = {name.removesuffix("_ms"): name for name in WINDOW}


def add_derived(definition: Definition) -> Step:
    """Add the derived columns to rows with keys, window, and aggregates."""
    derived = {name: F.expr(text) for name, text in definition.derive_after.items()}
    return lambda rows: _with_times(rows).withColumns(derived) if derived else rows


def add_derived_to_panes(definition: Definition) -> Step:
    """Add the derived columns of each pane to rows with keys, window, and the aggregates of each pane."""

    def step(rows: DataFrame) -> DataFrame:
        if not definition.derive_after:
            return rows
        panes = _with_times(rows)
        for pane in PANES_KEPT:
            # SQL has the names of the aggregates, so the columns of one pane get these names for a moment.
            panes = panes.withColumns({name: F.col(f"{name}__{pane}") for name in definition.aggregates})
            is_existing = F.col(pane_count_column(pane)) > F.lit(0)
            panes = panes.withColumns(
                {
                    f"{name}__{pane}": F.when(is_existing, F.expr(text))
                    for name, text in definition.derive_after.items()
                }
            )
        return panes.drop(*definition.aggregates)

    return step


def meets_condition(definition: Definition) -> Column:
    """Return whether a row is published; a condition that is null is not met."""
    if definition.having is None:
        return F.lit(True)  # noqa: FBT003 - a literal
    return F.coalesce(F.expr(definition.having.condition), F.expr("false"))


def count_withheld(rows: DataFrame, definition: Definition) -> DataFrame:
    """Return the number of rows per window that are not published, and of their records."""
    withheld = _with_times(rows).where(~meets_condition(definition))
    return withheld.groupBy(*WINDOW).agg(F.count(F.lit(1)).alias("rows"), F.sum(RECORD_COUNT).alias(RECORD_COUNT))


def published_rows(rows: DataFrame, definition: Definition) -> DataFrame:
    """Return the rows that are published."""
    if definition.having is None:
        return rows
    return _with_times(rows).where(meets_condition(definition))


def _with_times(rows: DataFrame) -> DataFrame:
    """Add the bounds of the window as timestamps."""
    return rows.withColumns({name: F.timestamp_millis(in_ms) for name, in_ms in _TIMES.items()})
