from __future__ import annotations

import re
from dataclasses import replace

from tests.report.example_run import (
    BROKEN,
    DEFINITION,
    LATE,
    MISSING,
    PASSED,
    PLAN,
    WITH_A_GAP,
    audit,
    frame_of,
    manifests,
    metrics,
    warned,
)
from tests.report.page import section, table_row, text

from backstream.report.html import render_report
from backstream.runs.results import Verdict


def test_a_report_begins_with_the_verdict_and_the_summary() -> None:
    seen = text(warned())

    assert "Warning clicks 1 Mar 2026 to 4 Mar 2026 3 of 192 windows have no event. 98,765 rows published" in seen
    assert "<title>warn: clicks, 1 Mar 2026 to 4 Mar 2026</title>" in warned()


def test_the_figures_are_those_of_the_run() -> None:
    seen = text(warned())

    assert "189 of 192 expected windows have events 98.4 %" in seen
    assert "3,780 events in windows" in seen
    assert "0.1 % late: arrived after the window fired, included in the result 3 events" in seen
    assert "0.1 % dropped: arrived after the allowed lateness 2 events" in seen
    assert "98,765 rows published 4,321 replaced" in seen


def test_the_records_read_are_the_sum_of_their_fates() -> None:
    html = section(warned(), "records")

    assert "3,787 records read = 3,775 on time + 3 late + 2 dropped + 7 duplicate" in text(html)
    assert table_row(html, "north")[1:] == ["1,895", "3", "2", "0", "0", "0", "0", "1,900", "1,900"]
    assert table_row(html, "south")[1:] == ["1,880", "0", "0", "0", "0", "7", "0", "1,887", "1,880"]
    assert "The chunks read 3,792 records; 5 of them belong to a neighboring chunk" in text(html)
    assert 'class="sum good"' in html
    assert 'class="number differs"' not in html


def test_a_record_without_a_fate_is_shown_as_a_defect() -> None:
    lossy = [replace(manifests()[0], events_read=1_880), manifests()[1]]

    html = render_report(PLAN, lossy, audit(Verdict.FAIL, LATE), frame_of(WITH_A_GAP), None, DEFINITION)

    assert "+ 7 duplicate; 8 records without a fate" in text(html)
    assert 'class="sum bad"' in html


def test_a_number_of_records_that_differs_from_the_fates_is_marked() -> None:
    html = render_report(PLAN, manifests(), audit(Verdict.FAIL, LATE), frame_of(metrics()), None, DEFINITION)

    assert '<td class="number differs">1,920</td>' in html


def test_checks_are_sorted_by_gravity_and_the_passed_ones_are_folded_away() -> None:
    found = audit(Verdict.ERROR, PASSED, MISSING, LATE, BROKEN)

    html = render_report(PLAN, manifests(), found, frame_of(WITH_A_GAP), None, DEFINITION)

    names = re.findall(r'<p class="name">([^<]*)</p>', html)
    assert names == ["watermark", "late share of windows", "expected windows have events", "counted once"]
    assert "1 of 4 passed, suite window_audit" in text(html)
    assert html.index('<details class="passed"') < html.index("counted once")


def test_failing_windows_are_named_by_source_partition_and_joined_where_they_follow_each_other() -> None:
    seen = text(warned())

    assert "Failing rows: 3 of 30" in seen
    assert "north 2026-03-01 06:00 50 events no event backstream show clicks" in seen
    assert "south 2026-03-02 06:00 to 2026-03-02 08:00, 2 windows 50 events no event" in seen


def test_a_failing_window_is_named_with_its_measure() -> None:
    html = render_report(PLAN, [], audit(Verdict.FAIL, LATE), None, None, DEFINITION)

    assert "<td>at most 5 %</td><td>5 of 20 events (25 %)</td>" in html


def test_a_missing_window_has_its_own_cell_and_its_gap_a_row() -> None:
    html = warned()

    assert html.count('<rect class="c0"') == 3
    assert html.count('<rect class="c5"') == 189
    assert "<title>south, 2026-03-02 06:00 UTC: 0 events</title>" in html
    assert "<td>2026-03-02 06:00</td><td>2026-03-02 08:00</td>" in html


def test_the_title_of_a_cell_shows_its_late_and_dropped_events() -> None:
    assert "<title>north, 2026-03-01 05:00 UTC: 20 events, 3 late, 2 dropped</title>" in warned()


def test_every_chart_has_axis_titles_and_a_description() -> None:
    charts = re.findall(r'<svg [^>]*class="chart (\w+)"', warned())
    axes = re.findall(r'<text class="axis"[^>]*>([^<]*)</text>', warned())

    assert charts == ["heat", "heat", "bars", "bars", "shares"]
    time = "window start (UTC)"
    assert axes == [*["day (UTC)", "hour of day (UTC)"] * 2, time, "events", time, "share of events"]
    assert len(re.findall(r'<svg [^>]*class="chart [^>]*aria-label="[^"]+"', warned())) == len(charts)


def test_the_limits_are_drawn_or_named_if_they_lie_far_above() -> None:
    seen = text(warned())

    assert "whole run 0.1 %" in seen
    assert "soft limit 5 %" in seen
    assert "hard limit 25 %" in seen


def test_plan_and_actual_stand_side_by_side() -> None:
    html = section(warned(), "run")

    assert table_row(html, "0000") == [
        "0000",
        "2026-03-01 00:00",
        "2026-03-03 00:00",
        "1",
        "1,900",
        "1,872",
        "12 s",
        "read 3.0 s, write 9.5 s",
    ]
    assert table_row(html, "All")[-4:] == ["3,850", "3,792", "14 s", ""]


def test_a_report_describes_the_parameters_of_the_run() -> None:
    seen = text(warned())

    assert "2026-03-01 00:00 UTC to 2026-03-05 00:00 UTC, end excluded (4 d)" in seen
    assert "bounded out-of-orderness: events arrive at most 10 min out of order; emitted every 200 ms" in seen
    assert "a source partition is idle after 2 h without records" in seen
    assert "manual__1 (manual Airflow run)" in seen
    assert "Reason a test" in seen
    assert "mode replay instead of recompute" in seen
    assert "2 files with 1,244 rows, 2.3 MB" in seen


def test_provenance_names_plan_code_definition_and_snapshots() -> None:
    seen = text(warned())

    for named in (PLAN.plan_hash, "1.2.3", "definitions/clicks.toml, d00d", "clicks 4711, clicks__metrics 4712"):
        assert named in seen
    assert "Published at 2026-03-06 09:12:04 UTC" in seen
