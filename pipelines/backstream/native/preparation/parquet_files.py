"""Prepare Parquet files that an engine could read where they are: copy columns, and add the prepared ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from backstream.definition import prepared_columns
from backstream.native.preparation.instants import INSTANT
from backstream.native.preparation.prepared_files import write_options
from backstream.storage.stores import Stores

_TIMES = tuple(pa.timestamp(unit, "UTC") for unit in ("s", "ms", "us"))
_BATCH_ROWS = 262_144


@dataclass(frozen=True, slots=True)
class ParquetCopies:
    """A task that copies Parquet files; files with the same columns are copied into one.

    Attributes:
        uris: the value of the column of the raw file, by path.
        event_time: the column of the event time.
        columns: the columns that a result needs.
        complete: the columns without which a record has no place in the stream; a null is left to Spark.
        output: the path of the first copy.
    """

    uris: Mapping[str, str]
    event_time: str
    columns: Sequence[str]
    complete: Sequence[str]
    output: str

    @property
    def names(self) -> list[str]:
        """The columns that are read."""
        return list(dict.fromkeys([self.event_time, *self.columns]))

    def __str__(self) -> str:
        return f"prepared copies of {len(self.uris)} Parquet files ({next(iter(self.uris))} ...)"


@dataclass(frozen=True, slots=True)
class CopyResult:
    """The files that were written, their rows, and why raw files were left out, by path."""

    outputs: Sequence[str]
    rows: int
    reasons: Mapping[str, str]


def run_copy_task(task: ParquetCopies, _stores: Stores) -> CopyResult:
    """Copy the files of a task; a file that only Spark can prepare is left out with the reason."""
    groups: dict[pa.Schema, list[str]] = {}
    reasons: dict[str, str] = {}
    for path in task.uris:
        try:
            schema = pq.read_schema(path)
            reason = _reason_against_schema(task, schema) or _reason_against_values(task, path)
        except (pa.ArrowException, OSError) as error:
            reason = f"it cannot be read: {error}"
        if reason:
            reasons[path] = reason
        else:
            groups.setdefault(pa.schema([schema.field(name) for name in task.names]), []).append(path)
    outputs, rows = [], 0
    for number, paths in zip(count(), groups.values(), strict=False):
        output = task.output if not number else task.output.replace(".parquet", f"-{number}.parquet")
        rows += _copy(task, paths, output)
        outputs.append(output)
    return CopyResult(outputs, rows, reasons)


def _reason_against_schema(task: ParquetCopies, schema: pa.Schema) -> str | None:
    for name in task.names:
        if schema.names.count(name) != 1:
            return f"it has no column {name}"
    if schema.field(task.event_time).type not in _TIMES:
        return f"{task.event_time} is a {schema.field(task.event_time).type}"
    return None


def _reason_against_values(task: ParquetCopies, path: str) -> str | None:
    """Return why an engine could not read a file where it is: a missing value, or text that is not UTF-8."""
    file = pq.ParquetFile(path)
    for batch in file.iter_batches(_BATCH_ROWS, columns=task.names):
        for name in (task.event_time, *task.complete):
            if batch[name].null_count:
                return f"a record has no {name}"
        with suppress(pa.ArrowInvalid):
            batch.validate(full=True)
            continue
        return "a text is not UTF-8"
    return None


def _copy(task: ParquetCopies, paths: Sequence[str], output: str) -> int:
    """Write the records of files with the same columns into one file, and return their number."""
    writer: pq.ParquetWriter | None = None
    rows = 0
    for path in paths:
        for batch in pq.ParquetFile(path).iter_batches(_BATCH_ROWS, columns=task.names):
            table = _prepare(task, batch, task.uris[path])
            writer = writer or pq.ParquetWriter(output, table.schema, **write_options(table.schema))
            writer.write_table(table)
            rows += table.num_rows
    if writer is None:  # files without records keep their columns
        file = pq.ParquetFile(paths[0])
        empty = file.schema_arrow.empty_table().select(task.names)
        table = _prepare(task, empty, task.uris[paths[0]])
        writer = pq.ParquetWriter(output, table.schema, **write_options(table.schema))
        writer.write_table(table)
    writer.close()
    return rows


def _prepare(task: ParquetCopies, rows: pa.Table | pa.RecordBatch, uri: str) -> pa.Table:
    texts = (prepared_columns.EVENT_TEXT, prepared_columns.RECORD, prepared_columns.REASON)
    total = rows.num_rows
    return pa.table(
        {
            prepared_columns.EVENT_TIME: rows[task.event_time].cast(INSTANT),
            **{name: rows[name] for name in task.columns},
            **{name: pa.nulls(total, pa.string()) for name in texts},
            prepared_columns.FILE: pa.DictionaryArray.from_arrays(np.zeros(total, np.int32), pa.array([uri])),
            prepared_columns.LINE: pa.nulls(total, pa.int64()),
        }
    )
