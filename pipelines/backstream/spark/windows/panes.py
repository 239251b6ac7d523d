"""Panes: what windows hold when they fire. Any SQL aggregate works; nothing here looks inside one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from backstream.core.fates import Fate
from backstream.core.tables import PANES_KEPT, pane_count
from backstream.definition.aggregates import filtered
from backstream.spark.schemas import ARRIVAL_ORDER
from backstream.spark.windows.fates import EXPIRED
from backstream.spark.windows.partials import Partials

WINDOW = ("window_start_ms", "window_end_ms")

EVENTS = "slice__events"
"""How many records a row of partial aggregates stands for."""
IS_ON_TIME, IS_ACCEPTED = "is_on_time", "is_accepted"
"""Whether a record came before its window fired; and whether before that was gone."""
_IN_PANE = {"first": IS_ON_TIME, "live": IS_ACCEPTED, "final": "true"}


def panes(timed: DataFrame, by: Sequence[str], aggregates: Mapping[str, str]) -> DataFrame:
    """First, live and final value of each aggregate per key and window.

    Args:
        timed: one row per record and window, with `is_on_time` and `is_accepted`.
        by: the columns that name a key and a window.
        aggregates: name to SQL aggregate call.

    Returns:
        `by`, `<name>__first` (null: nothing was on time), `<name>__live` (null: every record came
        too late, so the stream published nothing), `<name>__final`, `late_firings`, and `record_count__<pane>`.
    """
    # A count of events that the definition asks for too is computed once: Spark sees that they are the same.
    calls = {pane_count(pane): filtered("count(*)", condition) for pane, condition in _IN_PANE.items()}
    # An aggregate over nothing is no value, not even a count of 0: that pane did not exist.
    told: dict[str, str] = {}
    for name, aggregate in aggregates.items():
        for pane, condition in _IN_PANE.items():
            column = f"{name}__{pane}"
            calls[column] = filtered(aggregate, condition)
            told[column] = f"CASE WHEN {pane_count(pane)} > 0 THEN {column} END"
    # Every late record that was accepted fired its window once more.
    told["late_firings"] = f"{pane_count('live')} - {pane_count('first')}"
    grouped = timed.groupBy(*by).agg(*(F.expr(call).alias(name) for name, call in calls.items()))
    return grouped.withColumns({name: F.expr(sql) for name, sql in told.items()})


def merged_panes(timed: DataFrame, by: Sequence[str], parts: Partials) -> DataFrame:
    """`panes` of rows that hold partial aggregates of many records each."""
    counts = [
        F.expr(f"coalesce(sum({EVENTS}) FILTER (WHERE {condition}), 0)").alias(pane_count(pane))
        for pane, condition in _IN_PANE.items()
    ]
    merged = [column for pane, condition in _IN_PANE.items() for column in parts.merged_where(condition, pane)]
    totals = timed.groupBy(*by).agg(*counts, *merged)
    values = {f"{name}__{pane}": value for pane in PANES_KEPT for name, value in parts.values_of(pane).items()}
    fired = {
        column: F.when(F.col(pane_count(column.rpartition("__")[2])) > 0, value)
        for column, value in values.items()
    }
    late_firings = F.col(pane_count("live")) - F.col(pane_count("first"))
    return totals.withColumns(fired | {"late_firings": late_firings})


def recomputed(assigned: DataFrame, by: Sequence[str], aggregates: Mapping[str, str]) -> DataFrame:
    """The value of each aggregate per key and window over all its records."""
    values = [F.expr(aggregate).alias(name) for name, aggregate in aggregates.items()]
    return assigned.groupBy(*by).agg(*values)


def on_time_firings(timed: DataFrame, keys: Sequence[str], aggregates: Mapping[str, str]) -> DataFrame:
    """The firing of each window that had a record before the watermark reached its end."""
    on_time = timed.where(F.col("timing") == F.lit(Fate.ON_TIME))
    return recomputed(on_time, [*keys, *WINDOW], aggregates)


def late_firings(timed: DataFrame, keys: Sequence[str], aggregates: Mapping[str, str]) -> DataFrame:
    """One firing per late record, with all that came before it: the order of arrival in `ARRIVAL_ORDER`.

    Only windows that had a late record are ordered. `watermark_ms`, what the record met, is kept if it is there.
    """
    of_window = Window.partitionBy(*keys, *WINDOW)
    is_late = F.col("timing") == F.lit(Fate.LATE)
    # On-time records all precede the late ones: watermarks do not fall.
    so_far = of_window.orderBy(is_late, *ARRIVAL_ORDER).rowsBetween(Window.unboundedPreceding, 0)
    accepted = timed.where(F.col("timing") != F.lit(EXPIRED))
    re_fired = accepted.withColumn("has_late", F.max(is_late).over(of_window)).where("has_late")
    values = {name: F.expr(aggregate).over(so_far) for name, aggregate in aggregates.items()}
    late_before = F.sum(is_late.cast("long")).over(so_far)
    had_on_time = F.max((~is_late).cast("long")).over(of_window)
    firings = re_fired.withColumns({**values, "pane_index": had_on_time + late_before - F.lit(1)})
    met = [name for name in ("watermark_ms",) if name in timed.columns]
    return firings.where(is_late).select(*keys, *WINDOW, "pane_index", *met, *ARRIVAL_ORDER, *aggregates)
