"""Copies of data files: to the object store in which their table lies, and of files that a rollback restores.

A copy has a name that no file ever had: who cleans up may delete a path that was removed once.
"""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyarrow.fs import FileType, copy_files
from pyiceberg.table import Table

from backstream.errors import StorageError
from backstream.lake.storage import filesystem_of, is_on_disk, location_of, plain_path
from backstream.runs.manifest import StagedFile

_AT_ONCE = 8
"""A store answers many at once, and each answer takes long."""


def upload_staged_files(table: Table, run_id: str, files: Sequence[StagedFile]) -> list[str]:
    """Where a commit finds staged files: where they are on a disk; in an object store, copies of this attempt.

    What is copied and then not committed is left to `vacuum`.

    Raises:
        OSError: when the store refuses.
        StorageError: when a copy is not as long as its file.
    """
    if is_on_disk(table.location()):
        return [location_of(file.path) for file in files]
    return copy_data_files(table, run_id, [location_of(file.path) for file in files])


def copy_data_files(table: Table, run_id: str, locations: Sequence[str]) -> list[str]:
    """Copies of files among a run's files in a table, in their order.

    Raises:
        OSError: when the disk or the store refuses, naming a file that is not there.
        StorageError: when a copy is not as long as its file.
    """
    folder = f"{table.location()}/data/{run_id}/{uuid.uuid4().hex}"
    targets = [f"{folder}/part-{number:05}.parquet" for number in range(len(locations))]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(lambda source, target: _copy(table, source, target), locations, targets))
    return targets


def _copy(table: Table, source: str, target: str) -> None:
    if is_on_disk(target):
        path = Path(plain_path(target))
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(plain_path(source), path)
        return
    (old, old_path), (new, new_path) = filesystem_of(table.io, source), filesystem_of(table.io, target)
    found = old.get_file_info(old_path)
    if found.type is FileType.NotFound:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), plain_path(source))
    copy_files(old_path, new_path, source_filesystem=old, destination_filesystem=new)
    if (size_bytes := new.get_file_info(new_path).size) != found.size:
        msg = f"a copy has {size_bytes} bytes, its file has {found.size}\n  {target}\n  {plain_path(source)}"
        raise StorageError(msg)
