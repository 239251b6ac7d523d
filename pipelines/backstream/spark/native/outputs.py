"""What native tasks read and write: the files of chunks, and the places of results."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from backstream.eventtime.instants import moment
from backstream.eventtime.intervals import Interval
from backstream.native.fate_counts import NativeCounts
from backstream.native.sql import STAGING_CHUNK, STAGING_DAY
from backstream.native.task import Chunks, Done, Output, Reading, RestTask, in_folder
from backstream.native.task_cuts import TASK_ROWS, grouped_files
from backstream.native.task_runner import Task, run_task
from backstream.runs.plan import InputFile, Plan
from backstream.runs.table_schemas import DROPPED, METRICS, PANES, WINDOWS
from backstream.spark.chunk_group import Work
from backstream.spark.counted_writes import TaskWrite
from backstream.spark.session import memory_mb, ship
from backstream.spark.source import file_uri
from backstream.spark.staging import Attempt, Staged, staged_by_tasks

_COUNTS, _UNITS = "counts", "units"


@dataclass(frozen=True, slots=True)
class Computed:
    """What the native engine made of chunks.

    `scanned` are the rows of `rows_by_footer` that were met; `records_in_windows` counts a record once per window.
    """

    counts: NativeCounts
    files: Mapping[str, Staged]
    scanned: int
    rows_by_footer: int
    records_in_windows: int


def staged_files(attempt: Attempt, done: Sequence[Done]) -> dict[str, Staged]:
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
            files[suffix] = staged_by_tasks(suffix, attempt, paths, writes)
    return files


def stage_metrics(work: Work, counts: NativeCounts, attempt: Attempt) -> Staged:
    """Write the metrics of each chunk.

    Raises:
        CountError: when a file that was just written cannot be read.
    """
    split_by = (STAGING_CHUNK,)
    output = _output_of(work.plan, METRICS, in_folder(attempt.folder(METRICS), 0, attempt.attempt), split_by)
    written = counts.write_metrics(output, chunks_of(work))
    if written is None:
        return {}
    writes = [TaskWrite(0, socket.gethostname(), written.rows)]
    return staged_by_tasks(METRICS, attempt, [Path(path) for path in written.paths], writes)


def output(attempt: Attempt, suffix: str, number: int, chunk: int = 0, day_ms: int | None = None) -> Output:
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
        return _output_of(plan, suffix, in_folder(folder, number, attempt.attempt), split_by)
    folder /= f"{STAGING_CHUNK}={chunk}"
    if has_days:
        folder /= f"{STAGING_DAY}={moment(day_ms).date()}"
    return _output_of(plan, suffix, in_folder(folder, number, attempt.attempt))


def _output_of(plan: Plan, suffix: str, path: str, split_by: Sequence[str] = ()) -> Output:
    columns = [(name, kind, field_id) for name, kind, field_id, _ in plan.tables[suffix].columns]
    return Output(path, columns, plan.run_id, split_by)


def chunks_of(work: Work) -> Chunks:
    """Return the chunks by number."""
    first = work.chunks[0]
    return Chunks(first.start_ms, first.end_ms - first.start_ms, len(work.chunks))


def files_of(work: Work, interval: Interval) -> list[InputFile]:
    """Return the files that the chunks read for an interval of event time."""
    wanted = {*work.paths, *work.recorded.paths_of(interval)}
    return [file for file in work.plan.inputs if file.path in wanted]


def rest_tasks(
    work: Work, reading: Reading, interval: Interval, files: Sequence[InputFile], attempt: Attempt, first: int
) -> list[RestTask]:
    """Return the tasks that count what lies outside of an interval, numbered from `first` on."""
    paths, owned, most_mb = {file.path for file in files}, work.owned_files, memory_mb(work.spark)
    owners = {path: owned[file_uri(path)] for path in paths if file_uri(path) in owned}
    return [
        RestTask(number, reading, interval, several, owners, counts_path(attempt, number), most_mb)
        for number, several in enumerate(grouped_files(files, TASK_ROWS), start=first)
    ]


def run_tasks(spark: SparkSession, tasks: Sequence[Task]) -> dict[int, Done]:
    """Have tasks done, each by a task of Spark, and return what they say, by number. Runs a job."""
    if not tasks:  # no record was readable, so that there are no units
        return {}
    ship(spark.sparkContext)
    done = spark.sparkContext.parallelize(tasks, len(tasks)).map(run_task).collect()
    return {each.number: each for each in done}


def make_scratch(attempt: Attempt) -> None:
    """Make the folders in which tasks leave files for each other."""
    for name in (_COUNTS, _UNITS):
        (scratch(attempt) / name).mkdir(parents=True)


def forget_scratch(attempt: Attempt) -> None:
    """Take away what tasks have left for each other; counts are in the manifests and in the table of metrics.

    If one task fails, others are still at work: they write by the old name, and so they cannot fill the folder.
    """
    folder = scratch(attempt)
    gone = folder.with_suffix(".gone")
    with suppress(OSError):
        folder.rename(gone)
    for each in (folder, gone):
        shutil.rmtree(each, ignore_errors=True)


def scratch(attempt: Attempt) -> Path:
    """Return the folder of files that driver and tasks leave for each other."""
    return attempt.folder(WINDOWS).with_suffix(".scratch")


def counts_path(attempt: Attempt, number: int) -> str:
    """Return where a task writes its counts."""
    return in_folder(scratch(attempt) / _COUNTS, number, attempt.attempt)


def units_path(attempt: Attempt, number: int) -> str:
    """Return beside which file a task writes its units."""
    return in_folder(scratch(attempt) / _UNITS, number, attempt.attempt)
