"""Records that theirs has more: copies in files that the run has read, or records of files that it has not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from backstream.steps.reconcile.ours import RUN
from backstream.steps.reconcile.pairs import Mask
from backstream.steps.reconcile.rules import Case


@dataclass(frozen=True, slots=True)
class Surplus:
    """How many records of a kind each window could have more, and where theirs has just these."""

    records: np.ndarray
    fits: Mask

    @property
    def share(self) -> float:
        """In how much of the windows that it could be about it fits."""
        return float(self.fits.sum()) / max(1, int((self.records > 0).sum()))


@dataclass(frozen=True, slots=True)
class Surpluses:
    """What theirs has more; where copies and unread files fit, the kind that fits more of its windows wins."""

    copies: Surplus
    unread: Surplus

    @classmethod
    def of(cls, case: Case) -> Self | None:
        """None where nothing counts records."""
        counts = case.counts()
        if counts is None:
            return None
        more = counts[1] - counts[0]
        removed = copies_in_files(case)
        copies = Surplus(removed, (removed > 0) & (more == removed) & _met_copies(case))
        unread = case.in_files(is_read=False)
        # Nobody has looked for copies in files that no run has read.
        most = (more > 0) & (more <= unread) if case.definition.source.deduplicate_on else more == unread
        return cls(copies, Surplus(unread, (unread > 0) & most))

    def is_copies(self) -> Mask:
        """Where theirs has counted copies."""
        wins = self.copies.share >= self.unread.share
        return np.asarray(self.copies.fits & (wins | ~self.unread.fits))


def copies_in_files(case: Case) -> np.ndarray:
    """How many records of each window, in the files that its run has read, are copies and do not count."""
    ours = case.pairs.numbers("ours")
    if ours is None or not case.definition.source.deduplicate_on:
        return np.zeros(len(case.rows))
    final = case.pairs.numbers("final") if case.rows["has_panes"].any() else None
    whole = ours if final is None else np.where(case.rows["has_panes"], final, ours)
    return np.asarray(case.in_files(is_read=True) - whole)


def _met_copies(case: Case) -> Mask:
    """Whether the run of a window met copies at all, as far as that is known."""
    known = {run_id: case.ours.duplicates(run_id) for run_id in case.rows[RUN].dropna().unique()}
    has_none = [run_id for run_id, count in known.items() if count == 0]
    return np.asarray(~case.rows[RUN].isin(has_none).to_numpy())
