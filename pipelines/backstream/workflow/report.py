"""Write the report of a run as HTML, Markdown or JSON from the files in its folder and from the lake."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa

from backstream.definition.loader import parse_definition
from backstream.definition.model import Definition
from backstream.errors import BackstreamError
from backstream.eventtime.instants import SECOND_MS
from backstream.eventtime.windows import Session
from backstream.formatting import second_text
from backstream.lake.ledger import RunRow, list_checks
from backstream.lake.run_rows import list_runs
from backstream.lake.snapshots import TableState
from backstream.report.delay_histogram import count_delays
from backstream.report.figures import counts_late_rows
from backstream.report.html import render_report
from backstream.report.run_context import ChangeSummary, RunContext
from backstream.report.summary import RunSummary
from backstream.runs.manifest import Manifest, load_manifests
from backstream.runs.plan import Plan
from backstream.runs.results import Audit, CheckOutcome, LaterAudit, Publication, Receipt
from backstream.runs.table_schemas import DROPPED
from backstream.storage.columns import load_columns
from backstream.storage.files import write_text
from backstream.storage.stores import Stores, map_files
from backstream.text import ReportFormat
from backstream.workflow.history import diff_run

_MAX_CHANGES = 8
_MAX_RUNS = 12


def report_run(plan: Plan) -> Path:
    """Write the run report from the files that the run has written so far, and return the report file.

    `refresh_dataset_state` is a separate step, because it reads the source.
    """
    is_published = plan.folder.publication.exists()
    write_text(plan.folder.report, report_text(plan, ReportFormat.HTML))
    if is_published:
        write_text(plan.folder.success_marker, "")
    return plan.folder.report


def report_text(plan: Plan, form: ReportFormat) -> str:
    """Return the report of a run as text."""
    summary = load_run_summary(plan)
    is_complete = len(summary.manifests) == len(plan.chunks)
    context = _gather_context(
        plan, summary.definition, summary.manifests, summary.publication, is_complete=is_complete
    )
    summary = RunSummary(plan, summary.definition, summary.manifests, summary.audit, summary.publication, context)
    if form is ReportFormat.MD:
        return summary.markdown()
    if form is ReportFormat.JSON:
        return json.dumps(summary.as_json(), indent=1) + "\n"
    frame = pd.read_parquet(plan.folder.audit_frame) if plan.folder.audit_frame.exists() else None
    return render_report(
        plan, summary.manifests, summary.audit, frame, summary.publication, summary.definition, context
    )


def load_run_summary(plan: Plan) -> RunSummary:
    """Return the summary of a run from its folder only, without the lake."""
    folder = plan.folder
    return RunSummary(
        plan,
        parse_definition(plan.definition, f"plan {plan.run_id}"),
        load_manifests(plan),
        Audit.find(folder.audit_result),
        Publication.find(folder.publication),
        RunContext(),
    )


def _gather_context(
    plan: Plan,
    definition: Definition,
    manifests: Sequence[Manifest],
    publication: Publication | None,
    *,
    is_complete: bool,
) -> RunContext:
    """Return the facts about a run that come from the lake, the ledger and the recording.

    Args:
        plan: the plan of the run.
        definition: the definition in the plan.
        manifests: the chunks that have finished.
        publication: the commit of the run; None without one.
        is_complete: whether all chunks have finished, which a comparison requires.
    """
    unavailable: dict[str, str] = {}
    rows = list_runs(plan.home, plan.dataset)
    past = _newest_outcomes(rows, plan.run_id)
    delays, unavailable["delays"] = count_delays(plan, definition)
    changes, unavailable["changed"] = (
        _compare(plan, publication) if is_complete else (None, "not every chunk finished")
    )
    return RunContext(
        written_at_ms=int(time.time() * SECOND_MS),
        changes=changes,
        own=next((row for row in rows if row.run_id == plan.run_id), None),
        past=past,
        outcomes=_list_outcomes(plan, past),
        delays=delays,
        verification=Receipt.find(plan.folder.verification),
        later_audit=LaterAudit.find(plan.folder.later_audit),
        late_slices=_count_late_slices(definition, manifests),
        unavailable=unavailable,
    )


def _count_late_slices(definition: Definition, manifests: Sequence[Manifest]) -> int | None:
    """Return the number of keys and slices of windows with dropped records.

    None if no metric counts them, or the rows that the run staged are not there any more.
    """
    window = definition.window.spec()
    if isinstance(window, Session) or not counts_late_rows(definition):
        return None
    keys, stores, count = definition.source.key, Stores.from_environment(), 0
    for manifest in manifests:  # all records of a slice belong to one chunk
        paths = {file.path: file.path for file in manifest.files.get(DROPPED, ())}
        try:
            tables = map_files(lambda path: load_columns(path, [*keys, "event_time"], stores), paths)
        except (OSError, BackstreamError):
            return None
        if tables:
            dropped = pa.concat_tables(tables, promote_options="default")
            events_ms = dropped["event_time"].cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
            numbers = pa.array((events_ms.to_numpy() - window.offset_ms) // window.slice_ms)
            by_slice = dropped.select(keys).append_column("slice", numbers).group_by([*keys, "slice"])
            count += by_slice.aggregate([]).num_rows
    return count


def _newest_outcomes(rows: Sequence[RunRow], own: str) -> tuple[RunRow, ...]:
    """Return the last row of each other run, the newest first."""
    newest: dict[str, RunRow] = {}
    for row in rows:
        if row.run_id != own:
            newest.setdefault(row.run_id, row)
    return tuple(newest.values())


def _list_outcomes(plan: Plan, past: Sequence[RunRow]) -> dict[str, tuple[CheckOutcome, ...]]:
    """Return the outcomes of each check in the last runs, the oldest first; of repeated audits the last."""
    shown = [row.run_id for row in past[:_MAX_RUNS]]
    by_run: dict[str, dict[str, CheckOutcome]] = {}
    for row in list_checks(plan.home, plan.dataset, shown):
        by_run.setdefault(row["name"], {})[row["run_id"]] = CheckOutcome(row["outcome"])
    return {
        name: tuple(outcomes[run_id] for run_id in reversed(shown) if run_id in outcomes)
        for name, outcomes in by_run.items()
    }


def _compare(plan: Plan, publication: Publication | None) -> tuple[ChangeSummary | None, str]:
    if publication and not publication.replaced_rows and not publication.already:
        return None, "nothing had been published in this range before"
    try:
        difference = diff_run(plan.home, plan.run_id, _MAX_CHANGES)
    except BackstreamError as error:
        return None, str(error).partition("\n")[0]
    against = state_text(difference.against) if difference.against else ""
    return ChangeSummary(difference.is_published, against, difference.changes), ""


def state_text(against: TableState) -> str:
    """Return a state of the published table: `version 2 of 2024-03-20 06:00:07 UTC by run r`."""
    by = f" by run {against.run_id}" if against.run_id else ""
    return f"version {against.version} of {second_text(against.made_at_ms)}{by}"
