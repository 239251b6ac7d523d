"""Manifests, plans, and ledger files are read once; a damaged summary is replaced and never used."""

from __future__ import annotations

import logging
import random
from dataclasses import replace
from pathlib import Path

import pytest
from tests.lake.test_ledger import MORNING
from tests.workflow.history import at, write_clicks, write_definition
from tests.workflow.publishing import publish_counts

from backstream.eventtime.instants import DAY_MS, instant_ms
from backstream.eventtime.intervals import Interval
from backstream.lake.ledger import record_run
from backstream.lake.published_windows import PublishedWindows, load_published_windows
from backstream.lake.run_rows import list_runs
from backstream.runs.home import Home
from backstream.workflow.history import rollback_run
from backstream.workflow.late_data.stale import find_stale_days
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.plan.planning import plan_run

SINCE_MS = instant_ms("2024-03-01", "since")
CLICKED = [(at(f"{day} 05:00"), at(f"{day} 05:01"), "A", day, "home") for day in (1, 2, 3, 4)]


def publish(folder: Path, trigger: str, first: int, days: int) -> str:
    for row in CLICKED:
        if not (file := folder / f"data/{row[3]}.parquet").exists():
            write_clicks(file, [row])
    definition, since_ms = write_definition(folder), SINCE_MS + first * DAY_MS
    plan = plan_run(
        PlanRequest(
            definition, Interval(since_ms, since_ms + days * DAY_MS), trigger=trigger, home=Home(folder / "home")
        )
    )
    publish_counts(plan, CLICKED)
    return plan.run_id


def load_all(folder: Path) -> tuple[object, ...]:
    found = load_published_windows(Home(folder / "home"), "clicks")
    return found.runs_by_day(), found.commits, sorted(found.files, key=lambda file: file.path)


def forget(folder: Path) -> None:
    for file in (folder / "home/summaries").iterdir():
        file.unlink()


def test_the_summary_matches_the_table_after_each_of_many_runs_and_rollbacks(tmp_path: Path) -> None:
    chance, last = random.Random(7), ""  # noqa: S311 - an order, not a secret
    for number in range(12):
        if last and chance.random() < 0.4:
            rollback_run(Home(tmp_path / "home"), last)
            last = ""
        else:
            first = chance.randrange(4)
            last = publish(tmp_path, f"run {number}", first, chance.randrange(1, 5 - first))
        summarized = load_all(tmp_path)
        forget(tmp_path)
        assert load_all(tmp_path) == summarized


def test_no_manifest_is_read_twice(tmp_path: Path) -> None:
    publish(tmp_path, "first", 0, 4)
    before = load_all(tmp_path)

    manifests = list((tmp_path / "home/warehouse").rglob("*.avro"))
    for manifest in manifests:
        manifest.unlink()

    assert manifests
    assert load_all(tmp_path) == before


def test_a_damaged_summary_of_a_table_is_made_again_with_a_line_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    publish(tmp_path, "first", 0, 4)
    before = load_all(tmp_path)
    summary = tmp_path / "home/summaries/windows-clicks"
    summary.write_text(summary.read_text().replace("first", "FIRST"))

    assert load_all(tmp_path) == before
    assert caplog.messages == [
        f"the summary of table `clicks` is damaged: reading table `clicks` again ({summary})"
    ]
    caplog.clear()
    assert load_all(tmp_path) == before
    assert caplog.messages == []


def test_a_dataset_without_a_table_has_nothing_published(tmp_path: Path) -> None:
    assert load_published_windows(Home(tmp_path), "clicks") == PublishedWindows(Home(tmp_path), "clicks")
    assert load_published_windows(Home(tmp_path), "clicks").runs_by_day() == {}


def test_a_data_file_of_the_ledger_is_read_once(tmp_path: Path) -> None:
    home = Home(tmp_path)
    record_run(home, MORNING)
    first = set((tmp_path / "warehouse").rglob("*.parquet"))
    evening = replace(MORNING, run_id="cli.def", finished_at_ms=1_700_000_999_000)
    record_run(home, evening)

    for file in (tmp_path / "warehouse").rglob("*.parquet"):
        file.unlink()

    assert first
    assert list_runs(home) == [evening, MORNING]


def test_the_ledger_is_the_same_without_its_summary(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    home = Home(tmp_path)
    rows = [replace(MORNING, run_id=f"cli.{number}", finished_at_ms=number) for number in range(55, 0, -1)]
    for row in reversed(rows):  # more files than the limit at which small files are merged
        record_run(home, row)
    assert list_runs(home) == rows
    caplog.clear()

    home.summary("runs").unlink()

    assert list_runs(home) == rows
    assert caplog.messages == [
        f"there is no summary of the ledger's runs yet: reading it once ({home.summary('runs')})"
    ]


def test_a_plan_is_read_once(tmp_path: Path) -> None:
    run_id = publish(tmp_path, "first", 0, 4)
    home, definition = Home(tmp_path / "home"), tmp_path / "clicks.toml"
    write_clicks(tmp_path / "data/late.parquet", [(at("2 06:00"), at("4 06:00"), "A", 9, "home")])
    before = find_stale_days(definition, home)
    assert [day.day_ms for day in before.days] == [SINCE_MS + DAY_MS]

    home.run("clicks", run_id).plan.unlink()
    assert find_stale_days(definition, home) == before

    home.summary("plans-clicks").unlink()
    assert {reason for day in find_stale_days(definition, home).days for reason in day.reasons} == {
        f"the input of run {run_id} is unknown: its plan cannot be read"
    }
