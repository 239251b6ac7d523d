"""Estimate what a run would do before it starts: its days, events, replaced rows, and time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import quantiles
from typing import Any

from backstream.eventtime.instants import DAY_MS
from backstream.eventtime.intervals import Interval
from backstream.lake.ledger import RunRow
from backstream.lake.published_windows import load_published_windows
from backstream.lake.run_rows import list_runs
from backstream.lake.scans import count_rows
from backstream.runs.home import Home
from backstream.runs.plan import Plan
from backstream.runs.requests import load_requests
from backstream.runs.status import RunStatus
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.plan.planning import compose_plan

_MAX_PUBLISHERS = 5


@dataclass(frozen=True, slots=True)
class Publisher:
    """A run that published days of a range; `by` is its user, empty for the schedule."""

    triggered_by: str
    by: str
    reason: str
    published_at_ms: int
    days: int


@dataclass(frozen=True, slots=True)
class Impact:
    """The effects of a run over a range.

    `events` is the estimated number of input events. `publishers` are the runs with rows in the range, those with
    the most days first; `other_publishers` counts those not listed. `seconds` is a lower and an upper estimate
    of the duration, None without a similar run.
    """

    days: int
    events: int
    rows_replaced: int
    publishers: tuple[Publisher, ...]
    other_publishers: int
    seconds: tuple[float, float] | None

    def as_json(self) -> dict[str, Any]:
        """Return all fields for a file."""
        return asdict(self)


def find_request_impact(request: PlanRequest) -> Impact:
    """Return what the run of a request would do; nothing is written.

    The footers of the files, the arrival index, and the catalog have the answer: no record is read, except of new
    files whose seals are unknown.

    Raises:
        BackstreamError: when the task `plan` would reject the request; see `compose_plan`.
    """
    return estimate_impact(compose_plan(request), request.home)


def estimate_impact(plan: Plan, home: Home) -> Impact:
    """Return what the run of a plan would do; nothing is written.

    Args:
        plan: the plan, which need not be stored.
        home: the folder with the data and the ledger.
    """
    rows = list_runs(home, plan.dataset)
    publishers = _list_publishers(home, plan.dataset, plan.range, rows)
    return Impact(
        days=(plan.until_ms - plan.since_ms) // DAY_MS,
        events=plan.expected_events,
        rows_replaced=count_rows(home, plan.dataset, plan.range),
        publishers=publishers[:_MAX_PUBLISHERS],
        other_publishers=len(publishers[_MAX_PUBLISHERS:]),
        seconds=estimate_seconds(plan, rows),
    )


def _list_publishers(
    home: Home, dataset: str, interval: Interval, rows: Sequence[RunRow]
) -> tuple[Publisher, ...]:
    days: dict[str, int] = {}
    for day_ms, run_ids in load_published_windows(home, dataset).runs_by_day().items():
        for run_id in run_ids if interval.start_ms <= day_ms < interval.end_ms else ():
            days[run_id] = days.get(run_id, 0) + 1
    users = {request.triggered_by: request.by for request in load_requests(home, dataset)}
    by_id = {row.run_id: row for row in rows}
    found = [
        Publisher(row.triggered_by, users.get(row.triggered_by, ""), row.reason, row.finished_at_ms, count)
        for run_id, count in days.items()
        if (row := by_id.get(run_id))
    ]
    return tuple(sorted(found, key=lambda publisher: (-publisher.days, -publisher.published_at_ms)))


def estimate_seconds(plan: Plan, rows: Sequence[RunRow]) -> tuple[float, float] | None:
    """Return a lower and an upper estimate of the duration of a run; None without a published run.

    Published runs of the same definition in the same mode count, or else all published runs of the dataset. The
    estimates are the quartiles of their seconds per event times the expected events, at least the shortest run.

    Args:
        plan: the plan of the run.
        rows: runs of the dataset.
    """
    done = [row for row in rows if row.status is RunStatus.PUBLISHED and row.events_read]
    wanted = (plan.definition_hash, plan.mode)
    similar = [row for row in done if (row.definition_hash, row.mode) == wanted] or done
    if not similar:
        return None
    rates = [row.seconds / row.events_read for row in similar if row.events_read]
    low, _, high = quantiles(rates, n=4, method="inclusive") if len(rates) > 1 else (rates[0],) * 3
    shortest = min(row.seconds for row in similar)
    return max(shortest, low * plan.expected_events), max(shortest, high * plan.expected_events)
