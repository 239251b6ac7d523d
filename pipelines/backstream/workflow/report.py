"""The report of a run in the form that was asked for, from whatever the run has left."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from backstream.definition.loader import parse_definition
from backstream.definition.model import Definition
from backstream.errors import BackstreamError, SpecError
from backstream.eventtime.instants import SECOND_MS
from backstream.lake.ledger import RunRow, list_checks, list_runs
from backstream.lake.snapshots import TableState
from backstream.report.delay_histogram import count_delays
from backstream.report.formatting import second_text
from backstream.report.html import render_report
from backstream.report.run_context import ChangeSummary, RunContext
from backstream.report.summary import RunSummary
from backstream.runs.home import Home, write_text
from backstream.runs.manifest import home_of, load_manifests
from backstream.runs.plan import Plan
from backstream.runs.results import Audit, CheckOutcome, Publication
from backstream.text import ReportFormat
from backstream.workflow.dataset_state import write_run_totals
from backstream.workflow.history import diff_run


def report_run(plan: Plan) -> Path:
    """Write the run report from whatever the run has left so far, and return the file.

    Leaves beside it what the pages inside Airflow show of the run. What they show of its dataset as it is now is
    looked for by `observe.refresh`: it takes a look at the source, and no report waits for that.
    """
    write_text(plan.folder.report, report_text(plan, ReportFormat.HTML))
    write_run_totals(plan)
    return plan.folder.report


def report_text(plan: Plan, form: ReportFormat) -> str:
    """The report of a run as text; nothing is written."""
    found = load_summary_of_run(plan)
    known = gather_context(
        plan, found.definition, found.publication, is_complete=len(found.manifests) == len(plan.chunks)
    )
    told = RunSummary(plan, found.definition, found.manifests, found.audit, found.publication, known)
    if form is ReportFormat.MD:
        return told.markdown()
    if form is ReportFormat.JSON:
        return json.dumps(told.as_json(), indent=1) + "\n"
    frame = pd.read_parquet(plan.folder.audit_frame) if plan.folder.audit_frame.exists() else None
    return render_report(plan, told.manifests, told.audit, frame, told.publication, told.definition, known)


def load_summary_of_run(plan: Plan) -> RunSummary:
    """What a run has left in its folder; the lake is not asked."""
    folder = plan.folder
    return RunSummary(
        plan,
        parse_definition(plan.definition, f"plan {plan.run_id}"),
        load_manifests(plan),
        Audit.read(folder.audit_result) if folder.audit_result.exists() else None,
        Publication.read(folder.publication) if folder.publication.exists() else None,
        RunContext(),
    )


def load_plan(home: Home, run_id: str) -> Plan:
    """The plan of a run.

    Raises:
        SpecError: when there is no such run here.
    """
    found = sorted((home.path / "runs").glob("*/*/plan.json"))
    for path in found:
        if path.parent.name == run_id:
            return Plan.read(path)
    msg = f"no definition and no run {run_id!r} in {home.path}, which has {len(found):,} runs"
    raise SpecError(msg)


_CHANGES_SHOWN = 8
_RUNS_SHOWN = 12


def gather_context(
    plan: Plan, definition: Definition, publication: Publication | None, *, is_complete: bool
) -> RunContext:
    """What the lake, the ledger and the recording tell about a run now.

    Args:
        plan: of the run.
        definition: that the plan holds.
        publication: what the run committed, None when nothing.
        is_complete: whether every chunk has finished, so that there is something to compare.
    """
    why_not: dict[str, str] = {}
    rows = list_runs(home_of(plan), plan.dataset)
    past = _newest_outcomes(rows, plan.run_id)
    delays, why_not["delays"] = count_delays(plan, definition)
    changed, why_not["changed"] = (
        _changed(plan, publication) if is_complete else (None, "not every chunk finished")
    )
    return RunContext(
        written_at_ms=int(time.time() * SECOND_MS),
        changes=changed,
        own=next((row for row in rows if row.run_id == plan.run_id), None),
        past=past,
        outcomes=_outcomes(plan, past),
        delays=delays,
        unavailable=why_not,
    )


def _newest_outcomes(rows: Sequence[RunRow], own: str) -> tuple[RunRow, ...]:
    """The last row of each other run, the newest first."""
    found: dict[str, RunRow] = {}
    for row in rows:
        if row.run_id != own:
            found.setdefault(row.run_id, row)
    return tuple(found.values())


def _outcomes(plan: Plan, past: Sequence[RunRow]) -> dict[str, tuple[CheckOutcome, ...]]:
    """What each check said in the last runs, the oldest first; a run audited twice by its last answer."""
    shown = [row.run_id for row in past[:_RUNS_SHOWN]]
    said: dict[str, dict[str, CheckOutcome]] = {}
    for row in list_checks(home_of(plan), plan.dataset, shown):
        said.setdefault(row["name"], {})[row["run_id"]] = CheckOutcome(row["outcome"])
    return {
        name: tuple(of_run[run_id] for run_id in reversed(shown) if run_id in of_run)
        for name, of_run in said.items()
    }


def _changed(plan: Plan, publication: Publication | None) -> tuple[ChangeSummary | None, str]:
    if publication and not publication.replaced_rows and not publication.already:
        return None, "nothing had been published in this range before"
    try:
        difference = diff_run(home_of(plan), plan.run_id, _CHANGES_SHOWN)
    except BackstreamError as error:
        return None, str(error).partition("\n")[0]
    against = _state(difference.against) if difference.against else ""
    return ChangeSummary(difference.is_published, against, difference.changes), ""


def _state(against: TableState) -> str:
    by = f" by run {against.run_id}" if against.run_id else ""
    return f"version {against.version} of {second_text(against.made_at_ms)}{by}"
