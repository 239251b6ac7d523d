from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backstream.eventtime.intervals import Interval
from backstream.native.record_scans import scan_query
from backstream.native.records import group_files_by_schema
from backstream.native.sql import floor_to_step
from backstream.native.task import ReadSpec

NEW_YEAR = datetime(1970, 1, 1, tzinfo=UTC)
TYPES = {"at": "timestamp", "seen": "timestamp", "origin": "string", "seq": "bigint"}
READING = ReadSpec("at", "seen", "origin", "seq", TYPES, Interval(-(10**15), 10**15))


def write_records(path: Path, *, null_in: str | None = None, has_statistics: bool = True) -> str:
    """Write three records, the second of which may have a null."""
    times = [NEW_YEAR + timedelta(microseconds=us) for us in (-1_500, -1, 1_500)]
    columns = {
        "at": pa.array(times, pa.timestamp("us", "UTC")),
        "seen": pa.array(times, pa.timestamp("us", "UTC")),
        "origin": pa.array(["a", "b", "a"]),
        "seq": pa.array([0, 1, 2], pa.int64()),
    }
    if null_in:
        first, _, last = columns[null_in].to_pylist()
        columns[null_in] = pa.array([first, None, last], columns[null_in].type)
    pq.write_table(pa.table(columns), path, write_statistics=has_statistics, row_group_size=2)
    return str(path)


@pytest.mark.parametrize("null_in", ["at", "seen", "origin", "seq"])
@pytest.mark.parametrize("has_statistics", [True, False])
def test_a_record_without_a_required_value_is_not_read(tmp_path: Path, null_in: str, has_statistics: bool) -> None:
    whole = write_records(tmp_path / "whole.parquet")
    partial = write_records(tmp_path / "partial.parquet", null_in=null_in, has_statistics=has_statistics)

    for files, expected, inside in (([whole], 3, 1), ([partial], 2, 0), ([whole, partial], 5, 1)):
        groups = group_files_by_schema(files, READING)
        assert len(duckdb.execute(scan_query(groups, READING)).fetchall()) == expected
        assert len(duckdb.execute(scan_query(groups, READING, Interval(-1, 1))).fetchall()) == inside


def test_only_columns_with_nulls_or_without_statistics_are_tested_for_nulls(tmp_path: Path) -> None:
    whole = write_records(tmp_path / "whole.parquet")
    partial = write_records(tmp_path / "partial.parquet", null_in="seq")
    unknown = write_records(tmp_path / "unknown.parquet", has_statistics=False)

    def tested(*files: str) -> set[str]:
        query = scan_query(group_files_by_schema(files, READING), READING)
        return {name for name in TYPES if f'"{name}" IS NOT NULL' in query}

    assert tested(whole) == set()
    assert tested(whole, partial) == {"seq"}
    assert tested(whole, unknown) == {"seen", "origin", "seq"}


def test_times_are_rounded_down_on_both_sides_of_1970(tmp_path: Path) -> None:
    groups = group_files_by_schema([write_records(tmp_path / "records.parquet")], READING)

    rows = duckdb.execute(scan_query(groups, READING)).fetchall()

    assert sorted((event_ms, arrival_ms) for event_ms, arrival_ms, *_ in rows) == [(-2, -2), (-1, -1), (1, 1)]


@pytest.mark.parametrize("size_ms", [1, 7, 60_000, 86_400_000, 10**12])
@pytest.mark.parametrize("offset_ms", [0, 1, -13, 10**9])
def test_the_floor_is_that_of_python(size_ms: int, offset_ms: int) -> None:
    times_ms = [0, 1, -1, 59_999, -60_000, 1_700_000_000_123, -62_135_596_800_000, 253_402_300_799_999]
    times_ms += [-(2**63) // 1000, 2**63 // 1000]

    times = duckdb.from_arrow(pa.table({"time_ms": times_ms}))
    rows = times.project(f"time_ms, {floor_to_step('time_ms', offset_ms, size_ms)}").fetchall()

    assert rows == [(at, at - (at - offset_ms) % size_ms) for at in times_ms]
