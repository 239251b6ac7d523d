"""Replay one group of touching events, unit by unit in arrival order, to find the sessions that fired.

This is the fast version of `eventtime.window_operator` for the sessions of one key. Active sessions are sorted by
time, and a firing stores a position in a list instead of a copy.
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
_MAX_END_MS = MAX_MS // 2
"""Below this time, no sum of times and gaps overflows."""

Span = tuple[int, int]
"""The first and last event time of a unit, which has one record or several that are processed alike."""


class SessionFiring(NamedTuple):
    """One firing of a session: the first `size` of `members`, a list that only grows.

    `by` is the late unit that caused the firing; None: the watermark.
    """

    start_ms: int
    end_ms: int
    by: int | None
    members: list[int]
    size: int


@dataclass(slots=True)
class ReplayedIsland:
    """The result of a replay. Units are numbered in arrival order.

    If the stream failed at a unit, `fates` ends before it, and `refusal` is the reason. `open` has the units of
    the sessions, by start and end, that a job of Structured Streaming had not emitted yet.
    """

    fates: list[str] = field(default_factory=list)
    firings: list[SessionFiring] = field(default_factory=list)
    open: dict[Span, list[int]] = field(default_factory=dict)
    refusal: str | None = None


@dataclass(slots=True)
class _ActiveSessions:
    """Active sessions, disjoint and sorted by time: starts, ends, units, and whether each waits to fire."""

    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    members: list[list[int]] = field(default_factory=list)
    is_waiting: list[bool] = field(default_factory=list)

    def due_ms(self, lateness_ms: int) -> int:
        """Return the least watermark that fires or removes a session."""
        if not self.ends:
            return MAX_MS
        cleanup_ms = min(self.ends[0] - 1 + lateness_ms, MAX_MS)
        if True not in self.is_waiting:
            return cleanup_ms
        return min(self.ends[self.is_waiting.index(True)] - 1, cleanup_ms)

    def extends_latest(self, event_ms: int, watermark_ms: int, lateness_ms: int) -> bool:
        """Return whether an event is in or at the end of the latest session only, which has not fired yet."""
        if not self.ends or not self.is_waiting[-1]:
            return False
        end_ms = self.ends[-1]
        return (
            self.starts[-1] <= event_ms <= end_ms
            and watermark_ms < end_ms - 1
            and end_ms < _MAX_END_MS - lateness_ms
            and (len(self.ends) == 1 or self.ends[-2] < event_ms)
        )

    def extend_latest(self, end_ms: int, number: int) -> None:
        """Add a unit to the latest session."""
        self.ends[-1] = max(self.ends[-1], end_ms)
        self.members[-1].append(number)

    def find_touching(self, start_ms: int, end_ms: int) -> slice:
        """Return the sessions that a window overlaps or touches."""
        return slice(bisect_left(self.ends, start_ms), bisect_right(self.starts, end_ms))

    def replace(self, place: slice, start_ms: int, end_ms: int, members: list[int], *, is_waiting: bool) -> None:
        """Replace some sessions with one."""
        self.starts[place], self.ends[place] = [start_ms], [end_ms]
        self.members[place], self.is_waiting[place] = [members], [is_waiting]

    def remove_earliest(self, count: int) -> None:
        """Remove the earliest sessions."""
        del self.starts[:count], self.ends[:count], self.members[:count], self.is_waiting[:count]


def replay_island(
    spans_ms: Sequence[Span],
    in_force_ms: Sequence[int],
    gap_ms: int,
    lateness_ms: int,
    emitted_until: int | None = None,
) -> ReplayedIsland:
    """Replay one group of touching events: its units in arrival order, each with the watermark at its arrival.

    Watermarks between two units have no effect before the next unit. The watermark +inf follows the last unit.
    With `emitted_until`, all values are in microseconds, and the rules are those of a job; see `Session`.
    """
    replay, sessions, due_ms = ReplayedIsland(), _ActiveSessions(), MAX_MS
    is_judged_alone = emitted_until is not None
    for number, ((first_ms, last_ms), watermark_ms) in enumerate(zip(spans_ms, in_force_ms, strict=True)):
        if is_judged_alone and first_ms + gap_ms - 1 <= watermark_ms:
            replay.fates.append(Fate.DROPPED.value)
            continue
        if watermark_ms >= due_ms:
            _advance(replay, sessions, watermark_ms, lateness_ms)
        # The fast path for almost all units of a large group.
        if sessions.extends_latest(first_ms, watermark_ms, lateness_ms):
            sessions.extend_latest(last_ms + gap_ms, number)
            replay.fates.append(_ON_TIME)
        elif not _add_unit(replay, sessions, (number, first_ms, last_ms + gap_ms), watermark_ms, lateness_ms):
            replay.refusal = _refusal(spans_ms, in_force_ms, gap_ms, lateness_ms, number)
            return replay
        due_ms = sessions.due_ms(lateness_ms)
    _advance(replay, sessions, MAX_MS if emitted_until is None else emitted_until - 1, lateness_ms)
    if is_judged_alone:
        replay.open = dict(zip(zip(sessions.starts, sessions.ends, strict=True), sessions.members, strict=True))
    return replay


def _add_unit(
    replay: ReplayedIsland,
    sessions: _ActiveSessions,
    unit: tuple[int, int, int],
    watermark_ms: int,
    lateness_ms: int,
) -> bool:
    """Add a unit (number, start, end), which may open or merge sessions; return False if the stream fails."""
    number, start_ms, end_ms = unit
    touching = sessions.find_touching(start_ms, end_ms)
    members: list[int] = []
    if touching.start < touching.stop:
        start_ms = min(start_ms, sessions.starts[touching.start])
        end_ms = max(end_ms, sessions.ends[touching.stop - 1])
        if _overflows(sessions, touching, (start_ms, end_ms), lateness_ms, watermark_ms):
            return False
        members = _merge_members(sessions.members[touching])
    elif _cleanup_ms(end_ms, lateness_ms) <= watermark_ms:
        replay.fates.append(Fate.DROPPED.value)
        return True
    members.append(number)
    is_late = end_ms - 1 <= watermark_ms
    sessions.replace(touching, start_ms, end_ms, members, is_waiting=not is_late)
    replay.fates.append(Fate.LATE.value if is_late else _ON_TIME)
    if is_late:
        replay.firings.append(SessionFiring(start_ms, end_ms, number, members, len(members)))
    return True


def _advance(replay: ReplayedIsland, sessions: _ActiveSessions, watermark_ms: int, lateness_ms: int) -> None:
    """Fire waiting sessions in the order of their ends, then remove expired ones; sessions are in this order."""
    expired = 0
    for position, end_ms in enumerate(sessions.ends):
        if end_ms - 1 > watermark_ms:
            break
        if sessions.is_waiting[position]:
            members = sessions.members[position]
            replay.firings.append(SessionFiring(sessions.starts[position], end_ms, None, members, len(members)))
            sessions.is_waiting[position] = False
        expired += _cleanup_ms(end_ms, lateness_ms) <= watermark_ms
    sessions.remove_earliest(expired)


def _cleanup_ms(end_ms: int, lateness_ms: int) -> int:
    return min(end_ms - 1 + lateness_ms, MAX_MS)


def _merge_members(member_lists: list[list[int]]) -> list[int]:
    """Return all units in the longest list, which is extended, because firings refer to it."""
    longest = max(member_lists, key=len)
    for members in member_lists:
        if members is not longest:
            longest += members
    return longest


def _overflows(
    sessions: _ActiveSessions, touching: slice, union: tuple[int, int], lateness_ms: int, watermark_ms: int
) -> bool:
    """Return whether the stream fails: in a merge, end plus lateness overflows to a time before the watermark."""
    before = (sessions.starts[touching.start], sessions.ends[touching.stop - 1])
    is_merge = touching.stop - touching.start > 1 or before != union
    return is_merge and wrap_int64(union[1] - 1 + lateness_ms) <= watermark_ms


def _refusal(
    spans_ms: Sequence[Span], in_force_ms: Sequence[int], gap_ms: int, lateness_ms: int, number: int
) -> str:
    """Return the error of the reference; a unit has one record wherever a stream can fail."""
    records = [Record(0, 0, "", first_ms) for first_ms, _ in spans_ms[: number + 1]]
    try:
        fire_windows(records, to_watermarks(in_force_ms[: number + 1]), Session(gap_ms), lateness_ms)
    except PlanError as error:
        return str(error)
    msg = f"the replay refuses record {number} of a session, but the reference accepts it"
    raise AssertionError(msg)


def to_watermarks(in_force_ms: Sequence[int]) -> Watermarks:
    """Return the watermarks at the arrival of records, for the reference, with +inf at the end."""
    watermarks, current_ms = Watermarks(), None
    for number, watermark_ms in enumerate(in_force_ms):
        if watermark_ms != current_ms:
            watermarks.events.append(WatermarkEvent(watermark_ms, number - 1, 0))
            current_ms = watermark_ms
    if current_ms != MAX_MS:
        watermarks.events.append(WatermarkEvent(MAX_MS, len(in_force_ms) - 1, 0))
    return watermarks
