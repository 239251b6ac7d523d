"""Windows of both sides put together: which are equal, and what each side says of those that are not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from backstream.reconcile.frames import TableShape

TOLERANCE = 1e-9
"""How far numbers may lie apart, as a share of the larger one: sums of doubles depend on their order."""

Mask = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True)
class Pairs:
    """A row per key and window that either side knows, with the values of both.

    `rows` has the columns of `Ours.windows` and `theirs__<aggregate>`, `is_theirs`, `copies` (how many equal rows
    theirs has of it). `counting` are the aggregates that are the number of records, `adding` those that add up.
    """

    rows: pd.DataFrame
    shape: TableShape
    counting: Sequence[str]
    adding: Sequence[str]

    def equal(self, aggregate: str, side: str = "ours") -> Mask:
        """Where an aggregate of theirs is that of a side of ours; false where theirs has no row."""
        theirs, other = self.rows[f"theirs__{aggregate}"], self.rows[f"{side}__{aggregate}"]
        return equal_mask(theirs, other, is_number=self.shape.is_number(aggregate))

    def all_equal(self, side: str = "ours") -> Mask:
        """Where all aggregates of theirs are those of a side of ours, whether or not the rows are there."""
        found = np.ones(len(self.rows), dtype=bool)
        for name in self.shape.aggregates:
            found &= self.equal(name, side)
        return found

    @property
    def is_equal(self) -> Mask:
        """Where both have the window once, with the same values."""
        there = (self.rows["is_ours"] & self.rows["is_theirs"] & (self.rows["copies"] == 1)).to_numpy()
        return np.asarray(there & self.all_equal())

    @property
    def matters(self) -> Mask:
        """Where at least one side has the window: what only our panes know was never published."""
        return np.asarray(self.rows["is_ours"] | self.rows["is_theirs"])

    def numbers(self, side: str) -> np.ndarray | None:
        """How many records a side counts in each window, 0 where it has none; None where nothing counts them."""
        name = next((f"{side}__{each}" for each in self.counting if f"{side}__{each}" in self.rows), None)
        return None if name is None else self.rows[name].fillna(0.0).to_numpy()


def equal_mask(left: pd.Series, right: pd.Series, *, is_number: bool) -> Mask:
    """Where two columns are equal: nulls (and NaN) are, numbers within the tolerance."""
    both_null = (left.isna() & right.isna()).to_numpy()
    if not is_number:
        return np.asarray(both_null | (left == right).to_numpy())
    first, second = left.to_numpy(dtype=float), right.to_numpy(dtype=float)
    with np.errstate(invalid="ignore"):
        near = np.abs(first - second) <= TOLERANCE * np.maximum(np.abs(first), np.abs(second))
    return np.asarray(both_null | near | (first == second))


def collapse_copies(theirs: pd.DataFrame, shape: TableShape) -> pd.DataFrame:
    """Rows that are equal in all columns as one, with the number of `copies`."""
    columns = list(theirs.columns)
    counted = theirs.groupby(columns, dropna=False, sort=False).size().reset_index(name="copies")
    return counted.sort_values([*shape.places], kind="stable", ignore_index=True)


def join_sides(ours: pd.DataFrame, theirs: pd.DataFrame, shape: TableShape) -> pd.DataFrame:
    """Every window of either side; a window of which theirs has rows that differ has a row for each."""
    rows = ours.merge(theirs, on=shape.places, how="outer", indicator="side")
    rows["is_theirs"] = rows.pop("side") != "left_only"
    for name in ("is_ours", "has_panes"):
        rows[name] = rows[name].eq(True)  # noqa: FBT003 - a value
    rows["copies"] = rows["copies"].fillna(0).astype(int)
    return rows
