"""Count the alarms of bands and of fixed limits over a year: the flights of 2013, and seeded synthetic years.

    .venv/bin/python -m benchmarks.false_alarms

Each week is a run, and so is each day. The past runs are the 13 weeks before it. A synthetic year is random around
a week that grows by half, so each of its alarms is false. The year of flights has storms and holidays, so some of
its alarms are true.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from demo.flights import read_source, source_file, with_instants
from rich.console import Console
from rich.table import Table

from backstream.definition.run_sections import Bands, Quality
from backstream.eventtime.instants import DAY_MS
from backstream.quality.audit_frame import volume_score
from backstream.quality.bands import WEEK_MS, bands_frame, sum_by_window_start

YEARS = 5
_HOUR = pd.Timedelta(hours=1)
_DELAY = pd.Timedelta(hours=1)
_HOURS_OF_WEEK, _WEEKS = 168, 52
_MAX_SCORE = 3.5
_FIXED_COLUMNS = ("fixed: volume", "fixed: late share")
_COLUMNS = ("windows outside", "events", "late share", "completeness", *_FIXED_COLUMNS)


def flights() -> pd.DataFrame:
    """Return the hours of 2013 per airport with the columns of an audit frame that the bands read.

    A flight is late if it departs more than an hour after the end of the hour of its schedule, which is close to
    a watermark with a delay of an hour. A canceled flight is expected and missing.
    """
    table, _ = with_instants(read_source(source_file()))
    rows = table.select(["origin", "scheduled_departure", "departed_at"]).to_pandas()
    rows["window_start"] = rows["scheduled_departure"].dt.as_unit("ms").dt.floor("h")
    rows["present"] = rows["departed_at"].notna()
    rows["late"] = rows["departed_at"] > rows["window_start"] + _HOUR + _DELAY
    hours = rows.groupby(["window_start", "origin"], as_index=False).agg(
        events=("present", "sum"), expected=("present", "size"), late=("late", "sum")
    )
    hours["completeness"] = hours["events"] / hours["expected"]
    with_drops: pd.DataFrame = hours.assign(dropped=0)
    return with_drops


def synthetic(seed: int) -> pd.DataFrame:
    """Return a year of hours: Poisson counts around a growing week; late and missing events are binomial."""
    chance = np.random.default_rng(seed)
    hour = np.arange(_WEEKS * _HOURS_OF_WEEK)
    shape = 1.2 + np.sin(2 * np.pi * hour / 24) + 0.4 * (hour % _HOURS_OF_WEEK < 5 * 24)
    expected = chance.poisson(200 * shape * (1 + 0.5 * hour / len(hour)))
    events = chance.binomial(expected, 0.99)
    late = chance.binomial(events, 0.02 + 0.06 * (hour % _HOURS_OF_WEEK > 6 * 24))
    return pd.DataFrame(
        {
            "window_start": pd.Timestamp("2018-01-01", tz="UTC").as_unit("ms") + hour * _HOUR,
            "events": events,
            "late": late,
            "dropped": 0,
            "completeness": events / np.maximum(expected, 1),
        }
    )


def alarms(year: pd.DataFrame, run_ms: int, bands: Bands) -> pd.DataFrame:
    """Return one row per run with enough past weeks, with a boolean for each check that raises an alarm.

    `windows outside` is the share of windows outside the band of events, and no alarm.
    """
    windows = sum_by_window_start(year)
    starts_ms = year["window_start"].dt.as_unit("ms").astype("int64")
    sums_ms = windows["window_start"].dt.as_unit("ms").astype("int64")
    rows = []
    for since_ms in range(int(starts_ms.min()) + bands.min_weeks * WEEK_MS, int(starts_ms.max()) + 1, run_ms):
        past = windows[(sums_ms >= since_ms - bands.max_weeks * WEEK_MS) & (sums_ms < since_ms)]
        run = year[(starts_ms >= since_ms) & (starts_ms < since_ms + run_ms)]
        if run.empty:
            continue
        found = bands_frame(run, past, bands)
        rates = past["events"].groupby((since_ms - sums_ms[past.index] - 1) // run_ms).sum()
        late = (run["late"].sum() + run["dropped"].sum()) / max(run["events"].sum(), 1)
        usual = 1 - bands.outside_ratio
        rows.append(
            {
                "windows outside": 1 - found["is_usual_volume"].mean(),
                "events": found["is_usual_volume"].mean() < usual,
                "late share": found["is_usual_lateness"].mean() < usual,
                "completeness": found["is_usual_completeness"].mean() < usual,
                "fixed: volume": volume_score(float(run["events"].sum()), list(rates)) > _MAX_SCORE,
                "fixed: late share": late > Quality().late_ratio.warn,
            }
        )
    return pd.DataFrame(rows)


def rates(bands: Bands) -> Iterator[tuple[str, int, pd.Series]]:
    """Yield each year and size of runs with the number of runs and the share of each column."""
    for size, run_ms in (("weeks", WEEK_MS), ("days", DAY_MS)):
        real = alarms(flights(), run_ms, bands)
        yield f"flights of 2013, {size}", len(real), real.mean()
        made = pd.concat([alarms(synthetic(seed), run_ms, bands) for seed in range(YEARS)])
        yield f"{YEARS} synthetic years, {size}", len(made), made.mean()


def main() -> None:
    """Print the rates of alarms as a table."""
    table = Table("runs", "number", *_COLUMNS)
    for name, count, shares in rates(Bands()):
        table.add_row(name, f"{count:,}", *(f"{shares[column]:.1%}" for column in _COLUMNS))
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
