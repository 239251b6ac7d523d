"""Extend the arrival index with DuckDB in this process, without Spark."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pyarrow as pa

from backstream.definition.model import Definition
from backstream.native.supported import read_spec
from backstream.native.task import IndexTask
from backstream.native.task_cuts import group_files_by_rows
from backstream.native.task_runner import run_index_task
from backstream.runs.plan import InputFile
from backstream.source.arrival_index import ArrivalIndex, IndexFolder, join_index_rows, write_index_batch
from backstream.source.input_versions import require_input_files
from backstream.storage.stores import Stores

_TASK_ROWS = 2_000_000
_MEMORY_MB = 1_000


def extend_index_here(
    definition: Definition, columns: Mapping[str, str], inputs: Sequence[InputFile], folder: IndexFolder
) -> ArrivalIndex:
    """Return the index of input files; files that it lacks are read and added, so that the next run need not.

    Args:
        definition: the definition of the source.
        columns: the columns of the source with their Spark SQL types.
        inputs: the files.
        folder: the folder of the index.

    Raises:
        PlanError: when a file was changed while it was read.
    """
    index = ArrivalIndex.from_folder(folder, inputs)
    new = index.list_unindexed(inputs)
    if not new:
        return index
    reading = read_spec(definition, columns)
    tasks = [IndexTask(reading, folder.grid, paths, _MEMORY_MB) for paths in group_files_by_rows(new, _TASK_ROWS)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        rows = pa.concat_tables(pool.map(partial(run_index_task, stores=Stores.from_environment()), tasks))
    require_input_files(new, "extend the arrival index")
    folder.path.mkdir(parents=True, exist_ok=True)
    # A process that reads the same files at this time writes a second batch; readers use one of them.
    write_index_batch(folder, join_index_rows(new, rows), uuid.uuid4().hex)
    return ArrivalIndex.from_folder(folder, inputs)
