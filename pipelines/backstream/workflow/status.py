"""The ledger for people: each run, what became of it, how far it is, and whether anything of it still moves."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from backstream.definition.loader import load_definition, resolve_paths
from backstream.errors import BackstreamError
from backstream.eventtime.instants import DAY_MS, SECOND_MS, instant_text
from backstream.eventtime.intervals import Interval
from backstream.eventtime.seals import DaySeal
from backstream.lake.ledger import RunRow, Status, list_runs
from backstream.lake.published_windows import load_published_windows
from backstream.runs.chunk_groups import MOST_TOGETHER
from backstream.runs.home import Home, RunFolder
from backstream.runs.manifest import Manifest
from backstream.runs.plan_summary import PlanSummary
from backstream.runs.progress import ChunkTiming, estimate_seconds_left, is_alive, load_timings
from backstream.runs.results import Audit, Publication
from backstream.source.deliveries import find_day_seals
from backstream.source.files import list_source_files
from backstream.source.footers import load_footers

_UNENDED_SHOWN = 20  # each costs looking at all that it left
_TIMED = 2 * MOST_TOGETHER  # manifests, the newest: whole groups of them; a run of thousands goes on as they did
_AFTERMATH_MS = 10 * SECOND_MS


class RunPhase(StrEnum):
    """What became of a run, as far as its files and the ledger tell."""

    PLANNED = "planned"
    """Nothing was begun, or not long ago."""
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    PUBLISHED = "published"
    REFUSED = "refused"
    """By the gate, or because another run came first."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class RunState:
    """One run. None: not known, or not come so far; times in epoch milliseconds."""

    run_id: str
    dataset: str
    interval: Interval
    mode: str
    state: RunPhase
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

    def as_json(self) -> dict[str, Any]:
        """All of it, for programs; instants as ISO 8601."""
        content = asdict(self)
        del content["interval"]
        instants = {
            "since": self.interval.start_ms,
            "until": self.interval.end_ms,
            "started_at": content.pop("started_ms"),
            "last_sign_of_life": content.pop("last_sign_ms"),
        }
        return content | {name: instant_text(value_ms) for name, value_ms in instants.items()}


def list_run_states(
    home: Home, dataset: str | None = None, limit: int = 20, now_ms: int | None = None
) -> list[RunState]:
    """The newest runs of all datasets or of one, the newest first, also those whose folders are gone."""
    now_ms = int(time.time() * SECOND_MS) if now_ms is None else now_ms
    recorded = {row.run_id: row for row in reversed(list_runs(home, dataset))}  # the newest outcome of each run
    found = [
        state
        for folder in _newest_folders(home, dataset)[:limit]
        if (state := _of_folder(folder, recorded.get(folder.path.name), now_ms))
    ]
    known = {state.run_id for state in found}
    found += [_of_row(row) for row in recorded.values() if row.run_id not in known]
    return sorted(found, key=lambda state: state.started_ms, reverse=True)[:limit]


def list_unended_runs(
    home: Home, dataset: str, recorded: Collection[str], now_ms: int | None = None
) -> list[RunState]:
    """The runs of a dataset that left a plan, but no publication nor a recorded outcome, the newest first."""
    now_ms = int(time.time() * SECOND_MS) if now_ms is None else now_ms
    folders = [
        folder
        for folder in _newest_folders(home, dataset)
        if folder.path.name not in recorded and not folder.publication.exists()
    ]
    states = (_of_folder(folder, None, now_ms) for folder in folders[:_UNENDED_SHOWN])
    return [state for state in states if state]


def _newest_folders(home: Home, dataset: str | None) -> list[RunFolder]:
    folders = [RunFolder(file.parent) for file in (home.path / "runs").glob(f"{dataset or '*'}/*/plan.json")]
    return sorted(folders, key=lambda folder: folder.plan.stat().st_mtime_ns, reverse=True)


def _of_folder(folder: RunFolder, row: RunRow | None, now_ms: int) -> RunState | None:
    """None for a plan of another version, of which only the ledger can tell. The plan itself is not read."""
    try:
        planned = PlanSummary.read(folder.summary)
    except BackstreamError:
        return None
    finished = _finished(folder, planned)
    started_ms, last_sign_ms = _modified_ms(folder.plan), max(_signs_ms(folder, planned))
    audit = Audit.read(folder.audit_result) if folder.audit_result.exists() else None
    publication = Publication.read(folder.publication) if folder.publication.exists() else None
    state, done = _ended(audit, publication, row, last_sign_ms), list[ChunkTiming]()
    if state is None:
        done = _newest_timings(folder, planned, finished)
        is_begun = last_sign_ms > started_ms or bool(finished)
        state = _unended(is_begun=is_begun, is_quiet=not is_alive(now_ms, last_sign_ms, done))
    left = [events for chunk_id, events in planned.expected_events.items() if chunk_id not in finished]
    return RunState(
        run_id=planned.run_id,
        dataset=planned.dataset,
        interval=planned.interval,
        mode=planned.mode,
        state=state,
        verdict=audit.verdict.value if audit else None,
        rows=publication.rows if publication else row.rows if row else None,
        started_ms=started_ms,
        last_sign_ms=last_sign_ms,
        seconds=row.seconds if row else (last_sign_ms - started_ms) / SECOND_MS,
        triggered_by=planned.triggered_by,
        reason=planned.reason,
        chunks_done=len(finished),
        chunks=len(planned.expected_events),
        seconds_left=estimate_seconds_left(done, left) if state is RunPhase.RUNNING else None,
        error=row.error if row and state is RunPhase.FAILED else None,
    )


def _of_row(row: RunRow) -> RunState:
    return RunState(
        run_id=row.run_id,
        dataset=row.dataset,
        interval=Interval(row.since_ms, row.until_ms),
        mode=row.mode,
        state=_STATES[row.status],
        verdict=row.verdict.value if row.verdict else None,
        rows=row.rows,
        started_ms=row.started_at_ms,
        last_sign_ms=row.finished_at_ms,
        seconds=row.seconds,
        triggered_by=row.triggered_by,
        reason=row.reason,
        error=row.error,
    )


_STATES = {
    Status.PUBLISHED: RunPhase.PUBLISHED,
    Status.ALREADY_PUBLISHED: RunPhase.PUBLISHED,
    Status.REFUSED: RunPhase.REFUSED,
    Status.FAILED: RunPhase.FAILED,
}


def _ended(
    audit: Audit | None, publication: Publication | None, row: RunRow | None, last_sign_ms: int
) -> RunPhase | None:
    """How a run ended; None when it has not, or has gone on after it failed."""
    if publication:
        return RunPhase.PUBLISHED
    if row and row.status is Status.FAILED and last_sign_ms > row.finished_at_ms + _AFTERMATH_MS:
        return None
    if row:
        return _STATES.get(row.status, RunPhase.PUBLISHED)
    return RunPhase.REFUSED if audit and not audit.may_publish else None


def _unended(*, is_begun: bool, is_quiet: bool) -> RunPhase:
    if not is_begun:
        return RunPhase.PLANNED
    return RunPhase.INTERRUPTED if is_quiet else RunPhase.RUNNING


def _finished(folder: RunFolder, planned: PlanSummary) -> dict[str, int]:
    """The finished chunks, by when their manifests were written: those are listed, not read."""
    written_ms = _entries_ms(folder.manifests)
    names = {chunk_id: folder.manifest(chunk_id).name for chunk_id in planned.expected_events}
    return {chunk_id: written_ms[name] for chunk_id, name in names.items() if name in written_ms}


def _newest_timings(folder: RunFolder, planned: PlanSummary, finished: Mapping[str, int]) -> list[ChunkTiming]:
    newest = sorted(finished, key=lambda chunk_id: finished[chunk_id])[-_TIMED:]
    return load_timings(planned.expected_events, (Manifest.read(folder.manifest(each)) for each in newest))


def _signs_ms(folder: RunFolder, planned: PlanSummary) -> Iterator[int]:
    """When anything of the run was last written: in its folder, or among the files staged for its tables."""
    yield _modified_ms(folder.plan)
    left = _entries_ms(folder.path)
    left.pop(folder.summary.name, None)  # written with the plan
    yield from left.values()
    for place in (folder.manifests, *map(Path, planned.staging)):
        yield from _entries_ms(place).values()


def _entries_ms(folder: Path) -> dict[str, int]:
    """By name, when each entry of a folder was last written; none where there is no such folder."""
    try:
        with os.scandir(folder) as entries:
            return {entry.name: entry.stat().st_mtime_ns // 1_000_000 for entry in entries}
    except (FileNotFoundError, NotADirectoryError):
        return {}


def _modified_ms(file: Path) -> int:
    return file.stat().st_mtime_ns // 1_000_000


@dataclass(frozen=True, slots=True)
class DayState:
    """One UTC day; `evidence` is None where none is asked for, `runs` empty where nothing is published."""

    day_ms: int
    evidence: DaySeal | None
    runs: tuple[str, ...]


def list_day_states(definition_path: Path, interval: Interval, home: Home) -> list[DayState]:
    """Each day of a range.

    Raises:
        PlanError: when the source cannot be read, or only Spark can evaluate its times.
    """
    definition = resolve_paths(load_definition(definition_path), home)
    source = load_footers(list_source_files(definition.source, str(definition_path)), definition, home)
    evidence = {each.day_ms: each for each in find_day_seals(definition, source.inputs, interval, home)}
    by_day = load_published_windows(home, definition.name).runs_by_day()
    return [
        DayState(day_ms, evidence.get(day_ms), tuple(sorted(by_day.get(day_ms, ()))))
        for day_ms in range(interval.start_ms, interval.end_ms, DAY_MS)
    ]
