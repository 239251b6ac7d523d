from __future__ import annotations

import re

from backstream.charts.svg import (
    Axis,
    Bar,
    BarChart,
    Frame,
    HeatCell,
    HeatGrid,
    Line,
    bar_chart,
    heat_map,
    share_bar,
)

X, Y = Axis("day (UTC)", ((0.5, "1 Feb"),)), Axis("hour (UTC)", ((0.5, "00"),))


def test_a_heat_map_puts_each_cell_in_its_place_with_its_title() -> None:
    grid = HeatGrid("Completeness", 4, 2, X, Y, (HeatCell(1, 1, "c0", "JFK: no event"),))

    svg = heat_map(grid, Frame(left=40, top=10, width=80, height=40))

    assert '<rect class="c0" x="60" y="30" width="19" height="19"><title>JFK: no event</title></rect>' in svg
    assert svg.startswith('<svg class="chart heat" viewBox="0 0 128 86" role="img" aria-label="Completeness">')


def test_bars_are_stacked_from_the_bottom_and_keep_inside_their_frame() -> None:
    chart = BarChart("Late", X, Y, 0.5, (Bar((("dropped", 0.1), ("late", 0.7)), "two thirds"),))

    svg = bar_chart(chart, Frame(left=0, top=0, width=10, height=100))

    assert '<rect class="dropped" x="0" y="80" width="8.5" height="20"/>' in svg
    assert '<rect class="late" x="0" y="0" width="8.5" height="80"/>' in svg
    assert '<rect class="hover" x="0" y="0" width="10" height="100"><title>two thirds</title></rect>' in svg


def test_a_limit_is_a_line_at_its_height() -> None:
    chart = BarChart("Late", X, Y, 0.5, (), (Line(0.25, "hard", "hard limit 25 %"),))

    svg = bar_chart(chart, Frame(left=5, top=0, width=10, height=100))

    assert '<line class="hard" x1="5" y1="50" x2="15" y2="50"/>' in svg


def test_every_chart_with_axes_names_both() -> None:
    frame = Frame(10, 10, 100, 100)
    drawn = (heat_map(HeatGrid("a", 1, 1, X, Y, ()), frame), bar_chart(BarChart("b", X, Y, 1, ()), frame))

    for svg in drawn:
        assert re.findall(r'<text class="axis"[^>]*>([^<]*)</text>', svg) == ["day (UTC)", "hour (UTC)"]


def test_a_share_that_exists_is_visible_however_small() -> None:
    svg = share_bar(
        [("fate-on_time", 0.99999, "most"), ("fate-late", 0.00001, "few"), ("fate-dropped", 0, "")], ""
    )

    widths = [float(width) for width in re.findall(r' width="([\d.]+)" height="22"', svg)]
    assert len(widths) == 2
    assert min(widths) >= 1


def test_texts_are_escaped() -> None:
    hostile = '"><script>alert(1)</script>'
    axis = Axis(hostile, ((0, hostile),))

    svg = heat_map(HeatGrid(hostile, 1, 1, axis, axis, (HeatCell(0, 0, "c0", hostile),)), Frame(0, 0, 9, 9))

    assert "<script" not in svg
    assert svg.count("&lt;script&gt;alert(1)&lt;/script&gt;") == 6
