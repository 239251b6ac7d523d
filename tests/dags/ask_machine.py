"""A question about random sequences of what people do: a model of all runs, and what must hold after each step."""

from __future__ import annotations

import json
import logging
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, ClassVar, cast
from unittest.mock import patch

import hypothesis
import pyarrow.parquet as pq
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from tests.dags.ask_trials import Project, Run, Store
from tests.workflow.conftest import LENIENT
from tests.workflow.history import at, write_clicks
from tests.workflow.publishing import counts, stage_counts

Sequences = Sequence[Sequence[tuple[str, dict[str, Any]]]]
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
TASKS = ["plan", "replay", "audit", "ask", "publish", "report"]
WORKING = ["replay", "audit", "ask", "answer", "publish", "report"]
LEFT_OUT = st.sampled_from(["nothing", "nothing", "nothing", "nothing", "nothing", *WORKING])
"""The task that is marked as success in place of its work."""
POLICIES = ["always", "never", "restatement", "warn"]
OVERRIDE = "the feed was down"
MODES = ["as defined", "as defined", "replay"]
DEATHS = {
    "before the commit": "backstream.lake.publication.publish.append_side_tables",
    "before the ledger row": "backstream.workflow.publish.record_run",
    "before its file": "backstream.runs.results.Publication.write",
    "after its file": "backstream.workflow.publish.expire_side_table_snapshots",
}
"""The function in whose place a task of `publish` is killed."""
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
    events: int = 0
    is_reported: bool = False
    is_undone: bool = False
    is_silent: bool = False
    """True if its commit is in the table, and `publish` was killed before it told anyone."""

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
        self.project = Project(Path(self.folder.name) / "own")
        self.edits = {"when": "always", "delay": '"10m"'}
        self.suite = "pass"
        self.path = self._define()
        self.slots: dict[Slot, Run] = {}
        self.known: dict[str, Known] = {}
        self.content: Content = {}
        self.commits: list[tuple[str, range, Content]] = []
        self.time = 0

    def teardown(self) -> None:
        """Remove the files."""
        self.folder.cleanup()

    # What people do

    @rule(
        slot=st.sampled_from(SLOTS),
        days=st.sampled_from(RANGES),
        override=st.booleans(),
        left_out=LEFT_OUT,
        last=st.sampled_from([*WORKING, "report", "report"]),
        mode=st.sampled_from(MODES),
        approval=st.sampled_from(["as defined", "as defined", *POLICIES]),
    )
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
        if slot in self.slots:
            self.slots[slot].form = {**self.slots[slot].form, "replan": replan}
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
        file = self.project.folder / f"data/{name}.parquet"
        if is_there:
            rows = [(*row[:3], row[3] + 10 * copy, row[4]) for row in PIECES[name] for copy in range(often)]
            write_clicks(file, rows)
        else:
            file.unlink(missing_ok=True)

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

    def _do(self, task: str, slot: Slot, **values: Any) -> None:
        run = self.slots.get(slot)
        if run is None or not (run.file or task == "plan"):
            return
        if task == "answer":
            values.setdefault("is_approved", True)
        self.time += 1
        word = {True: "approve", False: "reject"}[values["is_approved"]] if task == "answer" else task
        self._observe(word, lambda: getattr(self, f"_{task}")(run, **values), run)

    def _observe(self, word: str, action: Callable[[], Any], run: Run | None = None) -> None:
        """Do something, and check that the statuses change as the table in the code and in the docs says."""
        from backstream.runs.run_events import FOLLOWS, RunEvent

        event, before = RunEvent[word.upper()], self._statuses()
        action()
        People.steps[word] += 1
        own = run.planned.run_id if run and run.file else ""
        for run_id, status in self._statuses().items():
            known = before.get(run_id, status)
            # A Dag run that is created again ends the one that had its id.
            happened = (
                event if run_id == own or run is None else RunEvent.END if word == "plan" else RunEvent.OTHER
            )
            if status is not known:
                assert status in FOLLOWS.get(happened, {}).get(known, ()), (happened, known, status)
                People.steps[f"{happened.name.lower()}: {known} to {status}"] += 1

    def _statuses(self) -> dict[str, Any]:
        from backstream.workflow.status import list_run_states

        states = list_run_states(self.project.home, "clicks", 1_000)
        return {state.run_id: state.state for state in states if state.plan_hash}

    def _plan(self, run: Run) -> None:
        if not self._try(run.plan)[0]:
            return
        plan = run.planned
        known = self.known.setdefault(plan.run_id, Known(run, plan, len(self.commits)))
        assert known.run.store is run.store, f"{run.dag_id} resumes a plan of another Dag run"

    def _replay(self, run: Run) -> None:
        known = self.known[run.planned.run_id]

        def job() -> Counter[Any] | None:
            from backstream.runs.manifest import list_unfinished_chunks
            from backstream.workflow.publish import record_failure
            from backstream.workflow.unchanged_inputs import require_nothing_changed

            with record_failure(known.plan):
                if not list_unfinished_chunks(known.plan):
                    return known.staged
                require_nothing_changed(known.plan)
                rows = [row for file in known.plan.inputs for row in _read(file.path)]
                stage_counts(known.plan, rows)
                return Counter(counts(known.plan, rows))

        is_done, staged = self._try(job)
        if is_done:
            known.staged = staged

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
        is_done, events = self._try(lambda: self._killed(run.publish, death))
        if not is_new:
            assert not events or not known.is_reported, "events were sent twice"
            known.is_silent &= not is_done or isinstance(events, Killed)
            return
        is_conflict = any(set(days) & set(known.days) for _, days, _ in self.commits[known.made_at :])
        is_free = not self._needs_person(known) or known.is_approved
        is_rejected = known.answer is not None and not known.answer[1]
        is_right = bool(known.staged is not None and known.may_publish and is_free and not is_rejected)
        if isinstance(events, Killed) and death == "before the commit":
            assert is_right
            return
        if isinstance(events, Killed) and is_conflict:
            return  # killed as it recorded the refusal
        assert is_done == (is_right and not is_conflict), (is_done, is_right, is_conflict, known)
        if is_done:
            known.published, known.is_silent = known.verdict, isinstance(events, Killed)
            assert known.is_silent or events == 2
            before = {day: self.content[day] for day in known.days if day in self.content}
            for day in known.days:
                self._put(day, (known.plan.run_id, self._rows(known, day)))
            self.commits.append((known.plan.run_id, known.days, before))

    def _killed(self, action: Callable[[], int], death: str) -> int | Killed:
        """Return the result of an action, or the end of the process in it."""
        if not death:
            return action()
        try:
            with patch(DEATHS[death], side_effect=Killed):
                return action()
        except Killed as error:
            People.steps[f"killed {death}"] += 1
            return error

    def _report(self, run: Run) -> None:
        known = self.known[run.planned.run_id]
        is_done, text = self._try(run.report)
        assert is_done
        known.is_reported |= bool(known.published) and not known.is_silent
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
    def readers_see_the_rows_of_the_model(self) -> None:
        """Each day has the rows of one run, which was published, and each of them once."""
        found: Content = {}
        for row in _published_rows(self.project):
            day, start_ms = row["window_start"].day, int(row["window_start"].timestamp() * 1000)
            run_id, rows = found.setdefault(day, (row["run_id"], Counter()))
            assert run_id == row["run_id"], f"day {day} has rows of two runs"
            rows[row["page"], start_ms] += row["clicks"]
        assert found == {day: seen for day, seen in self.content.items() if seen[1]}

    @invariant()
    def all_records_tell_one_story(self) -> None:
        """Ledger, status, days, and calendar agree with the model."""
        from backstream.lake.ledger import list_runs
        from backstream.lake.published_windows import load_published_windows
        from backstream.pages.days import find_day_spans
        from backstream.workflow.status import list_run_states

        ledger = list_runs(self.project.home, "clicks")
        states = {state.run_id: state for state in list_run_states(self.project.home, "clicks", 1_000)}
        for run_id, known in self.known.items():
            rows, state = [row for row in ledger if row.run_id == run_id], states[run_id]
            published = [row for row in rows if row.status.value == "published"]
            if known.is_silent:
                continue  # its next task tells it
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
        if any(known.is_silent for known in self.known.values()):
            return
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
    return [tuple(row.values()) for row in pq.read_table(file).to_pylist()]


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


SAME, OTHER = SLOTS[0], SLOTS[2]
TOLD: Sequences = [
    [  # The approval is marked as success; the question that follows the failure is open, although it was fast.
        ("start", {"slot": SAME, "days": (1, 3), "override": False, "left_out": "answer", "last": "audit"}),
        ("repeat", {"slot": SAME, "task": "publish"}),
        ("repeat", {"slot": SAME, "task": "ask"}),
        ("answer", {"slot": SAME, "is_approved": True}),
        ("repeat", {"slot": SAME, "task": "publish"}),
        ("edit_suite", {"verdict": "fail"}),
        ("repeat", {"slot": SAME, "task": "audit"}),
        ("roll_back", {"back": 0}),
        ("repeat", {"slot": SAME, "task": "publish"}),
        ("edit_definition", {"when": "restatement", "delay": '"10m"'}),
        ("start", {"slot": OTHER, "days": (1, 2), "override": True, "left_out": "nothing", "last": "report"}),
        ("change_files", {"name": "one", "often": 2, "is_there": True}),
        ("start", {"slot": SAME, "days": (1, 3), "override": True, "left_out": "ask", "last": "report"}),
        ("go_on", {"slot": SAME, "left_out": "nothing"}),
        ("repeat", {"slot": OTHER, "task": "publish"}),
    ],
]


def told_sequences() -> Any:
    """Try the sequences of `TOLD`, and return the number of steps and changes of statuses."""
    People.steps.clear()
    for sequence in TOLD:
        machine = People()
        for name, values in sequence:
            getattr(machine, name)(**values)
            machine.readers_see_the_rows_of_the_model()
            machine.all_records_tell_one_story()
        machine.teardown()
    return dict(People.steps)


def people(sequences: str, steps: str, seed: str) -> Any:
    """Try random sequences of steps, and return the number of executed tasks of each kind."""
    import structlog

    logging.disable(logging.CRITICAL)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    People.steps.clear()
    chosen = hypothesis.settings(
        max_examples=int(sequences),
        stateful_step_count=int(steps),
        deadline=None,
        database=None,
        print_blob=False,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.generate, *([hypothesis.Phase.shrink] if os.environ.get("SHRINK") else [])],
    )
    run_state_machine_as_test(hypothesis.seed(int(seed))(People), settings=chosen)
    return dict(People.steps)
