"""What a run leaves for the pages inside Airflow, so that showing them needs no reading of sources."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pandas as pd

from backstream.definition.loader import load_definition, parse_definition, resolve_paths
from backstream.definition.model import Definition
from backstream.errors import BackstreamError
from backstream.eventtime.instants import DAY_MS, SECOND_MS
from backstream.eventtime.intervals import Interval
from backstream.eventtime.seals import DaySeal
from backstream.runs.allowed_ranges import round_to_days
from backstream.runs.dataset_state import DatasetState, DayIssue, DayTotals, write_day_totals
from backstream.runs.home import Home
from backstream.runs.manifest import home_of
from backstream.runs.plan import InputFile, Plan
from backstream.source.deliveries import find_day_seals
from backstream.source.files import list_source_files
from backstream.source.footers import SourceFooters, load_footers
from backstream.workflow.allowed_ranges import find_event_span
from backstream.workflow.stale import StaleDay, Staleness, find_stale_days

_SUMS = ["windows_expected", "windows_present", "events", "on_time", "late", "dropped", "flagged"]
_Found = TypeVar("_Found")


def refresh_dataset_state(definition_path: Path, home: Home, known: Staleness | None = None) -> DatasetState:
    """Look which days of a dataset are sealed and which are stale, and leave what was found.

    `known` is what was found to be stale just now, where somebody has looked; it is not looked for again.
    What cannot be found out is said in the observation instead of raised: it is told beside a run, and no run
    fails for it.
    """
    problems: list[str] = []
    definition = _tried(problems, lambda: resolve_paths(load_definition(definition_path), home))
    if definition is None:
        return DatasetState(definition_path.stem, _now_ms(), None, None, None, (), tuple(problems))
    files = _tried(problems, lambda: _footers(definition, definition_path, home))
    inputs = files.inputs if files else ()
    problems += [f"cannot read input file {file.path}: {file.reason}" for file in files.damaged] if files else []
    allowed = Interval(*definition.source.event_time_range)
    span = _days_of_events(inputs, allowed)
    evidence = _tried(problems, lambda: find_day_seals(definition, inputs, span, home)) if span else None
    found = known or (_tried(problems, lambda: find_stale_days(definition_path, home)) if inputs else None)
    observation = DatasetState(
        definition.name,
        _now_ms(),
        span.start_ms if span else None,
        span.end_ms if span else None,
        tuple(_unsealed(day) for day in evidence if not day.seal.is_final) if evidence else None,
        tuple(_stale(day) for day in found.days) if found else (),
        tuple(dict.fromkeys(problems)),
    )
    observation.write(home.observation(definition.name))
    return observation


def refresh_after_run(plan: Plan) -> str | None:
    """Look anew at the dataset of a run that has ended; return what went wrong, since no run may fail of it."""
    try:
        refresh_dataset_state(Path(plan.definition_path), home_of(plan))
    except Exception as error:  # noqa: BLE001 - whatever it is, the run is done
        what = f"what the pages show of {plan.dataset} is as old as it was: it could not be looked at anew"
        reason = str(error).partition("\n")[0] or type(error).__name__
        return f"{what}\n  {reason}"
    return None


def write_run_totals(plan: Plan) -> None:
    """Keep the sums of each day of a run's audit beside it, for the pages; nothing else is read."""
    if plan.folder.audit_frame.exists():
        limits = parse_definition(plan.definition, f"plan {plan.run_id}").quality.late_ratio
        frame = pd.read_parquet(plan.folder.audit_frame)
        write_day_totals(plan.folder.day_totals, compute_day_totals(frame, limits.warn))


def compute_day_totals(frame: pd.DataFrame, late_limit: float) -> list[DayTotals]:
    """The sums of each UTC day of an audit frame (`quality.frame.WINDOW_COLUMNS`), in order of days."""
    inside = frame[frame["in_range"]]
    is_missing = inside["is_expected"] & ~inside["is_present"]
    day_ms = inside["window_start"].dt.as_unit("ms").astype("int64") // DAY_MS * DAY_MS
    # A window of few events is soon above a limit that is meant for a run: the day's own share decides.
    of_day = inside[["events", "late", "dropped"]].groupby(day_ms).transform("sum")
    is_late_day = of_day["late"] + of_day["dropped"] > late_limit * of_day["events"]
    is_late = is_late_day & (inside["late_ratio"] > late_limit)
    marked = inside.assign(
        day_ms=day_ms,
        windows_expected=inside["is_expected"].astype("int64"),
        windows_present=(inside["is_expected"] & inside["is_present"]).astype("int64"),
        flagged=(is_missing | is_late | (inside["unaccounted"] != 0)).astype("int64"),
    )
    sums = marked.groupby("day_ms")[_SUMS].sum()
    return [
        DayTotals(int(day_ms), *(int(value) for value in values))
        for day_ms, values in zip(sums.index, sums.to_numpy(), strict=True)
    ]


def _tried(problems: list[str], work: Callable[[], _Found]) -> _Found | None:
    try:
        return work()
    except BackstreamError as error:
        problems.append(str(error))
        return None


def _footers(definition: Definition, definition_path: Path, home: Home) -> SourceFooters:
    return load_footers(list_source_files(definition.source, str(definition_path)), definition, home)


def _days_of_events(inputs: tuple[InputFile, ...], allowed: Interval) -> Interval | None:
    """The whole days from the first event to the last, as footers tell them; None where none does."""
    told = [file for file in inputs if file.min_event_ms is not None and file.max_event_ms is not None]
    span = find_event_span(told, allowed)
    return round_to_days(span) if span and span.start_ms < span.end_ms else None


def _unsealed(day: DaySeal) -> DayIssue:
    return DayIssue(day.day_ms, day.seal.value, day.reason)


def _stale(day: StaleDay) -> DayIssue:
    files = len(day.events)
    said = "; ".join(day.reasons) or f"{files} input file{'' if files == 1 else 's'} changed"
    return DayIssue(day.day_ms, "stale", said, len(day.windows))


def _now_ms() -> int:
    return int(time.time() * SECOND_MS)
