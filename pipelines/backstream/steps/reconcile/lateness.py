"""Late data: theirs is what a stream had said before, or without, the records that came late."""

from __future__ import annotations

import numpy as np
import pandas as pd

from backstream.core.tables import PANES_KEPT
from backstream.steps.reconcile.ours import RUN
from backstream.steps.reconcile.pairs import Mask, same
from backstream.steps.reconcile.rules import Case, Evidence, first_of, records, told

_PANES = {
    "first": "theirs is our first pane: what had arrived on time",
    "live": "theirs is our live pane: what the stream had in the end",
    "final": "theirs is our final pane: all records, also those that came too late for the stream",
}


def late_data(case: Case) -> Evidence:
    """The windows where theirs is another pane of ours than the one that ours publishes."""
    if not case.rows["has_panes"].any():
        return first_of()
    of_panes = [told(case, _is_pane(case, pane), _Text(case, pane)) for pane in PANES_KEPT]
    return first_of(*of_panes, _firings(case))


def _is_pane(case: Case, pane: str) -> Mask:
    there = _exists(case, pane)
    rows = case.rows
    both = (rows["is_theirs"] & rows["has_panes"] & (rows["copies"] == 1)).to_numpy() & there
    neither = (~rows["is_theirs"] & rows["has_panes"]).to_numpy() & ~there
    return np.asarray((both & case.pairs.all_equal(pane)) | neither)


def _exists(case: Case, pane: str) -> Mask:
    """Whether the pane had a record: the aggregates over none are null, and a count of them is never 0."""
    names = [f"{pane}__{name}" for name in case.pairs.counting or case.pairs.shape.aggregates]
    return np.asarray(case.rows[names].notna().any(axis=1).to_numpy())


class _Text:
    """Which pane, and how many records came after it: of this key where a count says so, else of the window."""

    def __init__(self, case: Case, pane: str) -> None:
        self._case, self._pane = case, pane
        counts = {name: case.pairs.numbers(name) for name in PANES_KEPT}
        self._counts = {name: each for name, each in counts.items() if each is not None}
        totals = case.ours.metrics.groupby(["start_ms", "end_ms"])[["late", "dropped"]].sum()
        self._totals = totals.to_dict("index")

    def __call__(self, place: int) -> str:
        said = _PANES[self._pane]
        if not self._case.rows["is_theirs"].to_numpy()[place]:
            said = f"theirs lacks the window, and our {self._pane} pane has no record"
        late, dropped, whose = self._late(place)
        return f"{said}; {records(late)} came late and {records(dropped)} too late{whose}"

    def _late(self, place: int) -> tuple[float, float, str]:
        if self._counts:
            first, live, final = (self._counts[name][place] for name in PANES_KEPT)
            return live - first, final - live, ""
        row = self._case.rows.iloc[place]
        found = self._totals.get((row["start_ms"], row["end_ms"]), {"late": 0, "dropped": 0})
        return float(found["late"]), float(found["dropped"]), " for the window, of any key"


def _firings(case: Case) -> Evidence:
    """Where every pane was kept, theirs may be one between the first and the last."""
    shape, firings = case.pairs.shape, case.ours.firings
    if firings.empty or "pane_index" not in firings:
        return first_of()
    rows = case.rows[[*shape.places, RUN, *(f"theirs__{name}" for name in shape.aggregates)]]
    found = rows.assign(place=np.arange(len(rows))).merge(firings, on=[*shape.places, RUN])
    is_same = np.ones(len(found), dtype=bool)
    for name in shape.aggregates:
        is_same &= same(found[f"theirs__{name}"], found[f"firing__{name}"], is_number=shape.is_number(name))
    matched = found[is_same].drop_duplicates("place").set_index("place")["pane_index"]
    mask = np.isin(np.arange(len(rows)), matched.index) & case.rows["is_theirs"].to_numpy()
    return told(case, mask, lambda place: _firing_text(matched, place))


def _firing_text(matched: pd.Series, place: int) -> str:
    return f"theirs is our pane {int(matched[place])}: the window fired again for late records after it"
