"""Random sequences of what people do, as calls of a real Airflow, and what must hold after each step.

Each sequence has a dataset of its own, so that several run at a time. A step ends when no task of its Dag runs can
go on without a person.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from demo.airflow_api import FINISHED, AirflowApi, ApiError
from demo.settings import USER
from demo.stack import Stack
from tests.e2e.questions import can_answer
from tests.e2e.test_marks_and_deletions import Site, run_path
from tests.workflow.conftest import LENIENT
from tests.workflow.history import CLICKS, at, write_clicks, write_definition

from backstream.eventtime.instants import instant_ms
from backstream.eventtime.intervals import Interval
from backstream.lake.ledger import RunRow
from backstream.lake.reader import load_rows
from backstream.lake.run_rows import list_runs
from backstream.pages.days import find_day_spans
from backstream.runs.home import Home
from backstream.runs.results import ApprovalDecision, Audit, undone_run_id
from backstream.runs.store import Runs
from backstream.workflow.status import list_run_states

TASKS = ("plan", "replay", "audit", "approve", "publish", "report")
KINDS = ("reprocess", "backfill")
RUN_IDS = ("same", "other")
LIMIT_S = 300
MARCH = Interval(instant_ms("2024-03-01", "since"), instant_ms("2024-04-01", "until"))
CLICKED = [(at(f"{day} 05:00"), at(f"{day} 05:01"), "A", day, "home") for day in range(1, 4)]
LATE = [(at(f"{day} 06:00"), at("9 06:00"), "A", 10 + day, "late") for day in (1, 2)]
Step = tuple[str, tuple[Any, ...]]


def random_steps(seed: int, count: int) -> list[Step]:
    """Return a sequence; it starts with a run."""
    chance = random.Random(seed)  # noqa: S311 - no secret

    def start() -> Step:
        kind, run_id = chance.choice(KINDS), chance.choice(RUN_IDS)
        marked = chance.choice(["", "", "", *TASKS[1:5]])
        return "start", (kind, run_id, chance.choice((1, 1, 2)), chance.choice(("always", "never")), marked)

    kinds = (
        "answer",
        "answer",
        "clear",
        "mark",
        "delete",
        "fail",
        "backfill",
        "late",
        "suite",
        "policy",
        "roll_back",
    )
    steps = [start()]
    while len(steps) < count:
        name = chance.choice(("start", *kinds))
        run = chance.choice(KINDS), chance.choice(RUN_IDS)
        values: dict[str, tuple[Any, ...]] = {
            "answer": (chance.random() < 0.7,),
            "clear": (*run, chance.choice(TASKS), chance.random() < 0.5),
            "mark": (*run, chance.choice(TASKS)),
            "delete": run,
            "fail": run,
            "backfill": (chance.choice(("none", "failed", "completed")),),
            "late": (chance.random() < 0.7,),
            "suite": (chance.choice(("pass", "fail")),),
            "policy": (chance.choice(("always", "never", "restatement")),),
            "roll_back": (),
        }
        steps.append(start() if name == "start" else (name, values[name]))
    return steps


@dataclass
class Replayed:
    """One sequence with its dataset; `done` counts its steps, `refused` the calls that Airflow refused."""

    site: Site
    number: int
    done: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)

    @property
    def name(self) -> str:
        """The dataset."""
        return f"people{self.number:02}"

    @property
    def folder(self) -> Path:
        """Its files."""
        return self.site.folder / self.name

    @property
    def home(self) -> Home:
        """The home of all sequences."""
        return Home(self.site.stack.place.home)

    def write(self, when: str = "always", verdict: str = "pass") -> None:
        """Write the definition and its suite."""
        quality, approval = f'[quality]\nsuite = "{self.name}"', f'[approval]\nwhen = "{when}"'
        rest = f'\n{quality}\n\n{approval}\n\n[backfill]\nrunner = "local"\n'
        # Its schedule has no run, since no event is later.
        text = CLICKS.replace("partition =", 'event_time_range = ["2024-02-01", "2024-03-10"]\npartition =') + rest
        file = write_definition(self.folder, text, name=f'"{self.name}"')
        file.replace(self.site.folder / f"definitions/{self.name}.toml")
        self.write_suite(verdict)

    def write_suite(self, verdict: str) -> None:
        """Write a suite with a verdict."""
        (check,) = LENIENT["expectations"]
        kwargs = {"column": "unaccounted", "min_value": {"pass": 0, "fail": 5}[verdict]}
        suite = {"name": self.name, "expectations": [check | {"kwargs": kwargs}]}  # type: ignore[operator]
        (self.site.folder / f"suites/{self.name}.json").write_text(json.dumps(suite))

    def run(self, steps: Sequence[Step]) -> None:
        """Do all steps, and check the records after each."""
        for number, (name, values) in enumerate(steps):
            try:
                getattr(self, f"_{name}")(*values)
                self.done[name] += 1
            except (ApiError, AssertionError) as error:
                if isinstance(error, AssertionError) and '"detail"' not in str(error):
                    raise
                self.refused[str(error)[:200].partition("\n")[0]] += 1  # e.g., no such Dag run
            self._settle()
            try:
                self._check()
            except AssertionError as error:
                error.add_note(f"{self.name} after step {number} of {steps}")
                raise

    # Steps

    def _start(self, kind: str, run_id: str, day: int, approval: str, marked: str) -> None:
        dag_id = f"{kind}_{self.name}"
        if self._exists(dag_id, run_id):
            self._delete(kind, run_id)
        ends = {"since": f"2024-03-{day:02}T00:00:00Z", "until": f"2024-03-{day + 1:02}T00:00:00Z"}
        conf = {"reason": f"{kind} {run_id}"} | (ends | {"approval": approval} if kind == "reprocess" else {})
        date = None if kind == "reprocess" else ends["until"]
        body = {"dag_run_id": run_id, "logical_date": date, "conf": conf}
        self.site.call("POST", f"/api/v2/dags/{dag_id}/dagRuns", json=body)
        if marked:
            self._wait(lambda: self._state(dag_id, run_id, "plan") in {"success", "failed"}, "is planned")
            self._mark(kind, run_id, marked)

    def _mark(self, kind: str, run_id: str, task_id: str) -> None:
        self.site.mark(f"{kind}_{self.name}", run_id, task_id)

    def _clear(self, kind: str, run_id: str, task_id: str, is_downstream: bool) -> None:
        body = {"dag_run_id": run_id, "dry_run": False, "only_failed": False, "task_ids": [task_id]}
        body["include_downstream"] = is_downstream
        self.site.call("POST", f"/api/v2/dags/{kind}_{self.name}/clearTaskInstances", json=body)

    def _delete(self, kind: str, run_id: str) -> None:
        path = run_path(f"{kind}_{self.name}", run_id)
        self.site.call("PATCH", path, json={"state": "failed"})
        self.site.call("DELETE", path)

    def _fail(self, kind: str, run_id: str) -> None:
        self.site.call("PATCH", run_path(f"{kind}_{self.name}", run_id), json={"state": "failed"})

    def _backfill(self, behavior: str) -> None:
        day = "2024-03-01T00:00:00Z"
        body = {
            "dag_id": f"backfill_{self.name}",
            "from_date": day,
            "to_date": day,
            "reprocess_behavior": behavior,
        }
        self.site.call("POST", "/api/v2/backfills", json=body | {"dag_run_conf": {"reason": "a Backfill"}})
        time.sleep(2)

    def _answer(self, is_approved: bool) -> None:
        for dag_id, run_id in self._runs():
            if self._state(dag_id, run_id, "approve") == "awaiting_input":
                params = {"dag_id": dag_id, "run_id": run_id}
                data = {"answer": "Approve" if is_approved else "Reject"}
                self.site.call("POST", "/backstream/approval", params=params, data=data)

    def _late(self, is_there: bool) -> None:
        file = self.folder / "data/late.parquet"
        if is_there:
            write_clicks(file, LATE)
        else:
            file.unlink(missing_ok=True)

    def _suite(self, verdict: str) -> None:
        self.write_suite(verdict)

    def _policy(self, when: str) -> None:
        self.write(when)

    def _roll_back(self) -> None:
        published = [row.run_id for row in list_runs(self.home, self.name) if row.status == "published"]
        if published:
            command = [str(Path(sys.executable).parent / "backstream"), "rollback", published[0]]
            environment = {"BACKSTREAM_HOME": str(self.home.path), "PATH": "/usr/bin:/bin"}
            subprocess.run(command, env=environment, capture_output=True, check=False, timeout=120)

    # What Airflow shows

    def _runs(self) -> list[tuple[str, str]]:
        return [(dag_id, str(run["dag_run_id"])) for dag_id in self._dags() for run in self._list(dag_id)]

    def _dags(self) -> list[str]:
        return [f"{kind}_{self.name}" for kind in KINDS]

    def _list(self, dag_id: str) -> list[dict[str, Any]]:
        return list(self.site.call("GET", f"/api/v2/dags/{dag_id}/dagRuns", params={"limit": 100})["dag_runs"])

    def _exists(self, dag_id: str, run_id: str) -> bool:
        return any(run["dag_run_id"] == run_id for run in self._list(dag_id))

    def _state(self, dag_id: str, run_id: str, task_id: str) -> Any:
        return self.site.task(dag_id, run_id, task_id)["state"]

    def _is_settled(self) -> bool:
        for dag_id in self._dags():
            for run in self._list(dag_id):
                if run["state"] in FINISHED:
                    continue
                tasks = self.site.api.task_instances(dag_id, run["dag_run_id"])
                asks = any(can_answer(self.site.stack, each) for each in tasks)
                if not asks or {each["state"] for each in tasks} & {
                    "running",
                    "queued",
                    "scheduled",
                    "up_for_retry",
                }:
                    return False
        return True

    def _settle(self) -> None:
        self._wait(self._is_settled, "has nothing to do")

    def _wait(self, done: Any, what: str) -> None:
        end = time.monotonic() + LIMIT_S
        while not done():
            assert time.monotonic() < end, f"{self.name} never {what}: {self._runs()}"
            time.sleep(1)

    # What must hold

    def _check(self) -> None:
        rows, ledger = self._rows(), list_runs(self.home, self.name)
        assert max(Counter((row["page"], row["window_start"]) for row in rows).values(), default=1) == 1
        owners: dict[int, set[str]] = {}
        for row in rows:
            owners.setdefault(row["window_start"].day, set()).add(row["run_id"])
        assert all(len(run_ids) == 1 for run_ids in owners.values()), owners
        for run_id in {each for run_ids in owners.values() for each in run_ids}:
            self._require_allowed(run_id)
        self._check_records(ledger, {day: next(iter(run_ids)) for day, run_ids in owners.items()})
        self._check_events(ledger)

    def _rows(self) -> list[dict[str, Any]]:
        from backstream.errors import BackstreamError

        try:
            return list(load_rows(self.home, self.name, MARCH).to_pylist())
        except BackstreamError:
            return []

    def _require_allowed(self, run_id: str) -> None:
        """Check that a run with published rows was audited, and approved if its plan demands a person."""
        plan = Runs(self.home).plan(self.name, run_id)
        audit, decision = Audit.read(plan.folder.audit_result), ApprovalDecision.find(plan.folder.approval)
        assert audit.may_publish, run_id
        if plan.definition["approval"]["when"] == "always":
            assert decision, f"nobody approved {run_id}"
            assert decision.is_approved, f"{run_id} was rejected"
            assert decision.by == USER, decision

    def _check_records(self, ledger: Sequence[RunRow], owners: dict[int, str]) -> None:
        states = {state.run_id: state for state in list_run_states(self.home, self.name, 1_000)}
        published = [row.run_id for row in ledger if row.status == "published"]
        assert max(Counter(published).values(), default=1) == 1, published
        for run_id in published:
            assert next(row for row in ledger if row.run_id == run_id).status == "published"
            assert undone_run_id(run_id) or states[run_id].state == "published"
        spans = find_day_spans(ledger, lambda _: {}, None)
        shown = {
            day_ms // 86_400_000 - 19782: span.run_id for span in spans for day_ms in span.days if span.run_id
        }
        assert shown == owners, (shown, owners)
        page = self.site.call("GET", "/backstream/dataset", params={"dag_id": f"backfill_{self.name}"})
        assert self.name in page

    def _check_events(self, ledger: Sequence[RunRow]) -> None:
        """Check that Airflow has one event of each published run, and none of another."""
        found = self.site.call("GET", "/api/v2/assets/events", params={"limit": 1000})["asset_events"]
        uri = f"backstream://{self.name}/"
        sent = Counter(str(each["extra"].get("run_id")) for each in found if each["uri"] == uri)
        published = {row.run_id for row in ledger if row.status == "published" and not undone_run_id(row.run_id)}
        assert sent == Counter(published), (sent, published)


def replay_sequences(
    folder: Path, stack: Stack, api: AirflowApi, seeds: Sequence[int], steps: int
) -> dict[str, int]:
    """Replay sequences in a running Airflow, some at a time, and return the number of steps of each kind.

    Raises:
        ExceptionGroup: with the failures of all sequences.
    """
    places = [Replayed(Site(folder, stack, api), number) for number in range(len(seeds))]

    def failure_of(place: Replayed, seed: int) -> Exception | None:
        try:
            place.run(random_steps(seed, steps))
        except Exception as error:  # noqa: BLE001 - the other sequences go on
            return error
        finally:
            place.site.http.close()
        return None

    with ThreadPoolExecutor(6) as pool:
        failures = [each for each in pool.map(failure_of, places, seeds) if each]
    total = sum((place.done + place.refused for place in places), Counter[str]())
    if failures:
        msg = f"{len(failures)} of {len(places)} sequences, after {dict(total)}"
        raise ExceptionGroup(msg, failures)
    return dict(total)
