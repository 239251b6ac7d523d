"""Test the report command without Spark: two publications, an audit, and the report in each format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.report.page import text
from tests.workflow.history import at, planned, write_clicks, write_definition
from tests.workflow.publishing import publish_counts
from typer.testing import CliRunner, Result

from backstream.cli import app
from backstream.definition.loader import parse_definition
from backstream.lake.ledger import record_checks, record_run
from backstream.lake.run_rows import ledger_row
from backstream.runs.manifest import load_manifests
from backstream.runs.plan import Plan
from backstream.runs.results import Audit, Check, CheckOutcome, Severity, Verdict
from backstream.runs.status import RunStatus
from backstream.variables import CATALOG_VARIABLE, HOME_VARIABLE
from backstream.workflow.audit import load_staged_results

Click = tuple[object, ...]
Runs = tuple[Path, Plan, Plan]
"""Folder of all state, and two runs."""
FIRST: list[Click] = [
    (at("1 05:10"), at("1 05:12"), "A", 0, "home"),
    (at("1 06:20"), at("1 06:20"), "A", 1, "home"),
]
LATER: list[Click] = [(at("1 05:40"), at("1 08:00"), "A", 2, "home")]


def published(folder: Path, definition: Path, clicks: list[Click]) -> Plan:
    plan = planned(folder, definition)
    publish_counts(plan, clicks)
    check = Check("counted once", "expect", Severity.CRITICAL, CheckOutcome.WARN, "all do")
    audit = Audit(plan.run_id, "window_audit", Verdict.WARN, "a sentence", (check,))
    audit.write(plan.folder.audit_result)
    record_checks(plan.home, plan.dataset, audit)
    record_run(plan.home, ledger_row(plan, RunStatus.PUBLISHED, audit, len(clicks)))
    return plan


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Publish a run, and another one after a late file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(CATALOG_VARIABLE, raising=False)
        folder = tmp_path_factory.mktemp("reported")
        write_clicks(folder / "data" / "first.parquet", FIRST)
        definition = write_definition(folder)
        first = published(folder, definition, FIRST)
        write_clicks(folder / "data" / "later.parquet", LATER)
        return folder, first, published(folder, definition, FIRST + LATER)


@pytest.fixture(autouse=True)
def installation(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the home of the command."""
    monkeypatch.setenv(HOME_VARIABLE, str(runs[0] / "home"))
    monkeypatch.setenv("BACKSTREAM_DEFINITIONS", str(runs[0]))
    monkeypatch.delenv(CATALOG_VARIABLE, raising=False)


def told(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "250", "NO_COLOR": "1"}).invoke(app, ["report", *arguments])


def test_a_report_shows_the_changes_against_the_published_version(runs: Runs) -> None:
    seen = text(told(runs[2].run_id, "--format", "html").stdout)

    assert "0 rows added, 0 rows removed, 1 row changed, compared with version 1 of 2" in seen
    assert f"Run {runs[1].run_id} had published other values in 1 row." in seen
    assert "2024-03-01 05:00 home 1 2 +1" in seen
    assert not runs[2].folder.report.exists()


def test_a_first_publication_has_nothing_to_compare(runs: Runs) -> None:
    seen = text(told(runs[1].run_id, "--format", "html").stdout)

    assert "No comparison: nothing had been published in this range before." in seen


def test_a_report_counts_how_long_the_recorded_rows_took_to_arrive(runs: Runs) -> None:
    seen = text(told(runs[2].run_id, "--format", "html").stdout)

    assert "Share of the 3 records of the range, duplicates included" in seen
    assert "50 % 2 min after event time" in seen
    assert "100 % 2 h 20 min after event time." in seen


def test_a_report_shows_past_runs_and_past_results_of_each_check(runs: Runs) -> None:
    html = told(runs[2].run_id, "--format", "html").stdout

    assert "Previous runs" in text(html)
    assert html.count('aria-label="Previous 1 run: Warning"') == 1


def test_a_report_shows_that_its_input_files_cannot_be_read(runs: Runs) -> None:
    file = runs[0] / "data" / "later.parquet"
    file.rename(file.with_suffix(".gone"))
    try:
        seen = text(told(runs[2].run_id, "--format", "html").stdout)
    finally:
        file.with_suffix(".gone").rename(file)

    assert "No arrival delays: the input files cannot be read: FileNotFoundError." in seen


def test_report_accepts_a_run_or_a_dataset_and_prints_markdown_or_json(runs: Runs) -> None:
    assert told(runs[1].run_id, "--format", "md").stdout.startswith("### ⚠️ clicks, 1 Mar 2024")
    newest = json.loads(told("clicks", "--format", "json").stdout)
    assert (newest["run_id"], newest["changed"]["changed"]) == (runs[2].run_id, 1)


def test_report_without_a_format_writes_the_page_and_prints_its_path(runs: Runs) -> None:
    result = told(runs[1].run_id)

    assert result.stdout.splitlines()[-1] == f"report     {runs[1].folder.report}"
    assert runs[1].folder.report.exists()


def test_what_is_neither_a_run_nor_a_definition_is_refused(runs: Runs) -> None:
    result = told("cli.unknown")

    assert result.exit_code == 1
    assert result.stderr == f"error: no definition and no run 'cli.unknown' in {runs[0]}/home, which has 2 runs\n"


def test_the_staged_rows_of_each_chunk_are_read_by_key_and_window(runs: Runs) -> None:
    plan = runs[2]

    (rows,) = load_staged_results(parse_definition(plan.definition, "plan"), load_manifests(plan))

    assert rows.column_names == ["page", "window_start", "window_end", "record_count"]
    assert rows["page"].to_pylist() == ["home", "home"]
