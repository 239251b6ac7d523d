"""The comparison itself: windows are paired, a shift is looked for, and what still differs is judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa

from backstream.definition.aggregate_kinds import is_record_count, is_sum
from backstream.definition.model import Definition
from backstream.eventtime.instants import DAY_MS, instant_text
from backstream.eventtime.intervals import Interval
from backstream.reconcile.causes import Cause
from backstream.reconcile.frames import START, TableShape
from backstream.reconcile.input_rules import duplicate_rule, missing_input_rule
from backstream.reconcile.mismatches import mismatch_table
from backstream.reconcile.pairs import Mask, Pairs, join_sides
from backstream.reconcile.published_side import RUN, PublishedSide
from backstream.reconcile.record_counts import count_records, unknown_counts
from backstream.reconcile.rules import Evidence, Rule, UnexplainedWindows, code_rule, late_data_rule
from backstream.reconcile.time_shift import REACH_MS, Shift, ShiftMatch, find_shift, repeated_hour_mask, undo_shift
from backstream.runs.home import Home

_RULES: Mapping[Cause, Rule] = {
    Cause.LATE_DATA: late_data_rule,
    Cause.DUPLICATE: duplicate_rule,
    Cause.MISSING_INPUT: missing_input_rule,
    Cause.CODE: code_rule,
}
"""In the order in which they are tried."""


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """Ours against theirs, window by window.

    `differing` has a row per key and window that differs, the largest difference first: bounds, keys, `cause`,
    `aggregate` (the first that differs most), `ours`, `theirs` (text), `difference`, `evidence`.
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


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is compared: which columns, of which windows."""

    definition: Definition
    shape: TableShape
    interval: Interval
    home: Home

    def compare(
        self, ours: PublishedSide, theirs: pd.DataFrame, where: str, notes: Sequence[str]
    ) -> Reconciliation:
        """Pair, look for a shift, judge what still differs."""
        near = self._within(theirs, REACH_MS)
        pairs = plain = self._pairs(ours.windows, near)
        if shift := self._shift(plain, near):
            pairs = _unfolded(self._pairs(ours.windows, undo_shift(near, shift.shift, self.shape)))
        case = self._case(pairs, ours)
        causes = self._causes(case, shift, self._equal_before(pairs, plain) if shift else case.pairs.is_equal)
        counted = Counter(causes["cause"])
        return Reconciliation(
            dataset=self.definition.name,
            interval=self.interval,
            ours=ours.what,
            theirs=where,
            windows=int(pairs.matters.sum()),
            causes={cause: counted[cause] for cause in Cause if counted[cause]},
            shift=shift,
            notes=[*notes, *([case.records.note] if case.records.note else [])],
            differing=mismatch_table(case, causes),
        )

    def _within(self, rows: pd.DataFrame, margin_ms: int) -> pd.DataFrame:
        since_ms, until_ms = self.interval.start_ms - margin_ms, self.interval.end_ms + margin_ms
        return rows[(rows[START] >= since_ms) & (rows[START] < until_ms)].reset_index(drop=True)

    def _pairs(self, ours: pd.DataFrame, theirs: pd.DataFrame) -> Pairs:
        calls = self.definition.aggregates
        counting = [name for name in self.shape.aggregates if is_record_count(calls[name])]
        adding = [name for name in self.shape.aggregates if is_sum(calls[name])]
        rows = join_sides(self._within(ours, 0), self._within(theirs, 0), self.shape)
        return Pairs(rows, self.shape, counting, adding)

    def _shift(self, plain: Pairs, near: pd.DataFrame) -> ShiftMatch | None:
        if plain.is_equal[plain.matters].all():
            return None
        ours = plain.rows[plain.rows["is_ours"]].drop_duplicates(self.shape.places)
        return find_shift(
            ours[[*self.shape.places, *(f"ours__{name}" for name in self.shape.aggregates)]], near, self.shape
        )

    def _equal_before(self, pairs: Pairs, plain: Pairs) -> Mask:
        """Which windows are equal where they stand, whatever the shift says."""
        places = plain.rows[self.shape.places][plain.is_equal].drop_duplicates().assign(was=True)
        found = pairs.rows[self.shape.places].merge(places, on=self.shape.places, how="left")
        return np.asarray(found["was"].eq(True).to_numpy())  # noqa: FBT003 - a value

    def _case(self, pairs: Pairs, ours: PublishedSide) -> UnexplainedWindows:
        """The records in files are counted only about the windows that differ."""
        rows = pairs.rows
        days = rows[START] - rows[START] % DAY_MS
        rows[RUN] = rows[RUN].where(rows[RUN].notna(), days.map(dict(ours.run_of_day)))
        starts = rows[START][pairs.matters & ~pairs.is_equal]
        if starts.empty or not pairs.counting:
            return UnexplainedWindows(pairs, ours, unknown_counts(self.shape), self.definition)
        span = Interval(int(starts.min()), int(starts.max()) + 1)
        found = count_records(self.definition, ours.plans, span, self.shape, self.home)
        return UnexplainedWindows(pairs, ours, found, self.definition)

    def _causes(self, case: UnexplainedWindows, shift: ShiftMatch | None, was_equal: Mask) -> pd.DataFrame:
        """Cause and evidence by row, of those that differ; with a shift also of those that it makes equal."""
        labels: list[tuple[Cause, Evidence]] = []
        if shift is not None:
            labels.append((Cause.TIME_ZONE_SHIFT, _moved(case, shift.shift, was_equal)))
        labels += [(cause, rule(case)) for cause, rule in _RULES.items()]
        rest = np.flatnonzero(case.differs)
        labels.append((Cause.UNKNOWN, pd.Series("no rule has evidence", index=rest)))
        found = pd.concat(
            [
                pd.DataFrame({"cause": [cause] * len(each), "evidence": each.to_numpy()}, each.index)
                for cause, each in labels
            ]
        )
        found = found[~found.index.duplicated() & ~np.isin(found.index, np.flatnonzero(was_equal))]
        if shift is None:
            return found
        is_moved = found["cause"] == Cause.TIME_ZONE_SHIFT
        return found.assign(evidence=found["evidence"].where(is_moved, found["evidence"] + "; after the shift"))


def _moved(case: UnexplainedWindows, shift: Shift, was_equal: Mask) -> Evidence:
    """The windows that a shift makes equal, and those that share a label of theirs when clocks go back."""
    pairs, starts_ms = case.pairs, case.rows[START].to_numpy(dtype=np.int64)
    labels_ms = starts_ms + shift.at_ms(starts_ms)
    is_summed = repeated_hour_mask(pairs, labels_ms) & ~pairs.is_equal
    places = np.flatnonzero((is_summed | pairs.is_equal) & pairs.matters & ~was_equal)
    said = [
        f"theirs has it at {instant_text(int(labels_ms[at]))}" + (_TWICE if is_summed[at] else "") for at in places
    ]
    return pd.Series(said, index=places, dtype=object)


_TWICE = ", with the other window of the hour that clocks say twice"


def _unfolded(pairs: Pairs) -> Pairs:
    """Where an hour was said twice, a row of theirs may be that of either window: of each window the best pair."""
    rows = pairs.rows
    found = rows.assign(differs=~pairs.is_equal).sort_values("differs", kind="stable")
    is_spare = found["is_folded"].eq(True) & found.duplicated(pairs.shape.places)  # noqa: FBT003 - a value
    kept = rows[~is_spare.reindex(rows.index)].reset_index(drop=True)
    return Pairs(kept, pairs.shape, pairs.counting, pairs.adding)
