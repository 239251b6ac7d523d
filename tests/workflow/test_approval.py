"""Who lets a result through: the gate, someone who overrides it, someone who is asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.workflow.history import CLICKS, at, write_clicks, write_definition
from tests.workflow.publishing import publish_counts, stage_counts

from backstream.errors import QualityError
from backstream.eventtime.instants import DAY_MS, instant_ms
from backstream.lake.ledger import Status, list_runs
from backstream.runs.home import Home
from backstream.runs.plan import Plan
from backstream.runs.results import ApprovalDecision, Audit, Check, CheckOutcome, Severity, Verdict
from backstream.workflow import approval_text, plan_run, publish_run, record_approval, report_run

SINCE_MS = instant_ms("2024-03-01", "since")
CLICKED = [(at("1 05:00"), at("1 05:01"), "A", 0, "home"), (at("1 06:00"), at("1 06:01"), "A", 1, "help")]
REJECTED = ApprovalDecision(is_approved=False, by="ada", at="2024-04-01T12:00:00+00:00")
APPROVED = ApprovalDecision(is_approved=True, by="bob", at="2024-04-01T13:00:00+00:00")


def staged(folder: Path, when: str, trigger: str = "test", gate_override: str = "") -> Plan:
    """A run of one day, all of it staged."""
    write_clicks(folder / "data/a.parquet", CLICKED)
    write_definition(folder, CLICKS + f'\n[approval]\nwhen = "{when}"\n')
    plan = plan_run(
        folder / "clicks.toml",
        SINCE_MS,
        SINCE_MS + DAY_MS,
        trigger=trigger,
        reason="why not",
        gate_override=gate_override,
        home=Home(folder / "home"),
    )
    stage_counts(plan, CLICKED)
    return plan


def judged(plan: Plan, verdict: Verdict, outcome: CheckOutcome = CheckOutcome.PASS) -> Plan:
    """As if the gate had said so."""
    check = Check("no window is empty", "expect_it", Severity.CRITICAL, outcome, "2 of 24")
    audit = Audit(plan.run_id, "suite", verdict, "2 of 24 windows are empty", (check,), plan.gate_override)
    audit.write(plan.folder.audit_result)
    return plan


def reasons(plan: Plan) -> list[tuple[Status, str]]:
    return [(row.status, row.reason) for row in list_runs(Home(Path(plan.home)), plan.dataset)]


@pytest.mark.parametrize(
    ("when", "verdict", "is_asked"),
    [
        ("never", Verdict.WARN, False),
        ("warn", Verdict.PASS, False),
        ("warn", Verdict.WARN, True),
        ("always", Verdict.PASS, True),
        ("restatement", Verdict.WARN, False),
    ],
)
def test_a_person_is_asked_when_the_definition_says_so(
    tmp_path: Path, when: str, verdict: Verdict, *, is_asked: bool
) -> None:
    asked = approval_text(judged(staged(tmp_path, when), verdict))
    assert (asked is not None) is is_asked


def test_a_restatement_is_asked_about_only_when_rows_would_be_others(tmp_path: Path) -> None:
    before = staged(tmp_path, "restatement")
    publish_counts(before, CLICKED)

    same = judged(staged(tmp_path, "restatement", "same"), Verdict.PASS)
    assert approval_text(same) is None

    other = staged(tmp_path, "restatement", "other")
    stage_counts(other, [*CLICKED, (at("1 05:10"), at("1 05:11"), "A", 2, "home")])
    asked = approval_text(judged(other, Verdict.PASS))
    assert asked is not None
    assert "rows     0 added, 0 removed, 1 changed" in asked
    assert f"run {before.run_id} had published different values in 1 rows" in asked


def test_the_question_has_the_verdict_what_was_missed_and_why_it_was_run(tmp_path: Path) -> None:
    asked = approval_text(judged(staged(tmp_path, "always"), Verdict.WARN, CheckOutcome.WARN))
    assert asked is not None
    lines = asked.splitlines()
    assert lines[:2] == [
        "**Verdict warn**: 2 of 24 windows are empty",
        "- warn: no window is empty: 2 of 24",
    ]
    assert lines[-1] == "Reason: why not"


def test_a_rejected_run_ends_in_the_ledger_with_its_report_and_keeps_what_it_staged(tmp_path: Path) -> None:
    plan = judged(staged(tmp_path, "always"), Verdict.PASS)

    record_approval(plan, REJECTED)

    assert reasons(plan) == [(Status.REFUSED, "why not; rejected by ada")]
    assert "rejected by ada; what was staged is kept" in plan.folder.report.read_text()
    with pytest.raises(QualityError, match=r"refusing to publish clicks .*: rejected by ada"):
        publish_run(plan)


def test_who_is_asked_again_may_say_yes_and_nothing_is_computed_twice(tmp_path: Path) -> None:
    plan = judged(staged(tmp_path, "always"), Verdict.PASS)
    record_approval(plan, REJECTED)

    record_approval(plan, APPROVED)

    assert publish_run(plan).rows == 2
    assert reasons(plan)[0] == (Status.PUBLISHED, "why not; approved by bob")


def test_a_failed_gate_lets_nothing_through(tmp_path: Path) -> None:
    plan = judged(staged(tmp_path, "never"), Verdict.FAIL, CheckOutcome.FAIL)
    with pytest.raises(QualityError, match="the verdict is fail"):
        publish_run(plan)


def test_a_failed_gate_is_overridden_with_a_reason_that_report_and_ledger_keep(tmp_path: Path) -> None:
    plan = judged(staged(tmp_path, "never", gate_override="known outage"), Verdict.FAIL, CheckOutcome.FAIL)

    assert publish_run(plan).rows == 2

    assert reasons(plan) == [(Status.PUBLISHED, "why not; quality gate verdict fail overridden: known outage")]
    assert "known outage" in report_run(plan).read_text()


def test_what_could_not_be_checked_is_not_published_whoever_says_so(tmp_path: Path) -> None:
    plan = judged(staged(tmp_path, "never", gate_override="known outage"), Verdict.ERROR, CheckOutcome.ERROR)
    with pytest.raises(QualityError, match="the verdict is error"):
        publish_run(plan)
