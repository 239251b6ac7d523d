"""Load the windows of one day with their fates from the audit data of a run, and the changes by run."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd
import pyarrow.compute as pc
from markupsafe import Markup

from backstream.charts import completeness_map, svg
from backstream.errors import BackstreamError
from backstream.eventtime.instants import DAY_MS, utc_datetime
from backstream.eventtime.intervals import Interval
from backstream.lake.reader import load_published_rows
from backstream.pages.days import CalendarDay
from backstream.pages.store import PageStore
from backstream.quality.window_rows import clip_rows, count_windows, cut_rows, list_windows, starts_ms, steps_ms
from backstream.runs.home import Home, RunFolder
from backstream.runs.table_schemas import RESTATEMENTS

_MAX_WINDOWS = 400
_RECENT_DAYS = 14
_ROW_HEIGHT, _MIN_HEIGHT = 22, 108
_WIDTH, _LEFT, _ROOM = 1_120, 92, 96


@dataclass(frozen=True, slots=True)
class PartitionCounts:
    """Counts of one source partition in one window."""

    source_partition: str
    is_expected: bool
    expected_events: int
    events: int
    on_time: int
    late: int
    dropped: int
    expired: int

    @property
    def is_missing(self) -> bool:
        """Return whether the source partition was expected and has no events."""
        return self.is_expected and not self.events


@dataclass(frozen=True, slots=True)
class WindowCounts:
    """Counts of one window by source partition."""

    start_ms: int
    end_ms: int
    cells: tuple[PartitionCounts, ...]

    @property
    def missing_partitions(self) -> int:
        """Number of missing source partitions."""
        return sum(cell.is_missing for cell in self.cells)

    @property
    def has_trouble(self) -> bool:
        """Return whether the window has missing source partitions, or late or dropped events."""
        return any(cell.is_missing or cell.late or cell.dropped for cell in self.cells)

    def total(self, name: str) -> int:
        """Return the sum of a count over the source partitions."""
        return sum(getattr(cell, name) for cell in self.cells)


@dataclass(frozen=True, slots=True)
class DayWindows:
    """Windows of a day and a heat map of all of them; `left_out` is the number of windows not listed."""

    windows: tuple[WindowCounts, ...]
    left_out: int
    is_count_known: bool
    map: Markup | None
    levels: tuple[tuple[str, str], ...]


def day_windows(folder: RunFolder, day_ms: int) -> DayWindows | None:
    """Return the windows of a day from the audit of a run; None without a readable audit frame.

    If a day has too many windows, those with missing, late, or dropped events are listed first.
    """
    try:
        frame = _load_frame(folder, day_ms)
    except (OSError, ValueError, KeyError):
        return None
    edges_ms = np.unique(np.concatenate([starts_ms(frame), starts_ms(frame, "last_start") + 1]))
    frame = cut_rows(frame, edges_ms)  # now a row of all source partitions has the same windows
    count = count_windows(frame.drop_duplicates(["window_start", "window_end"]))
    shown = _list_shown(frame)
    drawn, levels = _draw_map(frame, day_ms)
    is_known = bool(frame["is_count_known"].any())
    return DayWindows(tuple(shown), count - len(shown), is_known, drawn, levels)


def _list_shown(frame: pd.DataFrame) -> list[WindowCounts]:
    """Return the first windows in order of time; those with missing, late, or dropped events have priority."""
    is_missing = frame["is_expected"] & (frame["events"] == 0)
    has_trouble = (is_missing | (frame["late"] > 0) | (frame["dropped"] > 0)).groupby(frame["window_start"])
    is_first, limit = has_trouble.transform("any"), _MAX_WINDOWS * frame["source_partition"].nunique()
    parts = [_group_by_window(list_windows(part, limit)) for part in (frame[is_first], frame[~is_first])]
    return sorted([*parts[0], *parts[1]][:_MAX_WINDOWS], key=lambda window: window.start_ms)


def load_recent_windows(records: PageStore, dataset: str, days: Sequence[CalendarDay]) -> pd.DataFrame | None:
    """Return the windows of the last published days from the audits of their runs; None without any.

    A day whose audit frame cannot be read is left out.
    """
    frames = []
    for day in [day for day in days if day.run_id][-_RECENT_DAYS:]:
        with suppress(OSError, ValueError, KeyError):
            frames.append(_load_frame(records.home.run(dataset, str(day.run_id)), day.day_ms))
    return pd.concat(frames, ignore_index=True) if frames else None


def count_changes_by_run(home: Home, dataset: str, day_ms: int) -> dict[str, dict[str, int]] | None:
    """Return the number of added, removed, and changed values of a day by run; None if unknown."""
    try:
        rows = load_published_rows(home, dataset, RESTATEMENTS, Interval(day_ms, day_ms + DAY_MS))
    except BackstreamError:
        return None
    if not rows.num_rows:
        return {}
    groups = rows.group_by(["run_id", "change"]).aggregate([([], "count_all")])
    counts: dict[str, dict[str, int]] = {}
    for row in groups.to_pylist():
        counts.setdefault(row["run_id"], {})[row["change"]] = row["count_all"]
    return counts


def _load_frame(folder: RunFolder, day_ms: int) -> pd.DataFrame:
    start, end = utc_datetime(day_ms), utc_datetime(day_ms + DAY_MS)
    is_in_day = (pc.field("last_start") >= start) & (pc.field("window_start") < end)
    frame = pd.read_parquet(folder.audit_frame, filters=is_in_day)
    instants = {name: frame[name].dt.as_unit("ms") for name in ("window_start", "window_end", "last_start")}
    return clip_rows(frame.assign(**instants), day_ms, day_ms + DAY_MS)


def _group_by_window(frame: pd.DataFrame) -> list[WindowCounts]:
    fields = list(PartitionCounts.__dataclass_fields__)
    by_window: dict[tuple[int, int], list[PartitionCounts]] = {}
    starts, ends = (frame[name].astype("int64").tolist() for name in ("window_start", "window_end"))
    values = zip(*(frame[name].tolist() for name in fields), strict=True)
    for start_ms, end_ms, cell in zip(starts, ends, values, strict=True):
        by_window.setdefault((start_ms, end_ms), []).append(PartitionCounts(*cell))
    return [WindowCounts(start, end, tuple(cells)) for (start, end), cells in sorted(by_window.items())]


def _draw_map(frame: pd.DataFrame, day_ms: int) -> tuple[Markup | None, tuple[tuple[str, str], ...]]:
    """Return the heat map of a day, and the levels of its legend; None without windows."""
    if frame.empty:
        return None, ()
    first_ms, steps = sorted(set(starts_ms(frame))), steps_ms(frame)[frame["windows"] > 1]
    distances_ms = (after - before for before, after in pairwise(first_ms))
    unit_ms = int(min([*distances_ms, *steps.tolist()], default=DAY_MS))
    shown = completeness_map.ChartRange(Interval(day_ms, day_ms + DAY_MS), unit_ms)
    grid = completeness_map.time_grid(frame, shown, _ROOM)
    if grid is None:
        return None, ()
    place = svg.Frame(_LEFT, 6, _WIDTH - _LEFT, max(_MIN_HEIGHT, _ROW_HEIGHT * grid.rows))
    return svg.heat_map(grid, place), completeness_map.legend_levels((grid,))


def find_newest_audited(home: Home, dataset: str, run_ids: Sequence[str]) -> str | None:
    """Return the first of these runs that has an audit frame; None if no run has one."""
    return next((run_id for run_id in run_ids if home.run(dataset, run_id).audit_frame.is_file()), None)
