"""Count the records of input files by key and window, including duplicates and files that no run has read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from backstream.definition.model import Definition
from backstream.errors import PlanError
from backstream.eventtime.intervals import Interval
from backstream.eventtime.windows import Session
from backstream.reconcile.frames import END, KEY, START, TableShape, to_series
from backstream.runs.home import Home
from backstream.runs.plan import InputFile, Plan
from backstream.source.files import inspect_files, list_source_files
from backstream.source.key_index import KeyIndex

FILE, RECORDS = "file", "records"


@dataclass(frozen=True, slots=True)
class RecordCounts:
    """Records by file, key, and window (columns `FILE`, `TableShape.places`, and `RECORDS`).

    `unknown` has the ranges of event time of deleted files that were never counted. `note` is the reason why
    nothing was counted.
    """

    rows: pd.DataFrame
    read_by: Mapping[str, frozenset[str]]
    unknown: Sequence[Interval] = ()
    note: str = ""
    is_counted: bool = True

    def per_window(self, files: frozenset[str] | None, shape: TableShape) -> pd.DataFrame:
        """Return the sum over some files; over all for None."""
        selected = self.rows if files is None else self.rows[self.rows[FILE].isin(list(files))]
        return selected.groupby(shape.places, dropna=False, sort=False)[RECORDS].sum().reset_index()


def count_records(
    definition: Definition, plans: Mapping[str, Plan | None], interval: Interval, shape: TableShape, home: Home
) -> RecordCounts:
    """Count the records of the current input files, and of deleted files of the plans that are in the index.

    Each file is read once, with the columns of event time and key; the index keeps the counts.
    """
    spec = definition.window.spec()
    if isinstance(spec, Session):
        return unknown_counts(shape, "records in files are not counted: sessions have no fixed bounds")
    try:
        source = inspect_files(list_source_files(definition.source, definition.name), definition.timed_source)
    except PlanError as error:
        return unknown_counts(shape, f"records in files are not counted: {_first_line(error)}")
    reach = Interval(interval.start_ms, interval.end_ms + spec.size_ms)
    index, rows, unknown = KeyIndex.from_definition(definition, home), [], []
    present = {_identity(file): file for file in source.inputs}
    files = {_identity(file): file for plan in plans.values() if plan for file in plan.inputs} | present
    try:
        for identity, file in files.items():
            if not file.may_hold(reach):
                continue
            slices = index.load_slices(file) if identity in present else index.find_slices(file)
            if slices is None:
                unknown.append(_event_time_span(file, reach))
                continue
            rows += [
                (identity, part.key, window.start_ms, window.end_ms, part.events)
                for part in slices
                if reach.overlaps(Interval(part.first_ms, part.last_ms + 1))
                for window in spec.assign(part.first_ms)
            ]
    except PlanError as error:
        return unknown_counts(shape, f"records in files are not counted: {_first_line(error)}")
    read_by = {run_id: frozenset(map(_identity, plan.inputs)) for run_id, plan in plans.items() if plan}
    return RecordCounts(_count_frame(rows, shape), read_by, unknown)


def _input_file_name(identity: str) -> str:
    """Return the path of a file from its identity."""
    return str(json.loads(identity)[0])


def _identity(file: InputFile) -> str:
    return json.dumps([file.path, file.size_bytes, file.modified_ms])


def unknown_counts(shape: TableShape, note: str = "") -> RecordCounts:
    """Return empty counts."""
    return RecordCounts(_count_frame([], shape), {}, note=note, is_counted=False)


def _first_line(error: PlanError) -> str:
    return str(error).partition("\n")[0]


def _event_time_span(file: InputFile, reach: Interval) -> Interval:
    if file.min_event_ms is None or file.max_event_ms is None:
        return reach
    return Interval(file.min_event_ms, file.max_event_ms + 1)


def _count_frame(rows: Sequence[tuple[str, str, int, int, int]], shape: TableShape) -> pd.DataFrame:
    numbers = {START: np.int64, END: np.int64, RECORDS: np.int64}
    counts = pd.DataFrame(rows, columns=[FILE, "key", START, END, RECORDS]).astype(numbers)
    texts = counts["key"].drop_duplicates()
    keys = [json.loads(text) for text in texts]
    columns = {
        f"{KEY}{number}": to_series(pa.chunked_array([_key_array([key[number] for key in keys], kind)]), kind)
        for number, kind in enumerate(shape.types[name] for name in shape.keys)
    }
    by_text = pd.DataFrame(
        {"key": texts.to_numpy()} | {name: column.to_numpy() for name, column in columns.items()}
    )
    return counts.merge(by_text, on="key", how="left").drop(columns="key")


def _key_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return values of the index, which stores them as JSON, in the type of the key."""
    parse: Callable[[str], object] = str
    if pa.types.is_timestamp(kind):
        parse = datetime.fromisoformat
    elif pa.types.is_date(kind):
        parse = date.fromisoformat
    elif pa.types.is_decimal(kind):
        parse = Decimal
    return pa.array([parse(value) if isinstance(value, str) else value for value in values], kind)


def join_file_names(identities: frozenset[str] | set[str]) -> str:
    """Return the names of the first two files, and the number of others."""
    names = sorted(Path(_input_file_name(identity)).name for identity in identities)
    return ", ".join(names[:2]) + (f" and {len(names) - 2} more files" if len(names) > 2 else "")  # noqa: PLR2004
