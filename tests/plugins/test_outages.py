"""Test that pages respond within seconds, and say what is missing, while a catalog or database does not."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.plugins.outages import CSV, EXPLAIN, RUN, VISITED

from backstream.variables import CATALOG_VARIABLE

CHECKOUT = Path(__file__).parents[2]
LIMIT_S = 5.0
OF_THE_CATALOG = ("locked", "gone", "silent")
NOTICES = {
    "locked": "The catalog has not responded within 2 s. This page shows what the files of the runs record:"
    " failed runs and rollbacks since 20",
    "gone": "has no ledger, although runs are recorded. This page shows what the files of the runs record",
    "silent": "The catalog has not responded within 2 s. This page shows what the files of the runs record",
}
WITHOUT_LEDGER = ("report?", "reprocess?")
"""The pages that do not show the ledger."""
FORM = "reprocess?dag_id=backfill_flights&since=2016-02-01&until=2016-02-03"


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return seconds, status, and text of each page in each outage, from a process with Airflow."""
    folder = tmp_path_factory.mktemp("outages")
    env = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    env.pop(CATALOG_VARIABLE, None)
    paths = os.pathsep.join([str(CHECKOUT / "pipelines"), str(CHECKOUT), env.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "tests.plugins.outages", str(folder)],
        env=env | {"AIRFLOW_HOME": str(folder), "PYTHONPATH": paths, "BACKSTREAM_HOME": str(folder / "home")},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def text_of(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


@pytest.mark.parametrize("outage", [*OF_THE_CATALOG, "airflow"])
def test_every_page_responds_within_five_seconds(seen: Any, outage: str) -> None:
    slow = {page: seconds for page, (seconds, *_) in seen[outage]["pages"].items() if seconds > LIMIT_S}
    assert slow == {}


@pytest.mark.parametrize("outage", [*OF_THE_CATALOG, "airflow"])
def test_requests_at_the_same_time_share_one_waiting_reader(seen: Any, outage: str) -> None:
    assert seen[outage]["threads"] <= 1
    assert max(seen[outage]["crowd"]) < LIMIT_S


@pytest.mark.parametrize("outage", OF_THE_CATALOG)
def test_every_page_shows_what_is_recorded_and_says_what_is_missing(seen: Any, outage: str) -> None:
    for page in VISITED:
        _, status, html = seen[outage]["pages"][page]
        before, has_ledger = seen["none"]["pages"][page], not page.startswith(WITHOUT_LEDGER)
        assert status == (503 if page == CSV else before[1] if outage == "gone" or page != EXPLAIN else 503), page
        assert (NOTICES[outage] in text_of(html)) is has_ledger or page == FORM, page
    runs = text_of(seen[outage]["pages"]["runs?dag_id=backfill_flights"][2])
    days = seen[outage]["pages"]["dataset?dag_id=backfill_flights"][2]
    assert "published" in runs
    assert days.count('class="day s-') == seen["none"]["pages"]["dataset?dag_id=backfill_flights"][2].count(
        'class="day s-'
    )
    assert 'class="notice"' not in seen["none"]["pages"][RUN][2]


@pytest.mark.parametrize("outage", OF_THE_CATALOG)
def test_the_form_says_that_the_effect_of_the_run_is_not_known(seen: Any, outage: str) -> None:
    assert NOTICES[outage] in text_of(seen[outage]["pages"][FORM][2])


def test_without_the_database_of_airflow_nobody_sees_anything(seen: Any) -> None:
    for page, (_, status, html) in seen["airflow"]["pages"].items():
        assert status == 503, page
        assert "Airflow&#39;s database has not responded within 2 s, so Airflow cannot check" in html


def test_after_an_outage_the_pages_are_as_before(seen: Any) -> None:
    for page, (_, status, html) in seen["after"]["pages"].items():
        assert status == seen["none"]["pages"][page][1], page
        assert 'class="notice"' not in html
