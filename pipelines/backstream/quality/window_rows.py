"""Rows of windows: a row stands for one window, or for consecutive windows without events.

The windows of a row start at equal distances from `window_start` to `last_start`; `windows` is their number, and
`window_end` is the end of the first one. They have the same values. So the number of rows grows with the windows
that have events, and not with the length of a range.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from backstream.eventtime.instants import DAY_MS

Longs = npt.NDArray[np.int64]


def starts_ms(rows: pd.DataFrame, column: str = "window_start") -> Longs:
    """Return the starts of the first windows, or those of the column `last_start`, in ms."""
    instants_ms: Longs = rows[column].dt.as_unit("ms").astype("int64").to_numpy()
    return instants_ms


def to_instants(values_ms: Any) -> Any:
    """Return UTC timestamps of instants in ms."""
    return pd.to_datetime(pd.Series(values_ms, dtype="int64"), unit="ms", utc=True).dt.as_unit("ms")


def times_to_ms(times: Any) -> Any:
    """Return a column of timestamps in epoch milliseconds; timestamps without a zone are UTC."""
    return pd.to_datetime(times, utc=True, cache=False).dt.as_unit("ms").astype("int64")


def count_windows(rows: pd.DataFrame) -> int:
    """Return the number of windows of all rows."""
    return int(rows["windows"].sum())


def steps_ms(rows: pd.DataFrame) -> Longs:
    """Return the distance of the windows of each row; 1 for a row of one window."""
    distances_ms, windows = starts_ms(rows, "last_start") - starts_ms(rows), rows["windows"].to_numpy()
    return np.where(windows > 1, distances_ms // np.maximum(windows - 1, 1), 1)


def cut_rows(rows: pd.DataFrame, edges_ms: Longs) -> pd.DataFrame:
    """Return the rows in pieces: the windows of a piece start on the same side of each edge.

    Args:
        rows: rows of windows.
        edges_ms: instants, ascending; a window that starts at an edge is after it.
    """
    first_ms, last_ms, step_ms = starts_ms(rows), starts_ms(rows, "last_start"), steps_ms(rows)
    low, high = (np.searchsorted(edges_ms, instants_ms, side="right") for instants_ms in (first_ms, last_ms))
    pieces = high - low + 1
    if not (pieces > 1).any():
        return rows
    row = np.repeat(np.arange(len(rows)), pieces)
    piece = np.arange(len(row)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    # The bounds of a piece are the edges around it, and those of the row at its ends.
    bounds_ms = np.append(edges_ms, 0)
    begin = -((first_ms[row] - bounds_ms[low[row] + piece - 1]) // step_ms[row])
    end = -((first_ms[row] - bounds_ms[low[row] + piece]) // step_ms[row])
    begin = np.where(piece == 0, 0, begin)
    end = np.where(piece == pieces[row] - 1, rows["windows"].to_numpy()[row], end)
    is_piece = begin < end  # two edges may have no window between them
    row, begin, end = row[is_piece], begin[is_piece], end[is_piece]
    return _select(rows, row, begin * step_ms[row], (end - 1) * step_ms[row], end - begin)


def cut_by_day(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows in pieces of UTC days."""
    if rows.empty:
        return rows
    first_ms, last_ms = int(starts_ms(rows).min()), int(starts_ms(rows, "last_start").max())
    return cut_rows(rows, np.arange(first_ms // DAY_MS + 1, last_ms // DAY_MS + 1) * DAY_MS)


def clip_rows(rows: pd.DataFrame, start_ms: int, end_ms: int) -> pd.DataFrame:
    """Return the windows that start in `[start_ms, end_ms)`."""
    cut = cut_rows(rows, np.array([start_ms, end_ms], dtype=np.int64))
    first_ms = starts_ms(cut)
    return cut[(first_ms >= start_ms) & (first_ms < end_ms)].reset_index(drop=True)


def list_windows(rows: pd.DataFrame, limit: int | None = None) -> pd.DataFrame:
    """Return one row per window, in the order of time and of source partitions.

    Args:
        rows: rows of windows.
        limit: the number of windows to return, the first ones; None: all.
    """
    if count_windows(rows) == len(rows):
        return rows if limit is None else rows.head(limit)
    by = [name for name in ("window_start", "source_partition") if name in rows.columns]
    ordered = rows.sort_values(by, kind="stable").head(len(rows) if limit is None else limit)
    counts = ordered["windows"].clip(upper=limit).to_numpy()
    row = np.repeat(np.arange(len(ordered)), counts)
    number = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    distance_ms = number * steps_ms(ordered)[row]
    listed = _select(ordered, row, distance_ms, distance_ms, np.ones(len(row), dtype=np.int64))
    return listed.sort_values(by, ignore_index=True, kind="stable").head(len(listed) if limit is None else limit)


def first_windows(rows: pd.DataFrame, count: int) -> pd.DataFrame:
    """Return each row with its first windows only, `count` of them at most."""
    windows = rows["windows"].to_numpy().clip(max=count)
    return _select(rows, np.arange(len(rows)), np.zeros_like(windows), (windows - 1) * steps_ms(rows), windows)


def _select(rows: pd.DataFrame, row: Any, first_ms: Any, last_ms: Any, windows: Any) -> pd.DataFrame:
    """Return rows by position, with the distances of their first and last windows from the start of the row."""
    selected = rows.iloc[row].reset_index(drop=True)
    starts = selected["window_start"].dt.as_unit("ms")
    moved = {"window_start": starts + pd.to_timedelta(first_ms, unit="ms").as_unit("ms")}
    moved["last_start"] = starts + pd.to_timedelta(last_ms, unit="ms").as_unit("ms")
    if "window_end" in selected.columns:
        ends = selected["window_end"].dt.as_unit("ms")
        moved["window_end"] = ends + pd.to_timedelta(first_ms, unit="ms").as_unit("ms")
    moved_rows: pd.DataFrame = selected.assign(**moved, windows=windows)
    return moved_rows
