"""Random sequences of what people do in a real Airflow, whose runs need no Java: all records tell one story."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from demo.stack import Stack
from tests.e2e.sequences import CLICKED, Replayed, replay_sequences
from tests.e2e.test_marks_and_deletions import Site
from tests.lake.postgres import Server, binaries, running
from tests.workflow.history import write_clicks

COUNT = int(os.environ.get("PEOPLE_SEQUENCES", "0"))
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        not COUNT, reason="runs for minutes; PEOPLE_SEQUENCES is the number of sequences, e.g., 30"
    ),
]
STEPS = int(os.environ.get("PEOPLE_STEPS", "3"))


def _database(server: Server) -> dict[str, str]:
    """Return the setting of a database of Airflow that takes many calls at a time."""
    return {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": server.new_database()}


def test_all_records_tell_one_story_after_each_call(tmp_path: Path) -> None:
    folder = binaries()
    if folder is None:
        pytest.skip("no PostgreSQL on this machine")
    for name in ("definitions", "suites"):
        (tmp_path / name).mkdir()
    settings = {
        "BACKSTREAM_DEFINITIONS": str(tmp_path / "definitions"),
        "BACKSTREAM_EXPECTATIONS": str(tmp_path / "suites"),
        "AIRFLOW__CORE__PARALLELISM": "5",
    }
    with running(folder) as server, Stack(tmp_path / "home", settings=settings | _database(server)) as stack:
        unserved = Site.__new__(Site)
        unserved.folder, unserved.stack = tmp_path, stack
        for number in range(COUNT):
            place = Replayed(unserved, number)
            write_clicks(place.folder / "data/a.parquet", CLICKED)
            place.write()
        api, long_ago = stack.start(), datetime(2000, 1, 1, tzinfo=UTC)
        names = [f"{kind}_people{number:02}" for number in range(COUNT) for kind in ("reprocess", "backfill")]
        stack.wait_until("knows the DAGs", lambda: all(api.has_dag(name, long_ago) for name in names), 300)
        for name in names:
            api.unpause(name)

        done = replay_sequences(tmp_path, stack, api, range(COUNT), STEPS)

    print(done)  # noqa: T201 - the counts
    assert done["start"] >= COUNT
