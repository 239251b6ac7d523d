"""The days of a definition: which are sealed, which are published, and by which run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from backstream.core.folders import Home
from backstream.core.instants import DAY_MS
from backstream.core.intervals import Interval
from backstream.core.seals import Evidence
from backstream.definition.load import load, resolved
from backstream.lake.windows import published
from backstream.steps.footers import footers
from backstream.steps.inputs import source_files
from backstream.steps.seals import seals


@dataclass(frozen=True, slots=True)
class Day:
    """One UTC day; `evidence` is None where none is asked for, `runs` empty where nothing is published."""

    day_ms: int
    evidence: Evidence | None
    runs: tuple[str, ...]


def days(definition_path: Path, interval: Interval, home: Home) -> list[Day]:
    """Each day of a range.

    Raises:
        PlanError: when the source cannot be read, or only Spark can evaluate its times.
    """
    definition = resolved(load(definition_path), home)
    source = footers(source_files(definition.source, str(definition_path)), definition, home)
    evidence = {each.day_ms: each for each in seals(definition, source.inputs, interval, home)}
    by_day = published(home, definition.name).runs_by_day()
    return [
        Day(day_ms, evidence.get(day_ms), tuple(sorted(by_day.get(day_ms, ()))))
        for day_ms in range(interval.start_ms, interval.end_ms, DAY_MS)
    ]
