"""The audit: what all chunks counted against what was expected; the answer is written before it is raised."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from pandas import DataFrame

from backstream.core.audit import Audit, Verdict
from backstream.core.errors import BackstreamError, QualityError
from backstream.core.folders import replacing
from backstream.core.input_notes import GONE_HINT
from backstream.core.instants import DAY_MS
from backstream.core.manifest import Manifest, StagedFile
from backstream.core.plan import Plan
from backstream.core.tables import (
    METRICS,
    METRICS_TABLE,
    PANES,
    PANES_KEPT,
    QUARANTINE,
    RECORD_COUNT,
    WINDOWS,
    pane_count,
)
from backstream.definition.load import parse
from backstream.definition.model import Definition
from backstream.lake.days import count_published_rows
from backstream.lake.ledger import Status, record_checks, record_run, runs
from backstream.lake.staging import checked_files, require_complete
from backstream.native.small_files import SMALL_BYTES, columns_by_group, columns_of
from backstream.quality.evidence import READ_OF_QUARANTINE, Evidence, unreadable_in
from backstream.quality.gate import judge
from backstream.steps.outcome import failing, outcome_row
from backstream.steps.positions import find_repeated_positions
from backstream.steps.reports import report_run
from backstream.steps.state import home_of, manifests_of

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
    with failing(plan):
        audit = _judged(plan)
        record_checks(home_of(plan), plan.dataset, audit)
        if not audit.may_publish:
            _refuse(plan, audit)
    return audit


def _judged(plan: Plan) -> Audit:
    manifests = manifests_of(plan)
    require_complete(plan, manifests)
    for suffix in plan.tables:
        checked_files(plan, suffix, manifests)
    definition = parse(plan.definition, f"plan {plan.run_id}")
    audit, frame = judge(
        plan,
        definition,
        staged_metrics(manifests),
        manifests,
        results=staged_results(definition, manifests),
        panes=_staged(manifests, PANES, [*_WINDOW, *map(pane_count, PANES_KEPT)]),
        evidence=_evidence(plan, definition, manifests),
    )
    audit = replace(audit, overridden=plan.gate_override)
    with replacing(plan.folder.audit) as draft:
        frame.to_parquet(draft, index=False)
    audit.write(plan.folder.verdict)
    return audit


def _evidence(plan: Plan, definition: Definition, manifests: Sequence[Manifest]) -> Evidence:
    return Evidence(
        past=_past(plan),
        replaced_rows=count_published_rows(home_of(plan), plan.dataset, plan.range),
        unreadable=unreadable_in(_staged(manifests, QUARANTINE, READ_OF_QUARANTINE)),
        repeated=find_repeated_positions(plan, definition),
    )


def _past(plan: Plan) -> list[float]:
    """Records read per day of the newest published run of each other range of the dataset, in the plan's mode."""
    found: dict[tuple[int, int], float] = {}
    for row in runs(home_of(plan), plan.dataset):
        days, is_published = (row.until_ms - row.since_ms) / DAY_MS, row.status is Status.PUBLISHED
        if is_published and row.mode == plan.mode and row.events_read and row.run_id != plan.run_id:
            found.setdefault((row.since_ms, row.until_ms), row.events_read / days)
    return list(found.values())


def _refuse(plan: Plan, audit: Audit) -> None:
    report = report_run(plan)
    if audit.verdict is Verdict.ERROR:
        msg = f"the audit of {audit.run_id} could not be completed: {audit.summary}\n  report: {report}"
        raise AuditError(msg)
    record_run(home_of(plan), outcome_row(plan, Status.REFUSED, audit))
    gone = f"\n  gone: {plan.gone}; {GONE_HINT}" if plan.gone else ""
    msg = f"{audit.summary}: nothing was published{gone}\n\nhint: the report is at {report}"
    raise QualityError(msg)


def staged_results(definition: Definition, manifests: Sequence[Manifest]) -> Iterator[pa.Table]:
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


def staged_metrics(manifests: Sequence[Manifest]) -> DataFrame:
    """The window metrics that all chunks staged, one row per window and source partition."""
    names = [column.name for column in METRICS_TABLE.columns]
    paths = [file.path for each in manifests for file in each.files.get(METRICS, ())]
    if not paths:
        return DataFrame(columns=names)
    frame: DataFrame = _read(paths, names).to_pandas()
    return frame


def _read(paths: Sequence[str], columns: Sequence[str]) -> pa.Table:
    """Some columns of Parquet files, of at least one; some may say that a column has no nulls, and others not."""
    tables = [columns_of(Path(path), columns) for path in paths]
    return pa.concat_tables(tables, promote_options="default")
