"""How many records the input files hold per key and window: copies are counted, and so is what no run has read."""

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
    """Records per file, key and window (`FILE`, the places, `RECORDS`).

    `unknown` are stretches of event time of which a file is gone that nobody had counted; `note` says why nothing
    could be counted at all.
    """

    rows: pd.DataFrame
    read_by: Mapping[str, frozenset[str]]
    unknown: Sequence[Interval] = ()
    note: str = ""
    is_counted: bool = True

    def per_window(self, files: frozenset[str] | None, shape: TableShape) -> pd.DataFrame:
        """The sum over some files, None: over all."""
        kept = self.rows if files is None else self.rows[self.rows[FILE].isin(list(files))]
        return kept.groupby(shape.places, dropna=False, sort=False)[RECORDS].sum().reset_index()


def count_records(
    definition: Definition, plans: Mapping[str, Plan | None], interval: Interval, shape: TableShape, home: Home
) -> RecordCounts:
    """Count the input files as they are now, and what is known of those of the plans that are gone.

    Each file is read once, ever, with the columns of event time and key.
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
    there = {_identity(file): file for file in source.inputs}
    gone = {_identity(file): file for plan in plans.values() if plan for file in plan.inputs} | there
    try:
        for identity, file in gone.items():
            if not file.may_hold(reach):
                continue
            held = index.load_slices(file) if identity in there else index.is_known(file)
            if held is None:
                unknown.append(_bounds(file, reach))
                continue
            rows += [
                (identity, each.key, window.start_ms, window.end_ms, each.events)
                for each in held
                if reach.overlaps(Interval(each.first_ms, each.last_ms + 1))
                for window in spec.assign(each.first_ms)
            ]
    except PlanError as error:
        return unknown_counts(shape, f"records in files are not counted: {_first_line(error)}")
    read_by = {run_id: frozenset(map(_identity, plan.inputs)) for run_id, plan in plans.items() if plan}
    return RecordCounts(_framed(rows, shape), read_by, unknown)


def input_file_name(identity: str) -> str:
    """The path of a file by its identity."""
    return str(json.loads(identity)[0])


def _identity(file: InputFile) -> str:
    return json.dumps([file.path, file.size_bytes, file.modified_ms])


def unknown_counts(shape: TableShape, note: str = "") -> RecordCounts:
    """Nothing is known of the files."""
    return RecordCounts(_framed([], shape), {}, note=note, is_counted=False)


def _first_line(error: PlanError) -> str:
    return str(error).partition("\n")[0]


def _bounds(file: InputFile, reach: Interval) -> Interval:
    if file.min_event_ms is None or file.max_event_ms is None:
        return reach
    return Interval(file.min_event_ms, file.max_event_ms + 1)


def _framed(rows: Sequence[tuple[str, str, int, int, int]], shape: TableShape) -> pd.DataFrame:
    numbers = {START: np.int64, END: np.int64, RECORDS: np.int64}
    found = pd.DataFrame(rows, columns=[FILE, "key", START, END, RECORDS]).astype(numbers)
    known = found["key"].drop_duplicates()
    values = [json.loads(text) for text in known]
    keys = {
        f"{KEY}{number}": to_series(pa.chunked_array([_array([each[number] for each in values], kind)]), kind)
        for number, kind in enumerate(shape.types[name] for name in shape.keys)
    }
    by_text = pd.DataFrame({"key": known.to_numpy()} | {name: each.to_numpy() for name, each in keys.items()})
    return found.merge(by_text, on="key", how="left").drop(columns="key")


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Values as the index has written them in JSON, in the type of the key."""
    parse: Callable[[str], object] = str
    if pa.types.is_timestamp(kind):
        parse = datetime.fromisoformat
    elif pa.types.is_date(kind):
        parse = date.fromisoformat
    elif pa.types.is_decimal(kind):
        parse = Decimal
    return pa.array([parse(value) if isinstance(value, str) else value for value in values], kind)


def join_file_names(identities: frozenset[str] | set[str]) -> str:
    """Files for people: the first two by name."""
    shown = sorted(Path(input_file_name(each)).name for each in identities)
    return ", ".join(shown[:2]) + (f" and {len(shown) - 2} more files" if len(shown) > 2 else "")  # noqa: PLR2004
