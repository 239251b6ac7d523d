"""Join the windows of both sides, and find the equal ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from backstream.reconcile.frames import TableShape

TOLERANCE = 1e-9
"""Largest relative difference of equal numbers; sums of doubles depend on their order."""
_CANCELED = 1e-13
"""Largest difference of equal numbers, relative to the largest number of the column.

If positive and negative values cancel, only rounding errors of their sizes remain of a sum.
"""

Mask = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True)
class Pairs:
    """A row per key and window of either side, with the values of both.

    `rows` has the columns of `PublishedSide.windows`, `theirs__<aggregate>`, `is_theirs`, and `copies`, the number
    of equal live rows. `counting` has the aggregates that count records, `adding` those that are additive.
    """

    rows: pd.DataFrame
    shape: TableShape
    counting: Sequence[str]
    adding: Sequence[str]

    def equal(self, aggregate: str, side: str = "ours") -> Mask:
        """Return where the live value of an aggregate equals that of a side; false without a live row."""
        theirs, other = self.rows[f"theirs__{aggregate}"], self.rows[f"{side}__{aggregate}"]
        return equal_mask(theirs, other, is_number=self.shape.is_number(aggregate))

    def all_equal(self, side: str = "ours") -> Mask:
        """Return where the live values of all aggregates equal those of a side, even if rows are missing."""
        mask = np.ones(len(self.rows), dtype=bool)
        for name in self.shape.aggregates:
            mask &= self.equal(name, side)
        return mask

    @property
    def is_equal(self) -> Mask:
        """Windows that both sides have once, with the same values."""
        is_paired = (self.rows["is_ours"] & self.rows["is_theirs"] & (self.rows["copies"] == 1)).to_numpy()
        return np.asarray(is_paired & self.all_equal())

    @property
    def matters(self) -> Mask:
        """Windows of at least one side, except those that only our panes have: they were never published."""
        return np.asarray(self.rows["is_ours"] | self.rows["is_theirs"])

    def numbers(self, side: str) -> np.ndarray | None:
        """Return the record counts of a side, 0 without a row; None if no aggregate counts records."""
        columns = (f"{side}__{aggregate}" for aggregate in self.counting)
        name = next((column for column in columns if column in self.rows), None)
        return None if name is None else self.rows[name].fillna(0.0).to_numpy()


def equal_mask(left: pd.Series, right: pd.Series, *, is_number: bool) -> Mask:
    """Return where two columns are equal: null and NaN equal themselves, numbers within the tolerances."""
    both_null = (left.isna() & right.isna()).to_numpy()
    if not is_number:
        return np.asarray(both_null | (left == right).to_numpy())
    first, second = left.to_numpy(dtype=float), right.to_numpy(dtype=float)
    with np.errstate(invalid="ignore"):
        sizes = np.maximum(np.abs(first), np.abs(second))
        largest = np.max(sizes, initial=0.0, where=np.isfinite(sizes))
        near = np.abs(first - second) <= np.maximum(TOLERANCE * sizes, _CANCELED * largest)
    return np.asarray(both_null | near | (first == second))


def collapse_copies(theirs: pd.DataFrame, shape: TableShape) -> pd.DataFrame:
    """Return one row for rows that are equal in all columns, with the number of `copies`."""
    columns = list(theirs.columns)
    counts = theirs.groupby(columns, dropna=False, sort=False).size().reset_index(name="copies")
    return counts.sort_values([*shape.places], kind="stable", ignore_index=True)


def join_sides(ours: pd.DataFrame, theirs: pd.DataFrame, shape: TableShape) -> pd.DataFrame:
    """Return all windows of both sides; a window with different live rows has one row for each."""
    rows = ours.merge(theirs, on=shape.places, how="outer", indicator="side")
    rows["is_theirs"] = rows.pop("side") != "left_only"
    for name in ("is_ours", "has_panes"):
        rows[name] = rows[name].eq(True)  # noqa: FBT003 - a value
    rows["copies"] = rows["copies"].fillna(0).astype(int)
    return rows
