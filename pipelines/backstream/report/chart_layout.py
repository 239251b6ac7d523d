"""Lay out the charts of a run report. Each chart has a wide version and a narrow one for phones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd
from markupsafe import Markup

from backstream.charts import bar_charts, completeness_map, svg
from backstream.charts.band_chart import BandChart, draw_band
from backstream.definition.model import Definition
from backstream.formatting import count_of
from backstream.report import delay_histogram, figures
from backstream.report.run_context import RunContext, largest_changes
from backstream.runs.plan import Mode, Plan
from backstream.text import share_text

_DAY_GRID = svg.Frame(left=46, top=6, width=348, height=216)
_WIDE_HEIGHT, _NARROW_HEIGHT = 230, 200
_WIDE_WIDTH, _NARROW_WIDTH = 1_080, 292
_WIDE_ROOM, _NARROW_ROOM = 112, 31
_STRIP_WIDE_ROOM, _STRIP_NARROW_ROOM = 372, 62  # The wide strip holds a year of days.
_STRIP_HEIGHT, _STRIP_ROW, _LETTER = 108, 22, 6.6


@dataclass(frozen=True, slots=True)
class ResponsiveChart:
    """A chart in two widths; `bar_spans` is the time span of one bar in each."""

    wide: Markup
    narrow: Markup
    bar_spans: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True)
class DayGrid:
    """Heat map of one source partition by day and hour, with the number of its events."""

    source_partition: str
    delivery: str
    chart: Markup


@dataclass(frozen=True, slots=True)
class LateFigure:
    """Chart of late and dropped events, its limit lines, and the limits above its scale."""

    chart: ResponsiveChart
    lines: tuple[svg.Line, ...]
    beyond: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class VolumeFigure:
    """Chart of events over time, and the names of the stacked parts that occur."""

    chart: ResponsiveChart
    parts: frozenset[str]


@dataclass(frozen=True, slots=True)
class DelayFigure:
    """Histogram of the arrival delay, its marks, and its quantiles as texts."""

    chart: ResponsiveChart
    marks: tuple[svg.Line, ...]
    quantiles: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class WindowCharts:
    """Charts of the windows of a run: either `day_grids` or one `strip` shows their completeness."""

    day_grids: Sequence[DayGrid] = ()
    strip: ResponsiveChart | None = None
    levels: Sequence[tuple[str, str]] = ()
    gaps: Sequence[completeness_map.Gap] = ()
    late: LateFigure | None = None
    volume: VolumeFigure | None = None
    band: BandChart | None = None


def window_charts(plan: Plan, definition: Definition, frame: pd.DataFrame | None) -> WindowCharts:
    """Return the charts of the windows; all are empty without windows."""
    if frame is None or frame.empty:
        return WindowCharts()
    shown = completeness_map.ChartRange(plan.range, definition.unit_ms)
    grids = completeness_map.day_hour_grid(frame, shown)
    strips = None if grids else _strip_grids(frame, shown)
    return WindowCharts(
        day_grids=[
            DayGrid(name, delivery, svg.heat_map(grid, _DAY_GRID))
            for (name, delivery), grid in zip(figures.delivery_texts(frame).items(), grids, strict=bool(grids))
        ],
        strip=_draw_strips(strips) if strips else None,
        levels=completeness_map.legend_levels(grids or strips or ()),
        gaps=completeness_map.find_gaps(frame),
        late=_late_figure(plan, definition, frame),
        volume=_volume_figure(plan, definition, frame),
        band=draw_band(frame[frame["in_range"]]),
    )


def _late_figure(plan: Plan, definition: Definition, frame: pd.DataFrame) -> LateFigure | None:
    limits = definition.quality.late_ratio
    wide, narrow = (
        bar_charts.late_chart(frame, plan.range, definition.unit_ms, limits, room)
        for room in (_WIDE_ROOM, _NARROW_ROOM)
    )
    if wide is None or narrow is None:
        return None
    chart = _draw_bars(wide.chart, narrow.chart, (wide.bar_words, narrow.bar_words))
    return LateFigure(chart, wide.chart.lines, wide.beyond)


def _volume_figure(plan: Plan, definition: Definition, frame: pd.DataFrame) -> VolumeFigure | None:
    """Return the chart of events; it has as many bars as the chart of late events, to compare both."""
    wide, narrow = (
        bar_charts.volume_chart(frame, plan.range, definition.unit_ms, room) for room in (_WIDE_ROOM, _NARROW_ROOM)
    )
    if wide is None or narrow is None:
        return None
    chart = _draw_bars(wide.chart, narrow.chart, (wide.bar_words, narrow.bar_words))
    return VolumeFigure(chart, wide.parts)


def delay_figure(plan: Plan, context: RunContext, definition: Definition) -> DelayFigure | None:
    """Return the histogram of the arrival delay; None when the delays are unknown."""
    if context.delays is None:
        return None
    chart = delay_histogram.delay_chart(context.delays, definition if plan.mode is Mode.REPLAY else None)
    narrow = replace(chart, x=_with_fewer_ticks(chart.x))
    return DelayFigure(_draw_bars(chart, narrow), chart.marks, delay_histogram.quantile_texts(context.delays))


def change_bars(context: RunContext) -> dict[str, list[Markup]]:
    """Return a bar for each largest change by aggregate; the bars of an aggregate share one scale."""
    aggregates = context.changes.totals.aggregates if context.changes else {}
    bars = {}
    for name, change in aggregates.items():
        differences = [row["difference"] or 0.0 for row in largest_changes(change)]
        largest = max(map(abs, differences), default=0.0)
        bars[name] = [svg.difference_bar(difference, largest) for difference in differences]
    return bars


def fate_bar(accounting: figures.RecordAccounting) -> Markup | None:
    """Return all records as one bar divided by fate; None without records."""
    whole = accounting.total.total
    parts = [
        (f"fate-{fate}", count / whole, f"{count_of(count, 'record')} {name}: {share_text(count, whole)}")
        for fate, count, name in figures.fate_shares(accounting.total)
    ]
    return svg.share_bar(parts, "Fates of all records") if parts else None


def _with_fewer_ticks(axis: svg.Axis) -> svg.Axis:
    """Return the axis with every third label, because a phone has no room for more."""
    return replace(axis, ticks=axis.ticks[::3])


def _strip_grids(
    frame: pd.DataFrame, shown: completeness_map.ChartRange
) -> tuple[svg.HeatGrid, svg.HeatGrid] | None:
    wide, narrow = (
        completeness_map.time_grid(frame, shown, room) for room in (_STRIP_WIDE_ROOM, _STRIP_NARROW_ROOM)
    )
    return (wide, narrow) if wide and narrow else None


def _draw_strips(strips: tuple[svg.HeatGrid, svg.HeatGrid]) -> ResponsiveChart:
    """Draw strips high enough for the axis title, with a left margin for the names of the rows."""
    wide, narrow = strips
    height = max(_STRIP_ROW * wide.rows, _STRIP_HEIGHT)
    left = 34 + _LETTER * max(len(label) for _, label in wide.y.ticks)
    return ResponsiveChart(
        svg.heat_map(wide, svg.Frame(left, 6, _WIDE_WIDTH + 58 - left, height)),
        svg.heat_map(narrow, svg.Frame(left, 6, _NARROW_WIDTH + 58 - left, height)),
    )


def _draw_bars(wide: svg.BarChart, narrow: svg.BarChart, bar_spans: tuple[str, str] = ("", "")) -> ResponsiveChart:
    return ResponsiveChart(
        svg.bar_chart(wide, svg.Frame(58, 14, _WIDE_WIDTH, _WIDE_HEIGHT)),
        svg.bar_chart(narrow, svg.Frame(58, 14, _NARROW_WIDTH, _NARROW_HEIGHT)),
        bar_spans,
    )
