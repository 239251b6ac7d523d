"""Read the records of chunks with Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, partial, reduce
from typing import NamedTuple, Self

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from backstream.chunks.group import ChunkGroup
from backstream.definition import prepared_columns
from backstream.eventtime.intervals import Interval
from backstream.eventtime.time_zones import TimeZone
from backstream.source.column_types import group_by_schema
from backstream.spark import source
from backstream.spark.schemas import (
    IntervalColumns,
    Step,
    int64_literal,
    integer_quotient,
    plan_literals,
    table_literals,
)
from backstream.spark.source import EventFiles
from backstream.spark.watermarks.stream_reader import SparkReader
from backstream.spark.windows.assignment import latest_window_start

CHUNK = "chunk_number"
"""The number of the chunk in its group that owns a record, or a row computed from records."""


@dataclass(frozen=True, kw_only=True)
class SparkGroup(ChunkGroup):
    """Chunks of which Spark reads the records; `CHUNK` distinguishes their results."""

    spark: SparkSession
    schema: StructType
    """The columns that are read from each file: those of the definition, with the types found by planning."""

    @classmethod
    def of(cls, spark: SparkSession, group: ChunkGroup) -> Self:
        """Return the chunks of a group for Spark."""
        values = {each.name: getattr(group, each.name) for each in fields(ChunkGroup)}
        return cls(**values, spark=spark, schema=source.read_schema(group.plan.columns))

    @property
    def event_files(self) -> EventFiles:
        """The readable events of all inputs, with duplicates."""
        return self.read_event_files(self.definition.window.spec().zone)

    def read_event_files(self, zone: TimeZone | None) -> EventFiles:
        """Return the readable events of all inputs with local times of a zone; None: with instants."""
        read = partial(_load_readable_events, self, zone)
        return EventFiles(self.spark, self.plan.inputs, read, self.plan.damaged)

    @property
    def reader(self) -> SparkReader:
        """Reads the events of the whole stream for its watermarks."""
        whole = self.whole_stream
        group = self if whole is None else SparkGroup.of(self.spark, whole)
        return SparkReader(group.read_event_files(None), group.definition, group.schema)

    @cached_property
    def owned_interval(self) -> IntervalColumns:
        """`interval` as columns."""
        return IntervalColumns.from_interval(self.spark, self.interval)

    def chunk_number_at(self, time_ms: Column) -> Column:
        """Return the number of the chunk at an instant; 0 before the first, and the last number after the last."""
        if len(self.chunks) == 1:
            return F.lit(0)
        (start_ms,) = plan_literals(self.spark, self.chunks[0].start_ms)
        since_ms = F.greatest(time_ms - start_ms, int64_literal(0))
        number = integer_quotient(since_ms, int64_literal(self.chunks[0].end_ms - self.chunks[0].start_ms))
        return F.least(number, int64_literal(len(self.chunks) - 1)).cast("int")


def _load_readable_events(group: SparkGroup, zone: TimeZone | None, paths: Sequence[str]) -> DataFrame:
    """Return the normalized events of some input files, without unreadable records."""
    rows = source.load_files(group.spark, paths, group.schema)
    return rows.transform(source.normalize_events(group.definition, zone)).where(F.col(source.REASON).isNull())


class ChunkRecords(NamedTuple):
    """The records that chunks read, twice: `with_metric` has the same rows as `columns`.

    The first job that reads `with_metric` counts the records for `metric`, which costs as much as grouping them.
    `metric` has one number per chunk, named by `read_count_name`, and `SCANNED`.
    """

    columns: DataFrame
    with_metric: DataFrame
    metric: Observation
    rows: int
    """The rows of the input files by their footers; `SCANNED` is the number of rows that were read."""

    def transform(self, step: Step) -> ChunkRecords:
        """Return the records with a step applied to both frames."""
        return self._replace(columns=self.columns.transform(step), with_metric=self.with_metric.transform(step))


def load_records(group: SparkGroup, interval: Interval) -> ChunkRecords:
    """Return every record of an interval of event time, with `is_duplicate` and `CHUNK`.

    Records are counted when they are read, before any classification, so that the sum of fates can be checked
    against this count. An unreadable record has its reason, and belongs to one chunk only. Records around the
    interval are read if they can be copies of those in it.
    """
    identity = group.definition.source.identity
    reach = identity.reach(interval)
    metric, paths = Observation(), sorted({*group.paths, *group.event_files.paths_of(reach)})
    is_owned, number = F.col(_IS_OWNED), F.col(CHUNK)
    counts = [
        F.count_if(is_owned & (number == F.lit(chunk))).alias(read_count_name(chunk))
        for chunk in range(len(group.chunks))
    ]
    is_within = source.is_in_chunk(group.spark, interval, group.owned_files)
    scanned = (
        source.load_files(group.spark, paths, group.schema)
        .transform(source.normalize_events(group.definition, group.definition.window.spec().zone))
        .transform(source.add_position if identity.columns else source.add_file)
        .withColumns({CHUNK: _owning_chunk(group), _IS_OWNED: is_within})
    )
    observed = scanned.observe(metric, F.count(F.lit(1)).alias(SCANNED), *counts)
    rows_by_path = {file.path: file.rows for file in group.plan.inputs}
    is_near = source.is_in_chunk(group.spark, reach, group.owned_files) if reach != interval else is_owned

    def mark(events: DataFrame) -> DataFrame:
        return events.where(is_near).transform(source.mark_duplicates(identity)).where(is_owned).drop(_IS_OWNED)

    return ChunkRecords(scanned, observed, metric, sum(rows_by_path[path] for path in paths)).transform(mark)


SCANNED = "rows_scanned"
"""The name of the count of all rows of the files, including rows of other chunks."""
_IS_OWNED = "is_ours"


def read_count_name(number: int) -> str:
    """Return the name of the count of the records of a chunk."""
    return f"events_read_{number}"


def _owning_chunk(group: SparkGroup) -> Column:
    """Return the number of the owning chunk: by the latest window, or by the file of an unreadable record."""
    start_ms, _ = latest_window_start(group.definition.metric_windows)
    is_readable = F.col(source.REASON).isNull()
    return F.when(is_readable, group.chunk_number_at(start_ms)).otherwise(_chunk_of_file(group))


def _chunk_of_file(group: SparkGroup) -> Column:
    if len(group.chunks) == 1:
        return F.lit(0)
    owned = group.owned_files
    columns = {"files": pa.array(list(owned), pa.string()), "numbers": pa.array(list(owned.values()), pa.int32())}
    owners = table_literals(group.spark, columns)
    return F.get(owners["numbers"], F.array_position(owners["files"], F.col(source.FILE)).cast("int") - F.lit(1))


def load_quarantine(group: SparkGroup) -> DataFrame:
    """Return the unreadable records with all their columns, the reason, and `CHUNK`."""
    no_events = Interval(group.interval.start_ms, group.interval.start_ms)
    frames = [_load_whole_records(group, columns, paths) for columns, paths in group_by_schema(group.paths)]
    events = reduce(partial(DataFrame.unionByName, allowMissingColumns=True), frames)
    file, line = F.col(source.FILE), F.lit(None).cast("long")
    if prepared_columns.FILE in events.columns:
        file = F.coalesce(F.col(prepared_columns.FILE), file)
    if prepared_columns.LINE in events.columns:
        line = F.col(prepared_columns.LINE)
    return events.where(source.is_in_chunk(group.spark, no_events, group.owned_files)).withColumns(
        {
            "reason": F.col(source.REASON),
            "event_time": F.col(source.WRITTEN_EVENT_TIME),
            "arrival_time": F.col(source.WRITTEN_ARRIVAL_TIME),
            "file": file,
            "line": line,
            CHUNK: _chunk_of_file(group),
        }
    )


def _load_whole_records(group: SparkGroup, columns: Mapping[str, str], paths: Sequence[str]) -> DataFrame:
    """Return the normalized events of files with the same columns, each with all of its columns as JSON."""
    columns_to_read = {**columns, **group.plan.columns}
    rows = source.load_files(group.spark, paths, source.read_schema(columns_to_read)).transform(
        source.add_record, list(columns)
    )
    return rows.transform(source.normalize_events(group.definition)).transform(source.add_file)
