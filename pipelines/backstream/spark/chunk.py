"""One chunk, from recorded events to what it publishes: the steps of a run in order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from backstream.core.fates import Fate
from backstream.core.generators import Strategy, StrategyKind
from backstream.core.instants import MIN_MS
from backstream.core.intervals import Interval
from backstream.core.plan import Chunk, Mode, Plan
from backstream.core.records import Clock
from backstream.core.watermarks import Emission, Topology
from backstream.definition.load import parse
from backstream.definition.model import Definition
from backstream.spark import read
from backstream.spark.fates import fated, timed
from backstream.spark.metrics import window_metrics
from backstream.spark.panes import WINDOW, late_firings, on_time_firings, panes, recomputed
from backstream.spark.schemas import Step, long
from backstream.spark.watermarks import ClockColumns, Heard, compressed, heard, watermarked
from backstream.spark.windows import WindowColumns, latest_window_ms, windowed


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

    @property
    def paths(self) -> list[str]:
        """The files the chunk reads."""
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
    def is_replay(self) -> bool:
        """Whether arrival order is reproduced."""
        return self.plan.mode is Mode.REPLAY

    @property
    def window(self) -> WindowColumns:
        """The window's parameters."""
        return WindowColumns.of(self.definition.window.spec())

    @property
    def allowed_lateness_ms(self) -> Column:
        """How long a fired window is kept."""
        return long(self.definition.lateness.allowed)

    @property
    def emission(self) -> Emission:
        """How the stream's watermarks came about."""
        section = self.definition.watermark
        strategy = Strategy(StrategyKind(section.strategy), section.delay, section.interval, section.idle_timeout)
        return Emission(strategy, Topology(section.topology))

    @property
    def clock(self) -> Clock:
        """The clock of the stream's source."""
        return Clock(self.plan.clock_start_ms, self.definition.watermark.interval, self.plan.clock_end_ms)


def stream(work: Work) -> Heard | None:
    """The watermarks of the whole recorded stream up to the plan's cut-off; None in a recompute.

    Every input of the plan is read, three columns of it: a watermark rests on all that arrived before.
    """
    if not work.is_replay:
        return None
    rows = read.rows_of(work.spark, [file.path for file in work.plan.inputs])
    readable = rows.transform(read.normalised(work.definition)).where(F.col(read.REASON).isNull())
    cells = compressed(readable, ClockColumns.of(work.clock)).toArrow()
    return heard(cells, work.emission, work.clock, _partitions(work.definition, cells))


def _partitions(definition: Definition, cells: pa.Table) -> list[str]:
    """All that the source reads: those that delivered, and those that are expected to."""
    expected = definition.quality.partitions
    named = set() if expected == "observed" else set(expected)
    return sorted(named | set(cells["source_partition"].unique().to_pylist()))


def records(work: Work, watermarks: Heard | None) -> tuple[DataFrame, Observation]:
    """Every record the chunk reads, with `watermark_ms` and its one `fate`; and a count of them.

    The count `events_read` is taken as they are read, before anything is decided about them, so that the sum of
    fates has something to agree with.
    """
    interval, counted = Interval(work.chunk.start_ms, work.chunk.read_until_ms), Observation()
    events = (
        read.rows_of(work.spark, work.paths)
        .transform(read.normalised(work.definition))
        .transform(read.within(interval, work.owned_files))
        .observe(counted, F.count(F.lit(1)).alias("events_read"))
        .transform(read.deduplicated(work.definition.source.deduplicate_on))
    )
    met = events.transform(_met(work, watermarks))
    known = met.transform(fated(work.window, work.allowed_lateness_ms)).withColumn("fate", _final_fate(work))
    return known, counted


def _met(work: Work, watermarks: Heard | None) -> Step:
    if watermarks is None:
        return lambda events: events.withColumn("watermark_ms", F.lit(MIN_MS))
    return watermarked(work.spark, watermarks, work.clock)


def _final_fate(work: Work) -> Column:
    """What precedes the window's say: unreadable, another chunk's, seen before."""
    start_ms, _ = latest_window_ms(work.window)
    is_ours = (start_ms >= F.lit(work.chunk.start_ms)) & (start_ms < F.lit(work.chunk.end_ms))
    return (
        F.when(F.col(read.REASON).isNotNull(), F.lit(Fate.QUARANTINED))
        .when(~is_ours, F.lit(Fate.OUTSIDE))
        .when(F.col("is_duplicate"), F.lit(Fate.DUPLICATE))
        .otherwise(F.col("fate"))
    )


def assigned(work: Work, known: DataFrame) -> DataFrame:
    """One row per record and window that the chunk owns, with `timing`. The halo's records are in here."""
    start_ms = F.col("window_start_ms")
    is_owned = (start_ms >= F.lit(work.chunk.start_ms)) & (start_ms < F.lit(work.chunk.end_ms))
    usable = known.where(F.col(read.REASON).isNull() & ~F.col("is_duplicate"))
    return usable.transform(windowed(work.window)).where(is_owned).transform(timed(work.allowed_lateness_ms))


def valued(work: Work, in_windows: DataFrame) -> DataFrame:
    """Per key and window the value to publish, and in a replay first, live and final beside it."""
    keys, aggregates = work.definition.source.key, work.definition.aggregates
    if not work.is_replay:
        return _with_instants(recomputed(in_windows, keys, aggregates))
    return _with_instants(panes(in_windows, keys, aggregates))


def published(work: Work, values: DataFrame) -> DataFrame:
    """The rows of the published table: of a replay, the pane that the definition publishes."""
    if not work.is_replay:
        return values
    pane = work.definition.backfill.publish
    existing = values.where(F.col(f"{pane}_events") > F.lit(0))
    return existing.withColumns({name: F.col(f"{name}__{pane}") for name in work.definition.aggregates})


def metrics(work: Work, in_windows: DataFrame, watermarks: Heard | None) -> DataFrame:
    """Per window and source partition: counts, arrivals, and the watermark that the on-time firing saw."""
    counted = _with_instants(window_metrics(in_windows))
    if watermarks is None:
        return counted.withColumn("watermark_at_firing_ms", F.lit(None).cast("long"))
    firings = work.spark.createDataFrame(_firing_table(work, watermarks))
    return counted.join(F.broadcast(firings), "window_end_ms", how="left")


def firings(work: Work, in_windows: DataFrame, watermarks: Heard) -> DataFrame:
    """Every pane that each window fired, in order."""
    keys, aggregates = work.definition.source.key, work.definition.aggregates
    at_firing = F.broadcast(work.spark.createDataFrame(_firing_table(work, watermarks)))
    on_time = on_time_firings(in_windows, keys, aggregates).join(at_firing, "window_end_ms", how="left")
    on_time = on_time.withColumns(
        {"pane_index": F.lit(0).cast("long"), "watermark_ms": F.col("watermark_at_firing_ms")}
    )
    late = late_firings(in_windows, keys, aggregates)
    columns = [*keys, *WINDOW, "pane_index", "pane_timing", "watermark_ms", *aggregates]
    both = (
        on_time.withColumn("pane_timing", F.lit(Fate.ON_TIME))
        .select(*columns)
        .unionByName(late.withColumn("pane_timing", F.lit(Fate.LATE)).select(*columns))
    )
    return _with_instants(both)


def dropped(known: DataFrame) -> DataFrame:
    """The side output: records that came when their window was gone."""
    behind = known.where(F.col("fate") == F.lit(Fate.DROPPED))
    times = {f"{name}_time": F.timestamp_millis(f"{name}_time_ms") for name in ("event", "arrival")}
    return behind.withColumns(times)


def quarantined(work: Work) -> DataFrame:
    """Records that cannot be normalised, whole, with the reason."""
    rows = read.with_record(read.rows_of(work.spark, work.paths)).transform(read.normalised(work.definition))
    nothing = Interval(work.chunk.start_ms, work.chunk.start_ms)
    return rows.transform(read.within(nothing, work.owned_files)).withColumns(
        {
            "reason": F.col(read.REASON),
            "event_time": F.col(read.WRITTEN_EVENT_TIME),
            "arrival_time": F.col(read.WRITTEN_ARRIVAL_TIME),
            "file": F.col(read.FILE),
        }
    )


def _with_instants(rows: DataFrame) -> DataFrame:
    """Add the window as instants; milliseconds stay inside."""
    return rows.withColumns({name.removesuffix("_ms"): F.timestamp_millis(name) for name in WINDOW})


def _firing_table(work: Work, watermarks: Heard) -> pa.Table:
    """Each window end that the chunk can have, with the watermark that fires it."""
    window, unit_ms = work.definition.window, work.definition.unit_ms
    first_ms = work.chunk.start_ms + (window.offset - work.chunk.start_ms) % unit_ms
    ends_ms = np.arange(first_ms, work.chunk.end_ms, unit_ms, dtype=np.int64) + window.size
    return pa.table({"window_end_ms": ends_ms, "watermark_at_firing_ms": watermarks.at_firing_ms(ends_ms - 1)})
