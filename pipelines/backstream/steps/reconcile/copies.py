"""Duplicates: theirs counts records, or whole windows, more than once."""

from __future__ import annotations

import numpy as np
import pandas as pd

from backstream.steps.reconcile.pairs import TOLERANCE, Mask
from backstream.steps.reconcile.rules import Case, Evidence, first_of, number, records, told
from backstream.steps.reconcile.surplus import Surpluses

LEAST_RECORDS = 5
_LEAST_MULTIPLE = 2


def duplicate(case: Case) -> Evidence:
    """The windows where theirs has copies: of rows, of records, or of all its input."""
    return first_of(_same_rows(case), _removed_copies(case), _multiples(case))


def _same_rows(case: Case) -> Evidence:
    copies = case.rows["copies"].to_numpy()
    is_repeated = (copies > 1) & case.pairs.all_equal()
    return told(case, is_repeated, lambda place: f"theirs has this row {copies[place]} times")


def _removed_copies(case: Case) -> Evidence:
    """Records that the files hold beyond those that count once."""
    surpluses = Surpluses.of(case)
    if surpluses is None:
        return first_of()
    removed, by = surpluses.copies.records, ", ".join(case.definition.source.deduplicate_on)

    def text(place: int) -> str:
        return f"theirs has {records(removed[place])} more, as many as copies by {by} are in the input files"

    return told(case, surpluses.is_copies(), text)


def _multiples(case: Case) -> Evidence:
    """Where theirs is m times ours in all that adds up, and equal in all else."""
    pairs, rows = case.pairs, case.rows
    both = (rows["is_ours"] & rows["is_theirs"]).to_numpy()
    if not pairs.adding:
        return first_of()
    first = pairs.adding[0]
    with np.errstate(divide="ignore", invalid="ignore"):
        multiple = np.round((rows[f"theirs__{first}"] / rows[f"ours__{first}"]).to_numpy(dtype=float))
    fits = both & (multiple >= _LEAST_MULTIPLE) & np.isfinite(multiple)
    for name in pairs.shape.aggregates:
        fits &= _is_multiple(case, name, multiple) if name in pairs.adding else pairs.equal(name)
    strong = fits & (_weights(case) >= LEAST_RECORDS)
    whole = _whole_windows(case, fits, multiple)

    def text(place: int) -> str:
        return (
            f"theirs is {number(multiple[place])} times ours in {', '.join(pairs.adding)}, and equal in all else"
        )

    return told(case, strong | whole, text)


def _is_multiple(case: Case, name: str, multiple: np.ndarray) -> Mask:
    ours, theirs = (case.rows[f"{side}__{name}"].to_numpy(dtype=float) for side in ("ours", "theirs"))
    with np.errstate(invalid="ignore"):
        near = np.abs(theirs - multiple * ours) <= TOLERANCE * np.abs(theirs)
    return np.asarray(near | (np.isnan(ours) & np.isnan(theirs)))


def _weights(case: Case) -> np.ndarray:
    """How many records a window has: by our count, else 0, so that only whole windows speak."""
    counted = case.pairs.numbers("ours")
    return np.zeros(len(case.rows)) if counted is None else counted


def _whole_windows(case: Case, fits: Mask, multiple: np.ndarray) -> Mask:
    """Windows in which every key fits one multiple, with enough records together."""
    bounds = ["start_ms", "end_ms"]
    places = case.rows[bounds].assign(fits=fits, multiple=np.where(fits, multiple, np.nan))
    by_window = places.groupby(bounds)
    is_one = by_window["fits"].transform("all") & (by_window["multiple"].transform("nunique") == 1)
    return np.asarray(is_one.to_numpy() & (_totals(case) >= LEAST_RECORDS))


def _totals(case: Case) -> np.ndarray:
    bounds = ["start_ms", "end_ms"]
    counted = case.pairs.numbers("ours")
    if counted is not None:
        return case.rows[bounds].assign(n=counted).groupby(bounds)["n"].transform("sum").to_numpy()
    events = case.ours.metrics.groupby(bounds)["events"].sum().rename("n").reset_index()
    found: pd.Series = case.rows[bounds].merge(events, on=bounds, how="left")["n"].fillna(0)
    return found.to_numpy()
