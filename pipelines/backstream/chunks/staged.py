"""List the files that native tasks or Spark have staged, by chunk, and compare them with what was written."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from backstream.chunks.attempt import Attempt
from backstream.errors import CountError
from backstream.native.sql import STAGING_CHUNK
from backstream.native.staged_files import describe_staged_file
from backstream.native.task import WrittenFiles
from backstream.runs.manifest import StagedFile
from backstream.storage.object_stores import explain_store_errors
from backstream.storage.stores import is_below

_PART = re.compile(r"part-(\d+)-")

Staged = dict[int, tuple[StagedFile, ...]]
"""The files by chunk number; a chunk without rows has no entry."""


@dataclass(frozen=True, slots=True)
class TaskWrite:
    """The number of rows that one task wrote; `host` is the machine of its executor."""

    task: int
    host: str
    rows: int


def collect_task_files(
    suffix: str, attempt: Attempt, outputs: Sequence[WrittenFiles], written: list[TaskWrite]
) -> Staged:
    """Return the files that native tasks have written into the folders of `write_staged_files`, or into a store.

    Raises:
        CountError: when the driver doesn't find every row that a task has written.
    """
    paths = [path for output in outputs for path in map(Path, output.paths) if path.exists()]
    stored = [file for output in outputs for file in output.stored]
    return list_staged_files(suffix, attempt, paths, written, stored)


def list_staged_files(
    suffix: str,
    attempt: Attempt,
    paths: Sequence[Path],
    written: list[TaskWrite],
    stored: Sequence[StagedFile] = (),
) -> Staged:
    """Return files that were written for a table, on the disk or in a store, by chunk number.

    Raises:
        CountError: when they don't have every row that was written.
    """
    table, folder = attempt.plan.tables[suffix], attempt.folder(suffix)
    files = [*_read_footers(paths, suffix), *stored]
    seen = {Path(file.path): file.rows for file in files}
    _require_visible(f"table `{table.name}`", folder, written, seen)
    return _group_by_chunk(files, (str(folder), attempt.location(suffix)))


def _group_by_chunk(files: Sequence[StagedFile], folders: tuple[str, str]) -> Staged:
    """Return the files with rows by chunk number, which the first folder below that of the attempt has.

    Spark writes one empty file if there are no rows; it is left out.
    """
    grouped: Staged = {}
    for file in files:
        if file.rows:
            root = next(folder for folder in folders if is_below(file.path, folder))
            number = int(file.path.removeprefix(f"{root}/{STAGING_CHUNK}=").partition("/")[0])
            grouped[number] = (*grouped.get(number, ()), file)
    return grouped


def upload_staged_files(attempt: Attempt, files: Mapping[str, Staged]) -> dict[str, Staged]:
    """Upload the files that Spark or the driver have staged on a disk, if their table is in an object store.

    Native tasks upload their files by themselves. So a publication copies no file.

    Raises:
        StorageError: when the store refuses, or a copy and its file differ in size.
    """
    return {suffix: _upload_table(attempt, suffix, staged) for suffix, staged in files.items()}


def _upload_table(attempt: Attempt, suffix: str, staged: Staged) -> Staged:
    folder, target = str(attempt.folder(suffix)), attempt.location(suffix)
    local = [file for of_chunk in staged.values() for file in of_chunk if is_below(file.path, folder)]
    if folder == target or not local:
        return staged
    targets = {file.path: target + file.path.removeprefix(folder) for file in local}
    with explain_store_errors("write", target):
        attempt.stores.upload_all({location: Path(path) for path, location in targets.items()})
    shutil.rmtree(folder, ignore_errors=True)
    return {
        number: tuple(replace(file, path=targets.get(file.path, file.path)) for file in of_chunk)
        for number, of_chunk in staged.items()
    }


def _require_visible(what: str, folder: Path, written: list[TaskWrite], seen: Mapping[Path, int]) -> None:
    """Check that the driver sees every row that the tasks wrote, once.

    Args:
        what: the written data for error messages, e.g., "table `clicks`".
        folder: the folder of the files.
        written: the rows that each task wrote.
        seen: the files that the driver finds in the folder, and their rows.

    Raises:
        CountError: naming the hosts, the folder, and the remedy.
    """
    seen_by_task: Counter[int] = Counter()
    for path, rows in seen.items():
        seen_by_task[_parse_task(path)] += rows
    lost = [write for write in written if seen_by_task[write.task] < write.rows]
    if lost:
        raise _lost_rows_error(what, folder, lost, seen_by_task)
    rows_by_task = {write.task: write.rows for write in written}
    for task, rows in sorted(seen_by_task.items()):
        if rows != rows_by_task.get(task, 0):
            msg = (
                f"task {task} wrote {rows_by_task.get(task, 0):,} rows of {what}, but its files have {rows:,}\n"
                f"  {folder}\n\n"
                "hint: run the same command again; no other process may write to this folder"
            )
            raise CountError(msg)


def _lost_rows_error(
    what: str, folder: Path, lost: list[TaskWrite], seen_by_task: Mapping[int, int]
) -> CountError:
    hosts = sorted({write.host for write in lost})
    lost_rows = sum(write.rows - seen_by_task[write.task] for write in lost)
    rows = sum(write.rows for write in lost)
    return CountError(
        f"{lost_rows:,} of {rows:,} rows of {what} that executors wrote on {', '.join(hosts)} cannot be seen"
        f" by the driver\n  {folder}\n\n"
        "hint: the executors must write to a folder that the driver sees; mount it on each"
        " of their machines and run the same command again; finished chunks are kept"
    )


def _parse_task(path: Path) -> int:
    """Return the task that wrote a file, which Spark puts into the file's name."""
    name = _PART.match(path.name)
    if name is None:
        msg = f"{path.name} was not written by a task of this run\n  {path}"
        raise CountError(msg)
    return int(name[1])


def _read_footers(paths: Sequence[Path], suffix: str) -> Iterator[StagedFile]:
    """Yield the description of each file, from its footer.

    Raises:
        CountError: naming the first file that can't be read.
    """
    for path in paths:
        with explain_read_errors(path):
            yield describe_staged_file(path, suffix)


@contextmanager
def explain_read_errors(path: Path) -> Iterator[None]:
    """Raise a `CountError` if a file that was just written can't be read."""
    try:
        yield
    except (OSError, ValueError) as error:  # these include the errors of Arrow
        msg = f"a file that was just written cannot be read: {error}\n  {path}\n\nhint: run the same command again"
        raise CountError(msg) from error
