from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from backstream import __version__
from backstream.lake.ledger import RunRow, record_checks, record_run, run_row
from backstream.lake.reader import load_rows
from backstream.lake.run_rows import list_runs
from backstream.runs.results import Audit, Check, CheckOutcome, Severity, Verdict
from backstream.runs.status import RunStatus

if TYPE_CHECKING:
    from tests.lake.conftest import Lake

MORNING = RunRow(
    run_id="cli.abc",
    dataset="flights",
    status=RunStatus.PUBLISHED,
    verdict=Verdict.PASS,
    mode="replay",
    since_ms=1359676800000,
    until_ms=1359763200000,
    triggered_by="cli",
    reason="requested",
    definition_hash="d1",
    plan_hash="p1",
    planned_by_version="0.1.0",
    rows=744,
    events_read=24951,
    started_at_ms=1_700_000_000_000,
    finished_at_ms=1_700_000_012_500,
)


def test_a_ledger_without_runs_is_empty(lake: Lake) -> None:
    assert list_runs(lake.home) == []


def test_runs_are_listed_as_recorded_and_newest_first(lake: Lake) -> None:
    evening = replace(
        MORNING,
        run_id="cli.def",
        status=RunStatus.FAILED,
        verdict=None,
        rows=None,
        finished_at_ms=1_700_000_999_000,
    )
    other = replace(MORNING, run_id="cli.ghi", dataset="clicks", finished_at_ms=1_700_000_500_000)
    for row in (MORNING, evening, other):
        record_run(lake.home, row)

    assert list_runs(lake.home) == [evening, other, MORNING]
    assert list_runs(lake.home, "flights") == [evening, MORNING]
    assert list_runs(lake.home, "nothing") == []


def test_the_same_outcome_of_a_run_is_recorded_once(lake: Lake) -> None:
    assert record_run(lake.home, MORNING)
    assert not record_run(lake.home, replace(MORNING, finished_at_ms=1_700_000_020_000))
    assert list_runs(lake.home) == [MORNING]


def test_a_published_run_has_no_other_outcome_after_it(lake: Lake) -> None:
    refused = replace(MORNING, status=RunStatus.REFUSED, finished_at_ms=1_600_000_000_000)
    assert record_run(lake.home, refused)
    assert record_run(lake.home, MORNING)
    for status in (RunStatus.FAILED, RunStatus.REFUSED):
        assert not record_run(lake.home, replace(MORNING, status=status, finished_at_ms=1_700_000_030_000))

    assert list_runs(lake.home) == [MORNING, refused]


def test_the_table_of_runs_is_readable_without_us(lake: Lake) -> None:
    record_run(lake.home, MORNING)

    (row,) = load_rows(lake.home, "runs").select(["since", "until", "seconds", "verdict"]).to_pylist()

    assert (row["since"].isoformat(), row["until"].isoformat(), row["seconds"], row["verdict"]) == (
        "2013-02-01T00:00:00+00:00",
        "2013-02-02T00:00:00+00:00",
        12.5,
        "pass",
    )


def test_a_row_has_the_fields_of_the_plan(lake: Lake) -> None:
    plan = lake.plan("2013-02-01", "2013-02-02", "cli")

    row = run_row(plan, RunStatus.REFUSED, (1_000, 3_000), Verdict.FAIL, events_read=7)

    assert row == RunRow(
        run_id=plan.run_id,
        dataset="flights",
        status=RunStatus.REFUSED,
        verdict=Verdict.FAIL,
        mode="recompute",
        since_ms=1359676800000,
        until_ms=1359763200000,
        triggered_by="cli",
        reason="",
        definition_hash="d1",
        plan_hash=plan.plan_hash,
        planned_by_version="0.1.0",
        rows=None,
        events_read=7,
        started_at_ms=1_000,
        finished_at_ms=3_000,
        finished_by_version=__version__,
    )
    assert row.seconds == 2.0


def test_each_check_of_an_audit_is_one_row_once(lake: Lake) -> None:
    checks = (
        Check("complete", "column_min", Severity.CRITICAL, CheckOutcome.PASS, "1.0", "completeness", ">= 1"),
        Check(
            "late", "column_max", Severity.WARNING, CheckOutcome.WARN, "0.07", limit="<= 0.05", unexpected_count=3
        ),
    )
    audit = Audit("cli.abc", "window_audit", Verdict.WARN, "late events", checks)

    assert record_checks(lake.home, "flights", audit)
    assert not record_checks(lake.home, "flights", audit)

    found = load_rows(lake.home, "checks").select(
        ["run_id", "dataset", "verdict", "name", "severity", "outcome", "column", "unexpected_count"]
    )
    assert found.to_pylist() == [
        {
            "run_id": "cli.abc",
            "dataset": "flights",
            "verdict": "warn",
            "name": "complete",
            "severity": "critical",
            "outcome": "pass",
            "column": "completeness",
            "unexpected_count": 0,
        },
        {
            "run_id": "cli.abc",
            "dataset": "flights",
            "verdict": "warn",
            "name": "late",
            "severity": "warning",
            "outcome": "warn",
            "column": None,
            "unexpected_count": 3,
        },
    ]


def test_an_audit_without_checks_leaves_no_row(lake: Lake) -> None:
    assert not record_checks(lake.home, "flights", Audit("cli.abc", "s", Verdict.ERROR, "nothing ran", ()))
