"""Two Airflows work on one home, as after `airflow db reset` or a move: runs with one id are different runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from demo.stack import Stack
from tests.e2e.sequences import CLICKED, LATE, Replayed
from tests.e2e.test_marks_and_deletions import Site
from tests.workflow.history import write_clicks

from backstream.lake.run_rows import list_runs
from backstream.runs.home import Home

pytestmark = pytest.mark.e2e
DAG_ID = "reprocess_people00"


@contextmanager
def served(folder: Path, name: str) -> Iterator[Site]:
    """Serve an Airflow with a database of its own, on the home of all."""
    settings = {
        "BACKSTREAM_HOME": str(folder / "home"),
        "BACKSTREAM_DEFINITIONS": str(folder / "definitions"),
        "BACKSTREAM_EXPECTATIONS": str(folder / "suites"),
    }
    with Stack(folder / name, settings=settings) as stack:
        api, long_ago = stack.start(), datetime(2000, 1, 1, tzinfo=UTC)
        stack.wait_until("knows the DAG", lambda: api.has_dag(DAG_ID, long_ago), 300)
        api.unpause(DAG_ID)
        site = Site(folder, stack, api)
        yield site
        site.http.close()


@pytest.mark.long
def test_a_run_of_another_airflow_with_the_same_id_is_another_run(tmp_path: Path) -> None:
    for name in ("definitions", "suites", "home"):
        (tmp_path / name).mkdir()
    place = Replayed(Site.__new__(Site), 0)
    place.site.folder = tmp_path
    write_clicks(place.folder / "data/a.parquet", CLICKED)
    place.write()
    with served(tmp_path, "first") as site:
        _ask(site, "first")
    write_clicks(place.folder / "data/late.parquet", LATE)

    with served(tmp_path, "second") as site:
        log = _ask(site, "second")
        page = site.page("run", DAG_ID, "same")
        site.answer(DAG_ID, "same")
        assert site.until_ended(DAG_ID, "same") == "success"

    assert "resuming" not in log
    assert "second" in page
    rows = [(row.status, row.reason.partition(";")[0], row.rows) for row in list_runs(Home(tmp_path / "home"))]
    assert rows == [("published", "second", 2)]


def _ask(site: Site, reason: str) -> str:
    """Start a run up to its question, and return the log of `plan`."""
    site.start(DAG_ID, "same", 1, reason=reason)
    asked = site.until(DAG_ID, "same", "approve", "awaiting_input", "failed")
    assert asked["state"] == "awaiting_input", site.log_of(DAG_ID, "same", "approve")
    return site.log_of(DAG_ID, "same", "plan")
