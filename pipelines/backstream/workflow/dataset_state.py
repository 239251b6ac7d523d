"""Write the summary files for the pages inside Airflow, so that the pages do not read the source."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pandas as pd

from backstream.definition.loader import load_definition, resolve_paths
from backstream.definition.model import Definition
from backstream.definition.run_sections import Quality
from backstream.errors import BackstreamError
from backstream.eventtime.instants import DAY_MS, SECOND_MS
from backstream.eventtime.intervals import Interval
from backstream.quality.window_rows import cut_by_day
from backstream.runs.allowed_ranges import round_to_days
from backstream.runs.dataset_state import DatasetState, DayIssue, DayTotals
from backstream.runs.home import Home
from backstream.runs.plan import InputFile, Plan
from backstream.source.deliveries import find_day_seals
from backstream.source.files import list_source_files
from backstream.source.footers import SourceFooters, load_footers
from backstream.workflow.late_data.stale import find_stale_days
from backstream.workflow.late_data.staleness import StaleDay, Staleness, list_moves, list_reasons
from backstream.workflow.plan.allowed_ranges import find_event_span
from backstream.workflow.publish import record_untold_commits

_SUMS = ["windows_expected", "windows_present", "events", "on_time", "late", "dropped", "flagged"]
_Result = TypeVar("_Result")


def refresh_dataset_state(definition_path: Path, home: Home, known: Staleness | None = None) -> DatasetState:
    """Find the unsealed and the stale days of a dataset, and write them as its state.

    `known` are the stale days if the caller has just found them. Errors become problems in the state instead of
    being raised, because no run may fail of them.
    """
    problems: list[str] = []
    definition = _try(problems, lambda: resolve_paths(load_definition(definition_path), home))
    if definition is None:
        return DatasetState(definition_path.stem, _now_ms(), None, None, None, (), tuple(problems))
    files = _try(problems, lambda: _load_source(definition, definition_path, home))
    inputs = files.inputs if files else ()
    problems += [f"cannot read input file {file.path}: {file.reason}" for file in files.damaged] if files else []
    allowed = definition.valid_times
    span = _find_days_of_events(inputs, allowed)
    seals = _try(problems, lambda: find_day_seals(definition, inputs, span, home)) if span else None
    staleness = known or (_try(problems, lambda: find_stale_days(definition_path, home)) if inputs else None)
    state = DatasetState(
        definition.name,
        _now_ms(),
        span.start_ms if span else None,
        span.end_ms if span else None,
        tuple(DayIssue(day.day_ms, day.seal.value, day.reason) for day in seals if not day.seal.is_final)
        if seals
        else None,
        tuple(_stale_issue(day, staleness) for day in staleness.days) if staleness else (),
        tuple(dict.fromkeys(problems)),
        tuple(list_moves(staleness.moves)) if staleness else (),
    )
    state.write(home.dataset_state(definition.name))
    return state


def refresh_after_run(plan: Plan) -> str | None:
    """Refresh the dataset state after a run; return the error as text, because the run must not fail of it."""
    try:
        record_untold_commits(plan.home, plan.dataset)
        refresh_dataset_state(Path(plan.definition_path), plan.home)
    except Exception as error:  # noqa: BLE001 - the run itself has ended
        what = f"the pages of {plan.dataset} are not up to date: its state could not be refreshed"
        reason = str(error).partition("\n")[0] or type(error).__name__
        return f"{what}\n  {reason}"
    return None


def compute_day_totals(frame: pd.DataFrame, quality: Quality) -> list[DayTotals]:
    """Return the sums of each UTC day of an audit frame (see `quality.audit_frame`), in order of days."""
    inside = cut_by_day(frame[frame["in_range"]]).reset_index(drop=True)
    windows, day_ms = inside["windows"], inside["window_start"].dt.as_unit("ms").astype("int64") // DAY_MS * DAY_MS
    expected, is_missing = windows.where(inside["is_expected"], 0), inside["is_expected"] & ~inside["is_present"]
    counts = inside[["events", "late", "dropped"]].assign(expected=expected, missing=windows.where(is_missing, 0))
    day_sums = counts.groupby(day_ms).transform("sum")
    # The soft limits do not apply to windows with a band; then only a day above a hard limit is a reason.
    is_missing_day = day_sums["missing"] > quality.missing_ratio.fail * day_sums["expected"]
    is_missing &= inside["is_limited"] | is_missing_day
    late_limit = inside["has_band"].map({True: quality.late_ratio.fail, False: quality.late_ratio.warn})
    # A window with few events exceeds a limit for whole runs easily, so the day must exceed it, too.
    is_late_day = day_sums["late"] + day_sums["dropped"] > late_limit * day_sums["events"]
    is_late = is_late_day & (inside["late_ratio"] > late_limit)
    flagged = inside.assign(
        day_ms=day_ms,
        windows_expected=expected,
        windows_present=windows.where(inside["is_expected"] & inside["is_present"], 0),
        flagged=windows.where(is_missing | is_late | (inside["unaccounted"] != 0), 0),
    )
    sums = flagged.groupby("day_ms")[_SUMS].sum()
    return [
        DayTotals(int(day_ms), *(int(value) for value in values))
        for day_ms, values in zip(sums.index, sums.to_numpy(), strict=True)
    ]


def _try(problems: list[str], work: Callable[[], _Result]) -> _Result | None:
    try:
        return work()
    except BackstreamError as error:
        problems.append(str(error))
        return None


def _load_source(definition: Definition, definition_path: Path, home: Home) -> SourceFooters:
    return load_footers(list_source_files(definition.source, str(definition_path)), definition, home)


def _find_days_of_events(inputs: tuple[InputFile, ...], allowed: Interval) -> Interval | None:
    """Return the whole days from the first event to the last by the footers; None without event times."""
    bounded = [file for file in inputs if file.min_event_ms is not None and file.max_event_ms is not None]
    span = find_event_span(bounded, allowed)
    return round_to_days(span) if span and span.start_ms < span.end_ms else None


def _stale_issue(day: StaleDay, staleness: Staleness) -> DayIssue:
    reason = "; ".join(list_reasons([day], staleness.changes))
    return DayIssue(day.day_ms, "stale", reason, len(day.windows))


def _now_ms() -> int:
    return int(time.time() * SECOND_MS)
