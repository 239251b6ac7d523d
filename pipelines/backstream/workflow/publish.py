"""What comes of a run: its publication, and a summary for a terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from backstream.errors import BackstreamError, CatalogError, ConflictError, QualityError
from backstream.eventtime.instants import SECOND_MS
from backstream.eventtime.records import Fate
from backstream.lake import planned_tables
from backstream.lake.catalog import open_catalog_for_writing
from backstream.lake.ledger import RunRow, Status, record_run, run_row
from backstream.lake.maintenance import expire_side_table_snapshots
from backstream.lake.publish import publish_range
from backstream.runs.manifest import Manifest, home_of, load_manifests, sum_fates
from backstream.runs.plan import Plan
from backstream.runs.results import ApprovalDecision, Audit, Publication
from backstream.workflow.report import report_run


def publish_run(plan: Plan) -> Publication:
    """Make the result of a run visible in one commit; doing it again changes nothing.

    Raises:
        QualityError: when the run was not audited, or the gate said no.
        ConflictError: when another run published into the range since this one was planned.
    """
    audit = _passed(plan)
    with record_failure(plan):
        try:
            publication = publish_range(plan, load_manifests(plan), home_of(plan))
        except ConflictError:
            record_run(home_of(plan), ledger_row(plan, Status.REFUSED, audit))
            report_run(plan)
            raise
        record_run(home_of(plan), ledger_row(plan, Status.PUBLISHED, audit, publication.rows))
        # Last: a run that is stopped before is gone on with, so that the ledger will know of it.
        if not publication.already or not plan.folder.publication.exists():
            publication.write(plan.folder.publication)
    expire_side_table_snapshots(home_of(plan), plan.dataset)
    return publication


@contextmanager
def record_failure(plan: Plan) -> Iterator[None]:
    """Note in the ledger that a run failed, whatever it failed of; the error goes on.

    What is refused, by the gate or because of another run, is noted where it is found. Without the catalog
    nothing can be noted: then the run's files tell how far it came.
    """
    try:
        yield
    except (QualityError, ConflictError, CatalogError):
        raise
    except Exception as error:
        first_line = str(error).partition("\n")[0] or type(error).__name__
        with suppress(BackstreamError, OSError):  # the error itself matters more
            record_run(home_of(plan), ledger_row(plan, Status.FAILED, error=first_line))
        raise


def _passed(plan: Plan) -> Audit:
    if plan.folder.audit_result.exists():
        audit = Audit.read(plan.folder.audit_result)
        decision = ApprovalDecision.read(plan.folder.approval)
        if decision and not decision.is_approved:
            msg = f"refusing to publish {plan.dataset} {plan.range}: {decision}"
            raise QualityError(msg)
        if audit.may_publish:
            return audit
        msg = f"refusing to publish {plan.dataset} {plan.range}: the verdict is {audit.verdict}"
        raise QualityError(msg)
    msg = f"refusing to publish {plan.dataset} {plan.range}: run {plan.run_id} was not audited"
    raise QualityError(msg)


def ledger_row(
    plan: Plan,
    status: Status,
    audit: Audit | None = None,
    rows: int | None = None,
    error: str | None = None,
) -> RunRow:
    """The ledger's row of a run that ends now; it began when its plan was written."""
    started_ms = int(plan.folder.plan.stat().st_mtime * SECOND_MS)
    span_ms = (started_ms, int(time.time() * SECOND_MS))
    events_read = sum(manifest.events_read for manifest in load_manifests(plan))
    row = run_row(plan, status, span_ms, audit.verdict if audit else None, rows, events_read)
    return replace(row, reason=_reason(plan, audit), error=error)


def _reason(plan: Plan, audit: Audit | None) -> str:
    """Why the run was asked for, and what else the ledger has to say about how it came to its end."""
    said = [plan.reason] if plan.reason else []
    if plan.overrides:
        said.append(", ".join(f"{key} = {value}" for key, value in sorted(plan.overrides.items())))
    if audit and audit.overridden and not audit.verdict.may_publish:
        said.append(f"the gate's {audit.verdict} overridden: {audit.overridden}")
    if decision := ApprovalDecision.read(plan.folder.approval):
        said.append(str(decision))
    return "; ".join(said)


def publication_text(plan: Plan) -> str:
    """The run in a few lines for a terminal: events = sum of fates per partition, verdict, publication, report."""
    folder, manifests = plan.folder, load_manifests(plan)
    lines = [f"{plan.dataset}  {plan.range}  {plan.mode}  run {plan.run_id}", "", *_fate_lines(manifests), ""]
    if folder.audit_result.exists():
        audit = Audit.read(folder.audit_result)
        lines.append(f"verdict    {audit.verdict}: {audit.summary}")
    lines.append(f"published  {_published(plan)}")
    if folder.report.exists():
        lines.append(f"report     {folder.report}")
    return "\n".join(lines)


def _published(plan: Plan) -> str:
    if not plan.folder.publication.exists():
        return "nothing"
    publication = Publication.read(plan.folder.publication)
    return f"{publication.rows:,} rows to table {publication.dataset}, replacing {publication.replaced_rows:,}"


def _fate_lines(manifests: Sequence[Manifest]) -> list[str]:
    """A table: a line per source partition and one for all; events owned = the fates' sum."""
    by_partition = sum_fates(list(manifests))
    fates = [fate for fate in Fate if any(fate in counts for counts in by_partition.values())]
    total = {str(fate): sum(counts.get(fate, 0) for counts in by_partition.values()) for fate in fates}
    width = max([9, *(len(partition) for partition in by_partition)])
    names = [f"{'partition':<{width}}", f"{'events':>11}", " ", *(f"{fate:>11}" for fate in fates)]
    rows = [*sorted(by_partition.items()), ("all", total)]
    return [" ".join(names), *(_fate_line(name.ljust(width), counts, fates) for name, counts in rows)]


def _fate_line(name: str, counts: Mapping[str, int], fates: Sequence[Fate]) -> str:
    cells = [f"{counts.get(fate, 0):>11,}" for fate in fates]
    return " ".join([name, f"{sum(counts.values()):>11,}", "=", *cells])


def create_run_tables(plan: Plan) -> None:
    """Make the tables that a plan promised, with the columns it promised; doing it again does nothing.

    Raises:
        PlanError: when another definition writes the dataset, or its published rows have other keys.
        ContractError: when somebody else made or changed a table since the run was planned.
    """
    with open_catalog_for_writing(home_of(plan)) as catalog:
        planned_tables.create_tables(catalog, plan)
