"""The names of folders promise event times, in the forms that writers use."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backstream.definition.prepared_columns import EVENT_TIME, FILE
from backstream.definition.source_section import PartitionFilter, Source
from backstream.errors import PlanError
from backstream.eventtime.instants import instant_ms
from backstream.eventtime.intervals import Interval
from backstream.source.folder_periods import FolderPeriods


def promise(folders: str, *columns: str, slack: str = "0s", zone: str | None = None) -> Interval:
    given = PartitionFilter.model_validate({"columns": columns, "slack": slack})
    source = Source(path="/a", event_time="at", partition_filter=given, time_zone=zone)
    return FolderPeriods(source, "orders.toml").promise(f"/a/{folders}/events.json")


def interval(start: str, end: str) -> Interval:
    return Interval(instant_ms(start, "start"), instant_ms(end, "end"))


@pytest.mark.parametrize(
    ("folders", "columns", "start", "end"),
    [
        ("dt=2024-03-01", ["dt"], "2024-03-01", "2024-03-02"),
        ("dt=20240301", ["dt"], "2024-03-01", "2024-03-02"),
        ("dt=2024-03-01/hour=3", ["dt", "hour"], "2024-03-01T03:00Z", "2024-03-01T04:00Z"),
        ("dt=2024-03-01/hour=03", ["dt"], "2024-03-01", "2024-03-02"),
        ("at=2024-03-01-23", ["at"], "2024-03-01T23:00Z", "2024-03-02"),
        ("at=2024-03-01T23%3A59", ["at"], "2024-03-01T23:59Z", "2024-03-02"),
        ("year=2024/month=2/day=9", ["year", "month", "day"], "2024-02-09", "2024-02-10"),
        ("year=2024/month=12", ["year", "month"], "2024-12-01", "2025-01-01"),
        ("year=2024/month=02", ["year", "month"], "2024-02-01", "2024-03-01"),
        ("year=2024", ["year"], "2024-01-01", "2025-01-01"),
        ("year=2023", ["year"], "2023-01-01", "2024-01-01"),
        ("topic=a/dt=2024-03-01/user=x", ["dt"], "2024-03-01", "2024-03-02"),
    ],
)
def test_a_folder_promises_its_period(folders: str, columns: list[str], start: str, end: str) -> None:
    assert promise(folders, *columns) == interval(start, end)


def test_the_slack_is_on_both_sides() -> None:
    assert promise("dt=2024-03-01", "dt", slack="36h") == interval("2024-02-28T12:00Z", "2024-03-03T12:00Z")


def test_periods_are_in_the_time_zone_of_the_source() -> None:
    zone = "America/New_York"
    assert promise("dt=2024-03-10", "dt", zone=zone) == interval("2024-03-10T05:00Z", "2024-03-11T04:00Z")
    twice = promise("dt=2024-11-03/hour=01", "dt", "hour", zone=zone)
    assert twice == interval("2024-11-03T05:00Z", "2024-11-03T07:00Z")


def test_a_folder_without_a_value_may_hold_anything() -> None:
    assert promise("dt=__HIVE_DEFAULT_PARTITION__", "dt").overlaps(interval("1970-01-01", "1970-01-02"))


def test_a_time_after_the_year_9999_is_misplaced(tmp_path: Path) -> None:
    times_us = [1_709_251_200_000_000, 1_709_251_200_000_000_000]
    columns = {
        FILE: ["file:/a/dt=2024-03-01/b.json"] * 2,
        EVENT_TIME: pa.array(times_us, pa.timestamp("us", "UTC")),
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    given = PartitionFilter(columns=("dt",), slack="0s")  # type: ignore[arg-type]  # the text is converted
    source = Source(path="/a", event_time="at", partition_filter=given)

    (found,) = FolderPeriods(source, "orders.toml").find_misplaced(tmp_path)

    assert str(found) == "1 record of /a/dt=2024-03-01/b.json, 1709251200000000 ms"


@pytest.mark.parametrize(
    ("folders", "columns", "message"),
    [
        ("day=1", ["dt"], "partition column 'dt' is not in the folder /a/day=1 (orders.toml"),
        (
            "dt=2024-W05",
            ["dt"],
            "partition column 'dt' must be a period such as 2024-03-01 or 2024-03-01-03, got '2024-W05' in",
        ),
        (
            "dt=2024-03-01/hour=03h",
            ["dt", "hour"],
            "partition column 'hour' must be a period such as 03, got '03h'",
        ),
        ("dt=2024-02-30", ["dt"], "the folder is no period: /a/dt=2024-02-30 (orders.toml"),
    ],
)
def test_a_folder_that_is_no_period_is_an_error(folders: str, columns: list[str], message: str) -> None:
    with pytest.raises(PlanError) as caught:
        promise(folders, *columns)
    assert str(caught.value).startswith(message)
    assert "source.partition_filter.columns" in str(caught.value)
