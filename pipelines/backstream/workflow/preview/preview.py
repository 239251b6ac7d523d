"""Preview a run: which published rows it would change, why, and what it would cost. Nothing is published."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa

from backstream.chunks.engine_choice import reason_for_spark
from backstream.definition.prepared import reason_to_prepare
from backstream.errors import BackstreamError, PlanError, SpecError
from backstream.lake.published_windows import load_published_windows
from backstream.lake.run_rows import list_runs
from backstream.native.key_sample import KeySample, draw_key_sample, mark_new_records
from backstream.native.raw_input import RawInput
from backstream.native.task import duckdb_type
from backstream.runs.chunk_groups import batch_groups
from backstream.runs.home import Home
from backstream.runs.plan import Plan
from backstream.workflow.plan.impact import estimate_seconds
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.plan.planning import compose_plan
from backstream.workflow.preview.causes import ChangeCause, RunChanges, find_run_changes, list_new_files
from backstream.workflow.preview.changed_rows import (
    ChangedRows,
    compare_rows,
    estimate_row_count,
    load_published_sample,
)
from backstream.workflow.preview.computation import (
    StartSpark,
    compute_sampled_rows,
    list_sampled_columns,
    needed_span,
)
from backstream.workflow.preview.preview_result import Preview, RunCost, preview_text, summary_text

_DEFAULT_SHARE = 0.01
_MIN_KEYS = 50
"""Without a requested share, the sample grows until it has this number of keys."""
_GROWTH = 10
_TASKS = 5
"""Airflow's tasks of a run besides those of Spark jobs: plan, audit, approve, publish, and report."""


def preview_run(request: PlanRequest, start_spark: StartSpark, share: float | None = None) -> Preview:
    """Return the changes that a run would publish, and its cost.

    Args:
        request: the range with its options.
        start_spark: starts Spark for a reason; it is called only if DuckDB cannot compute the definition.
        share: the share of the keys, above 0 and up to 1. None: 1%, or more if these are fewer than `_MIN_KEYS`.

    Raises:
        SpecError: when the definition or the range is wrong.
        PlanError: when the range cannot be planned, or DuckDB cannot read the records.
    """
    return preview_plan(compose_plan(request), request.home, start_spark, share)


def preview_plan(plan: Plan, home: Home, start_spark: StartSpark, share: float | None = None) -> Preview:
    """Return the changes that the run of a plan would publish; see `preview_run`."""
    begin = time.monotonic()
    raw = _open_input(plan)
    since = find_run_changes(home, plan)
    new_files = list_new_files(home, plan, since) if since else ()
    with tempfile.TemporaryDirectory(prefix="backstream-preview-") as name:
        folder = Path(name)
        sample = _draw(raw, share, folder, new_files)
        computed = compute_sampled_rows(raw, sample, folder, start_spark)
        published = load_published_sample(home, raw, sample.share)
        changes = compare_rows(published, computed, plan.row_key)
        marked = mark_new_records(changes, raw.definition, sample)
    found = ChangedRows(marked, raw.definition.source.key, sample.share)
    reasons = _Reasons(since, load_published_windows(home, plan.dataset).runs_by_day())
    return Preview(
        dataset=plan.dataset,
        since_ms=plan.since_ms,
        until_ms=plan.until_ms,
        mode=plan.mode.value,
        share=sample.share,
        sampled_keys=sample.keys,
        sampled_records=sample.file.rows,
        keys=found.estimate_keys(),
        rows=found.estimate_rows(),
        kinds=found.count_kinds(),
        days=found.list_days(reasons.causes_of),
        aggregates=found.list_aggregates(),
        details=_merge_details(since.values()),
        cost=_estimate_cost(home, raw, computed, sample.share),
        engine=reason_for_spark(raw.definition, plan.columns, plan.mode) or "",
        seconds=time.monotonic() - begin,
    )


def _open_input(plan: Plan) -> RawInput:
    """Return the input of a plan, if DuckDB can read all its columns."""
    raw = RawInput.from_plan(plan, "preview", reads_code=True)
    unreadable = [name for name, kind in plan.columns.items() if duckdb_type(kind) is None]
    if unreadable:
        msg = f"cannot preview {plan.dataset}: only Spark can read the column {unreadable[0]!r}"
        raise PlanError(msg)
    return raw


def _draw(raw: RawInput, share: float | None, folder: Path, new_files: Collection[str]) -> KeySample:
    """Draw a share of the keys; without a requested share, at least `_MIN_KEYS` keys if there are so many."""
    span, wanted = needed_span(raw.definition, raw.plan), share or _DEFAULT_SHARE
    columns = list_sampled_columns(raw.definition, raw.plan)
    if raw.definition.top and share is not None and share < 1:
        msg = f"[top] compares all keys of a window, so a sample must have all, got a share of {share:.4g}"
        raise SpecError(msg)
    if raw.definition.top or not raw.definition.source.key:
        wanted = 1.0
    while True:
        sample = draw_key_sample(raw, wanted, span, folder / "sample.parquet", new_files, columns)
        if share is None and sample.keys < _MIN_KEYS and wanted < 1:
            wanted = min(1.0, wanted * _GROWTH)
            continue
        if sample.keys or wanted >= 1:
            return sample
        msg = f"a sample of {wanted:.4g} of the keys of {raw.plan.dataset} has no key\n\nhint: use a larger share"
        raise SpecError(msg)


@dataclass(frozen=True, slots=True)
class _Reasons:
    """The changes since each run, by run id, and the runs that published a day."""

    since: Mapping[str, RunChanges]
    runs_by_day: Mapping[int, Collection[str]]

    def causes_of(self, day_ms: int, run_id: str | None, has_new: bool) -> tuple[ChangeCause, ...]:
        """Return the causes of a changed row of a day, which a run has published, or no run."""
        runs = [run_id] if run_id else sorted(self.runs_by_day.get(day_ms, ()))
        if not runs:
            return (ChangeCause.NOT_PUBLISHED,)
        changes = self.since.get(runs[-1])
        return changes.causes_of(has_new_records=has_new) if changes else (ChangeCause.UNKNOWN,)


def _merge_details(since: Iterable[RunChanges]) -> dict[str, list[str]]:
    merged: dict[str, dict[str, None]] = {}
    for changes in since:
        for cause, details in changes.details.items():
            merged.setdefault(cause.value, {}).update(dict.fromkeys(details))
    return {cause: list(details) for cause, details in merged.items()}


def _estimate_cost(home: Home, raw: RawInput, computed: pa.Table, share: float) -> RunCost:
    plan, definition = raw.plan, raw.definition
    files = [plan.inputs[number] for number in sorted({number for chunk in plan.chunks for number in chunk.files})]
    jobs = len(batch_groups(plan.chunks, definition.max_events_per_job))
    return RunCost(
        files=len(files),
        rows=sum(file.rows for file in files),
        bytes_read=sum(file.size_bytes for file in files),
        seconds=estimate_seconds(plan, list_runs(home, plan.dataset)),
        rows_written=estimate_row_count(computed, definition.source.key, share),
        tasks=_TASKS + jobs + (reason_to_prepare(definition) is not None),
    )


def preview_dry_run(plan: Plan, home: Home) -> tuple[str, str, dict[str, Any] | None]:
    """Return the preview of a plan as one sentence, as a text, and as JSON.

    If there is none, the sentence and the text are the reason, and the JSON is None.

    Args:
        plan: the plan.
        home: the home folder.
    """
    try:
        found = preview_plan(plan, home, _refuse_spark)
    except BackstreamError as error:
        reason = f"no preview: {str(error).partition(chr(10))[0]}"
        return reason, reason, None
    return summary_text(found), preview_text(found), found.as_json()


def _refuse_spark(reason: str) -> NoReturn:
    msg = f"only Spark can compute the rows, because {reason}; use `backstream preview`"
    raise PlanError(msg)
