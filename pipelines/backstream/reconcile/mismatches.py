"""Build the table of windows that differ, largest difference first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pyarrow as pa

from backstream.reconcile.frames import END, KEY, START, TableShape
from backstream.reconcile.rules import UnexplainedWindows
from backstream.runs.table_schemas import WINDOW_END, WINDOW_START

_INSTANT = pa.timestamp("us", "UTC")


def mismatch_table(case: UnexplainedWindows, causes: pd.DataFrame) -> pa.Table:
    """Return a row per window that differs: bounds, keys, cause, one aggregate, both values, and evidence.

    Rows are sorted by the difference in the number of records, then by the relative difference of values.
    """
    rows, shape = case.rows.loc[causes.index], case.pairs.shape
    sizes = pd.DataFrame({name: _relative_difference(rows, name, shape) for name in shape.aggregates}, rows.index)
    order = _order(rows, sizes, case.pairs.counting)
    rows, sizes, causes = rows.iloc[order], sizes.iloc[order], causes.iloc[order]
    largest = _largest_aggregates(sizes, case.pairs.counting)
    ours, theirs = (_values_of(rows, side, largest) for side in ("ours", "theirs"))
    return pa.table(
        {
            WINDOW_START: pa.array(rows[START].to_numpy() * 1_000, pa.int64()).cast(_INSTANT),
            WINDOW_END: pa.array(rows[END].to_numpy() * 1_000, pa.int64()).cast(_INSTANT),
            **_key_arrays(rows, shape),
            "cause": pa.array([str(cause) for cause in causes["cause"]], pa.string()),
            "aggregate": pa.array(largest, pa.string()),
            "ours": pa.array([_value_text(value) for value in ours], pa.string()),
            "theirs": pa.array([_value_text(value) for value in theirs], pa.string()),
            "difference": pa.array([_difference(*both) for both in zip(ours, theirs, strict=True)], pa.float64()),
            "evidence": pa.array(list(causes["evidence"]), pa.string()),
        }
    )


def _largest_aggregates(sizes: pd.DataFrame, counting: Sequence[str]) -> list[str]:
    """Return the aggregate to show of each row: the record count if it differs, or else the largest difference."""
    ranked = sizes.copy()
    for name in counting:
        ranked[name] += (ranked[name] > 0).astype(float)
    return [ranked.columns[position] for position in ranked.to_numpy().argmax(axis=1)]


def _order(rows: pd.DataFrame, sizes: pd.DataFrame, counting: Sequence[str]) -> np.ndarray:
    by_count = np.zeros(len(rows))
    for name in counting[:1]:
        theirs, ours = (rows[f"{side}__{name}"].fillna(0).to_numpy(dtype=float) for side in ("theirs", "ours"))
        by_count = np.abs(theirs - ours)
    by_size = sizes.max(axis=1).to_numpy() if len(sizes) else np.zeros(0)
    return np.lexsort((rows[START].to_numpy(), -by_size, -by_count))


def _key_arrays(rows: pd.DataFrame, shape: TableShape) -> dict[str, pa.Array]:
    kinds = {name: shape.types[name] for name in shape.keys}
    return {
        name: pa.array([_key_value(value, kind) for value in rows[f"{KEY}{number}"]], _key_type(kind))
        for number, (name, kind) in enumerate(kinds.items())
    }


def _values_of(rows: pd.DataFrame, side: str, names: Sequence[str]) -> list[object]:
    """Return a value of each row, from the aggregate with the given name."""
    columns = {name: rows[f"{side}__{name}"].to_numpy() for name in set(names)}
    return [columns[name][position] for position, name in enumerate(names)]


def _relative_difference(rows: pd.DataFrame, name: str, shape: TableShape) -> np.ndarray:
    """Return the difference as a share of the larger value; 1 for different values that are no numbers."""
    ours, theirs = rows[f"ours__{name}"], rows[f"theirs__{name}"]
    if not shape.is_number(name):
        return np.asarray(((ours != theirs) & ~(ours.isna() & theirs.isna())).to_numpy(dtype=float))
    first, second = ours.fillna(0).to_numpy(dtype=float), theirs.fillna(0).to_numpy(dtype=float)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.abs(first - second) / np.maximum(np.abs(first), np.abs(second))
    return np.asarray(np.nan_to_num(share, nan=0.0, posinf=1.0))


def _key_value(value: object, kind: pa.DataType) -> object:
    if value is None or value != value:  # noqa: PLR0124 - NaN
        return None
    return int(value) if pa.types.is_integer(kind) and isinstance(value, float) else value


def _key_type(kind: pa.DataType) -> pa.DataType:
    return pa.int64() if pa.types.is_integer(kind) else pa.float64() if pa.types.is_floating(kind) else pa.string()


def _value_text(value: object) -> str | None:
    if value is None or value != value:  # noqa: PLR0124 - NaN
        return None
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _difference(ours: object, theirs: object) -> float | None:
    both = [value for value in (ours, theirs) if isinstance(value, float) and value == value]  # noqa: PLR0124 - NaN
    return both[1] - both[0] if len(both) == len((ours, theirs)) else None
