"""The benchmark of one day in Airflow, without an Airflow: what is made of the times that its API tells."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from benchmarks.comparisons import Section
from benchmarks.one_day import TASKS, by_round, published_s, replay_s, times_of
from benchmarks.results import Results, TaskTimes
from rich.console import Console

from benchmarks import __main__, one_day, table

TRIGGERED = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
ENDS_S = {"plan": 2, "replay": 10, "audit": 14, "approve": 15, "publish": 17, "report": 19}


def instances(later_s: int = 0) -> list[dict[str, Any]]:
    """Task instances as the API has them, in no order: each begins a second after the one before has ended."""
    begins = dict(zip(TASKS, [0, *ENDS_S.values()], strict=False))
    return [
        {
            "task_id": name,
            "queued_when": f"2026-03-01T12:00:{begins[name]:02}.250000Z",
            "start_date": f"2026-03-01T12:00:{begins[name]:02}.500000Z",
            "end_date": f"2026-03-01T12:00:{ENDS_S[name] + later_s:02}.500000Z",
        }
        for name in sorted(TASKS)
    ]


def results(*later_s: int) -> Results:
    times = [
        each
        for number, later in enumerate(later_s, 1)
        for each in times_of(instances(later), TRIGGERED, number, 0.25 * number)
    ]
    return Results(0, 0, "", "2026-03-01", {"processor": "two cores"}, tasks=times)


def test_times_of_tasks_are_seconds_after_the_trigger_in_the_order_of_the_run() -> None:
    found = times_of(instances(), TRIGGERED, 1, 0.25)

    assert [each.task for each in found] == [*TASKS]
    assert found[1] == TaskTimes(1, "replay", 2.25, 2.5, 10.5, 8.0, 0.25)
    assert (published_s(found), replay_s(found)) == (17.5, 8.0)


def test_medians_are_compared_with_limits_and_tasks_are_grouped_by_round() -> None:
    found = results(0, 3, 4)

    assert [len(each) for each in by_round(found.tasks)] == [6, 6, 6]
    assert table.day_rows(found) == [
        ("from the trigger to the end of publish", "20.5 s", "17.5 to 21.5", "at most 20 s", "no"),
        ("the task replay", "11.0 s", "8.0 to 12.0", "at most 10 s", "no"),
    ]
    assert [row[-1] for row in table.day_rows(results(0, 1, 2))] == ["yes", "yes"]
    assert table.task_rows(found)[1] == ("replay", "2.2", "2.5", "13.5", "11.0", "8.0 to 12.0")


def test_page_and_terminal_show_each_task_and_how_busy_the_machine_was(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    found = results(0, 3, 4)
    found.write(tmp_path / "kept.json")

    page = table.markdown([Results.read(tmp_path / "kept.json")], [])
    table.shown(found, [], Console(width=200))

    told = capsys.readouterr().out
    for part in ("median of 3 rounds, load average before them 0.2 to 0.8", "the task replay", "approve"):
        assert part in page
        assert part in told
    assert page.startswith("### One day in Airflow\n\nMeasured on 2026-03-01: median of 3 rounds, ")


def test_the_airflow_benchmark_runs_and_is_saved_only_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Path, int]] = []

    def measured(_say: object, folder: Path, rounds: int) -> list[TaskTimes]:
        asked.append((folder, rounds))
        return results(0).tasks

    monkeypatch.setattr(one_day, "task_times", measured)
    monkeypatch.setattr(__main__, "SAVED", tmp_path / "measured")
    options = ["--folder", str(tmp_path), "--save"]

    assert __main__.main(["--only", "airflow", "--rounds", "2", *options]) == 0
    assert asked == [(tmp_path / "airflow", 2)]
    assert Results.read(tmp_path / "measured" / "0-airflow.json").tasks == results(0).tasks
    assert Section.AIRFLOW in __main__._ASKED_FOR  # noqa: SLF001 - the default would take hours
