"""The charts of a run report: each twice, for a wide screen and for a phone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
from markupsafe import Markup

from backstream.definition.model import Definition
from backstream.report import bar_charts, completeness_map, delay_histogram, figures, svg
from backstream.report.formatting import count_of
from backstream.report.run_context import RunContext
from backstream.runs.plan import Mode, Plan
from backstream.text import share_text

_DAY_GRID = svg.Frame(left=46, top=6, width=348, height=216)
_WIDE_HEIGHT, _NARROW_HEIGHT = 230, 200
_WIDE_WIDTH, _NARROW_WIDTH = 1_080, 292
_WIDE_ROOM, _NARROW_ROOM = 112, 31
_STRIP_WIDE_ROOM, _STRIP_NARROW_ROOM = 372, 62  # a year of days where there is room
_STRIP_HEIGHT, _STRIP_ROW, _LETTER = 108, 22, 6.6


@dataclass(frozen=True, slots=True)
class ResponsiveChart:
    """A chart twice: one is shown where there is room, the other on a phone."""

    wide: Markup
    narrow: Markup


def window_charts(plan: Plan, definition: Definition, frame: pd.DataFrame | None) -> dict[str, Any]:
    """The charts over the windows; empty without any."""
    if frame is None or frame.empty:
        return {
            "day_grids": (),
            "strip": None,
            "levels": (),
            "gaps": [],
            "late": None,
            "late_drawn": None,
            "volume": None,
        }
    shown = completeness_map.ChartRange(plan.range, definition.unit_ms)
    grids = completeness_map.day_hour_grid(frame, shown)
    strips = None if grids else _strips(frame, shown)
    late = [
        bar_charts.late_chart(frame, plan.range, definition.unit_ms, definition.quality.late_ratio, room)
        for room in (_WIDE_ROOM, _NARROW_ROOM)
    ]
    return {
        "day_grids": [
            (name, came, svg.heat_map(grid, _DAY_GRID))
            for (name, came), grid in zip(figures.delivery_texts(frame).items(), grids, strict=bool(grids))
        ],
        "strip": _drawn_strips(strips) if strips else None,
        "levels": completeness_map.legend_levels(grids or strips or ()),
        "gaps": completeness_map.find_gaps(frame),
        "late": late[0],
        "late_bars": [each.bar_words for each in late if each],
        "late_drawn": _drawn_bars(*(each.chart if each else None for each in late)),
        **_volume(plan, definition, frame),
    }


def _volume(plan: Plan, definition: Definition, frame: pd.DataFrame) -> dict[str, Any]:
    """Events over time; the same number of bars as the chart of late ones, so that both can be read together."""
    wide, narrow = (
        bar_charts.volume_chart(frame, plan.range, definition.unit_ms, room) for room in (_WIDE_ROOM, _NARROW_ROOM)
    )
    if wide is None or narrow is None:
        return {"volume": None}
    return {
        "volume": _drawn_bars(wide.chart, narrow.chart),
        "volume_bars": [wide.bar_words, narrow.bar_words],
        "volume_parts": wide.parts,
    }


def delay_charts(plan: Plan, known: RunContext, definition: Definition) -> dict[str, Any]:
    """How long records took to arrive; empty where that is not known."""
    if known.delays is None:
        return {"delay_drawn": None}
    chart = delay_histogram.delay_chart(known.delays, definition if plan.mode is Mode.REPLAY else None)
    return {
        "delay_drawn": _drawn_bars(chart, replace(chart, x=_thinned(chart.x))),
        "delay_marks": chart.marks,
        "delay_quantiles": delay_histogram.quantile_texts(known.delays),
    }


def change_bars(known: RunContext) -> dict[str, list[Markup]]:
    """A bar per largest change of each aggregate, all of one aggregate on one scale."""
    changes = known.changes.aggregates if known.changes else ()
    return {
        each.name: [svg.difference_bar(size, max(sizes)) for size in sizes_signed]
        for each in changes
        for sizes_signed in [[row["difference"] or 0.0 for row in each.largest]]
        for sizes in [[abs(size) for size in sizes_signed] or [0.0]]
    }


def _thinned(axis: svg.Axis) -> svg.Axis:
    """Every third label: on a phone there is room for no more."""
    return replace(axis, ticks=axis.ticks[::3])


def _strips(frame: pd.DataFrame, shown: completeness_map.ChartRange) -> tuple[svg.HeatGrid, svg.HeatGrid] | None:
    wide, narrow = (
        completeness_map.time_grid(frame, shown, room) for room in (_STRIP_WIDE_ROOM, _STRIP_NARROW_ROOM)
    )
    return (wide, narrow) if wide and narrow else None


def _drawn_strips(strips: tuple[svg.HeatGrid, svg.HeatGrid]) -> ResponsiveChart:
    """Rows high enough for the title of their axis, and to the left as much as the names need."""
    rows = strips[0].rows
    height = max(_STRIP_ROW * rows, _STRIP_HEIGHT)
    left = 34 + _LETTER * max(len(label) for _, label in strips[0].y.ticks)
    return ResponsiveChart(
        svg.heat_map(strips[0], svg.Frame(left, 6, _WIDE_WIDTH + 58 - left, height)),
        svg.heat_map(strips[1], svg.Frame(left, 6, _NARROW_WIDTH + 58 - left, height)),
    )


def _drawn_bars(wide: svg.BarChart | None, narrow: svg.BarChart | None) -> ResponsiveChart | None:
    if wide is None or narrow is None:
        return None
    return ResponsiveChart(
        svg.bar_chart(wide, svg.Frame(58, 14, _WIDE_WIDTH, _WIDE_HEIGHT)),
        svg.bar_chart(narrow, svg.Frame(58, 14, _NARROW_WIDTH, _NARROW_HEIGHT)),
    )


def fate_bar(found: figures.RecordAccounting) -> Markup | None:
    """All records read as one bar of their fates; None when none was read."""
    whole = found.total.total
    parts = [
        (
            f"fate-{fate}",
            count / whole,
            f"{count_of(count, 'record')} {name}: {share_text(count, whole)}",
        )
        for fate, count, name in figures.fate_shares(found.total)
    ]
    return svg.share_bar(parts, "Fates of all records read") if parts else None
