from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from tests.report.example_run import (
    BROKEN,
    DEFINITION,
    LATE,
    MISSING,
    PASSED,
    PLAN,
    PUBLICATION,
    WITH_A_GAP,
    audit,
    frame_of,
    manifests,
    metrics,
    warned,
)
from tests.report.page import table_row, text

from backstream.definition.loader import parse_definition
from backstream.eventtime.instants import instant_ms
from backstream.quality.audit_frame import audit_frame
from backstream.report.html import render_report
from backstream.runs.manifest import Manifest
from backstream.runs.plan import InputFile, Mode
from backstream.runs.results import Verdict


def test_the_report_of_a_refused_run_gives_the_reason() -> None:
    html = render_report(PLAN, manifests(), audit(Verdict.FAIL, LATE), frame_of(WITH_A_GAP), None, DEFINITION)

    assert "Nothing was published: rejected by the quality gate, failed check: late share of windows." in text(
        html
    )
    assert "0 rows published" in text(html)


def test_the_report_of_a_run_names_a_check_that_could_not_run() -> None:
    html = render_report(PLAN, manifests(), audit(Verdict.ERROR, BROKEN), frame_of(WITH_A_GAP), None, DEFINITION)

    assert "Nothing was published: a check could not run: watermark." in text(html)


def test_a_run_that_ended_before_its_audit_has_a_report() -> None:
    html = render_report(PLAN, manifests()[:1], None, None, None, DEFINITION)
    seen = text(html)

    assert (
        "No verdict clicks 1 Mar 2026 to 4 Mar 2026 1 chunk of 2 did not finish, so the audit did not run." in seen
    )
    assert "No checks: the run ended before its audit. Start the run again." in seen
    assert table_row(html, "0001")[-1] == "did not finish"
    assert "1,867 records read, the audit did not run" in seen


def test_a_run_of_which_nothing_finished_has_a_report() -> None:
    seen = text(render_report(PLAN, [], None, None, None, DEFINITION))

    assert "2 chunks of 2 did not finish, so the audit did not run." in seen
    assert "No records: no chunk finished. Start the run again." in seen


def test_the_report_of_a_run_before_approval_shows_that_nothing_is_published_yet() -> None:
    html = render_report(PLAN, manifests(), audit(Verdict.WARN, MISSING), frame_of(WITH_A_GAP), None, DEFINITION)

    assert "Nothing was published: passed by the quality gate, but not published yet." in text(html)


def test_a_run_without_events_shows_only_missing_windows() -> None:
    empty = metrics().iloc[:0]

    html = render_report(PLAN, [], audit(Verdict.FAIL, MISSING), frame_of(empty), None, DEFINITION)

    assert html.count('<rect class="c0"') == 192
    assert "No late events: the range has no events." in text(html)


def test_the_report_of_a_run_without_windows_shows_an_empty_state() -> None:
    observed = parse_definition(
        DEFINITION.model_dump(mode="json") | {"quality": {"expected_partitions": "observed"}}, "test"
    )
    nothing = frame_of(metrics().iloc[:0], observed)

    html = render_report(PLAN, [], audit(Verdict.FAIL, MISSING), nothing, None, observed)

    assert "No windows: the range has no expected windows and no events. Check the range." in text(html)


def test_a_recompute_has_no_chapter_about_lateness() -> None:
    plan = replace(PLAN, mode=Mode.RECOMPUTE)

    html = render_report(
        plan, manifests(), audit(Verdict.PASS, PASSED), frame_of(metrics()), PUBLICATION, DEFINITION
    )

    assert "Late events" not in html
    assert "recompute: uses event time only, so no record is late" in text(html)
    assert "No gaps: every expected window has events." in text(html)


@pytest.mark.parametrize(
    ("until", "grids"), [("2026-03-02", "strip"), ("2028-03-01", "strip"), ("2026-03-29", "days")]
)
def test_ranges_of_a_day_a_month_and_years_each_have_a_heat_map_and_stay_small(until: str, grids: str) -> None:
    plan = replace(PLAN, until_ms=instant_ms(until, "until"))
    frame = audit_frame(plan, DEFINITION, WITH_A_GAP)

    html = render_report(plan, manifests(), audit(Verdict.FAIL, MISSING), frame, None, DEFINITION)

    assert ("hour of day (UTC)" in html) == (grids == "days")
    assert '<svg class="chart heat"' in html
    assert len(html) < 500_000


def test_an_audit_frame_read_back_from_its_file_gives_the_same_page(tmp_path: Path) -> None:
    frame_of(WITH_A_GAP).to_parquet(tmp_path / "audit.parquet")
    read = pd.read_parquet(tmp_path / "audit.parquet")

    assert (
        render_report(PLAN, manifests(), audit(Verdict.WARN, PASSED, MISSING), read, PUBLICATION, DEFINITION)
        == warned()
    )


def test_the_page_refers_to_nothing_outside_itself_and_runs_nothing() -> None:
    html = warned()

    for forbidden in ("http://", "https://", "<script", "<link", "<iframe", " src=", "@import", "javascript:"):
        assert forbidden not in html
    assert set(re.findall(r"url\(([^)]*)\)", html)) == {"#hatch"}


HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(1)>{{ 7 * 7 }}'


def test_hostile_names_and_values_are_harmless() -> None:
    plan = replace(
        PLAN,
        dataset=HOSTILE,
        reason=HOSTILE,
        triggered_by=HOSTILE,
        definition_path=HOSTILE,
        planned_by_version=HOSTILE,
        inputs=(InputFile(HOSTILE, 1, 1),),
        chunks=(replace(PLAN.chunks[0], chunk_id=HOSTILE),),
    )
    came = WITH_A_GAP.assign(source_partition=HOSTILE)
    check = replace(
        MISSING,
        name=HOSTILE,
        observed=HOSTILE,
        limit=HOSTILE,
        failing=({"source_partition": HOSTILE, "window_start": HOSTILE},),
    )
    run = Manifest("r", HOSTILE, "1", 1, {HOSTILE: {"on_time": 1}}, {}, {HOSTILE: 1.0}, HOSTILE)
    published = replace(PUBLICATION, dataset=HOSTILE, published_at=HOSTILE, snapshots={HOSTILE: 1})

    html = render_report(
        plan,
        [run],
        replace(audit(Verdict.WARN, check), summary=HOSTILE, suite=HOSTILE),
        frame_of(came),
        published,
        DEFINITION,
    )

    assert "<script" not in html
    assert "<img" not in html
    assert "49" not in re.findall(r"alert\(1\)&gt;(..)", html)
    assert html.count("&lt;script&gt;alert(1)&lt;/script&gt;") > 10
    text(html)


def test_a_very_long_name_does_not_blow_the_page_up() -> None:
    came = metrics().assign(source_partition="n" * 5_000)

    html = render_report(PLAN, [], audit(Verdict.WARN, MISSING), frame_of(came), None, DEFINITION)

    assert len(html) < 500_000
