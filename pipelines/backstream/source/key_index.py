"""Index the records of input files per key and slice of event time; each file is read once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from backstream.definition.model import Definition
from backstream.definition.prepared import reads_prepared_files
from backstream.definition.prepared_columns import FILE
from backstream.eventtime.stale_windows import slice_ms
from backstream.runs.home import Home
from backstream.runs.plan import InputFile
from backstream.source.local_times import list_local_ms
from backstream.source.raw_files import path_of_uri
from backstream.source.reader import scan_row_groups
from backstream.source.time_columns import TimeColumn
from backstream.storage.files import replace_file

_VERSION = 2
_SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("first_ms", pa.int64()),
        ("last_ms", pa.int64()),
        ("events", pa.int64()),
        ("raw_path", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class KeySlice:
    """The records of one key in one slice of event time; `key` is JSON.

    `raw_path` is the raw file of prepared records; None for other files, and if the records do not name it.
    """

    key: str
    first_ms: int
    last_ms: int
    events: int
    raw_path: str | None = None


@dataclass(frozen=True, slots=True)
class KeyIndex:
    """An index of a source under one definition: a folder beside the arrival index with a small file per input."""

    definition: Definition
    folder: Path

    @classmethod
    def from_definition(cls, definition: Definition, home: Home) -> KeyIndex:
        """Return the index for the source and window of a definition."""
        content = {
            "version": _VERSION,
            "source": definition.read_by,
            "slices": slice_ms(definition.window.spec()),
        }
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]
        return cls(definition, home.path / "arrivals" / definition.name / f"events-{digest}")

    def load_slices(self, file: InputFile, raw_paths: Sequence[str] | None = None) -> list[KeySlice]:
        """Return the slices of a file; read the file if it is not in the index.

        Args:
            file: the input file.
            raw_paths: the raw files whose records are wanted; None: all records.

        Raises:
            PlanError: when only Spark can evaluate its event times.
            UnreadableError: when it is damaged.
        """
        rows = self._find_rows(file)
        if rows is None:
            rows = _count_slices(file.path, self.definition)
            self._write(file, rows)
        if raw_paths is not None:
            rows = rows.filter(pc.is_in(rows["raw_path"], pa.array(raw_paths, pa.string())))
        return [KeySlice(**row) for row in rows.to_pylist()]

    def find_slices(self, file: InputFile) -> list[KeySlice] | None:
        """Return the slices of a file from the index; None: it is not in the index."""
        rows = self._find_rows(file)
        return None if rows is None else [KeySlice(**row) for row in rows.to_pylist()]

    def _find_rows(self, file: InputFile) -> pa.Table | None:
        try:
            with pq.ParquetFile(self._path(file)) as index:
                return index.read()
        except FileNotFoundError:
            return None

    def _path(self, file: InputFile) -> Path:
        identity = json.dumps([file.path, file.size_bytes, file.modified_ms])
        return self.folder / f"{hashlib.sha256(identity.encode()).hexdigest()[:24]}.parquet"

    def _write(self, file: InputFile, rows: pa.Table) -> None:
        with replace_file(self._path(file)) as draft:
            pq.write_table(rows, draft)


def key_text(values: Sequence[Any]) -> str:
    """Return the values of key columns as JSON; an instant is written in UTC, whatever its zone."""
    return json.dumps([_json_value(value) for value in values], ensure_ascii=False)


def _json_value(value: object) -> object:
    if isinstance(value, datetime):
        return (value.astimezone(UTC) if value.tzinfo else value).isoformat()
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _count_slices(path: str, definition: Definition) -> pa.Table:
    """Return the index rows of one file, read one row group at a time."""
    event_time = TimeColumn.from_expression(definition.timed_source.event_time, "source.event_time")
    files = [FILE] if reads_prepared_files(definition.source) else []
    names = list(dict.fromkeys([*definition.source.key, event_time.name, *files]))
    parts = [_group_by_slice(rows, definition, event_time) for rows in scan_row_groups(path, names)]
    parts = [part for part in parts if part.num_rows]
    if not parts:
        return _SCHEMA.empty_table()
    keys = [f"key{number}" for number in range(len(definition.source.key))]
    rows = pa.concat_tables(parts)
    sums = [("first_ms", "min"), ("last_ms", "max"), ("events", "sum")]
    merged = rows.group_by([*keys, "slice", *files]).aggregate(sums)
    values = zip(*(merged[name].to_pylist() for name in keys), strict=True) if keys else [()] * merged.num_rows
    columns = [pa.array([key_text(row) for row in values], pa.string())]
    columns += [merged[f"{name}_{function}"] for name, function in sums]
    columns.append(raw_paths_of(merged[FILE]) if files else pa.nulls(merged.num_rows, pa.string()))
    return pa.table(columns, schema=_SCHEMA)


def _group_by_slice(rows: pa.Table, definition: Definition, event_time: TimeColumn) -> pa.Table:
    """Return per key and slice the first and last event time and the number of readable records."""
    width_ms, offset_ms = slice_ms(definition.window.spec())
    first_ms, end_ms = definition.source.event_time_range
    rows = rows.filter(pc.is_valid(rows[event_time.name]))
    if not rows.num_rows:
        return rows
    at_ms = event_time.values_ms(rows[event_time.name])
    is_in_range = pa.array((at_ms >= first_ms) & (at_ms < end_ms))
    keys = {f"key{number}": _decode_dictionary(rows[name]) for number, name in enumerate(definition.source.key)}
    if FILE in rows.column_names:
        keys[FILE] = rows[FILE].cast(pa.string())
    at_ms = list_local_ms(definition.window.spec().zone, at_ms)
    slices = pa.array(np.floor_divide(at_ms - offset_ms, width_ms))
    records = pa.table({**keys, "slice": slices, "at_ms": pa.array(at_ms)}).filter(is_in_range)
    slices_by_key = records.group_by([*keys, "slice"]).aggregate(
        [("at_ms", "min"), ("at_ms", "max"), ("at_ms", "count")]
    )
    renamed = {"at_ms_min": "first_ms", "at_ms_max": "last_ms", "at_ms_count": "events"}
    return slices_by_key.rename_columns([renamed.get(name, name) for name in slices_by_key.column_names])


def raw_paths_of(uris: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return the paths of raw files by their names in prepared files; few names repeat many times."""
    encoded = pa.chunked_array([uris]) if isinstance(uris, pa.Array) else uris
    encoded = encoded.cast(pa.string()).combine_chunks().dictionary_encode()
    paths = pa.array([path_of_uri(uri) for uri in encoded.dictionary.to_pylist()], pa.string())
    return pc.take(paths, encoded.indices)


def _decode_dictionary(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
