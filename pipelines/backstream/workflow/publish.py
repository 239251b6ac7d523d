"""Publish a run, record its outcome in the ledger, and describe the result for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from backstream.errors import BackstreamError, CatalogError, ConflictError, QualityError
from backstream.eventtime.instants import instant_ms
from backstream.eventtime.records import ONLY_PARTITION, Fate
from backstream.lake.catalog import open_catalog_for_writing
from backstream.lake.ledger import list_recorded_runs, record_run
from backstream.lake.maintenance import expire_side_table_snapshots
from backstream.lake.publication import planned_tables
from backstream.lake.publication.publish import find_commit, publish_range
from backstream.lake.run_rows import ledger_row, list_untold_runs, published_row
from backstream.runs.home import Home
from backstream.runs.manifest import Manifest, load_manifests, sum_fates
from backstream.runs.plan import Plan
from backstream.runs.progress import Phase, keep_phase
from backstream.runs.results import Audit, Publication
from backstream.runs.status import RunStatus
from backstream.runs.store import Runs
from backstream.runs.table_schemas import SKIPPED
from backstream.workflow.demands import is_committed, require_publishable
from backstream.workflow.report import report_run


def publish_run(plan: Plan) -> Publication:
    """Publish the result of a run in one commit; a repetition changes nothing.

    Raises:
        StepError: when the run has no audit of its results, or lacks an approval.
        QualityError: when the quality gate or an approver rejected it.
        ConflictError: when another run has published into the range since the plan was made.
    """
    with record_failure(plan), keep_phase(plan.folder, Phase.PUBLISH):
        record_untold_commits(plan.home, plan.dataset)
        is_final = is_committed(plan)
        audit = Audit.read(plan.folder.audit_result) if is_final else require_publishable(plan)
        try:
            publication = publish_range(plan, load_manifests(plan), plan.home)
        except ConflictError:
            if not is_final:
                record_run(plan.home, ledger_row(plan, RunStatus.REFUSED, audit))
                report_run(plan)
            raise
        _record_commit(plan, publication, audit)
    expire_side_table_snapshots(plan.home, plan.dataset)
    return publication


def record_untold_commits(home: Home, dataset: str) -> None:
    """Record each run that was committed, and then was killed or lost the catalog before it could record this."""
    for row in list_untold_runs(home, list_recorded_runs(home, dataset), dataset):
        plan = Runs(home).plan(dataset, row.run_id)
        if publication := find_commit(plan):
            _record_commit(plan, publication, Audit.find(plan.folder.audit_result))


def _record_commit(plan: Plan, publication: Publication, audit: Audit | None) -> None:
    """Record a publication. The run ended with the commit: another run can have published since."""
    ended_ms = instant_ms(publication.published_at, "published_at")
    record_run(plan.home, published_row(plan, ended_ms, audit, publication.rows))
    # Write this file last: if the run is killed earlier, it is resumed, and the ledger row is added then.
    if not publication.already or not plan.folder.publication.exists():
        publication.write(plan.folder.publication)


@contextmanager
def record_failure(plan: Plan) -> Iterator[None]:
    """Record in the ledger that a run failed, and raise the error again.

    A rejection or a conflict is recorded by the step that detects it. Without the catalog nothing can be recorded;
    the status of the run then follows from its files. A published run is final and does not fail. A report that
    was written before the failure is written again.
    """
    try:
        yield
    except (QualityError, ConflictError, CatalogError):
        raise
    except Exception as error:
        first_line = str(error).partition("\n")[0] or type(error).__name__
        with suppress(BackstreamError, OSError):  # the first error is more important
            if not is_committed(plan):
                record_run(plan.home, ledger_row(plan, RunStatus.FAILED, error=first_line))
                renew_report(plan)
        raise


def renew_report(plan: Plan) -> None:
    """Write the report of a run again if there is one: it may be older than the newest step."""
    if plan.folder.report.exists():
        report_run(plan)


def publication_text(plan: Plan) -> str:
    """Return a summary for a terminal: events by fate and source partition, verdict, publication, and report."""
    folder, manifests = plan.folder, load_manifests(plan)
    lines = [f"{plan.dataset}  {plan.range}  {plan.mode}  run {plan.run_id}", "", *_fate_lines(manifests), ""]
    if folder.audit_result.exists():
        audit = Audit.read(folder.audit_result)
        lines.append(f"verdict    {audit.verdict}: {audit.summary}")
    lines.append(f"published  {_published_rows_text(plan)}")
    if skipped := [file for manifest in manifests for file in manifest.files.get(SKIPPED, ())]:
        windows, records = sum(file.rows for file in skipped), sum(file.records for file in skipped)
        lines.append(f"skipped    {windows:,} windows with {records:,} records, see {plan.tables[SKIPPED].name}")
    if folder.report.exists():
        lines.append(f"report     {plan.home.location_of(folder.report)}")
    return "\n".join(lines)


def _published_rows_text(plan: Plan) -> str:
    if not plan.folder.publication.exists():
        return "nothing"
    publication = Publication.read(plan.folder.publication)
    return f"{publication.rows:,} rows to table {publication.dataset}, replacing {publication.replaced_rows:,}"


def _fate_lines(manifests: Sequence[Manifest]) -> list[str]:
    """Return a line per source partition, if the source has some, and one for all.

    The events of a line are the sum of its fates.
    """
    by_partition = sum_fates(list(manifests))
    fates = [fate for fate in Fate if any(fate in counts for counts in by_partition.values())]
    total = {str(fate): sum(counts.get(fate, 0) for counts in by_partition.values()) for fate in fates}
    width = max([9, *(len(partition) for partition in by_partition)])
    names = [f"{'partition':<{width}}", f"{'events':>11}", " ", *(f"{fate:>11}" for fate in fates)]
    own = {} if [*by_partition] == [ONLY_PARTITION] else by_partition
    rows = [*sorted(own.items()), (ONLY_PARTITION, total)]
    return [" ".join(names), *(_fate_line(name.ljust(width), counts, fates) for name, counts in rows)]


def _fate_line(name: str, counts: Mapping[str, int], fates: Sequence[Fate]) -> str:
    cells = [f"{counts.get(fate, 0):>{max(11, len(fate))},}" for fate in fates]
    return " ".join([name, f"{sum(counts.values()):>11,}", "=", *cells])


def create_run_tables(plan: Plan) -> None:
    """Create the tables of a plan with its columns; a repetition changes nothing.

    Raises:
        PlanError: when another definition writes the dataset, or its published rows have other keys.
        ContractError: when a table was created or changed by another program since the plan was made.
    """
    with open_catalog_for_writing(plan.home) as catalog:
        planned_tables.create_tables(catalog, plan)
