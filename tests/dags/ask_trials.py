"""Questions about what people do in Airflow: they mark, clear, and delete, and repeat run ids."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from tests.dags.answers import raised
from tests.workflow.conftest import LENIENT
from tests.workflow.history import CLICKS, COLUMNS, at, write_clicks, write_definition
from tests.workflow.publishing import stage_counts

CLICKED = [(at(f"{day} 05:00"), at(f"{day} 05:01"), "A", day, "home") for day in range(1, 4)]
LATE = [(at("1 06:00"), at("9 06:00"), "A", 9, "late"), (at("1 07:00"), at("9 07:00"), "A", 10, "late")]
FORM = {"since": "2024-03-01T00:00:00Z", "until": "2024-03-02T00:00:00Z", "reason": "first"}
THIRD_DAY = {"since": "2024-03-03T00:00:00Z", "until": "2024-03-04T00:00:00Z", "reason": "third"}
RAW = """\
[source]
format = "json"
columns = { happened_at = "string", arrived_at = "string", origin = "string", seq = "long", page = "string" }"""
STRICT = LENIENT | {
    "name": "strict",
    "expectations": [
        {
            "type": "expect_column_values_to_be_between",
            "description": "nothing was read",
            "severity": "critical",
            "kwargs": {"column": "unaccounted", "min_value": 5},
            "meta": {"frame": "run"},
        }
    ],
}


@dataclass
class Store:
    """The state of a task that Airflow keeps with its Dag run."""

    values: dict[str, Any] = field(default_factory=dict)

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value."""
        return self.values.get(key, default)

    def set(self, key: str, value: Any, *, retention: Any = None) -> None:
        """Keep a value."""
        self.values[key] = value


@dataclass
class Project:
    """A folder with clicks of three days, their definition, and a home."""

    folder: Path
    is_raw: bool = False

    def __post_init__(self) -> None:
        (self.folder / "data").mkdir(parents=True)
        self.write("a", CLICKED)
        (self.folder / "suites").mkdir()
        self.judge_with(LENIENT)
        os.environ["BACKSTREAM_HOME"] = str(self.folder / "home")
        os.environ["BACKSTREAM_DEFINITIONS"] = str(self.folder)
        os.environ["BACKSTREAM_EXPECTATIONS"] = str(self.folder / "suites")
        os.environ.pop("BACKSTREAM_CATALOG_URI", None)

    def judge_with(self, suite: dict[str, Any]) -> None:
        """Write the suite of the definition."""
        (self.folder / "suites/own.json").write_text(json.dumps(suite | {"name": "own"}))

    def write(self, name: str, clicks: list[Any]) -> None:
        """Write an input file: Parquet, or lines of JSON, which a run prepares."""
        if not self.is_raw:
            write_clicks(self.folder / f"data/{name}.parquet", clicks)
            return
        lines = [json.dumps(dict(zip(COLUMNS, click, strict=True)), default=str) for click in clicks]
        (self.folder / f"data/{name}.jsonl").write_text("\n".join(lines) + "\n")

    def remove(self, name: str) -> None:
        """Remove an input file, if it is there."""
        for file in (self.folder / "data").glob(f"{name}.*"):
            file.unlink()

    def define(self, when: str, **lines: str) -> Path:
        """Write the definition with a policy of approval."""
        raw = RAW if self.is_raw else "[source]"
        rest = f'\n[quality]\nsuite = "own"\n\n[approval]\nwhen = "{when}"\n\n[backfill]\nrunner = "local"\n'
        text = CLICKS.replace("[source]", raw) + rest
        return write_definition(self.folder, text, **lines)

    @property
    def home(self) -> Any:
        """The home."""
        from backstream.runs.home import Home

        return Home(self.folder / "home")

    def rows(self) -> list[list[Any]]:
        """Return the ledger, oldest first: status, verdict, rows, reason, and error."""
        from backstream.lake.run_rows import list_runs

        found = reversed(list_runs(self.home, "clicks"))
        return [[row.status.value, row.verdict, row.rows, row.reason, row.error] for row in found]

    def states(self) -> list[list[Any]]:
        """Return what `backstream status` lists, oldest first: DAG, status, verdict, and error."""
        from backstream.workflow.status import list_run_states

        found = reversed(list_run_states(self.home, "clicks"))
        return [[run.dag_id, run.state.value, run.verdict, run.error] for run in found]

    def published(self) -> int:
        """Return the number of published rows."""
        from backstream.errors import BackstreamError
        from backstream.eventtime.instants import instant_ms
        from backstream.eventtime.intervals import Interval
        from backstream.lake.reader import load_rows

        march = Interval(instant_ms("2024-03-01", "since"), instant_ms("2024-04-01", "until"))
        try:
            return int(load_rows(self.home, "clicks", march).num_rows)
        except BackstreamError:
            return 0

    def story(self) -> list[str]:
        """Return the titles of the story of March 1."""
        from backstream.eventtime.instants import instant_ms
        from backstream.lake.run_rows import list_runs
        from backstream.pages.datasets import load_datasets
        from backstream.pages.day_story import list_day_events
        from backstream.pages.store import PageStore

        records = PageStore.from_home(self.home)
        (dataset,) = load_datasets(records, {"backfill_clicks"})
        day_ms = instant_ms("2024-03-01", "day")
        revisions = [row for row in list_runs(self.home, "clicks") if row.since_ms <= day_ms < row.until_ms]
        events = list_day_events(records, dataset, day_ms, revisions, {})
        return [event.title for event in events]


@dataclass
class Run:
    """A Dag run, as Airflow creates it; each method is a task that runs once."""

    project: Project
    path: Path
    run_id: str = "same"
    form: dict[str, Any] = field(default_factory=lambda: FORM)
    kind: str = "reprocess"
    store: Store = field(default_factory=Store)
    file: str = ""
    log: str = ""
    group: str = ""
    pushed: dict[str, Any] = field(default_factory=dict)

    @property
    def dag_id(self) -> str:
        """The DAG."""
        return f"{self.kind}_clicks"

    def plan(self, **changed: Any) -> Any:
        """Execute the task `plan`, and return the plan."""
        from backstream.orchestration import tasks as ours

        request = self.form | changed if self.group else None
        with self._heard():
            self.pushed["batches"] = ours.execute_plan(
                self.path, "clicks", self._context("plan", **changed), request
            )
        self.file = self.pushed[ours.PLAN_KEY]
        return self.planned

    def prepare(self) -> None:
        """Execute the task `prepare`, with its job in threads of this process, as for each small run."""
        from backstream.jobs import prepare as job
        from backstream.orchestration.requests import record_request, trigger_of

        context = self._context("prepare")
        options = SimpleNamespace(definition=self.path, since=None)
        with record_request(context, "clicks", self.form, trigger_of(context)), redirect_stdout(io.StringIO()):
            job._prepare(cast("Any", options))  # noqa: SLF001 - without the end of the process

    def compute(self) -> None:
        """Execute the task `replay`, with its job in this process."""
        from backstream.jobs import replay as job

        with redirect_stdout(io.StringIO()):
            chunk_ids = [chunk.chunk_id for chunk in self.planned.chunks]
            job._replay_plan(self.file, chunk_ids, has_catalog=True)  # noqa: SLF001 - as above

    def _context(self, task: str, **changed: Any) -> dict[str, Any]:
        from backstream.definition.loader import load_definition
        from backstream.orchestration import dags

        build = dags.backfill_dag if self.kind == "backfill" else dags.reprocess_dag
        dag = build(load_definition(self.path), self.path)

        def push(key: str, value: Any) -> None:
            self.pushed[key] = value

        pull = lambda *, key, **_: self.pushed.get(key)  # noqa: E731
        task_id = f"{self.group}.{task}".lstrip(".")
        ti = SimpleNamespace(task_id=task_id, dag_id=self.dag_id, xcom_push=push, xcom_pull=pull)
        has_task = lambda _: self.project.is_raw  # noqa: E731
        own = SimpleNamespace(dag_id=self.dag_id, params=dag.params, has_task=has_task)
        ends = {name: self.form[name] for name in ("since", "until")} if self.kind == "backfill" else {}
        form = dag.params.dump() | {name: self.form[name] for name in self.form.keys() - ends} | changed
        context = {"params": form, "dag": own, "run_id": self.run_id, "ti": ti, "task_state_store": self.store}
        if ends:
            start, end = (datetime.fromisoformat(value) for value in ends.values())
            context |= {"data_interval_start": start, "data_interval_end": end}
        return context | {"dag_run": SimpleNamespace()}

    @property
    def planned(self) -> Any:
        """The plan."""
        from backstream.runs.plan import Plan

        return Plan.load(self.file)

    def replay(self, clicks: list[Any] | None = None) -> None:
        """Stage what the jobs of `replay` leave."""
        stage_counts(self.planned, clicks or CLICKED)

    def audit(self) -> str:
        """Execute the task `audit`, and return the verdict."""
        from backstream.orchestration import tasks as ours

        with self._heard():
            return ours.execute_audit(self.path, self.file)

    def ask(self) -> Any:
        """Execute the task `approve` up to its question; None if it asks none."""
        from backstream.orchestration import tasks as ours
        from backstream.workflow.approval import request_approval

        with self._heard(), ours.fail_without_retry():
            return request_approval(self.planned, self.dag_id, self.run_id, f"{self.group}.approve".lstrip("."))

    def answer(self, *, is_approved: bool = True, by: str = "ada") -> None:
        """Execute the end of the task `approve`, after an answer, or without one in time: then `by` is empty."""
        from backstream.runs.results import ApprovalDecision
        from backstream.workflow.approval import record_approval

        record_approval(self.planned, ApprovalDecision(is_approved, by, "2024-04-01T12:00:00+00:00"))

    def publish(self, *, is_killed: bool = False) -> int:
        """Execute the task `publish`, and return the number of its asset events.

        With `is_killed`, its process is killed before Airflow has accepted its success.
        """
        from airflow.sdk import Asset

        from backstream.orchestration import run_ends
        from backstream.orchestration.run_operators import PublishOperator

        assets = Asset("clicks", "backstream://clicks"), Asset("clicks.days", "backstream://clicks/days")
        days = SimpleNamespace(extra={}, keys=[])
        days.add_partitions = days.keys.extend
        events = defaultdict(lambda: SimpleNamespace(extra={}), {assets[1]: days})
        task = PublishOperator(
            task_id="publish", asset=assets[0], days=assets[1], plan_path=self.file, definition_path=str(self.path)
        )
        with self._heard():
            task.execute({"outlet_events": events})
        if not is_killed:
            run_ends.on_task_instance_success(SimpleNamespace(task=task, task_id=task.task_id))
        return len(task.outlets)

    def report(self) -> str:
        """Execute the task `report`, and return the report."""
        from backstream.orchestration import tasks as ours

        with self._heard():
            return Path(ours.execute_report(self.path, self.file)).read_text()

    def whole(self) -> Run:
        """Execute all tasks, without an approval."""
        self.plan()
        self.replay()
        self.audit()
        self.publish()
        self.report()
        return self

    @contextmanager
    def _heard(self) -> Iterator[None]:
        from backstream.orchestration import tasks as ours

        heard = io.StringIO()
        handler = logging.StreamHandler(heard)
        ours.log.logger.addHandler(handler)
        ours.log.setLevel(logging.INFO)
        try:
            yield
        finally:
            ours.log.logger.removeHandler(handler)
            self.log = heard.getvalue()


def marked(folder: str) -> Any:
    """Return what follows if tasks are marked as success in place of their work."""
    told: dict[str, Any] = {}
    for name, before in _MARKED.items():
        project = Project(Path(folder) / name)
        run = Run(project, project.define(name.partition(" ")[0]))
        run.plan()
        before(run)
        told[name] = [*raised(run.publish), project.published(), project.rows(), project.states()[-1][1:]]
    return told


def pages(folder: str) -> Any:
    """Write the page of the run of each fault of `marked` as a file, as it is after the refusal.

    Returns for each its status, the file, and the error in the ledger.
    """
    from backstream.pages.airflow import RejectedError
    from backstream.pages.run import load_run, run_page
    from backstream.pages.runs import RunAddress
    from backstream.pages.store import PageStore

    class Gone:
        async def dag_run(self, *_: str) -> Any:
            msg = "Airflow shows no such run"
            raise RejectedError(msg, 403)

    told: dict[str, Any] = {}
    for name, before in _MARKED.items():
        project = Project(Path(folder) / name)
        run = Run(project, project.define(name.partition(" ")[0]))
        run.plan()
        before(run)
        _, error = raised(run.publish)
        store = PageStore.from_home(project.home)
        shown = asyncio.run(load_run(store, RunAddress(run.dag_id, run.run_id), cast("Any", Gone())))
        page = run_page(shown, may_edit=True)
        file = Path(folder) / f"{name}.html"
        file.write_text(page.html)
        told[name] = [page.status, str(file), error]
    return told


def _audited(run: Run) -> None:
    run.replay()
    run.audit()


def _asked(run: Run) -> None:
    _audited(run)
    run.ask()


def _approved(run: Run) -> None:
    _asked(run)
    run.answer()


def _rejected_and_asked_again(run: Run) -> None:
    _asked(run)
    run.answer(is_approved=False)
    run.ask()


def _approved_then_judged_otherwise(run: Run) -> None:
    _approved(run)
    (check,) = cast("list[dict[str, Any]]", LENIENT["expectations"])
    kwargs = {"column": "unaccounted", "min_value": 5}
    warning = check | {"severity": "warning", "description": "much is lost", "kwargs": kwargs}
    run.project.judge_with(LENIENT | {"expectations": [check, warning]})
    run.audit()


def _audited_then_staged_again(run: Run) -> None:
    _audited(run)
    run.replay([*CLICKED, (at("1 05:10"), at("1 05:11"), "A", 7, "home")])


def _over_published_rows(run: Run) -> None:
    other = Run(run.project, run.path, "other", THIRD_DAY | {"since": "2024-03-01T00:00:00Z"})
    other.plan()
    other.replay([*CLICKED, (at("1 05:10"), at("1 05:11"), "A", 7, "home")])
    other.audit()
    other.publish()
    run.plan()
    _audited(run)


_MARKED: dict[str, Callable[[Run], Any]] = {
    "always approve": _audited,
    "always approve while it waits": _asked,
    "always nothing": _approved,
    "always replay, audit, and approve": lambda _: None,
    "always approve after a rejection": _rejected_and_asked_again,
    "always audit of other results": _approved_then_judged_otherwise,
    "never audit of other results": _audited_then_staged_again,
    "never audit": lambda run: run.replay(),
    "restatement approve": _over_published_rows,
    "restatement nothing to ask": _audited,
    "warn nothing to ask": _audited,
}


def left_out(folder: str) -> Any:
    """Return the error of each task whose task before was marked as success, with the ledger."""
    told: dict[str, Any] = {}
    for name in ("audit", "ask"):
        project = Project(Path(folder) / name)
        run = Run(project, project.define("always"))
        run.plan()
        told[name] = [*raised(getattr(run, name)), project.rows()]
    project = Project(Path(folder) / "removed")
    run = Run(project, project.define("never", deduplicate_on="[]"))  # the audit reads the numbers of the input
    run.plan()
    run.replay()
    (project.folder / "data/a.parquet").unlink()
    told["removed"] = [*raised(run.audit), project.rows()]
    project = Project(Path(folder) / "early")
    run = Run(project, project.define("never"))
    run.plan()
    early = run.report()
    run.replay()
    run.audit()
    late = run.planned.folder.report.read_text()
    told["early"] = ["did not finish" in early, "did not finish" in late]
    return told


def same_ids(folder: str) -> Any:
    """Return what runs with one id do: of two DAGs, and of one DAG after the first was deleted."""
    from backstream.pages.runs import RunAddress, find_report, list_triggers

    project = Project(Path(folder) / "two")
    path = project.define("always")
    one, two = Run(project, path), Run(project, path, form=THIRD_DAY, kind="backfill")
    for run in (one, two):
        run.plan()
        run.replay()
        run.audit()
        run.ask()
    addresses = [RunAddress(run.dag_id, "same") for run in (one, two)]
    reports = [str(find_report(project.home, address)) for address in addresses]
    told: dict[str, Any] = {
        "reports": [
            report == str(run.planned.folder.report) for report, run in zip(reports, (one, two), strict=True)
        ],
        "triggers": [len(list_triggers(project.home, address)) for address in addresses],
        "states": project.states(),
    }

    project = Project(Path(folder) / "resumed")
    path = project.define("always")
    first = Run(project, path, form=FORM | {"reason": "asked on demand"})
    first.plan()
    first.replay()
    other = Run(project, path, form=FORM | {"reason": "by the schedule DAG"}, kind="backfill")
    told["other"] = [other.plan().reason, other.file != first.file, "resuming" in other.log]

    project = Project(Path(folder) / "deleted")
    path = project.define("never")
    first = Run(project, path)
    first.plan()
    first.replay()
    write_clicks(project.folder / "data/late.parquet", LATE)
    again = Run(project, path, store=first.store)
    told["cleared"] = [again.plan().run_id == first.planned.run_id, again.log.splitlines()]
    again.audit()
    again.publish()
    told["cleared report"] = "2 records" in again.report()
    project = Project(Path(folder) / "recreated")
    path = project.define("never")
    first = Run(project, path)
    first.plan()
    first.replay()
    write_clicks(project.folder / "data/late.parquet", LATE)
    recreated = Run(project, path, form=FORM | {"reason": "second"})
    planned = recreated.plan()
    recreated.replay()
    recreated.audit()
    recreated.publish()
    told["recreated"] = [len(planned.inputs), planned.reason, "resuming" in recreated.log, project.rows()]
    told["recreated states"] = project.states()

    project = Project(Path(folder) / "overtaken")
    path = project.define("never")
    first = Run(project, path)
    first.plan()
    first.replay()
    Run(project, path, "other").whole()
    told["overtaken"] = [first.plan() is not None, "resuming" in first.log, raised(first.replay)[0]]
    return told


def _judged_again(run: Run, suite: dict[str, Any]) -> list[Any]:
    """Return what an audit with another suite does to a published run."""
    from backstream.text import ReportFormat
    from backstream.workflow.report import report_text
    from backstream.workflow.status import list_run_states

    project = run.project
    project.judge_with(suite)
    before = [project.rows(), project.states(), project.story(), run.planned.folder.audit_result.read_text()]
    verdict = run.audit()
    after = [project.rows(), project.states(), project.story(), run.planned.folder.audit_result.read_text()]
    (state,) = list_run_states(project.home, "clicks")
    said = re.compile(r'udged again on|"later_audit": \{')
    texts = [
        state.later_audit,
        run.planned.folder.report.read_text(),
        *(report_text(run.planned, form) for form in ReportFormat),
    ]
    return [verdict, after == before, run.log.splitlines(), [bool(said.search(text)) for text in texts]]


def handed(folder: str) -> Any:
    """Return what the tasks of a run with hidden characters hand to each other through Airflow."""
    hidden = "first\nsecond\x1b[31m\u202e\x00\u2028\x85"
    project = Project(Path(folder) / "handed")
    run = Run(project, project.define("never"), run_id=hidden, form=FORM | {"reason": hidden})
    run.whole()
    return [str(value) for value in run.pushed.values()]


def final(folder: str) -> Any:
    """Return what each task does if it is cleared after the publication of its run."""
    from backstream.workflow.history import rollback_run

    told: dict[str, Any] = {}
    project = Project(Path(folder) / "approved")
    run = Run(project, project.define("always"))
    run.plan()
    _approved(run)
    told["first events"] = run.publish()
    run.report()
    before = [project.rows(), project.states(), project.story()]
    (project.folder / "data/a.parquet").rename(project.folder / "a.parquet")
    for name in ("audit", "ask", "publish", "report"):
        outcome = getattr(run, name)()
        told[name] = [None if name == "report" else outcome, run.log.splitlines()[:1]]
        told[f"after {name}"] = [project.rows(), project.states(), project.story()] == before
    (project.folder / "a.parquet").rename(project.folder / "data/a.parquet")
    file = run.file
    run.plan()
    told["plan"] = [run.file == file, run.log.splitlines()]
    told["after plan"] = [project.rows(), project.states(), project.story()] == before
    rollback_run(project.home, run.planned.run_id)
    rows = project.rows()
    told["rolled back"] = [*raised(run.publish), run.log.splitlines()[:1], project.rows() == rows]
    told["audit of a rolled back run"] = [*raised(run.audit), project.rows() == rows]
    run.plan()
    told["plan after a rollback"] = run.file != file

    project = Project(Path(folder) / "judged again")
    run = Run(project, project.define("never")).whole()
    told["judged again"] = [_judged_again(run, STRICT), _judged_again(run, STRICT), _judged_again(run, LENIENT)]
    project.define("never", suite='"broken"')
    told["without suite"] = [*raised(run.audit), project.rows(), project.states()[-1][1:]]

    project = Project(Path(folder) / "replaced")
    run = Run(project, project.define("never"))
    run.plan()
    run.replay()
    run.audit()
    run.publish()
    Run(project, run.path, "newer").whole()
    told["replaced"] = [run.publish(), run.log.splitlines()[:1]]

    project = Project(Path(folder) / "killed")
    run = Run(project, project.define("never"))
    run.plan()
    _audited(run)
    run.publish(is_killed=True)
    run.report()  # a person has marked `publish` as success, or it had no retry left
    told["killed"] = [run.publish(), run.publish()]
    return told
