"""Check who allows a publication: the quality gate, a user who overrides it, or an approver."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.workflow.history import CLICKS, at, write_clicks, write_definition
from tests.workflow.publishing import publish_counts, stage_counts

from backstream.errors import QualityError
from backstream.eventtime.instants import DAY_MS, instant_ms
from backstream.eventtime.intervals import Interval
from backstream.lake.run_rows import list_runs
from backstream.runs.home import Home
from backstream.runs.manifest import hash_results, load_manifests
from backstream.runs.plan import Plan
from backstream.runs.results import (
    ApprovalDecision,
    ApprovalRequest,
    Audit,
    Check,
    CheckOutcome,
    Severity,
    Verdict,
)
from backstream.runs.status import RunStatus, describe_wait
from backstream.workflow.approval import record_approval, request_approval
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.plan.planning import plan_run
from backstream.workflow.publish import publish_run
from backstream.workflow.report import report_run
from backstream.workflow.status import list_run_states

TASK = ("reprocess_clicks", "manual", "approve")
SINCE_MS = instant_ms("2024-03-01", "since")
CLICKED = [(at("1 05:00"), at("1 05:01"), "A", 0, "home"), (at("1 06:00"), at("1 06:01"), "A", 1, "help")]
REJECTED = ApprovalDecision(is_approved=False, by="ada", at="2024-04-01T12:00:00+00:00")
APPROVED = ApprovalDecision(is_approved=True, by="bob", at="2024-04-01T13:00:00+00:00")


def staged(folder: Path, when: str, trigger: str = "test", gate_override: str = "") -> Plan:
    """Stage a run of one day."""
    write_clicks(folder / "data/a.parquet", CLICKED)
    write_definition(folder, CLICKS + f'\n[approval]\nwhen = "{when}"\n')
    plan = plan_run(
        PlanRequest(
            folder / "clicks.toml",
            Interval(SINCE_MS, SINCE_MS + DAY_MS),
            trigger=trigger,
            reason="why not",
            gate_override=gate_override,
            home=Home(folder / "home"),
        )
    )
    stage_counts(plan, CLICKED)
    return plan


def audited(plan: Plan, verdict: Verdict, outcome: CheckOutcome = CheckOutcome.PASS) -> Plan:
    """Write an audit with this verdict."""
    check = Check("no window is empty", "expect_it", Severity.CRITICAL, outcome, "2 of 24")
    audit = Audit(plan.run_id, "suite", verdict, "2 of 24 windows are empty", (check,), plan.gate_override)
    audit = replace(audit, results=hash_results(load_manifests(plan)))
    audit.write(plan.folder.audit_result)
    return plan


def text_of(plan: Plan) -> str | None:
    """Return the text of the approval request; None if the publication needs none."""
    request = request_approval(plan, *TASK)
    return request.text if request else None


def reasons(plan: Plan) -> list[tuple[RunStatus, str]]:
    return [(row.status, row.reason) for row in list_runs(plan.home, plan.dataset)]


def status_of(plan: Plan) -> RunStatus:
    (run,) = list_run_states(plan.home, plan.dataset)
    return run.state


@pytest.mark.parametrize(
    ("when", "verdict", "is_asked"),
    [
        ("never", Verdict.WARN, False),
        ("warn", Verdict.PASS, False),
        ("warn", Verdict.WARN, True),
        ("always", Verdict.PASS, True),
        ("always", Verdict.FAIL, False),
        ("restatement", Verdict.WARN, False),
    ],
)
def test_the_definition_and_the_verdict_decide_whether_approval_is_requested(
    tmp_path: Path, when: str, verdict: Verdict, *, is_asked: bool
) -> None:
    request = text_of(audited(staged(tmp_path, when), verdict))
    assert (request is not None) is is_asked


def test_a_restatement_needs_an_approval_only_if_rows_change(tmp_path: Path) -> None:
    before = staged(tmp_path, "restatement")
    publish_counts(before, CLICKED)

    same = audited(staged(tmp_path, "restatement", "same"), Verdict.PASS)
    assert text_of(same) is None

    other = staged(tmp_path, "restatement", "other")
    stage_counts(other, [*CLICKED, (at("1 05:10"), at("1 05:11"), "A", 2, "home")])
    request = text_of(audited(other, Verdict.PASS))
    assert request is not None
    assert "**Published rows would change**: 0 added, 0 removed, 1 changed, compared with version 1 of" in request
    assert "- clicks: 1 row, total difference +1" in request
    assert f"- run {before.run_id} had published different values in 1 row" in request


def test_an_approval_request_has_verdict_failed_checks_and_reason(tmp_path: Path) -> None:
    request = text_of(audited(staged(tmp_path, "always"), Verdict.WARN, CheckOutcome.WARN))
    assert request is not None
    lines = request.splitlines()
    assert lines[:2] == [
        "**Verdict warn**: 2 of 24 windows are empty",
        "- warn: no window is empty: 2 of 24",
    ]
    assert lines[-1] == "Reason: why not"


def test_a_run_awaits_its_approval_until_the_approver_decides(tmp_path: Path) -> None:
    plan = audited(staged(tmp_path, "always"), Verdict.PASS)
    statuses = [status_of(plan)]

    request = request_approval(plan, *TASK)
    statuses.append(status_of(plan))
    record_approval(plan, APPROVED)
    statuses.append(status_of(plan))
    publish_run(plan)
    statuses.append(status_of(plan))

    assert statuses == [RunStatus.AUDITED, RunStatus.AWAITING_APPROVAL, RunStatus.AUDITED, RunStatus.PUBLISHED]
    assert ApprovalRequest.find_readable(plan.folder.approval_request) == request


def test_the_request_has_the_limit_of_the_definition_and_both_values_of_the_changed_rows(tmp_path: Path) -> None:
    publish_counts(staged(tmp_path, "always"), CLICKED)
    plan = staged(tmp_path, "always", "other")
    stage_counts(plan, [*CLICKED, (at("1 05:10"), at("1 05:11"), "A", 2, "home")])

    request = request_approval(audited(plan, Verdict.PASS), *TASK)

    assert request is not None
    assert request.until_ms - request.asked_at_ms == DAY_MS
    assert request.rows == {"added": 0, "removed": 0, "changed": 1}
    (changed,) = request.aggregates
    assert changed == {
        "name": "clicks",
        "count": 1,
        "difference": "+1",
        "rows": [
            {
                "window_start": "2024-03-01 05:00",
                "keys": {"page": "home"},
                "published": "1",
                "new": "2",
                "difference": "+1",
            }
        ],
    }


def test_the_approver_has_a_report_that_shows_the_limit_the_changes_and_the_way_to_answer(tmp_path: Path) -> None:
    publish_counts(staged(tmp_path, "always"), CLICKED)
    plan = audited(staged(tmp_path, "always", "manual__1+2"), Verdict.PASS)
    request = request_approval(plan, TASK[0], "manual__1+2", TASK[2])
    (run, *_) = list_run_states(plan.home, plan.dataset)

    assert request is not None
    waits = describe_wait(request)
    assert re.fullmatch(r"waits for approval since \d{4}-.{11,14}, until \d{4}-.{11,14} UTC", waits)
    assert (run.phase, run.dag_id) == (waits, TASK[0])
    assert (run.approval_requested_ms, run.approval_until_ms) == (request.asked_at_ms, request.until_ms)
    report = plan.folder.report.read_text()
    assert f"the run {waits}" in report
    assert "Preview of changes" in report
    assert 'href="approval?dag_id=reprocess_clicks&amp;run_id=manual__1%2B2"' in report

    record_approval(plan, REJECTED)
    assert 'href="approval?' not in plan.folder.report.read_text()


def test_a_rejected_run_waits_again_after_a_new_approval_request(tmp_path: Path) -> None:
    plan = audited(staged(tmp_path, "always"), Verdict.PASS)
    request_approval(plan, *TASK)
    record_approval(plan, REJECTED)
    statuses = [status_of(plan)]

    request_approval(plan, *TASK)
    statuses.append(status_of(plan))

    assert statuses == [RunStatus.REFUSED, RunStatus.AWAITING_APPROVAL]
    with pytest.raises(QualityError, match="rejected by ada"):
        publish_run(plan)


def test_an_answer_counts_if_the_clock_of_the_answering_machine_is_behind(tmp_path: Path) -> None:
    plan = audited(staged(tmp_path, "always"), Verdict.PASS)
    request_approval(plan, *TASK)
    record_approval(plan, APPROVED)
    os.utime(plan.folder.approval, (1, 1))
    assert status_of(plan) is RunStatus.AUDITED


def test_a_run_without_approval_writes_no_request(tmp_path: Path) -> None:
    plan = audited(staged(tmp_path, "never"), Verdict.PASS)

    assert request_approval(plan, *TASK) is None
    assert not plan.folder.approval_request.exists()


def test_a_rejected_run_has_a_ledger_row_and_a_report_and_keeps_its_staged_files(tmp_path: Path) -> None:
    plan = audited(staged(tmp_path, "always"), Verdict.PASS)

    record_approval(plan, REJECTED)

    assert reasons(plan) == [(RunStatus.REFUSED, "why not; rejected by ada")]
    assert "rejected by ada; the staged files are kept" in plan.folder.report.read_text()
    with pytest.raises(QualityError, match=r"refusing to publish clicks .*: rejected by ada"):
        publish_run(plan)


def test_an_approver_may_approve_a_rejected_run_without_a_new_computation(tmp_path: Path) -> None:
    plan = audited(staged(tmp_path, "always"), Verdict.PASS)
    request_approval(plan, *TASK)
    record_approval(plan, REJECTED)

    request_approval(plan, *TASK)
    record_approval(plan, APPROVED)

    assert publish_run(plan).rows == 2
    assert reasons(plan)[0] == (RunStatus.PUBLISHED, "why not; approved by bob")


def test_a_failed_gate_prevents_the_publication(tmp_path: Path) -> None:
    plan = audited(staged(tmp_path, "never"), Verdict.FAIL, CheckOutcome.FAIL)
    with pytest.raises(QualityError, match="the verdict is fail"):
        publish_run(plan)


def test_report_and_ledger_have_the_reason_for_an_override_of_a_failed_gate(tmp_path: Path) -> None:
    plan = audited(staged(tmp_path, "never", gate_override="known outage"), Verdict.FAIL, CheckOutcome.FAIL)

    assert publish_run(plan).rows == 2

    assert reasons(plan) == [(RunStatus.PUBLISHED, "why not; quality gate verdict fail overridden: known outage")]
    assert "known outage" in report_run(plan).read_text()


def test_an_audit_with_an_error_cannot_be_overridden(tmp_path: Path) -> None:
    plan = audited(staged(tmp_path, "never", gate_override="known outage"), Verdict.ERROR, CheckOutcome.ERROR)
    with pytest.raises(QualityError, match="the verdict is error"):
        publish_run(plan)


def test_an_approver_sees_the_rows_of_each_failed_check_with_both_values_and_a_command(tmp_path: Path) -> None:
    plan = staged(tmp_path, "warn")
    row = {
        "source_partition": "A`",
        "window_start": "2024-03-01T06:00Z",
        "expected": "3 events",
        "found": "no event",
    }
    command = "backstream show clicks"
    check = Check("no window is empty", "expect_it", Severity.WARNING, CheckOutcome.WARN, "1 of 24")
    found = replace(check, failing=(row | {"command": command},))
    audit = Audit(plan.run_id, "suite", Verdict.WARN, "1 of 24 windows is empty", (found,))
    replace(audit, results=hash_results(load_manifests(plan))).write(plan.folder.audit_result)

    text = text_of(plan)

    assert text is not None
    assert text.splitlines()[1:3] == [
        "- warn: no window is empty: 1 of 24",
        f"    - `A' 2024-03-01 06:00: expected 3 events, found no event`, `{command}`",
    ]
