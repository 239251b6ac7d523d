"""Find and undo a time-zone shift: the live system stored window starts in local time."""

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

_QUARTER_MS = 15 * MINUTE_MS
REACH_MS = 14 * HOUR_MS
_MIN_WINDOWS, _MIN_SHARE, _MAX_RIVAL_SHARE = 10, 0.8, 0.5
_SAMPLE = 5_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OFFSETS_MS = tuple(range(-REACH_MS, REACH_MS + 1, _QUARTER_MS))

Longs = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Shift:
    """Offset of the live windows: a fixed number of ms, or the UTC offset of a zone (`sign` -1: subtracted)."""

    fixed_ms: int = 0
    zone: str | None = None
    sign: int = 1

    def at_ms(self, starts_ms: Longs) -> Longs:
        """Return the shift at each true window start."""
        if self.zone is None:
            return np.full(len(starts_ms), self.fixed_ms, dtype=np.int64)
        unique_ms, positions = np.unique(starts_ms, return_inverse=True)
        zone = zoneinfo.ZoneInfo(self.zone)
        offsets = [self.sign * _offset_ms(int(start_ms), zone, self.sign) for start_ms in unique_ms]
        return np.array(offsets, dtype=np.int64)[positions]

    def text(self, starts_ms: Longs) -> str:
        """Return the shift as text: `-5h`, or `-5h, from 2024-03-10T07:00Z -4h, as in America/New_York`."""
        if self.zone is None:
            return _signed_text(self.fixed_ms)
        unique_ms = np.unique(starts_ms)
        shifts_ms = self.at_ms(unique_ms)
        changes = [int(position) for position in np.flatnonzero(np.diff(shifts_ms)) + 1]
        texts = [f"from {instant_text(int(unique_ms[at]))} {_signed_text(int(shifts_ms[at]))}" for at in changes]
        return ", ".join([_signed_text(int(shifts_ms[0])), *texts, f"as in {self.zone}"])


@dataclass(frozen=True, slots=True)
class ShiftMatch:
    """A shift and its evidence: `found` of `possible` windows are equal with it, `unshifted` without it."""

    shift: Shift
    description: str
    found: int
    possible: int
    unshifted: int

    def __str__(self) -> str:
        evidence = f"{self.found:,} of {self.possible:,} windows are equal with it, {self.unshifted:,} without it"
        return f"{self.description}: {evidence}"


def find_shift(ours: pd.DataFrame, theirs: pd.DataFrame, shape: TableShape) -> ShiftMatch | None:
    """Return the shift of the live windows by the rule in `causes.py`; None if there is none.

    The decision is based on an even sample of about 5,000 windows.
    """
    sample = ours.sort_values(START, kind="stable").iloc[:: max(1, len(ours) // _SAMPLE)]
    if len(sample) < _MIN_WINDOWS or theirs.empty:
        return None
    matches = _OffsetMatches.from_sample(sample, theirs, shape)
    best = max(matches.candidates(), key=matches.score, default=None)
    if best is None:
        return None
    found, possible = matches.score(best)[0], matches.possible(best)
    unshifted = int(matches.equal[_OFFSETS_MS.index(0)].sum())
    is_enough = found >= _MIN_WINDOWS and found >= _MIN_SHARE * possible and found > unshifted
    used = set(best.at_ms(matches.starts_ms).tolist())
    rivals = [int(matches.equal[number].sum()) for number, ms in enumerate(_OFFSETS_MS) if ms and ms not in used]
    if not is_enough or max(rivals, default=0) >= _MAX_RIVAL_SHARE * found:
        return None
    return ShiftMatch(best, best.text(matches.starts_ms), found, possible, unshifted)


@dataclass(frozen=True, slots=True)
class _OffsetMatches:
    """Equal live windows, and times that the live output covers, by offset and sampled window."""

    starts_ms: Longs
    equal: np.ndarray
    covered: np.ndarray

    @classmethod
    def from_sample(cls, sample: pd.DataFrame, theirs: pd.DataFrame, shape: TableShape) -> _OffsetMatches:
        keys = shape.places[:-2]
        side = theirs.drop_duplicates([*keys, START])
        starts_ms = sample[START].to_numpy(dtype=np.int64)
        low_ms, high_ms = int(theirs[START].min()), int(theirs[START].max())
        equal = [_equal_at(sample, side, shape, offset_ms) for offset_ms in _OFFSETS_MS]
        covered = [(starts_ms + ms >= low_ms) & (starts_ms + ms <= high_ms) for ms in _OFFSETS_MS]
        return cls(starts_ms, np.array(equal), np.array(covered))

    def candidates(self) -> Iterator[Shift]:
        """Yield fixed shifts with matches, and zones with matches at both ends and the middle of the sample."""
        counts = self.equal.sum(axis=1)
        matching = {ms for ms, count in zip(_OFFSETS_MS, counts, strict=True) if count}
        yield from (Shift(fixed_ms=ms) for ms in sorted(matching, key=abs) if ms)
        if not matching or counts.max() >= self.covered[int(counts.argmax())].sum():
            return  # A fixed shift matches all windows.
        ends = self.starts_ms[[0, len(self.starts_ms) // 2, -1]]
        for zone in sorted(zoneinfo.available_timezones()):
            for sign in (1, -1):
                shift = Shift(zone=zone, sign=sign)
                offsets = set(shift.at_ms(ends).tolist())
                if len(offsets) > 1 and offsets <= matching:
                    yield shift

    def score(self, shift: Shift) -> tuple[int, int]:
        """Return the number of equal windows; at the same number, a fixed shift is better than a zone."""
        return int(self._at_shift(self.equal, shift).sum()), int(shift.zone is None)

    def possible(self, shift: Shift) -> int:
        """Return the number of windows in the time that the live output covers."""
        return int(self._at_shift(self.covered, shift).sum())

    def _at_shift(self, table: np.ndarray, shift: Shift) -> np.ndarray:
        rows = (shift.at_ms(self.starts_ms) + REACH_MS) // _QUARTER_MS
        is_valid = (rows >= 0) & (rows < len(_OFFSETS_MS))
        return table[np.clip(rows, 0, len(_OFFSETS_MS) - 1), np.arange(len(rows))] & is_valid


def _equal_at(sample: pd.DataFrame, theirs: pd.DataFrame, shape: TableShape, offset_ms: int) -> np.ndarray:
    keys = shape.places[:-2]
    moved = sample.assign(**{START: sample[START] + offset_ms})
    rows = moved.merge(theirs, on=[*keys, START], how="left", indicator="side", suffixes=("", "_theirs"))
    mask = (rows["side"] == "both").to_numpy()
    for name in shape.aggregates:
        mask &= equal_mask(rows[f"theirs__{name}"], rows[f"ours__{name}"], is_number=shape.is_number(name))
    return np.asarray(mask)


def undo_shift(theirs: pd.DataFrame, shift: Shift, shape: TableShape) -> pd.DataFrame:
    """Return the live windows at their true starts; `is_folded` marks rows that can be of two of our windows.

    When clocks go back, an hour repeats, and its rows appear at both times. A local time that doesn't exist stays.
    """
    local_ms = theirs[START].to_numpy(dtype=np.int64)
    offsets = sorted(set(shift.at_ms(_with_reach(local_ms)).tolist()))
    parts, is_placed = [], np.zeros(len(theirs), dtype=int)
    for offset_ms in offsets:
        true_ms = local_ms - offset_ms
        is_here = shift.at_ms(true_ms) == offset_ms
        is_placed += is_here
        # If clocks change within a window, the distance of its local bounds is not its length.
        length_ms = theirs[END] - theirs[START] if shape.window_ms is None else shape.window_ms
        parts.append(theirs.assign(**{START: true_ms, END: true_ms + length_ms})[is_here])
    rows = pd.concat([theirs[is_placed == 0], *parts])
    is_folded = pd.Series(is_placed > 1, index=theirs.index).loc[rows.index]
    restored: pd.DataFrame = rows.assign(is_folded=is_folded.to_numpy()).reset_index(drop=True)
    return restored


def repeated_hour_mask(pairs: Pairs, local_ms: Longs) -> Mask:
    """Return the windows of a repeated hour where live values are the sum of both in all additive aggregates."""
    keys, rows = pairs.shape.places[:-2], pairs.rows.assign(local_ms=local_ms)
    ours = [f"ours__{name}" for name in pairs.adding]
    is_here = (rows["is_folded"].eq(True) & rows["is_ours"]).to_numpy()  # noqa: FBT003 - a value
    if not ours or not is_here.any():
        return np.zeros(len(rows), dtype=bool)
    by_local_start = rows[is_here].groupby([*keys, "local_ms"], dropna=False)[ours]
    sums = by_local_start.transform("sum").reindex(rows.index)
    fits = is_here & (by_local_start.transform("size").reindex(rows.index) > 1).to_numpy()
    for name in pairs.adding:
        fits &= equal_mask(rows[f"theirs__{name}"], sums[f"ours__{name}"], is_number=True)
    return np.asarray(fits)


def _signed_text(value_ms: int) -> str:
    return f"{'+' if value_ms > 0 else ''}{duration_text(value_ms)}"


def _with_reach(local_ms: Longs) -> Longs:
    unique_ms = np.unique(local_ms)
    return np.concatenate([unique_ms - REACH_MS, unique_ms, unique_ms + REACH_MS])


def _offset_ms(value_ms: int, zone: zoneinfo.ZoneInfo, sign: int) -> int:
    """Return the UTC offset of a zone at an instant, or with sign -1 at a local time."""
    at = _EPOCH + timedelta(milliseconds=value_ms)
    offset = (at.astimezone(zone) if sign > 0 else at.replace(tzinfo=zone)).utcoffset()
    assert offset is not None  # noqa: S101 - every zone has an offset
    return offset // timedelta(milliseconds=1)
