"""Compare two sides: pair their windows, find a time-zone shift, and classify the remaining differences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa

from backstream.definition.mergeable import is_record_count, is_sum
from backstream.definition.model import Definition
from backstream.eventtime.instants import DAY_MS, instant_text
from backstream.eventtime.intervals import Interval
from backstream.reconcile.frames import START, TableShape
from backstream.reconcile.input_rules import duplicate_rule, missing_input_rule
from backstream.reconcile.mismatches import mismatch_table
from backstream.reconcile.pairs import Mask, Pairs, join_sides
from backstream.reconcile.published_side import RUN, PublishedSide
from backstream.reconcile.record_counts import count_records, unknown_counts
from backstream.reconcile.rules import Cause, Evidence, Rule, UnexplainedWindows, code_rule, late_data_rule
from backstream.reconcile.time_shift import REACH_MS, Shift, ShiftMatch, find_shift, repeated_hour_mask, undo_shift
from backstream.runs.home import Home

_RULES: Mapping[Cause, Rule] = {
    Cause.LATE_DATA: late_data_rule,
    Cause.DUPLICATE: duplicate_rule,
    Cause.MISSING_INPUT: missing_input_rule,
    Cause.CODE: code_rule,
}
"""Rules in the order of their application."""


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """Result of a comparison.

    `differing` has a row per key and window that differs, largest difference first: bounds, keys, `cause`,
    `aggregate` (the one with the largest difference), `ours`, `theirs` (text), `difference`, and `evidence`.
    `days` has the number of compared windows by UTC day in ms.
    """

    dataset: str
    interval: Interval
    ours: str
    theirs: str
    windows: int
    causes: Mapping[Cause, int]
    shift: ShiftMatch | None
    notes: Sequence[str]
    differing: pa.Table
    days: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Comparison of the columns of `shape` in the windows of an interval."""

    definition: Definition
    shape: TableShape
    interval: Interval
    home: Home

    def compare(
        self, ours: PublishedSide, theirs: pd.DataFrame, where: str, notes: Sequence[str]
    ) -> Reconciliation:
        """Return the windows that differ, with their causes."""
        near = self._in_interval(theirs, REACH_MS)
        pairs = unshifted = self._pair(ours.windows, near)
        if shift := self._find_shift(unshifted, near):
            pairs = _drop_worse_pairs(self._pair(ours.windows, undo_shift(near, shift.shift, self.shape)))
        case = self._case(pairs, ours)
        was_equal = self._equal_before(pairs, unshifted) if shift else case.pairs.is_equal
        causes = self._classify(case, shift, was_equal)
        counts = Counter(causes["cause"])
        return Reconciliation(
            dataset=self.definition.name,
            interval=self.interval,
            ours=ours.what,
            theirs=where,
            windows=int(pairs.matters.sum()),
            causes={cause: counts[cause] for cause in Cause if counts[cause]},
            shift=shift,
            notes=[*notes, *([case.records.note] if case.records.note else [])],
            differing=mismatch_table(case, causes),
            days=_count_by_day(pairs),
        )

    def _in_interval(self, rows: pd.DataFrame, margin_ms: int) -> pd.DataFrame:
        since_ms, until_ms = self.interval.start_ms - margin_ms, self.interval.end_ms + margin_ms
        return rows[(rows[START] >= since_ms) & (rows[START] < until_ms)].reset_index(drop=True)

    def _pair(self, ours: pd.DataFrame, theirs: pd.DataFrame) -> Pairs:
        calls = self.definition.aggregates
        counting = [name for name in self.shape.aggregates if is_record_count(calls.get(name))]
        adding = [name for name in self.shape.aggregates if is_sum(calls.get(name))]
        rows = join_sides(self._in_interval(ours, 0), self._in_interval(theirs, 0), self.shape)
        return Pairs(rows, self.shape, counting, adding)

    def _find_shift(self, pairs: Pairs, near: pd.DataFrame) -> ShiftMatch | None:
        if pairs.is_equal[pairs.matters].all():
            return None
        ours = pairs.rows[pairs.rows["is_ours"]].drop_duplicates(self.shape.places)
        return find_shift(
            ours[[*self.shape.places, *(f"ours__{name}" for name in self.shape.aggregates)]], near, self.shape
        )

    def _equal_before(self, pairs: Pairs, unshifted: Pairs) -> Mask:
        """Return the windows that are equal without the shift."""
        equal = unshifted.rows[self.shape.places][unshifted.is_equal].drop_duplicates().assign(was_equal=True)
        rows = pairs.rows[self.shape.places].merge(equal, on=self.shape.places, how="left")
        return np.asarray(rows["was_equal"].eq(True).to_numpy())  # noqa: FBT003 - a value

    def _case(self, pairs: Pairs, ours: PublishedSide) -> UnexplainedWindows:
        """Return the input of the rules; records of files are counted only around the windows that differ."""
        rows = pairs.rows
        days = rows[START] - rows[START] % DAY_MS
        rows[RUN] = rows[RUN].where(rows[RUN].notna(), days.map(dict(ours.run_of_day)))
        starts = rows[START][pairs.matters & ~pairs.is_equal]
        if starts.empty or not pairs.counting:
            return UnexplainedWindows(pairs, ours, unknown_counts(self.shape), self.definition)
        span = Interval(int(starts.min()), int(starts.max()) + 1)
        records = count_records(self.definition, ours.plans, span, self.shape, self.home)
        return UnexplainedWindows(pairs, ours, records, self.definition)

    def _classify(self, case: UnexplainedWindows, shift: ShiftMatch | None, was_equal: Mask) -> pd.DataFrame:
        """Return cause and evidence of the rows that differ, and of the rows that only the shift makes equal."""
        results: list[tuple[Cause, Evidence]] = []
        if shift is not None:
            results.append((Cause.TIME_ZONE_SHIFT, _shift_evidence(case, shift.shift, was_equal)))
        results += [(cause, rule(case)) for cause, rule in _RULES.items()]
        differing = np.flatnonzero(case.differs)
        results.append((Cause.UNKNOWN, pd.Series("no rule has evidence", index=differing)))
        causes = pd.concat(
            [
                pd.DataFrame({"cause": [cause] * len(evidence), "evidence": evidence.to_numpy()}, evidence.index)
                for cause, evidence in results
            ]
        )
        causes = causes[~causes.index.duplicated() & ~np.isin(causes.index, np.flatnonzero(was_equal))]
        if shift is None:
            return causes
        is_shifted = causes["cause"] == Cause.TIME_ZONE_SHIFT
        return causes.assign(
            evidence=causes["evidence"].where(is_shifted, causes["evidence"] + "; after the shift")
        )


def _count_by_day(pairs: Pairs) -> dict[int, int]:
    starts_ms = pairs.rows[START][pairs.matters].to_numpy(dtype=np.int64)
    days_ms, counts = np.unique(starts_ms - starts_ms % DAY_MS, return_counts=True)
    return {int(day_ms): int(count) for day_ms, count in zip(days_ms, counts, strict=True)}


def _shift_evidence(case: UnexplainedWindows, shift: Shift, was_equal: Mask) -> Evidence:
    """Return the windows that a shift makes equal, and those of a repeated hour that share a live row."""
    pairs, starts_ms = case.pairs, case.rows[START].to_numpy(dtype=np.int64)
    live_starts_ms = starts_ms + shift.at_ms(starts_ms)
    is_summed = repeated_hour_mask(pairs, live_starts_ms) & ~pairs.is_equal
    numbers = np.flatnonzero((is_summed | pairs.is_equal) & pairs.matters & ~was_equal)
    texts = [
        f"the live system has it at {instant_text(int(live_starts_ms[number]))}"
        + (_REPEATED_HOUR if is_summed[number] else "")
        for number in numbers
    ]
    return pd.Series(texts, index=numbers, dtype=object)


_REPEATED_HOUR = ", added to the other window of the repeated hour"


def _drop_worse_pairs(pairs: Pairs) -> Pairs:
    """Return the best pair of each window; in a repeated hour, a live row can be of either window."""
    ranked = pairs.rows.assign(differs=~pairs.is_equal).sort_values("differs", kind="stable")
    is_worse = ranked["is_folded"].eq(True) & ranked.duplicated(pairs.shape.places)  # noqa: FBT003 - a value
    best = pairs.rows[~is_worse.reindex(pairs.rows.index)].reset_index(drop=True)
    return Pairs(best, pairs.shape, pairs.counting, pairs.adding)
