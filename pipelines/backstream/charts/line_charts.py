"""Draw line charts as inline SVG: a small trend, and the lost records by watermark delay.

Colors are CSS classes of the page. Every text is escaped. Each chart is one image with a description.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from backstream.charts.svg import Axis, Frame, draw_axes, draw_line, draw_path, draw_svg, join, svg_number
from backstream.eventtime.instants import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS

_TREND = (240, 44)
_ROUND_MS = (
    0,
    *(count * SECOND_MS for count in (1, 10)),
    *(count * MINUTE_MS for count in (1, 5, 15)),
    *(count * HOUR_MS for count in (1, 3, 6, 12)),
    *(count * DAY_MS for count in (1, 3, 7, 30, 365)),
)
_MIN_LABEL_DISTANCE = 46.0  # SVG units


@dataclass(frozen=True, slots=True)
class StepLine:
    """A step function: CSS class, positions, and values; a value holds until the next position."""

    style: str
    at_ms: Sequence[int]
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class ChartMark:
    """A vertical line at a delay."""

    style: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class DelayCurveChart:
    """Shares by delay; the delay axis is logarithmic and starts at zero."""

    label: str
    x_title: str
    y: Axis
    top: float
    most_ms: int
    lines: tuple[StepLine, ...]
    marks: tuple[ChartMark, ...]


def draw_trend(values: Sequence[float], label: str, lowest: float = 0.0) -> Markup:
    """Return shares from 0 to 1 in order of time as a line; the scale starts at `lowest`."""
    width, height = _TREND
    step = width / max(1, len(values) - 1)
    scale = (height - 4) / ((1.0 - lowest) or 1.0)
    points = [(n * step, height - 2 - (max(lowest, value) - lowest) * scale) for n, value in enumerate(values)]
    if len(points) == 1:
        points.append((width, points[0][1]))
    line = "M" + "L".join(f"{svg_number(x)} {svg_number(y)}" for x, y in points)
    area = f"{line}L{width} {height}L0 {height}Z"
    content = draw_path("area", area) + draw_path("stroke", line)
    return draw_svg("trend", _TREND, label, content, is_stretched=True)


def draw_delay_curve(chart: DelayCurveChart, frame: Frame) -> Markup:
    """Return the chart as SVG."""
    scale = frame.height / chart.top
    most = _magnitude(max(chart.most_ms, 1))

    def x_of(at_ms: int) -> float:
        return frame.left + frame.width * min(1.0, _magnitude(at_ms) / most)

    ticks = _with_room([(x_of(at_ms), _delay_text(at_ms)) for at_ms in _ROUND_MS if at_ms <= chart.most_ms])
    x = Axis(chart.x_title, tuple((at - frame.left, label) for at, label in ticks))
    lines = join(
        draw_path(
            line.style,
            _step_path(
                [x_of(at) for at in line.at_ms], [frame.bottom - v * scale for v in line.values], frame.right
            ),
        )
        for line in chart.lines
    )
    places = ((mark.style, x_of(mark.at_ms)) for mark in chart.marks)
    marks = join(draw_line(style, at, frame.top, at, frame.bottom) for style, at in places)
    return draw_axes("curve", chart.label, (x, chart.y), chart.top, frame, lines + marks)


def _step_path(xs: Sequence[float], ys: Sequence[float], right: float) -> str:
    """Return the path of a step function; only the last point per pixel is drawn."""
    path, last = [f"M{svg_number(xs[0])} {svg_number(ys[0])}"], -math.inf
    for x, y in zip(xs, ys, strict=True):
        path.append(f"V{svg_number(y)}" if x - last < 1 and len(path) > 1 else f"H{svg_number(x)}V{svg_number(y)}")
        last = x if x - last >= 1 else last
    return "".join(path) + f"H{svg_number(right)}"


def _magnitude(at_ms: int) -> float:
    """Return the position on the logarithmic axis, `log(1 + minutes)`."""
    return math.log1p(at_ms / MINUTE_MS)


def _with_room(ticks: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """Return the ticks whose labels do not overlap."""
    selected: list[tuple[float, str]] = []
    for x, label in ticks:
        if not selected or x - selected[-1][0] >= _MIN_LABEL_DISTANCE:
            selected.append((x, label))
    return selected


def _delay_text(at_ms: int) -> str:
    for unit_ms, name in ((DAY_MS, "d"), (HOUR_MS, "h"), (MINUTE_MS, "min"), (SECOND_MS, "s")):
        if at_ms >= unit_ms:
            return f"{at_ms // unit_ms} {name}"
    return "0"
