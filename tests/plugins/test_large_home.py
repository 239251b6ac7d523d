"""Test that no page reads a plan, so that one oversized plan doesn't break the pages."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.plugins.large_home import PAGES, fill

from backstream.runs.home import Home
from backstream.variables import CATALOG_VARIABLE

CHECKOUT = Path(__file__).parents[2]
RANGES = ("0001-01-01/9999-12-31", "2016-02-01/9999-12-31", "2016-02-01/2016-02-03", "2001-02-01/2001-02-03")


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return status and text of each page without readable plans, and the responses of the form to ranges."""
    folder = tmp_path_factory.mktemp("large")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(CATALOG_VARIABLE, raising=False)
        fill(Home(folder / "home"), folder / "definitions", "no plan")
        for file in (folder / "home").glob("runs/flights/*/plan.json"):
            file.chmod(0)
        env = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    paths = os.pathsep.join([str(CHECKOUT / "pipelines"), str(CHECKOUT), env.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "tests.plugins.visit", str(folder), *RANGES],
        env=env | {"AIRFLOW_HOME": str(folder), "PYTHONPATH": paths},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def text_of(seen: Any, page: str) -> str:
    """Return the text of a page without markup."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", seen[page][1]))


@pytest.mark.parametrize("page", PAGES)
def test_every_page_answers_although_no_plan_can_be_read(seen: Any, page: str) -> None:
    assert seen[page][0] == 200


def test_a_run_of_thousands_of_chunks_is_shown_by_what_it_has_left(seen: Any) -> None:
    assert "replay, 3,000 of 3,001 chunks" in text_of(seen, "dataset?dag_id=backfill_flights")


def test_all_runs_that_were_planned_here_are_listed(seen: Any) -> None:
    told = text_of(seen, "runs?dag_id=backfill_flights")

    assert all(trigger in told for trigger in ("published", "running", "dry"))
    assert "mistaken" not in told


def test_the_form_shows_the_error_of_a_range_beside_its_field(seen: Any) -> None:
    status, html = seen["0001-01-01/9999-12-31"]
    beside = re.search(r'id="p-since"><p class="problem" role="alert">([^<]*)<', html)

    assert (status, bool(beside), 'id="p-until"></div>' in html) == (400, True, True)
    assert beside
    assert beside[1].startswith("since must not be before 1970-01-01T00:00Z, got 0001-01-01T00:00Z (")


def test_a_range_that_ends_in_the_future_is_refused_beside_its_end(seen: Any) -> None:
    status, html = seen["2016-02-01/9999-12-31"]

    assert status == 400
    beside = r'id="p-until"><p class="problem" role="alert">until must not be after '
    assert re.search(beside + r"[^<]*, got 9999-12-31T00:00Z \(now is ", html)
    assert re.search(r'name="until" [^>]*value="9999-12-31" min="1970-01-02" max="20\d\d-\d\d-\d\d"', html)


def test_the_form_shows_the_effect_of_a_run_before_it_starts(seen: Any) -> None:
    told = text_of(seen, "reprocess?dag_id=backfill_flights&since=2016-02-01&until=2016-02-03")
    effect = "Effect of this run Days 2 Events, about 0 Published rows replaced 0 Duration, about"
    assert effect in told
    assert "Nothing is published there now." in told


def test_a_preview_shows_problems_at_their_fields_and_starts_nothing(seen: Any) -> None:
    status, html = seen[
        "reprocess?dag_id=backfill_flights&since=2016-02-01&until=2016-02-03&chunk=5h&preview=true"
    ]
    assert status == 200
    assert 'id="p-chunk"><p class="problem" role="alert">backfill.chunk must be whole days' in html
    assert "No run: correct the marked values first." in html


def test_a_range_before_all_events_is_refused_and_one_with_events_is_started(seen: Any) -> None:
    assert seen["2001-02-01/2001-02-03"][0] == 400
    assert seen["2016-02-01/2016-02-03"][0] == 200
    assert "a run of reprocess_flights" in text_of(seen, "2016-02-01/2016-02-03")
