"""Copy data files: staged files to the object store of their table, and files that a rollback restores.

Each copy has a new name: a cleanup may delete any path that was removed from the table before.
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

_MAX_THREADS = 8
"""An object store serves many requests at once, and each one takes long."""


def copy_staged_files(table: Table, run_id: str, files: Sequence[StagedFile]) -> list[str]:
    """Return the locations of staged files for a commit.

    Files that are in the table's folder or in its object store are used in place. Jobs without the address of the
    warehouse stage their files on a disk, and these are copied. `vacuum` removes copies that were never committed.

    Raises:
        OSError: if the store refuses.
        StorageError: if a copy and its file differ in size.
    """
    locations = [location_of(file.path) for file in files]
    if is_on_disk(table.location()):
        return locations
    staged_on_disk = [location for location in locations if is_on_disk(location)]
    copies = dict(zip(staged_on_disk, copy_data_files(table, run_id, staged_on_disk), strict=True))
    return [copies.get(location, location) for location in locations]


def copy_data_files(table: Table, run_id: str, locations: Sequence[str]) -> list[str]:
    """Copy files into the folder of a run in a table, and return the locations of the copies in the same order.

    Raises:
        OSError: if the disk or the store refuses, with the name of a missing file.
        StorageError: if a copy and its file differ in size.
    """
    folder = f"{table.location()}/data/{run_id}/{uuid.uuid4().hex}"
    targets = [f"{folder}/part-{number:05}.parquet" for number in range(len(locations))]
    with ThreadPoolExecutor(_MAX_THREADS) as pool:
        list(pool.map(lambda source, target: _copy(table, source, target), locations, targets))
    return targets


def _copy(table: Table, source: str, target: str) -> None:
    if is_on_disk(target):
        path = Path(plain_path(target))
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(plain_path(source), path)
        return
    (source_store, source_path), (target_store, target_path) = (
        filesystem_of(table.io, location) for location in (source, target)
    )
    source_info = source_store.get_file_info(source_path)
    if source_info.type is FileType.NotFound:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), plain_path(source))
    copy_files(source_path, target_path, source_filesystem=source_store, destination_filesystem=target_store)
    if (size_bytes := target_store.get_file_info(target_path).size) != source_info.size:
        sizes = f"a copy has {size_bytes} bytes, its file has {source_info.size}"
        msg = f"{sizes}\n  {target}\n  {plain_path(source)}"
        raise StorageError(msg)
