"""Running one chunk: what its stages yield is staged for the lake, and a manifest says so."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import NamedTuple

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backstream.core.fates import Fate
from backstream.core.manifest import Manifest, StagedFile
from backstream.core.pins import finished
from backstream.core.plan import Chunk, Plan
from backstream.core.tables import DROPPED, FIRINGS, METRICS, PANES, QUARANTINE, TABLES, WINDOWS
from backstream.core.windows import Session
from backstream.spark.sessions.results import SessionWindows
from backstream.spark.stage import Attempt, staged, writable
from backstream.spark.streams.lateness import lateness, played
from backstream.spark.windows.metrics import Counts
from backstream.spark.windows.results import FixedWindows
from backstream.spark.work import Work, quarantined

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


AT_ONCE = 2
"""Chunks that run at the same time: while Spark plans one of them, the cores work on the other."""


def replay_chunks(
    spark: SparkSession,
    plan: Plan,
    chunks: Sequence[Chunk],
    tell: Callable[[Chunk, str], None] = lambda _, __: None,
) -> Iterator[Manifest]:
    """Run chunks in one application; the manifest of each as soon as it is done.

    When one fails, no other is begun, and those that run are finished: a retry finds them done.

    Args:
        spark: the session.
        plan: what the chunks belong to.
        chunks: some of the plan's.
        tell: called with the chunk and the name of each stage of `STAGES` as it begins; from several threads.

    Raises:
        ContractError: when the source or a table does not have the columns it promised.
    """
    waiting, running = iter(chunks), set[Future[Manifest]]()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            while (
                begun := [
                    pool.submit(replay_chunk, spark, plan, chunk, partial(tell, chunk))
                    for chunk in islice(waiting, AT_ONCE - len(running))
                ]
                or running
            ):
                done, running = wait(running.union(begun), return_when=FIRST_COMPLETED)
                yield from (each.result() for each in done)
        except (KeyboardInterrupt, GeneratorExit):
            spark.sparkContext.cancelAllJobs()
            raise


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
        StorageError: when a disk is full, or must not be written.
    """
    if done := finished(plan, chunk):
        return done
    attempt = Attempt(plan, chunk.chunk_id, uuid.uuid4().hex[:8])
    watch = _Stopwatch(tell)
    with writable(spark, plan, chunk):
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
    manifest.write(plan.folder.manifest(chunk.chunk_id))
    return manifest


_Fates = dict[str, dict[str, int]]
_Files = dict[str, tuple[StagedFile, ...]]


Keep = Callable[[DataFrame], DataFrame]
"""Keeps a frame until the chunk is done."""


class _Made(NamedTuple):
    """What a chunk yields; `events_read` is counted apart from the fates, which have to add up to it."""

    events_read: int
    fates: _Fates
    files: _Files


Results = FixedWindows | SessionWindows


def _run(work: Work, attempt: Attempt, watch: _Stopwatch) -> _Made:
    """What several results rest on is kept until they are written."""
    with _kept() as keep:
        with watch.stage("watermarks"):
            results = results_of(work, keep)
        with watch.stage("fates"):
            known, tally = results.records()
            if work.definition.source.deduplicate_on:
                known = keep(known)  # finding copies compares all records
            counts = results.counts(known)
            counts = replace(counts, rows=keep(counts.rows))
            fates = counts.fates()
        found: _Files = {}
        values = keep(results.values(known)) if work.is_replay else results.values(known)
        for suffix, rows in tables(work, results, Kept(known, counts, values), _kinds(fates)):
            with watch.stage(suffix or "windows"):
                # Quarantine keeps times as they were written.
                ready = rows if suffix == QUARANTINE else _with_instants(rows)
                found[suffix] = staged(ready, suffix, attempt)
        return _Made(tally.get["events_read"], fates, found)


def results_of(work: Work, keep: Keep) -> Results:
    """What the chunk yields, by the kind of its windows; no job is run yet, or small ones."""
    window = work.definition.window.spec()
    if isinstance(window, Session):
        return SessionWindows(work, window, played(work) if work.is_replay else None, keep)
    return FixedWindows(work, window, lateness(work, window))


class Kept(NamedTuple):
    """What a chunk's tables are made of."""

    known: DataFrame
    counts: Counts
    values: DataFrame


@contextmanager
def _kept() -> Iterator[Keep]:
    """What is kept in memory or on disk is given back at the end."""
    frames: list[DataFrame] = []

    def keep(frame: DataFrame) -> DataFrame:
        frames.append(frame.persist(StorageLevel.MEMORY_AND_DISK))
        return frames[-1]

    try:
        yield keep
    finally:
        for frame in frames:
            frame.unpersist()


def tables(work: Work, results: Results, kept: Kept, fates: set[str]) -> Iterator[tuple[str, DataFrame]]:
    """What each table of the plan gets; none of those that would be empty."""
    yield WINDOWS, _published(work, kept.values)
    yield METRICS, kept.counts.metrics()
    if Fate.QUARANTINED in fates:
        yield QUARANTINE, quarantined(work)
    if not work.is_replay:
        return
    yield PANES, kept.values
    if Fate.DROPPED in fates:
        yield DROPPED, results.dropped(kept.known)
    if FIRINGS in work.plan.tables:
        yield FIRINGS, results.firings(kept.known)


def _published(work: Work, values: DataFrame) -> DataFrame:
    """The rows of the published table: of a replay, the pane that the definition publishes."""
    if not work.is_replay:
        return values
    pane = work.definition.backfill.publish
    existing = values.where(F.col(f"{pane}_events") > F.lit(0))
    return existing.withColumns({name: F.col(f"{name}__{pane}") for name in work.definition.aggregates})


def _with_instants(rows: DataFrame) -> DataFrame:
    """Milliseconds stay inside; people get instants."""
    names = ("window_start", "window_end", "event_time", "arrival_time")
    inside = [name for name in names if f"{name}_ms" in rows.columns]
    return rows.withColumns({name: F.timestamp_millis(f"{name}_ms") for name in inside})


def _kinds(fates: _Fates) -> set[str]:
    """The fates that some record had."""
    return {fate for counts in fates.values() for fate, count in counts.items() if count}
