"""Extend the arrival index of a stream: each new input file is read once."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
from filelock import FileLock

from backstream.runs.plan import InputFile
from backstream.source.arrival_index import ArrivalIndex, BucketGrid, IndexFolder, write_index_batch
from backstream.source.input_versions import require_input_files

ReadRows = Callable[[Sequence[InputFile], BucketGrid], pa.Table]
"""Returns the rows of the arrival index for some files."""


def extend_index(inputs: Sequence[InputFile], folder: IndexFolder, read_rows: ReadRows) -> ArrivalIndex:
    """Return the index of these files, after new files are read.

    Args:
        inputs: the files.
        folder: the folder of the index.
        read_rows: reads new files.

    Raises:
        PlanError: when a new file differs from the planned one.
    """
    index = ArrivalIndex.from_folder(folder, inputs)
    if not index.list_unindexed(inputs):
        return index
    with _lock(folder):
        # Another chunk may have read the files before this one got the lock.
        new_files = ArrivalIndex.from_folder(folder, inputs).list_unindexed(inputs)
        if new_files:
            rows = read_rows(new_files, folder.grid)
            # If a file was replaced meanwhile, its rows would be stored for the planned file, or be lost.
            require_input_files(new_files, "extend the arrival index")
            write_index_batch(folder, rows, uuid.uuid4().hex)
    return ArrivalIndex.from_folder(folder, inputs)


@contextmanager
def _lock(folder: IndexFolder) -> Iterator[None]:
    """Lock the folder, so that parallel chunks don't read the same files twice. Results don't need the lock."""
    folder.path.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.lock):
        yield
