"""Define the input and the output of a rule, and the rules for late data and for code changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

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
"""Evidence as text, by row number of `Pairs.rows`; it has only explained rows."""


class Cause(StrEnum):
    """Cause of a difference."""

    LATE_DATA = "late data"
    DUPLICATE = "duplicate"
    MISSING_INPUT = "missing input"
    TIME_ZONE_SHIFT = "time-zone shift"
    CODE = "code"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class UnexplainedWindows:
    """Input of a rule: the pairs, our side, the record counts of the files, and the current definition."""

    pairs: Pairs
    ours: PublishedSide
    records: RecordCounts
    definition: Definition

    @property
    def rows(self) -> pd.DataFrame:
        """Rows of the pairs."""
        return self.pairs.rows

    @property
    def differs(self) -> Mask:
        """Windows that differ."""
        return np.asarray(self.pairs.matters & ~self.pairs.is_equal)

    def counts(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Return our and the live record counts; None if no aggregate counts records."""
        ours, theirs = self.pairs.numbers("ours"), self.pairs.numbers("theirs")
        return None if ours is None or theirs is None else (ours, theirs)

    def in_files(self, *, is_read: bool | None = None) -> np.ndarray:
        """Return the records of each window in the files that its run read or did not read; None for all files.

        Unknown counts are NaN.
        """
        counts = np.zeros(len(self.rows))
        for run_id in self.rows[RUN].dropna().unique() if is_read is not None else [None]:
            files = self._files(run_id, is_read=is_read)
            is_of_run = (
                np.ones(len(self.rows), dtype=bool) if run_id is None else (self.rows[RUN] == run_id).to_numpy()
            )
            counts = np.where(is_of_run, self._count_in(files), counts)
        if not self.records.is_counted:
            return np.full(len(counts), np.nan)
        starts, ends = self.rows["start_ms"].to_numpy(), self.rows["end_ms"].to_numpy()
        for span in self.records.unknown:
            counts = np.where((starts < span.end_ms) & (ends > span.start_ms), np.nan, counts)
        return counts

    def _files(self, run_id: str | None, *, is_read: bool | None) -> frozenset[str] | None:
        if run_id is None:
            return None
        read = self.records.read_by.get(run_id)
        files = frozenset(self.records.rows["file"].unique())
        if read is None:
            return files if is_read else frozenset()
        return files & read if is_read else files - read

    def _count_in(self, files: frozenset[str] | None) -> np.ndarray:
        counts = self.records.per_window(files, self.pairs.shape)
        rows = self.rows[self.pairs.shape.places].merge(counts, on=self.pairs.shape.places, how="left")
        return np.asarray(rows["records"].fillna(0.0).to_numpy(dtype=float))


Rule = Callable[[UnexplainedWindows], Evidence]


def explained_by(case: UnexplainedWindows, mask: Mask, text: Callable[[int], str]) -> Evidence:
    """Return evidence for the differing rows of a mask; `text` receives the row number."""
    numbers = np.flatnonzero(mask & case.differs)
    return pd.Series([text(int(number)) for number in numbers], index=numbers, dtype=object)


def first_evidence(*results: Evidence) -> Evidence:
    """Return the first evidence of each row."""
    joined = pd.concat(results) if results else pd.Series(dtype=object)
    return joined[~joined.index.duplicated()]


def plain_number_text(value: float) -> str:
    """Return a number as text: `1,234`, `0.5`."""
    return f"{int(value):,}" if float(value).is_integer() else f"{value:.6g}"


def record_count_text(count: float) -> str:
    """Return a record count as text: `1 record`, `2 records`."""
    return "1 record" if count == 1 else f"{plain_number_text(count)} records"


_PANES = {
    "first": "the live system has the first pane: on-time records only",
    "live": "the live system has the live pane: the last result of the stream",
    "final": "the live system has the final pane: all records, dropped ones included",
}


def late_data_rule(case: UnexplainedWindows) -> Evidence:
    """Return the windows where the live values are those of another pane than the published one."""
    if not case.rows["has_panes"].any():
        return first_evidence()
    matches = [explained_by(case, _is_pane(case, pane), _PaneText(case, pane)) for pane in PANES_KEPT]
    return first_evidence(*matches, _match_firings(case))


def _is_pane(case: UnexplainedWindows, pane: str) -> Mask:
    exists = _has_records(case, pane)
    rows = case.rows
    both = (rows["is_theirs"] & rows["has_panes"] & (rows["copies"] == 1)).to_numpy() & exists
    neither = (~rows["is_theirs"] & rows["has_panes"]).to_numpy() & ~exists
    return np.asarray((both & case.pairs.all_equal(pane)) | neither)


def _has_records(case: UnexplainedWindows, pane: str) -> Mask:
    """Return where the pane has records; without records, all its aggregates are null, counts included."""
    names = [f"{pane}__{name}" for name in case.pairs.counting or case.pairs.shape.aggregates]
    return np.asarray(case.rows[names].notna().any(axis=1).to_numpy())


class _PaneText:
    """Evidence for a pane: its name, and the number of later records of the key, or else of the whole window."""

    def __init__(self, case: UnexplainedWindows, pane: str) -> None:
        self._case, self._pane = case, pane
        counts = {name: case.pairs.numbers(name) for name in PANES_KEPT}
        self._counts = {name: count for name, count in counts.items() if count is not None}
        totals = case.ours.metrics.groupby(["start_ms", "end_ms"])[["late", "dropped"]].sum()
        self._totals = totals.to_dict("index")

    def __call__(self, number: int) -> str:
        match = _PANES[self._pane]
        if not self._case.rows["is_theirs"].to_numpy()[number]:
            match = f"the live system lacks the window, and the {self._pane} pane has no records"
        late, dropped, scope = self._count_later(number)
        return f"{match}; {record_count_text(late)} late and {record_count_text(dropped)} dropped{scope}"

    def _count_later(self, number: int) -> tuple[float, float, str]:
        if self._counts:
            first, live, final = (self._counts[name][number] for name in PANES_KEPT)
            return live - first, final - live, ""
        row = self._case.rows.iloc[number]
        total = self._totals.get((row["start_ms"], row["end_ms"]), {"late": 0, "dropped": 0})
        return float(total["late"]), float(total["dropped"]), " in the window, over all keys"


def _match_firings(case: UnexplainedWindows) -> Evidence:
    """Return the windows whose live values are those of a single firing, if all panes are kept."""
    shape, firings = case.pairs.shape, case.ours.firings
    if firings.empty or "pane_index" not in firings:
        return first_evidence()
    rows = case.rows[[*shape.places, RUN, *(f"theirs__{name}" for name in shape.aggregates)]]
    joined = rows.assign(number=np.arange(len(rows))).merge(firings, on=[*shape.places, RUN])
    is_equal = np.ones(len(joined), dtype=bool)
    for name in shape.aggregates:
        live, firing = joined[f"theirs__{name}"], joined[f"firing__{name}"]
        is_equal &= equal_mask(live, firing, is_number=shape.is_number(name))
    panes = joined[is_equal].drop_duplicates("number").set_index("number")["pane_index"]
    mask = np.isin(np.arange(len(rows)), panes.index) & case.rows["is_theirs"].to_numpy()
    return explained_by(case, mask, lambda number: _firing_text(int(panes[number])))


def _firing_text(pane_index: int) -> str:
    return f"the live system has pane {pane_index}: the window fired again later for late records"


_MIN_ALIKE, _MIN_SHARE_ALIKE, _MIN_WINDOWS_ALIKE, _MIN_SHARE_OF_WINDOWS = 3, 0.5, 10, 0.9


def code_rule(case: UnexplainedWindows) -> Evidence:
    """Return the windows with the same records where each different aggregate differs systematically."""
    same = _same_records(case)
    reasons = {name: _find_reasons(case, name, same) for name in case.pairs.shape.aggregates}
    explained, differing = same.copy(), np.zeros(len(same), dtype=bool)
    for name, reasons_of_rows in reasons.items():
        differs = ~case.pairs.equal(name)
        differing |= differs
        explained &= ~differs | np.array([reason is not None for reason in reasons_of_rows], dtype=bool)

    def text(number: int) -> str:
        texts = [of_rows[number] for name, of_rows in reasons.items() if not case.pairs.equal(name)[number]]
        return "same records; " + "; ".join(reason for reason in texts if reason)

    return explained_by(case, explained & differing, text) if same.any() else first_evidence()


def _same_records(case: UnexplainedWindows) -> Mask:
    """Return where both record counts are equal; without record counts, where another aggregate is equal."""
    pairs, rows = case.pairs, case.rows
    both = (rows["is_ours"] & rows["is_theirs"]).to_numpy()
    if pairs.counting:
        return np.asarray(both & np.all([pairs.equal(name) for name in pairs.counting], axis=0))
    return np.asarray(both & np.any([pairs.equal(name) for name in pairs.shape.aggregates], axis=0))


def _find_reasons(case: UnexplainedWindows, name: str, same: Mask) -> list[str | None]:
    """Return the reason why an aggregate differs by row; None without a reason."""
    reasons: list[str | None] = [None] * len(same)
    differs = same & ~case.pairs.equal(name)
    _fill(reasons, differs, _definition_changes(case, name))
    if case.pairs.shape.is_number(name):
        ours, theirs = (case.rows[f"{side}__{name}"].to_numpy(dtype=float) for side in ("ours", "theirs"))
        with np.errstate(divide="ignore", invalid="ignore"):
            _fill_repeated(reasons, differs, theirs / ours, f"{name} is {{}} times the backstream value")
        _fill_repeated(reasons, differs, theirs - ours, f"{name} is the backstream value plus {{}}")
    count, possible = int(differs.sum()), int(same.sum())
    if count >= _MIN_WINDOWS_ALIKE and count >= _MIN_SHARE_OF_WINDOWS * possible:
        reason = f"{name} differs in {count:,} of {possible:,} windows with the same count"
        _fill(reasons, differs, [reason] * len(same))
    return reasons


def _fill(reasons: list[str | None], mask: Mask, new: list[str | None] | list[str]) -> None:
    """Set the reason of the rows of a mask that have none."""
    for number in np.flatnonzero(mask):
        reasons[number] = reasons[number] or new[number]


def _fill_repeated(reasons: list[str | None], differs: Mask, values: np.ndarray, text: str) -> None:
    """Set the reason of the rows whose value occurs in many rows, within the tolerance."""
    numbers = np.flatnonzero(differs & np.isfinite(values))
    numbers = numbers[np.argsort(values[numbers], kind="stable")]
    start = 0
    for end in range(1, len(numbers) + 1):
        is_last = end == len(numbers)
        if is_last or abs(values[numbers[end]] - values[numbers[start]]) > _group_width(values[numbers[start]]):
            group = numbers[start:end]
            if len(group) >= max(_MIN_ALIKE, _MIN_SHARE_ALIKE * differs.sum()):
                reason = f"{text.format(f'{values[group[0]]:.9g}')} in {len(group):,} windows"
                for number in group:
                    reasons[number] = reasons[number] or reason
            start = end


def _group_width(value: float) -> float:
    return 100 * TOLERANCE * max(abs(value), TOLERANCE)


def _definition_changes(case: UnexplainedWindows, name: str) -> list[str | None]:
    """Return, by row, the change of an aggregate in the definition after the run was planned."""
    changes = {run_id: _definition_change(case, plan, name) for run_id, plan in case.ours.plans.items()}
    return [changes.get(run_id) if isinstance(run_id, str) else None for run_id in case.rows[RUN]]


def _definition_change(case: UnexplainedWindows, plan: Plan | None, name: str) -> str | None:
    if plan is None:
        return None
    planned: Mapping[str, str] = plan.definition.get("aggregates", {})
    changes = describe_differences({name: planned.get(name)}, {name: case.definition.aggregates.get(name)})
    return f"the definition changed after run {plan.run_id}: {changes[0]}" if changes else None
