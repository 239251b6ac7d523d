"""Draw an axis of time as inline SVG, with round instants that have room for their labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from backstream.eventtime.instants import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, instant_text
from backstream.report.svg import Frame

_LINE = Markup('<line class="{}" x1="{}" y1="{}" x2="{}" y2="{}"/>')
_TEXT = Markup('<text class="{}" x="{}" y="{}" text-anchor="{}">{}</text>')
_NONE = Markup("")
_STEPS_MS = (
    *(count * SECOND_MS for count in (1, 5, 15)),
    *(count * MINUTE_MS for count in (1, 5, 15)),
    *(count * HOUR_MS for count in (1, 3, 6, 12)),
    *(count * DAY_MS for count in (1, 7, 30, 90, 365)),
)
_MARGIN = 0.04
_CHARACTER = 7.0  # SVG units
_MAX_SPAN_WITH_CLOCK_MS = 60 * DAY_MS
"""A longer axis has dates with the year, and no time of day."""


@dataclass(frozen=True, slots=True)
class TimeScale:
    """A horizontal axis of time over a frame."""

    first_ms: int
    last_ms: int
    frame: Frame

    @classmethod
    def from_values(cls, values_ms: Sequence[int], frame: Frame) -> TimeScale:
        """Return a scale with some space before the first and after the last instant."""
        first_ms, last_ms = min(values_ms), max(values_ms)
        space_ms = max(SECOND_MS, int((last_ms - first_ms) * _MARGIN))
        return cls(first_ms - space_ms, last_ms + space_ms, frame)

    def x_of(self, at_ms: int) -> float:
        """Return the position of an instant; one outside is at the end of the axis."""
        inside = min(max(at_ms, self.first_ms), self.last_ms)
        return self.frame.left + (inside - self.first_ms) / (self.last_ms - self.first_ms) * self.frame.width

    def draw_axis(self, title: str) -> Markup:
        """Return the line, its labels, and a title below the frame."""
        frame, is_long = self.frame, self.last_ms - self.first_ms > _MAX_SPAN_WITH_CLOCK_MS
        text = _date_text if is_long else clock_text
        ticks = _NONE.join(
            _TEXT.format(
                "tick", svg_number(self.x_of(at_ms)), svg_number(frame.bottom + 14), "middle", text(at_ms)
            )
            for at_ms in self._ticks_ms()
        )
        ends = (frame.left, frame.bottom, frame.left + frame.width, frame.bottom)
        middle, below = svg_number(frame.left + frame.width / 2), svg_number(frame.bottom + 32)
        line = _LINE.format("grid", *map(svg_number, ends))
        return line + ticks + _TEXT.format("axis", middle, below, "middle", title)

    def _ticks_ms(self) -> Iterator[int]:
        """Yield round instants with room for their labels."""
        room_ms = (self.last_ms - self.first_ms) * 17 * _CHARACTER / self.frame.width
        step_ms = next((step for step in _STEPS_MS if step >= room_ms), _STEPS_MS[-1] * 10)
        yield from range(-(-self.first_ms // step_ms) * step_ms, self.last_ms + 1, step_ms)


def clock_text(at_ms: int) -> str:
    """Return month, day, hour, and minute, and seconds if there are any."""
    text = instant_text(at_ms)
    return text[5:].rstrip("Z").replace("T", " ")


def _date_text(at_ms: int) -> str:
    return instant_text(at_ms)[:10]


def svg_number(value: float) -> str:
    """Return a position in SVG units."""
    return f"{value:.1f}".removesuffix(".0")
