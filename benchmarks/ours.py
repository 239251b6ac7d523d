"""All that the benchmark asks of backstream."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backstream.definition.loader import parse_definition
from backstream.eventtime.instants import DAY_MS, MINUTE_MS
from backstream.eventtime.intervals import Interval
from backstream.eventtime.records import SourceClock
from backstream.eventtime.watermark_generators import StrategyKind, WatermarkStrategy
from backstream.eventtime.watermarks import Emission
from backstream.eventtime.windows import Session
from backstream.runs.home import Home
from backstream.runs.manifest import Manifest
from backstream.runs.plan import Mode, Plan
from backstream.source.arrival_index import ArrivalIndex, BucketGrid
from backstream.source.columns import resolve_columns
from backstream.source.files import inspect_files, list_source_files
from backstream.spark.arrival_index import bucket_events
from backstream.spark.chunk_job import replay_chunks
from backstream.spark.schemas import PARTITION_NUMBER
from backstream.spark.sessions import session_panes
from backstream.spark.sessions.islands import SessionColumns
from backstream.spark.shuffle_free import aggregate_by_time_range
from backstream.spark.source import FILE_SIZE, EventFiles, read_schema
from backstream.spark.watermarks import firing_times_from_index
from backstream.spark.watermarks.firing_times import FiringTimes, WindowGrid
from backstream.spark.watermarks.join import add_watermarks
from backstream.spark.watermarks.partial_streams import timeline_of_files
from backstream.spark.windows import aggregation
from backstream.spark.windows.aggregation import AggregationRequest, profile_events
from backstream.spark.windows.assignment import FixedWindow
from backstream.spark.windows.fates import slice_width_of
from backstream.workflow import plan_run
from benchmarks.data import FIRST_DAY_MS, PARTITIONS

KEYS = ["key"]
AGGREGATES = {"events": "count(*)", "total": "sum(value)"}
DELAY_MS = MINUTE_MS
IDLE_TIMEOUT_MS = 10 * MINUTE_MS
ALLOWED_LATENESS_MS = 5 * MINUTE_MS
EMISSION = Emission(WatermarkStrategy(StrategyKind.BOUNDED, DELAY_MS, 200, IDLE_TIMEOUT_MS))
SOURCE_PARTITIONS = [str(number) for number in range(PARTITIONS)]
CLOCK = SourceClock(FIRST_DAY_MS, 200, FIRST_DAY_MS + DAY_MS)

_DEFINITION = """\
name = "benchmark"

[source]
path = "{path}"
event_time = "event_time"
arrival_time = "arrival_time"
partition = "source_partition"
sequence = "arrival_seq"
key = ["key"]

[window]
kind = "tumbling"
size = "1m"

[watermark]
strategy = "bounded_out_of_orderness"
delay = "1m"
idle_timeout = "10m"

[lateness]
allowed = "5m"

[backfill]
chunk = "{chunk_days}d"

[aggregates]
events = "count(*)"
total = "sum(value)"
"""


def recorded(spark: SparkSession, parquet: Path) -> EventFiles:
    """The stream in a folder of Parquet files."""
    definition = parse_definition(tomllib.loads(_DEFINITION.format(path=parquet, chunk_days=1)), "benchmark")
    found = inspect_files(list_source_files(definition.source, "benchmark"), definition.source)
    schema = read_schema(resolve_columns(found.shapes, definition, "benchmark").types)
    return EventFiles(spark, found.inputs, lambda paths: normalised(spark.read.schema(schema).parquet(*paths)))


def recompute(stream: EventFiles, window: FixedWindow | Session) -> DataFrame:
    """Per key and window `events` and `total`, by event time alone."""
    if isinstance(window, Session):
        return session_panes.aggregate_sessions(_sessions(stream.all(), window, is_replay=False))
    return _grouped(stream, window, aggregation.aggregate_windows)


def replay(stream: EventFiles, window: FixedWindow | Session) -> DataFrame:
    """What a stream with bounded watermarks, idleness and allowed lateness had made of the same rows.

    Finding the watermarks is part of it, and happens here.

    Returns:
        Per key and window how many records met which fate, and `events__final` and `total__final` beside the
        values first and live.
    """
    if isinstance(window, Session):
        return session_panes.session_panes(_sessions(_met(stream), window, is_replay=True))
    judged = thresholds(stream.all(), window, _grid(window), CLOCK, SOURCE_PARTITIONS).as_columns(stream.spark)
    return _grouped(stream, window, lambda some, grouping: aggregation.aggregate_panes(some, grouping, judged))


def _grid(window: FixedWindow) -> WindowGrid:
    """The windows of the day and of the one before it, where the first events and windows began."""
    return WindowGrid.from_window(window, Interval(FIRST_DAY_MS - DAY_MS, FIRST_DAY_MS + DAY_MS))


def _grouped(
    stream: EventFiles, window: FixedWindow, grouped: Callable[[DataFrame, AggregationRequest], DataFrame]
) -> DataFrame:
    """A stretch of time per task if the files allow it, else as a sample of the events says."""
    grid = _grid(window)
    rows = sum(file.rows for file in stream.files)
    if rows >= aggregation.MANY_EVENTS:
        found = aggregate_by_time_range(
            stream,
            window,
            grid,
            lambda some, asked: grouped(some, AggregationRequest(window, asked, KEYS, AGGREGATES)),
        )
        if found is not None:
            return found
    events = stream.all()
    shape = profile_events(events, rows, KEYS, slice_width_of(window))
    return grouped(events, AggregationRequest(window, grid.as_columns(stream.spark), KEYS, AGGREGATES, shape))


def thresholds(
    events: DataFrame, window: FixedWindow, grid: WindowGrid, clock: SourceClock, partitions: list[str]
) -> FiringTimes:
    """When each window fired and was gone, from a first pass over the stream."""
    buckets = BucketGrid.from_window(window, EMISSION, ALLOWED_LATENESS_MS)
    of_files = events.withColumn(FILE_SIZE, F.col("_metadata.file_size"))
    index = ArrivalIndex(bucket_events(of_files, buckets, [FILE_SIZE]).toArrow())
    return firing_times_from_index.firing_times_from_index(
        index, buckets, grid, EMISSION, clock, ALLOWED_LATENESS_MS, partitions
    )


def _met(stream: EventFiles) -> DataFrame:
    """All events with the watermark that each of them met, which sessions need."""
    heard = timeline_of_files(stream, EMISSION, CLOCK, SOURCE_PARTITIONS)
    return stream.all().transform(add_watermarks(stream.spark, heard, CLOCK))


def _sessions(events: DataFrame, window: Session, *, is_replay: bool) -> session_panes.Sessions:
    columns = SessionColumns.from_settings(window.gap_ms, ALLOWED_LATENESS_MS)
    these = session_panes.find_sessions(events, KEYS, columns, AGGREGATES, is_replay=is_replay)
    if not is_replay:
        return these
    return session_panes.persist_sessions(these, lambda frame: frame.persist(StorageLevel.MEMORY_AND_DISK))


def planned(parquet: Path, days: int, chunk_days: int, mode: Mode, home: Path) -> Plan:
    """The real plan of a run over tumbling windows, by the real planner."""
    home.mkdir(parents=True, exist_ok=True)
    definition = home / "benchmark.toml"
    definition.write_text(_DEFINITION.format(path=parquet, chunk_days=chunk_days))
    until_ms = FIRST_DAY_MS + days * DAY_MS
    return plan_run(definition, FIRST_DAY_MS, until_ms, mode=mode, trigger="benchmark", home=Home(home))


def run_chunks(spark: SparkSession, plan: Plan) -> list[Manifest]:
    """Every chunk of the plan, in this application."""
    return list(replay_chunks(spark, plan, plan.chunks))


def normalised(rows: DataFrame) -> DataFrame:
    """Integer milliseconds, from the same columns that everybody else reads."""
    return rows.select(
        F.unix_millis("event_time").alias("event_time_ms"),
        F.unix_millis("arrival_time").alias("arrival_time_ms"),
        F.col("source_partition").cast("string").alias("source_partition"),
        F.col("source_partition").alias(PARTITION_NUMBER),
        "arrival_seq",
        "key",
        "value",
    )
