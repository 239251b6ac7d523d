"""Find the published windows that a change of the input affects, by formula, from stretches of event time per key.

The result is complete: every row that the change would alter belongs to a reported window. It can contain false
positives, such as windows of records that also arrived earlier and count once.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from backstream.eventtime.instants import DAY_MS
from backstream.eventtime.windows import Session, TimeWindow, WindowSpec


class ChangeKind(StrEnum):
    """The change of an input file compared with an earlier run."""

    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"
    RENAMED = "renamed"
    COMPRESSED = "compressed"
    TRANSFORMED = "transformed otherwise"
    """The file is the same, but the code or the side inputs that transform its records have changed."""


@dataclass(frozen=True, slots=True)
class ChangedRecords:
    """A file's records of one key in a stretch of event time, both ends included; all belong to the same windows.

    `is_added`: the records are new. Otherwise records of the stretch may have been removed, and the stretch may be
    as long as the file. `key` is the key's values as JSON. `is_of_any_key`: rows of other keys may change too, for
    example when a record has a copy with another key.

    `more` is the number of records that were added, less those that were removed; None: they were not counted.
    Several changes of a file that are counted together have the same `counted_at`, and the same `more`.
    """

    file: str
    change: ChangeKind
    first_ms: int
    last_ms: int
    more: int | None = None
    key: str | None = None
    is_added: bool = True
    is_of_any_key: bool = False
    counted_at: int | None = None


@dataclass(slots=True)
class StaleWindow:
    """A window whose rows may have changed: those of `keys`, or of any key. `touches` are the causes."""

    window: TimeWindow
    keys: set[str] = field(default_factory=set)
    is_of_any_key: bool = False
    touches: set[ChangedRecords] = field(default_factory=set)

    def add(self, change: ChangedRecords) -> None:
        """Add a cause."""
        self.keys |= {change.key} if change.key is not None else set()
        self.is_of_any_key |= change.is_of_any_key
        self.touches.add(change)


def count_by_file(changes: Iterable[ChangedRecords]) -> dict[str, int | None]:
    """Return by file how many more records it has, negative for fewer; None for a file with uncounted records."""
    counted: dict[tuple[str, ChangedRecords | int], int | None] = {}
    for change in changes:
        counted[change.file, change if change.counted_at is None else change.counted_at] = change.more
    counts: dict[str, int | None] = {}
    for (file, _), more in counted.items():
        count = counts.get(file, 0)
        counts[file] = None if count is None or more is None else count + more
    return counts


def slice_ms(window: WindowSpec) -> tuple[int, int]:
    """Return width and offset of the slices of event time whose instants all belong to the same windows.

    For sessions: slices within which all records of a key belong to one session.
    """
    if isinstance(window, Session):
        return window.gap_ms, 0
    return window.slice_ms, window.offset_ms


def find_stale_windows(
    spec: WindowSpec, changes: Sequence[ChangedRecords], published: Sequence[tuple[str, TimeWindow]]
) -> list[StaleWindow]:
    """Return the windows whose rows may have changed, or that may gain their first rows, in order.

    Args:
        spec: assigns windows.
        changes: the changed records.
        published: key (as JSON) and window of each published row; needed for sessions and for removed records.
    """
    stale = _StaleWindows()
    added = [change for change in changes if change.is_added]
    removed = [change for change in changes if not change.is_added]
    if isinstance(spec, Session):
        _add_sessions(stale, spec, added, published)
    else:
        for change in added:
            for window in spec.assign(change.first_ms):
                stale.add(window, change)
    reach_ms = spec.gap_ms if isinstance(spec, Session) else 0
    _add_windows_of_removed(stale, removed, published, reach_ms)
    return stale.in_order()


def window_days(spec: WindowSpec, window: TimeWindow) -> range:
    """Return the UTC days, in ms, with rows of a stale window.

    For a session these are all days that it overlaps, since its parts may begin on any of them.
    """
    first_ms = window.start_ms - window.start_ms % DAY_MS
    return range(first_ms, window.end_ms if isinstance(spec, Session) else first_ms + 1, DAY_MS)


class _StaleWindows:
    """Stale windows, keyed by window; sessions are keyed by window and key."""

    def __init__(self) -> None:
        self._by_place: dict[tuple[TimeWindow, str | None], StaleWindow] = {}

    def add(self, window: TimeWindow, change: ChangedRecords, session_key: str | None = None) -> None:
        """Add a window with one of its causes; a session needs its key."""
        stale = self._by_place.setdefault((window, session_key), StaleWindow(window))
        stale.add(change)
        if session_key is not None:
            stale.keys, stale.is_of_any_key = {session_key}, False

    def in_order(self) -> list[StaleWindow]:
        places = sorted(self._by_place, key=lambda place: (place[0], place[1] or ""))
        return [self._by_place[place] for place in places]


def _add_windows_of_removed(
    stale: _StaleWindows,
    removed: Sequence[ChangedRecords],
    published: Sequence[tuple[str, TimeWindow]],
    reach_ms: int,
) -> None:
    """Add published windows that may have contained removed records.

    Only an existing row can lack a record. `reach_ms` extends the stretch of the record: within it, sessions may
    split or merge differently.
    """
    rows = sorted(published, key=lambda row: row[1])
    starts_ms = [window.start_ms for _, window in rows]
    longest_ms = max((window.end_ms - window.start_ms for _, window in rows), default=0)
    for change in removed:
        low = bisect_left(starts_ms, change.first_ms - longest_ms - reach_ms)
        high = bisect_right(starts_ms, change.last_ms + reach_ms)
        for key, window in rows[low:high]:
            is_in_reach = change.first_ms < window.end_ms + reach_ms
            if is_in_reach and (change.is_of_any_key or change.key == key):
                stale.add(window, change)


_Piece = tuple[TimeWindow, ChangedRecords | None]
"""Part of a session: new records, or a published window (None)."""


def _add_sessions(
    stale: _StaleWindows,
    spec: Session,
    added: Sequence[ChangedRecords],
    published: Sequence[tuple[str, TimeWindow]],
) -> None:
    """Add the sessions that new records change.

    A new record joins the sessions of its key that it touches, and may merge them.
    """
    pieces_by_key: dict[str | None, list[_Piece]] = defaultdict(list)
    for change in added:
        pieces_by_key[change.key].append((TimeWindow(change.first_ms, change.last_ms + spec.gap_ms), change))
    for key, window in published:
        if key in pieces_by_key:
            pieces_by_key[key].append((window, None))
    for session_key, pieces in pieces_by_key.items():
        for session in _merge_pieces(pieces):
            _add_session(stale, session_key, session)


def _merge_pieces(pieces: Iterable[_Piece]) -> Iterator[list[_Piece]]:
    """Group the pieces whose windows touch: each group is one session."""
    session: list[_Piece] = []
    end_ms = 0
    for window, change in sorted(pieces, key=lambda piece: piece[0]):
        if session and window.start_ms > end_ms:
            yield session
            session = []
        end_ms = max(end_ms, window.end_ms) if session else window.end_ms
        session.append((window, change))
    if session:
        yield session


def _add_session(stale: _StaleWindows, key: str | None, pieces: Sequence[_Piece]) -> None:
    """Add the session that results from the pieces, and the published sessions that it replaces."""
    session = TimeWindow(pieces[0][0].start_ms, max(window.end_ms for window, _ in pieces))
    replaced = {window for window, change in pieces if change is None}
    for change in (piece_change for _, piece_change in pieces if piece_change):
        for window in {session, *replaced}:
            stale.add(window, change, key)
