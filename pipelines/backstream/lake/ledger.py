"""Record and list the runs of all datasets and the results of their checks, in two shared tables."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any

from backstream import __version__
from backstream.eventtime.instants import utc_datetime
from backstream.lake.metadata_pointers import find_metadata_location
from backstream.runs.file_summaries import load_summary
from backstream.runs.home import Home
from backstream.runs.plan import Plan
from backstream.runs.results import Audit, Verdict
from backstream.runs.status import RunStatus
from backstream.runs.table_schemas import Column, Table

RUNS, CHECKS = "runs", "checks"
_SECOND_MS = 1_000

RUNS_TABLE = Table(
    "",
    (
        Column("run_id", "string", required=True),
        Column("dataset", "string", required=True),
        Column("status", "string", required=True),
        Column("verdict", "string"),
        Column("mode", "string", required=True),
        Column("since", "timestamptz", required=True),
        Column("until", "timestamptz", required=True),
        Column("triggered_by", "string", required=True),
        Column("reason", "string", required=True),
        Column("definition_hash", "string", required=True),
        Column("plan_hash", "string", required=True),
        Column("planned_by_version", "string", required=True),
        Column("rows", "long"),
        Column("events_read", "long"),
        Column("started_at", "timestamptz", required=True),
        Column("finished_at", "timestamptz", required=True),
        Column("seconds", "double", required=True),
        Column("finished_by_version", "string"),
        Column("error", "string"),
    ),
)
"""`planned_by_version` made the plan, `finished_by_version` finished the run; `error` is that of a failed run."""
CHECKS_TABLE = Table(
    "",
    (
        Column("run_id", "string", required=True),
        Column("dataset", "string", required=True),
        Column("suite", "string", required=True),
        Column("verdict", "string", required=True),
        Column("name", "string", required=True),
        Column("expectation", "string", required=True),
        Column("severity", "string", required=True),
        Column("outcome", "string", required=True),
        Column("observed", "string", required=True),
        Column("column", "string"),
        Column("limit", "string", required=True),
        Column("unexpected_count", "long", required=True),
        Column("element_count", "long", required=True),
    ),
)


@dataclass(frozen=True, slots=True)
class RunRow:
    """The outcome of one run; a value is None if the run did not reach the step that sets it."""

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

    published = ((other.run_id, other.status) for other in list_runs(home, row.dataset))
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

    common = {
        "run_id": audit.run_id,
        "dataset": dataset,
        "suite": audit.suite,
        "verdict": audit.verdict.value,
    }
    check_columns = [column.name for column in CHECKS_TABLE.columns if column.name not in common]
    rows = [common | {name: getattr(check, name) for name in check_columns} for check in audit.checks]
    return ledger_tables.append_rows(home, CHECKS, CHECKS_TABLE, ("run_id", "verdict"), rows)


def list_runs(home: Home, dataset: str | None = None) -> list[RunRow]:
    """Return the recorded runs of one dataset or of all datasets, newest first.

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
    instants = {name: utc_datetime(getattr(row, f"{name}_ms")) for name in _INSTANT_COLUMNS}
    return {
        column.name: instants.get(column.name, getattr(row, column.name, None)) for column in RUNS_TABLE.columns
    }


def _from_stored(stored: Mapping[str, Any]) -> RunRow:
    content = {name: value for name, value in stored.items() if name in _FIELDS}
    content |= {f"{name}_ms": stored[name] for name in _INSTANT_COLUMNS}
    content["finished_by_version"] = content["finished_by_version"] or ""  # older versions did not record it
    content["status"] = RunStatus(content["status"])
    content["verdict"] = Verdict(content["verdict"]) if content["verdict"] else None
    return RunRow(**content)


_FIELDS = {field.name for field in fields(RunRow)}
_INSTANT_COLUMNS = tuple(column.name for column in RUNS_TABLE.columns if column.type == "timestamptz")
