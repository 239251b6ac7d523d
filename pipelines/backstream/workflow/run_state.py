"""Describe the state of a run: from its request, from its row in the ledger, or after its end in Airflow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from backstream.eventtime.instants import DAY_MS, instant_text
from backstream.eventtime.intervals import Interval
from backstream.lake.ledger import RunRow
from backstream.runs.home import Home
from backstream.runs.requests import Dismissal, RunRequest, load_dismissals
from backstream.runs.results import ApprovalRequest
from backstream.runs.status import RunFacts, RunStatus, derive_status

_PLAN_LIMIT_MS = DAY_MS
"""The time after which a request without a plan has failed, even if Airflow has not recorded its end."""
_NO_PLAN = "the run has no plan 24 hours after its request; the log of its task `{task}` has the reason"
ENDED = "Airflow ended the run before it had a result; its note or the log of its tasks has the reason"
DELETED = "Airflow has no such Dag run any more: it was deleted before it had a result"
_WAITING = (RunStatus.REQUESTED, RunStatus.PLANNED, RunStatus.AWAITING_APPROVAL)


@dataclass(frozen=True, slots=True)
class RunState:
    """One run with its status and progress; None: unknown or not reached yet. Times are in epoch milliseconds.

    A run without a plan has the key of its request as id. `dag_id`, `dag_run_id`, and `task_group` are those of
    Airflow, empty for a run of the command line. `phase` is what the run does now; it is empty for a run
    that has ended. `impact` is the result of a dry run. `dismissal` is that of a run that has left no file since.
    `not_read` is a sentence about input files that came after the plan of a resumed run, and `later_audit` one
    about a judgement after the publication.
    """

    run_id: str
    dataset: str
    interval: Interval | None
    mode: str
    state: RunStatus
    verdict: str | None
    rows: int | None
    started_ms: int
    last_sign_ms: int
    seconds: float
    triggered_by: str
    reason: str
    chunks_done: int | None = None
    chunks: int | None = None
    seconds_left: tuple[float, float] | None = None
    error: str | None = None
    plan_hash: str = ""
    dag_id: str = ""
    dag_run_id: str = ""
    task_group: str = ""
    by: str = ""
    phase: str = ""
    impact: Mapping[str, Any] | None = None
    events_per_second: float | None = None
    approval_requested_ms: int | None = None
    approval_until_ms: int | None = None
    dismissal: Dismissal | None = None
    not_read: str = ""
    later_audit: str = ""

    @property
    def is_dismissible(self) -> bool:
        """Return whether a person can dismiss the run now."""
        return self.state.is_dismissible and self.dismissal is None

    @property
    def is_unfinished(self) -> bool:
        """Return whether the files of the run show that it goes on; Airflow may have ended it."""
        return self.state.is_active or self.state in _WAITING

    def as_json(self) -> dict[str, Any]:
        """Return all fields for programs, instants as ISO 8601."""
        content = asdict(self)
        del content["interval"]
        instants = {
            "since": self.interval.start_ms if self.interval else None,
            "until": self.interval.end_ms if self.interval else None,
            "started_at": content.pop("started_ms"),
            "last_sign_of_life": content.pop("last_sign_ms"),
            "approval_requested_at": content.pop("approval_requested_ms"),
            "approval_until": content.pop("approval_until_ms"),
        }
        texts = {name: None if value_ms is None else instant_text(value_ms) for name, value_ms in instants.items()}
        return content | texts


Requests = Mapping[tuple[str, str], RunRequest]
"""Requests for runs by dataset and trigger."""


def state_of_request(request: RunRequest, now_ms: int) -> RunState:
    """Return a run that has no plan, or whose files were deleted."""
    has_ended = request.ended_at_ms is not None
    facts = RunFacts(
        is_planned=bool(request.run_id),
        is_dry_run=request.is_dry_run,
        recorded=RunStatus.FAILED if request.error else None,
        is_quiet=now_ms > request.requested_at_ms + _PLAN_LIMIT_MS,
        has_ended=has_ended,
    )
    status = derive_status(facts)
    ended = (ENDED if has_ended else _NO_PLAN.format(task=request.task)) if status is RunStatus.FAILED else None
    return RunState(
        run_id=request.run_id or request.key,
        dataset=request.dataset,
        interval=request.interval,
        mode=request.mode,
        state=status,
        verdict=None,
        rows=None,
        started_ms=request.requested_at_ms,
        last_sign_ms=request.requested_at_ms,
        seconds=0.0,
        triggered_by=request.triggered_by,
        reason=request.reason,
        error=request.error or ended,
        **airflow_ids(request),
        by=request.by,
        phase=request.task if status is RunStatus.REQUESTED else "",
        impact=request.impact,
    )


def airflow_ids(request: RunRequest | None, asked: ApprovalRequest | None = None) -> dict[str, Any]:
    """Return the ids in Airflow of a run, from the task that asks or its request; none for the command line."""
    if asked:
        group = asked.task_id.rpartition(".")[0]
        return {"dag_id": asked.dag_id, "dag_run_id": asked.dag_run_id, "task_group": group}
    if request:
        return {"dag_id": request.dag_id, "dag_run_id": request.dag_run_id, "task_group": request.task_group}
    return {}


def state_of_row(row: RunRow, requests: Requests) -> RunState:
    """Return a run from its row in the ledger."""
    request = requests.get((row.dataset, row.triggered_by))
    return RunState(
        run_id=row.run_id,
        dataset=row.dataset,
        interval=Interval(row.since_ms, row.until_ms),
        mode=row.mode,
        state=derive_status(RunFacts(recorded=row.status)),
        verdict=row.verdict.value if row.verdict else None,
        rows=row.rows,
        started_ms=row.started_at_ms,
        last_sign_ms=row.finished_at_ms,
        seconds=row.seconds,
        triggered_by=row.triggered_by,
        reason=row.reason,
        error=row.error,
        plan_hash=row.plan_hash,
        **airflow_ids(request),
        by=request.by if request else "",
    )


def with_end(run: RunState, reason: str = ENDED) -> RunState:
    """Return an unfinished run as one that Airflow has ended for a reason; any other run unchanged."""
    if not run.is_unfinished:
        return run
    is_planned = run.state is not RunStatus.REQUESTED
    status = derive_status(RunFacts(is_planned=is_planned, has_ended=True))
    ended = replace(run, state=status, phase="", seconds_left=None, error=run.error or reason)
    return replace(ended, approval_requested_ms=None, approval_until_ms=None)


def add_dismissals(home: Home, runs: Iterable[RunState]) -> list[RunState]:
    """Return runs with their dismissals; a run that has written a file since is no longer dismissed."""
    known: dict[str, Mapping[str, Dismissal]] = {}
    shown = []
    for run in runs:
        if run.dataset not in known:
            known[run.dataset] = load_dismissals(home, run.dataset)
        found = known[run.dataset].get(run.run_id)
        is_current = found is not None and run.state.is_dismissible and found.at_ms >= run.last_sign_ms
        shown.append(replace(run, dismissal=found) if is_current else run)
    return shown
