"""Run chunks of a plan, stage their output files, and write one manifest per chunk.

Small adjacent chunks run as one group, so that the fixed cost of a Spark job is paid once. Their results are
staged separately, so a chunk has the same files in any group.
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
from backstream.runs.manifest import Manifest, StagedFile, load_finished_manifest
from backstream.runs.plan import Chunk, Plan
from backstream.runs.table_schemas import (
    DROPPED,
    FIRINGS,
    METRICS,
    OUTPUTS,
    PANES,
    QUARANTINE,
    RECORD_COUNT,
    SKIPPED,
    WINDOWS,
    WITHHELD,
    pane_count_column,
)
from backstream.spark.chunk_group import CHUNK, SCANNED, ChunkGroup, load_quarantine, read_count_name
from backstream.spark.native import sessions as native_sessions
from backstream.spark.native import windows as native_windows
from backstream.spark.native.engine import can_fall_back, is_native, task_error_text
from backstream.spark.native.outputs import make_scratch, remove_scratch, stage_metrics
from backstream.spark.process_functions import ProcessResult, compute_process
from backstream.spark.sessions.session_windows import SessionWindows
from backstream.spark.shared_folder import require_shared_folder
from backstream.spark.staging import Attempt, Staged, explain_write_errors, load_staged_rows, write_staged_files
from backstream.spark.user_functions import explain_function_errors, register_functions
from backstream.spark.user_jobs import JobCall, JobResult
from backstream.spark.watermarks.cache import WatermarkCache
from backstream.spark.watermarks.resolve import resolve_lateness, resolve_process_lateness
from backstream.spark.windows.fate_counts import FateCounts
from backstream.spark.windows.fixed_windows import FixedWindows
from backstream.spark.windows.result_rows import add_derived, add_derived_to_panes, count_withheld, published_rows

log = logging.getLogger(__name__)

STAGES = (
    "watermarks",
    "fates",
    PANES,
    "windows",
    WITHHELD,
    SKIPPED,
    OUTPUTS,
    METRICS,
    QUARANTINE,
    DROPPED,
    FIRINGS,
)
"""The stages of a chunk, in order; a recompute skips some."""


@dataclass(slots=True)
class _Stopwatch:
    """Seconds per stage for the manifest; `tell` is called when a stage begins."""

    tell: Callable[[str], None]
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        self.tell(name)
        begin = time.monotonic()
        yield
        self.seconds[name] = round(time.monotonic() - begin, 3)


AT_ONCE = 2
"""The number of chunk groups that run in parallel: while Spark plans one of them, the cores work on the other."""


def replay_chunks(
    spark: SparkSession,
    plan: Plan,
    chunks: Sequence[Chunk],
    tell: Callable[[Chunk, str], None] = lambda _, __: None,
) -> Iterator[Manifest]:
    """Run chunks in one application, and yield the manifest of each chunk when it is done.

    Finished chunks don't run again. `backfill.max_events_per_job` controls which chunks run as one group. After a
    failure, no new group starts; running groups finish, so a retry can reuse them.

    Args:
        spark: the session.
        plan: the plan of the chunks.
        chunks: some chunks of the plan, in its order.
        tell: called from several threads with the chunk and the name of a stage of `STAGES` when the stage begins.

    Raises:
        ContractError: when the source or a table lacks promised columns.
        CountError: when rows or records are lost or duplicated, or executors write to a folder that the driver
            can't see.
        PlanError: when an input file was replaced while it was read for the arrival index.
        StorageError: when a disk is full or read-only.
    """
    finished = {chunk.chunk_id: manifest for chunk in chunks if (manifest := load_finished_manifest(plan, chunk))}
    yield from finished.values()
    unfinished = [chunk for chunk in chunks if chunk.chunk_id not in finished]
    if unfinished:
        require_shared_folder(spark, plan.staging(WINDOWS))
    # All groups of this job are copies of one group, so they share its watermarks.
    group = replace(ChunkGroup.from_plan(spark, plan, unfinished), watermarks=WatermarkCache())
    register_functions(spark, group.definition)
    groups = group_chunks(unfinished, group.definition.max_events_per_job)
    running = set[Future[list[Manifest]]]()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            while (
                started := [
                    pool.submit(_run_group, replace(group, chunks=group_members), tell)
                    for group_members in islice(groups, AT_ONCE - len(running))
                ]
                or running
            ):
                done, running = wait(running.union(started), return_when=FIRST_COMPLETED)
                for future in done:
                    yield from future.result()
        except (KeyboardInterrupt, GeneratorExit):
            spark.sparkContext.cancelAllJobs()
            raise


def replay_chunk(spark: SparkSession, plan: Plan, chunk: Chunk) -> Manifest:
    """Run one chunk alone; see `replay_chunks`."""
    (manifest,) = replay_chunks(spark, plan, [chunk])
    return manifest


def _run_group(group: ChunkGroup, tell: Callable[[Chunk, str], None]) -> list[Manifest]:
    """Run a group of chunks, write their manifests, and return them."""
    plan, chunks = group.plan, group.chunks

    def report_stage(stage: str) -> None:
        for chunk in chunks:
            tell(chunk, stage)

    attempt, watch = _new_attempt(group), _Stopwatch(report_stage)
    with (
        explain_write_errors(group.spark, attempt),
        explain_function_errors(group.definition, f"in {attempt}"),
    ):
        if any(chunk.files for chunk in chunks):
            outputs = _compute_outputs(group, attempt, watch)
        else:
            outputs = _ChunkOutputs(attempt, {}, {}, {})
    now = datetime.now(UTC).isoformat(timespec="seconds")
    manifests = [outputs.manifest(number, watch.seconds, now) for number in range(len(chunks))]
    for manifest in manifests:
        manifest.write(plan.folder.manifest(manifest.chunk_id))
    return manifests


def _new_attempt(group: ChunkGroup) -> Attempt:
    return Attempt(group.plan, group.chunks, uuid.uuid4().hex[:8])


_Fates = dict[int, dict[str, dict[str, int]]]
"""Numbers of records by chunk number, source partition, and fate."""


Keep = Callable[[DataFrame], DataFrame]
"""A function that persists a frame until the group is done."""


class _ChunkOutputs(NamedTuple):
    """The outputs of a chunk group, by chunk number.

    `events_read` is counted separately from the fates, so that the sum of fates can be checked against it.
    """

    attempt: Attempt
    events_read: dict[int, int]
    fates: _Fates
    files: dict[str, Staged]

    def manifest(self, number: int, seconds: dict[str, float], finished_at: str) -> Manifest:
        """Return the manifest of one chunk, with its share of the group's seconds per stage."""
        attempt = self.attempt
        share = 1 / len(attempt.chunks)
        return Manifest(
            run_id=attempt.plan.run_id,
            chunk_id=attempt.chunks[number].chunk_id,
            attempt=attempt.attempt,
            events_read=self.events_read.get(number, 0),
            fates=self.fates.get(number, {}),
            files={suffix: self.files.get(suffix, {}).get(number, ()) for suffix in attempt.plan.tables},
            timings_s={stage: round(total_s * share, 3) for stage, total_s in seconds.items()},
            finished_at=finished_at,
        )


Results = FixedWindows | SessionWindows


def _compute_outputs(group: ChunkGroup, attempt: Attempt, watch: _Stopwatch) -> _ChunkOutputs:
    """Compute the watermarks, and then all outputs with the engine that the definition allows."""
    with _persisted() as keep:
        with watch.stage("watermarks"):
            results = window_results(group, keep)
        if is_native(group):
            try:
                return _run_natively(group, attempt, watch, results)
            except Exception as error:
                if not can_fall_back(group.definition, error):
                    raise
                log.warning("%s; Spark computes %s instead", task_error_text(error), attempt)
                attempt = _new_attempt(group)  # tasks have left files, and some may still be writing
        return _run_in_spark(group, attempt, watch, results, keep)


def _run_in_spark(
    group: ChunkGroup, attempt: Attempt, watch: _Stopwatch, results: Results, keep: Keep
) -> _ChunkOutputs:
    """Compute all outputs with Spark.

    A second thread counts fates while values are computed, since the cores are idle while Spark plans a job.
    """
    records, with_metric, metric, rows_by_footer = results.records()
    if group.definition.source.deduplicate_on:
        # The search for duplicates compares all records, so its result is computed once.
        records = with_metric = keep(with_metric)
    counts = results.counts(with_metric)
    counts = replace(counts, rows=keep(counts.rows))

    def count_fates() -> _Fates:
        with watch.stage("fates"):
            fates = counts.fates()
            _require_all_read(attempt, rows_by_footer, metric.get[SCANNED])
            return fates

    files: dict[str, Staged] = {}
    with ThreadPoolExecutor(1) as beside:
        counting = beside.submit(count_fates)

        def staged_panes() -> DataFrame | None:
            return load_staged_rows(group.spark, attempt, PANES, files[PANES])

        code = compute_user_rows(group, attempt, results, records, keep)
        values = results.values(records) if code is None else code.values
        if group.definition.having and not group.is_replay:
            values = keep(values)  # two tables need them
        frames = TableFrames(
            records,
            counts,
            values,
            staged_panes,
            lambda: _existing_fates(counting.result()),
            skipped=None if code is None else code.skipped,
            outputs=code.outputs if isinstance(code, ProcessResult) else None,
        )
        for suffix, rows in table_frames(group, results, frames):
            with watch.stage(suffix or "windows"):
                files[suffix] = _stage(rows, suffix, attempt)
        expected = results.records_in_windows(counts) - (0 if code is None else code.skipped_records)
        _require_all_records(attempt, expected, files, group.definition.backfill.publish)
        events_read = {number: metric.get[read_count_name(number)] for number in range(len(group.chunks))}
        return _ChunkOutputs(attempt, events_read, counting.result(), files)


def compute_user_rows(
    group: ChunkGroup, attempt: Attempt, results: Results, records: DataFrame, keep: Keep
) -> JobResult | ProcessResult | None:
    """Return the rows of the job or the process function of the definition; None with aggregates. Runs jobs."""
    definition = group.definition
    if definition.process:
        return compute_process(group, definition.process, attempt, keep)
    if definition.job is None:
        return None
    call = JobCall.from_attempt(definition, definition.job, attempt, is_replay=group.is_replay)
    return call.compute(results.members(records), keep)


def _run_natively(group: ChunkGroup, attempt: Attempt, watch: _Stopwatch, results: Results) -> _ChunkOutputs:
    """Compute windows and counts in native tasks, and the tables of single records with Spark."""
    make_scratch(attempt)
    try:
        with watch.stage(PANES if group.is_replay else "windows"):
            is_unfinished = bool(group.definition.derive_after or group.definition.having)
            target = replace(attempt, is_unfinished=is_unfinished)
            if isinstance(results, SessionWindows):
                computed = native_sessions.compute_sessions(group, results, target)
            else:
                computed = native_windows.compute_windows(group, results, target)
        counts, files = computed.counts, dict(computed.files)
        if is_unfinished:
            files |= _finish_rows(group, target, files, watch)
        with watch.stage("fates"):
            fates = counts.fates()
            _require_all_read(attempt, computed.rows_by_footer, computed.scanned)
        with watch.stage(METRICS):
            files[METRICS] = stage_metrics(group, counts, attempt)
        for suffix, rows in _record_frames(group, results, _existing_fates(fates) - {Fate.DROPPED}):
            with watch.stage(suffix):
                files[suffix] = _stage(rows, suffix, attempt)
        _require_all_records(attempt, computed.records_in_windows, files, group.definition.backfill.publish)
        return _ChunkOutputs(attempt, counts.read(), fates, files)
    finally:
        remove_scratch(attempt)


def _finish_rows(
    group: ChunkGroup, unfinished: Attempt, computed: Mapping[str, Staged], watch: _Stopwatch
) -> dict[str, Staged]:
    """Stage the rows of native tasks with their derived columns, and without those that are not published."""
    attempt, definition = replace(unfinished, is_unfinished=False), group.definition
    files: dict[str, Staged] = {suffix: {} for suffix in computed if suffix in (WINDOWS, PANES)}
    suffix = PANES if group.is_replay else WINDOWS
    rows = load_staged_rows(group.spark, unfinished, suffix, computed.get(suffix, {}))
    if rows is None:
        return files
    if group.is_replay:
        with watch.stage(PANES):
            panes = rows.transform(add_derived_to_panes(definition))
            numbered = panes.withColumn(CHUNK, group.chunk_number_at(F.col("window_start_ms")))
            files[PANES] = _stage(numbered, PANES, attempt)
        staged = load_staged_rows(group.spark, attempt, PANES, files[PANES])
        rows = None if staged is None else _published(group, staged)
    else:
        rows = rows.transform(add_derived(definition))
    for table, frame in _window_frames(group, rows) if rows is not None else ():
        with watch.stage(table or "windows"):
            files[table] = _stage(frame, table, attempt)
    return files


def _stage(rows: DataFrame, suffix: str, attempt: Attempt) -> Staged:
    # Quarantined records keep their times as written in the file.
    return write_staged_files(rows if suffix == QUARANTINE else _with_timestamps(rows), suffix, attempt)


def _require_all_read(attempt: Attempt, expected: int, scanned: int) -> None:
    """Check that Spark read as many rows as the footers of the files had at planning time.

    Raises:
        CountError: naming both numbers.
    """
    if scanned != expected:
        msg = (
            f"the input files of {attempt} have {expected:,} rows by their footers, {scanned:,} were read\n\n"
            "hint: if a file was replaced, create a new plan; each executor must see the same files"
        )
        raise CountError(msg)


def _require_all_records(attempt: Attempt, expected: int, files: Mapping[str, Staged], published: str) -> None:
    """Check that the staged rows were computed from as many records as the windows of the chunks have.

    Raises:
        CountError: naming both numbers.
    """
    suffix = PANES if PANES in attempt.plan.tables else WINDOWS
    suffixes = (PANES,) if suffix == PANES else (WINDOWS, WITHHELD)
    counted = sum(file.records for each in suffixes for file in _staged_files(files, each))
    if counted != expected:
        name = attempt.plan.tables[suffix].name
        msg = (
            f"the rows staged for table `{name}` are made of {counted:,} records, its windows hold {expected:,}\n"
            f"  {attempt}\n\nhint: run the same command again; if the error occurs again, report it as a bug"
        )
        raise CountError(msg)
    if suffix == PANES:
        _require_all_published(attempt, published, files)


def _staged_files(files: Mapping[str, Staged], suffix: str) -> list[StagedFile]:
    return [file for of_chunk in files.get(suffix, {}).values() for file in of_chunk]


def _require_all_published(attempt: Attempt, pane: str, files: Mapping[str, Staged]) -> None:
    """Check that each pane of the published kind has a row in the published table.

    Raises:
        CountError: naming rows and records of both tables.
    """
    windows, panes = _staged_files(files, WINDOWS), _staged_files(files, PANES)
    counts = [pq.read_table(file.path, columns=[pane_count_column(pane)], partitioning=None)[0] for file in panes]
    fired = [column.filter(pc.greater(column, 0)) for column in counts]
    expected = sum(map(len, fired)), sum(pc.sum(column).as_py() or 0 for column in fired)
    withheld = _staged_files(files, WITHHELD)
    rows = [pq.read_table(file.path, columns=["rows"], partitioning=None)[0] for file in withheld]
    staged = (
        sum(file.rows for file in windows) + sum(pc.sum(column).as_py() or 0 for column in rows),
        sum(file.records for file in (*windows, *withheld)),
    )
    if expected != staged:
        tables = attempt.plan.tables
        msg = (
            f"table `{tables[WINDOWS].name}` would get {staged[0]:,} rows of {staged[1]:,} records,"
            f" the {pane} panes in `{tables[PANES].name}` are {expected[0]:,} of {expected[1]:,}\n"
            f"  {attempt}\n\nhint: run the same command again; if the error occurs again, report it as a bug"
        )
        raise CountError(msg)


def window_results(group: ChunkGroup, keep: Keep) -> Results:
    """Return the results of a chunk group by the kind of its windows. Only watermarks run jobs."""
    window = group.definition.window.spec()
    if isinstance(window, Session):
        return SessionWindows.from_group(group, window, keep)
    if group.definition.process and group.is_replay:
        return FixedWindows(group, window, resolve_process_lateness(group, window))
    return FixedWindows(group, window, resolve_lateness(group, window))


class TableFrames(NamedTuple):
    """The frames that tables are computed from.

    `values` are computed for one table only. In a replay that is the table of panes; `staged_panes` reads its
    files for the other tables, which is cheaper than to persist `values` and takes no memory.
    """

    known: DataFrame
    counts: FateCounts
    values: DataFrame
    staged_panes: Callable[[], DataFrame | None]
    fates: Callable[[], set[str]]
    """Waits for the counts, and returns the fates with at least one record."""
    skipped: DataFrame | None = None
    """The windows for which user code returned no row; None without user code."""
    outputs: DataFrame | None = None
    """The side outputs; None without a process function."""


@contextmanager
def _persisted() -> Iterator[Keep]:
    """Provide a function that persists frames, and unpersist them at the end."""
    frames: list[DataFrame] = []

    def keep(frame: DataFrame) -> DataFrame:
        frames.append(frame.persist(StorageLevel.MEMORY_AND_DISK))
        return frames[-1]

    try:
        yield keep
    finally:
        for frame in frames:
            frame.unpersist()


def table_frames(group: ChunkGroup, results: Results, frames: TableFrames) -> Iterator[tuple[str, DataFrame]]:
    """Yield the rows of each table of the plan, with `CHUNK`; tables without rows are left out.

    Stage one frame before you ask for the next.
    """

    def by_window(rows: DataFrame) -> DataFrame:
        return rows.withColumn(CHUNK, group.chunk_number_at(F.col("window_start_ms")))

    definition, rows = group.definition, frames.values
    if not group.is_replay or definition.process:
        yield from _window_frames(group, rows.transform(add_derived(definition)))
    else:
        yield PANES, by_window(rows.transform(add_derived_to_panes(definition)))
        if (panes := frames.staged_panes()) is not None:
            yield from _window_frames(group, _published(group, panes))
    if frames.skipped is not None:
        yield SKIPPED, by_window(frames.skipped)
    if frames.outputs is not None:
        number = group.chunk_number_at(F.col("event_time_ms"))
        yield OUTPUTS, frames.outputs.withColumn(CHUNK, number)
    yield METRICS, by_window(frames.counts.metrics())
    yield from _record_frames(group, results, frames.fates(), frames.known)


def _window_frames(group: ChunkGroup, rows: DataFrame) -> Iterator[tuple[str, DataFrame]]:
    """Yield the rows of the table of windows, and the count of rows that don't meet the condition."""
    number = group.chunk_number_at(F.col("window_start_ms"))
    yield WINDOWS, published_rows(rows, group.definition).withColumn(CHUNK, number)
    if WITHHELD in group.plan.tables:
        yield WITHHELD, count_withheld(rows, group.definition).withColumn(CHUNK, number)


def _record_frames(
    group: ChunkGroup, results: Results, fates: set[str], records: DataFrame | None = None
) -> Iterator[tuple[str, DataFrame]]:
    """Yield the rows of tables of single records, and of firings.

    Args:
        group: the chunks.
        results: their results.
        fates: the fates with at least one record.
        records: all records with their fate; None to read them from the files.
    """
    if Fate.QUARANTINED in fates:
        yield QUARANTINE, load_quarantine(group)
    if not group.is_replay:
        return
    if Fate.DROPPED in fates:
        yield DROPPED, results.dropped(records or results.records().columns)
    if FIRINGS in group.plan.tables:
        firings = results.firings(records or results.records().columns)
        firings = firings.transform(add_derived(group.definition))
        yield FIRINGS, firings.withColumn(CHUNK, group.chunk_number_at(F.col("window_start_ms")))


def _published(group: ChunkGroup, panes: DataFrame) -> DataFrame:
    """Return the rows of the published table: the pane kind of `backfill.publish`."""
    pane = group.definition.backfill.publish
    count = F.col(pane_count_column(pane))
    existing = panes.where(count > F.lit(0)).withColumn(RECORD_COUNT, count)
    return existing.withColumns({name: F.col(f"{name}__{pane}") for name in group.definition.value_names})


def _with_timestamps(rows: DataFrame) -> DataFrame:
    """Convert times in milliseconds to timestamps for readers of the tables."""
    names = ("window_start", "window_end", "event_time", "arrival_time")
    times = [name for name in names if f"{name}_ms" in rows.columns]
    return rows.withColumns({name: F.timestamp_millis(f"{name}_ms") for name in times})


def _existing_fates(fates: _Fates) -> set[str]:
    """Return the fates with at least one record."""
    return {
        fate
        for partitions in fates.values()
        for counts in partitions.values()
        for fate, count in counts.items()
        if count
    }
