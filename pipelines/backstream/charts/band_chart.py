"""Draw the events of windows with the band of past weeks, as inline SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np
import pandas as pd
from markupsafe import Markup

from backstream.charts.bar_charts import count_scale, time_ticks
from backstream.charts.svg import Axis, Frame, draw_axes, draw_dot, draw_path, join, svg_number
from backstream.eventtime.instants import DAY_MS
from backstream.eventtime.intervals import Interval
from backstream.formatting import at_text, count_of, count_text
from backstream.quality.bands import sum_by_window_start
from backstream.quality.window_rows import Longs, count_windows, list_windows, starts_ms

_FRAME, _LABELS = Frame(56, 6, 1_066, 170), 10
_MAX_WINDOWS = 28 * 24
"""More windows than an hour in four weeks are too many for one chart."""
_STEP = 24
"""The distance of the parts of a range among which the shown part is chosen, in windows."""
_MAX_TITLES = 40


@dataclass(frozen=True, slots=True)
class BandChart:
    """The events of windows with their band; `windows` of all, and those `outside` of their band.

    If the range has too many windows, `shown` is the part of it with the most windows outside.
    """

    chart: Markup
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
    rows = _sum_rows(frame)
    shown = _list_points(_select(rows))
    step_ms = min((after.start_ms - before.start_ms for before, after in pairwise(shown)), default=DAY_MS)
    span = Interval(shown[0].start_ms, shown[-1].start_ms + step_ms)
    banded, outside = rows[rows["has_band"]], rows[rows["is_outside"]]
    return BandChart(_draw(shown, span, step_ms), span, count_windows(banded), count_windows(outside))


def _sum_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the windows over all source partitions, with their band, and whether they are outside of it."""
    rows = sum_by_window_start(frame)
    limits = frame.sort_values("window_start", kind="stable")[
        ["window_start", "has_band", "band_low", "band_high"]
    ]
    # All windows of a row have the same band, so it is that of the row that starts last.
    at = starts_ms(limits).searchsorted(starts_ms(rows), side="right") - 1
    rows = rows.join(limits.iloc[at].drop(columns="window_start").set_index(rows.index))
    is_inside = rows["events"].between(rows["band_low"], rows["band_high"])
    return rows.assign(is_outside=rows["has_band"] & ~is_inside)


def _list_points(rows: pd.DataFrame) -> list[_Point]:
    listed = list_windows(rows)
    values = zip(
        starts_ms(listed),
        *(listed[name] for name in ("events", "has_band", "band_low", "band_high")),
        strict=True,
    )
    return [
        _Point(int(start_ms), int(events), (float(low), float(high)) if has_band else None)
        for start_ms, events, has_band, low, high in values
    ]


def _select(rows: pd.DataFrame) -> pd.DataFrame:
    """Return at most `_MAX_WINDOWS` adjacent windows, those with the most windows outside."""
    ends = rows["windows"].cumsum().to_numpy()
    if ends[-1] <= _MAX_WINDOWS:
        return rows
    first = _find_start(ends, rows["windows"].where(rows["is_outside"], 0).cumsum().to_numpy())
    begin, end = (int(ends.searchsorted(number, side="right")) for number in (first, first + _MAX_WINDOWS - 1))
    part = rows.iloc[begin : end + 1]
    before = first - (int(ends[begin]) - int(part["windows"].iloc[0]))
    return list_windows(part, before + _MAX_WINDOWS).iloc[before:]


def _find_start(ends: Longs, outside: Longs) -> int:
    """Return the number of the first window to show, a multiple of `_STEP`; the latest one of several.

    Args:
        ends: the number of windows up to the end of each row.
        outside: how many of them are outside of their band.
    """

    def count_before(numbers: Longs) -> Longs:
        row = ends.searchsorted(numbers, side="left")
        is_outside = np.diff(outside, prepend=0)[row] > 0
        return outside[row] - np.where(is_outside, ends[row] - numbers, 0)

    last = (int(ends[-1]) - _MAX_WINDOWS) // _STEP * _STEP
    # Between these numbers the count rises or falls evenly, so the largest count is beside one of them.
    bends = np.concatenate([[0, last], ends, ends - _MAX_WINDOWS])
    starts = np.unique(np.concatenate([bends // _STEP, -(-bends // _STEP)]) * _STEP)
    starts = starts[(starts >= 0) & (starts <= last)]
    counts = count_before(starts + _MAX_WINDOWS) - count_before(starts)
    return int(starts[counts == counts.max()].max())


def _draw(points: Sequence[_Point], span: Interval, step_ms: int) -> Markup:
    highest = max(max(point.events, point.band[1] if point.band else 0) for point in points)
    top, ticks = count_scale(max(1, round(highest)))
    per_ms = _FRAME.width / (span.end_ms - span.start_ms)

    def place(point: _Point, value: float) -> tuple[float, float]:
        x = _FRAME.left + (point.start_ms + step_ms / 2 - span.start_ms) * per_ms
        return x, _FRAME.bottom - value * _FRAME.height / top

    def at(point: _Point, value: float) -> str:
        return " ".join(map(svg_number, place(point, value)))

    bands = join(
        draw_path("band", _area([(at(point, low), at(point, high)) for point, low, high in part]))
        for part in _list_parts(points)
    )
    line = draw_path("events", "M" + "L".join(at(point, point.events) for point in points))
    outside = [point for point in points if point.is_outside]
    dots = join(draw_dot("outside", *place(point, point.events), 3.5, _title(point)) for point in outside)
    unit = _FRAME.width / max(1, (span.end_ms - span.start_ms) // step_ms)
    x_ticks = tuple((position * unit, label) for position, label in time_ticks(span, step_ms, _LABELS))
    label = f"Events of windows with the band of past weeks: {count_of(len(outside), 'window')} outside"
    listed = [_title(point) for point in outside[:_MAX_TITLES]]
    axes = (Axis("window start (UTC)", x_ticks), Axis("events", ticks))
    return draw_axes("bands", "; ".join([label, *listed]), axes, top, _FRAME, bands + line + dots)


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
