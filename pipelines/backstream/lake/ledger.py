"""The ledger: who ran what, on which plan, with which verdict; two tables that all datasets share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Operation

from backstream import __version__
from backstream.core.audit import Audit, Verdict
from backstream.core.folders import Home
from backstream.core.instants import epoch_ms, moment
from backstream.core.plan import Plan
from backstream.core.tables import Column, Table
from backstream.lake.catalog import NAMESPACE, opened
from backstream.lake.commits import committed, with_retries
from backstream.lake.filters import equal
from backstream.lake.resting import merged, rested
from backstream.lake.schemas import ensured
from backstream.lake.warehouse import Warehouse

_RUNS, _CHECKS = "runs", "checks"
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
        Column("trigger", "string", required=True),
        Column("reason", "string", required=True),
        Column("definition_hash", "string", required=True),
        Column("plan_hash", "string", required=True),
        Column("code_version", "string", required=True),
        Column("rows", "long"),
        Column("events_read", "long"),
        Column("started_at", "timestamptz", required=True),
        Column("finished_at", "timestamptz", required=True),
        Column("seconds", "double", required=True),
        Column("ran_with", "string"),
        Column("error", "string"),
    ),
)
"""`code_version` made the plan, `ran_with` brought it to its end; `error` is what it failed of."""
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
        Column("unexpected", "long", required=True),
        Column("elements", "long", required=True),
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
    trigger: str
    reason: str
    definition_hash: str
    plan_hash: str
    code_version: str
    rows: int | None
    events_read: int | None
    started_at_ms: int
    finished_at_ms: int
    ran_with: str = ""
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
        trigger=plan.trigger,
        reason=plan.reason,
        definition_hash=plan.definition_hash,
        plan_hash=plan.plan_hash,
        code_version=plan.code_version,
        rows=rows,
        events_read=events_read,
        started_at_ms=span_ms[0],
        finished_at_ms=span_ms[1],
        ran_with=__version__,
    )


def record_run(home: Home, row: RunRow) -> bool:
    """Append a run's outcome; False when this outcome of this run was recorded before. A run may fail often."""
    key = () if row.status is Status.FAILED else ("run_id", "status")
    return _recorded(home, _RUNS, RUNS_TABLE, key, [_stored(row)])


def record_checks(home: Home, dataset: str, audit: Audit) -> bool:
    """Append each check of an audit; False when this verdict on this run was recorded before."""
    common = {
        "run_id": audit.run_id,
        "dataset": dataset,
        "suite": audit.suite,
        "verdict": audit.verdict.value,
    }
    kept = [column.name for column in CHECKS_TABLE.columns if column.name not in common]
    stored = [common | {name: getattr(check, name) for name in kept} for check in audit.checks]
    return _recorded(home, _CHECKS, CHECKS_TABLE, ("run_id", "verdict"), stored)


def runs(home: Home, dataset: str | None = None) -> list[RunRow]:
    """The recorded runs, of all datasets or of one, newest first."""
    with opened(home) as catalog:
        scan = ensured(catalog, _RUNS, RUNS_TABLE).scan(
            row_filter=equal(dataset=dataset) if dataset else AlwaysTrue()
        )
        found = [_run(each) for each in scan.to_arrow().to_pylist()]
    return sorted(found, key=lambda row: (row.finished_at_ms, row.run_id), reverse=True)


def checks(home: Home, dataset: str) -> list[dict[str, Any]]:
    """The recorded checks of a dataset, as rows of `CHECKS_TABLE`: join them with `runs` for their times."""
    with opened(home) as catalog:
        scan = ensured(catalog, _CHECKS, CHECKS_TABLE).scan(row_filter=equal(dataset=dataset))
        found: list[dict[str, Any]] = scan.to_arrow().to_pylist()
    return found


def version(home: Home) -> str:
    """Changes whenever anything is recorded; empty where nothing ever was. Makes no table."""
    warehouse = Warehouse.of(home)
    if warehouse.is_on_disk and not Path(warehouse.shown).is_dir():
        return ""
    with opened(home) as catalog:
        places = [(NAMESPACE, name) for name in (_RUNS, _CHECKS)]
        found = [catalog.load_table(place).metadata_location for place in places if catalog.table_exists(place)]
    return " ".join(found)


def _recorded(
    home: Home, name: str, wanted: Table, key: tuple[str, ...], stored: Sequence[Mapping[str, Any]]
) -> bool:
    if not stored:
        return False
    with opened(home) as catalog:

        def attempt() -> bool:
            table = ensured(catalog, name, wanted)
            if key and _holds(table, {column: stored[0][column] for column in key}):
                return False
            rows = pa.Table.from_pylist(list(stored), schema=table.schema().as_arrow())
            written = list(_dataframe_to_data_files(table.metadata, rows, table.io))
            committed(table, Operation.APPEND, written, [], {})
            return True

        is_new = with_retries(f"record in table `{name}`", attempt)
        if is_new:
            merged(catalog, name)
            rested(catalog, name)
        return is_new


def _holds(table: IcebergTable, values: Mapping[str, Any]) -> bool:
    return bool(table.scan(row_filter=equal(**values), limit=1).to_arrow().num_rows)


def _stored(row: RunRow) -> dict[str, Any]:
    renamed = {
        "since": moment(row.since_ms),
        "until": moment(row.until_ms),
        "started_at": moment(row.started_at_ms),
        "finished_at": moment(row.finished_at_ms),
    }
    return {
        column.name: renamed.get(column.name, getattr(row, column.name, None)) for column in RUNS_TABLE.columns
    }


def _run(stored: Mapping[str, Any]) -> RunRow:
    content = dict(stored)
    del content["seconds"]
    for name in ("since", "until", "started_at", "finished_at"):
        content[f"{name}_ms"] = epoch_ms(content.pop(name))
    content["ran_with"] = content["ran_with"] or ""  # nobody noted it at first
    content["status"] = Status(content["status"])
    content["verdict"] = Verdict(content["verdict"]) if content["verdict"] else None
    return RunRow(**content)
