"""One sentence that says what an audit found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import pandas as pd

from backstream.core.audit import Check, Outcome
from backstream.core.instants import duration_text
from backstream.core.plan import Mode, Plan
from backstream.core.words import share_text
from backstream.definition.model import Definition
from backstream.quality.evidence import Evidence
from backstream.quality.words import days_text

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
_GRAVE = {Outcome.ERROR: "could not check", Outcome.FAIL: "not met"}


def summary_over(
    checks: Sequence[Check],
    frames: Mapping[str, pd.DataFrame],
    plan: Plan,
    definition: Definition,
    evidence: Evidence,
) -> str:
    """Such as `35 of 1,484 windows have no event (JFK, 8-9 February 2013); 4.1 % of 23,666 events came late ..`.

    What makes the run fail comes first, unless it is what the sentence tells anyway.
    """
    windows, run = frames["windows"], frames["run"].iloc[0]
    missed = {check.column for check in checks if check.outcome not in (Outcome.PASS, Outcome.INFO)}
    parts = [*_grave(checks), *_of_run(missed, run, evidence), _delivered(windows)]
    if plan.mode is Mode.REPLAY:
        parts.append(_lateness(windows, definition))
    return "; ".join(part for part in parts if part)


def _of_run(missed: AbstractSet[str | None], run: Any, evidence: Evidence) -> Iterator[str]:
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
            if check.outcome is outcome and (outcome is Outcome.ERROR or check.column not in _TOLD_ELSEWHERE)
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
