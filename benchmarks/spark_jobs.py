"""The Spark jobs of a round: hand-written jobs, and the same jobs by backstream."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from backstream.eventtime.instants import HOUR_MS, MINUTE_MS
from backstream.eventtime.windows import FixedWindow, Session, Sliding, Tumbling
from backstream.runs.manifest import sum_fates
from backstream.runs.plan import Mode
from backstream.spark.source import EventFiles
from benchmarks import data, ours
from benchmarks.data import Stream
from benchmarks.jobs import Job, Sums

CHUNKED_DAYS = 30
WINDOWS: dict[str, FixedWindow | Session] = {
    "tumbling": Tumbling(MINUTE_MS),
    "sliding": Sliding(HOUR_MS, 5 * MINUTE_MS),
    "session": Session(30 * MINUTE_MS),
}
_STREAMS: Mapping[str, Callable[[int], Stream]] = {
    "": Stream,
    "quarter: ": lambda rows: Stream(max(1, rows // 4)),
    "hot key: ": lambda rows: Stream(rows, has_hot_key=True),
}
_CUTS = {"30 days in 30 chunks": 1, "30 days uncut": CHUNKED_DAYS}
_NATIVE = {"tumbling, native recompute": Mode.RECOMPUTE, "tumbling, native replay": Mode.REPLAY}
_BY_HAND = {
    "tumbling": lambda: F.window("event_time", "1 minute"),
    "sliding": lambda: F.window("event_time", "1 hour", "5 minutes"),
    "session": lambda: F.session_window("event_time", "30 minutes"),
}


@dataclass(frozen=True, slots=True)
class FrameJob:
    """A job that computes a DataFrame and discards its rows. `sums` names the columns of events and total."""

    name: str
    frame: Callable[[], DataFrame]
    sums: tuple[str, str]

    def run(self) -> None:
        """Compute the DataFrame."""
        _discard(self.frame())

    def checked(self) -> Sums:
        """Compute the DataFrame, and return its sums from the same pass."""
        events, total = self.sums
        observation = Observation()
        counts = (F.count(F.lit(1)).alias("windows"), F.sum(events).alias("events"), F.sum(total).alias("total"))
        _discard(self.frame().observe(observation, *counts))
        return Sums(**{name: int(value or 0) for name, value in observation.get.items()})


@dataclass(frozen=True, slots=True)
class ChunkedJob:
    """A run over days of recorded events. It has a plan, and stages its results for the lake."""

    name: str
    spark: SparkSession
    parquet: Path
    chunk_days: int
    days: int = CHUNKED_DAYS
    mode: Mode = Mode.REPLAY

    def run(self) -> None:
        """Plan and run every chunk."""
        self.checked()

    def checked(self) -> Sums:
        """Plan and run every chunk. Return the published rows and the fates, equal for any chunk size."""
        scratch = self.spark.conf.get("spark.local.dir", None)
        with tempfile.TemporaryDirectory(prefix="backstream-benchmark-", dir=scratch) as home:
            plan = ours.planned(self.parquet, self.days, self.chunk_days, self.mode, Path(home))
            manifests = ours.run_chunks(self.spark, plan)
        fates = sum_fates(manifests).values()
        windows = sum(file.rows for manifest in manifests for file in manifest.files[""])
        return Sums(windows, sum(sum(counts.values()) for counts in fates), 0)


def names() -> list[str]:
    """Return the names of all jobs."""
    return [*(f"{prefix}{name}" for prefix in _STREAMS for name in _frame_job_names()), *_NATIVE, *_CUTS]


def jobs(spark: SparkSession, rows: int, folder: Path, selection: set[str]) -> list[Job]:
    """Return the selected jobs. Write their input if it is absent."""
    result: list[Job] = []
    for prefix, stream in _STREAMS.items():
        if selection & {f"{prefix}{name}" for name in _frame_job_names()}:
            path = data.parquet(spark, stream(rows), folder)
            result += [job for job in _frame_jobs(spark, path, prefix) if job.name in selection]
    if _NATIVE.keys() & selection:
        path = data.parquet(spark, Stream(rows), folder)
        result += [ChunkedJob(name, spark, path, 1, 1, way) for name, way in _NATIVE.items() if name in selection]
    if _CUTS.keys() & selection:
        path = data.parquet(spark, Stream(rows, CHUNKED_DAYS, 6 * CHUNKED_DAYS), folder)
        result += [ChunkedJob(name, spark, path, days) for name, days in _CUTS.items() if name in selection]
    return result


def _frame_job_names() -> list[str]:
    return [f"{window}, {way}" for window in WINDOWS for way in ("by hand", "recompute", "replay")]


def _frame_jobs(spark: SparkSession, path: Path, prefix: str) -> Iterator[FrameJob]:
    for kind, window in WINDOWS.items():
        for name, way, sums in (
            ("by hand", lambda kind=kind: by_hand(spark.read.parquet(str(path)), kind), ("events", "total")),
            ("recompute", partial(_build, spark, path, ours.recompute, window), ("events", "total")),
            ("replay", partial(_build, spark, path, ours.replay, window), ("events__final", "total__final")),
        ):
            yield FrameJob(f"{prefix}{kind}, {name}", way, sums)


def _build(
    spark: SparkSession,
    path: Path,
    way: Callable[[EventFiles, FixedWindow | Session], DataFrame],
    window: FixedWindow | Session,
) -> DataFrame:
    return way(ours.recorded(spark, path), window)


def by_hand(rows: DataFrame, kind: str) -> DataFrame:
    """Return the result of the job that a data engineer writes by hand."""
    values = (F.count("*").alias("events"), F.sum("value").alias("total"))
    return rows.groupBy("key", _BY_HAND[kind]()).agg(*values)


def _discard(frame: DataFrame) -> None:
    writer: Any = frame.write.format("noop").mode("overwrite")
    writer.save()
    frame.sparkSession.catalog.clearCache()  # the next job must not use the cache of this one
