"""Chunks of a plan, ready to run together, and the records they read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from backstream.definition.loader import parse_definition
from backstream.definition.model import Definition
from backstream.eventtime.intervals import Interval
from backstream.eventtime.records import SourceClock
from backstream.eventtime.watermarks import Emission
from backstream.runs.plan import Chunk, Mode, Plan
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
from backstream.spark.windows.assignment import WindowColumns, latest_window_start

CHUNK = "chunk_number"
"""Which of the chunks that run together answers for a record, or a row made of records."""


@dataclass(frozen=True)
class ChunkGroup:
    """Chunks of a plan that run together, as if they were one: each begins where the one before it ends.

    All but the last are equally long. What they yield is told apart by `CHUNK`.
    """

    spark: SparkSession
    plan: Plan
    chunks: Sequence[Chunk]
    definition: Definition
    schema: StructType
    """What is read of each file: the columns that the definition names, as planning found them."""

    @classmethod
    def from_plan(cls, spark: SparkSession, plan: Plan, chunks: Sequence[Chunk]) -> ChunkGroup:
        """The chunks with their plan's definition."""
        definition = parse_definition(plan.definition, f"plan {plan.run_id}")
        return cls(spark, plan, chunks, definition, source.read_schema(plan.columns))

    @property
    def interval(self) -> Interval:
        """The starts of the windows that the chunks answer for."""
        return Interval(self.chunks[0].start_ms, self.chunks[-1].end_ms)

    @property
    def halo_end_ms(self) -> int:
        """Where the halo of the last one ends."""
        return max(chunk.halo_end_ms for chunk in self.chunks)

    @property
    def expected_events(self) -> int:
        """About how many events they hold."""
        return sum(chunk.expected_events for chunk in self.chunks)

    @property
    def recorded(self) -> EventFiles:
        """The readable events of all inputs; copies are among them."""
        return EventFiles(self.spark, self.plan.inputs, partial(is_readable_record, self), self.plan.damaged)

    @property
    def paths(self) -> list[str]:
        """The files that the plan says the chunks read."""
        numbers = sorted({number for chunk in self.chunks for number in chunk.files})
        return [self.plan.inputs[number].path for number in numbers]

    @cached_property
    def owned_files(self) -> Mapping[str, int]:
        """The files whose unreadable records these chunks answer for, each with the number of the chunk.

        That is the first of the plan's that reads the file.
        """
        first: dict[int, str] = {}
        for chunk in self.plan.chunks:
            for file in chunk.files:
                first.setdefault(file, chunk.chunk_id)
        numbers = {chunk.chunk_id: number for number, chunk in enumerate(self.chunks)}
        return {
            source.file_uri(self.plan.inputs[file].path): numbers[chunk_id]
            for file, chunk_id in first.items()
            if chunk_id in numbers
        }

    @cached_property
    def owned(self) -> IntervalColumns:
        """What windows start in that the chunks answer for."""
        return IntervalColumns.from_interval(self.spark, self.interval)

    def chunk_number_at(self, time_ms: Column) -> Column:
        """The number of the chunk in which an instant lies; before the first it is 0, after the last the last."""
        if len(self.chunks) == 1:
            return F.lit(0)
        (start_ms,) = plan_literals(self.spark, self.chunks[0].start_ms)
        since_ms = F.greatest(time_ms - start_ms, int64_literal(0))
        number = integer_quotient(since_ms, int64_literal(self.chunks[0].end_ms - self.chunks[0].start_ms))
        return F.least(number, int64_literal(len(self.chunks) - 1)).cast("int")

    @property
    def is_replay(self) -> bool:
        """Whether arrival order is reproduced."""
        return self.plan.mode is Mode.REPLAY

    @property
    def emission(self) -> Emission:
        """How the stream's watermarks came about."""
        return self.definition.watermark.spec()

    @property
    def clock(self) -> SourceClock:
        """The clock of the stream's source."""
        return SourceClock(
            self.plan.clock_start_ms, self.definition.watermark.emit_interval, self.plan.clock_end_ms
        )


def is_readable_record(work: ChunkGroup, paths: Sequence[str]) -> DataFrame:
    """The normalised events of some input files, without those that cannot be read."""
    rows = source.load_files(work.spark, paths, work.schema)
    return rows.transform(source.normalize_events(work.definition)).where(F.col(source.REASON).isNull())


class ChunkRecords(NamedTuple):
    """Records that chunks read.

    `tallied` are the same rows as `known`; whoever computes them first has them counted on the way, which costs as
    much as grouping them. `tally` then has a number per chunk, under the name that `tallied_as` gives.
    """

    columns: DataFrame
    with_metric: DataFrame
    metric: Observation
    rows: int
    """Of the files that are read, by their footers; `tally` has how many were there, as `SCANNED`."""

    def transform(self, step: Step) -> ChunkRecords:
        """Both taken through a step."""
        return self._replace(columns=self.columns.transform(step), with_metric=self.with_metric.transform(step))


def load_records(work: ChunkGroup, interval: Interval) -> ChunkRecords:
    """Every record of an interval of event time, with `is_duplicate` and `CHUNK`.

    They are counted as they are read, before anything is decided about them, so that the sum of fates has
    something to agree with. What cannot be read comes with its reason, once per file.
    """
    tally, paths = Observation(), sorted({*work.paths, *work.recorded.paths_of(interval)})
    is_ours, number = F.col(_IS_OURS), F.col(CHUNK)
    counts = [
        F.count_if(is_ours & (number == F.lit(each))).alias(read_count_name(each))
        for each in range(len(work.chunks))
    ]
    is_within = source.is_in_chunk(work.spark, interval, work.owned_files)
    scanned = (
        source.load_files(work.spark, paths, work.schema)
        .transform(source.normalize_events(work.definition))
        .transform(source.add_file)
        .withColumns({CHUNK: _number(work), _IS_OURS: is_within})
    )
    tallied = scanned.observe(tally, F.count(F.lit(1)).alias(SCANNED), *counts)
    rows = {file.path: file.rows for file in work.plan.inputs}
    known, counted = (each.where(is_ours).drop(_IS_OURS) for each in (scanned, tallied))
    return ChunkRecords(known, counted, tally, sum(rows[path] for path in paths)).transform(
        source.mark_duplicates(work.definition.source.deduplicate_on)
    )


SCANNED = "rows_scanned"
"""Under which name all rows of the files are counted, whosever they are."""
_IS_OURS = "is_ours"


def read_count_name(number: int) -> str:
    """Under which name the records of a chunk are counted."""
    return f"events_read_{number}"


def _number(work: ChunkGroup) -> Column:
    """Which chunk answers for a record: that of its latest window; of an unreadable one, that of its file."""
    start_ms, _ = latest_window_start(WindowColumns.from_window(work.definition.metric_windows))
    is_readable = F.col(source.REASON).isNull()
    return F.when(is_readable, work.chunk_number_at(start_ms)).otherwise(_number_of_file(work))


def _number_of_file(work: ChunkGroup) -> Column:
    if len(work.chunks) == 1:
        return F.lit(0)
    owned = work.owned_files
    columns = {"files": pa.array(list(owned), pa.string()), "numbers": pa.array(list(owned.values()), pa.int32())}
    owners = table_literals(work.spark, columns)
    return F.get(owners["numbers"], F.array_position(owners["files"], F.col(source.FILE)).cast("int") - F.lit(1))


def load_quarantine(work: ChunkGroup) -> DataFrame:
    """Records that cannot be normalised, whole, with the reason and `CHUNK`."""
    nothing = Interval(work.interval.start_ms, work.interval.start_ms)
    wholes = [_whole(work, columns, paths) for columns, paths in group_by_schema(work.paths)]
    events = reduce(DataFrame.unionByName, wholes)
    return events.where(source.is_in_chunk(work.spark, nothing, work.owned_files)).withColumns(
        {
            "reason": F.col(source.REASON),
            "event_time": F.col(source.WRITTEN_EVENT_TIME),
            "arrival_time": F.col(source.WRITTEN_ARRIVAL_TIME),
            "file": F.col(source.FILE),
            CHUNK: _number_of_file(work),
        }
    )


def _whole(work: ChunkGroup, columns: Mapping[str, str], paths: Sequence[str]) -> DataFrame:
    """The normalised events of files with the same columns, and each record with all of these."""
    read_as = {**columns, **work.plan.columns}
    rows = source.load_files(work.spark, paths, source.read_schema(read_as)).transform(
        source.add_record, list(columns)
    )
    return rows.transform(source.normalize_events(work.definition)).transform(source.add_file)
