"""Time-zone shifts: theirs lies at our windows' starts plus what some clock on a wall says."""

from __future__ import annotations

import zoneinfo
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd

from backstream.eventtime.instants import HOUR_MS, MINUTE_MS, duration_text, instant_text
from backstream.reconcile.frames import END, START, TableShape
from backstream.reconcile.pairs import Mask, Pairs, equal_mask

QUARTER_MS = 15 * MINUTE_MS
REACH_MS = 14 * HOUR_MS
LEAST_WINDOWS, LEAST_SHARE, RIVAL_SHARE = 10, 0.8, 0.5
_SAMPLE = 5_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
OFFSETS_MS = tuple(range(-REACH_MS, REACH_MS + 1, QUARTER_MS))

Longs = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Shift:
    """By how much theirs lies off: one number of ms, or a zone's offset from UTC (`sign` -1: the reverse)."""

    fixed_ms: int = 0
    zone: str | None = None
    sign: int = 1

    def at_ms(self, starts_ms: Longs) -> Longs:
        """The shift of windows by their (true) starts."""
        if self.zone is None:
            return np.full(len(starts_ms), self.fixed_ms, dtype=np.int64)
        known, places = np.unique(starts_ms, return_inverse=True)
        zone = zoneinfo.ZoneInfo(self.zone)
        offsets = [self.sign * _offset_ms(int(start_ms), zone, self.sign) for start_ms in known]
        return np.array(offsets, dtype=np.int64)[places]

    def text(self, starts_ms: Longs) -> str:
        """Such as `-5h`, or `-5h, from 2024-03-10T07:00Z -4h, as clocks in America/New_York`."""
        if self.zone is None:
            return _signed(self.fixed_ms)
        known = np.unique(starts_ms)
        at_ms = self.at_ms(known)
        changes = [int(place) for place in np.flatnonzero(np.diff(at_ms)) + 1]
        said = [f"from {instant_text(int(known[place]))} {_signed(int(at_ms[place]))}" for place in changes]
        return ", ".join([_signed(int(at_ms[0])), *said, f"as clocks in {self.zone}"])


@dataclass(frozen=True, slots=True)
class ShiftMatch:
    """A shift, and what speaks for it: the windows it finds of those it could, and those found without it."""

    shift: Shift
    said: str
    found: int
    possible: int
    unshifted: int

    def __str__(self) -> str:
        share = f"{self.found:,} of {self.possible:,} windows are equal then, {self.unshifted:,} without it"
        return f"{self.said}: {share}"


def find_shift(ours: pd.DataFrame, theirs: pd.DataFrame, shape: TableShape) -> ShiftMatch | None:
    """The shift that theirs has against ours, by the rule in `causes.py`; None where there is none.

    A sample of at most 5,000 windows, evenly spread, decides.
    """
    sample = ours.sort_values(START, kind="stable").iloc[:: max(1, len(ours) // _SAMPLE)]
    if len(sample) < LEAST_WINDOWS or theirs.empty:
        return None
    tried = _Tried.from_sample(sample, theirs, shape)
    best = max(tried.candidates(), key=tried.score, default=None)
    if best is None:
        return None
    found, possible = tried.score(best)[0], tried.possible(best)
    unshifted = int(tried.equal[OFFSETS_MS.index(0)].sum())
    is_enough = found >= LEAST_WINDOWS and found >= LEAST_SHARE * possible and found > unshifted
    used = set(best.at_ms(tried.starts_ms).tolist())
    rivals = [int(tried.equal[number].sum()) for number, ms in enumerate(OFFSETS_MS) if ms and ms not in used]
    if not is_enough or max(rivals, default=0) >= RIVAL_SHARE * found:
        return None
    return ShiftMatch(best, best.text(tried.starts_ms), found, possible, unshifted)


@dataclass(frozen=True, slots=True)
class _Tried:
    """For each offset and sampled window: whether theirs is equal there, and whether theirs covers that time."""

    starts_ms: Longs
    equal: np.ndarray
    covered: np.ndarray

    @classmethod
    def from_sample(cls, sample: pd.DataFrame, theirs: pd.DataFrame, shape: TableShape) -> _Tried:
        keys = shape.places[:-2]
        side = theirs.drop_duplicates([*keys, START])
        starts_ms = sample[START].to_numpy(dtype=np.int64)
        low_ms, high_ms = int(theirs[START].min()), int(theirs[START].max())
        equal = [_equal_at(sample, side, shape, offset_ms) for offset_ms in OFFSETS_MS]
        covered = [(starts_ms + ms >= low_ms) & (starts_ms + ms <= high_ms) for ms in OFFSETS_MS]
        return cls(starts_ms, np.array(equal), np.array(covered))

    def candidates(self) -> Iterator[Shift]:
        """Fixed shifts, and zones whose offsets find something at both ends or the middle of the sample."""
        found = self.equal.sum(axis=1)
        good = {ms for ms, count in zip(OFFSETS_MS, found, strict=True) if count}
        yield from (Shift(fixed_ms=ms) for ms in sorted(good, key=abs) if ms)
        if not good or found.max() >= self.covered[int(found.argmax())].sum():
            return  # one number finds all there is
        ends = self.starts_ms[[0, len(self.starts_ms) // 2, -1]]
        for zone in sorted(zoneinfo.available_timezones()):
            for sign in (1, -1):
                shift = Shift(zone=zone, sign=sign)
                offsets = set(shift.at_ms(ends).tolist())
                if len(offsets) > 1 and offsets <= good:
                    yield shift

    def score(self, shift: Shift) -> tuple[int, int]:
        """How many windows a shift finds; of equals the one that has one number for all."""
        return int(self._picked(self.equal, shift).sum()), int(shift.zone is None)

    def possible(self, shift: Shift) -> int:
        """How many windows a shift could find."""
        return int(self._picked(self.covered, shift).sum())

    def _picked(self, table: np.ndarray, shift: Shift) -> np.ndarray:
        rows = (shift.at_ms(self.starts_ms) + REACH_MS) // QUARTER_MS
        is_known = (rows >= 0) & (rows < len(OFFSETS_MS))
        return table[np.clip(rows, 0, len(OFFSETS_MS) - 1), np.arange(len(rows))] & is_known


def _equal_at(sample: pd.DataFrame, theirs: pd.DataFrame, shape: TableShape, offset_ms: int) -> np.ndarray:
    keys = shape.places[:-2]
    moved = sample.assign(**{START: sample[START] + offset_ms})
    rows = moved.merge(theirs, on=[*keys, START], how="left", indicator="side", suffixes=("", "_theirs"))
    found = (rows["side"] == "both").to_numpy()
    for name in shape.aggregates:
        found &= equal_mask(rows[f"theirs__{name}"], rows[f"ours__{name}"], is_number=shape.is_number(name))
    return np.asarray(found)


def undo_shift(theirs: pd.DataFrame, shift: Shift, shape: TableShape) -> pd.DataFrame:
    """Theirs with its windows where they belong; `is_folded` where a label stands for two of ours.

    When clocks go back an hour is said twice: its rows are put at both places. A label that no clock said stays.
    """
    labels_ms = theirs[START].to_numpy(dtype=np.int64)
    offsets = sorted(set(shift.at_ms(_around(labels_ms)).tolist()))
    parts, is_placed = [], np.zeros(len(theirs), dtype=int)
    for offset_ms in offsets:
        true_ms = labels_ms - offset_ms
        is_here = shift.at_ms(true_ms) == offset_ms
        is_placed += is_here
        # Where clocks change within a window, their labels lie further apart, or closer, than it is long.
        length_ms = theirs[END] - theirs[START] if shape.window_ms is None else shape.window_ms
        parts.append(theirs.assign(**{START: true_ms, END: true_ms + length_ms})[is_here])
    rows = pd.concat([theirs[is_placed == 0], *parts])
    is_folded = pd.Series(is_placed > 1, index=theirs.index).loc[rows.index]
    moved: pd.DataFrame = rows.assign(is_folded=is_folded.to_numpy()).reset_index(drop=True)
    return moved


def repeated_hour_mask(pairs: Pairs, labels_ms: Longs) -> Mask:
    """Windows of an hour that clocks say twice, where theirs has the sum of both in all that adds up."""
    keys, rows = pairs.shape.places[:-2], pairs.rows.assign(label=labels_ms)
    ours = [f"ours__{name}" for name in pairs.adding]
    is_here = (rows["is_folded"].eq(True) & rows["is_ours"]).to_numpy()  # noqa: FBT003 - a value
    if not ours or not is_here.any():
        return np.zeros(len(rows), dtype=bool)
    by_label = rows[is_here].groupby([*keys, "label"], dropna=False)[ours]
    sums = by_label.transform("sum").reindex(rows.index)
    fits = is_here & (by_label.transform("size").reindex(rows.index) > 1).to_numpy()
    for name in pairs.adding:
        fits &= equal_mask(rows[f"theirs__{name}"], sums[f"ours__{name}"], is_number=True)
    return np.asarray(fits)


def _signed(value_ms: int) -> str:
    return f"{'+' if value_ms > 0 else ''}{duration_text(value_ms)}"


def _around(labels_ms: Longs) -> Longs:
    known = np.unique(labels_ms)
    return np.concatenate([known - REACH_MS, known, known + REACH_MS])


def _offset_ms(value_ms: int, zone: zoneinfo.ZoneInfo, sign: int) -> int:
    """What a zone adds to UTC at an instant, or with sign -1 at a time on its wall."""
    at = _EPOCH + timedelta(milliseconds=value_ms)
    offset = (at.astimezone(zone) if sign > 0 else at.replace(tzinfo=zone)).utcoffset()
    assert offset is not None  # noqa: S101 - a zone has one
    return offset // timedelta(milliseconds=1)
