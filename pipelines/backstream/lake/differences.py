"""What differs between two states of a table: windows and keys added, removed, changed, and by how much."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backstream.core.tables import RECORD_COUNT

ADDED, REMOVED, CHANGED = "added", "removed", "changed"
WINDOW = ("window_start", "window_end")
_BESIDE = ("run_id", RECORD_COUNT)
_RUN = "run_id"


def differences(old: pa.Table, new: pa.Table, keys: Sequence[str]) -> pa.Table:
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
