"""Run a task that prepares raw files, and write its Parquet file."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from backstream.native.preparation.line_reader import LineReader
from backstream.native.preparation.prepared_files import write_options
from backstream.native.preparation.rows import RowMaker
from backstream.native.preparation.task import (
    PreparationResult,
    PreparationTask,
    UnusualFileError,
    UnusualLines,
)
from backstream.native.task import own_path
from backstream.native.task_runner import FAILED
from backstream.storage.stores import NO_STORES, Stores

_GROUP_ROWS = 250_000
"""Rows of a row group. Readers skip row groups by the bounds of their times."""


def run_preparation_task(task: PreparationTask, _: Stores = NO_STORES) -> PreparationResult:
    """Prepare the pieces of a task, and leave out unusual files.

    Raises:
        RuntimeError: with a message that begins with `FAILED` and has the task and the cause.
    """
    try:
        return _prepare(task)
    except Exception as error:
        msg = f"{FAILED} {task}: {error}"
        raise RuntimeError(msg) from error


def _prepare(task: PreparationTask) -> PreparationResult:
    maker, path = RowMaker(task.spec), own_path(task.output)
    output, unusual_files, unusual_lines, lines = _Output(path), dict[str, str](), list[UnusualLines](), 0
    for piece in task.pieces:
        reader = LineReader(piece, maker)
        tables = reader.prepared_tables()
        try:
            # Written rows cannot be removed, so all rows of a file are read before those of other files follow.
            for table in tables if len(task.pieces) == 1 else list(tables):
                output.append(table)
        except UnusualFileError as error:
            unusual_files[piece.path] = str(error)
            continue
        lines += reader.lines
        if unusual := reader.write_unusual_lines(task.lines_folder, Path(path).stem):
            unusual_lines.append(unusual)
    if len(unusual_files) == len(task.pieces):
        output.discard()
        return PreparationResult(None, 0, 0, unusual_files)
    return PreparationResult(output.close(), output.rows, lines, unusual_files, unusual_lines)


class _Output:
    """A Parquet file that is written in row groups, and exists once it has rows."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._writer: pq.ParquetWriter | None = None
        self._pending: list[pa.Table] = []
        self._pending_rows = 0
        self.rows = 0

    def append(self, table: pa.Table) -> None:
        """Add rows; they are written once they make up a row group."""
        self._pending.append(table)
        self._pending_rows += table.num_rows
        self.rows += table.num_rows
        if self._pending_rows >= _GROUP_ROWS:
            self._write()

    def _write(self) -> None:
        if not self._pending:
            return
        table = pa.concat_tables(self._pending).unify_dictionaries()
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._path, table.schema, **write_options(table.schema))
        self._writer.write_table(table, row_group_size=table.num_rows)
        self._pending, self._pending_rows = [], 0

    def close(self) -> str | None:
        """Write the rest, and return the path; None without rows."""
        self._write()
        if self._writer is None:
            return None
        self._writer.close()
        return self._path

    def discard(self) -> None:
        """Remove what is written."""
        if self._writer is not None:
            self._writer.close()
            Path(self._path).unlink()
