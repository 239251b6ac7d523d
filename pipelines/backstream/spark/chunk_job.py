"""Running chunks: what their stages yield is staged for the lake, and a manifest of each says so.

Small chunks that lie side by side run together, as if they were one: what a Spark job costs however little it does
is then paid once for all. Their results are staged apart, so that a chunk is the same whichever it ran with.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice
from typing import NamedTuple

import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backstream.errors import CountError
from backstream.eventtime.records import Fate
from backstream.eventtime.windows import Session
from backstream.runs.chunk_groups import group_chunks
from backstream.runs.manifest import Manifest, load_finished_chunks
from backstream.runs.plan import Chunk, Plan
from backstream.runs.table_schemas import (
    DROPPED,
    FIRINGS,
    METRICS,
    PANES,
    QUARANTINE,
    RECORD_COUNT,
    WINDOWS,
    pane_count,
)
from backstream.spark.chunk_group import CHUNK, SCANNED, ChunkGroup, load_quarantine, read_count_name
from backstream.spark.native import sessions as native_sessions
from backstream.spark.native import windows as native_windows
from backstream.spark.native.engine import can_fall_back, is_native, task_error_text
from backstream.spark.native.outputs import make_scratch, remove_scratch, stage_metrics
from backstream.spark.sessions.session_windows import SessionWindows
from backstream.spark.shared_folder import require_shared_folder
from backstream.spark.staging import Attempt, Staged, explain_write_errors, load_staged_rows, write_staged_files
from backstream.spark.watermarks.resolve import resolve_lateness
from backstream.spark.windows.fate_counts import FateCounts
from backstream.spark.windows.fixed_windows import FixedWindows

log = logging.getLogger(__name__)

STAGES = ("watermarks", "fates", PANES, "windows", METRICS, QUARANTINE, DROPPED, FIRINGS)
"""What chunks go through, in order; a recompute skips some."""


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
"""How many jobs of chunks run at the same time: while Spark plans one of them, the cores work on the other."""


def replay_chunks(
    spark: SparkSession,
    plan: Plan,
    chunks: Sequence[Chunk],
    tell: Callable[[Chunk, str], None] = lambda _, __: None,
) -> Iterator[Manifest]:
    """Run chunks in one application; the manifest of each as soon as it is done. Those that are done are not run.

    Which run as one, the definition says (`backfill.max_events_per_job`). When some fail, no others are begun, and
    those that run are finished: a retry finds them done.

    Args:
        spark: the session.
        plan: what the chunks belong to.
        chunks: some of the plan's, in its order.
        tell: called with the chunk and the name of each stage of `STAGES` as it begins; from several threads.

    Raises:
        ContractError: when the source or a table does not have the columns it promised.
        CountError: when rows or records are lost or doubled on the way, or executors write where nobody sees it.
        PlanError: when an input file was written anew while it was read for the arrival index.
        StorageError: when a disk is full, or must not be written.
    """
    done_before = {chunk.chunk_id: manifest for chunk in chunks if (manifest := load_finished_chunks(plan, chunk))}
    yield from done_before.values()
    undone = [chunk for chunk in chunks if chunk.chunk_id not in done_before]
    if undone:
        require_shared_folder(spark, plan.staging(WINDOWS))
    work = ChunkGroup.from_plan(spark, plan, undone)
    waiting = group_chunks(undone, work.definition.backfill.max_events_per_job)
    running = set[Future[list[Manifest]]]()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            while (
                begun := [
                    pool.submit(_replay, replace(work, chunks=several), tell)
                    for several in islice(waiting, AT_ONCE - len(running))
                ]
                or running
            ):
                done, running = wait(running.union(begun), return_when=FIRST_COMPLETED)
                for each in done:
                    yield from each.result()
        except (KeyboardInterrupt, GeneratorExit):
            spark.sparkContext.cancelAllJobs()
            raise


def replay_chunk(spark: SparkSession, plan: Plan, chunk: Chunk) -> Manifest:
    """Run one chunk by itself; see `replay_chunks`."""
    (manifest,) = replay_chunks(spark, plan, [chunk])
    return manifest


def _replay(work: ChunkGroup, tell: Callable[[Chunk, str], None]) -> list[Manifest]:
    """Run chunks as one, and leave their manifests."""
    plan, chunks = work.plan, work.chunks

    def tell_each(stage: str) -> None:
        for chunk in chunks:
            tell(chunk, stage)

    attempt, watch = _new_attempt(work), _Stopwatch(tell_each)
    with explain_write_errors(work.spark, attempt):
        made = _run(work, attempt, watch) if any(chunk.files for chunk in chunks) else _Made(attempt, {}, {}, {})
    now = datetime.now(UTC).isoformat(timespec="seconds")
    manifests = [made.manifest(number, watch.seconds, now) for number in range(len(chunks))]
    for manifest in manifests:
        manifest.write(plan.folder.manifest(manifest.chunk_id))
    return manifests


def _new_attempt(work: ChunkGroup) -> Attempt:
    return Attempt(work.plan, work.chunks, uuid.uuid4().hex[:8])


_Fates = dict[int, dict[str, dict[str, int]]]
"""Number of the chunk, to source partition, to fate, to number of records."""


Keep = Callable[[DataFrame], DataFrame]
"""Keeps a frame until the chunks are done."""


class _Made(NamedTuple):
    """What chunks yield, by number; `events_read` is counted apart from the fates, which have to add up to it."""

    attempt: Attempt
    events_read: dict[int, int]
    fates: _Fates
    files: dict[str, Staged]

    def manifest(self, number: int, seconds: dict[str, float], finished_at: str) -> Manifest:
        """That of one chunk, with its part of the seconds that all took."""
        attempt = self.attempt
        share = 1 / len(attempt.chunks)
        return Manifest(
            run_id=attempt.plan.run_id,
            chunk_id=attempt.chunks[number].chunk_id,
            attempt=attempt.attempt,
            events_read=self.events_read.get(number, 0),
            fates=self.fates.get(number, {}),
            files={suffix: self.files.get(suffix, {}).get(number, ()) for suffix in attempt.plan.tables},
            timings_s={stage: round(each * share, 3) for stage, each in seconds.items()},
            finished_at=finished_at,
        )


Results = FixedWindows | SessionWindows


def _run(work: ChunkGroup, attempt: Attempt, watch: _Stopwatch) -> _Made:
    """What several results rest on is kept until they are written.

    Records are counted while values are computed: each has times when Spark plans and the cores wait.
    """
    with _kept() as keep, ThreadPoolExecutor(1) as beside:
        with watch.stage("watermarks"):
            results = window_results(work, keep)
        if is_native(work):
            try:
                return _run_natively(work, attempt, watch, results)
            except Exception as error:
                if not can_fall_back(work.definition, error):
                    raise
                log.warning("%s; Spark computes %s instead", task_error_text(error), attempt)
                attempt = _new_attempt(work)  # tasks have left files, and some may still be writing
        known, tallied, tally, rows_by_footer = results.records()
        if work.definition.source.deduplicate_on:
            known = tallied = keep(tallied)  # finding copies compares all records
        counts = results.counts(tallied)
        counts = replace(counts, rows=keep(counts.rows))

        def counted() -> _Fates:
            with watch.stage("fates"):
                fates = counts.fates()
                _require_all_read(attempt, rows_by_footer, tally.get[SCANNED])
                return fates

        counting = beside.submit(counted)
        found: dict[str, Staged] = {}

        def staged_panes() -> DataFrame | None:
            return load_staged_rows(work.spark, work.plan, PANES, found[PANES])

        made = TableFrames(known, counts, results.values(known), staged_panes, lambda: _kinds(counting.result()))
        for suffix, rows in table_frames(work, results, made):
            with watch.stage(suffix or "windows"):
                found[suffix] = _staged(rows, suffix, attempt)
        _require_all_records(attempt, results.records_in_windows(counts), found, work.definition.backfill.publish)
        events_read = {number: tally.get[read_count_name(number)] for number in range(len(work.chunks))}
        return _Made(attempt, events_read, counting.result(), found)


def _run_natively(work: ChunkGroup, attempt: Attempt, watch: _Stopwatch, results: Results) -> _Made:
    """Have windows computed and records counted outside of Spark, and the other tables made of that."""
    make_scratch(attempt)
    try:
        with watch.stage(PANES if work.is_replay else "windows"):
            if isinstance(results, SessionWindows):
                computed = native_sessions.compute_sessions(work, results, attempt)
            else:
                computed = native_windows.compute_windows(work, results, attempt)
        counts, found = computed.counts, dict(computed.files)
        with watch.stage("fates"):
            fates = counts.fates()
            _require_all_read(attempt, computed.rows_by_footer, computed.scanned)
        with watch.stage(METRICS):
            found[METRICS] = stage_metrics(work, counts, attempt)
        for suffix, rows in _tables_of_records(work, results, _kinds(fates) - {Fate.DROPPED}):
            with watch.stage(suffix):
                found[suffix] = _staged(rows, suffix, attempt)
        _require_all_records(attempt, computed.records_in_windows, found, work.definition.backfill.publish)
        return _Made(attempt, counts.read(), fates, found)
    finally:
        remove_scratch(attempt)


def _staged(rows: DataFrame, suffix: str, attempt: Attempt) -> Staged:
    # Quarantine keeps times as they were written.
    return write_staged_files(rows if suffix == QUARANTINE else _with_instants(rows), suffix, attempt)


def _require_all_read(attempt: Attempt, expected: int, scanned: int) -> None:
    """Check that the files gave as many rows as their footers said when the run was planned.

    Raises:
        CountError: naming both numbers.
    """
    if scanned != expected:
        msg = (
            f"the input files of {attempt} have {expected:,} rows by their footers, {scanned:,} were read\n\n"
            "hint: if a file was replaced meanwhile, plan the range anew; each executor must see the same files"
        )
        raise CountError(msg)


def _require_all_records(attempt: Attempt, expected: int, found: Mapping[str, Staged], published: str) -> None:
    """Check that the rows which hold all records of their windows are made of as many as have such a fate.

    Raises:
        CountError: naming both numbers.
    """
    suffix = PANES if PANES in attempt.plan.tables else WINDOWS
    counted = sum(file.records for files in found.get(suffix, {}).values() for file in files)
    if counted != expected:
        name = attempt.plan.tables[suffix].name
        msg = (
            f"the rows staged for table `{name}` are made of {counted:,} records, its windows hold {expected:,}\n"
            f"  {attempt}\n\nhint: run the same again; if it says so again, report it: this must not happen"
        )
        raise CountError(msg)
    if suffix == PANES:
        _require_all_published(attempt, published, found)


def _require_all_published(attempt: Attempt, pane: str, found: Mapping[str, Staged]) -> None:
    """Check that each pane of the kind that is published has a row in the table that readers see."""
    windows, panes = (
        [file for files in found.get(suffix, {}).values() for file in files] for suffix in (WINDOWS, PANES)
    )
    counts = [pq.read_table(file.path, columns=[pane_count(pane)], partitioning=None)[0] for file in panes]
    fired = [column.filter(pc.greater(column, 0)) for column in counts]
    wanted = sum(map(len, fired)), sum(pc.sum(column).as_py() or 0 for column in fired)
    written = sum(file.rows for file in windows), sum(file.records for file in windows)
    if wanted != written:
        tables = attempt.plan.tables
        msg = (
            f"table `{tables[WINDOWS].name}` would get {written[0]:,} rows of {written[1]:,} records,"
            f" the {pane} panes in `{tables[PANES].name}` are {wanted[0]:,} of {wanted[1]:,}\n"
            f"  {attempt}\n\nhint: run the same again; if it says so again, report it: this must not happen"
        )
        raise CountError(msg)


def window_results(work: ChunkGroup, keep: Keep) -> Results:
    """What chunks yield, by the kind of their windows; jobs are run for the watermarks only."""
    window = work.definition.window.spec()
    if isinstance(window, Session):
        return SessionWindows.from_group(work, window, keep)
    return FixedWindows(work, window, resolve_lateness(work, window))


class TableFrames(NamedTuple):
    """What tables are made of.

    `values` are computed for one table only: of a replay for the panes, and what they are as `staged_panes` makes
    the others. To read them again is cheaper than to keep them, and takes no memory.
    """

    known: DataFrame
    counts: FateCounts
    values: DataFrame
    staged_panes: Callable[[], DataFrame | None]
    fates: Callable[[], set[str]]
    """Those that some record had, once the records are counted, which `counts` keeps."""


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


def table_frames(work: ChunkGroup, results: Results, made: TableFrames) -> Iterator[tuple[str, DataFrame]]:
    """What each table of the plan gets, with `CHUNK`; none of those that would be empty.

    Each is to be staged before the next is asked for.
    """

    def by_window(rows: DataFrame) -> DataFrame:
        return rows.withColumn(CHUNK, work.chunk_number_at(F.col("window_start_ms")))

    if not work.is_replay:
        yield WINDOWS, by_window(made.values)
    else:
        yield PANES, by_window(made.values)
        if (panes := made.staged_panes()) is not None:
            yield WINDOWS, by_window(_published(work, panes))
    yield METRICS, by_window(made.counts.metrics())
    yield from _tables_of_records(work, results, made.fates(), made.known)


def _tables_of_records(
    work: ChunkGroup, results: Results, fates: set[str], known: DataFrame | None = None
) -> Iterator[tuple[str, DataFrame]]:
    """What the tables get that are made of single records: of these, or else of all."""
    if Fate.QUARANTINED in fates:
        yield QUARANTINE, load_quarantine(work)
    if not work.is_replay:
        return
    if Fate.DROPPED in fates:
        yield DROPPED, results.dropped(known or results.records().columns)
    if FIRINGS in work.plan.tables:
        firings = results.firings(known or results.records().columns)
        yield FIRINGS, firings.withColumn(CHUNK, work.chunk_number_at(F.col("window_start_ms")))


def _published(work: ChunkGroup, panes: DataFrame) -> DataFrame:
    """The rows of the published table: the pane that the definition publishes."""
    pane = work.definition.backfill.publish
    count = F.col(pane_count(pane))
    existing = panes.where(count > F.lit(0)).withColumn(RECORD_COUNT, count)
    return existing.withColumns({name: F.col(f"{name}__{pane}") for name in work.definition.aggregates})


def _with_instants(rows: DataFrame) -> DataFrame:
    """Milliseconds stay inside; people get instants."""
    names = ("window_start", "window_end", "event_time", "arrival_time")
    inside = [name for name in names if f"{name}_ms" in rows.columns]
    return rows.withColumns({name: F.timestamp_millis(f"{name}_ms") for name in inside})


def _kinds(fates: _Fates) -> set[str]:
    """The fates that some record had."""
    return {
        fate
        for partitions in fates.values()
        for counts in partitions.values()
        for fate, count in counts.items()
        if count
    }
