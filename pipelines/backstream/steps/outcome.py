"""What comes of a run: its publication, its report, and a summary for a terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pandas as pd

from backstream.core.audit import Audit, Verdict
from backstream.core.errors import BackstreamError, CatalogError, ConflictError, QualityError
from backstream.core.fates import Fate
from backstream.core.folders import write_text
from backstream.core.instants import SECOND_MS
from backstream.core.manifest import Manifest, total_fates
from backstream.core.plan import Plan
from backstream.core.publication import Publication
from backstream.definition.load import parse
from backstream.lake.ledger import RunRow, Status, record_run, run_row
from backstream.lake.publish import publish
from backstream.report.run_report import render
from backstream.steps.state import home_of, manifests_of


def publish_run(plan: Plan) -> Publication:
    """Make the result of a run visible in one commit; doing it again changes nothing.

    Raises:
        QualityError: when the run was not audited, or the gate said no.
        ConflictError: when another run published into the range since this one was planned.
    """
    audit = _passed(plan)
    with failing(plan):
        try:
            publication = publish(plan, manifests_of(plan), home_of(plan))
        except ConflictError:
            record_run(home_of(plan), outcome_row(plan, Status.REFUSED, audit.verdict))
            report_run(plan)
            raise
        record_run(home_of(plan), outcome_row(plan, Status.PUBLISHED, audit.verdict, publication.rows))
        # Last: a run that is stopped before is gone on with, so that the ledger will know of it.
        if not publication.already or not plan.folder.publication.exists():
            publication.write(plan.folder.publication)
    return publication


@contextmanager
def failing(plan: Plan) -> Iterator[None]:
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
            record_run(home_of(plan), outcome_row(plan, Status.FAILED, error=first_line))
        raise


def _passed(plan: Plan) -> Audit:
    if plan.folder.verdict.exists():
        audit = Audit.read(plan.folder.verdict)
        if audit.verdict.may_publish:
            return audit
        msg = f"refusing to publish {plan.dataset} {plan.range}: the verdict is {audit.verdict}"
        raise QualityError(msg)
    msg = f"refusing to publish {plan.dataset} {plan.range}: run {plan.run_id} was not audited"
    raise QualityError(msg)


def outcome_row(
    plan: Plan,
    status: Status,
    verdict: Verdict | None = None,
    rows: int | None = None,
    error: str | None = None,
) -> RunRow:
    """The ledger's row of a run that ends now; it began when its plan was written."""
    started_ms = int(plan.folder.plan.stat().st_mtime * SECOND_MS)
    span_ms = (started_ms, int(time.time() * SECOND_MS))
    events_read = sum(manifest.events_read for manifest in manifests_of(plan))
    return replace(run_row(plan, status, span_ms, verdict, rows, events_read), error=error)


def report_run(plan: Plan) -> Path:
    """Write the run report from whatever the run has left so far, and return the file."""
    folder = plan.folder
    html = render(
        plan,
        manifests_of(plan),
        Audit.read(folder.verdict) if folder.verdict.exists() else None,
        pd.read_parquet(folder.audit) if folder.audit.exists() else None,
        Publication.read(folder.publication) if folder.publication.exists() else None,
        parse(plan.definition, f"plan {plan.run_id}"),
    )
    write_text(folder.report, html)
    return folder.report


def summary(plan: Plan) -> str:
    """The run in a few lines for a terminal: events = sum of fates per partition, verdict, publication, report."""
    folder, manifests = plan.folder, manifests_of(plan)
    lines = [f"{plan.dataset}  {plan.range}  {plan.mode}  run {plan.run_id}", "", *_fate_lines(manifests), ""]
    if folder.verdict.exists():
        audit = Audit.read(folder.verdict)
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
    by_partition = total_fates(list(manifests))
    fates = [fate for fate in Fate if any(fate in counts for counts in by_partition.values())]
    total = {str(fate): sum(counts.get(fate, 0) for counts in by_partition.values()) for fate in fates}
    width = max([9, *(len(partition) for partition in by_partition)])
    names = [f"{'partition':<{width}}", f"{'events':>11}", " ", *(f"{fate:>11}" for fate in fates)]
    rows = [*sorted(by_partition.items()), ("all", total)]
    return [" ".join(names), *(_fate_line(name.ljust(width), counts, fates) for name, counts in rows)]


def _fate_line(name: str, counts: Mapping[str, int], fates: Sequence[Fate]) -> str:
    cells = [f"{counts.get(fate, 0):>11,}" for fate in fates]
    return " ".join([name, f"{sum(counts.values()):>11,}", "=", *cells])
