"""Estimate what a run would do before it starts: its days, events, replaced rows, and time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import quantiles
from typing import Any

from backstream.definition.loader import load_definition, resolve_paths
from backstream.eventtime.instants import DAY_MS
from backstream.eventtime.intervals import Interval
from backstream.lake.ledger import RunRow, list_runs
from backstream.lake.published_windows import load_published_windows
from backstream.lake.scans import count_rows
from backstream.runs.home import Home
from backstream.runs.requests import load_requests
from backstream.runs.status import RunStatus
from backstream.source.files import list_source_files
from backstream.source.footers import load_footers
from backstream.workflow.chunk_plan import estimate_events

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


def estimate_impact(definition_path: Path, interval: Interval, home: Home, events: int | None = None) -> Impact:
    """Return what a run over a range of whole UTC days would do; nothing is written.

    Args:
        definition_path: the TOML file.
        interval: the backfill range.
        home: the folder with the data and the ledger.
        events: number of input events, if it is known; by default the footers of the files give an estimate.

    Raises:
        SpecError: when the definition is wrong.
        PlanError: when the source cannot be read.
    """
    definition = resolve_paths(load_definition(definition_path), home)
    if events is None:
        listed = list_source_files(definition.source, str(definition_path))
        source = load_footers(listed, definition, home)
        events = sum(estimate_events(file, interval) for file in source.inputs)
    rows = list_runs(home, definition.name)
    publishers = _list_publishers(home, definition.name, interval, rows)
    return Impact(
        days=(interval.end_ms - interval.start_ms) // DAY_MS,
        events=events,
        rows_replaced=count_rows(home, definition.name, interval) if publishers else 0,
        publishers=publishers[:_MAX_PUBLISHERS],
        other_publishers=len(publishers[_MAX_PUBLISHERS:]),
        seconds=estimate_seconds(rows, events),
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


def estimate_seconds(rows: Sequence[RunRow], events: int) -> tuple[float, float] | None:
    """Return the quartiles of seconds per event of published runs times the events, at least the shortest run.

    Args:
        rows: runs of the dataset.
        events: the number of events to read.
    """
    done = [row for row in rows if row.status is RunStatus.PUBLISHED and row.events_read]
    if not done:
        return None
    rates = [row.seconds / row.events_read for row in done if row.events_read]
    low, _, high = quantiles(rates, n=4, method="inclusive") if len(rates) > 1 else (rates[0],) * 3
    shortest = min(row.seconds for row in done)
    return max(shortest, low * events), max(shortest, high * events)
