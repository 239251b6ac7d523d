"""The audit: what all chunks counted against what was expected; the answer is written before it is raised."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from pandas import DataFrame

from backstream.definition.loader import parse_definition
from backstream.definition.model import Definition
from backstream.errors import BackstreamError, QualityError
from backstream.eventtime.instants import DAY_MS
from backstream.lake.diff import ADDED
from backstream.lake.ledger import Status, list_runs, record_checks, record_run
from backstream.lake.scans import count_rows
from backstream.lake.staged_files import check_staged_files, require_complete_staging
from backstream.native.small_files import SMALL_BYTES, columns_by_group, load_columns
from backstream.quality.evidence import READ_OF_QUARANTINE, RunEvidence, count_unreadable
from backstream.quality.gate import evaluate_suite
from backstream.runs.home import replace_file
from backstream.runs.input_notes import GONE_HINT
from backstream.runs.manifest import Manifest, StagedFile, home_of, load_manifests
from backstream.runs.plan import Plan
from backstream.runs.results import ApprovalDecision, Audit, CheckOutcome, Verdict
from backstream.runs.table_schemas import (
    METRICS,
    METRICS_TABLE,
    PANES,
    PANES_KEPT,
    QUARANTINE,
    RECORD_COUNT,
    WINDOWS,
    pane_count,
)
from backstream.workflow.history import RunDifference, describe_difference, diff_run
from backstream.workflow.publish import ledger_row, record_failure
from backstream.workflow.repeated_positions import find_repeated_positions
from backstream.workflow.report import report_run

_WINDOW = ("window_start", "window_end")
_ROWS_TOGETHER = 1_000_000
"""Of several chunks: so many are in memory anyway where a chunk is larger."""


class AuditError(BackstreamError):
    """A check could not run, so there is no answer; nothing is published."""

    is_retryable = True  # most checks that could not run had no memory or no disk


def audit_run(plan: Plan) -> Audit:
    """Judge what the chunks of a plan produced; leaves audit frame, verdict and report.

    Raises:
        LedgerError: when a chunk has not finished.
        QualityError: when the gate says no and the plan does not override it; nothing will be published.
        AuditError: when a check could not run.
    """
    with record_failure(plan):
        audit = _judged(plan)
        record_checks(home_of(plan), plan.dataset, audit)
        if not audit.may_publish:
            _refuse(plan, audit)
    return audit


def _judged(plan: Plan) -> Audit:
    manifests = load_manifests(plan)
    require_complete_staging(plan, manifests)
    for suffix in plan.tables:
        check_staged_files(plan, suffix, manifests)
    definition = parse_definition(plan.definition, f"plan {plan.run_id}")
    audit, frame = evaluate_suite(
        plan,
        definition,
        load_staged_metrics(manifests),
        manifests,
        results=load_staged_results(definition, manifests),
        panes=_staged(manifests, PANES, [*_WINDOW, *map(pane_count, PANES_KEPT)]),
        evidence=_evidence(plan, definition, manifests),
    )
    audit = replace(audit, overridden=plan.gate_override)
    with replace_file(plan.folder.audit_frame) as draft:
        frame.to_parquet(draft, index=False)
    audit.write(plan.folder.audit_result)
    return audit


def _evidence(plan: Plan, definition: Definition, manifests: Sequence[Manifest]) -> RunEvidence:
    return RunEvidence(
        past=_past(plan),
        replaced_rows=count_rows(home_of(plan), plan.dataset, plan.range),
        unreadable=count_unreadable(_staged(manifests, QUARANTINE, READ_OF_QUARANTINE)),
        repeated=find_repeated_positions(plan, definition),
    )


def _past(plan: Plan) -> list[float]:
    """Records read per day of the newest published run of each other range of the dataset, in the plan's mode."""
    found: dict[tuple[int, int], float] = {}
    for row in list_runs(home_of(plan), plan.dataset):
        days, is_published = (row.until_ms - row.since_ms) / DAY_MS, row.status is Status.PUBLISHED
        if is_published and row.mode == plan.mode and row.events_read and row.run_id != plan.run_id:
            found.setdefault((row.since_ms, row.until_ms), row.events_read / days)
    return list(found.values())


def _refuse(plan: Plan, audit: Audit) -> None:
    report = report_run(plan)
    if audit.verdict is Verdict.ERROR:
        msg = f"the audit of {audit.run_id} could not be completed: {audit.summary}\n  report: {report}"
        raise AuditError(msg)
    record_run(home_of(plan), ledger_row(plan, Status.REFUSED, audit))
    gone = f"\n  gone: {plan.gone}; {GONE_HINT}" if plan.gone else ""
    msg = f"{audit.summary}: nothing was published{gone}\n\nhint: the report is at {report}"
    raise QualityError(msg)


def load_staged_results(definition: Definition, manifests: Sequence[Manifest]) -> Iterator[pa.Table]:
    """Keys, window and record count of the rows that each chunk staged for publication, a chunk at a time."""
    return _staged(manifests, WINDOWS, [*definition.source.key, *_WINDOW, RECORD_COUNT])


def _staged(manifests: Sequence[Manifest], suffix: str, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Some columns of what each chunk staged for a table, a chunk at a time; small chunks are read together."""
    several: list[Sequence[StagedFile]] = []
    for files in filter(None, (manifest.files.get(suffix) for manifest in manifests)):
        if several and sum(file.rows for of_chunk in [*several, files] for file in of_chunk) > _ROWS_TOGETHER:
            yield from _read_several(several, columns)
            several = []
        several.append(files)
    yield from _read_several(several, columns)


def _read_several(chunks: Sequence[Sequence[StagedFile]], columns: Sequence[str]) -> Iterator[pa.Table]:
    """Some columns of each of some chunks."""
    paths = [[file.path for file in of_chunk] for of_chunk in chunks]
    files = [file for of_chunk in chunks for file in of_chunk]
    are_small = len(files) > len(chunks) and all(file.size_bytes <= SMALL_BYTES for file in files)
    tables = columns_by_group(paths, columns) if are_small else None
    yield from tables or (_read(each, columns) for each in paths)


def load_staged_metrics(manifests: Sequence[Manifest]) -> DataFrame:
    """The window metrics that all chunks staged, one row per window and source partition."""
    names = [column.name for column in METRICS_TABLE.columns]
    paths = [file.path for each in manifests for file in each.files.get(METRICS, ())]
    if not paths:
        return DataFrame(columns=names)
    frame: DataFrame = _read(paths, names).to_pandas()
    return frame


def _read(paths: Sequence[str], columns: Sequence[str]) -> pa.Table:
    """Some columns of Parquet files, of at least one; some may say that a column has no nulls, and others not."""
    tables = [load_columns(Path(path), columns) for path in paths]
    return pa.concat_tables(tables, promote_options="default")


_CHECKS_SHOWN = 10


def approval_text(plan: Plan) -> str | None:
    """What a person has to know to decide on a publication, as Markdown; None when nobody has to be asked.

    Raises:
        LedgerError: when the run was not audited.
    """
    when = parse_definition(plan.definition, f"plan {plan.run_id}").approval.when
    audit = Audit.read(plan.folder.audit_result)
    if when == "never" or (when == "warn" and audit.verdict is Verdict.PASS):
        return None
    found = diff_run(home_of(plan), plan.run_id, limit=0)
    if when == "restatement" and not _replaces(found):
        return None
    return "\n\n".join([_verdict(audit), f"```text\n{describe_difference(found)}\n```", *_said(plan)])


def record_approval(plan: Plan, decision: ApprovalDecision) -> None:
    """Keep a decision with its run; a rejected run ends with its report, and what it staged stays."""
    decision.write(plan.folder.approval)
    if decision.is_approved:
        return
    audit = Audit.read(plan.folder.audit_result)
    record_run(home_of(plan), ledger_row(plan, Status.REFUSED, audit))
    report_run(plan)


def _replaces(found: RunDifference) -> bool:
    """Whether rows that are published now would be others, or gone."""
    return any(count for change, count in found.changes.windows.items() if change != ADDED)


def _verdict(audit: Audit) -> str:
    missed = [each for each in audit.checks if each.outcome not in (CheckOutcome.PASS, CheckOutcome.INFO)]
    lines = [f"**Verdict {audit.verdict}**: {audit.summary}"]
    lines += [f"- {each.outcome}: {each.name}: {each.observed}" for each in missed[:_CHECKS_SHOWN]]
    if audit.overridden and not audit.verdict.may_publish:
        lines.append(f"\nTo be published in spite of it: {audit.overridden}")
    return "\n".join(lines)


def _said(plan: Plan) -> list[str]:
    """The reason of whoever asked, and what is otherwise than defined."""
    said = [f"Reason: {plan.reason}"] if plan.reason else []
    if plan.overrides:
        taken = ", ".join(f"`{key} = {value}`" for key, value in sorted(plan.overrides.items()))
        said.append(f"For this run only: {taken}")
    return said
