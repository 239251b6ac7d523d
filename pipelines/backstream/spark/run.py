"""Running one chunk: what its stages yield is staged for the lake, and a manifest says so."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from backstream.core.fates import Fate
from backstream.core.manifest import Manifest, StagedFile
from backstream.core.plan import Chunk, Plan
from backstream.core.tables import DROPPED, FIRINGS, METRICS, PANES, QUARANTINE, TABLES, WINDOWS
from backstream.spark import chunk as stages
from backstream.spark.chunk import Work
from backstream.spark.metrics import fate_counts
from backstream.spark.stage import Attempt, staged
from backstream.spark.watermarks import Heard

STAGES = ("watermarks", "fates", *(suffix or "windows" for suffix in TABLES))
"""What a chunk goes through, in order; a recompute skips some."""


@dataclass(slots=True)
class _Stopwatch:
    """Seconds per stage, for the manifest; whoever waits is told which stage begins."""

    tell: Callable[[str], None]
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        self.tell(name)
        begin = time.monotonic()
        yield
        self.seconds[name] = round(time.monotonic() - begin, 3)


def replay_chunk(
    spark: SparkSession, plan: Plan, chunk: Chunk, tell: Callable[[str], None] = lambda _: None
) -> Manifest:
    """Run one chunk and leave its manifest; one that is done is not run again.

    Args:
        spark: the session.
        plan: what the chunk belongs to.
        chunk: one of the plan's.
        tell: called with the name of each stage of `STAGES` as it begins.

    Raises:
        ContractError: when the source or a table does not have the columns it promised.
    """
    done = plan.folder.manifest(chunk.chunk_id)
    if done.exists():
        return Manifest.read(done)
    attempt = Attempt(plan.run_id, chunk.chunk_id, uuid.uuid4().hex[:8])
    watch = _Stopwatch(tell)
    made = _run(Work.of(spark, plan, chunk), attempt, watch) if chunk.files else _Made(0, {}, {})
    manifest = Manifest(
        run_id=plan.run_id,
        chunk_id=chunk.chunk_id,
        attempt=attempt.attempt,
        events_read=made.events_read,
        fates=made.fates,
        files={suffix: made.files.get(suffix, ()) for suffix in plan.tables},
        timings_s=watch.seconds,
        finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    manifest.write(done)
    return manifest


_Fates = dict[str, dict[str, int]]
_Files = dict[str, tuple[StagedFile, ...]]


class _Made(NamedTuple):
    """What a chunk yields; `events_read` is counted apart from the fates, which have to add up to it."""

    events_read: int
    fates: _Fates
    files: _Files


def _run(work: Work, attempt: Attempt, watch: _Stopwatch) -> _Made:
    """The input is read once; what several results rest on is kept until they are written."""
    with watch.stage("watermarks"):
        watermarks = stages.stream(work)
    found, counted = stages.records(work, watermarks)
    known = found.persist(StorageLevel.MEMORY_AND_DISK)
    in_windows = stages.assigned(work, known)
    values = stages.valued(work, in_windows).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        with watch.stage("fates"):
            fates = fate_counts(known)
        files: _Files = {}
        for suffix, rows in _results(work, known, in_windows, values, watermarks):
            if suffix == QUARANTINE and not _total(fates, Fate.QUARANTINED):
                continue
            with watch.stage(suffix or "windows"):
                files[suffix] = staged(rows, work.plan.tables[suffix], attempt)
        return _Made(counted.get["events_read"], fates, files)
    finally:
        values.unpersist()
        known.unpersist()


def _results(
    work: Work, known: DataFrame, in_windows: DataFrame, values: DataFrame, watermarks: Heard | None
) -> Iterator[tuple[str, DataFrame]]:
    """What each table of the plan gets."""
    yield WINDOWS, stages.published(work, values)
    yield METRICS, stages.metrics(work, in_windows, watermarks)
    yield QUARANTINE, stages.quarantined(work)
    if watermarks is None:
        return
    yield PANES, values
    yield DROPPED, stages.dropped(known)
    if FIRINGS in work.plan.tables:
        yield FIRINGS, stages.firings(work, in_windows, watermarks)


def _total(fates: _Fates, fate: Fate) -> int:
    return sum(counts.get(fate, 0) for counts in fates.values())
