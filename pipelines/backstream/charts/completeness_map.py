"""Draw window completeness as heat maps by source partition and time, and find gaps."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from backstream.charts.bar_charts import axis_step_ms, bucket_count, bucket_edges_ms, time_ticks
from backstream.charts.svg import Axis, HeatCell, HeatGrid
from backstream.eventtime.instants import DAY_MS, HOUR_MS
from backstream.eventtime.intervals import Interval
from backstream.formatting import at_text, count_of, count_text, day_text, duration_words
from backstream.quality.window_rows import cut_rows

_LEVELS = (
    ("c5", "complete", 0.995),
    ("c4", "90 % or more", 0.9),
    ("c3", "75 to 90 %", 0.75),
    ("c2", "50 to 75 %", 0.5),
    ("c1", "below 50 %", 0.0),
)
"""CSS class, name, and minimum of each level of completeness; `_MISSING` and `_SURPLUS` are extra levels."""
_MISSING = ("c0", "no events")
_SURPLUS = ("cx", "more than expected")

_MAX_CELLS = 6_000
_MAX_GRIDS = 9
_MIN_DAYS, _MAX_DAYS = 3, 62
_MAX_ROWS = 40
_LABEL_LENGTH, _NAME_LENGTH = 16, 60
_SURPLUS_FROM = 1.005
_COUNTS = ["windows", "present", "expected_events", "events", "late", "dropped"]


@dataclass(frozen=True, slots=True)
class Gap:
    """Consecutive expected windows of one source partition without events."""

    source_partition: str
    since_ms: int
    until_ms: int
    windows: int
    expected_events: int


@dataclass(frozen=True, slots=True)
class ChartRange:
    """Range of a chart and the distance of its window starts."""

    span: Interval
    unit_ms: int


def day_hour_grid(frame: pd.DataFrame, shown: ChartRange) -> tuple[HeatGrid, ...]:
    """Return a grid per source partition with a column per day; empty for too few or too many cells."""
    row_ms = max(shown.unit_ms, HOUR_MS)
    days = _whole_days(shown.span)
    columns, rows = bucket_count(days, DAY_MS), DAY_MS // row_ms
    partitions = sorted(frame["source_partition"].unique())
    is_fit = DAY_MS % row_ms == 0 and rows > 1 and _MIN_DAYS <= columns <= _MAX_DAYS
    if not is_fit or len(partitions) > _MAX_GRIDS or columns * rows * len(partitions) > _MAX_CELLS:
        return ()
    cells = _cells(frame, days, row_ms, shown.unit_ms)
    x = Axis("day (UTC)", time_ticks(days, DAY_MS, 6))
    y = Axis("hour of day (UTC)", _hour_ticks(row_ms))
    return tuple(
        HeatGrid(
            label=f"Completeness of {_shorten(partition, _NAME_LENGTH)} by day and hour",
            columns=columns,
            rows=rows,
            x=x,
            y=y,
            cells=tuple(
                HeatCell(bucket // rows, bucket % rows, level, title)
                for bucket, level, title in cells.get(partition, ())
            ),
        )
        for partition in partitions
    )


def time_grid(frame: pd.DataFrame, shown: ChartRange, room: int) -> HeatGrid | None:
    """Return a grid with a row per source partition and at most `room` columns.

    If there are too many source partitions, only the least complete ones are shown.
    """
    if frame.empty:
        return None
    partitions = _least_complete(frame)
    bucket_ms = axis_step_ms(shown.span, shown.unit_ms, min(room, _MAX_CELLS // len(partitions)))
    cells = _cells(frame, shown.span, bucket_ms, shown.unit_ms)
    steps = "" if bucket_ms == shown.unit_ms else f", in steps of {duration_words(bucket_ms)}"
    ticks = tuple((row + 0.5, _shorten(name, _LABEL_LENGTH)) for row, name in enumerate(partitions))
    return HeatGrid(
        label="Completeness by source partition and time",
        columns=bucket_count(shown.span, bucket_ms),
        rows=len(partitions),
        x=Axis(f"window start (UTC){steps}", time_ticks(shown.span, bucket_ms, 12 if room > _MAX_DAYS else 4)),
        y=Axis("source partition", ticks),
        cells=tuple(
            HeatCell(bucket, row, level, title)
            for row, name in enumerate(partitions)
            for bucket, level, title in cells.get(name, ())
        ),
    )


def legend_levels(grids: tuple[HeatGrid, ...]) -> tuple[tuple[str, str], ...]:
    """Return CSS class and name of the levels for the legend; `_SURPLUS` only if it occurs."""
    used = {cell.level for grid in grids for cell in grid.cells}
    scale = tuple((style, name) for style, name, _ in _LEVELS)
    return (*scale, _MISSING, *((_SURPLUS,) if _SURPLUS[0] in used else ()))


def find_gaps(frame: pd.DataFrame) -> list[Gap]:
    """Return the gaps, longest first.

    A window that is not expected does not end a gap: a night without flights belongs to the gap around it.
    """
    expected = frame[frame["is_expected"]].sort_values(["source_partition", "window_start"])
    is_missing = ~expected["is_present"]
    run = (is_missing != is_missing.shift()).cumsum()
    ends = expected["last_start"] + (expected["window_end"] - expected["window_start"])
    missing = expected.assign(run=run, last_end=ends)[is_missing]
    by_run = missing.groupby(["source_partition", "run"]).agg(
        since=("window_start", "min"),
        until=("last_end", "max"),
        windows=("windows", "sum"),
        expected_events=("expected_events", "sum"),
    )
    names = by_run.index.get_level_values("source_partition")
    since_ms, until_ms = _all_ms(by_run["since"]), _all_ms(by_run["until"])
    columns = [column.to_numpy() for column in (since_ms, until_ms, by_run["windows"], by_run["expected_events"])]
    # Sort the columns first: there can be a gap for every second window, and the page shows few.
    order = np.lexsort((columns[0], -columns[3], -columns[2]))
    values = (column[order].tolist() for column in columns)
    return [Gap(str(name), *numbers) for name, *numbers in zip(names[order], *values, strict=True)]


def _cells(
    frame: pd.DataFrame, span: Interval, bucket_ms: int, unit_ms: int
) -> dict[Hashable, list[tuple[int, str, str]]]:
    """Return bucket, level, and title of buckets with expected windows or events, by source partition."""
    cut = cut_rows(frame, bucket_edges_ms(span, bucket_ms)).reset_index(drop=True)
    counts = cut[["source_partition", "expected_events", "events", "late", "dropped"]].assign(
        bucket=(cut["window_start"].astype("int64") - span.start_ms) // bucket_ms,
        windows=cut["windows"].where(cut["is_expected"], 0),
        present=cut["windows"].where(cut["is_expected"] & cut["is_present"], 0),
    )
    is_inside = cut["in_range"] & (counts["bucket"] >= 0)
    sums = counts[is_inside].groupby(["source_partition", "bucket"], as_index=False)[_COUNTS].sum()
    is_count_known = bool(frame["is_count_known"].any())
    cells: dict[Hashable, list[tuple[int, str, str]]] = {}
    for row in sums.to_dict("records"):
        if row["windows"] or row["events"]:
            title = _title(
                row, span.start_ms + int(row["bucket"]) * bucket_ms, is_count_known, bucket_ms > unit_ms
            )
            cell = (int(row["bucket"]), _level(row, is_count_known), title)
            cells.setdefault(row["source_partition"], []).append(cell)
    return cells


def _level(row: dict[Hashable, Any], is_count_known: bool) -> str:
    if not row["windows"]:
        return _SURPLUS[0]
    if not row["events"]:
        return _MISSING[0]
    part, whole = ("events", "expected_events") if is_count_known else ("present", "windows")
    share = row[part] / row[whole]
    if share > _SURPLUS_FROM:
        return _SURPLUS[0]
    return next(style for style, _, minimum in _LEVELS if share >= minimum)


def _title(row: dict[Hashable, Any], at_ms: int, is_count_known: bool, is_several: bool) -> str:
    """Return the title of a bucket: `JFK, 2013-02-08 21:00 UTC: 5 of 19 expected events, 1 late`."""
    events = (
        f"{count_text(row['events'])} of {count_of(row['expected_events'], 'expected event')}"
        if is_count_known and row["windows"]
        else count_of(row["events"], "event")
    )
    parts = [events]
    if not row["windows"]:
        parts.append("none expected")
    if is_several and row["present"] < row["windows"]:
        parts.append(f"{row['windows'] - row['present']} of {count_of(row['windows'], 'window')} empty")
    parts += [f"{count_text(row[fate])} {fate}" for fate in ("late", "dropped") if row[fate]]
    return f"{_shorten(row['source_partition'], _NAME_LENGTH)}, {at_text(at_ms)}: {', '.join(parts)}"


def _least_complete(frame: pd.DataFrame) -> list[str]:
    """Return the names of the least complete source partitions, in order of name."""
    expected = frame[frame["is_expected"]]
    weighted = expected.assign(completeness=expected["completeness"] * expected["windows"])
    sums = weighted.groupby("source_partition")[["completeness", "windows"]].sum()
    means = sums["completeness"] / sums["windows"]
    others = sorted(set(frame["source_partition"]) - set(means.index))
    ranked = [str(name) for name in means.sort_values(kind="stable").index] + others
    return sorted(ranked[:_MAX_ROWS])


def _whole_days(span: Interval) -> Interval:
    first_ms = span.start_ms // DAY_MS * DAY_MS
    return Interval(first_ms, -(-span.end_ms // DAY_MS) * DAY_MS)


def _hour_ticks(row_ms: int) -> tuple[tuple[float, str], ...]:
    every_ms = max(row_ms, 6 * HOUR_MS)
    return tuple((at_ms / row_ms + 0.5, f"{at_ms // HOUR_MS:02d}") for at_ms in range(0, DAY_MS, every_ms))


def _shorten(name: str, length: int) -> str:
    return name if len(name) <= length else f"{name[: length - 1]}…"


def _all_ms(instants: pd.Series[pd.Timestamp]) -> pd.Series[int]:
    return instants.dt.as_unit("ms").astype("int64")


def range_words(span: Interval) -> str:
    """Return the first and the last UTC day of a range: `1 Feb 2013 to 28 Feb 2013`."""
    first, last = day_text(span.start_ms), day_text(span.end_ms - 1)
    return first if first == last else f"{first} to {last}"
