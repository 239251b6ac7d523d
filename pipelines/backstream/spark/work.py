"""A chunk of a plan, ready to run, and the records it reads."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from backstream.core.intervals import Interval
from backstream.core.plan import Chunk, Mode, Plan
from backstream.core.records import Clock
from backstream.core.watermarks import Emission
from backstream.definition.load import parse
from backstream.definition.model import Definition
from backstream.spark import read
from backstream.spark.arrays import IntervalColumns


@dataclass(frozen=True, slots=True)
class Work:
    """A chunk of a plan, ready to run."""

    spark: SparkSession
    plan: Plan
    chunk: Chunk
    definition: Definition

    @classmethod
    def of(cls, spark: SparkSession, plan: Plan, chunk: Chunk) -> Work:
        """The chunk with its plan's definition."""
        return cls(spark, plan, chunk, parse(plan.definition, f"plan {plan.run_id}"))

    def paths_of(self, interval: Interval) -> list[str]:
        """The files that may hold an event of an interval."""
        return [file.path for file in self.plan.inputs if file.may_hold(interval)]

    @property
    def paths(self) -> list[str]:
        """The files that the plan says the chunk reads."""
        return [self.plan.inputs[number].path for number in self.chunk.files]

    @property
    def owned_files(self) -> list[str]:
        """The files whose unreadable records this chunk answers for: those no earlier chunk reads."""
        before: set[int] = set()
        for chunk in self.plan.chunks:
            if chunk.chunk_id == self.chunk.chunk_id:
                break
            before.update(chunk.files)
        mine = (number for number in self.chunk.files if number not in before)
        return [read.file_uri(self.plan.inputs[number].path) for number in mine]

    @property
    def owned(self) -> IntervalColumns:
        """What windows start in that the chunk answers for."""
        return IntervalColumns.of(self.spark, self.chunk.interval)

    @property
    def is_replay(self) -> bool:
        """Whether arrival order is reproduced."""
        return self.plan.mode is Mode.REPLAY

    @property
    def emission(self) -> Emission:
        """How the stream's watermarks came about."""
        return self.definition.watermark.spec()

    @property
    def clock(self) -> Clock:
        """The clock of the stream's source."""
        return Clock(self.plan.clock_start_ms, self.definition.watermark.interval, self.plan.clock_end_ms)


def readable(work: Work, paths: list[str]) -> DataFrame:
    """The normalised events of some input files, without those that cannot be read."""
    rows = read.rows_of(work.spark, paths)
    return rows.transform(read.normalised(work.definition)).where(F.col(read.REASON).isNull())


def records(work: Work, interval: Interval) -> tuple[DataFrame, Observation]:
    """Every record of an interval of event time, with `is_duplicate`, and a count of them.

    The count `events_read` is taken as they are read, before anything is decided about them, so that the sum of
    fates has something to agree with. Records that cannot be read come with their reason, once per file.
    """
    tally, paths = Observation(), sorted({*work.paths, *work.paths_of(interval)})
    events = (
        read.rows_of(work.spark, paths)
        .transform(read.normalised(work.definition))
        .transform(read.within(work.spark, interval, work.owned_files))
        .observe(tally, F.count(F.lit(1)).alias("events_read"))
        .transform(read.deduplicated(work.definition.source.deduplicate_on))
    )
    return events, tally


def quarantined(work: Work) -> DataFrame:
    """Records that cannot be normalised, whole, with the reason."""
    rows = read.with_record(read.rows_of(work.spark, work.paths)).transform(read.normalised(work.definition))
    nothing = Interval(work.chunk.start_ms, work.chunk.start_ms)
    return rows.transform(read.within(work.spark, nothing, work.owned_files)).withColumns(
        {
            "reason": F.col(read.REASON),
            "event_time": F.col(read.WRITTEN_EVENT_TIME),
            "arrival_time": F.col(read.WRITTEN_ARRIVAL_TIME),
            "file": F.col(read.FILE),
        }
    )
