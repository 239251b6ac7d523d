"""What has to be run again: days that late data made stale, and days that no run covers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from backstream.definition.loader import load_definition, resolve_paths
from backstream.definition.model import Definition
from backstream.eventtime.instants import DAY_MS
from backstream.eventtime.intervals import Interval
from backstream.lake.ledger import RunRow, Status, list_runs
from backstream.runs.allowed_ranges import round_to_days
from backstream.runs.home import Home, RunFolder
from backstream.runs.plan import InputFile, Mode
from backstream.runs.results import ApprovalDecision, Audit
from backstream.source.deliveries import find_day_seals
from backstream.source.files import list_source_files
from backstream.source.footers import load_footers
from backstream.workflow.allowed_ranges import find_event_span, is_possible_range
from backstream.workflow.dataset_state import refresh_dataset_state
from backstream.workflow.stale import Staleness, find_stale_days, find_stale_since


@dataclass(frozen=True, slots=True)
class RestateRange:
    """One range to be run, in which mode (None: as defined), and why."""

    interval: Interval
    mode: Mode | None
    reason: str


@dataclass(frozen=True, slots=True)
class RestateRanges:
    """All ranges to be run in their order, and a sentence on what was found and what was left out."""

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
    """The ranges that differ from what would be published now.

    Args:
        definition_path: the TOML file.
        home: where state lies.
        since_ms: first instant that is looked at; None: from the first day on.
        until_ms: first instant that is not; None: to the last day.
        is_missing_wanted: whether days that no run covers are wanted too.

    Raises:
        PlanError: when the source cannot be read, or only Spark can evaluate its event times.
    """
    limits = _Limits(since_ms, until_ms)
    found, refused = _wanted_again(definition_path, home)
    late = [
        RestateRange(kept, mode, _because(found, kept))
        for interval, mode in found.ranges()
        # Days without events and rows, after the last event, gain nothing: a run over them would be refused.
        if (kept := limits.kept(interval)) and is_possible_range(definition_path, kept, home)
    ]
    said = [f"{_days(late)} of {found.published_days} published days stale"]
    gaps = find_missing_days(definition_path, home, until_ms) if is_missing_wanted else MissingDays(())
    kept_gaps = [kept for each in gaps.ranges if (kept := limits.kept(each))]
    holes = [RestateRange(each, None, "missing: no run covers it") for each in kept_gaps]
    said += [f"{_days(holes)} missing"] if is_missing_wanted else []
    stay_refused = refused + gaps.refused_days
    said += [f"{stay_refused} stay refused"] if stay_refused else []
    said += [f"{gaps.unsealed_days} not sealed yet"] if gaps.unsealed_days else []
    ordered = sorted([*late, *holes], key=lambda each: each.interval.start_ms)
    return RestateRanges(tuple(ordered), f"{found.dataset}: {', '.join(said)}")


def _wanted_again(definition_path: Path, home: Home) -> tuple[Staleness, int]:
    """The stale days without those that stay refused, and how many these are."""
    found = find_stale_days(definition_path, home)
    refresh_dataset_state(definition_path, home, found)
    refused = find_refused_days(definition_path, home, found)
    kept = tuple(day for day in found.days if day.day_ms not in refused)
    return replace(found, days=kept), len(refused)


@dataclass(frozen=True, slots=True)
class _Limits:
    """Where to look: from `since_ms` (None: from the first day) to before `until_ms` (None: to the last)."""

    since_ms: int | None = None
    until_ms: int | None = None

    def kept(self, interval: Interval) -> Interval | None:
        """The part of an interval that lies within; None when none does."""
        start_ms = interval.start_ms if self.since_ms is None else max(self.since_ms, interval.start_ms)
        end_ms = interval.end_ms if self.until_ms is None else min(self.until_ms, interval.end_ms)
        return Interval(start_ms, end_ms) if start_ms < end_ms else None


def _because(found: Staleness, interval: Interval) -> str:
    """Such as `late data: 3 windows, by 1 file`."""
    days = [day for day in found.days if interval.start_ms <= day.day_ms < interval.end_ms]
    whole = next((day.reasons[0] for day in days if day.reasons), None)
    if whole:
        return f"late data: {whole}"
    windows = len({(window.window.start_ms, window.window.end_ms) for day in days for window in day.windows})
    files = len({file for day in days for file in day.events})
    return f"late data: {_counted(windows, 'window')}, by {_counted(files, 'file')}"


def _counted(count: int, name: str) -> str:
    return f"{count:,} {name}{'' if count == 1 else 's'}"


def _days(ranges: list[RestateRange]) -> int:
    return sum(1 for each in ranges for _ in each.interval.cut(DAY_MS))


@dataclass(frozen=True, slots=True)
class MissingDays:
    """Days that nothing covers, as ranges; and how many are left out.

    `refused_days`: the gate, or a person, has said no to the newest run of them, and the same run again would not
    change that. `unsealed_days`: they can still gain events.
    """

    ranges: tuple[Interval, ...]
    refused_days: int = 0
    unsealed_days: int = 0


def find_missing_days(definition_path: Path, home: Home, until_ms: int | None = None) -> MissingDays:
    """The days from the first that was ever published until an instant that no run covers.

    Before the first event of the source and after its last one nothing is missing.

    Args:
        definition_path: the TOML file.
        home: where state lies.
        until_ms: first day that is not looked at; the last that was published when not given.

    Raises:
        PlanError: when the source cannot be read, or only Spark can evaluate its times.
    """
    definition = resolve_paths(load_definition(definition_path), home)
    rows = list_runs(home, definition.name)  # the newest first
    done = [row for row in rows if _is_published(row)]
    if not done:
        return MissingDays(())
    end_ms = max(row.until_ms for row in done) if until_ms is None else until_ms
    end_ms = min(end_ms, definition.source.event_time_range[1])
    newest = {day: row for row in reversed(rows) for day in range(row.since_ms, row.until_ms, DAY_MS)}
    covered = {day for row in done for day in range(row.since_ms, row.until_ms, DAY_MS)}
    days = [day for day in range(min(row.since_ms for row in done), end_ms, DAY_MS) if day not in covered]
    inputs = _inputs(definition, definition_path, home) if days else ()
    days = _with_events(days, find_event_span(inputs, Interval(*definition.source.event_time_range)))
    refused = {day for day in days if day in newest and newest[day].status is Status.REFUSED}
    open_days = _unsealed(definition, inputs, home, [day for day in days if day not in refused])
    wanted = [day for day in days if day not in refused and day not in open_days]
    return MissingDays(_joined(wanted), len(refused), len(open_days))


def _is_published(row: RunRow) -> bool:
    return row.status in (Status.PUBLISHED, Status.ALREADY_PUBLISHED)


def _inputs(definition: Definition, path: Path, home: Home) -> tuple[InputFile, ...]:
    return load_footers(list_source_files(definition.source, str(path)), definition, home).inputs


def _with_events(days: list[int], events: Interval | None) -> list[int]:
    """Those of the days that are not before all events or after all of them; all, where nobody knows."""
    if events is None:
        return days
    span = round_to_days(events)
    return [day for day in days if span.start_ms <= day < span.end_ms]


def _unsealed(definition: Definition, inputs: Sequence[InputFile], home: Home, days: list[int]) -> set[int]:
    """Those of the days that can still gain events."""
    if not days or definition.backfill.max_arrival_delay is None:
        return set()
    span = Interval(days[0], days[-1] + DAY_MS)
    evidence = find_day_seals(definition, inputs, span, home)
    return {each.day_ms for each in evidence if not each.seal.is_final} & {*days}


def _joined(days: list[int]) -> tuple[Interval, ...]:
    """Days as ranges: those that follow one another are one."""
    found: list[Interval] = []
    for day in days:
        if found and found[-1].end_ms == day:
            found[-1] = Interval(found[-1].start_ms, day + DAY_MS)
        else:
            found.append(Interval(day, day + DAY_MS))
    return tuple(found)


def find_refused_days(definition_path: Path, home: Home, found: Staleness) -> set[int]:
    """The stale days whose newest run was refused, and for which nothing has come since that was planned.

    A run that was refused because another came first is none of them: nobody has looked at what it would say.
    """
    rows = list_runs(home, found.dataset)  # the newest first
    newest = {day_ms: row for row in reversed(rows) for day_ms in range(row.since_ms, row.until_ms, DAY_MS)}
    days_of: dict[str, set[int]] = defaultdict(set)
    for day in found.days:
        row = newest.get(day.day_ms)
        if row and row.status is Status.REFUSED and _is_a_no(home.run(found.dataset, row.run_id)):
            days_of[row.run_id].add(day.day_ms)
    return set().union(*days_of.values()) - find_stale_since(definition_path, home, days_of)


def _is_a_no(run: RunFolder) -> bool:
    decision = ApprovalDecision.read(run.approval)
    if decision:
        return not decision.is_approved
    return run.audit_result.exists() and not Audit.read(run.audit_result).may_publish
