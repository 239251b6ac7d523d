"""Lay out the charts of a run report; on a phone, the page scrolls them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
_BARS = svg.Frame(58, 14, 1_080, 230)
_ROOM = 112
_STRIP_ROOM = 372  # a year of days
_STRIP_WIDTH, _STRIP_HEIGHT, _STRIP_ROW, _LETTER = 1_138, 108, 22, 6.6


@dataclass(frozen=True, slots=True)
class DayGrid:
    """Heat map of one source partition by day and hour, with the number of its events."""

    source_partition: str
    delivery: str
    chart: Markup


@dataclass(frozen=True, slots=True)
class LateFigure:
    """Chart of late and dropped events, the time of a bar, its limit lines, and the limits above its scale."""

    chart: Markup
    bar_words: str
    lines: tuple[svg.Line, ...]
    beyond: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class VolumeFigure:
    """Chart of events over time, the time of a bar, and the names of the stacked parts that occur."""

    chart: Markup
    bar_words: str
    parts: frozenset[str]


@dataclass(frozen=True, slots=True)
class DelayFigure:
    """Histogram of the arrival delay, its marks, and its quantiles as texts."""

    chart: Markup
    marks: tuple[svg.Line, ...]
    quantiles: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class WindowCharts:
    """Charts of the windows of a run: either `day_grids` or one `strip` shows their completeness."""

    day_grids: Sequence[DayGrid] = ()
    strip: Markup | None = None
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
    strip = None if grids else completeness_map.time_grid(frame, shown, _STRIP_ROOM)
    return WindowCharts(
        day_grids=[
            DayGrid(name, delivery, svg.heat_map(grid, _DAY_GRID))
            for (name, delivery), grid in zip(figures.delivery_texts(frame).items(), grids, strict=bool(grids))
        ],
        strip=_draw_strip(strip) if strip else None,
        levels=completeness_map.legend_levels(grids or ((strip,) if strip else ())),
        gaps=completeness_map.find_gaps(frame),
        late=_late_figure(plan, definition, frame),
        volume=_volume_figure(plan, definition, frame),
        band=draw_band(frame[frame["in_range"]]),
    )


def _late_figure(plan: Plan, definition: Definition, frame: pd.DataFrame) -> LateFigure | None:
    limits = definition.quality.late_ratio
    late = bar_charts.late_chart(frame, plan.range, definition.unit_ms, limits, _ROOM)
    if late is None:
        return None
    return LateFigure(svg.bar_chart(late.chart, _BARS), late.bar_words, late.chart.lines, late.beyond)


def _volume_figure(plan: Plan, definition: Definition, frame: pd.DataFrame) -> VolumeFigure | None:
    """Return the chart of events; it has as many bars as the chart of late events, to compare both."""
    volume = bar_charts.volume_chart(frame, plan.range, definition.unit_ms, _ROOM)
    return VolumeFigure(svg.bar_chart(volume.chart, _BARS), volume.bar_words, volume.parts) if volume else None


def delay_figure(plan: Plan, context: RunContext, definition: Definition) -> DelayFigure | None:
    """Return the histogram of the arrival delay; None when the delays are unknown."""
    if context.delays is None:
        return None
    chart = delay_histogram.delay_chart(context.delays, definition if plan.mode is Mode.REPLAY else None)
    return DelayFigure(svg.bar_chart(chart, _BARS), chart.marks, delay_histogram.quantile_texts(context.delays))


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


def _draw_strip(grid: svg.HeatGrid) -> Markup:
    """Draw a strip high enough for the axis title, with a left margin for the names of the rows."""
    height = max(_STRIP_ROW * grid.rows, _STRIP_HEIGHT)
    left = 34 + _LETTER * max(len(label) for _, label in grid.y.ticks)
    return svg.heat_map(grid, svg.Frame(left, 6, _STRIP_WIDTH - left, height))
