"""What differs between two states of a table: windows and keys added, removed, changed, and by how much."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation

from backstream.lake import snapshots
from backstream.lake.catalog import NAMESPACE, load_table
from backstream.lake.commit import commit_snapshot, retry_attempts, to_data_files, with_retries
from backstream.lake.scans import pair_files_by_day, scan_files
from backstream.lake.storage import plain_path
from backstream.lake.tables import create_or_evolve_table, type_text
from backstream.runs.manifest import StagedFile
from backstream.runs.table_schemas import RECORD_COUNT, Column, restatements_table

ADDED, REMOVED, CHANGED = "added", "removed", "changed"
WINDOW = ("window_start", "window_end")
_BESIDE = ("run_id", RECORD_COUNT)
_RUN = "run_id"


def diff_rows(old: pa.Table, new: pa.Table, keys: Sequence[str]) -> pa.Table:
    """One row per key, window and aggregate whose value is not what it was; sorted, none where all are equal.

    Rows belong together that have the same keys and window; a null key is a key, and NaN equals NaN.

    Args:
        old: rows with keys, window, aggregates and `run_id`.
        new: rows with the same columns.
        keys: the key columns.

    Returns:
        The window, the keys, `change`, `aggregate`, `old_value`, `new_value` (text), `difference` (new less old,
        null unless both are numbers), `old_run_id`, `new_run_id`.
    """
    by, old, new = [*WINDOW, *keys], _plain(old), _plain(new)
    was_at, is_at = _pairs(old, new, by)
    was, now = old.take(was_at), new.take(is_at)
    whose = _whose(was, now, by)
    aggregates = [name for name in new.column_names if name not in (*by, *_BESIDE)]
    found = [_of_one(name, whose, was[name], now[name]) for name in aggregates]
    if not found:
        return _of_one("", whose, was[_RUN], now[_RUN]).slice(0, 0)
    return pa.concat_tables(found).sort_by([(name, "ascending") for name in (*by, "aggregate")])


def _pairs(old: pa.Table, new: pa.Table, by: Sequence[str]) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Positions of the rows that belong together; null where one side has none: a full join."""
    codes = _codes(pa.concat_tables([old.select(by), new.select(by)]))
    left = {"code": codes[: old.num_rows], "was": np.arange(old.num_rows)}
    right = {"code": codes[old.num_rows :], "now": np.arange(new.num_rows)}
    joined = pa.table(left).join(pa.table(right), "code", join_type="full outer")
    return joined["was"], joined["now"]


def _codes(rows: pa.Table) -> np.ndarray:
    """A number per row, the same for equal rows: Arrow's own join finds no partner for a null."""
    codes = np.zeros(rows.num_rows, dtype=np.int64)
    for column in rows.columns:
        values = _dense(column)
        # Numbers start from 0 again at each column, so that no product leaves 64 bits.
        _, codes = np.unique(codes * (int(values.max(initial=0)) + 1) + values, return_inverse=True)
    return codes


def _dense(column: pa.ChunkedArray) -> np.ndarray:
    """Equal values as equal numbers from 0; null is a value like any other."""
    encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    numbers: np.ndarray = encoded.indices.to_numpy().astype(np.int64)
    return numbers


def _plain(rows: pa.Table) -> pa.Table:
    """The rows without "not null", because one without a partner is paired with nulls; and one type of text."""
    columns = (_text(each) if pa.types.is_large_string(each.type) else each for each in rows.columns)
    return pa.table(dict(zip(rows.column_names, columns, strict=True)))


def _whose(was: pa.Table, now: pa.Table, by: Sequence[str]) -> pa.Table:
    """What each pair is called, and what became of it."""
    is_new, is_gone = pc.is_null(was["window_start"]), pc.is_null(now["window_start"])
    change = pc.case_when(pc.make_struct(is_new, is_gone), ADDED, REMOVED, CHANGED)
    columns = {name: pc.if_else(is_new, now[name], was[name]) for name in by}
    runs = {"old_run_id": _text(was[_RUN]), "new_run_id": _text(now[_RUN])}
    return pa.table({**columns, "change": change, **runs})


def _of_one(name: str, whose: pa.Table, was: pa.ChunkedArray, now: pa.ChunkedArray) -> pa.Table:
    """The rows in which one aggregate is not what it was."""
    matters = pc.or_(pc.not_equal(whose["change"], CHANGED), _differ(was, now))
    rows, was, now = whose.filter(matters), was.filter(matters), now.filter(matters)
    said = {
        "aggregate": pa.array([name] * rows.num_rows, pa.string()),
        "old_value": _text(was),
        "new_value": _text(now),
        "difference": _difference(was, now),
    }
    for at, (column, values) in enumerate(said.items(), start=rows.column_names.index("change") + 1):
        rows = rows.add_column(at, column, values)
    return rows


def _differ(was: pa.ChunkedArray, now: pa.ChunkedArray) -> pa.ChunkedArray:
    same = pc.or_(pc.fill_null(pc.equal(was, now), fill_value=False), pc.and_(pc.is_null(was), pc.is_null(now)))
    if pa.types.is_floating(was.type):
        both = pc.and_(pc.is_nan(was), pc.is_nan(now))
        same = pc.or_(same, pc.fill_null(both, fill_value=False))
    return pc.invert(same)


def _difference(was: pa.ChunkedArray, now: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = was.type
    if pa.types.is_integer(kind):  # exact where a double is not: near 2**53 and beyond
        return pc.cast(pc.subtract(now, was), pa.float64())
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return pc.subtract(pc.cast(now, pa.float64()), pc.cast(was, pa.float64()))
    return pa.chunked_array([pa.nulls(len(was), pa.float64())])


def _text(values: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.cast(values, pa.string())


_SIZE = "size"


@dataclass(slots=True)
class AggregateChange:
    """One aggregate over all windows that changed; the sums count those whose difference is a number.

    `largest` has the rows with the largest difference, largest first.
    """

    rows: int = 0
    difference: float = 0.0
    absolute: float = 0.0
    largest: list[pa.Table] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ChangeTotals:
    """Windows and keys per kind of change, what happened to each aggregate, and how many each old run had said."""

    windows: Mapping[str, int]
    aggregates: Mapping[str, AggregateChange]
    old_runs: Mapping[str, int]

    def largest(self, limit: int) -> pa.Table | None:
        """The largest changes of each aggregate, largest first; None when nothing changed."""
        kept = [table.slice(0, limit) for each in self.aggregates.values() for table in each.largest]
        return pa.concat_tables(kept) if kept else None


def summarize_changes(changes: Iterable[pa.Table], keys: Sequence[str], limit: int) -> ChangeTotals:
    """The sum of what `differences` told, one table at a time; `limit` rows are kept per aggregate."""
    windows: Counter[str] = Counter({ADDED: 0, REMOVED: 0, CHANGED: 0})
    old_runs: Counter[str] = Counter()
    aggregates: dict[str, AggregateChange] = {}
    for found in changes:
        once = found.group_by([*WINDOW, *keys, "change", "old_run_id"]).aggregate([])
        windows.update(once["change"].to_pylist())
        old_runs.update(run_id for run_id in once["old_run_id"].to_pylist() if run_id)
        for name in pc.unique(found["aggregate"]).to_pylist():
            rows = found.filter(pc.equal(found["aggregate"], name))
            _add(aggregates.setdefault(name, AggregateChange()), rows, limit)
    return ChangeTotals(windows, dict(sorted(aggregates.items())), dict(old_runs.most_common()))


def _add(total: AggregateChange, rows: pa.Table, limit: int) -> None:
    numbers = rows["difference"].drop_null()
    numbers = numbers.filter(pc.is_finite(numbers))
    total.rows += rows.num_rows
    total.difference += pc.sum(numbers).as_py() or 0.0
    total.absolute += pc.sum(pc.abs(numbers)).as_py() or 0.0
    both = pa.concat_tables([*total.largest, rows])
    order = [(_SIZE, "descending"), *((name, "ascending") for name in rows.column_names)]
    sized = both.append_column(_SIZE, pc.abs(both["difference"])).sort_by(order)
    total.largest = [sized.drop_columns([_SIZE]).slice(0, limit).combine_chunks()]


@dataclass(frozen=True, slots=True)
class Replacement:
    """What a run takes out of a table and what it puts in; `said` are the properties of its snapshot."""

    table: Table
    removed: Sequence[DataFile]
    added: Sequence[DataFile]
    keys: Sequence[str]
    summary_properties: dict[str, str]

    @property
    def run_id(self) -> str:
        """Whose replacement it is."""
        return self.summary_properties[snapshots.RUN_ID]

    def changes(self) -> Iterator[pa.Table]:
        """What it changes, as `differences` tells it: a table for some days at a time, in their order."""
        for removed, added in pair_files_by_day(self.removed, self.added):
            found = diff_rows(scan_files(self.table, removed), scan_files(self.table, added), self.keys)
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
    table = create_or_evolve_table(catalog, name, restatements_table(_key_columns(replacement)))
    with retry_attempts(f"append to table `{name}`"):
        file = _written(table, replacement.run_id, _chained(first, changes))
    counts = {snapshots.ROWS: str(file.rows), snapshots.REPLACED_ROWS: "0", snapshots.FILES: "1"}
    said = replacement.summary_properties | counts
    added = to_data_files(table, [file])

    def attempt() -> None:
        now = load_table(catalog, name)
        if snapshots.find_append_of_run(now, replacement.run_id) is None:
            commit_snapshot(now, Operation.APPEND, added, [], said)

    with_retries(f"append to table `{name}`", attempt)
    return file.rows


def _is_written(catalog: Catalog, name: str, run_id: str) -> bool:
    return (
        catalog.table_exists((NAMESPACE, name))
        and snapshots.find_append_of_run(load_table(catalog, name), run_id) is not None
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
