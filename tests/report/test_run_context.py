from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from tests.report.example_run import (
    DEFINITION,
    LATE,
    MISSING,
    PASSED,
    PLAN,
    PUBLICATION,
    UNTIL_MS,
    WITH_A_GAP,
    audit,
    frame_of,
    manifests,
)
from tests.report.page import section, table_row, text

from backstream.definition.loader import parse_definition
from backstream.eventtime.instants import DAY_MS, HOUR_MS, MINUTE_MS
from backstream.lake.diff import AggregateChange, ChangeTotals
from backstream.lake.ledger import RunRow
from backstream.report import descriptions
from backstream.report.delay_histogram import LADDER_MS
from backstream.report.html import render_report
from backstream.report.run_context import ChangeSummary, DelayCounts, RunContext
from backstream.runs.plan import Mode
from backstream.runs.results import CheckOutcome, Verdict
from backstream.runs.status import RunStatus

NOW_MS = UNTIL_MS + 3 * DAY_MS


def page(known: RunContext, verdict: Verdict = Verdict.WARN) -> str:
    found = audit(verdict, PASSED, MISSING, LATE)
    return render_report(PLAN, manifests(), found, frame_of(WITH_A_GAP), PUBLICATION, DEFINITION, known)


def row(run_id: str, seconds: int, **values: int | str | None) -> RunRow:
    """Return the row of a run with 1,000 records and 500 rows that ended a day before the report."""
    finished_ms = NOW_MS - DAY_MS
    known: dict[str, int | str | None] = {"mode": "replay", "events_read": 1_000, "rows": 500}
    return RunRow(
        run_id=run_id,
        dataset="clicks",
        status=RunStatus.PUBLISHED,
        verdict=Verdict.PASS,
        since_ms=PLAN.since_ms,
        until_ms=PLAN.until_ms,
        triggered_by="cli",
        reason="first <b>",
        definition_hash="d",
        plan_hash="p",
        planned_by_version="1",
        started_at_ms=finished_ms - seconds * 1_000,
        finished_at_ms=finished_ms,
        **(known | values),  # type: ignore[arg-type]
    )


def change(day: int, was: str | None, now: str | None, by: float | None) -> dict[str, object]:
    return {
        "window_start": datetime(2026, 3, day, 5, tzinfo=UTC),
        "change": "changed",
        "old_value": was,
        "new_value": now,
        "difference": by,
        "page": "<i>home",
    }


LARGEST = pa.Table.from_pylist([change(2, "1030", "1000", -30.0), change(3, None, "12", None)])
CHANGED = ChangeSummary(
    is_published=True,
    against="version 3 of 2026-03-05 00:00:00 UTC by run cli.old",
    totals=ChangeTotals(
        windows={"added": 1, "removed": 0, "changed": 1_250},
        aggregates={"clicks": AggregateChange(1_251, -18.0, 42.0, [LARGEST])},
        old_runs={"cli.old": 1_250},
    ),
)


def test_a_report_lists_changes_with_the_largest_difference_first() -> None:
    html = section(page(RunContext(changes=CHANGED)), "changed")
    seen = text(f"<section{html}</section>")

    assert "1 row added, 0 rows removed, 1,250 rows changed, compared with version 3" in seen
    assert "Run cli.old had published other values in 1,250 rows." in seen
    assert "clicks 1,251 rows differ, total -18" in seen
    assert table_row(html, "2026-03-02 05:00")[1:5] == ["&lt;i&gt;home", "1,030", "1,000", "-30"]
    assert table_row(html, "2026-03-03 05:00")[2:5] == ["no row", "12", ""]
    assert html.count('class="difference"') == 1


def test_the_report_of_an_unpublished_run_previews_its_changes() -> None:
    assert "Preview of changes" in text(page(RunContext(changes=replace(CHANGED, is_published=False))))


def test_a_report_shows_that_a_run_changes_nothing() -> None:
    nothing = replace(CHANGED, totals=ChangeTotals({"added": 0, "removed": 0, "changed": 0}, {}, {}))

    assert "No changes: every row of the range kept its values." in text(page(RunContext(changes=nothing)))


def test_a_report_gives_the_reason_for_a_missing_comparison() -> None:
    known = RunContext(unavailable={"changed": "the snapshot of run cli.old was expired"})

    assert "No comparison: the snapshot of run cli.old was expired." in text(page(known))


def test_a_run_is_held_against_what_past_runs_took_per_record() -> None:
    past = tuple(row(f"cli.{at}", seconds) for at, seconds in enumerate((8, 10, 12, 20, 30)))
    own = replace(row(PLAN.run_id, 77), started_at_ms=NOW_MS, finished_at_ms=NOW_MS + 77_000)

    html = section(page(RunContext(NOW_MS, own=own, past=past)), "run")

    assert table_row(html, "Records read")[1:] == ["3,850", "3,792", "-1.5 %", ""]
    assert table_row(html, "Rows")[1:4] == ["1,925", "98,765", "+5,030.6 %"]
    assert table_row(html, "Time")[1:] == ["46 s", "1 min 17 s", "+66.7 %", "38 s to 1 min 17 s (5 previous runs)"]


def test_runs_of_another_mode_and_later_ones_foretell_nothing() -> None:
    own = row(PLAN.run_id, 77)
    other = row("cli.1", 10, mode="recompute")
    later = replace(row("cli.2", 10), finished_at_ms=own.started_at_ms + 1)

    html = section(page(RunContext(NOW_MS, own=own, past=(other, later))), "run")

    assert table_row(html, "Time")[1:] == ["no previous runs", "1 min 17 s", "", ""]


def test_past_runs_show_their_age_and_the_instant_on_hover() -> None:
    html = section(page(RunContext(NOW_MS, past=(row("cli.1", 10),))), "run")

    assert '<time datetime="2026-03-07T00:00Z" title="2026-03-07 00:00 UTC">1 day ago</time>' in html
    assert "first &lt;b&gt;" in html


def test_each_check_has_its_outcomes_of_the_runs_before() -> None:
    known = RunContext(outcomes={MISSING.name: (CheckOutcome.PASS, CheckOutcome.PASS, CheckOutcome.FAIL)})

    assert 'aria-label="Previous 3 runs: Pass, Pass, Fail"' in section(page(known), "checks")


def delays(*spans_ms: int) -> DelayCounts:
    counts = [0] * (len(LADDER_MS) + 1)
    for span_ms in spans_ms:
        counts[next(at for at, end in enumerate((*LADDER_MS, 10**15)) if span_ms <= end)] += 1
    return DelayCounts(
        len(spans_ms), tuple(counts), {0.5: sorted(spans_ms)[len(spans_ms) // 2], 1.0: max(spans_ms)}
    )


def test_the_delays_of_arrival_are_drawn_beside_the_watermarks_delay() -> None:
    minutes = delays(*[-2 * MINUTE_MS] * 5, *[MINUTE_MS] * 3, *[25 * MINUTE_MS] * 2)

    html = section(page(RunContext(delays=minutes)), "lateness")

    assert "50 % 1 min after event time, 100 % 25 min after event time." in text(f"<section{html}</section>")
    assert "<title>at most 0 or before: 5 records, 50 %</title>" in html
    assert "<title>more than 0 or before, at most 1 min: 3 records, 30 %</title>" in html
    assert "<title>more than 20 min, at most 30 min: 2 records, 20 %</title>" in html
    assert "watermark delay, 10 min" in html
    assert "delay plus allowed lateness" not in html  # 1 h 10 min lies beyond the axis


def test_delays_of_any_size_are_drawn() -> None:
    for spans in ([7], [-5], [10**12, 3], [HOUR_MS] * 1_000 + [1]):
        assert "arrival delay, at most" in page(RunContext(delays=delays(*spans)))


def test_a_report_gives_the_reason_for_unknown_delays() -> None:
    known = RunContext(unavailable={"delays": "the source has no arrival time"})

    assert "No arrival delays: the source has no arrival time." in text(page(known))


@pytest.mark.parametrize(
    ("trigger", "words"),
    [
        ("cli", "command line"),
        ("backfill__2013-02-01T00:00:00+00:00", "backfill__2013-02-01T00:00:00+00:00 (Airflow backfill)"),
        ("else", "else"),
    ],
)
def test_the_description_of_a_trigger_names_its_origin(trigger: str, words: str) -> None:
    assert descriptions.describe_trigger(replace(PLAN, triggered_by=trigger)) == words


def test_a_mode_that_is_not_the_definitions_is_an_override() -> None:
    assert descriptions.describe_overrides(replace(PLAN, mode=Mode.RECOMPUTE), DEFINITION) == ()
    assert descriptions.describe_overrides(PLAN, DEFINITION) == ("mode replay instead of recompute",)


def test_the_description_of_approval_shows_when_it_is_required() -> None:
    asks = parse_definition(DEFINITION.model_dump(mode="json") | {"approval": {"when": "warn"}}, "test")

    assert descriptions.describe_approval(DEFINITION) == "never"
    assert descriptions.describe_approval(asks) == "if the verdict is a warning"
