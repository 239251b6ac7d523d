"""What every rule gets and gives: the windows that still differ, and a line of evidence for those it explains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from backstream.definition.model import Definition
from backstream.steps.reconcile.ours import RUN, Ours
from backstream.steps.reconcile.pairs import Mask, Pairs
from backstream.steps.reconcile.records import Records

Evidence = pd.Series
"""Text by row of `Pairs.rows`; only rows that are explained are in it."""


@dataclass(frozen=True)
class Case:
    """All that is known: every pair, ours, what the files hold, and the definition as it is now."""

    pairs: Pairs
    ours: Ours
    records: Records
    definition: Definition

    @property
    def rows(self) -> pd.DataFrame:
        """The pairs, a row each."""
        return self.pairs.rows

    @property
    def differs(self) -> Mask:
        """Where there is something to explain."""
        return np.asarray(self.pairs.matters & ~self.pairs.is_equal)

    def counts(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Ours and theirs, as numbers of records; None where nothing counts them."""
        ours, theirs = self.pairs.numbers("ours"), self.pairs.numbers("theirs")
        return None if ours is None or theirs is None else (ours, theirs)

    def in_files(self, *, is_read: bool | None = None) -> np.ndarray:
        """Records of each window in the files that its run has read, has not, or (None) in all. NaN: not known."""
        found = np.zeros(len(self.rows))
        for run_id in self.rows[RUN].dropna().unique() if is_read is not None else [None]:
            files = self._files(run_id, is_read=is_read)
            mine = np.ones(len(self.rows), dtype=bool) if run_id is None else (self.rows[RUN] == run_id).to_numpy()
            found = np.where(mine, self._held(files), found)
        if not self.records.is_counted:
            return np.full(len(found), np.nan)
        starts, ends = self.rows["start_ms"].to_numpy(), self.rows["end_ms"].to_numpy()
        for gone in self.records.unknown:
            found = np.where((starts < gone.end_ms) & (ends > gone.start_ms), np.nan, found)
        return found

    def _files(self, run_id: str | None, *, is_read: bool | None) -> frozenset[str] | None:
        if run_id is None:
            return None
        read = self.records.read_by.get(run_id)
        every = frozenset(self.records.rows["file"].unique())
        if read is None:
            return every if is_read else frozenset()
        return every & read if is_read else every - read

    def _held(self, files: frozenset[str] | None) -> np.ndarray:
        held = self.records.per_window(files, self.pairs.shape)
        found = self.rows[self.pairs.shape.places].merge(held, on=self.pairs.shape.places, how="left")
        return np.asarray(found["records"].fillna(0.0).to_numpy(dtype=float))


Rule = Callable[[Case], Evidence]


def told(case: Case, mask: Mask, text: Callable[[int], str]) -> Evidence:
    """The evidence for the rows of a mask that differ; `text` gets their position."""
    places = np.flatnonzero(mask & case.differs)
    return pd.Series([text(int(place)) for place in places], index=places, dtype=object)


def first_of(*found: Evidence) -> Evidence:
    """Of each row the first evidence."""
    joined = pd.concat(found) if found else pd.Series(dtype=object)
    return joined[~joined.index.duplicated()]


def number(value: float) -> str:
    """`1,234` or `0.5`."""
    return f"{int(value):,}" if float(value).is_integer() else f"{value:.6g}"


def records(count: float) -> str:
    """`1 record`, `2 records`."""
    return "1 record" if count == 1 else f"{number(count)} records"
