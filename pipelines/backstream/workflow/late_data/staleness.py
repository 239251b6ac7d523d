"""Describe the stale days of a dataset, for commands, pages, and programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from backstream.eventtime.instants import DAY_MS, instant_text
from backstream.eventtime.intervals import Interval, merge_intervals
from backstream.eventtime.stale_windows import ChangeKind, StaleWindow, count_by_file
from backstream.runs.plan import Mode
from backstream.text import count_of
from backstream.workflow.late_data.changed_files import FileChange

_FILES_SHOWN = 3


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
    """The stale days of a dataset among `published_days`, in order, and the change of each file of the user.

    `moves` are the files that were only renamed or compressed, by their new path; they make no day stale. Days
    that were computed with another definition are not stale, but `definition_changes` lists them.
    """

    dataset: str
    published_days: int
    days: tuple[StaleDay, ...]
    changes: Mapping[str, FileChange]
    moves: Mapping[str, FileChange] = field(default_factory=dict)
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
            "moved_files": [
                {
                    "path": path,
                    "path_before": move.path_before,
                    "change": move.kind.value,
                    "records": move.records,
                }
                for path, move in sorted(self.moves.items())
            ],
            "definition_changes": [
                {"keys": list(change.keys), "days": [instant_text(day_ms)[:10] for day_ms in change.days]}
                for change in self.definition_changes
            ],
        }


def list_moves(moves: Mapping[str, FileChange]) -> list[str]:
    """Return the files that were only renamed or compressed, at most three of them."""
    texts = [
        f"{move.kind}: {move.path_before} is now {path}, with the same {count_of(move.records or 0, 'record')}"
        for path, move in sorted(moves.items())[:_FILES_SHOWN]
    ]
    more = len(moves) - _FILES_SHOWN
    return [*texts, f"and {count_of(more, 'more renamed or compressed file')}"] if more > 0 else texts


def list_reasons(days: Sequence[StaleDay], changes: Mapping[str, FileChange]) -> list[str]:
    """Return why days are stale, e.g., `changed: in/d3.jsonl, 1 more record`, with at most three files."""
    reasons = list(dict.fromkeys(reason for day in days for reason in day.reasons))
    touches = {touch for day in days for window in day.windows for touch in window.touches}
    files = sorted(count_by_file(touches).items())
    reasons += [_file_text(file, changes[file], more) for file, more in files[:_FILES_SHOWN]]
    if len(files) > _FILES_SHOWN:
        reasons.append(f"and {count_of(len(files) - _FILES_SHOWN, 'more file')}")
    return reasons


def _day_json(day: StaleDay, changes: Mapping[str, FileChange]) -> dict[str, Any]:
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
                    _file_json(file, changes[file], more)
                    for file, more in sorted(count_by_file(window.touches).items())
                ],
            }
            for window in day.windows
        ],
    }


def _file_json(path: str, change: FileChange, more: int | None) -> dict[str, Any]:
    before = {"path_before": change.path_before} if change.path_before else {}
    return {"path": path, **before, "change": change.kind.value, "more_records": more}


def _file_text(path: str, change: FileChange, more: int | None) -> str:
    before = f" (before: {change.path_before})" if change.path_before else ""
    return f"{change.kind}: {path}{before}{_count_text(change.kind, more)}"


def _count_text(kind: ChangeKind, more: int | None) -> str:
    if more is None:
        return ""
    if kind in (ChangeKind.ADDED, ChangeKind.REMOVED):
        return f", {count_of(abs(more), 'record')}"
    if not more:
        return ", the same number of records"
    count = count_of(abs(more), "record")
    number, _, noun = count.partition(" ")
    return f", {number} {'more' if more > 0 else 'fewer'} {noun}"
