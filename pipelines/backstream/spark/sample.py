"""Read a few records as a run reads them, and compute aggregates over some of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backstream.definition.aggregates import spark_aggregates
from backstream.definition.model import Definition
from backstream.eventtime.windows import TimeWindow
from backstream.spark import source
from backstream.spark.table_frames import add_derived, published_rows
from backstream.spark.windows.aggregation import WINDOW

_WINDOW_NUMBER = "sample_window"
"""Column with the number of the window that a record is in."""


def load_sample(
    spark: SparkSession,
    definition: Definition,
    files: Sequence[tuple[Mapping[str, str], Sequence[str]]],
    limit: int,
) -> pa.Table:
    """Return the first normalized records of files, unreadable ones included, with their file and whole content.

    Args:
        spark: the session.
        definition: the definition of an event.
        files: paths of files with the same columns, which have Spark SQL types.
        limit: the maximum number of records of each file.
    """

    def load(columns: Mapping[str, str], path: str) -> DataFrame:
        rows = source.load_files(spark, [path], source.read_schema(columns))
        events = rows.transform(source.add_record, list(columns)).transform(source.normalize_events(definition))
        return events.transform(source.add_file).limit(limit)

    frames = [load(columns, path) for columns, paths in files for path in paths]
    return reduce(DataFrame.unionByName, frames).toArrow()


def aggregate_sample(
    spark: SparkSession,
    definition: Definition,
    records: pa.Table,
    windows: Sequence[tuple[TimeWindow, Sequence[int]]],
) -> pa.Table:
    """Return the rows that a run would publish for some windows: key, window, aggregates, and derived columns.

    A definition with user code has no aggregates. Then the rows have the number of records.

    Args:
        spark: the session.
        definition: the definition with the aggregates.
        records: normalized records, as `load_sample` returns them.
        windows: per row of the result its window, and the positions of its records.
    """
    members = [(number, position) for number, (_, positions) in enumerate(windows) for position in positions]
    chosen = records.take(pa.array([position for _, position in members], pa.int64()))
    bounds = {
        _WINDOW_NUMBER: [number for number, _ in members],
        WINDOW[0]: [windows[number][0].start_ms for number, _ in members],
        WINDOW[1]: [windows[number][0].end_ms for number, _ in members],
    }
    for name, numbers in bounds.items():
        chosen = chosen.append_column(name, pa.array(numbers, pa.int64()))
    calls = [F.expr(call).alias(name) for name, call in spark_aggregates(definition).items()]
    grouped = spark.createDataFrame(chosen).groupBy(*bounds, *definition.source.key)
    rows = grouped.agg(*(calls or [F.count(F.lit(1)).alias("records")])).transform(add_derived(definition))
    times = {name.removesuffix("_ms"): F.timestamp_millis(name) for name in WINDOW}
    published = published_rows(rows, definition).withColumns(times).orderBy(_WINDOW_NUMBER)
    key = definition.source.key
    values = [name for name in published.columns if name not in {*bounds, *times, *key}]
    return published.select(*key, *times, *values).toArrow()
