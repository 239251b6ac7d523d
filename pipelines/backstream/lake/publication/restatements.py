"""Store the changes that a run makes to published values in the table of restatements, and read them again."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot

from backstream.lake import snapshots
from backstream.lake.catalog import load_table
from backstream.lake.catalog_address import table_identifier
from backstream.lake.commit import commit_snapshot, note_attempt, with_retries
from backstream.lake.diff import REMOVED, WINDOW, Replacement
from backstream.lake.publication.data_files import to_data_files
from backstream.lake.scans import equal_values
from backstream.lake.storage import plain_path
from backstream.lake.tables import create_or_evolve_table, type_text
from backstream.runs.manifest import StagedFile
from backstream.runs.table_schemas import Column, restatements_table

_RUN_COLUMN = "run_id"


def append_restatements(catalog: Catalog, dataset: str, replacement: Replacement) -> int:
    """Record the changes of a run before it publishes, once per run; return their number, 0 if no value changes.

    Readers ignore the rows of unpublished runs. If the run fails after this step, the rows stay invisible.
    """
    if not replacement.removed:
        return 0
    name = restatements_table(()).name(dataset)
    if recorded := _find_append(catalog, name, replacement.run_id):
        return snapshots.summary_number(recorded, snapshots.ROWS)
    changes = replacement.changes()
    if (first := next(changes, None)) is None:
        return 0
    table = create_or_evolve_table(catalog, name, restatements_table(_key_columns(replacement)))
    with note_attempt(f"append to table `{name}`"):
        file = _write_file(table, replacement.run_id, chain([first], changes))
    counts = {snapshots.ROWS: str(file.rows), snapshots.REPLACED_ROWS: "0", snapshots.FILES: "1"}
    properties = replacement.summary_properties | counts
    added = to_data_files(table, [file])

    def attempt() -> None:
        if snapshots.find_append_of_run(table, replacement.run_id) is None:
            commit_snapshot(table, Operation.APPEND, added, [], properties)

    with_retries(f"append to table `{name}`", attempt, table)
    return file.rows


def read_restatements(catalog: Catalog, dataset: str, run_id: str, keys: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the recorded changes of a run as tables with the columns of `diff_rows`.

    All changes of a window and key are in one table. Few files of other runs are opened.
    """
    table = load_table(catalog, restatements_table(()).name(dataset))
    scan = table.scan(row_filter=equal_values(run_id=run_id))
    for task in scan.plan_files():
        with table.io.new_input(task.file.file_path).open() as file, pq.ParquetFile(file) as parquet:
            for number in range(parquet.num_row_groups):
                rows = parquet.read_row_group(number)
                # Statistics have only the first characters of a run id, so files of similar ids are candidates.
                if (own := rows.filter(pc.equal(rows[_RUN_COLUMN], run_id))).num_rows:
                    yield _to_changes(own, keys)


def _to_changes(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return stored rows with the columns of `diff_rows`; a removed row has no new run."""
    is_removed = pc.equal(rows["change"], REMOVED)
    new_run_ids = pc.if_else(is_removed, pa.scalar(None, pa.string()), rows[_RUN_COLUMN])
    names = [*WINDOW, *keys, "change", "aggregate", "old_value", "new_value", "difference", "old_run_id"]
    return rows.select(names).append_column("new_run_id", new_run_ids)


def _find_append(catalog: Catalog, name: str, run_id: str) -> Snapshot | None:
    if not catalog.table_exists(table_identifier(name)):
        return None
    return snapshots.find_append_of_run(load_table(catalog, name), run_id)


def _key_columns(replacement: Replacement) -> list[Column]:
    fields = (replacement.table.schema().find_field(key) for key in replacement.keys)
    return [Column(field.name, type_text(field.field_type)) for field in fields]


def _write_file(table: Table, run_id: str, changes: Iterator[pa.Table]) -> StagedFile:
    """Write one file with a row group for each table; no more than one table is in memory."""
    location = f"{table.location()}/data/{run_id}/{uuid.uuid4().hex}/part-0.parquet"
    schema, rows = table.schema().as_arrow(), 0
    with table.io.new_output(location).create() as file, pq.ParquetWriter(file, schema) as writer:
        for chunk in changes:
            stored = _to_table_schema(chunk, run_id, schema)
            writer.write_table(stored, row_group_size=stored.num_rows)
            rows += stored.num_rows
    return StagedFile(plain_path(location), len(table.io.new_input(location)), rows)


def _to_table_schema(changes: pa.Table, run_id: str, schema: pa.Schema) -> pa.Table:
    """Return the rows in the schema of the table; key columns that the definition no longer has are null."""
    rows = changes.append_column(_RUN_COLUMN, pa.array([run_id] * changes.num_rows, pa.string()))
    columns = [
        rows[field.name].cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)
