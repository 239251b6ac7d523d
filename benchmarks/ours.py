"""The functions of backstream that the benchmark calls."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backstream.chunks.replay import replay_chunks
from backstream.definition.loader import parse_definition
from backstream.eventtime.emission import Emission
from backstream.eventtime.instants import DAY_MS, MINUTE_MS
from backstream.eventtime.intervals import Interval
from backstream.eventtime.records import SourceClock
from backstream.eventtime.watermark_generators import StrategyKind, WatermarkStrategy
from backstream.eventtime.windows import FixedWindow, Session
from backstream.runs.home import Home
from backstream.runs.manifest import Manifest
from backstream.runs.plan import Mode, Plan
from backstream.source.arrival_index import ArrivalIndex, BucketGrid
from backstream.source.columns import resolve_columns
from backstream.source.files import inspect_files, list_source_files
from backstream.spark.arrival_index import bucket_events
from backstream.spark.engine import SparkEngine
from backstream.spark.schemas import PARTITION_NUMBER
from backstream.spark.sessions import found_sessions, session_panes
from backstream.spark.sessions.islands import SessionColumns
from backstream.spark.shuffle_free import aggregate_by_time_range, compress_files
from backstream.spark.source import FILE_SIZE, EventFiles, read_schema
from backstream.spark.watermarks.firing_time_columns import FiringTimeColumns, GridColumns
from backstream.spark.watermarks.join import add_watermarks
from backstream.spark.windows import aggregation
from backstream.spark.windows.aggregation import AggregationRequest, profile_events
from backstream.watermarks import firing_times_from_index
from backstream.watermarks.cells import timeline_of_maxima
from backstream.watermarks.firing_times import FiringTimes, WindowGrid
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.plan.planning import plan_run
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
    """Return the stream in a folder of Parquet files."""
    definition = parse_definition(tomllib.loads(_DEFINITION.format(path=parquet, chunk_days=1)), "benchmark")
    inspection = inspect_files(list_source_files(definition.source, "benchmark"), definition.source)
    schema = read_schema(resolve_columns(inspection.shapes, definition, "benchmark").types)
    return EventFiles(
        spark, inspection.inputs, lambda paths: normalised(spark.read.schema(schema).parquet(*paths))
    )


def recompute(stream: EventFiles, window: FixedWindow | Session) -> DataFrame:
    """Return `events` and `total` per key and window, by event time alone."""
    if isinstance(window, Session):
        return found_sessions.aggregate_sessions(_sessions(stream.all(), window, is_replay=False))
    return _aggregate(stream, window, aggregation.aggregate_windows)


def replay(stream: EventFiles, window: FixedWindow | Session) -> DataFrame:
    """Compute the result of a stream over the same rows, with bounded watermarks, idleness and allowed lateness.

    This includes the computation of the watermarks.

    Returns:
        The number of records of each fate per key and window, and `events__final` and `total__final` beside the
        first and the live values.
    """
    if isinstance(window, Session):
        return session_panes.session_panes(_sessions(_join_watermarks(stream), window, is_replay=True))
    values = thresholds(stream.all(), window, _grid(window), CLOCK, SOURCE_PARTITIONS)
    firing_times = FiringTimeColumns(stream.spark, values)
    return _aggregate(
        stream, window, lambda part, grouping: aggregation.aggregate_panes(part, grouping, firing_times)
    )


def _grid(window: FixedWindow) -> WindowGrid:
    """Return the windows of the day and of the day before, in which the first events and windows began."""
    return WindowGrid.from_window(window, Interval(FIRST_DAY_MS - DAY_MS, FIRST_DAY_MS + DAY_MS))


def _aggregate(
    stream: EventFiles, window: FixedWindow, aggregate: Callable[[DataFrame, AggregationRequest], DataFrame]
) -> DataFrame:
    """Aggregate one time range per task if the files allow it. Otherwise, let a sample of the events decide."""
    grid = _grid(window)
    rows = sum(file.rows for file in stream.files)
    if rows >= aggregation.MANY_EVENTS:
        frame = aggregate_by_time_range(
            stream,
            window,
            grid,
            lambda part, grid_columns: aggregate(part, AggregationRequest(window, grid_columns, KEYS, AGGREGATES)),
        )
        if frame is not None:
            return frame
    events = stream.all()
    shape = profile_events(events, rows, KEYS, window.slice_ms)
    columns = GridColumns.from_grid(stream.spark, grid)
    return aggregate(events, AggregationRequest(window, columns, KEYS, AGGREGATES, shape))


def thresholds(
    events: DataFrame, window: FixedWindow, grid: WindowGrid, clock: SourceClock, partitions: list[str]
) -> FiringTimes:
    """Return the times at which each window fired and expired, from a first pass over the stream."""
    buckets = BucketGrid.from_window(window, EMISSION, ALLOWED_LATENESS_MS)
    events_with_size = events.withColumn(FILE_SIZE, F.col("_metadata.file_size"))
    index = ArrivalIndex(bucket_events(events_with_size, buckets, [FILE_SIZE]).toArrow())
    return firing_times_from_index.firing_times_from_index(
        index, buckets, grid, EMISSION, clock, ALLOWED_LATENESS_MS, partitions
    )


def _join_watermarks(stream: EventFiles) -> DataFrame:
    """Return all events, each with the watermark at its arrival. Sessions need it."""
    cells = compress_files(stream, EMISSION, CLOCK)
    timeline = timeline_of_maxima(cells, EMISSION, CLOCK, list(SOURCE_PARTITIONS))
    return stream.all().transform(add_watermarks(stream.spark, timeline, CLOCK))


def _sessions(events: DataFrame, window: Session, *, is_replay: bool) -> found_sessions.Sessions:
    columns = SessionColumns.from_settings(window, ALLOWED_LATENESS_MS)
    sessions = found_sessions.find_sessions(events, KEYS, columns, AGGREGATES, is_replay=is_replay)
    if not is_replay:
        return sessions
    return found_sessions.persist_sessions(sessions, lambda frame: frame.persist(StorageLevel.MEMORY_AND_DISK))


def planned(parquet: Path, days: int, chunk_days: int, mode: Mode, home: Path) -> Plan:
    """Return the plan of a run over tumbling windows. The real planner creates it."""
    home.mkdir(parents=True, exist_ok=True)
    definition = home / "benchmark.toml"
    definition.write_text(_DEFINITION.format(path=parquet, chunk_days=chunk_days))
    until_ms = FIRST_DAY_MS + days * DAY_MS
    return plan_run(
        PlanRequest(definition, Interval(FIRST_DAY_MS, until_ms), mode=mode, trigger="benchmark", home=Home(home))
    )


def run_chunks(spark: SparkSession, plan: Plan) -> list[Manifest]:
    """Run all chunks of the plan in this Spark application, and return their manifests."""
    return list(replay_chunks(SparkEngine(spark), plan, plan.chunks))


def normalised(rows: DataFrame) -> DataFrame:
    """Return the events with times in integer milliseconds, from the same columns that the other engines read."""
    return rows.select(
        F.unix_millis("event_time").alias("event_time_ms"),
        F.unix_millis("arrival_time").alias("arrival_time_ms"),
        F.col("source_partition").cast("string").alias("source_partition"),
        F.col("source_partition").alias(PARTITION_NUMBER),
        "arrival_seq",
        "key",
        "value",
    )
