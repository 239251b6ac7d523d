"""Compare two states of a table, and add up the differences.

A difference is a window and key that was added or removed, or an aggregate whose value changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from backstream.lake import snapshots
from backstream.lake.scans import pair_files_by_day, plain_column, scan_batches
from backstream.native.changed_rows import find_changed_rows
from backstream.runs.table_schemas import RECORD_COUNT

ADDED, REMOVED, CHANGED = "added", "removed", "changed"
WINDOW = ("window_start", "window_end")
_RUN_COLUMN = "run_id"
_NOT_AGGREGATES = (_RUN_COLUMN, RECORD_COUNT)


def diff_rows(old: pa.Table, new: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return one row per key, window, and aggregate whose value changed, in sorted order.

    Rows with the same keys and window are compared; null equals null as a key, and NaN equals NaN as a value.

    Args:
        old: rows with keys, window, aggregates, and `run_id`.
        new: rows with the same columns.
        keys: the key columns.

    Returns:
        The window, the keys, `change`, `aggregate`, `old_value`, `new_value` (text), `difference` (new minus old,
        null unless both are numbers), `old_run_id`, `new_run_id`.
    """
    old, new = _comparable_rows(old), _comparable_rows(new)
    if not old.num_rows or not new.num_rows:
        return _describe_changes(*_pair_with_nulls(old, new, [*WINDOW, *keys]), keys)
    nothing = _describe_changes(old.slice(0, 0), new.slice(0, 0), keys)
    return pa.concat_tables([nothing, *_list_changes(old.to_reader(), new.to_reader(), keys)])


def _list_changes(old: pa.RecordBatchReader, new: pa.RecordBatchReader, keys: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the changes of `diff_rows` in sorted order, as tables; no state needs to fit into memory."""
    values = _aggregates(old.schema.names, keys)
    for before, after in find_changed_rows(old, new, [*WINDOW, *keys], values):
        changes = _describe_changes(before, after, keys)
        if changes.num_rows:
            yield changes


def _aggregates(names: Sequence[str], keys: Sequence[str]) -> list[str]:
    return [name for name in names if name not in (*WINDOW, *keys, *_NOT_AGGREGATES)]


def _describe_changes(before: pa.Table, after: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return the changes of sorted pairs of rows in sorted order."""
    pairs = _describe_pairs(before, after, [*WINDOW, *keys])
    names = sorted(_aggregates(after.column_names, keys))
    if not names:
        return _changes_of_aggregate("", pairs, before[_RUN_COLUMN], after[_RUN_COLUMN]).slice(0, 0)
    is_changed = [_is_changed(pairs["change"], before[name], after[name]) for name in names]
    changes = [
        _changes_of_aggregate(name, pairs.filter(each), before[name].filter(each), after[name].filter(each))
        for name, each in zip(names, is_changed, strict=True)
    ]
    numbers = np.concatenate([np.flatnonzero(each.to_numpy()) for each in is_changed])
    return pa.concat_tables(changes).take(np.argsort(numbers, kind="stable"))


def _pair_with_nulls(old: pa.Table, new: pa.Table, by: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """Return sorted pairs of rows, one side of which has no row."""
    rows = (new if new.num_rows else old).sort_by([(name, "ascending") for name in by])
    nulls = pa.table({field.name: pa.nulls(rows.num_rows, field.type) for field in rows.schema})
    return (nulls, rows) if new.num_rows else (rows, nulls)


def _comparable_rows(rows: pa.Table) -> pa.Table:
    """Return the rows with nullable columns, because an unmatched row is paired with nulls, and lists as text."""
    columns = (plain_column(column) for column in rows.columns)
    columns = (_text(column) if pa.types.is_large_string(column.type) else column for column in columns)
    return pa.table(dict(zip(rows.column_names, columns, strict=True)))


def _describe_pairs(before: pa.Table, after: pa.Table, by: Sequence[str]) -> pa.Table:
    """Return the window, keys, kind of change, and run ids of each pair of rows."""
    is_new, is_removed = pc.is_null(before["window_start"]), pc.is_null(after["window_start"])
    change = pc.case_when(pc.make_struct(is_new, is_removed), ADDED, REMOVED, CHANGED)
    columns = {name: pc.if_else(is_new, after[name], before[name]) for name in by}
    runs = {"old_run_id": _text(before[_RUN_COLUMN]), "new_run_id": _text(after[_RUN_COLUMN])}
    return pa.table({**columns, "change": change, **runs})


def _is_changed(change: pa.ChunkedArray, before: pa.ChunkedArray, after: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return whether an aggregate changed, for each pair of rows."""
    return pc.or_(pc.not_equal(change, CHANGED), _are_different(before, after))


def _changes_of_aggregate(name: str, rows: pa.Table, before: pa.ChunkedArray, after: pa.ChunkedArray) -> pa.Table:
    """Return the rows in which one aggregate changed, with its values."""
    values_by_column = {
        "aggregate": pa.array([name] * rows.num_rows, pa.string()),
        "old_value": _text(before),
        "new_value": _text(after),
        "difference": _difference(before, after),
    }
    first_position = rows.column_names.index("change") + 1
    for position, (column, values) in enumerate(values_by_column.items(), start=first_position):
        rows = rows.add_column(position, column, values)
    return rows


def _are_different(before: pa.ChunkedArray, after: pa.ChunkedArray) -> pa.ChunkedArray:
    same = pc.or_(
        pc.fill_null(pc.equal(before, after), fill_value=False), pc.and_(pc.is_null(before), pc.is_null(after))
    )
    if pa.types.is_floating(before.type):
        are_nan = pc.and_(pc.is_nan(before), pc.is_nan(after))
        same = pc.or_(same, pc.fill_null(are_nan, fill_value=False))
    return pc.invert(same)


def _difference(before: pa.ChunkedArray, after: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = before.type
    if pa.types.is_integer(kind):  # subtract before the cast: doubles are inexact beyond 2**53
        exact, rounded = pc.subtract(after, before), pc.subtract(_double(after), _double(before))
        return pc.if_else(pc.less(pc.abs(rounded), _WRAPPING), _double(exact), rounded)
    if pa.types.is_decimal(kind):  # subtract before the cast, as above
        wide = pa.decimal256(_WIDE_DIGITS, kind.scale)
        exact = pc.subtract(pc.cast(after, wide), pc.cast(before, wide))
        return pc.cast(_text(exact), pa.float64())  # the nearest double; Arrow's own cast of decimals is not
    if pa.types.is_floating(kind):
        return pc.subtract(_double(after), _double(before))
    return pa.chunked_array([pa.nulls(len(before), pa.float64())])


_WIDE_DIGITS = 75
"""The digits of decimals whose difference Arrow can hold, which has 76; those of a table have up to 38."""
_WRAPPING = 2.0**62
"""Below this absolute value, a difference of 64-bit integers does not wrap around."""


def _double(values: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.cast(values, pa.float64(), safe=False)


def _text(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return values as text; a decimal has no exponent, which Arrow writes beyond six places."""
    if pa.types.is_decimal(values.type) and values.type.scale > _PLACES_WITHOUT_EXPONENT:
        texts = [None if value is None else f"{value:f}" for value in values.to_pylist()]
        return pa.chunked_array([pa.array(texts, pa.string())])
    return pc.cast(values, pa.string())


_PLACES_WITHOUT_EXPONENT = 6


@dataclass(slots=True)
class AggregateChange:
    """The changes of one aggregate over all changed windows; the sums include finite differences only.

    `largest` has the rows with the largest absolute differences, in descending order.
    """

    rows: int = 0
    difference: float = 0.0
    absolute: float = 0.0
    largest: list[pa.Table] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ChangeTotals:
    """The count of windows and keys per kind of change, the change of each aggregate, and the rows per old run."""

    windows: Mapping[str, int]
    aggregates: Mapping[str, AggregateChange]
    old_runs: Mapping[str, int]

    def largest(self, limit: int) -> pa.Table | None:
        """Return the largest changes of each aggregate, in descending order; None if nothing changed."""
        tables = [table.slice(0, limit) for change in self.aggregates.values() for table in change.largest]
        return pa.concat_tables(tables) if tables else None


def summarize_changes(changes: Iterable[pa.Table], keys: Sequence[str], limit: int) -> ChangeTotals:
    """Return the totals of tables from `diff_rows`, read one at a time; `limit` rows are kept per aggregate."""
    windows: Counter[str] = Counter({ADDED: 0, REMOVED: 0, CHANGED: 0})
    old_runs: Counter[str] = Counter()
    aggregates: dict[str, AggregateChange] = {}
    for table in changes:
        pairs = table.group_by([*WINDOW, *keys, "change", "old_run_id"]).aggregate([])
        windows.update(pairs["change"].to_pylist())
        old_runs.update(run_id for run_id in pairs["old_run_id"].to_pylist() if run_id)
        for name in pc.unique(table["aggregate"]).to_pylist():
            rows = table.filter(pc.equal(table["aggregate"], name))
            _add(aggregates.setdefault(name, AggregateChange()), rows, limit)
    return ChangeTotals(windows, dict(sorted(aggregates.items())), dict(old_runs.most_common()))


def _add(total: AggregateChange, rows: pa.Table, limit: int) -> None:
    numbers = rows["difference"].drop_null()
    numbers = numbers.filter(pc.is_finite(numbers))
    total.rows += rows.num_rows
    total.difference += pc.sum(numbers).as_py() or 0.0
    total.absolute += pc.sum(pc.abs(numbers)).as_py() or 0.0
    rows_so_far = pa.concat_tables([*total.largest, rows])
    # A column may have any name, so the size is not one of the columns.
    sorted_rows = rows_so_far.sort_by([(name, "ascending") for name in rows.column_names])
    sizes = pc.negate(pc.abs(sorted_rows["difference"]))
    largest = pc.sort_indices(pa.table({"size": sizes}), sort_keys=[("size", "ascending")]).slice(0, limit)
    total.largest = [sorted_rows.take(largest).combine_chunks()]


@dataclass(frozen=True, slots=True)
class Replacement:
    """The files that a run removes from a table and adds to it, with the properties of its snapshot."""

    table: Table
    removed: Sequence[DataFile]
    added: Sequence[DataFile]
    keys: Sequence[str]
    summary_properties: dict[str, str]

    @property
    def run_id(self) -> str:
        """The run that replaces the files."""
        return self.summary_properties[snapshots.RUN_ID]

    def changes(self) -> Iterator[pa.Table]:
        """Yield the rows of `diff_rows` as tables, in the order of days."""
        for removed, added in pair_files_by_day(self.removed, self.added):
            yield from _list_changes(self._read(removed), self._read(added), self.keys)

    def _read(self, files: Sequence[DataFile]) -> pa.RecordBatchReader:
        schema = _comparable_rows(self.table.schema().as_arrow().empty_table()).schema
        tables = (_comparable_rows(rows).cast(schema) for rows in scan_batches(self.table, files))
        return pa.RecordBatchReader.from_batches(schema, (batch for rows in tables for batch in rows.to_batches()))
