"""Plan the input and output files of native tasks, and run the tasks."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from backstream.chunks.attempt import Attempt
from backstream.chunks.group import ChunkGroup
from backstream.chunks.staged import Staged, TaskWrite, collect_task_files
from backstream.eventtime.instants import utc_datetime
from backstream.eventtime.intervals import Interval
from backstream.native.fate_counts import NativeCounts
from backstream.native.sql import STAGING_CHUNK, STAGING_DAY
from backstream.native.task import ChunkGrid, ReadSpec, RestTask, TaskOutput, TaskResult, task_file_path
from backstream.native.task_cuts import TASK_ROWS, group_files_by_rows
from backstream.runs.plan import InputFile
from backstream.runs.table_schemas import DROPPED, METRICS, PANES, QUARANTINE, WINDOWS
from backstream.storage.files import file_uri
from backstream.storage.object_stores import explain_store_errors
from backstream.storage.stores import is_in_store

_COUNTS, _UNITS = "counts", "units"


@dataclass(frozen=True, slots=True)
class NativeResult:
    """The results of the native engine for a chunk group.

    `scanned` is the number of rows that tasks read, of `rows_by_footer`. `records_in_windows` counts a record once
    per window.
    """

    counts: NativeCounts
    files: Mapping[str, Staged]
    scanned: int
    rows_by_footer: int
    records_in_windows: int


def collect_staged_files(attempt: Attempt, done: Sequence[TaskResult]) -> dict[str, Staged]:
    """Return the staged files of tasks by table.

    Raises:
        CountError: when the driver doesn't find every row that a task has written.
    """
    files: dict[str, Staged] = {}
    for suffix in (PANES, WINDOWS, DROPPED, QUARANTINE):
        outputs = [(result, result.written[suffix]) for result in done if suffix in result.written]
        if outputs:
            writes = [TaskWrite(result.number, result.host, output.rows) for result, output in outputs]
            files[suffix] = collect_task_files(suffix, attempt, [output for _, output in outputs], writes)
    return files


def stage_metrics(group: ChunkGroup, counts: NativeCounts, attempt: Attempt) -> Staged:
    """Write the metrics of each chunk.

    Raises:
        CountError: when a file that was just written can't be read.
    """
    split_by = (STAGING_CHUNK,)
    output = _output_of(attempt, METRICS, task_file_path(attempt.folder(METRICS), 0, attempt.attempt), split_by)
    written = counts.write_metrics(output, chunk_grid(group))
    if written is None:
        return {}
    writes = [TaskWrite(0, socket.gethostname(), written.rows)]
    return collect_task_files(METRICS, attempt, [written], writes)


def task_output(
    attempt: Attempt, suffix: str, number: int, chunk: int = 0, day_ms: int | None = None
) -> TaskOutput:
    """Return the output of a task for a table.

    It has files of one chunk, and of one day if the table is partitioned by day.

    Args:
        attempt: the attempt that stages the files.
        suffix: the table.
        number: the number of the task.
        chunk: the number of the only chunk in which the task's windows start.
        day_ms: the only day on which they start; None if the file must be split by chunk and day.
    """
    plan, folder = attempt.plan, attempt.location(suffix)
    has_days = plan.tables[suffix].day_column is not None
    if day_ms is None:
        split_by = (STAGING_CHUNK, STAGING_DAY) if has_days else (STAGING_CHUNK,)
        return _output_of(attempt, suffix, task_file_path(folder, number, attempt.attempt), split_by)
    folder += f"/{STAGING_CHUNK}={chunk}"
    if has_days:
        folder += f"/{STAGING_DAY}={utc_datetime(day_ms).date()}"
    return _output_of(attempt, suffix, task_file_path(folder, number, attempt.attempt))


def _output_of(attempt: Attempt, suffix: str, path: str, split_by: Sequence[str] = ()) -> TaskOutput:
    columns = [(name, kind, field_id) for name, kind, field_id, _ in attempt.columns(suffix)]
    return TaskOutput(path, columns, attempt.plan.run_id, split_by)


def chunk_grid(group: ChunkGroup) -> ChunkGrid:
    """Return the start, length, and number of the chunks."""
    first = group.chunks[0]
    return ChunkGrid(first.start_ms, first.end_ms - first.start_ms, len(group.chunks))


def plan_rest_tasks(
    group: ChunkGroup,
    reading: ReadSpec,
    interval: Interval,
    files: Sequence[InputFile],
    attempt: Attempt,
    memory_mb: int,
    first: int,
) -> list[RestTask]:
    """Return the tasks that count the records outside of an interval, numbered from `first` on."""
    paths, owned = {file.path for file in files}, group.owned_files
    owners = {path: owned[file_uri(path)] for path in paths if file_uri(path) in owned}
    return [
        RestTask(
            number,
            reading,
            interval,
            file_group,
            owners,
            task_counts_path(attempt, number),
            memory_mb,
            task_output(attempt, QUARANTINE, number),
        )
        for number, file_group in enumerate(group_files_by_rows(files, TASK_ROWS), start=first)
    ]


def make_scratch(attempt: Attempt) -> None:
    """Create the folders for files that tasks exchange."""
    for name in (_COUNTS, _UNITS):
        (attempt.scratch / name).mkdir(parents=True)


def remove_scratch(attempt: Attempt) -> None:
    """Remove the files that tasks exchanged; counts are in the manifests and in the table of metrics.

    If one task fails, others may still run. They write to the old name of the folder, so they can't add files to
    the renamed one.
    """
    folder = attempt.scratch
    renamed = folder.with_suffix(".gone")
    with suppress(OSError):
        folder.rename(renamed)
    for path in (folder, renamed):
        shutil.rmtree(path, ignore_errors=True)


def task_counts_path(attempt: Attempt, number: int) -> str:
    """Return the location of a task's counts."""
    return task_file_path(f"{attempt.task_scratch}/{_COUNTS}", number, attempt.attempt)


def list_counts(attempt: Attempt, done: Sequence[TaskResult]) -> list[str]:
    """Return the files of counts on the disk of the driver; those in an object store are moved there.

    Raises:
        StorageError: when the store cannot be read.
    """
    locations = [result.counts for result in done if result.counts]
    folder = attempt.scratch / _COUNTS
    moved = {location: folder / location.rpartition("/")[2] for location in locations if is_in_store(location)}
    with explain_store_errors("read", attempt.task_scratch):
        attempt.stores.download_all(moved)
        attempt.stores.remove(moved)
    return [str(moved.get(location, location)) for location in locations]


def units_path(attempt: Attempt, number: int) -> str:
    """Return the path beside which a task writes its units."""
    return task_file_path(attempt.scratch / _UNITS, number, attempt.attempt)
