"""Compare each window with the windows at the same time of the week in past runs.

A band has the median of the past values as its center. Its half width is a multiple of their MAD, the median of
the distances from the median. So neither the season of a week nor a few unusual weeks in the past move an alarm.

A band allows a share of unusual windows, which can hide an empty one. So the soft limit of missing windows still
applies to the windows of a source partition that were never empty in past weeks, if chance is no explanation.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from backstream.definition.run_sections import Bands
from backstream.eventtime.instants import DAY_MS
from backstream.quality.window_rows import Longs, cut_rows, list_windows, starts_ms, steps_ms, to_instants

WEEK_MS = 7 * DAY_MS
WINDOWS_OF_ROW = ["window_start", "last_start", "windows"]
READ_OF_WINDOWS = ["source_partition", *WINDOWS_OF_ROW, "events", "late", "dropped", "completeness"]
"""The columns of an audit frame that a band needs."""
VALUES = ["events", "late_ratio", "completeness"]
BAND_COLUMNS = [
    *WINDOWS_OF_ROW,
    *VALUES,
    "weeks",
    "has_band",
    "events_median",
    "events_low",
    "events_high",
    "is_usual_volume",
    "is_usual_lateness",
    "is_usual_completeness",
]
"""The columns of the frame with one row per window start, over all source partitions.

`windows`: the number of windows of the row, from `window_start` to `last_start`; several have no event.
`weeks`: past weeks with a window at the same time of the week. `has_band`: at least `bands.min_weeks`. Without a
band, its median and limits are 0, and each value counts as usual. `events_low` and `events_high` are the limits
of the band of events. `is_usual_volume`: neither more nor fewer events than in the band. `is_usual_lateness`: no
greater late share. `is_usual_completeness`: no smaller completeness.
"""
_SUMS = [*WINDOWS_OF_ROW, "events", "late", "dropped", "completeness", "rows"]
_MAD_OF_NORMAL = 0.6745  # the MAD of a normal distribution in standard deviations
_MIN_RATIO_DEVIATION = 0.01
"""The least standard deviation of a share, because the MAD of equal shares is 0."""


def sum_by_window_start(windows: pd.DataFrame) -> pd.DataFrame:
    """Return the windows over all source partitions; those without events stay rows of several windows.

    Args:
        windows: an audit frame, or its columns `READ_OF_WINDOWS`.

    Returns:
        `WINDOWS_OF_ROW` and `VALUES`, in the order of time; the completeness is the mean of the source partitions.
    """
    is_gap = windows["windows"] > 1
    single = windows[~is_gap].assign(rows=1)
    gaps, step_ms = windows[is_gap], steps_ms(windows)[is_gap]
    grids = gaps.groupby([step_ms, starts_ms(gaps) % step_ms])
    overlaid = [_overlay(of_grid, starts_ms(single)) for _, of_grid in grids]
    rows = pd.concat([single[_SUMS], *overlaid], ignore_index=True)
    counts = dict.fromkeys(_SUMS[3:], "sum") | {"last_start": "first", "windows": "first"}
    sums = rows.groupby("window_start", as_index=False).agg(counts)
    sums["completeness"] /= sums["rows"]
    sums["late_ratio"] = (sums["late"] + sums["dropped"]) / sums["events"].clip(lower=1)
    return sums[[*WINDOWS_OF_ROW, *VALUES]]


def _overlay(gaps: pd.DataFrame, edges_ms: Longs) -> pd.DataFrame:
    """Return the windows of the gaps of all source partitions, cut at each end of a gap and around some starts.

    All windows are on one grid.

    Returns:
        `_SUMS`; `rows` is the number of gaps that contain the windows of a row.
    """
    first_ms, end_ms, step_ms = starts_ms(gaps), starts_ms(gaps, "last_start") + 1, int(steps_ms(gaps)[0])
    cuts_ms = np.unique(np.concatenate([first_ms, end_ms, edges_ms, edges_ms + 1]))
    changes = np.zeros(len(cuts_ms), dtype=np.int64)
    np.add.at(changes, np.searchsorted(cuts_ms, first_ms), 1)
    np.add.at(changes, np.searchsorted(cuts_ms, end_ms), -1)
    numbers = -((first_ms[0] - cuts_ms) // step_ms)  # of the first window at or after each cut
    counts, covers = np.diff(numbers), np.cumsum(changes)[:-1]
    is_row = (counts > 0) & (covers > 0)
    start_ms = first_ms[0] + numbers[:-1][is_row] * step_ms
    rows = pd.DataFrame(dict.fromkeys(_SUMS, 0), index=range(len(start_ms)))
    return rows.assign(
        window_start=to_instants(start_ms),
        last_start=to_instants(start_ms + (counts[is_row] - 1) * step_ms),
        windows=counts[is_row],
        rows=covers[is_row],
    )


def bands_frame(windows: pd.DataFrame, past: pd.DataFrame, bands: Bands) -> pd.DataFrame:
    """Return the band and the result of each window start.

    Args:
        windows: the audit frame of the run.
        past: windows of past runs, with `READ_OF_WINDOWS`; each window of a source partition once.
        bands: the width, and the least number of past weeks.

    Returns:
        `BAND_COLUMNS`, without nulls, in the order of time. Consecutive windows without events and with the same
        band are one row.
    """
    usual, found = _usual_values(past), sum_by_window_start(windows)
    if len(usual) > 1:
        found = cut_rows(found, _each_week(usual.index.to_numpy(), found)).reset_index(drop=True)
    at = usual.index.to_numpy().searchsorted(_time_of_week(found["window_start"]), side="right") - 1
    past_values = usual.iloc[at].set_index(found.index)
    found["weeks"] = past_values["weeks"]
    has_band = found["has_band"] = found["weeks"] >= bands.min_weeks
    center, deviation = (past_values[[f"{name}_{part}" for name in VALUES]] for part in ("median", "deviation"))
    center, deviation = center.set_axis(VALUES, axis=1), deviation.set_axis(VALUES, axis=1)
    half_width = bands.width * _at_least_random(deviation, center)
    distance = found[VALUES] - center
    found["events_median"] = center["events"].where(has_band, 0.0)
    found["events_low"] = (center["events"] - half_width["events"]).clip(lower=0).where(has_band, 0.0)
    found["events_high"] = (center["events"] + half_width["events"]).where(has_band, 0.0)
    found["is_usual_volume"] = ~has_band | (distance["events"].abs() <= half_width["events"])
    found["is_usual_lateness"] = ~has_band | (distance["late_ratio"] <= half_width["late_ratio"])
    found["is_usual_completeness"] = ~has_band | (distance["completeness"] >= -half_width["completeness"])
    return found[BAND_COLUMNS]


def _usual_values(past: pd.DataFrame) -> pd.DataFrame:
    """Return what past windows were like by their time of the week, in ms: each row holds up to the next one.

    Returns:
        `weeks`, and the median and the deviation of `VALUES`. The first row is that of time 0.
    """
    rows = sum_by_window_start(past)
    if WEEK_MS % int(steps_ms(rows).max(initial=1)):
        rows = list_windows(rows)  # the windows of two weeks start at other times
    rows = cut_rows(rows, _each_week(np.array([0]), rows)).reset_index(drop=True)
    in_week = rows.assign(window_start=to_instants(_time_of_week(rows["window_start"])))
    in_week["last_start"] = in_week["window_start"] + (rows["last_start"] - rows["window_start"])
    step_ms = int(steps_ms(rows).max(initial=1))
    first_ms, end_ms = starts_ms(in_week), starts_ms(in_week, "last_start") + step_ms
    in_week = cut_rows(in_week, np.unique(np.concatenate([first_ms, end_ms])))
    by_time = in_week.assign(time=starts_ms(in_week), end=starts_ms(in_week, "last_start") + step_ms).groupby(
        "time"
    )
    median = by_time[VALUES].median()
    distances = (in_week[VALUES] - median.reindex(starts_ms(in_week)).set_index(in_week.index)).abs()
    deviation = distances.groupby(starts_ms(in_week)).median() / _MAD_OF_NORMAL
    usual = median.add_suffix("_median").join(deviation.add_suffix("_deviation")).assign(weeks=by_time.size())
    ends = by_time["end"].max()
    # No past window starts before the first row, or between the end of a row and the next one.
    usual = usual.reindex(sorted({0, *usual.index, *ends[ends < WEEK_MS]}))
    usual["weeks"] = usual["weeks"].fillna(0).astype("int64")
    is_equal = (usual == usual.shift()) | (usual.isna() & usual.shift().isna())
    return usual[~is_equal.all(axis=1) | (usual.index == 0)]


def _each_week(times_ms: Longs, rows: pd.DataFrame) -> Longs:
    """Return some times of the week in each week of the rows, ascending."""
    if rows.empty:
        return np.array([], dtype=np.int64)
    first, last = int(starts_ms(rows).min()) // WEEK_MS, int(starts_ms(rows, "last_start").max()) // WEEK_MS
    return (np.arange(first, last + 1)[:, np.newaxis] * WEEK_MS + times_ms).ravel()


def add_bands(windows: pd.DataFrame, bands: pd.DataFrame, never_empty: pd.DataFrame) -> pd.DataFrame:
    """Return an audit frame with the bands of its window starts, which replace the soft limits.

    Args:
        windows: the audit frame of a run.
        bands: the bands of the run, with `BAND_COLUMNS`.
        never_empty: the result of `find_never_empty`; these windows keep the soft limit of missing windows.
    """
    limits = bands[["has_band", "events_low", "events_high"]]
    is_change = (limits != limits.shift()).any(axis=1)
    kept_ms = never_empty["time_of_week"].astype("int64").unique()
    edges_ms = [starts_ms(bands)[is_change], _each_week(kept_ms, windows), _each_week(kept_ms + 1, windows)]
    cut = cut_rows(windows, np.unique(np.concatenate(edges_ms)))
    cut = cut.sort_values(["window_start", "source_partition"], ignore_index=True, kind="stable")
    found = bands.iloc[starts_ms(bands).searchsorted(starts_ms(cut), side="right") - 1]
    has_band = found["has_band"].to_numpy(dtype=bool)
    low, high = (found[name].to_numpy() for name in ("events_low", "events_high"))
    at = pd.MultiIndex.from_arrays([cut["source_partition"], _time_of_week(cut["window_start"])])
    is_limited = cut["is_expected"] & (~has_band | at.isin(pd.MultiIndex.from_frame(never_empty)))
    return cut.assign(has_band=has_band, is_limited=is_limited, band_low=low, band_high=high)


def find_never_empty(past: pd.DataFrame, bands: Bands) -> pd.DataFrame:
    """Return the windows that had events in each past week, and too many for an empty week by chance.

    Each source partition has its own past. Chance is a Poisson distribution around the median of the past weeks.
    An empty window must be less likely than a value beyond one edge of a band: 16 events for the default width.

    Args:
        past: windows of past runs, with `READ_OF_WINDOWS`.
        bands: the width, and the least number of past weeks.

    Returns:
        `source_partition` and `time_of_week` (in ms).
    """
    single = past[past["windows"] == 1]
    place = [single["source_partition"], _time_of_week(single["window_start"]).rename("time_of_week")]
    history = single["events"].groupby(place).agg(["size", "min", "median"])
    least_events = -math.log(math.erfc(bands.width / math.sqrt(2)) / 2)
    is_found = (history["size"] >= bands.min_weeks) & (history["min"] > 0) & (history["median"] >= least_events)
    found = history[is_found].index.to_frame(index=False)
    gaps = past[past["windows"] > 1]
    times_ms = found["time_of_week"].astype("int64").unique()
    edges_ms = [_each_week(times_ms + after_ms, gaps) for after_ms in (0, 1)]
    empty = cut_rows(gaps, np.unique(np.concatenate(edges_ms)))
    at = pd.MultiIndex.from_arrays([empty["source_partition"], _time_of_week(empty["window_start"])])
    return found[~pd.MultiIndex.from_frame(found).isin(at)]


def _at_least_random(deviation: pd.DataFrame, center: pd.DataFrame) -> pd.DataFrame:
    """Return deviations that are at least those of random counts: Poisson for events, else binomial.

    The MAD of a few weeks can be 0 by chance.
    """
    events = center["events"].clip(lower=1)
    least = {"events": np.sqrt(events)}
    for name in ("late_ratio", "completeness"):
        share = center[name].clip(0, 1)
        random = np.sqrt(share * (1 - share) / events + 1 / events**2)
        least[name] = np.maximum(random, _MIN_RATIO_DEVIATION)
    return pd.DataFrame({name: np.maximum(deviation[name], least[name]) for name in VALUES})


def _time_of_week(window_start: pd.Series) -> pd.Series:
    """Return the time since the start of the week in ms; for a row of several windows, that of the first one."""
    time_of_week: pd.Series = window_start.dt.as_unit("ms").astype("int64") % WEEK_MS
    return time_of_week


def no_past() -> pd.DataFrame:
    """Return the windows of no past run."""
    instants = {name: to_instants([]) for name in ("window_start", "last_start")}
    counts = {name: pd.Series([], dtype="int64") for name in ("windows", "events", "late", "dropped")}
    columns = {"source_partition": pd.Series([], dtype="str"), **instants, **counts}
    return pd.DataFrame(columns | {"completeness": pd.Series([], dtype="float64")})[READ_OF_WINDOWS]
