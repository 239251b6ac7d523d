"""Draw timelines as inline SVG: records and watermarks of a window, and deliveries of source partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from backstream.charts.svg import (
    Frame,
    draw_chart,
    draw_dot,
    draw_line,
    draw_path,
    draw_rect,
    draw_svg,
    draw_text,
    join,
    svg_number,
)
from backstream.eventtime.instants import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, instant_text
from backstream.eventtime.watermark_holders import Span
from backstream.text import visible_line

_ROW, _NAME, _DELIVERY, _HOLD = 40.0, 15.0, 9.0, 8.0  # heights in SVG units
_MAX_NAME = 60
_MIN_WIDTH = 1.0
_LEVELS = 5
_NONE = Markup("")
_MARGIN = 0.04
_STEPS_MS = (
    *(count * SECOND_MS for count in (1, 5, 15)),
    *(count * MINUTE_MS for count in (1, 5, 15)),
    *(count * HOUR_MS for count in (1, 3, 6, 12)),
    *(count * DAY_MS for count in (1, 7, 30, 90, 365)),
)
_SPACE = 0.04
_CHARACTER = 7.0  # SVG units
_MAX_SPAN_WITH_CLOCK_MS = 60 * DAY_MS
"""A longer axis has dates with the year, and no time of day."""


@dataclass(frozen=True, slots=True)
class PartitionLine:
    """A source partition with the stretches of time in which it was silent, and in which it held the watermark."""

    name: str
    silences: Sequence[Span]
    holds: Sequence[Span]


@dataclass(frozen=True, slots=True)
class PartitionTimeline:
    """Source partitions, from top to bottom, and the bounds of arrival of the stream in ms."""

    label: str
    first_ms: int
    last_ms: int
    lines: Sequence[PartitionLine]


def draw_partition_timeline(timeline: PartitionTimeline, left: float, width: float) -> Markup:
    """Return the chart as SVG. The name of a partition is above its bars, so it has room on a phone, too.

    Args:
        timeline: the partitions.
        left: the left end of the bars in SVG units.
        width: the width of the bars.
    """
    frame = Frame(left, 0, width, _ROW * len(timeline.lines) + 4)
    scale = _TimeScale(timeline.first_ms, max(timeline.last_ms, timeline.first_ms + 1), frame)
    content = _NONE
    for number, line in enumerate(timeline.lines):
        top = number * _ROW
        name = visible_line(line.name)
        shown = name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}…"
        content += draw_text("tick", left, top + _NAME - 3, shown, "start")
        for span in _deliveries(timeline, line.silences):
            content += _bar(scale, "delivers", span, top + _NAME, _DELIVERY, f"{name} delivers")
        for span in line.holds:
            content += _bar(scale, "holds", span, top + _NAME + _DELIVERY, _HOLD, f"{name} holds the watermark")
    content += scale.draw_axis("arrival (UTC)")
    return draw_svg("partitions", (left + width + 40, frame.bottom + 38), timeline.label, content)


def _deliveries(timeline: PartitionTimeline, silences: Sequence[Span]) -> list[Span]:
    """Return the stretches between silences."""
    found, start_ms = [], timeline.first_ms
    for silent_from_ms, silent_until_ms in silences:
        if silent_from_ms > start_ms or (silent_from_ms == start_ms and start_ms > timeline.first_ms):
            found.append((start_ms, silent_from_ms))
        start_ms = silent_until_ms
    if start_ms < timeline.last_ms or not silences:
        found.append((start_ms, timeline.last_ms))
    return found


def _bar(scale: _TimeScale, style: str, span: Span, top: float, height: float, title: str) -> Markup:
    start, end = (scale.x_of(at_ms) for at_ms in span)
    box = (start, top, max(_MIN_WIDTH, end - start), height)
    return draw_rect(style, box, title)


@dataclass(frozen=True, slots=True)
class Dot:
    """A record: arrival and event time, its fate, and a text that browsers show on hover."""

    arrival_ms: int
    event_ms: int
    fate: str
    title: str


@dataclass(frozen=True, slots=True)
class Mark:
    """An instant on the axis of arrival: CSS class and text."""

    at_ms: int
    style: str
    title: str


@dataclass(frozen=True, slots=True)
class WindowTimeline:
    """A window with its records.

    `watermarks` are pairs of an instant of the source's clock and the watermark from then on. `kept_until_ms` is
    the watermark at which the state of the window is removed.
    """

    label: str
    start_ms: int
    end_ms: int
    kept_until_ms: int
    dots: Sequence[Dot]
    watermarks: Sequence[tuple[int, int]]
    marks: Sequence[Mark]


def draw_window_timeline(timeline: WindowTimeline, frame: Frame) -> Markup:
    """Return the chart as SVG; its axis of arrival has the records and the marks."""
    arrivals = [dot.arrival_ms for dot in timeline.dots] + [mark.at_ms for mark in timeline.marks]
    scale = _TimeScale.from_values(arrivals or [timeline.start_ms, timeline.end_ms], frame)
    events = [timeline.start_ms, timeline.end_ms, timeline.kept_until_ms]
    low_ms, high_ms = min([*events, *(dot.event_ms for dot in timeline.dots)]), max(events)
    space_ms = max(1, int((high_ms - low_ms) * 2 * _MARGIN))
    low_ms, high_ms = low_ms - space_ms, high_ms + space_ms

    def y_of(event_ms: int) -> float:
        inside = min(max(event_ms, low_ms), high_ms)
        return frame.bottom - (inside - low_ms) / (high_ms - low_ms) * frame.height

    levels = {timeline.start_ms: "window start", timeline.end_ms: "window end"}
    if timeline.kept_until_ms > timeline.end_ms:
        levels[timeline.kept_until_ms] = "allowed lateness"
    content = _NONE
    for level_ms, name in levels.items():
        y, style = y_of(level_ms), "hard" if level_ms == timeline.end_ms else "soft"
        content += draw_line(style, frame.left, y, frame.right, y)
        content += draw_text("tick", frame.right - 3, y - 4, name, "end")
        content += draw_text("tick", frame.left - 5, y + 4, _clock_text(level_ms), "end")
    for mark in timeline.marks:
        x = scale.x_of(mark.at_ms)
        content += draw_line(mark.style, x, frame.top, x, frame.bottom, mark.title)
    if timeline.watermarks:
        content += draw_path("watermark-line", _watermark_path(timeline.watermarks, scale, y_of))
    for dot in timeline.dots:
        content += draw_dot(f"fate-{dot.fate}", scale.x_of(dot.arrival_ms), y_of(dot.event_ms), 4, dot.title)
    content += scale.draw_axis("arrival (UTC)")
    return draw_chart("timeline", frame, timeline.label, content)


@dataclass(frozen=True, slots=True)
class BatchTimeline:
    """The batches of a job: pairs of the time when a batch began and its watermark, batches to mark, and gaps."""

    label: str
    watermarks: Sequence[tuple[int, int]]
    marks: Sequence[Dot]
    gaps: Sequence[Span]


def draw_batch_timeline(timeline: BatchTimeline, frame: Frame) -> Markup:
    """Return the chart as SVG: the watermark over the time when the batches began."""
    values_ms = [watermark_ms for _, watermark_ms in timeline.watermarks]
    scale = _TimeScale.from_values([began_ms for began_ms, _ in timeline.watermarks], frame)
    low_ms = min((value_ms for value_ms in values_ms if value_ms), default=0)  # a job begins with 1970
    high_ms = max(*values_ms, low_ms + 1)

    def y_of(watermark_ms: int) -> float:
        inside = max(watermark_ms, low_ms)
        return frame.bottom - (inside - low_ms) / (high_ms - low_ms) * frame.height

    content = _NONE
    for at_ms in _round_instants(low_ms, high_ms, (high_ms - low_ms) / _LEVELS):
        content += draw_line("grid", frame.left, y_of(at_ms), frame.right, y_of(at_ms))
        content += draw_text("tick", frame.left - 5, y_of(at_ms) + 4, _clock_text(at_ms), "end")
    for start_ms, end_ms in timeline.gaps:
        left, right = scale.x_of(start_ms), scale.x_of(end_ms)
        content += draw_rect(
            "void", (left, frame.top, max(_MIN_WIDTH, right - left), frame.height), "lost batches"
        )
    content += draw_path("watermark-line", _watermark_path(timeline.watermarks, scale, y_of))
    for mark in timeline.marks:
        x, y = scale.x_of(mark.arrival_ms), y_of(mark.event_ms)
        content += draw_dot(f"batch-{mark.fate}", x, y, 4, mark.title)
    content += scale.draw_axis("begin of the batch (UTC)")
    return draw_chart("timeline", frame, timeline.label, content)


def _watermark_path(watermarks: Sequence[tuple[int, int]], scale: _TimeScale, y_of: Callable[[int], float]) -> str:
    """Return the steps of the watermark within the axis; steps closer than a unit become one."""
    before = [mark for at_ms, mark in watermarks if at_ms <= scale.first_ms]
    path, last_x, last_y = "", scale.x_of(scale.first_ms), None if not before else y_of(before[-1])
    if last_y is not None:
        path = f"M{svg_number(last_x)} {svg_number(last_y)}"
    for at_ms, mark in watermarks:
        if not scale.first_ms < at_ms <= scale.last_ms:
            continue
        x, y = scale.x_of(at_ms), y_of(mark)
        if last_y is None:
            path = f"M{svg_number(x)} {svg_number(scale.frame.bottom)}"
        elif x - last_x < 1:
            continue
        path += f"H{svg_number(x)}V{svg_number(y)}"
        last_x, last_y = x, y
    if last_y is not None:
        path += f"H{svg_number(scale.frame.right)}"
    return path


@dataclass(frozen=True, slots=True)
class _TimeScale:
    """A horizontal axis of time over a frame."""

    first_ms: int
    last_ms: int
    frame: Frame

    @classmethod
    def from_values(cls, values_ms: Sequence[int], frame: Frame) -> _TimeScale:
        """Return a scale with some space before the first and after the last instant."""
        first_ms, last_ms = min(values_ms), max(values_ms)
        space_ms = max(SECOND_MS, int((last_ms - first_ms) * _SPACE))
        return cls(first_ms - space_ms, last_ms + space_ms, frame)

    def x_of(self, at_ms: int) -> float:
        """Return the position of an instant; one outside is at the end of the axis."""
        inside = min(max(at_ms, self.first_ms), self.last_ms)
        return self.frame.left + (inside - self.first_ms) / (self.last_ms - self.first_ms) * self.frame.width

    def draw_axis(self, title: str) -> Markup:
        """Return the line, its labels, and a title below the frame."""
        frame, is_long = self.frame, self.last_ms - self.first_ms > _MAX_SPAN_WITH_CLOCK_MS
        text = _date_text if is_long else _clock_text
        ticks = join(
            draw_text("tick", self.x_of(at_ms), frame.bottom + 14, text(at_ms)) for at_ms in self._ticks_ms()
        )
        line = draw_line("grid", frame.left, frame.bottom, frame.right, frame.bottom)
        return line + ticks + draw_text("axis", frame.left + frame.width / 2, frame.bottom + 32, title)

    def _ticks_ms(self) -> Iterator[int]:
        """Yield round instants with room for their labels."""
        room_ms = (self.last_ms - self.first_ms) * 17 * _CHARACTER / self.frame.width
        yield from _round_instants(self.first_ms, self.last_ms, room_ms)


def _round_instants(first_ms: int, last_ms: int, room_ms: float) -> range:
    """Return round instants at equal distances of at least `room_ms`."""
    step_ms = next((step for step in _STEPS_MS if step >= room_ms), _STEPS_MS[-1] * 10)
    return range(-(-first_ms // step_ms) * step_ms, last_ms + 1, step_ms)


def _clock_text(at_ms: int) -> str:
    """Return month, day, hour, and minute, and seconds if there are any."""
    text = instant_text(at_ms)
    return text[5:].rstrip("Z").replace("T", " ")


def _date_text(at_ms: int) -> str:
    return instant_text(at_ms)[:10]
