"""Assign events to windows, by Flink's formulas; the geometry of fixed windows has its only home here.

    tumbling   |----|----|----|       slices of one size
    sliding    |----|                 slices of the greatest common divisor of size and slide
                 |----|
    cumulate   |-|                    slices of one step; the windows of one start end one step apart
               |---|
               |-----|

All instants of a slice are in the same windows. So a record is classified once per slice, and not once per window.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from backstream.errors import SpecError
from backstream.eventtime.instants import HOUR_MS, MIN_MS, instant_text, wrap_int64
from backstream.eventtime.intervals import Interval
from backstream.eventtime.time_zones import TimeZone


class TimeWindow(NamedTuple):
    """The interval `[start_ms, end_ms)` in event time."""

    start_ms: int
    end_ms: int


def window_start_ms(event_time_ms: int, offset_ms: int, size_ms: int) -> int:
    """Return `t - floorMod(t - offset, size)` in Java arithmetic (`TimeWindow.getWindowStartWithOffset`)."""
    return wrap_int64(event_time_ms - wrap_int64(event_time_ms - offset_ms) % size_ms)


def _require_positive(value_ms: int, name: str) -> None:
    if value_ms <= 0:
        msg = f"window {name} must be positive, got {value_ms} ms"
        raise SpecError(msg)


def _require_offset(offset_ms: int, limit_ms: int, limit_name: str) -> None:
    if abs(offset_ms) >= limit_ms:
        msg = f"window offset must be smaller than its {limit_name} of {limit_ms} ms, got {offset_ms} ms"
        raise SpecError(msg)


def _require_timestamp(event_time_ms: int) -> None:
    if event_time_ms == MIN_MS:
        msg = f"event time {MIN_MS} ms means `no timestamp`, so no window can be assigned"
        raise SpecError(msg)


class _InTimeZone:
    """The time of windows: UTC, or local time with a `zone`. All other times of windows are then local, too."""

    __slots__ = ()
    zone: TimeZone | None

    def local_ms(self, instant_ms: int) -> int:
        """Return the time of an instant by which windows are assigned."""
        return self.zone.local_ms(instant_ms) if self.zone else instant_ms

    def trigger_ms(self, end_ms: int) -> int:
        """Return the watermark that fires a window with this end."""
        last_ms = wrap_int64(end_ms - 1)
        return self.zone.trigger_ms(last_ms) if self.zone else last_ms


class _FixedWindow(_InTimeZone):
    """The geometry that most windows of a fixed size share; a window with another one says so."""

    __slots__ = ()
    size_ms: int
    offset_ms: int

    @property
    def slice_ms(self) -> int:
        """The largest width of slices in which no window begins or ends."""
        return self.size_ms

    @property
    def start_step_ms(self) -> int:
        """The distance between two starts."""
        return self.size_ms

    @property
    def end_step_ms(self) -> int:
        """The distance between two ends."""
        return self.start_step_ms

    @property
    def first_size_ms(self) -> int:
        """The size of the shortest window of a start."""
        return self.size_ms

    @property
    def windows_per_start(self) -> int:
        """The number of windows with the same start."""
        return 1

    def start_of(self, end_ms: int) -> int:
        """Return the start of the window with an end."""
        return end_ms - self.size_ms

    @property
    def has_gaps(self) -> bool:
        """True if some instants are in no window."""
        return False

    @property
    def has_overlaps(self) -> bool:
        """True if an instant may be in several windows."""
        return True


@dataclass(frozen=True, slots=True)
class Tumbling(_FixedWindow):
    """Windows of one size without gaps or overlaps."""

    size_ms: int
    offset_ms: int = 0
    zone: TimeZone | None = None

    def __post_init__(self) -> None:
        _require_positive(self.size_ms, "size")
        _require_offset(self.offset_ms, self.size_ms, "size")

    def assign(self, event_time_ms: int) -> list[TimeWindow]:
        """Return the one window that contains the event time."""
        _require_timestamp(event_time_ms)
        start_ms = window_start_ms(event_time_ms, self.offset_ms, self.size_ms)
        return [TimeWindow(start_ms, wrap_int64(start_ms + self.size_ms))]

    @property
    def has_overlaps(self) -> bool:
        """False: each instant is in one window."""
        return False


@dataclass(frozen=True, slots=True)
class Sliding(_FixedWindow):
    """Windows of one size that start every `slide_ms`; if slide > size, some instants are in no window."""

    size_ms: int
    slide_ms: int
    offset_ms: int = 0
    zone: TimeZone | None = None

    def __post_init__(self) -> None:
        _require_positive(self.size_ms, "size")
        _require_positive(self.slide_ms, "slide")
        _require_offset(self.offset_ms, self.slide_ms, "slide")

    def assign(self, event_time_ms: int) -> list[TimeWindow]:
        """Return all windows that contain the event time, latest first: the order in which Flink visits them."""
        _require_timestamp(event_time_ms)
        last_ms = window_start_ms(event_time_ms, self.offset_ms, self.slide_ms)
        if last_ms <= wrap_int64(event_time_ms - self.size_ms):
            return []
        elapsed_ms = wrap_int64(event_time_ms - last_ms)
        starts_ms = (last_ms - distance_ms for distance_ms in range(0, self.size_ms - elapsed_ms, self.slide_ms))
        return [TimeWindow(wrap_int64(start_ms), wrap_int64(start_ms + self.size_ms)) for start_ms in starts_ms]

    @property
    def slice_ms(self) -> int:
        """The largest width of slices in which no window begins or ends."""
        return math.gcd(self.size_ms, self.slide_ms)

    @property
    def start_step_ms(self) -> int:
        """The distance between two starts."""
        return self.slide_ms

    @property
    def has_gaps(self) -> bool:
        """True if some instants are in no window."""
        return self.slide_ms > self.size_ms


@dataclass(frozen=True, slots=True)
class Cumulate(_FixedWindow):
    """Windows with a common start that grow by `step_ms` up to `size_ms`."""

    size_ms: int
    step_ms: int
    offset_ms: int = 0
    zone: TimeZone | None = None

    def __post_init__(self) -> None:
        _require_positive(self.size_ms, "size")
        _require_positive(self.step_ms, "step")
        if self.size_ms % self.step_ms:
            msg = f"window size must be a multiple of its step of {self.step_ms} ms, got {self.size_ms} ms"
            raise SpecError(msg)

    def assign(self, event_time_ms: int) -> list[TimeWindow]:
        """Return all windows that contain the event time, shortest first."""
        _require_timestamp(event_time_ms)
        start_ms = window_start_ms(event_time_ms, self.offset_ms, self.size_ms)
        first = wrap_int64(event_time_ms - start_ms) // self.step_ms + 1
        steps = range(first, self.size_ms // self.step_ms + 1)
        return [TimeWindow(start_ms, wrap_int64(start_ms + step * self.step_ms)) for step in steps]

    @property
    def slice_ms(self) -> int:
        """The largest width of slices in which no window begins or ends."""
        return self.step_ms

    @property
    def end_step_ms(self) -> int:
        """The distance between two ends."""
        return self.step_ms

    @property
    def first_size_ms(self) -> int:
        """The size of the shortest window of a start."""
        return self.step_ms

    @property
    def windows_per_start(self) -> int:
        """The number of windows with the same start."""
        return self.size_ms // self.step_ms

    def start_of(self, end_ms: int) -> int:
        """Return the start of the window with an end."""
        return end_ms - 1 - (end_ms - 1 - self.offset_ms) % self.size_ms


@dataclass(frozen=True, slots=True)
class Session(_InTimeZone):
    """Windows that end after a gap without events; windows of one key merge when they touch.

    The sessions of a job of Structured Streaming have `emitted_until_ms`: it has emitted those that end until
    then, and others are open. Its instants are microseconds, and a record is late by its own time, even if it
    touches an open session. Flink's instants are milliseconds, and all sessions end.
    """

    gap_ms: int
    zone: TimeZone | None = None
    emitted_until_ms: int | None = None

    @property
    def per_ms(self) -> int:
        """The number of instants in a millisecond."""
        return 1 if self.emitted_until_ms is None else 1_000

    @property
    def gap(self) -> int:
        """The gap in instants."""
        return self.gap_ms * self.per_ms

    @property
    def emitted_until(self) -> int | None:
        """The end of the last session that a job can have emitted, in instants; None for Flink."""
        return None if self.emitted_until_ms is None else self.emitted_until_ms * self.per_ms

    def __post_init__(self) -> None:
        _require_positive(self.gap_ms, "gap")

    def assign(self, event_time_ms: int) -> list[TimeWindow]:
        """Return the session of the record alone, before merging; for a job, all times are in microseconds."""
        return [TimeWindow(event_time_ms, wrap_int64(event_time_ms + self.gap))]


def describe_window(spec: WindowSpec, window: TimeWindow) -> str:
    """Return the times of a window as text; in local time also the instants at which it begins and ends."""
    times, zone = Interval(*window), spec.zone
    if zone is None:
        return str(times)
    first, last = (instant_text(at_ms).removesuffix("Z") for at_ms in window)
    instants = Interval(zone.instant_ms(window.start_ms), zone.end_ms(window.end_ms))
    return f"{first} to {last} in {zone.name}, {instants}"


_NEAR_MS = 3 * HOUR_MS
"""The time around a change of clocks in which windows may fire out of order."""


def find_disorder(window: WindowSpec, instants: Interval) -> int | None:
    """Return the first change of clocks around which a window of a record fires before one that ends earlier.

    Records of tumbling windows have one window only, so that its order among others has no effect.
    """
    zone = window.zone
    if zone is None or isinstance(window, Tumbling):
        return None
    for at_ms in zone.list_disorders(instants):
        if isinstance(window, Session):
            return at_ms
        step_ms, near_ms = window.end_step_ms, zone.local_ms(at_ms) - _NEAR_MS
        first_ms = near_ms + (window.offset_ms + window.first_size_ms - near_ms) % step_ms
        triggers_ms = map(window.trigger_ms, range(first_ms, near_ms + 2 * _NEAR_MS, step_ms))
        if any(after_ms < before_ms for before_ms, after_ms in pairwise(triggers_ms)):
            return at_ms
    return None


FixedWindow = Tumbling | Sliding | Cumulate
"""A window that depends only on the event time; a session depends on other events."""
WindowSpec = FixedWindow | Session
