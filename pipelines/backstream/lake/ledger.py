"""The ledger: who ran what, on which plan, with which verdict; two tables that all datasets share."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from backstream import __version__
from backstream.eventtime.instants import utc_datetime
from backstream.lake.metadata_pointers import find_metadata_location
from backstream.runs.file_summaries import load_summary
from backstream.runs.home import Home
from backstream.runs.plan import Plan
from backstream.runs.results import Audit, Verdict
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
"""`planned_by_version` made the plan, `finished_by_version` ended the run; `error` is what it failed of."""
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


class Status(StrEnum):
    """How a run ended."""

    PUBLISHED = "published"
    ALREADY_PUBLISHED = "already_published"
    """Written by older versions only: a run that is published again changes nothing, and leaves no second row."""
    REFUSED = "refused"
    """By the gate, or because another run came first."""
    FAILED = "failed"
    """Of an error; the same run may go on."""


@dataclass(frozen=True, slots=True)
class RunRow:
    """The outcome of one run. None: the run did not come so far."""

    run_id: str
    dataset: str
    status: Status
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
        """How long the run took."""
        return (self.finished_at_ms - self.started_at_ms) / _SECOND_MS


def run_row(
    plan: Plan,
    status: Status,
    span_ms: tuple[int, int],
    verdict: Verdict | None = None,
    rows: int | None = None,
    events_read: int | None = None,
) -> RunRow:
    """The row of a plan's run; `span_ms` says when it started and finished."""
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
    """Append a run's outcome; False when this outcome of this run was recorded before. A run may fail often."""
    from backstream.lake import ledger_tables

    key = () if row.status is Status.FAILED else ("run_id", "status")
    return ledger_tables.append_rows(home, RUNS, RUNS_TABLE, key, [_stored(row)])


def record_checks(home: Home, dataset: str, audit: Audit) -> bool:
    """Append each check of an audit; False when this verdict on this run was recorded before."""
    from backstream.lake import ledger_tables

    common = {
        "run_id": audit.run_id,
        "dataset": dataset,
        "suite": audit.suite,
        "verdict": audit.verdict.value,
    }
    kept = [column.name for column in CHECKS_TABLE.columns if column.name not in common]
    stored = [common | {name: getattr(check, name) for name in kept} for check in audit.checks]
    return ledger_tables.append_rows(home, CHECKS, CHECKS_TABLE, ("run_id", "verdict"), stored)


def list_runs(home: Home, dataset: str | None = None) -> list[RunRow]:
    """The recorded runs, of all datasets or of one, newest first.

    The rows of each data file are read once: what they say is kept in a summary of the table.
    """
    location = find_metadata_location(home, RUNS)
    if location is None:
        return []
    summary = load_summary(home.summary(RUNS), "the ledger's runs")
    if summary is None or summary.get("of") != location:
        from backstream.lake import ledger_tables

        summary = ledger_tables.summarize_files(home, summary)
    stored = (values for rows in summary["files"].values() for values in rows)
    found = [_run(dict(zip(summary["columns"], values, strict=True))) for values in stored]
    of_dataset = (row for row in found if dataset in (None, row.dataset))
    return sorted(of_dataset, key=lambda row: (row.finished_at_ms, row.run_id), reverse=True)


def list_checks(home: Home, dataset: str, run_ids: Collection[str] | None = None) -> list[dict[str, Any]]:
    """The recorded checks of a dataset, as rows of `CHECKS_TABLE`: join them with `runs` for their times.

    `run_ids` takes those of some runs only.
    """
    if find_metadata_location(home, CHECKS) is None or (run_ids is not None and not run_ids):
        return []
    from backstream.lake import ledger_tables

    return ledger_tables.scan_rows(home, CHECKS, dataset, run_ids)


def ledger_version(home: Home) -> str:
    """Changes whenever anything is recorded; empty where nothing ever was. Makes no table."""
    found = (find_metadata_location(home, name) for name in (RUNS, CHECKS))
    return " ".join(location for location in found if location)


def _stored(row: RunRow) -> dict[str, Any]:
    """As the table has it: instants as such."""
    renamed = {name: utc_datetime(getattr(row, f"{name}_ms")) for name in _INSTANTS}
    return {
        column.name: renamed.get(column.name, getattr(row, column.name, None)) for column in RUNS_TABLE.columns
    }


def _run(stored: Mapping[str, Any]) -> RunRow:
    content = {name: value for name, value in stored.items() if name in _FIELDS}
    content |= {f"{name}_ms": stored[name] for name in _INSTANTS}
    content["finished_by_version"] = content["finished_by_version"] or ""  # nobody noted it at first
    content["status"] = Status(content["status"])
    content["verdict"] = Verdict(content["verdict"]) if content["verdict"] else None
    return RunRow(**content)


_FIELDS = {each.name for each in fields(RunRow)}
_INSTANTS = tuple(column.name for column in RUNS_TABLE.columns if column.type == "timestamptz")
