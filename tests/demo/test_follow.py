"""Test the line that the demo prints for a finished task."""

from __future__ import annotations

import pytest
from demo.follow import find_result_line

TASKS, NOTES = "backstream.orchestration.tasks", "backstream.runs.file_summaries"


def entry(logger: str, event: str, level: str = "info") -> dict[str, str]:
    return {"logger": logger, "event": event, "level": level}


@pytest.mark.parametrize(
    ("entries", "line"),
    [
        (
            [
                entry(TASKS, "flights 2013-02-01: replay in 4 chunks"),
                entry(TASKS, "no data: 1 file with a name that begins with _ or .", "warning"),
            ],
            "flights 2013-02-01: replay in 4 chunks",
        ),
        (
            [
                entry(NOTES, "there is no summary of table flights yet: reading it once"),
                entry(TASKS, "verdict warn: 35 of 1,484 windows have no event"),
                entry("backstream.orchestration.notifications", "connection 'backstream_alerts' not found"),
            ],
            "verdict warn: 35 of 1,484 windows have no event",
        ),
        (
            [
                entry("backstream.jobs.replay", "chunk 0001: 21,000 events"),
                entry("backstream.jobs.replay", "a warning", "warning"),
                entry("airflow.task", "Task finished"),
            ],
            "chunk 0001: 21,000 events",
        ),
        ([entry(TASKS, "wrote report.html\n  a detail")], "wrote report.html"),
        ([entry("airflow.task", "Task finished")], "done"),
    ],
)
def test_a_finished_task_shows_its_result_and_no_note(entries: list[dict[str, str]], line: str) -> None:
    assert find_result_line(entries) == line
