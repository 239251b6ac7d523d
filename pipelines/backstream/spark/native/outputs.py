"""What native tasks read and write: the files of chunks, and the places of results."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from backstream.eventtime.instants import utc_datetime
from backstream.eventtime.intervals import Interval
from backstream.native.fate_counts import NativeCounts
from backstream.native.sql import STAGING_CHUNK, STAGING_DAY
from backstream.native.task import ChunkGrid, ReadSpec, RestTask, TaskOutput, TaskResult, task_file_path
from backstream.native.task_cuts import TASK_ROWS, group_files_by_rows
from backstream.native.task_runner import Task, run_native_task
from backstream.runs.plan import InputFile, Plan
from backstream.runs.table_schemas import DROPPED, METRICS, PANES, WINDOWS
from backstream.spark.chunk_group import ChunkGroup
from backstream.spark.counted_writes import TaskWrite
from backstream.spark.session import ship_package, task_memory_mb
from backstream.spark.source import file_uri
from backstream.spark.staging import Attempt, Staged, collect_task_files

_COUNTS, _UNITS = "counts", "units"


@dataclass(frozen=True, slots=True)
class NativeResult:
    """What the native engine made of chunks.

    `scanned` are the rows of `rows_by_footer` that were met; `records_in_windows` counts a record once per window.
    """

    counts: NativeCounts
    files: Mapping[str, Staged]
    scanned: int
    rows_by_footer: int
    records_in_windows: int


def collect_staged_files(attempt: Attempt, done: Sequence[TaskResult]) -> dict[str, Staged]:
    """Return by table what tasks have staged.

    Raises:
        CountError: when the driver does not find each row that a task has written.
    """
    files: dict[str, Staged] = {}
    for suffix in (PANES, WINDOWS, DROPPED):
        found = [(each, each.written[suffix]) for each in done if suffix in each.written]
        if found:
            paths = [Path(path) for _, made in found for path in made.paths]
            writes = [TaskWrite(each.number, each.host, made.rows) for each, made in found]
            files[suffix] = collect_task_files(suffix, attempt, paths, writes)
    return files


def stage_metrics(work: ChunkGroup, counts: NativeCounts, attempt: Attempt) -> Staged:
    """Write the metrics of each chunk.

    Raises:
        CountError: when a file that was just written cannot be read.
    """
    split_by = (STAGING_CHUNK,)
    output = _output_of(work.plan, METRICS, task_file_path(attempt.folder(METRICS), 0, attempt.attempt), split_by)
    written = counts.write_metrics(output, chunk_grid(work))
    if written is None:
        return {}
    writes = [TaskWrite(0, socket.gethostname(), written.rows)]
    return collect_task_files(METRICS, attempt, [Path(path) for path in written.paths], writes)


def task_output(
    attempt: Attempt, suffix: str, number: int, chunk: int = 0, day_ms: int | None = None
) -> TaskOutput:
    """Return what a task writes for a table: files of one chunk, and of one day where the table keeps days apart.

    Args:
        attempt: where to.
        suffix: the table.
        number: the task's.
        chunk: the number of the one chunk that the task's windows start in.
        day_ms: the day that they start on; None: there are several of these, or chunks, and the file is split.
    """
    plan, folder = attempt.plan, attempt.folder(suffix)
    has_days = plan.tables[suffix].day_column is not None
    if day_ms is None:
        split_by = (STAGING_CHUNK, STAGING_DAY) if has_days else (STAGING_CHUNK,)
        return _output_of(plan, suffix, task_file_path(folder, number, attempt.attempt), split_by)
    folder /= f"{STAGING_CHUNK}={chunk}"
    if has_days:
        folder /= f"{STAGING_DAY}={utc_datetime(day_ms).date()}"
    return _output_of(plan, suffix, task_file_path(folder, number, attempt.attempt))


def _output_of(plan: Plan, suffix: str, path: str, split_by: Sequence[str] = ()) -> TaskOutput:
    columns = [(name, kind, field_id) for name, kind, field_id, _ in plan.tables[suffix].columns]
    return TaskOutput(path, columns, plan.run_id, split_by)


def chunk_grid(work: ChunkGroup) -> ChunkGrid:
    """Return the chunks by number."""
    first = work.chunks[0]
    return ChunkGrid(first.start_ms, first.end_ms - first.start_ms, len(work.chunks))


def list_input_files(work: ChunkGroup, interval: Interval) -> list[InputFile]:
    """Return the files that the chunks read for an interval of event time."""
    wanted = {*work.paths, *work.recorded.paths_of(interval)}
    return [file for file in work.plan.inputs if file.path in wanted]


def plan_rest_tasks(
    work: ChunkGroup,
    reading: ReadSpec,
    interval: Interval,
    files: Sequence[InputFile],
    attempt: Attempt,
    first: int,
) -> list[RestTask]:
    """Return the tasks that count what lies outside of an interval, numbered from `first` on."""
    paths, owned, most_mb = {file.path for file in files}, work.owned_files, task_memory_mb(work.spark)
    owners = {path: owned[file_uri(path)] for path in paths if file_uri(path) in owned}
    return [
        RestTask(number, reading, interval, several, owners, task_counts_path(attempt, number), most_mb)
        for number, several in enumerate(group_files_by_rows(files, TASK_ROWS), start=first)
    ]


def run_native_tasks(spark: SparkSession, tasks: Sequence[Task]) -> dict[int, TaskResult]:
    """Have tasks done, each by a task of Spark, and return what they say, by number. Runs a job."""
    if not tasks:  # no record was readable, so that there are no units
        return {}
    ship_package(spark.sparkContext)
    done = spark.sparkContext.parallelize(tasks, len(tasks)).map(run_native_task).collect()
    return {each.number: each for each in done}


def make_scratch(attempt: Attempt) -> None:
    """Make the folders in which tasks leave files for each other."""
    for name in (_COUNTS, _UNITS):
        (scratch_folder(attempt) / name).mkdir(parents=True)


def remove_scratch(attempt: Attempt) -> None:
    """Take away what tasks have left for each other; counts are in the manifests and in the table of metrics.

    If one task fails, others are still at work: they write by the old name, and so they cannot fill the folder.
    """
    folder = scratch_folder(attempt)
    gone = folder.with_suffix(".gone")
    with suppress(OSError):
        folder.rename(gone)
    for each in (folder, gone):
        shutil.rmtree(each, ignore_errors=True)


def scratch_folder(attempt: Attempt) -> Path:
    """Return the folder of files that driver and tasks leave for each other."""
    return attempt.folder(WINDOWS).with_suffix(".scratch")


def task_counts_path(attempt: Attempt, number: int) -> str:
    """Return where a task writes its counts."""
    return task_file_path(scratch_folder(attempt) / _COUNTS, number, attempt.attempt)


def units_path(attempt: Attempt, number: int) -> str:
    """Return beside which file a task writes its units."""
    return task_file_path(scratch_folder(attempt) / _UNITS, number, attempt.attempt)
