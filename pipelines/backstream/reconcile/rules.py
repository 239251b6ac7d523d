"""What every rule gets and gives: the windows that still differ, and a line of evidence for those it explains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from backstream.definition.model import Definition
from backstream.reconcile.pairs import TOLERANCE, Mask, Pairs, equal_mask
from backstream.reconcile.published_side import RUN, PublishedSide
from backstream.reconcile.record_counts import RecordCounts
from backstream.runs.plan import Plan
from backstream.runs.table_schemas import PANES_KEPT
from backstream.text import describe_differences

Evidence = pd.Series
"""Text by row of `Pairs.rows`; only rows that are explained are in it."""


@dataclass(frozen=True)
class UnexplainedWindows:
    """All that is known: every pair, ours, what the files hold, and the definition as it is now."""

    pairs: Pairs
    ours: PublishedSide
    records: RecordCounts
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


Rule = Callable[[UnexplainedWindows], Evidence]


def explained_by(case: UnexplainedWindows, mask: Mask, text: Callable[[int], str]) -> Evidence:
    """The evidence for the rows of a mask that differ; `text` gets their position."""
    places = np.flatnonzero(mask & case.differs)
    return pd.Series([text(int(place)) for place in places], index=places, dtype=object)


def first_position(*found: Evidence) -> Evidence:
    """Of each row the first evidence."""
    joined = pd.concat(found) if found else pd.Series(dtype=object)
    return joined[~joined.index.duplicated()]


def plain_number_text(value: float) -> str:
    """`1,234` or `0.5`."""
    return f"{int(value):,}" if float(value).is_integer() else f"{value:.6g}"


def record_count_text(count: float) -> str:
    """`1 record`, `2 records`."""
    return "1 record" if count == 1 else f"{plain_number_text(count)} records"


_PANES = {
    "first": "theirs is our first pane: what had arrived on time",
    "live": "theirs is our live pane: what the stream had in the end",
    "final": "theirs is our final pane: all records, also those that came too late for the stream",
}


def late_data_rule(case: UnexplainedWindows) -> Evidence:
    """The windows where theirs is another pane of ours than the one that ours publishes."""
    if not case.rows["has_panes"].any():
        return first_position()
    of_panes = [explained_by(case, _is_pane(case, pane), _Text(case, pane)) for pane in PANES_KEPT]
    return first_position(*of_panes, _firings(case))


def _is_pane(case: UnexplainedWindows, pane: str) -> Mask:
    there = _exists(case, pane)
    rows = case.rows
    both = (rows["is_theirs"] & rows["has_panes"] & (rows["copies"] == 1)).to_numpy() & there
    neither = (~rows["is_theirs"] & rows["has_panes"]).to_numpy() & ~there
    return np.asarray((both & case.pairs.all_equal(pane)) | neither)


def _exists(case: UnexplainedWindows, pane: str) -> Mask:
    """Whether the pane had a record: the aggregates over none are null, and a count of them is never 0."""
    names = [f"{pane}__{name}" for name in case.pairs.counting or case.pairs.shape.aggregates]
    return np.asarray(case.rows[names].notna().any(axis=1).to_numpy())


class _Text:
    """Which pane, and how many records came after it: of this key where a count says so, else of the window."""

    def __init__(self, case: UnexplainedWindows, pane: str) -> None:
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
        return f"{said}; {record_count_text(late)} came late and {record_count_text(dropped)} too late{whose}"

    def _late(self, place: int) -> tuple[float, float, str]:
        if self._counts:
            first, live, final = (self._counts[name][place] for name in PANES_KEPT)
            return live - first, final - live, ""
        row = self._case.rows.iloc[place]
        found = self._totals.get((row["start_ms"], row["end_ms"]), {"late": 0, "dropped": 0})
        return float(found["late"]), float(found["dropped"]), " for the window, of any key"


def _firings(case: UnexplainedWindows) -> Evidence:
    """Where every pane was kept, theirs may be one between the first and the last."""
    shape, firings = case.pairs.shape, case.ours.firings
    if firings.empty or "pane_index" not in firings:
        return first_position()
    rows = case.rows[[*shape.places, RUN, *(f"theirs__{name}" for name in shape.aggregates)]]
    found = rows.assign(place=np.arange(len(rows))).merge(firings, on=[*shape.places, RUN])
    is_same = np.ones(len(found), dtype=bool)
    for name in shape.aggregates:
        is_same &= equal_mask(found[f"theirs__{name}"], found[f"firing__{name}"], is_number=shape.is_number(name))
    matched = found[is_same].drop_duplicates("place").set_index("place")["pane_index"]
    mask = np.isin(np.arange(len(rows)), matched.index) & case.rows["is_theirs"].to_numpy()
    return explained_by(case, mask, lambda place: _firing_text(matched, place))


def _firing_text(matched: pd.Series, place: int) -> str:
    return f"theirs is our pane {int(matched[place])}: the window fired again for late records after it"


LEAST_ALIKE, SHARE_ALIKE, LEAST_OF_ALL, SHARE_OF_ALL = 3, 0.5, 10, 0.9


def code_rule(case: UnexplainedWindows) -> Evidence:
    """The windows of the same records where every aggregate that differs does so systematically."""
    same = _same_records(case)
    reasons = {name: _reasons(case, name, same) for name in case.pairs.shape.aggregates}
    explained, differing = same.copy(), np.zeros(len(same), dtype=bool)
    for name, found in reasons.items():
        differs = ~case.pairs.equal(name)
        differing |= differs
        explained &= ~differs | np.array([reason is not None for reason in found], dtype=bool)

    def text(place: int) -> str:
        said = [found[place] for name, found in reasons.items() if not case.pairs.equal(name)[place]]
        return "the same records; " + "; ".join(each for each in said if each)

    return explained_by(case, explained & differing, text) if same.any() else first_position()


def _same_records(case: UnexplainedWindows) -> Mask:
    """Where both count the same; where nothing counts, where another aggregate is equal."""
    pairs, rows = case.pairs, case.rows
    both = (rows["is_ours"] & rows["is_theirs"]).to_numpy()
    if pairs.counting:
        return np.asarray(both & np.all([pairs.equal(name) for name in pairs.counting], axis=0))
    return np.asarray(both & np.any([pairs.equal(name) for name in pairs.shape.aggregates], axis=0))


def _reasons(case: UnexplainedWindows, name: str, same: Mask) -> list[str | None]:
    """Why an aggregate differs, by row; None where there is no reason."""
    found: list[str | None] = [None] * len(same)
    differs = same & ~case.pairs.equal(name)
    _fill(found, differs, _redefined(case, name))
    if case.pairs.shape.is_number(name):
        ours, theirs = (case.rows[f"{side}__{name}"].to_numpy(dtype=float) for side in ("ours", "theirs"))
        with np.errstate(divide="ignore", invalid="ignore"):
            _fill_alike(found, differs, theirs / ours, f"{name} is {{}} times ours")
        _fill_alike(found, differs, theirs - ours, f"{name} is ours plus {{}}")
    count, possible = int(differs.sum()), int(same.sum())
    if count >= LEAST_OF_ALL and count >= SHARE_OF_ALL * possible:
        said = f"{name} differs in {count:,} of {possible:,} windows of the same count"
        _fill(found, differs, [said] * len(same))
    return found


def _fill(found: list[str | None], mask: Mask, said: list[str | None] | list[str]) -> None:
    for place in np.flatnonzero(mask):
        found[place] = found[place] or said[place]


def _fill_alike(found: list[str | None], differs: Mask, values: np.ndarray, said: str) -> None:
    """Rows whose value is one that many have, within the tolerance."""
    places = np.flatnonzero(differs & np.isfinite(values))
    places = places[np.argsort(values[places], kind="stable")]
    begin = 0
    for end in range(1, len(places) + 1):
        is_last = end == len(places)
        if is_last or abs(values[places[end]] - values[places[begin]]) > _width(values[places[begin]]):
            alike = places[begin:end]
            if len(alike) >= max(LEAST_ALIKE, SHARE_ALIKE * differs.sum()):
                text = f"{said.format(f'{values[alike[0]]:.9g}')} in {len(alike):,} windows"
                for place in alike:
                    found[place] = found[place] or text
            begin = end


def _width(value: float) -> float:
    return 100 * TOLERANCE * max(abs(value), TOLERANCE)


def _redefined(case: UnexplainedWindows, name: str) -> list[str | None]:
    """What the definition says otherwise now than when the run of a window was planned."""
    said = {run_id: _change(case, plan, name) for run_id, plan in case.ours.plans.items()}
    return [said.get(run_id) if isinstance(run_id, str) else None for run_id in case.rows[RUN]]


def _change(case: UnexplainedWindows, plan: Plan | None, name: str) -> str | None:
    if plan is None:
        return None
    was: Mapping[str, str] = plan.definition.get("aggregates", {})
    changed = describe_differences({name: was.get(name)}, {name: case.definition.aggregates.get(name)})
    return f"the definition says otherwise since run {plan.run_id}: {changed[0]}" if changed else None
