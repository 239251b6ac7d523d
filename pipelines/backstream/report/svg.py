"""Draw charts as inline SVG: a heat map, stacked bars with limits, and one bar of shares.

Callers pass positions, CSS classes, and texts. Colors are CSS classes of the page, so a chart follows its light
or dark theme. Every text is escaped. Cells and bars have a `<title>`, which browsers show on hover. The chart is
one image with a description for screen readers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from backstream.eventtime.instants import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, instant_text
from backstream.text import visible_text

_LABEL = Markup('<text class="{}" x="{}" y="{}" text-anchor="{}">{}</text>')
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
_TEXT = Markup('<text class="{}" x="{}" y="{}"{}>{}</text>')
_LINE = Markup('<line class="{}" x1="{}" y1="{}" x2="{}" y2="{}"/>')
_NONE = Markup("")


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
            _LABEL.format(
                "tick", svg_number(self.x_of(at_ms)), svg_number(frame.bottom + 14), "middle", text(at_ms)
            )
            for at_ms in self._ticks_ms()
        )
        ends = (frame.left, frame.bottom, frame.left + frame.width, frame.bottom)
        middle, below = svg_number(frame.left + frame.width / 2), svg_number(frame.bottom + 32)
        line = _LINE.format("grid", *map(svg_number, ends))
        return line + ticks + _LABEL.format("axis", middle, below, "middle", title)

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


_SVG = Markup('<svg class="chart {}" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>')
_RECT = Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"{}')
_TITLED = Markup("><title>{}</title></rect>")
_MIDDLE, _END = Markup(' text-anchor="middle"'), Markup(' text-anchor="end"')
_SMALL = 4  # SVG units; a smaller cell has room only for a narrow gap.


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
    return _SVG.format("shares", 1_000, 22, visible_text(label), _join(rectangles)).replace(
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
    return _SVG.format(kind, width, height, visible_text(label), content)


def _rect(style: str, box: tuple[float, float, float, float], title: str | None = None) -> Markup:
    end = Markup("/>") if title is None else _TITLED.format(visible_text(title))
    return _RECT.format(style, *(_number(value) for value in box), end)


def _text(style: str, x: float, y: float, text: str, attributes: Markup = _MIDDLE) -> Markup:
    return _TEXT.format(style, _number(x), _number(y), attributes, visible_text(text))


def _vertical_line(style: str, x: float, frame: Frame) -> Markup:
    return _LINE.format(style, _number(x), _number(frame.top), _number(x), _number(frame.bottom))


def _line(style: str, left: float, y: float, right: float) -> Markup:
    return _LINE.format(style, _number(left), _number(y), _number(right), _number(y))


def _join(parts: Iterable[Markup]) -> Markup:
    return _NONE.join(parts)


def _number(value: float) -> str:
    """Return at most two decimals, to keep the page small."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
