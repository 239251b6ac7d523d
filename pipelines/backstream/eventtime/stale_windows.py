"""Which published windows a change of the input touches: by formula, from stretches of event time per key.

Nothing is missed: a row that would be another after the change lies in a window that is named. Some windows are
named in vain, such as those of records that had come before and count once.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from backstream.eventtime.instants import DAY_MS
from backstream.eventtime.windows import Cumulate, Session, Sliding, TimeWindow, WindowSpec


class ChangeKind(StrEnum):
    """What happened to an input file since it was, or was not, read."""

    NEW = "new"
    CHANGED = "changed"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class ChangedRecords:
    """A file's records of one key in a stretch of event time, both ends included; all meet the same windows.

    `is_added`: the records came; else records of the stretch may have gone, and it may be as long as the file.
    `key` is the key's values as JSON; `is_of_any_key`: rows of other keys may change too, as where a record has a
    copy of another key. `events` is None where nobody counted.
    """

    file: str
    change: ChangeKind
    first_ms: int
    last_ms: int
    events: int | None = None
    key: str | None = None
    is_added: bool = True
    is_of_any_key: bool = False


@dataclass(slots=True)
class StaleWindow:
    """A window whose rows may be others now, by what touches it: those of `keys`, or of any key."""

    window: TimeWindow
    keys: set[str] = field(default_factory=set)
    is_of_any_key: bool = False
    touches: set[ChangedRecords] = field(default_factory=set)

    def add(self, touch: ChangedRecords) -> None:
        """Note what makes the window stale."""
        self.keys |= {touch.key} if touch.key is not None else set()
        self.is_of_any_key |= touch.is_of_any_key
        self.touches.add(touch)


def count_by_file(touches: Iterable[ChangedRecords]) -> dict[str, int | None]:
    """File to the number of its records that the touches are about; None where nobody counted all of them."""
    found: dict[str, int | None] = {}
    for touch in touches:
        known = found.get(touch.file, 0)
        found[touch.file] = None if known is None or touch.events is None else known + touch.events
    return found


def slice_ms(window: WindowSpec) -> tuple[int, int]:
    """Width and offset of the slices of event time within which all instants meet the same windows.

    Of sessions: within which all records of a key belong together.
    """
    if isinstance(window, Session):
        return window.gap_ms, 0
    if isinstance(window, Cumulate):
        return window.step_ms, window.offset_ms
    width_ms = math.gcd(window.slide_ms, window.size_ms) if isinstance(window, Sliding) else window.size_ms
    return width_ms, window.offset_ms


def find_stale_windows(
    spec: WindowSpec, touches: Sequence[ChangedRecords], published: Sequence[tuple[str, TimeWindow]]
) -> list[StaleWindow]:
    """The windows that may have other rows now, whether or not they have any yet, in their order.

    Args:
        spec: how windows are assigned.
        touches: what changed.
        published: key (as JSON) and window of each published row; asked for sessions and for what may have gone.
    """
    found = _Found()
    if isinstance(spec, Session):
        _sessions(found, spec, [touch for touch in touches if touch.is_added], published)
    else:
        for touch in touches:
            for window in spec.assign(touch.first_ms) if touch.is_added else ():
                found.note(window, touch)
    reach_ms = spec.gap_ms if isinstance(spec, Session) else 0
    _may_have_gone(found, [touch for touch in touches if not touch.is_added], published, reach_ms)
    return found.sorted()


def window_days(spec: WindowSpec, window: TimeWindow) -> range:
    """The UTC days, in ms, whose rows a stale window concerns: of a session also those where parts may begin."""
    first_ms = window.start_ms - window.start_ms % DAY_MS
    return range(first_ms, window.end_ms if isinstance(spec, Session) else first_ms + 1, DAY_MS)


class _Found:
    """Stale windows by window, and of sessions by key too."""

    def __init__(self) -> None:
        self._windows: dict[tuple[TimeWindow, str | None], StaleWindow] = {}

    def note(self, window: TimeWindow, touch: ChangedRecords, key: str | None = None) -> None:
        """A stale window; of sessions `key` says whose it is."""
        stale = self._windows.setdefault((window, key), StaleWindow(window))
        stale.add(touch)
        if key is not None:
            stale.keys, stale.is_of_any_key = {key}, False

    def sorted(self) -> list[StaleWindow]:
        return [self._windows[place] for place in sorted(self._windows, key=lambda each: (each[0], each[1] or ""))]


def _may_have_gone(
    found: _Found, touches: Sequence[ChangedRecords], published: Sequence[tuple[str, TimeWindow]], reach_ms: int
) -> None:
    """A record can only be missed by a row that is there; sessions may be joined otherwise within reach of it."""
    rows = sorted(published, key=lambda row: row[1])
    starts_ms = [window.start_ms for _, window in rows]
    longest_ms = max((window.end_ms - window.start_ms for _, window in rows), default=0)
    for touch in touches:
        low = bisect_left(starts_ms, touch.first_ms - longest_ms - reach_ms)
        high = bisect_right(starts_ms, touch.last_ms + reach_ms)
        for key, window in rows[low:high]:
            is_met = touch.first_ms < window.end_ms + reach_ms
            if is_met and (touch.is_of_any_key or touch.key == key):
                found.note(window, touch)


def _sessions(
    found: _Found, spec: Session, touches: Sequence[ChangedRecords], published: Sequence[tuple[str, TimeWindow]]
) -> None:
    """Records join the sessions of their key that they touch, which may join one another by them."""
    by_key: dict[str | None, list[tuple[TimeWindow, ChangedRecords | None]]] = defaultdict(list)
    for touch in touches:
        by_key[touch.key].append((TimeWindow(touch.first_ms, touch.last_ms + spec.gap_ms), touch))
    for row_key, window in published:
        if row_key in by_key:
            by_key[row_key].append((window, None))
    for key, pieces in by_key.items():
        for joined in _joined(pieces):
            _note_session(found, key, joined)


def _joined(
    pieces: Iterable[tuple[TimeWindow, ChangedRecords | None]],
) -> Iterator[list[tuple[TimeWindow, ChangedRecords | None]]]:
    """Windows that touch, as one."""
    together: list[tuple[TimeWindow, ChangedRecords | None]] = []
    end_ms = 0
    for window, touch in sorted(pieces, key=lambda piece: piece[0]):
        if together and window.start_ms > end_ms:
            yield together
            together = []
        end_ms = max(end_ms, window.end_ms) if together else window.end_ms
        together.append((window, touch))
    if together:
        yield together


def _note_session(
    found: _Found, key: str | None, pieces: Sequence[tuple[TimeWindow, ChangedRecords | None]]
) -> None:
    """Stale are the session as it will be, and those published that it takes in."""
    whole = TimeWindow(pieces[0][0].start_ms, max(window.end_ms for window, _ in pieces))
    was = {window for window, touch in pieces if touch is None}
    for touch in (touch for _, touch in pieces if touch):
        for window in {whole, *was}:
            found.note(window, touch, key)
