"""Draw line charts as inline SVG: a small trend, and the lost records by watermark delay.

Colors are CSS classes of the page. Every text is escaped. Each chart is one image with a description.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from backstream.charts.svg import Axis, Frame, svg_number
from backstream.eventtime.instants import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS

_SVG = Markup('<svg class="chart {}" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>')
_PATH = Markup('<path class="{}" d="{}"/>')
_TEXT = Markup('<text class="{}" x="{}" y="{}" text-anchor="{}"{}>{}</text>')
_LINE = Markup('<line class="{}" x1="{}" y1="{}" x2="{}" y2="{}"/>')
_NONE = Markup("")
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
    return _SVG.format(
        "trend", width, height, label, _PATH.format("area", area) + _PATH.format("stroke", line)
    ).replace(Markup("<svg "), Markup('<svg preserveAspectRatio="none" '))


def draw_delay_curve(chart: DelayCurveChart, frame: Frame) -> Markup:
    """Return the chart as SVG."""
    scale = frame.height / chart.top
    most = _magnitude(max(chart.most_ms, 1))

    def x_of(at_ms: int) -> float:
        return frame.left + frame.width * min(1.0, _magnitude(at_ms) / most)

    right = frame.left + frame.width
    grid = _NONE.join(
        _line("grid", frame.left, frame.bottom - at * scale, right, frame.bottom - at * scale)
        + _text("tick", frame.left - 5, frame.bottom - at * scale + 3.5, label, "end")
        for at, label in chart.y.ticks
    )
    ticks = _NONE.join(
        _text("tick", x, frame.bottom + 14, label)
        for x, label in _with_room(
            [(x_of(at_ms), _delay_text(at_ms)) for at_ms in _ROUND_MS if at_ms <= chart.most_ms]
        )
    )
    lines = _NONE.join(
        _PATH.format(
            line.style,
            _step_path([x_of(at) for at in line.at_ms], [frame.bottom - v * scale for v in line.values], right),
        )
        for line in chart.lines
    )
    marks = _NONE.join(
        _line(mark.style, x_of(mark.at_ms), frame.top, x_of(mark.at_ms), frame.bottom) for mark in chart.marks
    )
    return _with_axis_titles(chart, frame, grid + ticks + lines + marks)


def _with_axis_titles(chart: DelayCurveChart, frame: Frame, content: Markup) -> Markup:
    middle = frame.top + frame.height / 2
    turn = Markup(' transform="rotate(-90 {} {})"').format(10, svg_number(middle))
    titles = _text("axis", frame.left + frame.width / 2, frame.bottom + 32, chart.x_title)
    titles += _text("axis", 10, middle, chart.y.title, "middle", turn)
    width, height = svg_number(frame.left + frame.width + 8), svg_number(frame.bottom + 38)
    return _SVG.format("curve", width, height, chart.label, content + titles)


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


def _text(style: str, x: float, y: float, text: str, anchor: str = "middle", more: Markup = _NONE) -> Markup:
    return _TEXT.format(style, svg_number(x), svg_number(y), anchor, more, text)


def _line(style: str, x1: float, y1: float, x2: float, y2: float) -> Markup:
    return _LINE.format(style, svg_number(x1), svg_number(y1), svg_number(x2), svg_number(y2))
