"""A question about random sequences of what people do: a model of all runs, and what must hold after each step."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, ClassVar, cast
from unittest.mock import patch

import pyarrow.parquet as pq
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from tests.dags.ask_trials import Project, Run, Store
from tests.workflow.conftest import LENIENT
from tests.workflow.history import COLUMNS, at
from tests.workflow.publishing import counts

from backstream.eventtime.instants import epoch_ms
from backstream.eventtime.windows import TimeWindow

Content = dict[int, tuple[str, Counter[Any]]]
"""The rows that readers see, by day: their run, and the count of each page and window start."""

Slot = tuple[str, str, str]
SLOTS: list[Slot] = [
    ("reprocess", "same", ""),
    ("backfill", "same", ""),
    ("reprocess", "other", ""),
    ("own", "same", "one"),
    ("own", "same", "two"),
]
"""The runs that exist at a time: DAG, run id, and task group. Most have one run id."""
RANGES = [(1, 2), (2, 3), (1, 3)]
TASKS = ["prepare", "plan", "replay", "audit", "ask", "publish", "report"]
WORKING = ["replay", "audit", "ask", "answer", "publish", "report"]
LEFT_OUT = st.sampled_from(["nothing", "nothing", "nothing", "nothing", "nothing", "prepare", *WORKING])
"""The task that is marked as success in place of its work."""
POLICIES = ["always", "never", "restatement", "warn"]
OVERRIDE = "the feed was down"
MODES = ["as defined", "as defined", "replay"]
STARTS: dict[str, Any] = {
    "slot": st.sampled_from(SLOTS),
    "days": st.sampled_from(RANGES),
    "override": st.booleans(),
    "left_out": LEFT_OUT,
    "last": st.sampled_from([*WORKING, "report", "report"]),
    "mode": st.sampled_from(MODES),
    "approval": st.sampled_from(["as defined", "as defined", *POLICIES]),
}
"""The state on which a started Dag run depends."""
DEATHS = {
    "before the commit": "backstream.lake.publication.publish.append_side_tables",
    "before the ledger row": "backstream.workflow.publish.record_run",
    "before its file": "backstream.runs.results.Publication.write",
    "after its file": "backstream.workflow.publish.expire_side_table_snapshots",
    "before its events": "",
}
"""The function in whose place `publish` is killed; empty: it has done its work, and Airflow does not know it."""
LIMITS = {"pass": ("critical", 0), "warn": ("warning", 5), "fail": ("critical", 5)}
"""The severity of the only check, and the least records without a fate that it wants; there are none."""
PIECES = {
    name: [(at(f"{day} {hour}:00"), at(f"{day} {hour}:01"), "B", 100 * day + hour, name) for day in days]
    for name, hour, days in (("one", 7, (1,)), ("two", 8, (2,)), ("both", 9, (1, 2)))
}


class Killed(BaseException):
    """The end of a process by SIGKILL: no code of the product runs any more."""


@dataclass
class Known:
    """The state that a plan must have: `audits` and `questions` are their numbers so far."""

    run: Run
    plan: Any
    made_at: int
    staged: Counter[Any] | None = None
    verdict: str = ""
    audits: int = 0
    asked_about: int = 0
    questions: int = 0
    answer: tuple[int, bool] | None = None
    published: str = ""
    is_sent: bool = False
    """True if Airflow has its asset events."""
    is_undone: bool = False

    @property
    def days(self) -> range:
        """The days of March."""
        first = int(self.plan.range.start_ms // 86_400_000) - 19782
        return range(first, first + (self.plan.until_ms - self.plan.since_ms) // 86_400_000)

    @property
    def is_overridden(self) -> bool:
        """True if a person published a failed result."""
        return self.verdict == "fail" and bool(self.plan.gate_override)

    @property
    def is_approved(self) -> bool:
        """True if a person approved exactly the newest audit."""
        return self.answer == (self.questions, True) and self.asked_about == self.audits > 0

    @property
    def may_publish(self) -> bool:
        """True if the newest audit allows a publication."""
        return self.verdict in {"pass", "warn"} or self.is_overridden


class People(RuleBasedStateMachine):
    """What people and Airflow do with three Dag runs at a time, and a model of what must follow."""

    steps: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory(prefix="people")
        self.edits = {"when": "always", "delay": '"10m"'}
        self.suite = "pass"
        self.project, self.path = self._begin(is_raw=False)
        self.slots: dict[Slot, Run] = {}
        self.known: dict[str, Known] = {}
        self.content: Content = {}
        self.commits: list[tuple[str, range, Content]] = []
        self.time = 0
        self.is_same = False

    def _begin(self, *, is_raw: bool) -> tuple[Project, Path]:
        self.project = Project(Path(self.folder.name) / ("raw" if is_raw else "own"), is_raw)
        return self.project, self._define()

    def teardown(self) -> None:
        """Remove the files."""
        self.folder.cleanup()

    @initialize(is_raw=st.sampled_from([False, False, True]), **STARTS)
    def begin(self, *, is_raw: bool, **start: Any) -> None:
        """Choose whether the input files need the task `prepare`, and start a run: all else needs one."""
        if is_raw:
            self._begin(is_raw=True)
        self.start(**start)

    # What people do

    @rule(**STARTS)
    def start(
        self,
        slot: Slot,
        days: tuple[int, int],
        left_out: str,
        last: str,
        mode: str = "as defined",
        approval: str = "as defined",
        *,
        override: bool,
    ) -> None:
        """Start a Dag run, which Airflow executes up to a task; one with this id is deleted before."""
        (since, until), (kind, run_id, group) = days, slot
        form = {"since": f"2024-03-0{since}T00:00:00Z", "until": f"2024-03-0{until}T00:00:00Z"}
        form["reason"] = f"reason {self.time}"
        if kind != "backfill":
            form |= {"mode": mode, "approval": approval} | ({"gate_override": OVERRIDE} if override else {})
        # The task groups of a Dag run are created with it, and share the id of its creation.
        others = [run for other, run in self.slots.items() if group and other[:2] == slot[:2] and other != slot]
        is_joined = bool(others) and slot not in self.slots
        store = others[0].store if is_joined else Store()
        if group and not is_joined:
            for other in others:
                self.slots.pop((kind, run_id, other.group))
        self.slots[slot] = Run(self.project, self.path, run_id, form, kind, store, group=group)
        if left_out != "prepare":
            self._do("prepare", slot)
        self._do("plan", slot)
        for task in WORKING[: WORKING.index(last) + 1]:
            if task != left_out:
                self._do(task, slot)

    @rule(slot=st.sampled_from(SLOTS), task=st.sampled_from(TASKS))
    def repeat(self, slot: Slot, task: str) -> None:
        """Run or clear any task, in any order: those before it were marked as success, or ran."""
        self._do(task, slot)

    @rule(slot=st.sampled_from(SLOTS), is_approved=st.booleans(), by=st.sampled_from(["ada", "ada", ""]))
    def answer(self, slot: Slot, by: str = "ada", *, is_approved: bool) -> None:
        """Answer the question of a run, if it has one, or let its time pass: then nobody has approved."""
        self._do("answer", slot, is_approved=is_approved and bool(by), by=by)

    @rule(slot=st.sampled_from(SLOTS), replan=st.booleans())
    def clear_plan(self, slot: Slot, *, replan: bool) -> None:
        """Clear `plan`, with another configuration: Airflow's Backfill overwrites it in place."""
        run = self.slots[self._present(slot)]
        run.form = {**run.form, "replan": replan}
        self._do("plan", slot)

    @rule(slot=st.sampled_from(SLOTS), death=st.sampled_from([*DEATHS]), is_retried=st.booleans())
    def kill(self, slot: Slot, death: str, *, is_retried: bool) -> None:
        """Kill `publish` at some point of its work, and let Airflow retry it or not."""
        self._do("publish", slot, death=death)
        if is_retried:
            self._do("publish", slot)

    @rule(slot=st.sampled_from(SLOTS), left_out=LEFT_OUT)
    def go_on(self, slot: Slot, left_out: str) -> None:
        """Execute all tasks of a run, one of which is marked as success."""
        for task in WORKING:
            if task != left_out:
                self._do(task, slot)

    @rule(when=st.sampled_from(POLICIES), delay=st.sampled_from(['"10m"', '"20m"']))
    def edit_definition(self, when: str, delay: str) -> None:
        """Edit the definition."""
        self.edits = {"when": when, "delay": delay}
        self._define()

    @rule(verdict=st.sampled_from([*LIMITS]))
    def edit_suite(self, verdict: str) -> None:
        """Edit the suite so that it has another verdict."""
        self.suite = verdict
        severity, least = LIMITS[verdict]
        (check,) = cast("list[dict[str, Any]]", LENIENT["expectations"])
        kwargs = {"column": "unaccounted", "min_value": least}
        self.project.judge_with(LENIENT | {"expectations": [check | {"severity": severity, "kwargs": kwargs}]})

    @rule(name=st.sampled_from([*PIECES]), is_there=st.booleans(), often=st.integers(1, 2))
    def change_files(self, name: str, often: int, *, is_there: bool) -> None:
        """Write, replace, or remove an input file."""
        People.steps["file written" if is_there else "file removed"] += 1
        if is_there:
            rows = [(*row[:3], row[3] + 10 * copy, row[4]) for row in PIECES[name] for copy in range(often)]
            self.project.write(name, rows)
        else:
            self.project.remove(name)

    @rule(day=st.integers(1, 3))
    def look(self, day: int) -> None:
        """Open the pages of the dataset, of a day, and of the runs."""
        from backstream.pages import lists, views
        from backstream.pages.filters import Filter
        from backstream.pages.store import PageStore
        from backstream.workflow.status import list_run_states

        if not self.known:
            return
        dag_id = "backfill_clicks"
        shown = views.day_page(PageStore.from_home(self.project.home), dag_id, f"2024-03-0{day}", may_run=True)
        store = PageStore.from_home(self.project.home)
        store = PageStore.from_home(self.project.home)
        others = [views.windows_page(store, dag_id, may_run=True), lists.runs_page(store, {dag_id}, dag_id)]
        assert ([page.status for page in others], store.notice) == ([200, 200], "")
        listed = _csv_rows(lists.runs_csv(store, {dag_id}, dag_id, Filter()))
        runs = [(row["run"], row["status"]) for row in listed]
        days = {row["day"]: row["run_id"] for row in _csv_rows(lists.days_csv(store, dag_id, Filter()))}
        states = list_run_states(self.project.home, "clicks", 1_000)
        assert sorted(runs) == sorted((state.triggered_by, state.state.value) for state in states)
        owners = {f"2024-03-0{number}": run_id for number, (run_id, _) in self.content.items()}
        assert {number: run_id for number, run_id in days.items() if run_id} == owners
        if day in self.content:
            assert shown.status == 200
            run = self.known[self.content[day][0]].run
            (current,) = re.findall(
                r"current rows</span>.*?run\?dag_id=(.*?)&amp;run_id=(.*?)&", shown.html, re.DOTALL
            )
            assert current == (run.dag_id, run.run_id), "the page of a day names another run"
        People.steps["looked"] += 1

    @precondition(lambda self: self.commits)
    @rule(back=st.integers(0, 3))
    def roll_back(self, back: int) -> None:
        """Roll back one of the newest commits; that of a rollback is its undoing."""
        from backstream.workflow.history import rollback_run

        run_id, days, before = self.commits[max(-len(self.commits), -1 - back)]
        undo_id = f"rollback-{run_id}"
        was_undone = any(commit == undo_id for commit, _, _ in self.commits)
        if self._try(lambda: rollback_run(self.project.home, run_id))[0] and not was_undone:
            overlapping = [each for each, other, _ in self.commits if set(other) & set(days)]
            assert overlapping[-1] == run_id, (run_id, overlapping)
            now = {day: self.content[day] for day in days if day in self.content}
            for day in days:
                self._put(day, before.get(day))
            self.commits.append((undo_id, days, now))
            self.is_same = False
            own = run_id.replace("rollback-", "")
            self.known[own].is_undone = undo_id.count("rollback-") % 2 == 1
            People.steps["rolled back" if self.known[own].is_undone else "rollback undone"] += 1

    @rule(slot=st.sampled_from(SLOTS), is_end=st.booleans())
    def end(self, slot: Slot, *, is_end: bool) -> None:
        """Let Airflow end a Dag run, or let it run again."""
        from backstream.orchestration import run_ends

        record = run_ends.on_dag_run_success if is_end else run_ends.on_dag_run_running
        dag_run = SimpleNamespace(dag_id=f"{slot[0]}_clicks", run_id=slot[1])
        # All runs of the task groups of a Dag run end with it.
        self._observe("end" if is_end else "continue", lambda: record(dag_run))

    # The tasks and what the model expects of them

    def _present(self, slot: Slot) -> Slot:
        """Return a slot with a run: of the others, one stands for each of those without."""
        return slot if slot in self.slots or not self.slots else [*self.slots][SLOTS.index(slot) % len(self.slots)]

    def _do(self, task: str, slot: Slot, **values: Any) -> None:
        run = self.slots.get(self._present(slot))
        if run is None or not (run.file or task in {"prepare", "plan"}):
            return
        if task == "prepare" and not self.project.is_raw:
            return
        if task == "answer":
            values.setdefault("is_approved", True)
        self.time += 1
        word = {True: "approve", False: "reject"}[values["is_approved"]] if task == "answer" else task
        self._observe(word, lambda: getattr(self, f"_{task}")(run, **values), run, is_killed="death" in values)

    def _observe(
        self, word: str, action: Callable[[], Any], run: Run | None = None, *, is_killed: bool = False
    ) -> None:
        """Do something, and check that the statuses change as the table in the code and in the docs says."""
        from backstream.runs.run_events import FOLLOWS, RunEvent

        self.is_same = False
        event, before = RunEvent[word.upper()], self._statuses()
        action()
        People.steps[word] += 1
        own = run.planned.run_id if run and run.file else ""
        for run_id, status in self._statuses().items():
            known = before.get(run_id, status)
            # A Dag run that is created again ends the one that had its id.
            happened = (
                event
                if run_id == own or run is None
                else RunEvent.END
                if word in {"prepare", "plan"}
                else RunEvent.OTHER
            )
            if status is not known:
                events = [happened, RunEvent.KILL] if is_killed and happened is event else [happened]
                following = [FOLLOWS.get(each, {}).get(known, frozenset()) for each in events]
                assert status in frozenset().union(*following), (events, known, status)
                People.steps[f"{happened.name.lower()}: {known} to {status}"] += 1

    def _statuses(self) -> dict[str, Any]:
        from backstream.workflow.status import list_run_states

        states = list_run_states(self.project.home, "clicks", 1_000)
        return {state.run_id: state.state for state in states if state.plan_hash}

    def _prepare(self, run: Run) -> None:
        self._try(run.prepare)

    def _plan(self, run: Run) -> None:
        if not self._try(run.plan)[0]:
            return
        plan = run.planned
        known = self.known.setdefault(plan.run_id, Known(run, plan, len(self.commits)))
        assert known.run.store is run.store, f"{run.dag_id} resumes a plan of another Dag run"

    def _replay(self, run: Run) -> None:
        known = self.known[run.planned.run_id]

        if self._try(run.compute)[0] and known.staged is None:
            known.staged = _staged_rows(known.plan)
            if known.plan.mode.value == "recompute":
                rows = [row for file in known.plan.inputs for row in _read(file.path)]
                assert known.staged == Counter(counts(known.plan, rows))

    def _audit(self, run: Run) -> None:
        known = self.known[run.planned.run_id]
        file = known.plan.folder.audit_result
        before = file.read_text() if file.exists() else ""
        is_done, verdict = self._try(run.audit)
        if known.published:
            assert not is_done or verdict == known.published
            assert file.read_text() == before, "the audit of a published run changed"
            later = known.plan.folder.later_audit
            if is_done and later.exists() and "judged again" in run.log:
                People.steps["judged again"] += 1
                assert json.loads(later.read_text())["verdict"] == self.suite
        elif is_done or (file.exists() and file.read_text() != before):
            assert known.staged is not None, "what was not staged was audited"
            # An audit with the same content is the same audit: an approval of it still counts.
            known.audits += _seen_by_approvers(file.read_text()) != _seen_by_approvers(before)
            known.verdict = json.loads(file.read_text())["verdict"]

    def _ask(self, run: Run) -> None:
        known = self.known[run.planned.run_id]
        is_done, request = self._try(run.ask)
        if is_done and request is not None:
            assert not known.published
            known.questions += 1
            known.asked_about = known.audits
            # The Dag run of an interrupted one has ended in this test less than ten seconds ago.
            status = self._statuses()[known.plan.run_id]
            assert status in {"awaiting_approval", "interrupted"}

    def _answer(self, run: Run, by: str = "ada", *, is_approved: bool) -> None:
        known = self.known[run.planned.run_id]
        if known.questions and (known.answer is None or known.answer[0] < known.questions):
            self._try(lambda: run.answer(is_approved=is_approved, by=by))
            if not known.published:
                known.answer = (known.questions, is_approved)

    def _publish(self, run: Run, death: str = "") -> None:
        known = self.known[run.planned.run_id]
        is_new = not known.published
        is_done, events = self._try(lambda: self._killed(run, death))
        if not is_new:
            if is_done and not isinstance(events, Killed):
                owners = {run_id for run_id, _ in self.content.values()}
                has_rows = not known.staged or known.plan.run_id in owners
                assert events == (2 if has_rows and not known.is_sent else 0), (events, has_rows, known)
                known.is_sent |= events == 2
            return
        is_conflict = any(set(days) & set(known.days) for _, days, _ in self.commits[known.made_at :])
        is_free = not self._needs_person(known) or known.is_approved
        is_rejected = known.answer is not None and not known.answer[1]
        is_right = bool(known.staged is not None and known.may_publish and is_free and not is_rejected)
        if isinstance(events, Killed) and death == "before the commit":
            assert is_right
            return
        if isinstance(events, Killed) and not (is_right and not is_conflict):
            return  # killed as it recorded the refusal
        assert is_done == (is_right and not is_conflict), (is_done, is_right, is_conflict, known)
        if is_done:
            known.published = known.verdict
            known.is_sent = not isinstance(events, Killed)
            assert not known.is_sent or events == 2
            before = {day: self.content[day] for day in known.days if day in self.content}
            for day in known.days:
                self._put(day, (known.plan.run_id, self._rows(known, day)))
            self.commits.append((known.plan.run_id, known.days, before))

    def _killed(self, run: Run, death: str) -> int | Killed:
        """Return the number of events of `publish`, or the end of its process."""
        if not death:
            return run.publish()
        with patch(DEATHS[death], side_effect=Killed) if DEATHS[death] else nullcontext():
            try:
                events = run.publish(is_killed=not DEATHS[death])
                if DEATHS[death]:
                    return events
                error = Killed()
            except Killed as killed:
                error = killed
        People.steps[f"killed {death}"] += 1
        return error

    def _report(self, run: Run) -> None:
        known = self.known[run.planned.run_id]
        is_done, text = self._try(run.report)
        assert is_done
        if known.published:
            assert "nothing was published" not in text
            assert not known.is_overridden or OVERRIDE in text

    def _needs_person(self, known: Known) -> bool:
        """Return whether the plan demands a person for the changes of the rows that readers see."""
        when = known.plan.definition.get("approval", {}).get("when", "never")
        if when == "restatement":
            return any(
                self.content[day][1][place] != self._rows(known, day)[place]
                for day in known.days
                if day in self.content
                for place in self.content[day][1]
            )
        return bool(when == "always" or (when == "warn" and known.verdict != "pass"))

    def _rows(self, known: Known, day: int) -> Counter[Any]:
        rows = Counter[Any]()
        for (page, window), count in (known.staged or {}).items():
            if window.start_ms // 86_400_000 - 19782 == day:
                rows[page, window.start_ms] = count
        return rows

    def _put(self, day: int, rows: tuple[str, Counter[Any]] | None) -> None:
        if rows is None:
            self.content.pop(day, None)
        else:
            self.content[day] = rows

    def _define(self) -> Path:
        return self.project.define(self.edits["when"], delay=self.edits["delay"])

    def _try(self, action: Callable[[], Any]) -> tuple[bool, Any]:
        """Return whether an action did not fail, and its result; another error than backstream's is a fault."""
        from airflow.sdk.exceptions import AirflowFailException

        from backstream.errors import BackstreamError

        try:
            return True, action()
        except (BackstreamError, AirflowFailException) as error:
            People.steps["refused"] += 1
            return False, str(error)

    # What must hold after each step

    @invariant()
    def all_holds(self) -> None:
        """Check all that must hold, unless the step did nothing."""
        People.steps["steps"] += 1
        if self.is_same:
            return
        self._check_rows()
        self._check_records()
        self.is_same = True

    def _check_rows(self) -> None:
        """Each day has the rows of one run, which was published, and each of them once."""
        found: Content = {}
        for row in _published_rows(self.project):
            day, start_ms = row["window_start"].day, int(row["window_start"].timestamp() * 1000)
            run_id, rows = found.setdefault(day, (row["run_id"], Counter()))
            assert run_id == row["run_id"], f"day {day} has rows of two runs"
            rows[row["page"], start_ms] += row["clicks"]
        assert found == {day: seen for day, seen in self.content.items() if seen[1]}

    def _check_records(self) -> None:
        """Ledger, status, days, and calendar agree with the model."""
        from backstream.lake.published_windows import load_published_windows
        from backstream.lake.run_rows import list_runs
        from backstream.pages.days import find_day_spans
        from backstream.workflow.status import list_run_states

        ledger = list_runs(self.project.home, "clicks")
        states = {state.run_id: state for state in list_run_states(self.project.home, "clicks", 1_000)}
        for run_id, known in self.known.items():
            rows, state = [row for row in ledger if row.run_id == run_id], states[run_id]
            published = [row for row in rows if row.status.value == "published"]
            assert len(published) == bool(known.published), rows
            assert (state.state.value == "published") == bool(known.published), state
            if published:
                (row,) = published
                assert rows[0] is row, f"the ledger has another outcome of the published run {run_id}"
                assert row.verdict is not None
                assert (row.verdict.value, state.verdict) == (known.published, known.published)
                assert row.rows == state.rows == len(known.staged or ())
                assert not known.is_overridden or OVERRIDE in row.reason
            is_pending = known.questions > 0 and (known.answer is None or known.answer[0] < known.questions)
            assert is_pending or state.state.value != "awaiting_approval"
        owners = {day: run_id for day, (run_id, _) in self.content.items()}
        days = load_published_windows(self.project.home, "clicks").runs_by_day()
        assert {_day(day_ms): run_ids for day_ms, run_ids in days.items()} == {
            day: {run_id} for day, run_id in owners.items()
        }
        spans = find_day_spans(ledger, lambda _: {}, None)
        shown = {_day(day_ms): span.run_id for span in spans for day_ms in span.days if span.run_id}
        assert shown == owners
        self._check_story()

    def _check_story(self) -> None:
        """The story of the first day tells each of its commits once."""
        commits = [run_id for run_id, days, _ in self.commits if 1 in days]
        if not commits:
            return
        told = Counter(title for title in self.project.story() if title in _COMMITS)
        undone = sum(run_id.startswith("rollback-") for run_id in commits)
        assert told["Rolled back"] == undone, (told, commits)
        assert told["First published"] + told["Restated"] == len(commits) - undone, (told, commits)


_COMMITS = {"First published", "Restated", "Rolled back"}


def _seen_by_approvers(text: str) -> str:
    """Return the part of an audit that an approver has seen."""
    return json.dumps({**json.loads(text), "expectations": ""}) if text else ""


def _read(file: str) -> list[tuple[Any, ...]]:
    """Return the records of an input file; those of a prepared one have their times as texts."""
    rows = [tuple(row[name] for name in COLUMNS) for row in pq.read_table(file).to_pylist()]
    return [(*map(_instant, row[:2]), *row[2:]) for row in rows]


def _csv_rows(file: Any) -> list[dict[str, str]]:
    return [*csv.DictReader(io.StringIO(file.text))]


def _instant(value: Any) -> Any:
    return datetime.fromisoformat(value) if isinstance(value, str) else value


def _staged_rows(plan: Any) -> Counter[Any]:
    """Return the counts that the jobs of a run have staged, by page and window."""
    from backstream.runs.manifest import load_manifests
    from backstream.runs.table_schemas import WINDOWS

    files = [file for manifest in load_manifests(plan) for file in manifest.files.get(WINDOWS, ())]
    rows = [row for file in files for row in pq.read_table(file.path).to_pylist()]
    return Counter(
        {
            (row["page"], TimeWindow(epoch_ms(row["window_start"]), epoch_ms(row["window_end"]))): row["clicks"]
            for row in rows
        }
    )


def _day(day_ms: int) -> int:
    return day_ms // 86_400_000 - 19782


def _published_rows(project: Project) -> list[dict[str, Any]]:
    from backstream.errors import BackstreamError
    from backstream.eventtime.instants import instant_ms
    from backstream.eventtime.intervals import Interval
    from backstream.lake.reader import load_rows

    march = Interval(instant_ms("2024-03-01", "since"), instant_ms("2024-04-01", "until"))
    try:
        rows: list[dict[str, Any]] = load_rows(project.home, "clicks", march).to_pylist()
    except BackstreamError:
        return []
    return rows
