"""What has to be run again: days that late data made stale, and days that no run covers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from backstream.core.folders import Home
from backstream.core.instants import DAY_MS
from backstream.core.intervals import Interval
from backstream.core.plan import Mode
from backstream.steps.missing import Missing, missing
from backstream.steps.observe import observe
from backstream.steps.possible import is_possible_range
from backstream.steps.refused import refused_days
from backstream.steps.stale import Staleness, stale


@dataclass(frozen=True, slots=True)
class Restatement:
    """One range to be run, in which mode (None: as defined), and why."""

    interval: Interval
    mode: Mode | None
    reason: str


@dataclass(frozen=True, slots=True)
class Restatements:
    """All ranges to be run in their order, and a sentence on what was found and what was left out."""

    ranges: tuple[Restatement, ...]
    summary: str


def restatements(
    definition_path: Path,
    home: Home,
    since_ms: int | None = None,
    until_ms: int | None = None,
    *,
    is_missing_wanted: bool = True,
) -> Restatements:
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
        Restatement(kept, mode, _because(found, kept))
        for interval, mode in found.ranges()
        # Days without events and rows, after the last event, gain nothing: a run over them would be refused.
        if (kept := limits.kept(interval)) and is_possible_range(definition_path, kept, home)
    ]
    said = [f"{_days(late)} of {found.published_days} published days stale"]
    gaps = missing(definition_path, home, until_ms) if is_missing_wanted else Missing(())
    kept_gaps = [kept for each in gaps.ranges if (kept := limits.kept(each))]
    holes = [Restatement(each, None, "missing: no run covers it") for each in kept_gaps]
    said += [f"{_days(holes)} missing"] if is_missing_wanted else []
    stay_refused = refused + gaps.refused_days
    said += [f"{stay_refused} stay refused"] if stay_refused else []
    said += [f"{gaps.unsealed_days} not sealed yet"] if gaps.unsealed_days else []
    ordered = sorted([*late, *holes], key=lambda each: each.interval.start_ms)
    return Restatements(tuple(ordered), f"{found.dataset}: {', '.join(said)}")


def _wanted_again(definition_path: Path, home: Home) -> tuple[Staleness, int]:
    """The stale days without those that stay refused, and how many these are."""
    found = stale(definition_path, home)
    observe(definition_path, home, found)
    refused = refused_days(definition_path, home, found)
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


def _days(ranges: list[Restatement]) -> int:
    return sum(1 for each in ranges for _ in each.interval.cut(DAY_MS))
