"""Rows of a table are scanned by day; a limit returns the first rows of all."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.workflow.history import at, write_clicks, write_definition
from tests.workflow.publishing import publish_counts

from backstream.eventtime.instants import DAY_MS, HOUR_MS, instant_ms
from backstream.eventtime.intervals import Interval
from backstream.lake.catalog import load_table, open_catalog_for_writing
from backstream.lake.scans import scan_rows_by_day
from backstream.runs.home import Home
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.plan.planning import plan_run

SINCE_MS = instant_ms("2024-03-01", "since")
PAGES = ("home", "about", "cart")
CLICKED = [
    (at(f"{day} {hour:02}:15"), at(f"{day} {hour:02}:16"), "A", 100 * day + 10 * hour + number, page)
    for day in (1, 2, 4, 5, 9)
    for hour in (3, 4, 7)
    for number, page in enumerate(PAGES)
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home with nine days, four of them without rows, published by two runs."""
    folder = tmp_path_factory.mktemp("days")
    write_clicks(folder / "data/all.parquet", CLICKED)
    definition = write_definition(folder)
    for first, last in ((0, 3), (3, 9)):
        span_ms = SINCE_MS + first * DAY_MS, SINCE_MS + last * DAY_MS
        publish_counts(
            plan_run(PlanRequest(definition, Interval(*span_ms), trigger=str(first), home=Home(folder / "home"))),
            CLICKED,
        )
    return Home(folder / "home")


def rows(home: Home, interval: Interval | None, limit: int | None = None) -> list[list[dict[str, object]]]:
    with open_catalog_for_writing(home) as catalog:
        days = scan_rows_by_day(load_table(catalog, "clicks"), interval, None, limit)
        return [day.to_pylist() for day in days]


def test_days_are_scanned_in_order_and_once_each(home: Home) -> None:
    found = rows(home, None)

    assert [day[0]["window_start"].day for day in found] == [1, 2, 4, 5, 9]  # type: ignore[attr-defined]
    assert [len(day) for day in found] == [9] * 5


@pytest.mark.parametrize("limit", [1, 3, 4, 9, 20])
def test_the_first_rows_of_a_day_are_the_first_of_all_its_rows(home: Home, limit: int) -> None:
    assert rows(home, None, limit) == [day[:limit] for day in rows(home, None)]


def test_an_interval_may_begin_and_end_within_a_day(home: Home) -> None:
    interval = Interval(SINCE_MS + 4 * HOUR_MS, SINCE_MS + 3 * DAY_MS + 4 * HOUR_MS)

    assert [len(day) for day in rows(home, interval)] == [6, 9, 3]


def test_the_first_day_is_read_without_the_manifest_of_the_last_day(home: Home) -> None:
    with open_catalog_for_writing(home) as catalog:
        table = load_table(catalog, "clicks")
        snapshot = table.current_snapshot()
        assert snapshot is not None
        newest = next(
            manifest
            for manifest in snapshot.manifests(table.io)
            if manifest.added_snapshot_id == snapshot.snapshot_id
        )
        file = Path(newest.manifest_path.removeprefix("file://"))
        content = file.read_bytes()
        file.unlink()
        try:
            first = next(scan_rows_by_day(table, None, None))
        finally:
            file.write_bytes(content)

    assert first.num_rows == 9
