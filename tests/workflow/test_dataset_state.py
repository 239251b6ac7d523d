"""Check the files for the pages: sealed and stale days, and sums per day."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import SparkSession
from tests.browser.seed import frame_of
from tests.workflow.history import CLICKS as CLICKS_TEXT
from tests.workflow.history import at, planned, write_clicks, write_definition
from tests.workflow.publishing import publish_counts

from backstream.chunks.replay import replay_chunks
from backstream.definition.run_sections import Limits, Quality
from backstream.eventtime.instants import DAY_MS, instant_ms
from backstream.eventtime.intervals import Interval
from backstream.lake.ledger import record_run, run_row
from backstream.pages.datasets import find_dataset
from backstream.pages.store import PageStore
from backstream.runs.dataset_state import DatasetState, DayIssue, DayTotals, load_day_totals, write_day_totals
from backstream.runs.home import Home
from backstream.runs.status import RunStatus
from backstream.spark.engine import SparkEngine
from backstream.variables import DEFINITIONS_VARIABLE
from backstream.workflow.audit import audit_run
from backstream.workflow.dataset_state import compute_day_totals, refresh_after_run, refresh_dataset_state
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.plan.planning import plan_run
from backstream.workflow.publish import publish_run
from backstream.workflow.report import report_run

ANY = Limits(warn=1.0, fail=1.0)
FIRST_MS = instant_ms("2024-03-01", "first")
ANY_MISSING = "\n[quality]\nmissing_ratio = { warn = 0.0, fail = 1.0 }\n"
_HOURS = [(1, hour) for hour in range(24)] + [(2, hour) for hour in range(20)]
CLICKS = [(at(f"{day} 05:00"), at(f"{day} 05:01"), "A", day, "home") for day in range(1, 4)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write a definition and three days with one click each."""
    write_clicks(tmp_path / "data/a.parquet", CLICKS)
    write_definition(tmp_path)
    return tmp_path


def refresh(folder: Path) -> DatasetState:
    found = refresh_dataset_state(folder / "clicks.toml", Home(folder / "home"))
    assert DatasetState.read(Home(folder / "home").dataset_state("clicks")) == found
    return found


def test_before_any_run_the_days_of_the_events_are_known(folder: Path) -> None:
    found = refresh(folder)
    assert (found.first_day_ms, found.end_day_ms) == (FIRST_MS, FIRST_MS + 3 * DAY_MS)
    assert (found.stale, found.problems) == ((), ())


def test_a_late_file_makes_a_published_day_stale(folder: Path) -> None:
    home = Home(folder / "home")
    plan = plan_run(
        PlanRequest(folder / "clicks.toml", Interval(FIRST_MS, FIRST_MS + 2 * DAY_MS), trigger="test", home=home)
    )
    publish_counts(plan, CLICKS[:2])
    record_run(home, run_row(plan, RunStatus.PUBLISHED, (1, 2)))
    write_clicks(folder / "data/b.parquet", [(at("2 05:10"), at("9 00:00"), "A", 9, "home")])
    (note,) = refresh(folder).stale
    assert note == DayIssue(FIRST_MS + DAY_MS, "stale", f"added: {folder}/data/b.parquet, 1 record", 1)


def test_errors_become_problems_in_the_state(folder: Path) -> None:
    (folder / "data/a.parquet").write_bytes(b"no parquet")
    found = refresh(folder)
    assert found.first_day_ms is None
    assert len(found.problems) == 1
    assert found.problems[0].startswith(f"cannot read input file {folder / 'data/a.parquet'}")


def test_a_missing_definition_writes_no_state(folder: Path) -> None:
    found = refresh_dataset_state(folder / "gone.toml", Home(folder / "home"))
    assert found.problems == (f"no definition at {folder / 'gone.toml'}",)
    assert not Home(folder / "home").dataset_state("gone").exists()


def test_a_report_does_not_read_the_source_and_a_refresh_does(folder: Path) -> None:
    home = Home(folder / "home")
    plan = plan_run(
        PlanRequest(folder / "clicks.toml", Interval(FIRST_MS, FIRST_MS + 2 * DAY_MS), trigger="test", home=home)
    )
    publish_counts(plan, CLICKS[:2])

    assert report_run(plan).exists()
    assert not home.dataset_state("clicks").exists()

    assert refresh_after_run(plan) is None
    seen = DatasetState.read(home.dataset_state("clicks"))
    assert seen is not None
    assert (seen.first_day_ms, seen.end_day_ms) == (FIRST_MS, FIRST_MS + 3 * DAY_MS)


def test_a_failed_refresh_is_returned_as_text(folder: Path) -> None:
    home = Home(folder / "home")
    plan = plan_run(
        PlanRequest(folder / "clicks.toml", Interval(FIRST_MS, FIRST_MS + 2 * DAY_MS), trigger="test", home=home)
    )
    publish_counts(plan, CLICKS[:2])
    in_its_way = home.dataset_state("clicks")
    in_its_way.mkdir(parents=True)
    (in_its_way / "file").touch()

    assert refresh_after_run(plan) == (
        "the pages of clicks are not up to date: its state could not be refreshed\n"
        "  cannot write clicks.json: Is a directory"
    )


@pytest.mark.parametrize(
    ("unsealed", "until"),
    [
        (None, None),
        ((), FIRST_MS + 3 * DAY_MS),
        ((DayIssue(FIRST_MS + DAY_MS, "open", ""),), FIRST_MS + DAY_MS),
        ((DayIssue(FIRST_MS, "missing", ""),), None),
    ],
)
def test_days_are_sealed_up_to_the_first_that_is_not(
    unsealed: tuple[DayIssue, ...] | None, until: int | None
) -> None:
    seen = DatasetState("clicks", 0, FIRST_MS, FIRST_MS + 3 * DAY_MS, unsealed, ())
    assert seen.sealed_until_ms == until


def test_the_sums_of_a_day_are_the_sums_of_its_windows(tmp_path: Path) -> None:
    frame = frame_of(FIRST_MS, FIRST_MS + 2 * DAY_MS, ["2024-03-02"], ("north", "south"))
    first, second = compute_day_totals(frame, Quality(late_ratio=ANY))
    is_second = frame["window_start"] >= pd.Timestamp("2024-03-02", tz="UTC")
    assert second == DayTotals(
        FIRST_MS + DAY_MS,
        windows_expected=48,
        windows_present=40,
        events=int(frame[is_second]["events"].sum()),
        on_time=int(frame[is_second]["on_time"].sum()),
        late=int(frame[is_second]["late"].sum()),
        dropped=int(frame[is_second]["dropped"].sum()),
        problem_windows=8,
    )
    assert (first.windows_present, first.problem_windows) == (48, 0)
    write_day_totals(tmp_path / "day_totals.json", [first, second])
    assert load_day_totals(tmp_path / "day_totals.json") == [first, second]


def test_the_pages_show_the_days_of_a_published_run_before_its_report(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clicks = [(at(f"{day} {hour:02}:05"), at(f"{day} {hour:02}:06"), "A", hour, "home") for day, hour in _HOURS]
    write_clicks(tmp_path / "data/a.parquet", clicks)
    plan = planned(tmp_path, write_definition(tmp_path, CLICKS_TEXT + ANY_MISSING), until="2024-03-03")
    monkeypatch.setenv(DEFINITIONS_VARIABLE, str(tmp_path))
    shown = []
    list(replay_chunks(SparkEngine(spark), plan, plan.chunks))
    for step in (audit_run, publish_run, report_run):
        step(plan)
        found = find_dataset(PageStore.from_home(plan.home), "backfill_clicks")
        assert found
        shown.append((found.verdict, [day.status.value for day in found.days]))

    published = ("warn", ["pass", "warn"])
    assert shown == [("none", ["running", "running"]), published, published]


@pytest.mark.parametrize(("part", "is_day_above"), [(0.99, True), (1.0, False)])
def test_windows_above_the_warn_limit_are_flagged_if_their_day_is_above_it_too(
    part: float, is_day_above: bool
) -> None:
    frame = frame_of(FIRST_MS, FIRST_MS + DAY_MS)
    limit = part * float((frame["late"] + frame["dropped"]).sum() / frame["events"].sum())
    above = int((frame["late_ratio"] > limit).sum())
    assert above > 0
    for has_band, limits in ((False, Limits(warn=limit, fail=1.0)), (True, Limits(warn=0.0, fail=limit))):
        found = compute_day_totals(frame.assign(has_band=has_band), Quality(late_ratio=limits))
        assert [day.problem_windows for day in found] == [above if is_day_above else 0]


def test_a_missing_window_is_a_problem_where_the_soft_limit_applies_or_its_day_exceeds_the_hard_one() -> None:
    frame = frame_of(FIRST_MS, FIRST_MS + DAY_MS, ["2024-03-01"], ("north", "south"))  # 8 of 48 are missing
    usual = frame.assign(is_limited=False)
    found = [
        compute_day_totals(rows, Quality(late_ratio=ANY, missing_ratio=Limits(warn=0.0, fail=fail)))[0]
        for rows, fail in ((frame, 0.5), (usual, 0.5), (usual, 0.1))
    ]
    assert [day.problem_windows for day in found] == [8, 0, 8]
