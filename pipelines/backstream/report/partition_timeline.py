"""Draw the source partitions of a stream as inline SVG: when each delivered, was silent, and held the watermark.

The chart is one image with a description; texts are escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from backstream.eventtime.watermark_holders import Span
from backstream.report.svg import Frame
from backstream.report.time_axis import TimeScale, svg_number
from backstream.text import visible_text

_SVG = Markup('<svg class="chart partitions" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>')
_BAR = Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"><title>{}</title></rect>')
_TEXT = Markup('<text class="tick" x="{}" y="{}" text-anchor="{}">{}</text>')
_NONE = Markup("")
_ROW, _NAME, _DELIVERY, _HOLD = 40.0, 15.0, 9.0, 8.0  # heights in SVG units
_MAX_NAME = 60
_MIN_WIDTH = 1.0


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
    scale = TimeScale(timeline.first_ms, max(timeline.last_ms, timeline.first_ms + 1), frame)
    content = _NONE
    for number, line in enumerate(timeline.lines):
        top = number * _ROW
        name = visible_text(line.name)
        shown = name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}…"
        content += _TEXT.format(svg_number(left), svg_number(top + _NAME - 3), "start", shown)
        for span in _deliveries(timeline, line.silences):
            content += _bar(scale, "delivers", span, top + _NAME, _DELIVERY, f"{name} delivers")
        for span in line.holds:
            content += _bar(scale, "holds", span, top + _NAME + _DELIVERY, _HOLD, f"{name} holds the watermark")
    content += scale.draw_axis("arrival (UTC)")
    return _SVG.format(
        svg_number(left + width + 40), svg_number(frame.bottom + 38), visible_text(timeline.label), content
    )


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


def _bar(scale: TimeScale, style: str, span: Span, top: float, height: float, title: str) -> Markup:
    start, end = (scale.x_of(at_ms) for at_ms in span)
    box = (start, top, max(_MIN_WIDTH, end - start), height)
    return _BAR.format(style, *map(svg_number, box), title)
