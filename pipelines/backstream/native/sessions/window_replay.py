"""One island of touching events, played unit by unit as the stream met it.

The quick twin of `core.panes` for the sessions of one key: those in flight are kept in order of time, and what a
firing holds is a place in a list instead of a copy.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from backstream.errors import PlanError
from backstream.eventtime.instants import MAX_MS, wrap_int64
from backstream.eventtime.records import Fate, Record
from backstream.eventtime.watermarks import WatermarkEvent, Watermarks
from backstream.eventtime.window_operator import fire_windows
from backstream.eventtime.windows import Session

_ON_TIME = Fate.ON_TIME.value
_FAR_MS = MAX_MS // 2
"""Below it no sum of times and gaps overflows."""


Span = tuple[int, int]
"""First and last event time of a unit: of one record, or of several that nothing can tell apart."""


class SessionFiring(NamedTuple):
    """One firing of a session: the first `size` of `members`, in a list that only ever grows.

    `by` is the late unit that caused it; None: a watermark did.
    """

    start_ms: int
    end_ms: int
    by: int | None
    members: list[int]
    size: int


@dataclass(slots=True)
class ReplayedIsland:
    """An island as the stream met it. Units are numbered in arrival order.

    `fates` ends before the one at which the stream failed, if it did; `refusal` says why.
    """

    fates: list[str] = field(default_factory=list)
    firings: list[SessionFiring] = field(default_factory=list)
    refusal: str | None = None


@dataclass(slots=True)
class _InFlight:
    """Sessions in flight, disjoint, by time: starts, ends, the units of each, and whether it waits to fire."""

    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    members: list[list[int]] = field(default_factory=list)
    is_waiting: list[bool] = field(default_factory=list)

    def due_ms(self, lateness_ms: int) -> int:
        """The least watermark that fires one, or that makes one be forgotten."""
        if not self.ends:
            return MAX_MS
        gone_ms = min(self.ends[0] - 1 + lateness_ms, MAX_MS)
        return min(self.ends[self.is_waiting.index(True)] - 1, gone_ms) if True in self.is_waiting else gone_ms

    def takes(self, event_ms: int, watermark_ms: int, lateness_ms: int) -> bool:
        """Whether an event lies in the latest session, which waits, or reaches just its end; and in no other."""
        if not self.ends or not self.is_waiting[-1]:
            return False
        end_ms = self.ends[-1]
        return (
            self.starts[-1] <= event_ms <= end_ms
            and watermark_ms < end_ms - 1
            and end_ms < _FAR_MS - lateness_ms
            and (len(self.ends) == 1 or self.ends[-2] < event_ms)
        )

    def extend(self, end_ms: int, number: int) -> None:
        """One unit more in the latest session."""
        self.ends[-1] = max(self.ends[-1], end_ms)
        self.members[-1].append(number)

    def touching(self, start_ms: int, end_ms: int) -> slice:
        """The sessions that a window overlaps or touches."""
        return slice(bisect_left(self.ends, start_ms), bisect_right(self.starts, end_ms))

    def put(self, place: slice, start_ms: int, end_ms: int, members: list[int], *, is_waiting: bool) -> None:
        """One session instead of those there."""
        self.starts[place], self.ends[place] = [start_ms], [end_ms]
        self.members[place], self.is_waiting[place] = [members], [is_waiting]

    def forget(self, many: int) -> None:
        """The earliest ones are gone."""
        del self.starts[:many], self.ends[:many], self.members[:many], self.is_waiting[:many]


def replay_island(
    spans_ms: Sequence[Span], in_force_ms: Sequence[int], gap_ms: int, lateness_ms: int
) -> ReplayedIsland:
    """Play one island: its units in arrival order, each with the watermark it met.

    Watermarks between two units change nothing before the next one, and +inf follows the last.
    """
    fold, sessions, due_ms = ReplayedIsland(), _InFlight(), MAX_MS
    for number, ((first_ms, last_ms), watermark_ms) in enumerate(zip(spans_ms, in_force_ms, strict=True)):
        if watermark_ms >= due_ms:
            _advance(fold, sessions, watermark_ms, lateness_ms)
        if sessions.takes(first_ms, watermark_ms, lateness_ms):  # nearly every unit of a large island
            sessions.extend(last_ms + gap_ms, number)
            fold.fates.append(_ON_TIME)
        elif not _met(fold, sessions, (number, first_ms, last_ms + gap_ms), watermark_ms, lateness_ms):
            fold.refusal = _refusal(spans_ms, in_force_ms, gap_ms, lateness_ms, number)
            return fold
        due_ms = sessions.due_ms(lateness_ms)
    _advance(fold, sessions, MAX_MS, lateness_ms)
    return fold


def _met(
    fold: ReplayedIsland, sessions: _InFlight, unit: tuple[int, int, int], watermark_ms: int, lateness_ms: int
) -> bool:
    """A unit (number, start, end) that opens a session, merges some, or is late; False: the stream fails at it."""
    number, start_ms, end_ms = unit
    place = sessions.touching(start_ms, end_ms)
    members: list[int] = []
    if place.start < place.stop:
        start_ms = min(start_ms, sessions.starts[place.start])
        end_ms = max(end_ms, sessions.ends[place.stop - 1])
        if _fails(sessions, place, (start_ms, end_ms), lateness_ms, watermark_ms):
            return False
        members = _united(sessions.members[place])
    elif _cleanup_ms(end_ms, lateness_ms) <= watermark_ms:
        fold.fates.append(Fate.DROPPED.value)
        return True
    members.append(number)
    is_late = end_ms - 1 <= watermark_ms
    sessions.put(place, start_ms, end_ms, members, is_waiting=not is_late)
    fold.fates.append(Fate.LATE.value if is_late else _ON_TIME)
    if is_late:
        fold.firings.append(SessionFiring(start_ms, end_ms, number, members, len(members)))
    return True


def _advance(fold: ReplayedIsland, sessions: _InFlight, watermark_ms: int, lateness_ms: int) -> None:
    """Fire what waits, by window end; then forget what is gone. Sessions in flight are in that order."""
    gone = 0
    for at, end_ms in enumerate(sessions.ends):
        if end_ms - 1 > watermark_ms:
            break
        if sessions.is_waiting[at]:
            members = sessions.members[at]
            fold.firings.append(SessionFiring(sessions.starts[at], end_ms, None, members, len(members)))
            sessions.is_waiting[at] = False
        gone += _cleanup_ms(end_ms, lateness_ms) <= watermark_ms
    sessions.forget(gone)


def _cleanup_ms(end_ms: int, lateness_ms: int) -> int:
    return min(end_ms - 1 + lateness_ms, MAX_MS)


def _united(each: list[list[int]]) -> list[int]:
    """The units of all. The longest list goes on, since firings refer to how far it went."""
    longest = max(each, key=len)
    for members in each:
        if members is not longest:
            longest += members
    return longest


def _fails(sessions: _InFlight, place: slice, union: tuple[int, int], lateness_ms: int, watermark_ms: int) -> bool:
    """Whether the stream fails here: in a merge, a lateness near the limit overflows to before the watermark."""
    before = (sessions.starts[place.start], sessions.ends[place.stop - 1])
    is_merge = place.stop - place.start > 1 or before != union
    return is_merge and wrap_int64(union[1] - 1 + lateness_ms) <= watermark_ms


def _refusal(
    spans_ms: Sequence[Span], in_force_ms: Sequence[int], gap_ms: int, lateness_ms: int, number: int
) -> str:
    """What the reference says of it: where a stream can fail, a unit is one record."""
    records = [Record(0, 0, "", first_ms) for first_ms, _ in spans_ms[: number + 1]]
    try:
        fire_windows(records, to_watermarks(in_force_ms[: number + 1]), Session(gap_ms), lateness_ms)
    except PlanError as error:
        return str(error)
    msg = f"the fold refuses record {number} of a session, the reference takes it"
    raise AssertionError(msg)


def to_watermarks(in_force_ms: Sequence[int]) -> Watermarks:
    """The watermarks that records met, for the reference; +inf follows them."""
    heard, met_ms = Watermarks(), None
    for number, watermark_ms in enumerate(in_force_ms):
        if watermark_ms != met_ms:
            heard.events.append(WatermarkEvent(watermark_ms, number - 1, 0))
            met_ms = watermark_ms
    if met_ms != MAX_MS:
        heard.events.append(WatermarkEvent(MAX_MS, len(in_force_ms) - 1, 0))
    return heard
