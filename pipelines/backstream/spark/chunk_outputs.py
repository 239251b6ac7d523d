"""Compute and stage the output files of a chunk group, in native tasks or with Spark."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from backstream.eventtime.records import Fate
from backstream.native.fate_counts import ChunkCounts
from backstream.runs.manifest import Manifest
from backstream.runs.table_schemas import (
    METRICS,
    PANES,
    QUARANTINE,
    WINDOWS,
)
from backstream.spark.attempt import Attempt
from backstream.spark.chunk_group import CHUNK, SCANNED, ChunkGroup, read_count_name
from backstream.spark.native import sessions as native_sessions
from backstream.spark.native import windows as native_windows
from backstream.spark.native.engine import can_fall_back, is_native, task_error_text
from backstream.spark.native.outputs import make_scratch, remove_scratch, stage_metrics
from backstream.spark.process_functions import ProcessResult, compute_process
from backstream.spark.sessions.session_windows import SessionWindows
from backstream.spark.staged_counts import require_all_read, require_all_records
from backstream.spark.staging import Staged, load_staged_rows, upload_staged_files, write_staged_files
from backstream.spark.table_frames import (
    Keep,
    Results,
    TableFrames,
    add_derived,
    add_derived_to_panes,
    existing_fates,
    published_panes,
    record_frames,
    table_frames,
    window_frames,
    window_results,
)
from backstream.spark.user_jobs import JobCall, JobResult
from backstream.storage.stores import Stores
from backstream.text import text_logger

log = text_logger(__name__)


@dataclass(slots=True)
class Stopwatch:
    """Seconds per stage for the manifest; `on_stage` is called when a stage begins."""

    on_stage: Callable[[str], None]
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure a stage."""
        self.on_stage(name)
        begin = time.monotonic()
        yield
        self.seconds[name] = round(time.monotonic() - begin, 3)


def new_attempt(group: ChunkGroup) -> Attempt:
    """Return an attempt with a new random name."""
    return Attempt(group.plan, group.chunks, uuid.uuid4().hex[:8], stores=Stores.from_environment())


class ChunkOutputs(NamedTuple):
    """The outputs of a chunk group, by chunk number.

    `events_read` is counted separately from the fates, so that the sum of fates can be checked against it.
    """

    attempt: Attempt
    events_read: dict[int, int]
    counts: ChunkCounts
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
            fates=self.counts.fates.get(number, {}),
            gaps=self.counts.gaps.get(number, {}),
            files={suffix: self.files.get(suffix, {}).get(number, ()) for suffix in attempt.plan.tables},
            timings_s={stage: round(total_s * share, 3) for stage, total_s in seconds.items()},
            finished_at=finished_at,
        )


def compute_outputs(group: ChunkGroup, attempt: Attempt, watch: Stopwatch) -> ChunkOutputs:
    """Compute the watermarks, and then all outputs with the engine that the definition allows."""
    with _persisting() as keep:
        with watch.stage("watermarks"):
            results = window_results(group, keep)
        if is_native(group.definition, group.plan.columns):
            try:
                return _run_natively(group, attempt, watch, results)
            except Exception as error:
                if not can_fall_back(group.definition, error):
                    raise
                log.warning("%s; Spark computes %s instead", task_error_text(error), attempt)
                attempt = new_attempt(group)  # tasks have left files, and some may still be writing
        return _run_in_spark(group, attempt, watch, results, keep)


def _run_in_spark(
    group: ChunkGroup, attempt: Attempt, watch: Stopwatch, results: Results, keep: Keep
) -> ChunkOutputs:
    """Compute all outputs with Spark.

    A second thread counts fates while values are computed, since the cores are idle while Spark plans a job.
    """
    records, with_metric, metric, rows_by_footer = results.records()
    if group.definition.source.deduplicate_on:
        # The search for duplicates compares all records, so its result is computed once.
        records = with_metric = keep(with_metric)
    counts = results.counts(with_metric)
    counts = replace(counts, rows=keep(counts.rows))

    def count_fates() -> ChunkCounts:
        with watch.stage("fates"):
            counted = counts.by_chunk()
            require_all_read(attempt, rows_by_footer, metric.get[SCANNED])
            return counted

    files: dict[str, Staged] = {}
    with ThreadPoolExecutor(1) as beside:
        counting = beside.submit(count_fates)

        def staged_panes() -> DataFrame | None:
            return load_staged_rows(group.spark, attempt, PANES, files[PANES])

        code = _compute_user_rows(group, attempt, results, records, keep)
        values = results.values(records) if code is None else code.values
        if group.definition.having and not group.is_replay:
            values = keep(values)  # two tables need them
        frames = TableFrames(
            records,
            counts,
            values,
            staged_panes,
            lambda: existing_fates(counting.result().fates),
            skipped=None if code is None else code.skipped,
            outputs=code.outputs if isinstance(code, ProcessResult) else None,
        )
        for suffix, rows in table_frames(group, results, frames):
            with watch.stage(suffix or "windows"):
                files[suffix] = _stage(rows, suffix, attempt)
        expected = results.records_in_windows(counts) - (0 if code is None else code.skipped_records)
        require_all_records(attempt, expected, files, group.definition.backfill.publish)
        events_read = {number: metric.get[read_count_name(number)] for number in range(len(group.chunks))}
        return ChunkOutputs(attempt, events_read, counting.result(), upload_staged_files(attempt, files))


def _compute_user_rows(
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


def _run_natively(group: ChunkGroup, attempt: Attempt, watch: Stopwatch, results: Results) -> ChunkOutputs:
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
            counted = counts.by_chunk()
            require_all_read(attempt, computed.rows_by_footer, computed.scanned)
        with watch.stage(METRICS):
            files[METRICS] = stage_metrics(group, counts, attempt)
        written = {Fate.DROPPED, *([Fate.QUARANTINED] if QUARANTINE in files else [])}
        for suffix, rows in record_frames(group, results, existing_fates(counted.fates) - written):
            with watch.stage(suffix):
                files[suffix] = _stage(rows, suffix, attempt)
        require_all_records(attempt, computed.records_in_windows, files, group.definition.backfill.publish)
        return ChunkOutputs(attempt, counts.read(), counted, upload_staged_files(attempt, files))
    finally:
        remove_scratch(attempt)


def _finish_rows(
    group: ChunkGroup, unfinished: Attempt, computed: Mapping[str, Staged], watch: Stopwatch
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
        rows = None if staged is None else published_panes(group, staged)
    else:
        rows = rows.transform(add_derived(definition))
    for table, frame in window_frames(group, rows) if rows is not None else ():
        with watch.stage(table or "windows"):
            files[table] = _stage(frame, table, attempt)
    return files


def _stage(rows: DataFrame, suffix: str, attempt: Attempt) -> Staged:
    # Quarantined records keep their times as written in the file.
    return write_staged_files(rows if suffix == QUARANTINE else _with_timestamps(rows), suffix, attempt)


@contextmanager
def _persisting() -> Iterator[Keep]:
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


def _with_timestamps(rows: DataFrame) -> DataFrame:
    """Convert times in milliseconds to timestamps for readers of the tables."""
    names = ("window_start", "window_end", "event_time", "arrival_time")
    times = [name for name in names if f"{name}_ms" in rows.columns]
    return rows.withColumns({name: F.timestamp_millis(f"{name}_ms") for name in times})
