"""Audit a run: check the counts of all chunks with the quality gate.

The audit result is written before an error is raised.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pandas import DataFrame

from backstream.definition.loader import apply_overrides, load_definition, parse_definition, resolve_paths
from backstream.definition.model import Definition
from backstream.definition.run_sections import Quality
from backstream.errors import BackstreamError, QualityError
from backstream.eventtime.instants import DAY_MS, SECOND_MS
from backstream.formatting import second_text
from backstream.lake.ledger import record_checks, record_run
from backstream.lake.publication.staged_files import check_staged_files, require_complete_staging
from backstream.lake.run_rows import ledger_row, list_runs
from backstream.lake.scans import count_rows_by_day
from backstream.native.small_files import columns_by_group
from backstream.quality.evidence import READ_OF_QUARANTINE, RunEvidence, count_unreadable
from backstream.quality.gate import Validate, evaluate_suite
from backstream.quality.gx_adapter import validate_frames
from backstream.quality.suites import hash_expectations
from backstream.runs.dataset_state import write_day_totals
from backstream.runs.input_files import SHOWN
from backstream.runs.input_notes import REMOVED_HINT
from backstream.runs.manifest import Manifest, StagedFile, hash_results, load_manifests
from backstream.runs.plan import Mode, Plan
from backstream.runs.progress import Phase, keep_phase
from backstream.runs.results import Audit, Check, CheckOutcome, LaterAudit, Publication, Verdict
from backstream.runs.status import RunStatus
from backstream.runs.table_schemas import (
    IS_SKIPPED,
    METRICS,
    METRICS_TABLE,
    PANES,
    PANES_KEPT,
    QUARANTINE,
    RECORD_COUNT,
    SKIPPED,
    WINDOWS,
    WITHHELD,
    pane_count_column,
)
from backstream.source.input_versions import require_unchanged_inputs
from backstream.storage.columns import SMALL_BYTES, load_columns
from backstream.storage.files import replace_file
from backstream.storage.stores import Stores, is_in_store, map_files
from backstream.workflow.dataset_state import compute_day_totals
from backstream.workflow.demands import has_published_rows, is_committed
from backstream.workflow.inputs.repeated_positions import find_repeated_positions
from backstream.workflow.past_windows import load_past_windows
from backstream.workflow.publish import record_failure, renew_report
from backstream.workflow.report import report_run
from backstream.workflow.verify import check_staged_sample

_LASTING = re.compile(r"could not run: \w*(Type|Value|Key|Name|Attribute|Index|Syntax)Error\b")
"""The text of a check whose exception is that of a wrong argument, such as a number for a column of texts."""
_WINDOW = ("window_start", "window_end")
_MAX_ROWS_TOGETHER = 1_000_000
"""The rows of small chunks that are read together; one large chunk needs as much memory."""


class AuditError(BackstreamError):
    """A check could not run, so there is no verdict; nothing is published."""

    is_retryable = True  # most such checks lacked memory or disk space

    def __init__(self, message: str, checks: Sequence[Check] = ()) -> None:
        """Set whether a retry may succeed: an exception of a check's own arguments stays the same."""
        super().__init__(message)
        errors = [check for check in checks if check.outcome is CheckOutcome.ERROR]
        self.is_retryable = not errors or any(_LASTING.match(check.observed) is None for check in errors)


def audit_run(plan: Plan, validate: Validate = validate_frames) -> Audit:
    """Check the results of a plan's chunks; write audit frame, sums per day, verdict, and a refusal's report.

    A published run is final: it keeps its audit, which is returned; see `judge_again`.

    Args:
        plan: the plan of the run.
        validate: returns the results of expectations.

    Raises:
        StepError: when a chunk has not finished.
        PlanError: when an input file that a check reads has changed or is gone.
        QualityError: when the quality gate fails and the plan does not override it; nothing is published.
        AuditError: when a check could not run.
    """
    with record_failure(plan), keep_phase(plan.folder, Phase.AUDIT):
        if is_committed(plan):
            return Audit.read(plan.folder.audit_result)
        audit = _audit(plan, validate)
        record_checks(plan.home, plan.dataset, audit)
        if not audit.may_publish:
            _refuse(plan, audit)
        renew_report(plan)
    return audit


def judge_again(plan: Plan) -> LaterAudit | None:
    """Judge a published run with the suite and the limits of today, and keep this beside its audit, which stays.

    None if they are those of its audit, or its rows are not published any more.

    Raises:
        SpecError: when the suite is missing or invalid.
        PlanError: when an input file that a check reads has changed or is gone.
    """
    folder = plan.folder
    definition = parse_definition(plan.definition, f"plan {plan.run_id}")
    definition = definition.model_copy(update={"quality": _load_current_quality(plan, definition)})
    expectations = hash_expectations(definition.quality)
    is_published = folder.publication.exists() and has_published_rows(plan, Publication.read(folder.publication))
    if not is_published or Audit.read(folder.audit_result).expectations == expectations:
        return None
    known = LaterAudit.find(folder.later_audit)
    if known is None or known.expectations != expectations:
        with _explain_inputs(plan):
            audit, _ = _evaluate(plan, definition, validate_frames)
        at = second_text(int(time.time() * SECOND_MS))
        known = LaterAudit(audit.suite, audit.verdict, audit.summary, expectations, at)
        known.write(folder.later_audit)
        renew_report(plan)
    return known


def _load_current_quality(plan: Plan, definition: Definition) -> Quality:
    """Return the section `[quality]` of today; that of the plan if its definition is gone or invalid."""
    try:
        current = apply_overrides(load_definition(Path(plan.definition_path)), plan.overrides, plan.mode)
        return resolve_paths(current, plan.home).quality
    except BackstreamError:
        return definition.quality


@contextmanager
def _explain_inputs(plan: Plan) -> Iterator[None]:
    """Raise an error that names the input files that a check could not read."""
    try:
        yield
    except OSError:
        require_unchanged_inputs(plan)
        raise


def _audit(plan: Plan, validate: Validate) -> Audit:
    """Judge the staged results of a run, and write audit frame, sums per day, and verdict."""
    definition = parse_definition(plan.definition, f"plan {plan.run_id}")
    with _explain_inputs(plan):
        audit, frame = _evaluate(plan, definition, validate)
    with replace_file(plan.folder.audit_frame) as draft:
        frame.to_parquet(draft, index=False)
    # The pages read these sums as soon as the run is published, which is before its report.
    write_day_totals(plan.folder.day_totals, compute_day_totals(frame, definition.quality))
    audit.write(plan.folder.audit_result)
    return audit


def _evaluate(plan: Plan, definition: Definition, validate: Validate) -> tuple[Audit, DataFrame]:
    """Return the audit of the staged results of a run, and its frame."""
    manifests = load_manifests(plan)
    require_complete_staging(plan, manifests)
    for suffix in plan.tables:
        check_staged_files(plan, suffix, manifests)
    expectations = hash_expectations(definition.quality)
    with ThreadPoolExecutor(1) as pool:
        # The positions of all input records are compared while the result is read.
        evidence = pool.submit(_load_evidence, plan, definition, manifests)
        audit, frame = evaluate_suite(
            plan,
            definition,
            _load_staged_metrics(manifests),
            manifests,
            results=load_staged_results(definition, manifests, plan.mode),
            panes=_load_staged_panes(definition, manifests),
            withheld=_scan_staged(manifests, WITHHELD, [*_WINDOW, "rows", RECORD_COUNT]),
            load_evidence=evidence.result,
            validate=validate,
        )
    if definition.quality.verify:
        audit = audit.with_check(check_staged_sample(plan, manifests, frame, definition.quality.verify))
    results = hash_results(manifests)
    return replace(audit, overridden=plan.gate_override, results=results, expectations=expectations), frame


def _load_evidence(plan: Plan, definition: Definition, manifests: Sequence[Manifest]) -> RunEvidence:
    return RunEvidence(
        past=_list_past_rates(plan),
        past_windows=load_past_windows(plan, definition),
        replaced_by_day=count_rows_by_day(plan.home, plan.dataset, plan.range, before=plan.run_id),
        unreadable=count_unreadable(_scan_staged(manifests, QUARANTINE, READ_OF_QUARANTINE)),
        repeated=find_repeated_positions(plan, definition),
    )


def _list_past_rates(plan: Plan) -> list[float]:
    """Return the records read per day by the newest published run of each other range, in the plan's mode."""
    rates: dict[tuple[int, int], float] = {}
    for row in list_runs(plan.home, plan.dataset):
        days, is_published = (row.until_ms - row.since_ms) / DAY_MS, row.status is RunStatus.PUBLISHED
        if is_published and row.mode == plan.mode and row.events_read and row.run_id != plan.run_id:
            rates.setdefault((row.since_ms, row.until_ms), row.events_read / days)
    return list(rates.values())


def _refuse(plan: Plan, audit: Audit) -> None:
    report = report_run(plan)
    if audit.verdict is Verdict.ERROR:
        msg = f"the audit of {audit.run_id} could not be completed: {audit.summary}\n  report: {report}"
        raise AuditError(msg, audit.checks)
    record_run(plan.home, ledger_row(plan, RunStatus.REFUSED, audit))
    removed = [f"removed: {plan.removed}; {REMOVED_HINT}"] if plan.removed else []
    equal = [f"equal files: {plan.equal_files}"] if plan.equal_files else []
    details = [*removed, *equal, *(f"misplaced: {records}" for records in plan.misplaced[:SHOWN])]
    listed = "".join(f"\n  {line}" for line in details)
    msg = f"{audit.summary}: nothing was published{listed}\n\nhint: the report is at {report}"
    raise QualityError(msg)


def load_staged_results(
    definition: Definition, manifests: Sequence[Manifest], mode: Mode = Mode.RECOMPUTE
) -> Iterator[pa.Table]:
    """Yield the keys, window and record count of the rows that each chunk staged for publication.

    With user code, the windows that it skipped are rows, too, with `is_skipped`.
    """
    columns = [*definition.row_key, *_WINDOW, RECORD_COUNT]
    if definition.code_columns is None:
        yield from _scan_staged(manifests, WINDOWS, columns)
        return
    count = pane_count_column("final" if mode is Mode.RECOMPUTE else definition.backfill.publish)
    for manifest in manifests:
        rows = [
            table.append_column(IS_SKIPPED, pa.repeat(pa.scalar(value=False), table.num_rows))
            for table in _scan_staged([manifest], WINDOWS, columns)
        ]
        for table in _scan_staged([manifest], SKIPPED, [*definition.source.key, *_WINDOW, count]):
            skipped = table.filter(pc.greater(table[count], 0)).rename_columns({count: RECORD_COUNT})
            rows.append(skipped.append_column(IS_SKIPPED, pa.repeat(pa.scalar(value=True), skipped.num_rows)))
        if rows:
            yield pa.concat_tables(rows, promote_options="default")


def _load_staged_panes(definition: Definition, manifests: Sequence[Manifest]) -> Iterator[pa.Table]:
    """Yield the window and the record counts of the panes of staged panes, with those that a job skipped."""
    counts = [*map(pane_count_column, PANES_KEPT)]
    yield from _scan_staged(manifests, PANES, [*_WINDOW, *counts])
    if definition.job:
        yield from _scan_staged(manifests, SKIPPED, [*_WINDOW, *counts])


def _scan_staged(manifests: Sequence[Manifest], suffix: str, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield columns of the rows that each chunk staged for a table; small chunks are read together."""
    batch: list[Sequence[StagedFile]] = []
    for files in filter(None, (manifest.files.get(suffix) for manifest in manifests)):
        if batch and sum(file.rows for chunk in [*batch, files] for file in chunk) > _MAX_ROWS_TOGETHER:
            yield from _read_chunks(batch, columns)
            batch = []
        batch.append(files)
    yield from _read_chunks(batch, columns)


def _read_chunks(chunks: Sequence[Sequence[StagedFile]], columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield columns of each chunk's files."""
    paths = [[file.path for file in chunk] for chunk in chunks]
    files = [file for chunk in chunks for file in chunk]
    are_small = len(files) > len(chunks) and all(
        file.size_bytes <= SMALL_BYTES and not is_in_store(file.path) for file in files
    )
    tables = columns_by_group(paths, columns) if are_small else None
    yield from tables or (_read(chunk_paths, columns) for chunk_paths in paths)


def _load_staged_metrics(manifests: Sequence[Manifest]) -> DataFrame:
    """Return the window metrics that all chunks staged, one row per window and source partition."""
    names = [column.name for column in METRICS_TABLE.columns]
    paths = [file.path for manifest in manifests for file in manifest.files.get(METRICS, ())]
    if not paths:
        return DataFrame(columns=names)
    frame: DataFrame = _read(paths, names).to_pandas()
    return frame


def _read(paths: Sequence[str], columns: Sequence[str]) -> pa.Table:
    """Return columns of one or more Parquet files; the files may differ in the nullability of a column."""
    stores = Stores.from_environment()
    tables = map_files(lambda path: load_columns(path, columns, stores), {path: path for path in paths})
    return pa.concat_tables(tables, promote_options="default")
