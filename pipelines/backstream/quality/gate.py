"""Evaluate the suite of a run: check its frames, derive a verdict, and summarize the audit in one sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from backstream.definition.model import Definition
from backstream.eventtime.instants import duration_text
from backstream.quality.audit_frame import NOTHING, audit_frame, partitions_frame, run_frame
from backstream.quality.bands import add_bands, bands_frame, find_never_empty, no_past
from backstream.quality.evidence import RunEvidence
from backstream.quality.gx_adapter import ExpectationResult, FrameExpectation, validate_frames
from backstream.quality.results_frame import results_frame
from backstream.quality.row_texts import cell_text, days_text, expectation_text, rows_text
from backstream.quality.run_parts import RunParts, is_measured, name_failing_rows, sort_by_deviation, to_json
from backstream.quality.suites import SuiteEntry, is_known_suite, load_suite, suite_parameters
from backstream.quality.window_rows import count_windows
from backstream.runs.manifest import Manifest
from backstream.runs.plan import Mode, Plan
from backstream.runs.results import Audit, Check, CheckOutcome, Severity, worst_verdict
from backstream.runs.table_schemas import IS_SKIPPED, RECORD_COUNT
from backstream.text import share_text

Validate = Callable[[Mapping[str, pd.DataFrame], Sequence[FrameExpectation]], list[ExpectationResult]]
"""Returns the result of each expectation for its frame."""
_OUTCOMES_OF_FAILURE = {
    Severity.CRITICAL: CheckOutcome.FAIL,
    Severity.WARNING: CheckOutcome.WARN,
    Severity.INFO: CheckOutcome.INFO,
}
_MAX_PARTITION_NAMES = 3  # more names don't fit into a sentence
_SUMMARIZED_COLUMNS = {
    "is_present",
    "late_ratio",
    "unbanded_late_ratio",
    "dropped_ratio",
    "is_delivered",
    "missing_ratio",
    "is_any_readable",
    "quarantined_ratio",
    "inexact_ratio",
    "implausible_ratio",
    "repeated_positions",
    "rows_ratio",
}
_COULD_NOT_RUN = "could not run: "
_MAX_CAUSE = 200  # the text of an exception can be a page
_SEVERE_OUTCOMES = {CheckOutcome.ERROR: "could not run the check", CheckOutcome.FAIL: "failed the check"}


def _summarize_audit(
    checks: Sequence[Check],
    frames: Mapping[str, pd.DataFrame],
    plan: Plan,
    definition: Definition,
    evidence: RunEvidence,
) -> str:
    """Return a sentence, e.g., `35 of 1,484 windows have no event (JFK, 8-9 February 2013); 4.1 % ... were late`.

    The reasons for a failed run come first, unless the rest of the sentence contains them.
    """
    windows, run = frames["windows"], frames["run"].iloc[0]
    failed_columns = {
        check.column for check in checks if check.outcome not in (CheckOutcome.PASS, CheckOutcome.INFO)
    }
    clauses = [
        *_most_severe_text(checks),
        *_run_texts(failed_columns, run, plan, evidence),
        _windows_text(windows),
    ]
    if plan.mode is Mode.REPLAY:
        clauses.append(_lateness_text(windows, definition))
    return "; ".join(clause for clause in clauses if clause)


def _run_texts(
    failed_columns: AbstractSet[str | None], run: Any, plan: Plan, evidence: RunEvidence
) -> Iterator[str]:
    """Return texts on the records of the whole run, each if a check on them failed."""
    if not failed_columns.isdisjoint(("is_any_readable", "quarantined_ratio")):
        share = f"{share_text(run['quarantined_ratio'])} of the records could not be read"
        yield f"{share if run['is_any_readable'] else 'no record could be read'} ({evidence.unreadable})"
    if "inexact_ratio" in failed_columns:
        yield ", ".join(map(str, plan.inexact))
    if "implausible_ratio" in failed_columns:
        share = share_text(run["implausible_ratio"])
        more = f" and {len(plan.implausible) - 1} more" if len(plan.implausible) > 1 else ""
        yield f"{share} of all records have implausible times ({plan.implausible[0]}{more})"
    if "repeated_positions" in failed_columns:
        yield str(evidence.repeated)
    if "rows_ratio" in failed_columns:
        yield f"{int(run['rows']):,} rows would replace {int(run['replaced_rows']):,}"


def _most_severe_text(checks: Sequence[Check]) -> list[str]:
    """Return the most severe check that the rest of the sentence leaves out, and the number of further ones."""
    for outcome, words in _SEVERE_OUTCOMES.items():
        severe = [
            check
            for check in checks
            if check.outcome is outcome
            and (outcome is CheckOutcome.ERROR or check.column not in _SUMMARIZED_COLUMNS)
        ]
        if severe:
            more = f" and {len(severe) - 1} more" if len(severe) > 1 else ""
            return [f'{words} "{severe[0].name}"{_first_row_text(severe[0])}{_cause_text(severe[0])}{more}']
    return []


def _cause_text(check: Check) -> str:
    """Return the reason for which a check could not run, in parentheses; empty if it ran."""
    if check.outcome is not CheckOutcome.ERROR:
        return ""
    cause = check.observed.removeprefix(_COULD_NOT_RUN).partition("\n")[0]
    return f" ({cause if len(cause) <= _MAX_CAUSE else cause[:_MAX_CAUSE] + '..'})"


def _first_row_text(check: Check) -> str:
    """Return the names of the first failing row in parentheses; empty if it has none."""
    row = check.failing[0] if check.failing else {}
    names = [str(row[key]) for key in ("source_partition", "window_start") if key in row]
    return f" ({' '.join(names)})" if names else ""


def _windows_text(windows: pd.DataFrame) -> str:
    expected = windows[windows["is_expected"]]
    missing = expected[~expected["is_present"]]
    if expected.empty:
        return "no window was expected" if windows.empty else f"{count_windows(windows):,} windows, none expected"
    if missing.empty:
        return f"all {count_windows(expected):,} windows have events"
    counts = f"{count_windows(missing):,} of {count_windows(expected):,} windows"
    days = days_text(missing["window_start"].min(), missing["last_start"].max())
    return f"{counts} have no event ({_partitions_text(missing)}, {days})"


def _partitions_text(rows: pd.DataFrame) -> str:
    names = sorted(rows["source_partition"].unique())
    if len(names) > _MAX_PARTITION_NAMES:
        return f"{len(names)} source partitions"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _lateness_text(windows: pd.DataFrame, definition: Definition) -> str:
    events = int(windows["events"].sum())
    if not events:
        return ""
    late, dropped = (int(windows[name].sum()) for name in ("late", "dropped"))
    if not late + dropped:
        return f"none of {events:,} events were late"
    delay = f" (delay {duration_text(definition.watermark.delay)})" if definition.watermark.delay else ""
    shares = share_text(late / events), share_text(dropped / events)
    return f"{shares[0]} of {events:,} events were late, {shares[1]} were dropped{delay}"


@dataclass(slots=True)
class _RecordCounter:
    """An iterator over result rows that counts their records, except those of windows that user code skipped."""

    chunks: Iterable[pa.Table]
    count: int = 0

    def __iter__(self) -> Iterator[pa.Table]:
        for chunk in self.chunks:
            rows = chunk
            if IS_SKIPPED in chunk.column_names:
                rows, chunk = chunk.filter(pc.invert(chunk[IS_SKIPPED])), chunk.drop_columns(IS_SKIPPED)  # noqa: PLW2901
            self.count += pc.sum(rows[RECORD_COUNT]).as_py() or 0
            yield chunk


def evaluate_suite(  # noqa: PLR0913 - most are keyword arguments
    plan: Plan,
    definition: Definition,
    metrics: pd.DataFrame,
    manifests: Sequence[Manifest],
    *,
    results: Iterable[pa.Table],
    panes: Iterable[pa.Table] = (),
    withheld: Iterable[pa.Table] = (),
    load_evidence: Callable[[], RunEvidence] = lambda: NOTHING,
    suites_folder: Path | None = None,
    validate: Validate = validate_frames,
) -> tuple[Audit, pd.DataFrame]:
    """Evaluate the suite of a run's definition, and return the audit and its windows.

    Args:
        plan: the plan of the run.
        definition: the definition with the suite, the limits, and the expected events.
        metrics: the run's rows of the metrics table (columns of `METRICS_TABLE`).
        manifests: the manifests of the finished chunks.
        results: per chunk the keys, `window_start`, `window_end`, and `record_count` of the rows to publish.
        panes: per chunk the windows and the record counts of its panes; none in a recompute.
        withheld: per chunk the windows with rows that are not published, and the count of these rows and records.
        load_evidence: returns further facts about the run; called after the rows of all chunks are counted.
        suites_folder: the folder of the suites; None: that of the installation.
        validate: returns the results of expectations.

    Returns:
        The audit, and the audit frame (`audit_frame.WINDOW_COLUMNS`).

    Raises:
        SpecError: if the suite is invalid or the expected events cannot be read; nothing was evaluated.
        ContractError: if the metrics or the expected events lack a column.
    """
    name = definition.quality.suite
    is_known = is_known_suite(name, plan.home.sound_suites, suites_folder)
    suite = load_suite(name, suites_folder, is_asked=not is_known)
    windows, counter = audit_frame(plan, definition, metrics), _RecordCounter(results)
    window_results = results_frame(plan, definition, windows, counter, panes, withheld)  # consumes the counter
    evidence = load_evidence()
    past = no_past() if evidence.past_windows is None else evidence.past_windows
    bands = bands_frame(windows, past, definition.quality.bands)
    windows = add_bands(windows, bands, find_never_empty(past, definition.quality.bands))
    frames = {
        "bands": bands,
        "windows": windows,
        "partitions": partitions_frame(windows, manifests, definition),
        "run": run_frame(plan, windows, manifests, evidence, counter.count),
        "results": window_results,
    }
    parameters, parts = suite_parameters(definition), RunParts(plan, frames, manifests, evidence)
    expected = [
        FrameExpectation(entry.frame, entry.type, entry.with_parameters(parameters)) for entry in suite.entries
    ]
    outcomes = zip(suite.entries, expected, validate(frames, expected), strict=True)
    checks = tuple(_as_check(entry, parts, each.kwargs, result) for entry, each, result in outcomes)
    summary = _summarize_audit(checks, frames, plan, definition, evidence)
    return Audit(plan.run_id, suite.name, worst_verdict(checks), summary, checks), windows


def _as_check(entry: SuiteEntry, parts: RunParts, kwargs: Mapping[str, Any], result: ExpectationResult) -> Check:
    frame = parts.frames[entry.frame]
    return Check(
        name=entry.description,
        expectation=entry.type,
        severity=entry.severity,
        outcome=_outcome(result, entry.severity),
        observed=_observed_text(result, entry, kwargs, frame),
        column=kwargs.get("column"),
        limit=expectation_text(kwargs, entry.frame),
        unexpected_count=result.unexpected,
        element_count=result.elements,
        failing=name_failing_rows(result, entry, kwargs, parts),
    )


def _outcome(result: ExpectationResult, severity: Severity) -> CheckOutcome:
    if result.error:
        return CheckOutcome.ERROR
    return CheckOutcome.PASS if result.is_met else _OUTCOMES_OF_FAILURE[severity]


def _observed_text(
    result: ExpectationResult, entry: SuiteEntry, kwargs: Mapping[str, Any], frame: pd.DataFrame
) -> str:
    """Return the value of a run; otherwise the number of failing rows and the largest deviation."""
    column = kwargs.get("column")
    if result.error:
        return f"{_COULD_NOT_RUN}{result.error}"
    if result.observed is not None:
        return cell_text(to_json(result.observed), column)
    if entry.frame == "run" and column:
        name = column.removeprefix("unbanded_").replace("_", " ")
        return f"{name}: {cell_text(to_json(frame[column].iloc[0]), column)}"
    counted = rows_text(result.unexpected, result.elements, entry.frame)
    first_row = sort_by_deviation(result, kwargs).head(1)
    if column and is_measured(first_row, column):
        return f"{counted}, the worst {cell_text(to_json(first_row[column].iloc[0]), column)}"
    return counted
