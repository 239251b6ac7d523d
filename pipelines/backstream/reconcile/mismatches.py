"""The windows that differ as a table, the largest difference first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pyarrow as pa

from backstream.reconcile.frames import END, KEY, START, TableShape
from backstream.reconcile.frames import END as END_NAME
from backstream.reconcile.frames import START as START_NAME
from backstream.reconcile.rules import UnexplainedWindows

_INSTANT = pa.timestamp("us", "UTC")


def mismatch_table(case: UnexplainedWindows, causes: pd.DataFrame) -> pa.Table:
    """A row per window that differs: bounds, keys, cause, an aggregate that differs, both values, evidence.

    The largest difference in the number of records comes first, then the largest share by which values differ.
    """
    rows, shape = case.rows.loc[causes.index], case.pairs.shape
    sizes = pd.DataFrame({name: _size(rows, name, shape) for name in shape.aggregates}, rows.index)
    order = _order(rows, sizes, case.pairs.counting)
    rows, sizes, causes = rows.iloc[order], sizes.iloc[order], causes.iloc[order]
    largest = _named(sizes, case.pairs.counting)
    ours, theirs = (_picked(rows, side, largest) for side in ("ours", "theirs"))
    return pa.table(
        {
            START_NAME: pa.array(rows[START].to_numpy() * 1_000, pa.int64()).cast(_INSTANT),
            END_NAME: pa.array(rows[END].to_numpy() * 1_000, pa.int64()).cast(_INSTANT),
            **_keys(rows, shape),
            "cause": pa.array([str(cause) for cause in causes["cause"]], pa.string()),
            "aggregate": pa.array(largest, pa.string()),
            "ours": pa.array([_shown(value) for value in ours], pa.string()),
            "theirs": pa.array([_shown(value) for value in theirs], pa.string()),
            "difference": pa.array([_difference(*both) for both in zip(ours, theirs, strict=True)], pa.float64()),
            "evidence": pa.array(list(causes["evidence"]), pa.string()),
        }
    )


def _named(sizes: pd.DataFrame, counting: Sequence[str]) -> list[str]:
    """The aggregate to show of each row: the number of records where it differs, else what differs most."""
    ranked = sizes.copy()
    for name in counting:
        ranked[name] += (ranked[name] > 0).astype(float)
    return [ranked.columns[place] for place in ranked.to_numpy().argmax(axis=1)]


def _order(rows: pd.DataFrame, sizes: pd.DataFrame, counting: Sequence[str]) -> np.ndarray:
    by_count = np.zeros(len(rows))
    for name in counting[:1]:
        theirs, ours = (rows[f"{side}__{name}"].fillna(0).to_numpy(dtype=float) for side in ("theirs", "ours"))
        by_count = np.abs(theirs - ours)
    by_size = sizes.max(axis=1).to_numpy() if len(sizes) else np.zeros(0)
    return np.lexsort((rows[START].to_numpy(), -by_size, -by_count))


def _keys(rows: pd.DataFrame, shape: TableShape) -> dict[str, pa.Array]:
    kinds = {name: shape.types[name] for name in shape.keys}
    return {
        name: pa.array([_key(value, kind) for value in rows[f"{KEY}{number}"]], _key_type(kind))
        for number, (name, kind) in enumerate(kinds.items())
    }


def _picked(rows: pd.DataFrame, side: str, names: Sequence[str]) -> list[object]:
    """The value of another column in each row."""
    columns = {name: rows[f"{side}__{name}"].to_numpy() for name in set(names)}
    return [columns[name][place] for place, name in enumerate(names)]


def _size(rows: pd.DataFrame, name: str, shape: TableShape) -> np.ndarray:
    """How large a difference is, as a share of the larger value; 1 where it is not one of numbers."""
    ours, theirs = rows[f"ours__{name}"], rows[f"theirs__{name}"]
    if not shape.is_number(name):
        return np.asarray(((ours != theirs) & ~(ours.isna() & theirs.isna())).to_numpy(dtype=float))
    first, second = ours.fillna(0).to_numpy(dtype=float), theirs.fillna(0).to_numpy(dtype=float)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.abs(first - second) / np.maximum(np.abs(first), np.abs(second))
    return np.asarray(np.nan_to_num(share, nan=0.0, posinf=1.0))


def _key(value: object, kind: pa.DataType) -> object:
    if value is None or value != value:  # noqa: PLR0124 - NaN
        return None
    return int(value) if pa.types.is_integer(kind) and isinstance(value, float) else value


def _key_type(kind: pa.DataType) -> pa.DataType:
    return pa.int64() if pa.types.is_integer(kind) else pa.float64() if pa.types.is_floating(kind) else pa.string()


def _shown(value: object) -> str | None:
    if value is None or value != value:  # noqa: PLR0124 - NaN
        return None
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _difference(ours: object, theirs: object) -> float | None:
    both = [float(each) for each in (ours, theirs) if isinstance(each, float) and each == each]  # noqa: PLR0124 - NaN
    return both[1] - both[0] if len(both) == len((ours, theirs)) else None
