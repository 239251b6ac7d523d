"""Compute and stage the output files of a chunk group with Spark, or in native tasks that Spark distributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backstream.chunks.attempt import Attempt
from backstream.chunks.engine_choice import can_fall_back, is_native, task_error_text
from backstream.chunks.group import ChunkGroup
from backstream.chunks.native_engine import (
    ChunkOutputs,
    Stopwatch,
    compute_natively,
    new_attempt,
)
from backstream.chunks.staged import Staged, upload_staged_files
from backstream.chunks.staged_counts import require_all_read, require_all_records
from backstream.chunks.stream_reader import NativeReader, reason_no_watermarks
from backstream.native.fate_counts import ChunkCounts
from backstream.runs.table_schemas import FIRINGS, PANES, QUARANTINE, WINDOWS
from backstream.spark.chunk_group import CHUNK, SCANNED, SparkGroup, read_count_name
from backstream.spark.process_functions import ProcessResult, compute_process
from backstream.spark.staging import explain_job_errors, load_staged_rows, write_staged_files
from backstream.spark.table_frames import (
    Keep,
    Results,
    TableFrames,
    add_derived,
    add_derived_to_panes,
    existing_fates,
    firing_rows,
    published_panes,
    table_frames,
    window_frames,
    window_results,
)
from backstream.spark.tasks import SparkTasks
from backstream.spark.user_functions import explain_function_errors, register_functions
from backstream.spark.user_jobs import JobCall, JobResult
from backstream.text import text_logger

log = text_logger(__name__)


@dataclass(frozen=True, slots=True)
class SparkEngine:
    """An `Engine` in a session of Spark: native tasks if the definition allows them, else Spark."""

    spark: SparkSession

    def compute(self, group: ChunkGroup, attempt: Attempt, watch: Stopwatch) -> ChunkOutputs:
        """Compute and stage the outputs of a group with the engine that the definition allows."""
        register_functions(self.spark, group.definition)
        if is_native(group.definition, group.plan.columns):
            try:
                return self._compute_natively(group, attempt, watch)
            except Exception as error:
                if not can_fall_back(group.definition, error):
                    raise
                log.warning("%s; Spark computes %s instead", task_error_text(error), attempt)
                attempt = new_attempt(group)  # tasks have left files, and some may still be writing
        spark_group = SparkGroup.of(self.spark, group)
        with _persisting() as keep:
            with watch.stage("watermarks"):
                results = window_results(spark_group, keep)
            return _run_in_spark(spark_group, attempt, watch, results, keep)

    def _compute_natively(self, group: ChunkGroup, attempt: Attempt, watch: Stopwatch) -> ChunkOutputs:
        tasks, spark_group = SparkTasks(self.spark), SparkGroup.of(self.spark, group)
        is_readable = reason_no_watermarks(group.definition, group.plan.columns) is None
        native_reader = NativeReader(tasks, group.definition, group.plan.columns)
        reader = native_reader if is_readable else spark_group.reader
        return compute_natively(group, tasks, reader, attempt, watch, _Steps(spark_group, attempt, watch))

    @contextmanager
    def explain_errors(self, group: ChunkGroup, attempt: Attempt) -> Iterator[None]:
        """Raise readable errors while a group runs, without Java traces."""
        with (
            explain_job_errors(self.spark, attempt),
            explain_function_errors(group.definition, f"in {attempt}"),
        ):
            yield

    def cancel(self) -> None:
        """End all jobs of the application."""
        self.spark.sparkContext.cancelAllJobs()


def _run_in_spark(
    group: SparkGroup, attempt: Attempt, watch: Stopwatch, results: Results, keep: Keep
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
        if group.definition.withholds_rows and not group.is_replay:
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
    group: SparkGroup, attempt: Attempt, results: Results, records: DataFrame, keep: Keep
) -> JobResult | ProcessResult | None:
    """Return the rows of the job or the process function of the definition; None with aggregates. Runs jobs."""
    definition = group.definition
    if definition.process:
        return compute_process(group, definition.process, attempt, keep)
    if definition.job is None:
        return None
    call = JobCall.from_attempt(definition, definition.job, attempt, is_replay=group.is_replay)
    return call.compute(results.members(records), keep)


@dataclass(frozen=True, slots=True)
class _Steps:
    """The `SparkSteps` after native tasks: columns that are derived from aggregates, and firings."""

    group: SparkGroup
    attempt: Attempt
    watch: Stopwatch

    def finish_rows(self, unfinished: Attempt, computed: Mapping[str, Staged]) -> dict[str, Staged]:
        """Stage the rows of native tasks with their derived columns, and without those that are not published."""
        attempt, definition, group, watch = self.attempt, self.group.definition, self.group, self.watch
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

    def stage_more_tables(self) -> dict[str, Staged]:
        """Stage every firing of the windows, if the definition keeps them."""
        group, files = self.group, dict[str, Staged]()
        if group.is_replay and FIRINGS in group.plan.tables:
            with _persisting() as keep, self.watch.stage(FIRINGS):
                results = window_results(group, keep)
                frame = firing_rows(group, results, results.records().columns)
                files[FIRINGS] = _stage(frame, FIRINGS, self.attempt)
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
    """Convert times in milliseconds to timestamps for readers of the tables; those of a window may exist."""
    names = ({"window_start", "window_end"}.difference(rows.columns)) | {"event_time", "arrival_time"}
    times = [name for name in sorted(names) if f"{name}_ms" in rows.columns]
    return rows.withColumns({name: F.timestamp_millis(f"{name}_ms") for name in times})
