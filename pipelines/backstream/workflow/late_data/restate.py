"""Find the ranges to reprocess: stale days, and missing days that no run covers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from backstream.definition.loader import load_definition, resolve_paths
from backstream.definition.model import Definition
from backstream.eventtime.instants import DAY_MS
from backstream.eventtime.intervals import Interval
from backstream.lake.run_rows import list_runs
from backstream.runs.allowed_ranges import round_to_days
from backstream.runs.home import Home, RunFolder
from backstream.runs.plan import InputFile, Mode
from backstream.runs.results import ApprovalDecision, Audit
from backstream.runs.status import RunStatus
from backstream.source.deliveries import find_day_seals
from backstream.source.files import list_source_files
from backstream.source.footers import load_footers
from backstream.workflow.dataset_state import refresh_dataset_state
from backstream.workflow.late_data.stale import find_stale_days, find_stale_since
from backstream.workflow.late_data.staleness import Staleness, list_reasons
from backstream.workflow.plan.allowed_ranges import find_event_span, is_possible_range


@dataclass(frozen=True, slots=True)
class RestateRange:
    """A range to run, its mode (None: the mode of the definition), and the reason."""

    interval: Interval
    mode: Mode | None
    reason: str


@dataclass(frozen=True, slots=True)
class RestateRanges:
    """The ranges to run in order, and a sentence that counts the found and the excluded days."""

    ranges: tuple[RestateRange, ...]
    summary: str


def find_restatements(
    definition_path: Path,
    home: Home,
    since_ms: int | None = None,
    until_ms: int | None = None,
    *,
    is_missing_wanted: bool = True,
) -> RestateRanges:
    """Return the ranges whose published rows differ from those of a new run.

    Args:
        definition_path: the TOML file.
        home: the folder that holds all state.
        since_ms: start of the search; None: the first day.
        until_ms: end of the search, excluded; None: the last day.
        is_missing_wanted: whether to include days that no run covers.

    Raises:
        PlanError: when the source cannot be read, or only Spark can evaluate its event times.
    """
    limits = _Limits(since_ms, until_ms)
    staleness, refused = _find_stale_unrefused(definition_path, home)
    late = [
        RestateRange(part, mode, _late_data_reason(staleness, part))
        for interval, mode in staleness.ranges()
        # Planning would reject days after the last event that have no rows; they change nothing.
        if (part := limits.clip(interval)) and is_possible_range(definition_path, part, home)
    ]
    counts = [f"{_count_days(late)} of {staleness.published_days} published days stale"]
    missing = _find_missing_days(definition_path, home, until_ms) if is_missing_wanted else _MissingDays(())
    parts = [part for interval in missing.ranges if (part := limits.clip(interval))]
    gaps = [RestateRange(part, None, "missing: no run covers it") for part in parts]
    counts += [f"{_count_days(gaps)} missing"] if is_missing_wanted else []
    stay_refused = refused + missing.refused_days
    counts += [f"{stay_refused} stay refused"] if stay_refused else []
    counts += [f"{missing.unsealed_days} not sealed yet"] if missing.unsealed_days else []
    ordered = sorted([*late, *gaps], key=lambda restatement: restatement.interval.start_ms)
    return RestateRanges(tuple(ordered), f"{staleness.dataset}: {', '.join(counts)}")


def _find_stale_unrefused(definition_path: Path, home: Home) -> tuple[Staleness, int]:
    """Return the stale days except those that stay refused, and the number of the latter."""
    staleness = find_stale_days(definition_path, home)
    refresh_dataset_state(definition_path, home, staleness)
    refused = _find_refused_days(definition_path, home, staleness)
    days = tuple(day for day in staleness.days if day.day_ms not in refused)
    return replace(staleness, days=days), len(refused)


@dataclass(frozen=True, slots=True)
class _Limits:
    """The limits of the search; None: no limit."""

    since_ms: int | None = None
    until_ms: int | None = None

    def clip(self, interval: Interval) -> Interval | None:
        """Return the part of an interval within the limits; None if there is none."""
        start_ms = interval.start_ms if self.since_ms is None else max(self.since_ms, interval.start_ms)
        end_ms = interval.end_ms if self.until_ms is None else min(self.until_ms, interval.end_ms)
        return Interval(start_ms, end_ms) if start_ms < end_ms else None


def _late_data_reason(staleness: Staleness, interval: Interval) -> str:
    """Return text such as `late data: 3 windows; changed: in/d3.jsonl, 1 more record`."""
    days = [day for day in staleness.days if interval.start_ms <= day.day_ms < interval.end_ms]
    windows = {(window.window.start_ms, window.window.end_ms) for day in days for window in day.windows}
    counted = [] if any(day.reasons for day in days) else [_count_text(len(windows), "window")]
    return f"late data: {'; '.join([*counted, *list_reasons(days, staleness.changes)])}"


def _count_text(count: int, name: str) -> str:
    return f"{count:,} {name}{'' if count == 1 else 's'}"


def _count_days(ranges: list[RestateRange]) -> int:
    return sum(1 for restatement in ranges for _ in restatement.interval.cut(DAY_MS))


@dataclass(frozen=True, slots=True)
class _MissingDays:
    """The days that no run covers, as ranges, and the numbers of excluded days.

    `refused_days`: the quality gate or an approver rejected the newest run of the day, and a repetition would have
    the same result. `unsealed_days`: the day can still gain events.
    """

    ranges: tuple[Interval, ...]
    refused_days: int = 0
    unsealed_days: int = 0


def _find_missing_days(definition_path: Path, home: Home, until_ms: int | None = None) -> _MissingDays:
    """Return the days without a run, from the first published day to an instant.

    Days before the first event of the source and after the last one are not missing.

    Args:
        definition_path: the TOML file.
        home: the folder that holds all state.
        until_ms: end of the search, excluded; None: the end of the last published day.

    Raises:
        PlanError: when the source cannot be read, or only Spark can evaluate its times.
    """
    definition = resolve_paths(load_definition(definition_path), home)
    rows = list_runs(home, definition.name)  # the newest first
    published = [row for row in rows if row.status is RunStatus.PUBLISHED]
    if not published:
        return _MissingDays(())
    end_ms = max(row.until_ms for row in published) if until_ms is None else until_ms
    end_ms = min(end_ms, definition.valid_times.end_ms)
    newest = {day: row for row in reversed(rows) for day in range(row.since_ms, row.until_ms, DAY_MS)}
    covered = {day for row in published for day in range(row.since_ms, row.until_ms, DAY_MS)}
    days = [day for day in range(min(row.since_ms for row in published), end_ms, DAY_MS) if day not in covered]
    inputs = _load_inputs(definition, definition_path, home) if days else ()
    days = _keep_days_of_events(days, find_event_span(inputs, definition.valid_times))
    refused = {day for day in days if day in newest and newest[day].status is RunStatus.REFUSED}
    unsealed = _find_unsealed_days(definition, inputs, home, [day for day in days if day not in refused])
    wanted = [day for day in days if day not in refused and day not in unsealed]
    return _MissingDays(_merge_days(wanted), len(refused), len(unsealed))


def _load_inputs(definition: Definition, path: Path, home: Home) -> tuple[InputFile, ...]:
    return load_footers(list_source_files(definition.source, str(path)), definition, home).inputs


def _keep_days_of_events(days: list[int], events: Interval | None) -> list[int]:
    """Return the days between the first and the last event; all days if the events are unknown."""
    if events is None:
        return days
    span = round_to_days(events)
    return [day for day in days if span.start_ms <= day < span.end_ms]


def _find_unsealed_days(
    definition: Definition, inputs: Sequence[InputFile], home: Home, days: list[int]
) -> set[int]:
    """Return the days that can still gain events."""
    if not days or definition.backfill.max_arrival_delay is None:
        return set()
    span = Interval(days[0], days[-1] + DAY_MS)
    seals = find_day_seals(definition, inputs, span, home)
    return {day.day_ms for day in seals if not day.seal.is_final} & {*days}


def _merge_days(days: list[int]) -> tuple[Interval, ...]:
    """Return days as ranges; adjacent days are one range."""
    ranges: list[Interval] = []
    for day in days:
        if ranges and ranges[-1].end_ms == day:
            ranges[-1] = Interval(ranges[-1].start_ms, day + DAY_MS)
        else:
            ranges.append(Interval(day, day + DAY_MS))
    return tuple(ranges)


def _find_refused_days(definition_path: Path, home: Home, staleness: Staleness) -> set[int]:
    """Return the stale days whose newest run was rejected and that have no newer late data.

    A run that failed with a conflict does not count: neither the quality gate nor an approver rejected its result.
    """
    rows = list_runs(home, staleness.dataset)  # the newest first
    newest = {day_ms: row for row in reversed(rows) for day_ms in range(row.since_ms, row.until_ms, DAY_MS)}
    days_by_run: dict[str, set[int]] = defaultdict(set)
    for day in staleness.days:
        row = newest.get(day.day_ms)
        if row and row.status is RunStatus.REFUSED and _is_rejected(home.run(staleness.dataset, row.run_id)):
            days_by_run[row.run_id].add(day.day_ms)
    return set().union(*days_by_run.values()) - find_stale_since(definition_path, home, days_by_run)


def _is_rejected(run: RunFolder) -> bool:
    """Return whether an approver or the quality gate rejected a run; the approver decides last."""
    decision = ApprovalDecision.find(run.approval)
    if decision:
        return not decision.is_approved
    return run.audit_result.exists() and not Audit.read(run.audit_result).may_publish
