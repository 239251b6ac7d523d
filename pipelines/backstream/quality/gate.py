"""One sentence that says what an audit found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from backstream.definition.model import Definition
from backstream.eventtime.instants import duration_text, epoch_ms, instant_text
from backstream.quality.audit_frame import NOTHING, audit_frame, partitions_frame, run_frame
from backstream.quality.audit_text import cell_text, days_text, expectation_text, rows_text
from backstream.quality.evidence import RunEvidence
from backstream.quality.gx_adapter import ExpectationFrames, ExpectationResult, validate_expectation
from backstream.quality.results_frame import results_frame
from backstream.quality.suites import SuiteEntry, load_suite, suite_parameters
from backstream.runs.manifest import Manifest
from backstream.runs.plan import Mode, Plan
from backstream.runs.results import Audit, Check, CheckOutcome, Severity, worst_verdict
from backstream.runs.table_schemas import RECORD_COUNT
from backstream.text import share_text

_MOST_PARTITIONS = 3  # more names than this make no sentence
_TOLD_ELSEWHERE = {
    "is_present",
    "late_ratio",
    "dropped_ratio",
    "is_delivered",
    "missing_ratio",
    "is_any_readable",
    "quarantined_ratio",
    "repeated_positions",
    "rows_ratio",
}
_GRAVE = {CheckOutcome.ERROR: "could not check", CheckOutcome.FAIL: "not met"}


def summarize_audit(
    checks: Sequence[Check],
    frames: Mapping[str, pd.DataFrame],
    plan: Plan,
    definition: Definition,
    evidence: RunEvidence,
) -> str:
    """Such as `35 of 1,484 windows have no event (JFK, 8-9 February 2013); 4.1 % of 23,666 events came late ..`.

    What makes the run fail comes first, unless it is what the sentence tells anyway.
    """
    windows, run = frames["windows"], frames["run"].iloc[0]
    missed = {check.column for check in checks if check.outcome not in (CheckOutcome.PASS, CheckOutcome.INFO)}
    parts = [*_grave(checks), *_of_run(missed, run, evidence), _delivered(windows)]
    if plan.mode is Mode.REPLAY:
        parts.append(_lateness(windows, definition))
    return "; ".join(part for part in parts if part)


def _of_run(missed: AbstractSet[str | None], run: Any, evidence: RunEvidence) -> Iterator[str]:
    """What was not read, was read twice, or would take rows away, where a check minds it."""
    if not missed.isdisjoint(("is_any_readable", "quarantined_ratio")):
        many = (
            "no record" if not run["is_any_readable"] else f"{share_text(run['quarantined_ratio'])} of the records"
        )
        could = "could be read" if not run["is_any_readable"] else "could not be read"
        yield f"{many} {could} ({evidence.unreadable})"
    if "repeated_positions" in missed:
        yield str(evidence.repeated)
    if "rows_ratio" in missed:
        yield f"{int(run['rows']):,} rows would replace {int(run['replaced_rows']):,}"


def _grave(checks: Sequence[Check]) -> list[str]:
    """The gravest check that the rest of the sentence does not speak of, and how many more there are."""
    for outcome, words in _GRAVE.items():
        found = [
            check
            for check in checks
            if check.outcome is outcome and (outcome is CheckOutcome.ERROR or check.column not in _TOLD_ELSEWHERE)
        ]
        if found:
            more = f" and {len(found) - 1} more" if len(found) > 1 else ""
            return [f"{words}: {found[0].name}{_first_name(found[0])}{more}"]
    return []


def _first_name(check: Check) -> str:
    if not check.failing:
        return ""
    named = check.failing[0]
    return f" ({' '.join(str(named[key]) for key in ('source_partition', 'window_start') if key in named)})"


def _delivered(windows: pd.DataFrame) -> str:
    expected = windows[windows["is_expected"]]
    missing = expected[~expected["is_present"]]
    if expected.empty:
        return "no window was expected" if windows.empty else f"{len(windows):,} windows, none expected"
    if missing.empty:
        return f"all {len(expected):,} windows have events"
    share = f"{len(missing):,} of {len(expected):,} windows"
    days = days_text(missing["window_start"].min(), missing["window_start"].max())
    return f"{share} have no event ({_partitions(missing)}, {days})"


def _partitions(rows: pd.DataFrame) -> str:
    names = sorted(rows["source_partition"].unique())
    if len(names) > _MOST_PARTITIONS:
        return f"{len(names)} source partitions"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _lateness(windows: pd.DataFrame, definition: Definition) -> str:
    events = int(windows["events"].sum())
    if not events:
        return ""
    late, dropped = (int(windows[name].sum()) for name in ("late", "dropped"))
    if not late + dropped:
        return f"none of {events:,} events came late"
    delay = f" (delay {duration_text(definition.watermark.delay)})" if definition.watermark.delay else ""
    shares = share_text(late / events), share_text(dropped / events)
    return f"{shares[0]} of {events:,} events came late, {shares[1]} were dropped{delay}"


MOST_NAMED = 20
"""Failing rows named per check; the rest is a count."""

_NAMED_BY = {
    "windows": ["source_partition", "window_start"],
    "partitions": ["source_partition"],
    "results": ["window_start"],
    "run": [],
}
_MISSED = {
    Severity.CRITICAL: CheckOutcome.FAIL,
    Severity.WARNING: CheckOutcome.WARN,
    Severity.INFO: CheckOutcome.INFO,
}


@dataclass(slots=True)
class _Records:
    """Counts the records behind result rows while these are looked at."""

    chunks: Iterable[pa.Table]
    count: int = 0

    def __iter__(self) -> Iterator[pa.Table]:
        for chunk in self.chunks:
            self.count += pc.sum(chunk[RECORD_COUNT]).as_py() or 0
            yield chunk


def evaluate_suite(  # noqa: PLR0913 - each says another thing, by its name
    plan: Plan,
    definition: Definition,
    metrics: pd.DataFrame,
    manifests: Sequence[Manifest],
    *,
    results: Iterable[pa.Table],
    panes: Iterable[pa.Table] = (),
    evidence: RunEvidence = NOTHING,
    suites_folder: Path | None = None,
) -> tuple[Audit, pd.DataFrame]:
    """Judge a run by the suite its definition names.

    Args:
        plan: what was to be done.
        definition: the suite, the limits, and what is expected.
        metrics: the run's rows of the metrics table (columns of `core.tables.METRICS_TABLE`).
        manifests: what the finished chunks left.
        results: per chunk the keys, `window_start`, `window_end` and `record_count` of the rows it would publish.
        panes: per chunk the window and the record counts of its panes; none in a recompute.
        evidence: what else is known of the run.
        suites_folder: where suites are looked for; by default where the installation keeps them.

    Returns:
        The audit, and the audit frame (`quality.frame.WINDOW_COLUMNS`).

    Raises:
        SpecError: when the suite is wrong or what is expected cannot be read; nothing was judged.
        ContractError: when the metrics or the expected events lack a column.
    """
    suite = load_suite(definition.quality.suite, suites_folder)
    windows, behind = audit_frame(plan, definition, metrics), _Records(results)
    of_results = results_frame(plan, definition, windows, behind, panes)
    frames = {
        "windows": windows,
        "partitions": partitions_frame(windows, manifests, definition),
        "run": run_frame(plan, windows, manifests, evidence, behind.count),
        "results": of_results,
    }
    asked, limits = ExpectationFrames(frames), suite_parameters(definition)
    checks = tuple(_check(entry, frames[entry.frame], asked, limits) for entry in suite.entries)
    summary = summarize_audit(checks, frames, plan, definition, evidence)
    return Audit(plan.run_id, suite.name, worst_verdict(checks), summary, checks), windows


def _check(entry: SuiteEntry, frame: pd.DataFrame, asked: ExpectationFrames, limits: Mapping[str, float]) -> Check:
    """One expectation asked of its frame."""
    kwargs = entry.with_parameters(limits)
    found = validate_expectation(asked.batch(entry.frame, entry.type, kwargs), entry.type, kwargs, frame)
    return Check(
        name=entry.description,
        expectation=entry.type,
        severity=entry.severity,
        outcome=_outcome(found, entry.severity),
        observed=_observed(found, entry, frame),
        column=kwargs.get("column"),
        limit=expectation_text(kwargs, entry.frame),
        unexpected_count=found.unexpected,
        element_count=found.elements,
        failing=_named(found, entry),
    )


def _outcome(found: ExpectationResult, severity: Severity) -> CheckOutcome:
    if found.error:
        return CheckOutcome.ERROR
    return CheckOutcome.PASS if found.is_met else _MISSED[severity]


def _observed(found: ExpectationResult, entry: SuiteEntry, frame: pd.DataFrame) -> str:
    """What was found, in words: the value of a run, else how many rows miss and how far the worst is off."""
    column = entry.kwargs.get("column")
    if found.error:
        return f"could not run: {found.error}"
    if found.observed is not None:
        return cell_text(_plain(found.observed), column)
    if entry.frame == "run" and column:
        return f"{column.replace('_', ' ')}: {cell_text(_plain(frame[column].iloc[0]), column)}"
    counted = rows_text(found.unexpected, found.elements, entry.frame)
    worst = _worst(found, column).head(1)
    if column and _is_measured(worst, column):
        return f"{counted}, the worst {cell_text(_plain(worst[column].iloc[0]), column)}"
    return counted


def _named(found: ExpectationResult, entry: SuiteEntry) -> tuple[Mapping[str, Any], ...]:
    """The first failing rows, by name and value: the worst first where there is a measure, else by time."""
    column = entry.kwargs.get("column")
    names = [*_NAMED_BY[entry.frame], *([column] if column else [])]
    if not _NAMED_BY[entry.frame]:
        return ()
    rows = _worst(found, column).head(MOST_NAMED)
    known = list(dict.fromkeys(name for name in names if name in rows.columns))
    named = rows[known].to_dict("records")
    return tuple({str(name): _plain(value) for name, value in row.items()} for row in named)


def _worst(found: ExpectationResult, column: str | None) -> pd.DataFrame:
    """The failing rows: those that are farthest off first where there is a measure."""
    rows = found.failing
    if not column or not _is_measured(rows, column):
        return rows
    return rows.sort_values(column, key=abs, ascending=column == "completeness", kind="stable")


def _is_measured(rows: pd.DataFrame, column: str) -> bool:
    """Whether the values of failing rows are numbers, and not yes and no."""
    return (
        not rows.empty
        and column in rows.columns
        and is_numeric_dtype(rows[column])
        and not is_bool_dtype(rows[column])
    )


def _plain(value: Any) -> Any:
    """A cell as JSON holds it: instants as text, numbers as Python's own."""
    if isinstance(value, pd.Timestamp):
        return instant_text(epoch_ms(value.to_pydatetime()))
    return value.item() if hasattr(value, "item") else value
