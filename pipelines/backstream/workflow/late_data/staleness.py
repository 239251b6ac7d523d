"""Describe the stale days of a dataset, for commands, pages, and programs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from backstream.eventtime.instants import DAY_MS, instant_text
from backstream.eventtime.intervals import Interval, merge_intervals
from backstream.eventtime.stale_windows import ChangeKind, StaleWindow, count_by_file
from backstream.runs.plan import Mode


@dataclass(frozen=True, slots=True)
class StaleDay:
    """One published UTC day that would have other rows now.

    `windows` are the windows that are known to be affected. `reasons` explain why the whole day is stale, if the
    windows are unknown.
    """

    day_ms: int
    mode: Mode | None
    windows: tuple[StaleWindow, ...]
    reasons: tuple[str, ...]

    @property
    def events(self) -> dict[str, int | None]:
        """The number of records in the day's windows by file; None: not counted."""
        return count_by_file({touch for window in self.windows for touch in window.touches})


@dataclass(frozen=True, slots=True)
class DefinitionChange:
    """Changed keys of the definition, and the published UTC days that were computed with other values of them."""

    keys: tuple[str, ...]
    days: tuple[int, ...]

    def ranges(self) -> list[Interval]:
        """Return the days as ranges."""
        return merge_intervals(Interval(day_ms, day_ms + DAY_MS) for day_ms in self.days)


@dataclass(frozen=True, slots=True)
class Staleness:
    """The stale days of a dataset among `published_days`, in order, and the change of each input file.

    Days that were computed with another definition are not stale, but `definition_changes` lists them.
    """

    dataset: str
    published_days: int
    days: tuple[StaleDay, ...]
    changes: Mapping[str, ChangeKind]
    definition_changes: tuple[DefinitionChange, ...] = ()

    def ranges(self) -> list[tuple[Interval, Mode | None]]:
        """Return the stale days as ranges; adjacent days that were published in the same mode are one range."""
        ranges: list[tuple[Interval, Mode | None]] = []
        for day in self.days:
            if ranges and ranges[-1][0].end_ms == day.day_ms and ranges[-1][1] == day.mode:
                ranges[-1] = Interval(ranges[-1][0].start_ms, day.day_ms + DAY_MS), day.mode
            else:
                ranges.append((Interval(day.day_ms, day.day_ms + DAY_MS), day.mode))
        return ranges

    def as_json(self) -> dict[str, Any]:
        """Return all fields for programs."""
        return {
            "dataset": self.dataset,
            "published_days": self.published_days,
            "stale_days": [_day_json(day, self.changes) for day in self.days],
            "definition_changes": [
                {"keys": list(change.keys), "days": [instant_text(day_ms)[:10] for day_ms in change.days]}
                for change in self.definition_changes
            ],
        }


def _day_json(day: StaleDay, changes: Mapping[str, ChangeKind]) -> dict[str, Any]:
    return {
        "day": instant_text(day.day_ms)[:10],
        "mode": day.mode.value if day.mode else None,
        "reasons": list(day.reasons),
        "windows": [
            {
                "window_start": instant_text(window.window.start_ms),
                "window_end": instant_text(window.window.end_ms),
                "keys": [json.loads(key) for key in sorted(window.keys)],
                "is_of_any_key": window.is_of_any_key,
                "files": [
                    {"path": file, "change": changes[file].value, "events": events}
                    for file, events in sorted(count_by_file(window.touches).items())
                ],
            }
            for window in day.windows
        ],
    }
