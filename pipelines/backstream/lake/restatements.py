"""Restatements: what a publication changes of what had been published, kept as a table of its own."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation

from backstream.core.manifest import StagedFile
from backstream.core.tables import Column, restatements_table
from backstream.lake import history
from backstream.lake.catalog import NAMESPACE, loaded
from backstream.lake.commits import attempting, committed, with_retries
from backstream.lake.data_files import described
from backstream.lake.days import both_by_days, rows_of
from backstream.lake.differences import differences
from backstream.lake.schemas import ensured, type_text
from backstream.lake.warehouse import plain_path


@dataclass(frozen=True, slots=True)
class Replacement:
    """What a run takes out of a table and what it puts in; `said` are the properties of its snapshot."""

    table: Table
    removed: Sequence[DataFile]
    added: Sequence[DataFile]
    keys: Sequence[str]
    said: dict[str, str]

    @property
    def run_id(self) -> str:
        """Whose replacement it is."""
        return self.said[history.RUN_ID]

    def changes(self) -> Iterator[pa.Table]:
        """What it changes, as `differences` tells it: a table for some days at a time, in their order."""
        for removed, added in both_by_days(self.removed, self.added):
            found = differences(rows_of(self.table, removed), rows_of(self.table, added), self.keys)
            if found.num_rows:
                yield found


def append_restatements(catalog: Catalog, dataset: str, replacement: Replacement) -> int:
    """Write what a run is about to change, once per run; the number of rows, 0 where no row was before.

    Readers take the rows of published runs only, so that a run which ends here leaves nothing visible.
    """
    name = restatements_table(()).name(dataset)
    if not replacement.removed or _is_written(catalog, name, replacement.run_id):
        return 0
    changes = replacement.changes()
    if (first := next(changes, None)) is None:
        return 0
    table = ensured(catalog, name, restatements_table(_key_columns(replacement)))
    with attempting(f"append to table `{name}`"):
        file = _written(table, replacement.run_id, _chained(first, changes))
    said = replacement.said | {history.ROWS: str(file.rows), history.REPLACED_ROWS: "0", history.FILES: "1"}
    added = described(table, [file])

    def attempt() -> None:
        now = loaded(catalog, name)
        if history.appended_by(now, replacement.run_id) is None:
            committed(now, Operation.APPEND, added, [], said)

    with_retries(f"append to table `{name}`", attempt)
    return file.rows


def _is_written(catalog: Catalog, name: str, run_id: str) -> bool:
    return (
        catalog.table_exists((NAMESPACE, name)) and history.appended_by(loaded(catalog, name), run_id) is not None
    )


def _key_columns(replacement: Replacement) -> list[Column]:
    fields = (replacement.table.schema().find_field(key) for key in replacement.keys)
    return [Column(field.name, type_text(field.field_type)) for field in fields]


def _chained(first: pa.Table, rest: Iterator[pa.Table]) -> Iterator[pa.Table]:
    yield first
    yield from rest


def _written(table: Table, run_id: str, changes: Iterator[pa.Table]) -> StagedFile:
    """One file, a row group for some days: no more than these are in memory."""
    location = f"{table.location()}/data/{run_id}/{uuid.uuid4().hex}/part-0.parquet"
    schema, rows = table.schema().as_arrow(), 0
    with table.io.new_output(location).create() as file, pq.ParquetWriter(file, schema) as writer:
        for found in changes:
            stored = _stored(found, run_id, schema)
            writer.write_table(stored)
            rows += stored.num_rows
    return StagedFile(plain_path(location), len(table.io.new_input(location)), rows)


def _stored(found: pa.Table, run_id: str, schema: pa.Schema) -> pa.Table:
    """The rows as the table has them; null in columns of keys that the definition no longer has."""
    rows = found.append_column("run_id", pa.array([run_id] * found.num_rows, pa.string()))
    columns = [
        rows[field.name].cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)
