"""Draw the events of windows with the band of past weeks, as inline SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

import pandas as pd
from markupsafe import Markup

from backstream.eventtime.instants import DAY_MS
from backstream.eventtime.intervals import Interval
from backstream.report.bar_charts import count_scale, time_ticks
from backstream.report.formatting import at_text, count_of, count_text
from backstream.report.svg import Axis, Frame, draw_axes

_WIDE, _NARROW = Frame(56, 6, 1_066, 170), Frame(56, 6, 290, 150)
_WIDE_LABELS, _NARROW_LABELS = 10, 3
_MAX_WINDOWS = 28 * 24
"""More windows than an hour in four weeks are too many for one chart."""
_MAX_TITLES = 40
_PATH = Markup('<path class="{}" d="{}"/>')
_DOT = Markup('<circle class="outside" cx="{}" cy="{}" r="3.5"><title>{}</title></circle>')


@dataclass(frozen=True, slots=True)
class BandChart:
    """The events of windows with their band, in two widths; `windows` of all, and those `outside` of their band.

    If the range has too many windows, `shown` is the part of it with the most windows outside.
    """

    wide: Markup
    narrow: Markup
    shown: Interval
    windows: int
    outside: int


@dataclass(frozen=True, slots=True)
class _Point:
    """A window: its events, and the limits of its band; None without a band."""

    start_ms: int
    events: int
    band: tuple[float, float] | None

    @property
    def is_outside(self) -> bool:
        """Return whether the window has more or fewer events than usual."""
        return self.band is not None and not self.band[0] <= self.events <= self.band[1]


def draw_band(frame: pd.DataFrame | None) -> BandChart | None:
    """Return the chart of the windows of an audit frame; None if no window has a band.

    Args:
        frame: an audit frame; also of several runs, if each window is from one of them.
    """
    if frame is None or "has_band" not in frame.columns or not frame["has_band"].any():
        return None
    points = _list_points(frame)
    shown = _select(points)
    step_ms = min((after.start_ms - before.start_ms for before, after in pairwise(shown)), default=DAY_MS)
    span = Interval(shown[0].start_ms, shown[-1].start_ms + step_ms)
    wide, narrow = (
        _draw(shown, span, step_ms, place, labels)
        for place, labels in ((_WIDE, _WIDE_LABELS), (_NARROW, _NARROW_LABELS))
    )
    banded = [point for point in points if point.band]
    return BandChart(wide, narrow, span, len(banded), sum(point.is_outside for point in banded))


def _list_points(frame: pd.DataFrame) -> list[_Point]:
    limits = dict.fromkeys(("has_band", "band_low", "band_high"), "first")
    rows = frame.groupby("window_start", as_index=False).agg({"events": "sum"} | limits)
    starts_ms = rows["window_start"].dt.as_unit("ms").astype("int64")
    values = zip(starts_ms, rows["events"], rows["has_band"], rows["band_low"], rows["band_high"], strict=True)
    return [
        _Point(int(start_ms), int(events), (float(low), float(high)) if has_band else None)
        for start_ms, events, has_band, low, high in values
    ]


def _select(points: Sequence[_Point]) -> Sequence[_Point]:
    """Return at most `_MAX_WINDOWS` adjacent windows, those with the most windows outside."""
    if len(points) <= _MAX_WINDOWS:
        return points
    starts = range(0, len(points) - _MAX_WINDOWS + 1, 24)
    counts = {start: sum(point.is_outside for point in points[start : start + _MAX_WINDOWS]) for start in starts}
    best = max(counts, key=lambda start: (counts[start], start))
    return points[best : best + _MAX_WINDOWS]


def _draw(points: Sequence[_Point], span: Interval, step_ms: int, place: Frame, labels: int) -> Markup:
    highest = max(max(point.events, point.band[1] if point.band else 0) for point in points)
    top, ticks = count_scale(max(1, round(highest)))
    per_ms = place.width / (span.end_ms - span.start_ms)

    def at(point: _Point, value: float) -> str:
        x = place.left + (point.start_ms + step_ms / 2 - span.start_ms) * per_ms
        return f"{x:.1f} {place.bottom - value * place.height / top:.1f}"

    bands = Markup("").join(
        _PATH.format("band", _area([(at(point, low), at(point, high)) for point, low, high in part]))
        for part in _list_parts(points)
    )
    line = _PATH.format("events", "M" + "L".join(at(point, point.events) for point in points))
    outside = [point for point in points if point.is_outside]
    dots = Markup("").join(_DOT.format(*at(point, point.events).split(), _title(point)) for point in outside)
    unit = place.width / max(1, (span.end_ms - span.start_ms) // step_ms)
    x_ticks = tuple((position * unit, label) for position, label in time_ticks(span, step_ms, labels))
    label = f"Events of windows with the band of past weeks: {count_of(len(outside), 'window')} outside"
    listed = [_title(point) for point in outside[:_MAX_TITLES]]
    x, y = Axis("window start (UTC)", x_ticks), Axis("events", ticks)
    return draw_axes("; ".join([label, *listed]), x, y, top, place, bands + line + dots)


def _list_parts(points: Sequence[_Point]) -> list[list[tuple[_Point, float, float]]]:
    """Return the adjacent windows that have a band, with its limits."""
    return [
        [(point, *point.band) for point in part if point.band]
        for has_band, part in groupby(points, key=lambda point: point.band is not None)
        if has_band
    ]


def _area(edges: Sequence[tuple[str, str]]) -> str:
    return "M" + "L".join([*(high for _, high in edges), *(low for low, _ in reversed(edges))]) + "Z"


def _title(point: _Point) -> str:
    low, high = point.band or (0.0, 0.0)
    usual = f"usual are {count_text(round(low))} to {count_text(round(high))}"
    return f"{at_text(point.start_ms)}: {count_of(point.events, 'event')}, {usual}"
