"""Test how records are read in local time: by day, with duplicates, and which files a task of the rest opens."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from backstream.eventtime.duplicates import Identity
from backstream.eventtime.instants import DAY_MS, HOUR_MS, instant_ms, utc_datetime
from backstream.eventtime.intervals import Interval
from backstream.eventtime.time_zones import load_time_zone
from backstream.native.footers import list_files_with_rest
from backstream.native.record_scans import scan_query
from backstream.native.records import RecordsQuery, group_files_by_schema
from backstream.native.task import ReadSpec

TYPES = {"at": "timestamp", "id": "string"}
VALID = Interval(0, instant_ms("2100-01-01", "end"))
READING = ReadSpec("at", "at", None, None, TYPES, VALID, load_time_zone("Europe/Berlin"))
DAY_MS_OF_AUTUMN = instant_ms("2024-10-27", "day")
DAY = Interval(DAY_MS_OF_AUTUMN, DAY_MS_OF_AUTUMN + DAY_MS)
FIRST_HALF_PAST_TWO = instant_ms("2024-10-27T00:30Z", "first")


def write_records(path: Path, *records: tuple[int, str]) -> str:
    times = [utc_datetime(at_ms) for at_ms, _ in records]
    columns = {"at": pa.array(times, pa.timestamp("us", "UTC")), "id": pa.array([each for _, each in records])}
    pq.write_table(pa.table(columns), path)
    return str(path)


def test_a_local_day_has_the_records_of_its_25_hours(tmp_path: Path) -> None:
    start_ms = DAY.start_ms - 2 * HOUR_MS
    hours = [start_ms + number * HOUR_MS for number in range(-1, 26)]
    groups = group_files_by_schema([write_records(tmp_path / "a.parquet", *((at, "") for at in hours))], READING)

    with duckdb.connect() as database:
        rows = database.sql(scan_query(groups, READING, DAY)).to_arrow_table().to_pylist()

    assert [row["instant_ms"] for row in rows] == hours[1:-1]
    assert [(row["event_ms"] - DAY.start_ms) // HOUR_MS for row in rows] == [0, 1, 2, 2, *range(3, 24)]


def test_records_of_two_equal_hours_of_a_clock_are_no_duplicates(tmp_path: Path) -> None:
    second = FIRST_HALF_PAST_TWO + HOUR_MS
    records = [(FIRST_HALF_PAST_TWO, "a"), (second, "a"), (second, "a")]
    groups = group_files_by_schema([write_records(tmp_path / "a.parquet", *records)], READING)
    query = RecordsQuery(READING, groups, [], Identity(("id",)))
    with duckdb.connect() as database:
        query.mark_duplicates(database, DAY)
        marks = database.sql(query.select(DAY)).project("event_ms, is_duplicate").fetchall()

    local_ms = DAY.start_ms + timedelta(hours=2, minutes=30) // timedelta(milliseconds=1)
    assert sorted(marks) == [(local_ms, False), (local_ms, False), (local_ms, True)]


def test_only_a_file_within_a_local_day_has_no_rest(tmp_path: Path) -> None:
    inside = write_records(tmp_path / "inside.parquet", (DAY.start_ms, "a"), (DAY.end_ms - 3 * HOUR_MS, "b"))
    before = write_records(tmp_path / "before.parquet", (DAY.start_ms - 2 * HOUR_MS - 1, "a"), (DAY.start_ms, "b"))
    after = write_records(tmp_path / "after.parquet", (DAY.start_ms, "a"), (DAY.end_ms - HOUR_MS, "b"))

    assert list_files_with_rest([inside, before, after], READING, DAY) == [before, after]
