"""List the events of a day in order: its publications, late files, approvals, rollbacks, and comparisons.

Everything is read from the ledger, and from files of the runs whose range has the day.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from backstream.errors import LedgerError
from backstream.eventtime.instants import DAY_MS, epoch_ms
from backstream.lake.ledger import RunRow
from backstream.pages.airflow import DagRun
from backstream.pages.datasets import Dataset
from backstream.pages.runs import RunAddress, load_requests_once
from backstream.pages.store import PageStore
from backstream.runs.dataset_state import ReconciledDay, load_reconciled_days
from backstream.runs.home import RunFolder
from backstream.runs.requests import RunRequest, load_dismissals
from backstream.runs.results import ApprovalDecision, ApprovalRequest, undone_run_id
from backstream.runs.status import RunStatus
from backstream.storage.files import load_json
from backstream.text import count_of

_MAX_FILES = 3
_MAX_REVISIONS = 100
"""The newest runs of a day that the story has, so that it is read at once."""


@dataclass(frozen=True, slots=True)
class StoryEvent:
    """One event of a day.

    `kind` is its style: a verdict, `info`, or `none`. `text` has the facts, `by` the person or program, `reason`
    their words. `address` is the run, None for an event without one; `report` and `airflow` are links of the run.
    """

    at_ms: int
    kind: str
    title: str
    text: str = ""
    by: str = ""
    reason: str = ""
    address: RunAddress | None = None
    report: Mapping[str, str] | None = None
    airflow: str = ""
    is_current: bool = False


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of the day: its row in the ledger, its files, and its request (None for the command line)."""

    row: RunRow
    folder: RunFolder
    request: RunRequest | None

    def event(self, at_ms: int, kind: str, title: str, **facts: Any) -> StoryEvent:
        """Return an event of this run with its links."""
        request, row = self.request, self.row
        by_trigger = RunAddress.from_trigger(row.dataset, row.triggered_by)
        address = RunAddress.from_request(request) if request else by_trigger
        report = {"dag_id": address.dag_id, "run_id": address.run_id, "plan": row.plan_hash}
        return StoryEvent(
            at_ms,
            kind,
            title,
            **facts,
            address=address,
            report=report if self.folder.report.is_file() else None,
            airflow=DagRun(request.dag_id, request.dag_run_id, "").address if request else "",
        )


def list_day_events(
    records: PageStore,
    dataset: Dataset,
    day_ms: int,
    revisions: Sequence[RunRow],
    changes: Mapping[str, Mapping[str, int]] | None,
) -> list[StoryEvent]:
    """Return the events of a day, the oldest first.

    Args:
        records: reader of the home.
        dataset: the dataset.
        day_ms: the day.
        revisions: the ended runs whose range has the day, newest first.
        changes: number of changed values of the day by run and kind; None if unknown.
    """
    requests = {request.triggered_by: request for request in load_requests_once(records.home, dataset.name)}
    runs = [
        _Run(row, records.home.run(dataset.name, row.run_id), requests.get(row.triggered_by))
        for row in reversed(revisions[:_MAX_REVISIONS])
    ]
    shown = dataset.day(day_ms)
    events = [
        *_list_results(runs, changes, shown.run_id if shown else None),
        *_list_late_files(runs, day_ms),
        *_list_approvals(runs),
        *_list_unended_runs(dataset, day_ms),
        *_list_dismissals(records, dataset, runs),
    ]
    if shown and shown.note and shown.note.kind == "stale" and dataset.seen:
        facts = f"{shown.note.reason}; the published rows are older"
        events.append(StoryEvent(dataset.seen.at_ms, "warn", "Changed files found", facts))
    if found := load_reconciled_days(records.home, dataset.name).get(day_ms):
        events.append(_comparison_event(found))
    return sorted(events, key=lambda event: event.at_ms)


def _list_results(
    runs: Iterable[_Run], changes: Mapping[str, Mapping[str, int]] | None, current: str | None
) -> Iterator[StoryEvent]:
    """Yield how each run ended; the first publication has a title of its own."""
    is_published = False
    for run in runs:
        row, by = run.row, _person(run)
        if undone := undone_run_id(row.run_id):
            yield run.event(
                row.finished_at_ms, "warn", "Rolled back", text=f"run {undone}", by=by, reason=row.reason
            )
        elif row.status is RunStatus.PUBLISHED:
            counts = (changes or {}).get(row.run_id, {})
            unchanged = "no value changed" if changes is not None else "the changed values are not known"
            text = ", ".join(f"{count_of(count, 'value')} {change}" for change, count in sorted(counts.items()))
            yield run.event(
                row.finished_at_ms,
                row.verdict or "none",
                "Restated" if is_published else "First published",
                text=text or (unchanged if is_published else ""),
                by=by,
                reason=row.reason,
                is_current=row.run_id == current,
            )
            is_published = True
        else:
            kind = "error" if row.status is RunStatus.FAILED else "fail"
            title = row.status.value.capitalize()
            text = (row.error or "").partition("\n")[0] or "nothing was published"
            yield run.event(row.finished_at_ms, kind, title, text=text, by=by, reason=row.reason)


def _person(run: _Run) -> str:
    if run.request is None:
        return "command line"
    return run.request.by or "schedule"


def _list_late_files(runs: Iterable[_Run], day_ms: int) -> Iterator[StoryEvent]:
    """Yield the files of the day that a publication read and no earlier one.

    Files are compared only if the earlier publication covers the whole chunk, so no file of another day counts.
    """
    covered: list[tuple[RunRow, set[str]]] = []
    for run in runs:
        if run.row.status is not RunStatus.PUBLISHED or undone_run_id(run.row.run_id):
            continue
        chunks = _load_chunk_files(run.folder)
        for start_ms, end_ms, names in chunks:
            earlier = [known for row, known in covered if row.since_ms <= start_ms and end_ms <= row.until_ms]
            if earlier and start_ms < day_ms + DAY_MS and day_ms < end_ms:
                late = sorted(set(names).difference(*earlier))
                if late:
                    listed = ", ".join(late[:_MAX_FILES])
                    more = f" and {len(late) - _MAX_FILES} more" if len(late) > _MAX_FILES else ""
                    text = f"{count_of(len(late), 'file')} that no earlier run had read: {listed}{more}"
                    yield run.event(run.row.started_at_ms, "info", "Late files found", text=text)
        covered.append((run.row, {name for _, _, names in chunks for name in names}))


def _load_chunk_files(folder: RunFolder) -> list[tuple[int, int, list[str]]]:
    try:
        return [(start, end, names) for start, end, names in load_json(folder.files_read, "files read")["chunks"]]
    except (LedgerError, KeyError, TypeError, ValueError):
        return []


def _list_approvals(runs: Iterable[_Run]) -> Iterator[StoryEvent]:
    for run in {run.row.run_id: run for run in runs}.values():  # a run can have several rows in the ledger
        asked, decision = (
            ApprovalRequest.find_readable(run.folder.approval_request),
            ApprovalDecision.find(run.folder.approval),
        )
        if asked:
            yield run.event(asked.asked_at_ms, "info", "Approval requested", text=asked.finding)
        if decision:
            title = "Approved" if decision.is_approved else "Rejected"
            at_ms = _parse_ms(decision.at, run.row.finished_at_ms)
            kind = "pass" if decision.is_approved else "fail"
            yield run.event(at_ms, kind, title, by=decision.by or "no approver answered in time")


def _parse_ms(text: str, otherwise_ms: int) -> int:
    try:
        return epoch_ms(datetime.fromisoformat(text))
    except ValueError:
        return otherwise_ms


def _list_unended_runs(dataset: Dataset, day_ms: int) -> Iterator[StoryEvent]:
    for run in dataset.unended:
        if run.interval and run.interval.start_ms < day_ms + DAY_MS and day_ms < run.interval.end_ms:
            title = run.state.value.replace("_", " ").capitalize()
            address = RunAddress.from_state(run)
            yield StoryEvent(
                run.started_ms,
                "error" if run.state is RunStatus.INTERRUPTED else "info",
                title,
                run.phase or run.error or "",
                run.by or ("schedule" if run.dag_run_id else "command line"),
                run.reason,
                address,
                airflow=DagRun(run.dag_id, run.dag_run_id, "").address if run.dag_run_id else "",
            )


def _list_dismissals(records: PageStore, dataset: Dataset, runs: Iterable[_Run]) -> Iterator[StoryEvent]:
    found = load_dismissals(records.home, dataset.name)
    for run_id, run in {run.row.run_id: run for run in runs}.items():
        if dismissal := found.get(run_id):
            yield run.event(dismissal.at_ms, "none", "Dismissed", by=dismissal.by, reason=dismissal.reason)


def _comparison_event(found: ReconciledDay) -> StoryEvent:
    if not found.differing:
        text = f"all {count_of(found.windows, 'window')} are equal to {found.theirs}"
        return StoryEvent(found.at_ms, "pass", "Compared with the live system", text)
    text = f"{found.differing:,} of {count_of(found.windows, 'window')} differ from {found.theirs}"
    if row := found.largest:
        place = " ".join(part for part in (str(row["window_start"]), str(row["keys"])) if part)
        values = f"{row['aggregate']} published {row['ours']}, live {row['theirs']} ({row['cause']})"
        text += f"; the largest difference: {place}, {values}"
    return StoryEvent(found.at_ms, "warn", "Compared with the live system", text)
