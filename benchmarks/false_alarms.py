"""Count the alarms of bands and of fixed limits over a year: the flights of 2013, and seeded synthetic years.

    .venv/bin/python -m benchmarks.false_alarms

Each week is a run, and so is each day. The past runs are the 13 weeks before it. A synthetic year is random around
a week that grows by half, so each of its alarms is false. The year of flights has storms and holidays, so some of
its alarms are true.

An hour of an airport or of a synthetic partition without an event is missing. Without bands, each missing hour is
an alarm. With bands, only an hour that was never empty in past weeks is one.

The first half of the flights and some seeds allow values of `[quality.bands]`. The rates are stated on the second
half and on other seeds. A value is allowed if each check has alarms in at most 1% of the synthetic runs and in at
most 20% of the runs of flights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from demo.flights import read_source, source_file, with_instants
from rich.console import Console
from rich.table import Table

from backstream.definition.run_sections import Bands, Quality
from backstream.eventtime.instants import DAY_MS
from backstream.quality.audit_frame import volume_score
from backstream.quality.bands import WEEK_MS, bands_frame, find_never_empty

SELECTION_SEEDS, STATED_SEEDS = (0, 1), (2, 3, 4)
_WIDTHS, _OUTSIDE_RATIOS = (3.0, 4.0, 5.0), (0.05, 0.1)
_MAX_FALSE, _MAX_OF_FLIGHTS = 0.01, 0.2
_MIDDLE = pd.Timestamp("2013-07-01", tz="UTC")
_HOUR = pd.Timedelta(hours=1)
_DELAY = pd.Timedelta(hours=1)
_HOURS_OF_WEEK, _WEEKS = 168, 52
_MAX_SCORE = 3.5
_SHARES = (0.9, 0.08, 0.02)
"""The shares of the synthetic partitions: the smallest one has 1 to 10 events in an hour."""
_FIXED_COLUMNS = ("fixed: volume", "fixed: late share", "fixed: missing")
_BANDS = ("events", "late share", "completeness")
_ALARMS = ("never empty", *_FIXED_COLUMNS)
_COLUMNS = ("windows outside", "hours covered", *_BANDS, *_ALARMS)
_SIZES = (("weeks", WEEK_MS), ("days", DAY_MS))


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
    with_drops: pd.DataFrame = hours.rename(columns={"origin": "source_partition"}).assign(dropped=0)
    return with_drops.assign(windows=1, last_start=with_drops["window_start"])


def synthetic(seed: int) -> pd.DataFrame:
    """Return a year of hours of three partitions: Poisson counts around a growing week, some late or missing."""
    chance = np.random.default_rng(seed)
    hour = np.arange(_WEEKS * _HOURS_OF_WEEK)
    shape = 1.2 + np.sin(2 * np.pi * hour / 24) + 0.4 * (hour % _HOURS_OF_WEEK < 5 * 24)
    expected = chance.poisson(200 * shape * (1 + 0.5 * hour / len(hour)))
    events = chance.binomial(expected, 0.99)
    late = chance.binomial(events, 0.02 + 0.06 * (hour % _HOURS_OF_WEEK > 6 * 24))
    of_partitions = chance.multinomial(events, _SHARES).T
    return pd.concat(
        pd.DataFrame(
            {
                "source_partition": f"p{number}",
                "window_start": pd.Timestamp("2018-01-01", tz="UTC").as_unit("ms") + hour * _HOUR,
                "last_start": pd.Timestamp("2018-01-01", tz="UTC").as_unit("ms") + hour * _HOUR,
                "windows": 1,
                "events": counts,
                "late": late if number == 0 else 0,
                "dropped": 0,
                "completeness": events / np.maximum(expected, 1),
            }
        )
        for number, counts in enumerate(of_partitions)
    )


def measure_runs(year: pd.DataFrame, run_ms: int, bands: Bands) -> pd.DataFrame:
    """Return one row per run with enough past weeks.

    `events`, `late share`, and `completeness` are shares of windows outside of their band. `hours covered` is the
    share of the hours with events whose loss would be an alarm. The other columns are alarms.
    """
    year = year.reset_index(drop=True)
    cells = _all_cells(year)
    starts_ms, cells_ms = (each["window_start"].dt.as_unit("ms").astype("int64") for each in (year, cells))
    rows = []
    for since_ms in range(int(starts_ms.min()) + bands.min_weeks * WEEK_MS, int(starts_ms.max()) + 1, run_ms):
        first_ms, end_ms = since_ms - bands.max_weeks * WEEK_MS, since_ms + run_ms
        past = year[(starts_ms >= first_ms) & (starts_ms < since_ms)]
        run = year[(starts_ms >= since_ms) & (starts_ms < end_ms)]
        if run.empty:
            continue
        found = bands_frame(run, past, bands)
        past_cells = cells[(cells_ms >= first_ms) & (cells_ms < since_ms)]
        run_cells = cells[(cells_ms >= since_ms) & (cells_ms < end_ms)]
        never_empty = pd.MultiIndex.from_frame(find_never_empty(past_cells, bands))
        time_of_week = run_cells["window_start"].dt.as_unit("ms").astype("int64") % WEEK_MS
        at = pd.MultiIndex.from_arrays([run_cells["source_partition"], time_of_week])
        is_empty, is_limited = run_cells["events"] == 0, pd.Series(at.isin(never_empty), run_cells.index)
        rates = past["events"].groupby((since_ms - starts_ms[past.index] - 1) // run_ms).sum()
        late = (run["late"].sum() + run["dropped"].sum()) / max(run["events"].sum(), 1)
        rows.append(
            {
                "since": pd.Timestamp(since_ms, unit="ms", tz="UTC"),
                "events": 1 - found["is_usual_volume"].mean(),
                "late share": 1 - found["is_usual_lateness"].mean(),
                "completeness": 1 - found["is_usual_completeness"].mean(),
                "hours covered": is_limited[~is_empty].mean(),
                "never empty": (is_limited & is_empty).any(),
                "fixed: missing": is_empty.any(),
                "fixed: volume": volume_score(float(run["events"].sum()), list(rates)) > _MAX_SCORE,
                "fixed: late share": late > Quality().late_ratio.warn,
            }
        )
    return pd.DataFrame(rows)


def _all_cells(windows: pd.DataFrame) -> pd.DataFrame:
    """Return the events of each partition in each hour; 0 in an hour without a window."""
    starts, partitions = windows["window_start"], sorted(set(windows["source_partition"]))
    hours = pd.date_range(starts.min(), starts.max(), freq=_HOUR).as_unit("ms")
    cells = pd.MultiIndex.from_product([partitions, hours], names=["source_partition", "window_start"])
    counts: pd.DataFrame = windows.set_index(cells.names)[["events"]].reindex(cells, fill_value=0).reset_index()
    return counts.assign(windows=1, last_start=counts["window_start"])


def count_alarms(runs: pd.DataFrame, outside_ratio: float) -> pd.Series:
    """Return the share of runs with an alarm of each check, and the mean shares of windows."""
    is_alarm = {name: (runs[name] > outside_ratio + 1e-9).mean() for name in _BANDS}
    fixed = {name: runs[name].mean() for name in _ALARMS}
    shares = {"windows outside": runs["events"].mean(), "hours covered": runs["hours covered"].mean()}
    return pd.Series(shares | is_alarm | fixed)


def select_defaults() -> Iterator[tuple[float, float, float, float, bool]]:
    """Yield width, outside ratio, the highest rates of flights and of synthetic years, and if they are allowed.

    The rates are those of the first half-year and of the seeds for selection.
    """
    first_half = flights()
    first_half = first_half[first_half["window_start"] < _MIDDLE]
    for width in _WIDTHS:
        real = [measure_runs(first_half, run_ms, Bands(width=width)) for _, run_ms in _SIZES]
        made = [_measure_years(SELECTION_SEEDS, run_ms, Bands(width=width)) for _, run_ms in _SIZES]
        for outside_ratio in _OUTSIDE_RATIOS:
            of_real, of_made = (
                max(count_alarms(runs, outside_ratio)[[*_BANDS, "never empty"]].max() for runs in each)
                for each in (real, made)
            )
            yield width, outside_ratio, of_real, of_made, of_made <= _MAX_FALSE and of_real <= _MAX_OF_FLIGHTS


def _measure_years(seeds: Sequence[int], run_ms: int, bands: Bands) -> pd.DataFrame:
    return pd.concat([measure_runs(synthetic(seed), run_ms, bands) for seed in seeds])


def rates(bands: Bands) -> Iterator[tuple[str, int, pd.Series]]:
    """Yield each year and size of runs with the number of runs and the share of each column, on other data."""
    year = flights()
    for size, run_ms in _SIZES:
        real = measure_runs(year, run_ms, bands)
        real = real[real["since"] >= _MIDDLE]
        yield f"flights of July to December 2013, {size}", len(real), count_alarms(real, bands.outside_ratio)
        made = _measure_years(STATED_SEEDS, run_ms, bands)
        yield f"{len(STATED_SEEDS)} synthetic years, {size}", len(made), count_alarms(made, bands.outside_ratio)


def main() -> None:
    """Print the selection of the defaults, and the rates of alarms on other data, as tables."""
    console = Console(width=140)
    selection = Table("width", "outside_ratio", "flights of January to June", "synthetic years", "allowed")
    for width, outside_ratio, of_real, of_made, is_allowed in select_defaults():
        selection.add_row(str(width), str(outside_ratio), f"{of_real:.1%}", f"{of_made:.1%}", str(is_allowed))
    console.print(selection)
    table = Table("runs", "number", *_COLUMNS)
    for name, count, shares in rates(Bands()):
        table.add_row(name, f"{count:,}", *(f"{shares[column]:.1%}" for column in _COLUMNS))
    console.print(table)


if __name__ == "__main__":
    main()
