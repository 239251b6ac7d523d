"""Record and list the runs of all datasets and the results of their checks, in two shared tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from types import NoneType
from typing import Any, get_args, get_type_hints

from backstream import __version__
from backstream.eventtime.instants import utc_datetime
from backstream.lake.metadata_pointers import find_metadata_location
from backstream.runs.file_summaries import load_summary
from backstream.runs.home import Home
from backstream.runs.plan import Plan
from backstream.runs.results import Audit, Check, Verdict
from backstream.runs.status import RunStatus
from backstream.runs.table_schemas import Column, Table

RUNS, CHECKS = "runs", "checks"
_SECOND_MS = 1_000


@dataclass(frozen=True, slots=True)
class RunRow:
    """The outcome of one run; a value is None if the run did not reach the step that sets it.

    The fields are the columns of the ledger's table of runs, where instants are timestamps. `planned_by_version`
    made the plan, `finished_by_version` finished the run; `error` is that of a failed run.
    """

    run_id: str
    dataset: str
    status: RunStatus
    verdict: Verdict | None
    mode: str
    since_ms: int
    until_ms: int
    triggered_by: str
    reason: str
    definition_hash: str
    plan_hash: str
    planned_by_version: str
    rows: int | None
    events_read: int | None
    started_at_ms: int
    finished_at_ms: int
    finished_by_version: str = ""
    error: str | None = None

    @property
    def seconds(self) -> float:
        """The duration of the run."""
        return (self.finished_at_ms - self.started_at_ms) / _SECOND_MS


def _columns_of(row: type) -> Iterator[Column]:
    """Yield a column for each field of a dataclass; `.._ms` is an instant, and `failing` is not stored."""
    for name, hint in get_type_hints(row).items():
        kinds = {*(get_args(hint) or (hint,))}
        type_name = "timestamptz" if name.endswith("_ms") else "long" if int in kinds else "string"
        if name != "failing":
            yield Column(name.removesuffix("_ms"), type_name, required=NoneType not in kinds)


RUNS_TABLE = Table("", (*_columns_of(RunRow), Column("seconds", "double", required=True)))
_OF_AUDIT = ("run_id", "dataset", "suite", "verdict")
CHECKS_TABLE = Table("", (*(Column(name, "string", required=True) for name in _OF_AUDIT), *_columns_of(Check)))


def run_row(
    plan: Plan,
    status: RunStatus,
    span_ms: tuple[int, int],
    verdict: Verdict | None = None,
    rows: int | None = None,
    events_read: int | None = None,
) -> RunRow:
    """Return the row of a plan's run; `span_ms` has the start and the end of the run."""
    return RunRow(
        run_id=plan.run_id,
        dataset=plan.dataset,
        status=status,
        verdict=verdict,
        mode=plan.mode.value,
        since_ms=plan.since_ms,
        until_ms=plan.until_ms,
        triggered_by=plan.triggered_by,
        reason=plan.reason,
        definition_hash=plan.definition_hash,
        plan_hash=plan.plan_hash,
        planned_by_version=plan.planned_by_version,
        rows=rows,
        events_read=events_read,
        started_at_ms=span_ms[0],
        finished_at_ms=span_ms[1],
        finished_by_version=__version__,
    )


def record_run(home: Home, row: RunRow) -> bool:
    """Append the outcome of a run; return False if it is recorded already. A run may fail repeatedly.

    A published run is final, so no other outcome of it is appended.
    """
    from backstream.lake import ledger_tables

    published = ((other.run_id, other.status) for other in list_recorded_runs(home, row.dataset))
    if row.status is not RunStatus.PUBLISHED and (row.run_id, RunStatus.PUBLISHED) in published:
        return False
    key = () if row.status is RunStatus.FAILED else ("run_id", "status")
    is_new = ledger_tables.append_rows(home, RUNS, RUNS_TABLE, key, [stored_run(row)])
    if is_new:
        ledger_tables.summarize_files(home, RUNS, RUNS_TABLE, _load_run_summary(home))
    return is_new


def record_checks(home: Home, dataset: str, audit: Audit) -> bool:
    """Append each check of an audit; return False if this verdict on this run is recorded already."""
    from backstream.lake import ledger_tables

    common = dict(zip(_OF_AUDIT, (audit.run_id, dataset, audit.suite, audit.verdict.value), strict=True))
    names = [column.name for column in CHECKS_TABLE.columns if column.name not in common]
    rows = [common | {name: getattr(check, name) for name in names} for check in audit.checks]
    return ledger_tables.append_rows(home, CHECKS, CHECKS_TABLE, ("run_id", "verdict"), rows)


def list_recorded_runs(home: Home, dataset: str | None = None) -> list[RunRow]:
    """Return the recorded runs of one dataset or of all datasets, newest first; see `run_rows.list_runs`.

    The rows of each data file are read once and then kept in a summary of the table.
    """
    location = find_metadata_location(home, RUNS)
    if location is None:
        return []
    summary = _load_run_summary(home)
    if summary is None or summary.get("of") != location:
        from backstream.lake import ledger_tables

        summary = ledger_tables.summarize_files(home, RUNS, RUNS_TABLE, summary)
    return [row for row in _rows_of(summary) if dataset in (None, row.dataset)]


def list_known_runs(home: Home) -> tuple[list[RunRow], int]:
    """Return the rows in the summary of the home, newest first, and its time in ms; the catalog is not asked.

    Without a readable summary there are no rows, and the time is 0.
    """
    summary, file = _load_run_summary(home), home.summary(RUNS)
    return (_rows_of(summary), file.stat().st_mtime_ns // 1_000_000) if summary else ([], 0)


def _rows_of(summary: Mapping[str, Any]) -> list[RunRow]:
    stored = (values for file in summary["files"].values() for values in file)
    rows = [_from_stored(dict(zip(summary["columns"], values, strict=True))) for values in stored]
    return sorted(rows, key=lambda row: (row.finished_at_ms, row.run_id), reverse=True)


def list_checks(home: Home, dataset: str, run_ids: Collection[str] | None = None) -> list[dict[str, Any]]:
    """Return the recorded checks of a dataset as rows of `CHECKS_TABLE`; a join with `runs` gives their times.

    `run_ids` selects the checks of some runs.
    """
    if find_metadata_location(home, CHECKS) is None or (run_ids is not None and not run_ids):
        return []
    from backstream.lake import ledger_tables

    return ledger_tables.scan_rows(home, CHECKS, CHECKS_TABLE, dataset, run_ids)


def _load_run_summary(home: Home) -> dict[str, Any] | None:
    return load_summary(home.summary(RUNS), "the ledger's runs")


def ledger_version(home: Home) -> str:
    """Return a text that changes with each recorded row, empty if there is none; no table is created."""
    locations = (find_metadata_location(home, name) for name in (RUNS, CHECKS))
    return " ".join(location for location in locations if location)


def stored_run(row: RunRow) -> dict[str, Any]:
    """Return the row of a run as the table stores it, with timestamps instead of milliseconds."""
    stored = {
        name.removesuffix("_ms"): utc_datetime(value) if name.endswith("_ms") else value
        for name, value in asdict(row).items()
    }
    return stored | {"seconds": row.seconds}


def _from_stored(stored: Mapping[str, Any]) -> RunRow:
    values = {field.name: stored[field.name.removesuffix("_ms")] for field in fields(RunRow)}
    verdict = Verdict(values["verdict"]) if values["verdict"] else None
    return RunRow(**values | {"status": RunStatus(values["status"]), "verdict": verdict})
