"""The gate: every check of a suite asked of the audit frames, and one verdict over the answers.

Great Expectations answers; the verdict is ours. Its own `success` knows no severity and counts a check that
could not run as an ordinary miss, where here such a check is an error and never lets anything through.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from backstream.core.audit import Audit, Check, Outcome, Severity, verdict_over
from backstream.core.instants import epoch_ms, instant_text
from backstream.core.manifest import Manifest
from backstream.core.plan import Plan
from backstream.core.tables import RECORD_COUNT
from backstream.definition.model import Definition
from backstream.quality.evidence import Evidence
from backstream.quality.frame import NOTHING, audit_frame, partitions_frame, run_frame
from backstream.quality.gx import Answer, Asked, answer
from backstream.quality.results import results_frame
from backstream.quality.suites import Entry, load_suite, parameters
from backstream.quality.summary import summary_over
from backstream.quality.words import limit_text, rows_text, value_text

MOST_NAMED = 20
"""Failing rows named per check; the rest is a count."""

_NAMED_BY = {
    "windows": ["source_partition", "window_start"],
    "partitions": ["source_partition"],
    "results": ["window_start"],
    "run": [],
}
_MISSED = {Severity.CRITICAL: Outcome.FAIL, Severity.WARNING: Outcome.WARN, Severity.INFO: Outcome.INFO}


@dataclass(slots=True)
class _Records:
    """Counts the records behind result rows while these are looked at."""

    chunks: Iterable[pa.Table]
    count: int = 0

    def __iter__(self) -> Iterator[pa.Table]:
        for chunk in self.chunks:
            self.count += pc.sum(chunk[RECORD_COUNT]).as_py() or 0
            yield chunk


def judge(  # noqa: PLR0913 - each says another thing, by its name
    plan: Plan,
    definition: Definition,
    metrics: pd.DataFrame,
    manifests: Sequence[Manifest],
    *,
    results: Iterable[pa.Table],
    panes: Iterable[pa.Table] = (),
    evidence: Evidence = NOTHING,
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
    asked, limits = Asked(frames), parameters(definition)
    checks = tuple(_check(entry, frames[entry.frame], asked, limits) for entry in suite.entries)
    summary = summary_over(checks, frames, plan, definition, evidence)
    return Audit(plan.run_id, suite.name, verdict_over(checks), summary, checks), windows


def _check(entry: Entry, frame: pd.DataFrame, asked: Asked, limits: Mapping[str, float]) -> Check:
    """One expectation asked of its frame."""
    kwargs = entry.resolved(limits)
    found = answer(asked.batch(entry.frame, entry.type, kwargs), entry.type, kwargs, frame)
    return Check(
        name=entry.description,
        expectation=entry.type,
        severity=entry.severity,
        outcome=_outcome(found, entry.severity),
        observed=_observed(found, entry, frame),
        column=kwargs.get("column"),
        limit=limit_text(kwargs, entry.frame),
        unexpected=found.unexpected,
        elements=found.elements,
        failing=_named(found, entry),
    )


def _outcome(found: Answer, severity: Severity) -> Outcome:
    if found.error:
        return Outcome.ERROR
    return Outcome.PASS if found.is_met else _MISSED[severity]


def _observed(found: Answer, entry: Entry, frame: pd.DataFrame) -> str:
    """What was found, in words: the value of a run, else how many rows miss and how far the worst is off."""
    column = entry.kwargs.get("column")
    if found.error:
        return f"could not run: {found.error}"
    if found.observed is not None:
        return value_text(_plain(found.observed), column)
    if entry.frame == "run" and column:
        return f"{column.replace('_', ' ')}: {value_text(_plain(frame[column].iloc[0]), column)}"
    counted = rows_text(found.unexpected, found.elements, entry.frame)
    worst = _worst(found, column).head(1)
    if column and _is_measured(worst, column):
        return f"{counted}, the worst {value_text(_plain(worst[column].iloc[0]), column)}"
    return counted


def _named(found: Answer, entry: Entry) -> tuple[Mapping[str, Any], ...]:
    """The first failing rows, by name and value: the worst first where there is a measure, else by time."""
    column = entry.kwargs.get("column")
    names = [*_NAMED_BY[entry.frame], *([column] if column else [])]
    if not _NAMED_BY[entry.frame]:
        return ()
    rows = _worst(found, column).head(MOST_NAMED)
    known = list(dict.fromkeys(name for name in names if name in rows.columns))
    named = rows[known].to_dict("records")
    return tuple({str(name): _plain(value) for name, value in row.items()} for row in named)


def _worst(found: Answer, column: str | None) -> pd.DataFrame:
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
