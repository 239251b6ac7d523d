"""Days between those that were published for which no run was: a scheduler that was down, a run that failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from backstream.core.folders import Home
from backstream.core.instants import DAY_MS
from backstream.core.intervals import Interval
from backstream.core.plan import InputFile
from backstream.core.possible import whole_days
from backstream.definition.load import load, resolved
from backstream.definition.model import Definition
from backstream.lake.ledger import RunRow, Status, runs
from backstream.steps.footers import footers
from backstream.steps.inputs import source_files
from backstream.steps.possible import event_span
from backstream.steps.seals import seals


@dataclass(frozen=True, slots=True)
class Missing:
    """Days that nothing covers, as ranges; and how many are left out.

    `refused_days`: the gate, or a person, has said no to the newest run of them, and the same run again would not
    change that. `unsealed_days`: they can still gain events.
    """

    ranges: tuple[Interval, ...]
    refused_days: int = 0
    unsealed_days: int = 0


def missing(definition_path: Path, home: Home, until_ms: int | None = None) -> Missing:
    """The days from the first that was ever published until an instant that no run covers.

    Before the first event of the source and after its last one nothing is missing.

    Args:
        definition_path: the TOML file.
        home: where state lies.
        until_ms: first day that is not looked at; the last that was published when not given.

    Raises:
        PlanError: when the source cannot be read, or only Spark can evaluate its times.
    """
    definition = resolved(load(definition_path), home)
    rows = runs(home, definition.name)  # the newest first
    done = [row for row in rows if _is_published(row)]
    if not done:
        return Missing(())
    end_ms = max(row.until_ms for row in done) if until_ms is None else until_ms
    end_ms = min(end_ms, definition.source.event_time_range[1])
    newest = {day: row for row in reversed(rows) for day in range(row.since_ms, row.until_ms, DAY_MS)}
    covered = {day for row in done for day in range(row.since_ms, row.until_ms, DAY_MS)}
    days = [day for day in range(min(row.since_ms for row in done), end_ms, DAY_MS) if day not in covered]
    inputs = _inputs(definition, definition_path, home) if days else ()
    days = _with_events(days, event_span(inputs, Interval(*definition.source.event_time_range)))
    refused = {day for day in days if day in newest and newest[day].status is Status.REFUSED}
    open_days = _unsealed(definition, inputs, home, [day for day in days if day not in refused])
    wanted = [day for day in days if day not in refused and day not in open_days]
    return Missing(_joined(wanted), len(refused), len(open_days))


def _is_published(row: RunRow) -> bool:
    return row.status in (Status.PUBLISHED, Status.ALREADY_PUBLISHED)


def _inputs(definition: Definition, path: Path, home: Home) -> tuple[InputFile, ...]:
    return footers(source_files(definition.source, str(path)), definition, home).inputs


def _with_events(days: list[int], events: Interval | None) -> list[int]:
    """Those of the days that are not before all events or after all of them; all, where nobody knows."""
    if events is None:
        return days
    span = whole_days(events)
    return [day for day in days if span.start_ms <= day < span.end_ms]


def _unsealed(definition: Definition, inputs: Sequence[InputFile], home: Home, days: list[int]) -> set[int]:
    """Those of the days that can still gain events."""
    if not days or definition.backfill.horizon is None:
        return set()
    span = Interval(days[0], days[-1] + DAY_MS)
    evidence = seals(definition, inputs, span, home)
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
