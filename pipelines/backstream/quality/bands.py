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

WEEK_MS = 7 * DAY_MS
READ_OF_WINDOWS = ["source_partition", "window_start", "events", "late", "dropped", "completeness"]
"""The columns of an audit frame that a band needs."""
VALUES = ["events", "late_ratio", "completeness"]
BAND_COLUMNS = [
    "window_start",
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

`weeks`: past weeks with a window at the same time of the week. `has_band`: at least `bands.min_weeks`. Without a
band, its median and limits are 0, and each value counts as usual. `events_low` and `events_high` are the limits
of the band of events. `is_usual_volume`: neither more nor fewer events than in the band. `is_usual_lateness`: no
greater late share. `is_usual_completeness`: no smaller completeness.
"""
_MAD_OF_NORMAL = 0.6745  # the MAD of a normal distribution in standard deviations
_MIN_RATIO_DEVIATION = 0.01
"""The least standard deviation of a share, because the MAD of equal shares is 0."""


def _sum_by_window_start(windows: pd.DataFrame) -> pd.DataFrame:
    """Return one row per window start, over all source partitions.

    Args:
        windows: an audit frame, or its columns `READ_OF_WINDOWS`.

    Returns:
        `window_start` and `VALUES`; the completeness is the mean of the source partitions.
    """
    rows = windows.groupby("window_start", as_index=False).agg(
        {"events": "sum", "late": "sum", "dropped": "sum", "completeness": "mean"}
    )
    rows["late_ratio"] = (rows["late"] + rows["dropped"]) / rows["events"].clip(lower=1)
    return rows[["window_start", *VALUES]]


def bands_frame(windows: pd.DataFrame, past: pd.DataFrame, bands: Bands) -> pd.DataFrame:
    """Return the band and the result of each window start.

    Args:
        windows: the audit frame of the run.
        past: windows of past runs, with `READ_OF_WINDOWS`; each window of a source partition once.
        bands: the width, and the least number of past weeks.

    Returns:
        `BAND_COLUMNS`, without nulls, in the order of time.
    """
    found, past = _sum_by_window_start(windows), _sum_by_window_start(past)
    history = past.assign(time_of_week=_time_of_week(past["window_start"])).groupby("time_of_week")[VALUES]
    median = history.median()
    deviation = _deviations(past, median)
    at = _time_of_week(found["window_start"])
    found["weeks"] = at.map(history.size()).fillna(0).astype("int64")
    has_band = found["has_band"] = found["weeks"] >= bands.min_weeks
    center = median.reindex(at).set_index(found.index)
    half_width = bands.width * _at_least_random(deviation.reindex(at).set_index(found.index), center)
    distance = found[VALUES] - center
    found["events_median"] = center["events"].where(has_band, 0.0)
    found["events_low"] = (center["events"] - half_width["events"]).clip(lower=0).where(has_band, 0.0)
    found["events_high"] = (center["events"] + half_width["events"]).where(has_band, 0.0)
    found["is_usual_volume"] = ~has_band | (distance["events"].abs() <= half_width["events"])
    found["is_usual_lateness"] = ~has_band | (distance["late_ratio"] <= half_width["late_ratio"])
    found["is_usual_completeness"] = ~has_band | (distance["completeness"] >= -half_width["completeness"])
    return found[BAND_COLUMNS]


def add_bands(windows: pd.DataFrame, bands: pd.DataFrame, never_empty: pd.Series) -> pd.DataFrame:
    """Return an audit frame with the bands of its window starts, which replace the soft limits.

    Args:
        windows: the audit frame of a run.
        bands: the bands of the run, with `BAND_COLUMNS`.
        never_empty: the result of `find_never_empty`; these windows keep the soft limit of missing windows.
    """
    found = bands.set_index("window_start").reindex(windows["window_start"])
    has_band = found["has_band"].to_numpy(dtype=bool)
    low, high = (found[name].to_numpy() for name in ("events_low", "events_high"))
    is_limited = windows["is_expected"] & (~has_band | never_empty)
    return windows.assign(has_band=has_band, is_limited=is_limited, band_low=low, band_high=high)


def find_never_empty(windows: pd.DataFrame, past: pd.DataFrame, bands: Bands) -> pd.Series:
    """Return for each window whether it had events in each past week, and too many for an empty week by chance.

    Each source partition has its own past. Chance is a Poisson distribution around the median of the past weeks.
    An empty window must be less likely than a value beyond one edge of a band: 16 events for the default width.

    Args:
        windows: the audit frame of the run.
        past: windows of past runs, with `READ_OF_WINDOWS`.
        bands: the width, and the least number of past weeks.
    """
    place = [past["source_partition"], _time_of_week(past["window_start"]).rename("time_of_week")]
    history = past["events"].groupby(place).agg(["size", "min", "median"])
    at = pd.MultiIndex.from_arrays([windows["source_partition"], _time_of_week(windows["window_start"])])
    found = history.reindex(at).set_index(windows.index)
    least_events = -math.log(math.erfc(bands.width / math.sqrt(2)) / 2)
    return (found["size"] >= bands.min_weeks) & (found["min"] > 0) & (found["median"] >= least_events)


def _deviations(past: pd.DataFrame, median: pd.DataFrame) -> pd.DataFrame:
    """Return the standard deviation of each time of the week, as its MAD shows it."""
    at = _time_of_week(past["window_start"])
    distances = (past[VALUES] - median.reindex(at).set_index(past.index)).abs()
    return distances.groupby(at).median() / _MAD_OF_NORMAL


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
    """Return the time since the start of the week in ms."""
    time_of_week: pd.Series = window_start.dt.as_unit("ms").astype("int64") % WEEK_MS
    return time_of_week


def no_past() -> pd.DataFrame:
    """Return the windows of no past run."""
    starts = pd.to_datetime(pd.Series([], dtype="int64"), unit="ms", utc=True).dt.as_unit("ms")
    counts = {name: pd.Series([], dtype="float64") for name in READ_OF_WINDOWS[2:]}
    return pd.DataFrame({"source_partition": pd.Series([], dtype="str"), "window_start": starts} | counts)
