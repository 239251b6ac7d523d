"""Draw charts as inline SVG: a heat map, stacked bars with limits, and one bar of shares.

Callers pass positions, CSS classes, and texts. Colors are CSS classes of the page, so a chart follows its light
or dark theme. Every text is escaped. Cells and bars have a `<title>`, which browsers show on hover. The chart is
one image with a description for screen readers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from backstream.text import visible_line

_SVG = Markup('<svg class="chart {}" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>')
_RECT = Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"{}')
_TITLED = Markup("><title>{}</title></rect>")
_MIDDLE, _END = Markup(' text-anchor="middle"'), Markup(' text-anchor="end"')
_SMALL = 4  # SVG units; a smaller cell has room only for a narrow gap.
_TEXT = Markup('<text class="{}" x="{}" y="{}"{}>{}</text>')
_LINE = Markup('<line class="{}" x1="{}" y1="{}" x2="{}" y2="{}"/>')
_NONE = Markup("")


@dataclass(frozen=True, slots=True)
class Axis:
    """Title of an axis, and its ticks: position (in cells, bars, or values) and label."""

    title: str
    ticks: tuple[tuple[float, str], ...]


@dataclass(frozen=True, slots=True)
class HeatCell:
    """One cell of a heat map."""

    column: int
    row: int
    level: str
    title: str


@dataclass(frozen=True, slots=True)
class HeatGrid:
    """A heat map; the first row is on top."""

    label: str
    columns: int
    rows: int
    x: Axis
    y: Axis
    cells: tuple[HeatCell, ...]


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of stacked parts, from the bottom: CSS class and height in units of the y axis."""

    parts: tuple[tuple[str, float], ...]
    title: str


@dataclass(frozen=True, slots=True)
class Line:
    """A line across the chart: position, CSS class, and label for the legend (lines are too close for labels)."""

    at: float
    style: str
    label: str


@dataclass(frozen=True, slots=True)
class BarChart:
    """Stacked bars over one axis; `top` is the highest value of the y axis."""

    label: str
    x: Axis
    y: Axis
    top: float
    bars: tuple[Bar, ...]
    lines: tuple[Line, ...] = ()
    marks: tuple[Line, ...] = ()
    """Vertical lines; `at` counts bars from the left."""


@dataclass(frozen=True, slots=True)
class Frame:
    """The area inside the axes, in SVG units."""

    left: float
    top: float
    width: float
    height: float

    @property
    def bottom(self) -> float:
        """Position of the x axis."""
        return self.top + self.height


def heat_map(grid: HeatGrid, frame: Frame) -> Markup:
    """Return the grid as SVG; its cells fill the frame."""
    width, height = frame.width / grid.columns, frame.height / grid.rows
    gap = 1.0 if min(width, height) > _SMALL else 0.4
    cells = _join(
        _rect(
            cell.level,
            (frame.left + cell.column * width, frame.top + cell.row * height, width - gap, height - gap),
            cell.title,
        )
        for cell in grid.cells
    )
    x_ticks = _join(_text("tick", frame.left + at * width, frame.bottom + 13, label) for at, label in grid.x.ticks)
    y_ticks = _join(
        _text("tick", frame.left - 5, frame.top + at * height + 3.5, label, _END) for at, label in grid.y.ticks
    )
    return _svg("heat", frame, grid.label, cells + x_ticks + y_ticks + _axis_titles(grid.x, grid.y, frame))


def bar_chart(chart: BarChart, frame: Frame) -> Markup:
    """Return the bars as SVG, with grid lines at the ticks of the y axis."""
    step = frame.width / max(1, len(chart.bars))
    scale = frame.height / chart.top
    grid = _grid(chart.y, frame, scale)
    bars = _join(_bar(bar, frame.left + at * step, step, frame, scale) for at, bar in enumerate(chart.bars))
    x_ticks = _join(_text("tick", frame.left + at * step, frame.bottom + 13, label) for at, label in chart.x.ticks)
    right = frame.left + frame.width
    lines = _join(_line(line.style, frame.left, frame.bottom - line.at * scale, right) for line in chart.lines)
    marks = _join(_vertical_line(mark.style, frame.left + mark.at * step, frame) for mark in chart.marks)
    content = grid + bars + x_ticks + lines + marks + _axis_titles(chart.x, chart.y, frame)
    return _svg("bars", frame, chart.label, content)


def draw_axes(label: str, x: Axis, y: Axis, top: float, frame: Frame, content: Markup) -> Markup:
    """Return drawn content with the axes around it; ticks of x are SVG units from the left, those of y values."""
    grid = _grid(y, frame, frame.height / top)
    x_ticks = _join(_text("tick", frame.left + at, frame.bottom + 13, tick) for at, tick in x.ticks)
    return _svg("bands", frame, label, grid + content + x_ticks + _axis_titles(x, y, frame))


def share_bar(parts: Sequence[tuple[str, float, str]], label: str) -> Markup:
    """Return one horizontal bar; a part has a CSS class, a share, and a title.

    A part with a positive share is at least 3 of 1,000 units wide, so it stays visible.
    """
    full, min_width, left = 1_000.0, 3.0, 0.0
    widths = [max(min_width, share * full) if share else 0.0 for _, share, _ in parts]
    rectangles = []
    for (style, _, title), width in zip(parts, widths, strict=True):
        scaled = width * full / (sum(widths) or full)
        if width:
            rectangles.append(_rect(style, (left, 0, max(1.0, scaled - 1.5), 22), title))
        left += scaled
    return _SVG.format("shares", 1_000, 22, visible_line(label), _join(rectangles)).replace(
        Markup("<svg "), Markup('<svg preserveAspectRatio="none" ')
    )


def difference_bar(value: float, largest: float) -> Markup:
    """Return a bar that starts in the middle: to the right for an increase, to the left for a decrease."""
    full = 100.0
    width = max(1.5, abs(value) / largest * full) if value and largest else 0.0
    left, style = (full, "more") if value > 0 else (full - width, "less")
    content = _rect(style, (left, 1, width, 8)) + _LINE.format("grid", 100, 0, 100, 10)
    return Markup('<svg class="difference" viewBox="0 0 200 10" aria-hidden="true">{}</svg>').format(content)


def _bar(bar: Bar, left: float, step: float, frame: Frame, scale: float) -> Markup:
    """Return the stacked parts, and an area over the full height that shows the title on hover."""
    gap, base, content = min(1.5, step * 0.2), frame.bottom, _NONE
    for style, value in bar.parts:
        height = min(value * scale, base - frame.top)
        content += _rect(style, (left, base - height, step - gap, height)) if height > 0 else _NONE
        base -= height
    return content + _rect("hover", (left, frame.top, step, frame.height), bar.title)


def _grid(y: Axis, frame: Frame, scale: float) -> Markup:
    """Return a line across the frame with a label for each tick of the y axis."""
    return _join(
        _line("grid", frame.left, frame.bottom - at * scale, frame.left + frame.width)
        + _text("tick", frame.left - 5, frame.bottom - at * scale + 3.5, label, _END)
        for at, label in y.ticks
    )


def _axis_titles(x: Axis, y: Axis, frame: Frame) -> Markup:
    middle = frame.top + frame.height / 2
    turned = Markup(' text-anchor="middle" transform="rotate(-90 {} {})"').format(10, _number(middle))
    below = _text("axis", frame.left + frame.width / 2, frame.bottom + 30, x.title)
    return below + _text("axis", 10, middle, y.title, turned)


def _svg(kind: str, frame: Frame, label: str, content: Markup) -> Markup:
    width, height = _number(frame.left + frame.width + 8), _number(frame.bottom + 36)
    return _SVG.format(kind, width, height, visible_line(label), content)


def _rect(style: str, box: tuple[float, float, float, float], title: str | None = None) -> Markup:
    end = Markup("/>") if title is None else _TITLED.format(visible_line(title))
    return _RECT.format(style, *(_number(value) for value in box), end)


def _text(style: str, x: float, y: float, text: str, attributes: Markup = _MIDDLE) -> Markup:
    return _TEXT.format(style, _number(x), _number(y), attributes, visible_line(text))


def _vertical_line(style: str, x: float, frame: Frame) -> Markup:
    return _LINE.format(style, _number(x), _number(frame.top), _number(x), _number(frame.bottom))


def _line(style: str, left: float, y: float, right: float) -> Markup:
    return _LINE.format(style, _number(left), _number(y), _number(right), _number(y))


def _join(parts: Iterable[Markup]) -> Markup:
    return _NONE.join(parts)


def _number(value: float) -> str:
    """Return at most two decimals, to keep the page small."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def svg_number(value: float) -> str:
    """Return at most one decimal, which is enough for lines, dots, and texts."""
    return f"{value:.1f}".removesuffix(".0")
