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

_SVG = Markup('<svg{} class="chart {}" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>')
_STRETCHED = Markup(' preserveAspectRatio="none"')
_RECT = Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"{}')
_TEXT = Markup('<text class="{}" x="{}" y="{}" text-anchor="{}"{}>{}</text>')
_LINE = Markup('<line class="{}" x1="{}" y1="{}" x2="{}" y2="{}"{}')
_DOT = Markup('<circle class="{}" cx="{}" cy="{}" r="{}"{}')
_PATH = Markup('<path class="{}" d="{}"/>')
_TURNED = Markup(' transform="rotate(-90 {} {})"')
_SMALL = 4  # SVG units; a smaller cell has room only for a narrow gap.
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

    @property
    def right(self) -> float:
        """Position of the right end."""
        return self.left + self.width


def heat_map(grid: HeatGrid, frame: Frame) -> Markup:
    """Return the grid as SVG; its cells fill the frame."""
    width, height = frame.width / grid.columns, frame.height / grid.rows
    gap = 1.0 if min(width, height) > _SMALL else 0.4
    cells = join(
        draw_rect(
            cell.level,
            (frame.left + cell.column * width, frame.top + cell.row * height, width - gap, height - gap),
            cell.title,
        )
        for cell in grid.cells
    )
    y_ticks = join(
        draw_text("tick", frame.left - 5, frame.top + at * height + 3.5, label, "end")
        for at, label in grid.y.ticks
    )
    content = cells + _x_ticks(grid.x, frame, width) + y_ticks + _axis_titles(grid.x, grid.y, frame)
    return draw_chart("heat", frame, grid.label, content)


def bar_chart(chart: BarChart, frame: Frame) -> Markup:
    """Return the bars as SVG, with grid lines at the ticks of the y axis."""
    step = frame.width / max(1, len(chart.bars))
    scale = frame.height / chart.top
    bars = join(_bar(bar, frame.left + at * step, step, frame, scale) for at, bar in enumerate(chart.bars))
    heights = ((line.style, frame.bottom - line.at * scale) for line in chart.lines)
    lines = join(draw_line(style, frame.left, y, frame.right, y) for style, y in heights)
    places = ((mark.style, frame.left + mark.at * step) for mark in chart.marks)
    marks = join(draw_line(style, x, frame.top, x, frame.bottom) for style, x in places)
    content = bars + _x_ticks(chart.x, frame, step) + lines + marks + _axis_titles(chart.x, chart.y, frame)
    return draw_chart("bars", frame, chart.label, _grid(chart.y, frame, scale) + content)


def draw_axes(kind: str, label: str, axes: tuple[Axis, Axis], top: float, frame: Frame, content: Markup) -> Markup:
    """Return drawn content with the axes around it; ticks of x are SVG units from the left, those of y values."""
    x, y = axes
    content = _grid(y, frame, frame.height / top) + content + _x_ticks(x, frame, 1.0)
    return draw_chart(kind, frame, label, content + _axis_titles(x, y, frame))


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
            rectangles.append(draw_rect(style, (left, 0, max(1.0, scaled - 1.5), 22), title))
        left += scaled
    return draw_svg("shares", (1_000, 22), label, join(rectangles), is_stretched=True)


def difference_bar(value: float, largest: float) -> Markup:
    """Return a bar that starts in the middle: to the right for an increase, to the left for a decrease."""
    full = 100.0
    width = max(1.5, abs(value) / largest * full) if value and largest else 0.0
    left, style = (full, "more") if value > 0 else (full - width, "less")
    content = draw_rect(style, (left, 1, width, 8)) + draw_line("grid", 100, 0, 100, 10)
    return Markup('<svg class="difference" viewBox="0 0 200 10" aria-hidden="true">{}</svg>').format(content)


def _bar(bar: Bar, left: float, step: float, frame: Frame, scale: float) -> Markup:
    """Return the stacked parts, and an area over the full height that shows the title on hover."""
    gap, base, content = min(1.5, step * 0.2), frame.bottom, _NONE
    for style, value in bar.parts:
        height = min(value * scale, base - frame.top)
        content += draw_rect(style, (left, base - height, step - gap, height)) if height > 0 else _NONE
        base -= height
    return content + draw_rect("hover", (left, frame.top, step, frame.height), bar.title)


def _grid(y: Axis, frame: Frame, scale: float) -> Markup:
    """Return a line across the frame with a label for each tick of the y axis."""
    heights = [(frame.bottom - at * scale, label) for at, label in y.ticks]
    return join(
        draw_line("grid", frame.left, at, frame.right, at)
        + draw_text("tick", frame.left - 5, at + 3.5, label, "end")
        for at, label in heights
    )


def _x_ticks(x: Axis, frame: Frame, unit: float) -> Markup:
    return join(draw_text("tick", frame.left + at * unit, frame.bottom + 13, label) for at, label in x.ticks)


def _axis_titles(x: Axis, y: Axis, frame: Frame) -> Markup:
    middle = frame.top + frame.height / 2
    turned = _TURNED.format(10, svg_number(middle))
    below = draw_text("axis", frame.left + frame.width / 2, frame.bottom + 30, x.title)
    return below + draw_text("axis", 10, middle, y.title, attributes=turned)


def draw_chart(kind: str, frame: Frame, label: str, content: Markup) -> Markup:
    """Return content as SVG, with room for the titles of the axes around a frame."""
    return draw_svg(kind, (frame.right + 8, frame.bottom + 36), label, content)


def draw_svg(
    kind: str, size: tuple[float, float], label: str, content: Markup, *, is_stretched: bool = False
) -> Markup:
    """Return content as SVG with a description for screen readers; a stretched one fills its box."""
    attributes = _STRETCHED if is_stretched else _NONE
    return _SVG.format(attributes, kind, *map(svg_number, size), visible_line(label), content)


def draw_rect(style: str, box: tuple[float, float, float, float], title: str | None = None) -> Markup:
    """Return a rectangle: left, top, width, and height."""
    return _RECT.format(style, *map(svg_number, box), _end("rect", title))


def draw_line(style: str, x1: float, y1: float, x2: float, y2: float, title: str | None = None) -> Markup:
    """Return a line between two points."""
    return _LINE.format(style, *map(svg_number, (x1, y1, x2, y2)), _end("line", title))


def draw_dot(style: str, x: float, y: float, radius: float, title: str) -> Markup:
    """Return a dot with its title."""
    return _DOT.format(style, *map(svg_number, (x, y, radius)), _end("circle", title))


def draw_text(
    style: str, x: float, y: float, text: str, anchor: str = "middle", attributes: Markup = _NONE
) -> Markup:
    """Return a text; `anchor` is the part of it that is at the point: `start`, `middle`, or `end`."""
    return _TEXT.format(style, svg_number(x), svg_number(y), anchor, attributes, visible_line(text))


def draw_path(style: str, steps: str) -> Markup:
    """Return a path by its steps."""
    return _PATH.format(style, steps)


def _end(tag: str, title: str | None) -> Markup:
    if title is None:
        return Markup("/>")
    return Markup("><title>{}</title></{}>").format(visible_line(title), tag)


def join(parts: Iterable[Markup]) -> Markup:
    """Return parts of a chart as one."""
    return _NONE.join(parts)


def svg_number(value: float) -> str:
    """Return at most two decimals, to keep the page small."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
