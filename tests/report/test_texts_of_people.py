"""Test that a text of a person or of data is one visible line wherever it is printed, logged, or shown."""

from __future__ import annotations

import asyncio
import csv
import io
import logging
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from tests.browser.seed import check, frame_of, leave
from tests.browser.visits import DAY_MS_OF_VISITS, WINDOW, write_definition
from tests.workflow.history import at, write_clicks
from tests.workflow.publishing import publish_counts, stage_counts
from typer.testing import CliRunner

from backstream.cli import app
from backstream.errors import SpecError
from backstream.eventtime.instants import DAY_MS
from backstream.eventtime.intervals import Interval
from backstream.lake.run_rows import list_runs
from backstream.pages import lists, views
from backstream.pages.airflow import RejectedError
from backstream.pages.decisions import approval_page
from backstream.pages.explanation import explanation_page
from backstream.pages.filters import Filter
from backstream.pages.reprocess import ReprocessForm
from backstream.pages.run import ShownRun, run_page
from backstream.pages.runs import RunAddress
from backstream.pages.store import PageStore
from backstream.report.failing_rows import failing_lines
from backstream.runs.home import Home
from backstream.runs.manifest import hash_results, load_manifests
from backstream.runs.plan import Mode
from backstream.runs.results import ApprovalRequest, Audit, CheckOutcome, LaterAudit, Severity, Verdict
from backstream.runs.status import RunStatus
from backstream.text import ReportFormat, print_text, text_logger, visible_line, visible_text
from backstream.variables import HOME_VARIABLE
from backstream.workflow.approval import request_approval
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.plan.planning import plan_run
from backstream.workflow.report import load_run_summary, report_text
from backstream.workflow.status import list_run_states

HIDDEN = "\x1b[31m\u202e\x00\u2028\x85"
MARK = f"first\nsecond{HIDDEN}"
LONG = MARK + "z" * 5_000
FILE = "late\nfile\x1b[31m\u202e.parquet"
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]")
MAX_LINE = 2_500
DAG_ID = "backfill_visits"
DAYS = ("--since", "2024-03-01", "--until", "2024-03-02")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """Publish a day whose reason, run id, key, file, partition, and checks are hostile, and add a late file."""
    folder = tmp_path_factory.mktemp("texts")
    home = Home(folder / "home")
    (folder / "definitions").mkdir()
    definition = write_definition(folder / "definitions")
    rows = [(at(f"1 {hour:02}:10"), at(f"1 {hour:02}:11"), LONG, hour, LONG) for hour in range(12)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(HOME_VARIABLE, str(home.path))
        write_clicks(home.path / "data/visits" / FILE, rows)
        interval = Interval(DAY_MS_OF_VISITS, DAY_MS_OF_VISITS + DAY_MS)
        asked = PlanRequest(definition, interval, trigger=LONG, home=home, reason=LONG, mode=Mode.RECOMPUTE)
        plan = plan_run(asked)
        publish_counts(plan, rows)
        checks = [check(LONG, CheckOutcome.FAIL, LONG, Severity.WARNING)]
        frame = frame_of(interval.start_ms, interval.end_ms, ["2024-03-01"], ("A", LONG))
        leave(home, plan, frame, RunStatus.PUBLISHED, checks, interval.end_ms)
        write_clicks(home.path / "data/visits" / f"new{FILE}", rows[:1])
    return home


@pytest.fixture(autouse=True)
def project(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(home.path))
    monkeypatch.setenv("BACKSTREAM_DEFINITIONS", str(home.path.parent / "definitions"))


def require_visible(text: str, what: str = "") -> None:
    """Check that a text has no hidden character, no absurdly long line, and no second half of a text as a line."""
    assert RAW.findall(text) == [], what
    assert [len(line) for line in text.splitlines() if len(line) > MAX_LINE and "<" not in line[:1]] == [], what
    assert not re.search(r"^second", text, re.MULTILINE), what


COMMANDS = (
    ("status",),
    ("status", "visits"),
    ("days", "visits", *DAYS),
    ("stale", "visits"),
    ("show", "visits", *DAYS),
    ("diff", "visits"),
    ("plan", "visits", *DAYS, "--reason", LONG),
    ("report", "visits", "--format", "md"),
    ("explain", "visits", "--window", WINDOW),
    ("explain", "visits", "--window", WINDOW, "--key", f"page={LONG}"),
    ("status", LONG),
    ("show", LONG),
    ("report", MARK, "--format", "md"),
    ("rollback", MARK),
    ("diff", MARK),
    ("preview", "visits", *DAYS),
    ("check", "visits"),
    ("verify", "visits"),
    ("audit", "visits"),
    ("audit", MARK),
    ("advise", "visits", *DAYS),
    ("advise", MARK, *DAYS),
    ("reconcile", "visits", "--against", MARK),
    ("verify", MARK),
)


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda each: " ".join(each)[:30].encode("ascii", "replace"))
def test_every_command_prints_visible_lines(arguments: tuple[str, ...]) -> None:
    done = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}).invoke(app, [*arguments])
    require_visible(done.output, " ".join(arguments)[:40])
    assert "Traceback" not in done.output


PAGES: dict[str, Callable[[PageStore], str]] = {
    "overview": lambda store: lists.overview_page(store, {DAG_ID}).html,
    "runs": lambda store: lists.runs_page(store, {DAG_ID}, DAG_ID).html,
    "checks": lambda store: lists.checks_page(store, DAG_ID).html,
    "dataset": lambda store: views.windows_page(store, DAG_ID, may_run=True).html,
    "day": lambda store: views.day_page(store, DAG_ID, "2024-03-01", may_run=True).html,
    "watermark": lambda store: views.watermark_page(store, DAG_ID, LONG).html,
    "explain": lambda store: explanation_page(store, DAG_ID, WINDOW, ()).html,
    "run": lambda store: run_page(_shown(store), may_edit=True, problem=HIDDEN).html,
    "approval": lambda store: approval_page(store, _asking(store), may_answer=True, problem=HIDDEN).html,
    "not asked": lambda store: approval_page(store, RunAddress(LONG, LONG, LONG), may_answer=True).html,
    "unknown": lambda store: explanation_page(store, DAG_ID, LONG, (LONG,)).html,
}


def _shown(store: PageStore) -> ShownRun:
    """Return the published run, as its page gets it."""
    (state,) = list_run_states(store.home, "visits", 1)
    address = RunAddress.from_state(state)
    others = (replace(state, error=HIDDEN, not_read=LONG, later_audit=LONG, by=LONG, task_group=LONG),)
    return ShownRun(address, "visits", others[0], None, None, others)


def _asking(store: PageStore) -> RunAddress:
    """Return the address of the run, which has asked an approver."""
    (state,) = list_run_states(store.home, "visits", 1)
    numbers: dict[str, Any] = {
        "rows": {LONG: 1},
        "aggregates": [{"name": LONG, "count": 1, "difference": LONG, "rows": []}],
    }
    texts: dict[str, Any] = {"text": LONG, "finding": LONG, "against": LONG, "verdict": "warn"}
    address = RunAddress.from_state(state)
    request = ApprovalRequest(address.dag_id, address.run_id, LONG, 0, 0, **texts, **numbers)
    Audit(state.run_id, LONG, Verdict.WARN, LONG, ()).write(store.home.run("visits", state.run_id).audit_result)
    request.write(store.home.run("visits", state.run_id).approval_request)
    return address


class FormOfAirflow:
    """The parameters of a DAG, as Airflow's API has them: all are texts."""

    async def form(self, name: str) -> ReprocessForm:
        """Return the form of a dataset."""
        names = ("since", "until", "time_zone", "reason", "mode", "delay", "chunk", "gate_override")
        schema = {"type": ["null", "string"], "maxLength": 500, "title": LONG}
        return ReprocessForm(
            f"reprocess_{name}",
            {each: {"value": None, "schema": schema, "description": LONG} for each in names},
        )

    async def start_run(self, dag_id: str, conf: dict[str, Any]) -> str:
        """Start no run: Airflow refuses it with what it was given, of which the client takes the first line."""
        msg = f"{dag_id} {conf} {HIDDEN}".partition("\n")[0]
        raise RejectedError(msg, 400)


@pytest.mark.parametrize("field", ["since", "time_zone", "mode", "delay", "chunk", "no field", "reason"])
def test_the_form_shows_visible_lines_except_for_the_entered_values(home: Home, field: str) -> None:
    days = dict(zip(("since", "until"), DAYS[1::2], strict=True))
    typed = days | {"reason": "late", field: LONG}
    html = asyncio.run(views.started_page(DAG_ID, cast("Any", FormOfAirflow()), typed, home)).html
    said = re.sub(r'(<textarea[^>]*>).*?(?=</textarea>)|value="[^"]*"', r"\1", html, flags=re.DOTALL)
    assert "textarea" in said
    require_visible(said, field)
    assert "&lt;U+202E&gt;" in said


def test_the_question_for_an_approver_in_airflow_has_visible_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, definition = Home(tmp_path / "home"), write_definition(tmp_path)
    monkeypatch.setenv(HOME_VARIABLE, str(home.path))
    definition.write_text(definition.read_text() + '\n[approval]\nwhen = "always"\n')
    rows = [(at("1 05:10"), at("1 05:11"), LONG, 1, LONG)]
    write_clicks(home.path / "data/visits" / FILE, rows)
    interval = Interval(DAY_MS_OF_VISITS, DAY_MS_OF_VISITS + DAY_MS)
    asked = PlanRequest(definition, interval, trigger=LONG, home=home, reason=LONG, gate_override=LONG)
    plan = plan_run(asked)
    stage_counts(plan, rows)
    failed = check(LONG, CheckOutcome.FAIL, LONG, Severity.CRITICAL)
    results = hash_results(load_manifests(plan))
    Audit(plan.run_id, LONG, Verdict.FAIL, LONG, (failed,), overridden=LONG, results=results).write(
        plan.folder.audit_result
    )

    request = request_approval(plan, LONG, LONG, LONG)

    assert request is not None
    require_visible(request.text)
    assert "<U+202E>" in request.text


@pytest.mark.parametrize("name", PAGES)
def test_every_page_shows_visible_lines(home: Home, name: str) -> None:
    html = PAGES[name](PageStore.from_home(home))
    assert RAW.findall(html) == []
    assert "z" * 4_000 not in html
    assert not re.search(r"^second", html, re.MULTILINE)


def test_the_texts_are_on_the_pages_and_in_the_lists_at_all(home: Home) -> None:
    escaped = visible_line(MARK, 1_000).replace("<", "&lt;").replace(">", "&gt;")
    assert escaped in PAGES["runs"](PageStore.from_home(home))
    assert escaped in PAGES["checks"](PageStore.from_home(home))
    assert visible_line(MARK) in CliRunner().invoke(app, ["status"]).output


def test_files_and_the_ledger_keep_what_was_given(home: Home) -> None:
    assert {run.reason for run in list_runs(home, "visits")} == {LONG}


@pytest.mark.parametrize("name", ["runs", "checks"])
def test_a_cell_of_a_csv_file_is_one_visible_line(home: Home, name: str) -> None:
    store = PageStore.from_home(home)
    runs = lists.runs_csv(store, {DAG_ID}, DAG_ID, Filter())
    file = runs if name == "runs" else lists.checks_csv(store, DAG_ID)
    assert file is not None
    assert visible_line(MARK) in file.text
    assert RAW.findall(file.text.replace("\r\n", "\n")) == []
    assert {"\n" in cell for row in csv.reader(io.StringIO(file.text)) for cell in row} == {False}


def test_messages_and_reports_have_visible_lines(home: Home) -> None:
    from backstream.runs.store import Runs

    plan = Runs(home).plan_of_id(list_runs(home, "visits")[0].run_id)
    summary = load_run_summary(plan)
    require_visible(summary.markdown(), "markdown")
    LaterAudit(LONG, Verdict.FAIL, LONG, "", LONG).write(plan.folder.later_audit)
    require_visible(report_text(plan, ReportFormat.MD), "later audit")
    html = report_text(plan, ReportFormat.HTML)
    assert "udged again on first" in html
    assert RAW.findall(html) == []
    lines = failing_lines(Audit.read(plan.folder.audit_result), 1, "visits", "http://airflow")
    require_visible("\n".join(lines), "message")


def test_logs_prints_and_errors_have_visible_texts(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.INFO):
        text_logger("backstream.test").info("%s of %d: %s", HIDDEN, 3, SpecError(MARK))
    print_text(HIDDEN, MARK)
    for text in (caplog.messages[0], capsys.readouterr().out, str(SpecError(HIDDEN)), visible_text(HIDDEN)):
        assert RAW.findall(text) == []
        assert "<U+202E>" in text
    assert " of 3: first" in caplog.messages[0]


def test_no_module_prints_or_logs_without_the_function() -> None:
    package = Path(__file__).parents[2] / "pipelines/backstream"
    machine = re.compile(r"json|_csv_text|json_schema")
    found = [
        f"{file.relative_to(package)}: {line.strip()}"
        for file in package.rglob("*.py")
        if file.name != "text.py"
        for line in file.read_text("utf-8").splitlines()
        if (re.search(r"(?<![\w.`])print\(", line) and not machine.search(line) and "`print(" not in line)
        or re.search(r"= logging\.getLogger\(|\bself\.log\.", line)
    ]
    assert found == []
