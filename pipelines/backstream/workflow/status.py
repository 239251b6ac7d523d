"""List runs with their status and progress, and days with their seals, from run folders and the ledger."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from backstream.definition.loader import load_definition, resolve_paths
from backstream.errors import BackstreamError
from backstream.eventtime.instants import DAY_MS, HOUR_MS, SECOND_MS
from backstream.eventtime.intervals import Interval
from backstream.eventtime.seals import DaySeal
from backstream.lake.ledger import RunRow
from backstream.lake.published_windows import load_published_windows
from backstream.lake.run_rows import list_runs
from backstream.runs.chunk_groups import MAX_CHUNKS_PER_JOB
from backstream.runs.home import Home, RunFolder
from backstream.runs.manifest import Manifest
from backstream.runs.plan_summary import PlanSummary
from backstream.runs.progress import (
    ChunkTiming,
    Phase,
    estimate_seconds_left,
    events_per_second,
    find_phase,
    is_alive,
    load_timings,
)
from backstream.runs.requests import RunRequest, load_requests
from backstream.runs.results import ApprovalRequest, Audit, LaterAudit, LaterFiles, Publication
from backstream.runs.status import (
    RunFacts,
    RunStatus,
    derive_status,
    describe_phase,
    describe_wait,
    find_pending_request,
)
from backstream.runs.store import Runs
from backstream.source.deliveries import find_day_seals
from backstream.source.files import list_source_files
from backstream.source.footers import load_footers
from backstream.workflow.run_state import (
    ENDED,
    Requests,
    RunState,
    add_dismissals,
    airflow_ids,
    state_of_request,
    state_of_row,
)

_MAX_UNENDED = 20
"""The unended runs of a dataset that are listed: the status of each requires a scan of its files."""
_MAX_MANIFESTS = 2 * MAX_CHUNKS_PER_JOB
"""The newest manifests that are read for an estimate: whole groups of chunks."""
_ANSWER_LIMIT_MS = HOUR_MS
"""The time after the limit of an approval in which Airflow must have ended the run."""
_NO_ANSWER = "there was no answer within the time limit, and Airflow has not recorded the end of the run"
_END_MS = 10 * SECOND_MS
"""The time in which a run may still write files after Airflow has ended it."""


@dataclass(frozen=True, slots=True)
class RunRecords:
    """The ledger rows, newest first, and the requests of runs: a page passes those that it has in its cache."""

    rows: Sequence[RunRow]
    load_requests: Callable[[Home, str], Iterable[RunRequest]] = load_requests

    def requests(self, home: Home, dataset: str | None) -> Requests:
        """Return the requests of one or all datasets."""
        folder = home.requests("")
        names = [dataset] if dataset else [path.name for path in folder.iterdir()] if folder.is_dir() else []
        return {(name, each.triggered_by): each for name in names for each in self.load_requests(home, name)}


def list_run_states(
    home: Home,
    dataset: str | None = None,
    limit: int | None = 20,
    now_ms: int | None = None,
    records: RunRecords | None = None,
) -> list[RunState]:
    """Return the newest runs of one or all datasets, newest first.

    The ledger adds runs without a folder, and the requests add runs without a plan.

    Args:
        home: the folder that holds all state.
        dataset: None for all datasets.
        limit: maximum number of runs. Without one, the files of a run that the ledger lists as published or
            refused are not read.
        now_ms: the current time.
        records: rows and requests; None to read them.
    """
    now_ms = int(time.time() * SECOND_MS) if now_ms is None else now_ms
    records = records or RunRecords(list_runs(home, dataset))
    recorded = {row.run_id: row for row in reversed(records.rows)}  # the newest row of each run
    requests = records.requests(home, dataset)
    folders = {folder: recorded.get(folder.path.name) for folder in Runs(home).of_dataset(dataset)[:limit]}
    runs = [
        run
        for folder, row in folders.items()
        if limit or row is None or row.status is RunStatus.FAILED
        if (run := load_run_state(folder, row, requests, now_ms))
    ]
    run_ids = {run.run_id for run in runs}
    runs += [state_of_row(row, requests) for row in recorded.values() if row.run_id not in run_ids]
    runs += [state_of_request(request, now_ms) for request in requests.values() if not request.run_id]
    return add_dismissals(home, sorted(runs, key=lambda run: run.started_ms, reverse=True)[:limit])


def list_unfinished_runs(
    home: Home, dataset: str, records: RunRecords, now_ms: int | None = None
) -> list[RunState]:
    """Return the runs of a dataset that have a plan, no publication and no ledger row, newest first."""
    now_ms = int(time.time() * SECOND_MS) if now_ms is None else now_ms
    recorded = {row.run_id for row in records.rows}
    folders = [
        folder
        for folder in Runs(home).of_dataset(dataset)
        if folder.path.name not in recorded and not folder.publication.exists()
    ]
    if not folders:
        return []
    requests = records.requests(home, dataset)
    runs = (load_run_state(folder, None, requests, now_ms) for folder in folders[:_MAX_UNENDED])
    return add_dismissals(home, (run for run in runs if run and run.state is not RunStatus.DRY_RUN))


def load_run_state(folder: RunFolder, row: RunRow | None, requests: Requests, now_ms: int) -> RunState | None:
    """Return a run from its folder; None if another version wrote its plan. The plan itself is not read.

    Args:
        folder: the files of the run.
        row: its newest row in the ledger, if any.
        requests: the requests of the dataset.
        now_ms: the current time.
    """
    try:
        planned = PlanSummary.read(folder.summary)
    except BackstreamError:
        return None
    files, request = _RunFiles.read(folder, planned), requests.get((planned.dataset, planned.triggered_by))
    facts = files.facts(row, request, now_ms)
    status = derive_status(facts)
    asked = files.asked if status is RunStatus.AWAITING_APPROVAL else None
    timings = files.load_timings() if status.is_active else []
    left = [events for chunk_id, events in planned.expected_events.items() if chunk_id not in files.finished]
    return RunState(
        run_id=planned.run_id,
        dataset=planned.dataset,
        interval=planned.interval,
        mode=planned.mode,
        state=status,
        verdict=files.audit.verdict.value if files.audit else None,
        rows=files.publication.rows if files.publication else row.rows if row else None,
        started_ms=files.started_ms,
        last_sign_ms=files.last_sign_ms,
        seconds=row.seconds if row else (files.last_sign_ms - files.started_ms) / SECOND_MS,
        triggered_by=planned.triggered_by,
        reason=planned.reason,
        chunks_done=len(files.finished),
        chunks=len(planned.expected_events),
        seconds_left=estimate_seconds_left(timings, left) if status.is_active and left else None,
        error=_find_error(status, row, facts, _end_text(request, planned), is_overdue=files.is_overdue(now_ms)),
        plan_hash=planned.plan_hash,
        **airflow_ids(request, asked),
        by=request.by if request else "",
        phase=describe_wait(asked) if asked else files.describe_work(status, now_ms),
        impact=request.impact if request else None,
        events_per_second=events_per_second(timings),
        approval_requested_ms=asked.asked_at_ms if asked else None,
        approval_until_ms=asked.until_ms if asked else None,
        not_read=str(LaterFiles.find(folder.later_files) or ""),
        later_audit=str(LaterAudit.find(folder.later_audit) or ""),
    )


@dataclass(frozen=True)
class _RunFiles:
    """The files of a planned run that show how far it is; `finished` has the time of each chunk's manifest."""

    folder: RunFolder
    planned: PlanSummary
    audit: Audit | None
    asked: ApprovalRequest | None
    publication: Publication | None
    phase: Phase | None
    finished: Mapping[str, int]
    started_ms: int
    last_sign_ms: int

    @classmethod
    def read(cls, folder: RunFolder, planned: PlanSummary) -> Self:
        return cls(
            folder,
            planned,
            Audit.find(folder.audit_result),
            ApprovalRequest.find_readable(folder.approval_request),
            Publication.find(folder.publication),
            find_phase(folder),
            _find_finished_chunks(folder, planned),
            _modified_ms(folder.plan),
            max(_scan_times_ms(folder, planned)),
        )

    def facts(self, row: RunRow | None, request: RunRequest | None, now_ms: int) -> RunFacts:
        """Return all facts that decide the status of the run."""
        is_pending = find_pending_request(self.folder) is not None
        return RunFacts(
            is_dry_run=bool(request and request.is_dry_run),
            is_begun=self.last_sign_ms > self.started_ms or bool(self.finished),
            may_publish=self.audit.may_publish if self.audit else None,
            is_approval_pending=is_pending and not self.is_overdue(now_ms),
            is_published=self.publication is not None,
            recorded=row.status if row else None,
            has_continued=_has_continued(row, self.last_sign_ms, self.asked),
            is_quiet=self.publication is None and self._is_quiet(now_ms, is_requested=request is not None),
            has_ended=_has_ended(request, self.planned.run_id, self.last_sign_ms),
        )

    def _is_quiet(self, now_ms: int, *, is_requested: bool) -> bool:
        if self.phase is Phase.START_SPARK and is_requested:
            # A cluster can start a driver after hours, and Airflow records the end of such a job.
            return now_ms > self.last_sign_ms + DAY_MS
        return not is_alive(now_ms, self.last_sign_ms, self.load_timings())

    def is_overdue(self, now_ms: int) -> bool:
        """Return whether Airflow must have ended the run, because there was no answer to its approval request."""
        return self.asked is not None and now_ms > self.asked.until_ms + _ANSWER_LIMIT_MS

    def describe_work(self, status: RunStatus, now_ms: int) -> str:
        """Return what the run does now; empty if it has ended. The report follows the publication."""
        is_reporting = status is RunStatus.PUBLISHED and not self.folder.success_marker.exists()
        if is_reporting and is_alive(now_ms, self.last_sign_ms, ()):
            return "report"
        return describe_phase(status, len(self.finished), len(self.planned.expected_events), self.phase)

    def load_timings(self) -> list[ChunkTiming]:
        """Return the timings of the newest finished chunks."""
        newest = sorted(self.finished, key=lambda chunk_id: self.finished[chunk_id])[-_MAX_MANIFESTS:]
        manifests = (Manifest.read(self.folder.manifest(chunk_id)) for chunk_id in newest)
        return load_timings(self.planned.expected_events, manifests)


def _has_continued(row: RunRow | None, last_sign_ms: int, asked: ApprovalRequest | None) -> bool:
    """Return whether a run has asked its approver or written files since it failed; its report does not count."""
    if row is None or row.status is not RunStatus.FAILED:
        return False
    if asked and asked.asked_at_ms > row.finished_at_ms:
        return True
    return last_sign_ms > row.finished_at_ms


def _has_ended(request: RunRequest | None, run_id: str, last_sign_ms: int) -> bool:
    """Return whether Airflow has ended the Dag run, and nothing has continued the run since, e.g., a command.

    A Dag run that has made another plan works no more on the earlier one.
    """
    if request is None:
        return False
    ended_ms = request.ended_at_ms if request.run_id in ("", run_id) else request.planned_at_ms
    return ended_ms is not None and last_sign_ms <= ended_ms + _END_MS


def _end_text(request: RunRequest | None, planned: PlanSummary) -> str:
    """Return why no program works on a run any more."""
    other = request.run_id if request else ""
    return ENDED if other in ("", planned.run_id) else f"its Dag run has made another plan, that of run {other}"


def _find_error(
    status: RunStatus, row: RunRow | None, facts: RunFacts, ended: str, *, is_overdue: bool
) -> str | None:
    if status is RunStatus.FAILED and row:
        return row.error
    if status is RunStatus.INTERRUPTED and is_overdue and not facts.has_ended:
        return _NO_ANSWER
    return ended if status is RunStatus.INTERRUPTED and facts.has_ended else None


def _find_finished_chunks(folder: RunFolder, planned: PlanSummary) -> dict[str, int]:
    """Return when the manifest of each finished chunk was written; manifests are listed, not read."""
    written_ms = _scan_folder_ms(folder.manifests)
    names = {chunk_id: folder.manifest(chunk_id).name for chunk_id in planned.expected_events}
    return {chunk_id: written_ms[name] for chunk_id, name in names.items() if name in written_ms}


def _scan_times_ms(folder: RunFolder, planned: PlanSummary) -> Iterator[int]:
    """Yield the modification times of the files in the run folder and in the staging folders of its tables."""
    yield _modified_ms(folder.plan)
    times_ms = _scan_folder_ms(folder.path)
    for file in (folder.summary, folder.files_read, folder.later_files):  # written with the plan
        times_ms.pop(file.name, None)
    times_ms.pop(folder.phases.name, None)  # changes also if a phase is withdrawn
    times_ms.pop(folder.report.name, None)  # written after a failure, too
    yield from times_ms.values()
    for path in (folder.phases, folder.manifests, *map(Path, planned.staging)):
        yield from _scan_folder_ms(path).values()


def _scan_folder_ms(folder: Path) -> dict[str, int]:
    """Return the modification time of each entry of a folder by name; empty if there is no such folder."""
    try:
        with os.scandir(folder) as entries:
            return {entry.name: entry.stat().st_mtime_ns // 1_000_000 for entry in entries}
    except (FileNotFoundError, NotADirectoryError):
        return {}


def _modified_ms(file: Path) -> int:
    return file.stat().st_mtime_ns // 1_000_000


@dataclass(frozen=True, slots=True)
class DayState:
    """One UTC day; `evidence` is None if the definition requires no seal; `runs` are those that published it."""

    day_ms: int
    evidence: DaySeal | None
    runs: tuple[str, ...]


def list_day_states(definition_path: Path, interval: Interval, home: Home) -> list[DayState]:
    """Return the state of each day of a range.

    Raises:
        PlanError: when the source cannot be read, or only Spark can evaluate its times.
    """
    definition = resolve_paths(load_definition(definition_path), home)
    source = load_footers(list_source_files(definition.source, str(definition_path)), definition, home)
    seals = {seal.day_ms: seal for seal in find_day_seals(definition, source.inputs, interval, home)}
    runs_by_day = load_published_windows(home, definition.name).runs_by_day()
    return [
        DayState(day_ms, seals.get(day_ms), tuple(sorted(runs_by_day.get(day_ms, ()))))
        for day_ms in range(interval.start_ms, interval.end_ms, DAY_MS)
    ]
