"""Test the windows of past runs, which come from the audit data that these runs left."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from tests.browser.seed import FIRST_MS, PARTITIONS, frame_of, leave, plan_of

from backstream.definition.loader import parse_definition
from backstream.eventtime.instants import DAY_MS, HOUR_MS
from backstream.quality.bands import READ_OF_WINDOWS, WEEK_MS
from backstream.runs.home import Home
from backstream.runs.status import RunStatus
from backstream.workflow.past_windows import load_past_windows

NOW_MS = FIRST_MS + 5 * WEEK_MS


def past_of(home: Home, max_weeks: int) -> pd.DataFrame:
    """Return the past windows of a run of one day."""
    content = {
        "name": "flights",
        "source": {"path": "in", "event_time": "at", "partition": "origin"},
        "window": {"kind": "tumbling", "size": "1h"},
        "aggregates": {"departures": "count(*)"},
        "quality": {"bands": {"max_weeks": max_weeks}},
    }
    plan = plan_of(home, "flights", NOW_MS, NOW_MS + DAY_MS, trigger="new")
    return load_past_windows(plan, parse_definition(content, "test"))


def test_a_past_window_is_that_of_the_newest_published_run_within_the_weeks(tmp_path: Path) -> None:
    home = Home(tmp_path)
    old = plan_of(home, "flights", FIRST_MS, NOW_MS, trigger="old")
    leave(home, old, frame_of(FIRST_MS, NOW_MS), RunStatus.PUBLISHED, [], NOW_MS)
    again = plan_of(home, "flights", NOW_MS - DAY_MS, NOW_MS, trigger="again")
    restated = frame_of(NOW_MS - DAY_MS, NOW_MS).assign(events=7)
    leave(home, again, restated, RunStatus.PUBLISHED, [], NOW_MS + 1)
    refused = plan_of(home, "flights", NOW_MS - DAY_MS, NOW_MS, trigger="refused")
    leave(home, refused, restated.assign(events=999), RunStatus.REFUSED, [], NOW_MS + 2)

    found = past_of(home, 4)

    assert list(found.columns) == READ_OF_WINDOWS
    assert len(found) == 4 * WEEK_MS // HOUR_MS * len(PARTITIONS)
    assert not found.duplicated(["source_partition", "window_start"]).any()
    last_day = found[found["window_start"] >= restated["window_start"].min()]
    assert list(last_day["events"]) == list(restated["events"])


def test_a_run_whose_files_were_deleted_or_in_another_mode_gives_no_window(tmp_path: Path) -> None:
    home = Home(tmp_path)
    old = plan_of(home, "flights", FIRST_MS, NOW_MS, trigger="old")
    leave(home, old, frame_of(FIRST_MS, NOW_MS), RunStatus.PUBLISHED, [], NOW_MS)
    old.folder.audit_frame.unlink()
    assert past_of(home, 13).empty


def test_a_past_run_whose_file_cannot_be_read_is_left_out_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home = Home(tmp_path)
    start_ms = NOW_MS - 4 * DAY_MS
    plans = [
        plan_of(home, "flights", since_ms, since_ms + DAY_MS, trigger=f"t{since_ms}")
        for since_ms in range(start_ms, NOW_MS, DAY_MS)
    ]
    for plan in plans:
        leave(home, plan, frame_of(plan.since_ms, plan.until_ms), RunStatus.PUBLISHED, [], NOW_MS)
    files = [(plan, plan.folder.audit_frame) for plan in plans]
    damaged, no_late, no_expected, whole = (file for _, file in files)
    damaged.write_bytes(b"PAR1 is the first word of this text")
    pd.read_parquet(no_late).drop(columns="late").to_parquet(no_late)
    pd.read_parquet(no_expected).drop(columns="is_expected").to_parquet(no_expected)

    found = past_of(home, 4)

    assert list(found["events"]) == list(pd.read_parquet(whole)["events"])
    named = [f"the bands leave out past run {plan.run_id}: cannot read {file}: " for plan, file in files[:3]]
    assert len(caplog.messages) == len(named)
    assert all(any(message.startswith(start) for message in caplog.messages) for start in named)


def test_a_run_whose_range_a_newer_run_has_published_is_not_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home = Home(tmp_path)
    old = plan_of(home, "flights", NOW_MS - DAY_MS, NOW_MS, trigger="old")
    leave(home, old, frame_of(NOW_MS - DAY_MS, NOW_MS), RunStatus.PUBLISHED, [], NOW_MS)
    old.folder.audit_frame.write_bytes(b"a reader would warn")
    again = plan_of(home, "flights", NOW_MS - 2 * DAY_MS, NOW_MS, trigger="again")
    leave(home, again, frame_of(NOW_MS - 2 * DAY_MS, NOW_MS), RunStatus.PUBLISHED, [], NOW_MS + 1)

    found = past_of(home, 4)

    assert len(found) == 2 * DAY_MS // HOUR_MS * len(PARTITIONS)
    assert caplog.messages == []


def test_windows_of_another_size_or_grid_are_no_past_windows(tmp_path: Path) -> None:
    home, hours = Home(tmp_path), frame_of(NOW_MS - DAY_MS, NOW_MS)
    shifted = pd.Timedelta(minutes=30)
    moved = {name: hours[name] + shifted for name in ("window_start", "window_end", "last_start")}
    days = {
        3: hours.assign(window_end=hours["window_end"] + shifted),
        2: hours.assign(**moved),
        1: hours,
    }
    for number, frame in days.items():
        back = pd.Timedelta(days=number - 1)
        starts = {name: frame[name] - back for name in ("window_start", "window_end", "last_start")}
        plan = plan_of(
            home, "flights", NOW_MS - number * DAY_MS, NOW_MS - (number - 1) * DAY_MS, trigger=f"{number}"
        )
        leave(home, plan, frame.assign(**starts), RunStatus.PUBLISHED, [], NOW_MS)

    found = past_of(home, 4)

    assert len(found) == DAY_MS // HOUR_MS * len(PARTITIONS)
    assert found["window_start"].min() == hours["window_start"].min()
