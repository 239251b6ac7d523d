"""Check that a chunk group has read each record of its input, and has staged a row for each window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from backstream.chunks.attempt import Attempt
from backstream.chunks.staged import Staged
from backstream.errors import CountError
from backstream.runs.manifest import StagedFile
from backstream.runs.table_schemas import (
    PANES,
    WINDOWS,
    WITHHELD,
    pane_count_column,
)
from backstream.storage.columns import load_columns
from backstream.storage.stores import map_files


def require_all_read(attempt: Attempt, expected: int, scanned: int) -> None:
    """Check that the tasks read as many rows as the footers of the files had at planning time.

    Raises:
        CountError: naming both numbers.
    """
    if scanned != expected:
        msg = (
            f"the input files of {attempt} have {expected:,} rows by their footers, {scanned:,} were read\n\n"
            "hint: if a file was replaced, create a new plan; each executor must see the same files"
        )
        raise CountError(msg)


def require_all_records(attempt: Attempt, expected: int, files: Mapping[str, Staged], published: str) -> None:
    """Check that the staged rows were computed from as many records as the windows of the chunks have.

    Raises:
        CountError: naming both numbers.
    """
    suffix = PANES if PANES in attempt.plan.tables else WINDOWS
    suffixes = (PANES,) if suffix == PANES else (WINDOWS, WITHHELD)
    counted = sum(file.records for each in suffixes for file in _staged_files(files, each))
    if counted != expected:
        name = attempt.plan.tables[suffix].name
        msg = (
            f"the rows staged for table `{name}` are made of {counted:,} records, its windows hold {expected:,}\n"
            f"  {attempt}\n\nhint: run the same command again; if the error occurs again, report it as a bug"
        )
        raise CountError(msg)
    if suffix == PANES:
        _require_all_published(attempt, published, files)


def _staged_files(files: Mapping[str, Staged], suffix: str) -> list[StagedFile]:
    return [file for of_chunk in files.get(suffix, {}).values() for file in of_chunk]


def _require_all_published(attempt: Attempt, pane: str, files: Mapping[str, Staged]) -> None:
    """Check that each pane of the published kind has a row in the published table.

    Raises:
        CountError: naming rows and records of both tables.
    """
    windows, panes = _staged_files(files, WINDOWS), _staged_files(files, PANES)
    counts = _load_column(attempt, panes, pane_count_column(pane))
    fired = [column.filter(pc.greater(column, 0)) for column in counts]
    expected = sum(map(len, fired)), sum(pc.sum(column).as_py() or 0 for column in fired)
    withheld = _staged_files(files, WITHHELD)
    rows = _load_column(attempt, withheld, "rows")
    staged = (
        sum(file.rows for file in windows) + sum(pc.sum(column).as_py() or 0 for column in rows),
        sum(file.records for file in (*windows, *withheld)),
    )
    if expected != staged:
        tables = attempt.plan.tables
        msg = (
            f"table `{tables[WINDOWS].name}` would get {staged[0]:,} rows of {staged[1]:,} records,"
            f" the {pane} panes in `{tables[PANES].name}` are {expected[0]:,} of {expected[1]:,}\n"
            f"  {attempt}\n\nhint: run the same command again; if the error occurs again, report it as a bug"
        )
        raise CountError(msg)


def _load_column(attempt: Attempt, files: Sequence[StagedFile], name: str) -> list[pa.ChunkedArray]:
    paths = {file.path: file.path for file in files}
    return map_files(lambda path: load_columns(path, [name], attempt.stores)[0], paths)
