"""The demo as a person starts it: a real Airflow, real Spark, real flights. Minutes, not seconds."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pandas as pd
import psutil
import pytest

from backstream.eventtime.intervals import Interval
from backstream.lake import reader
from backstream.runs.home import Home

pytestmark = pytest.mark.e2e

CHECKOUT = Path(__file__).parents[2]
FLIGHTS = CHECKOUT / "pipelines" / "definitions" / "flights.toml"
FEBRUARY = Interval(1359676800000, 1362096000000)
RUN_ID = "backfill__2013-03-01T00:00:00+00:00"
LIMIT_S = 900


@dataclass
class Demo:
    """One start of the demo, and what it has printed so far."""

    home: Path
    process: subprocess.Popen[str]
    output: Path

    @property
    def text(self) -> str:
        """What it has printed so far."""
        return self.output.read_text(encoding="utf-8")

    def value(self, name: str) -> str:
        """What a line says that begins with a name."""
        found = re.search(rf"^{name} +(.+)$", self.text, re.MULTILINE)
        assert found, self.text
        return found[1]

    def wait_for(self, words: str) -> None:
        """Wait until it has printed the words, as long as it lives."""
        until = time.monotonic() + LIMIT_S
        while words not in self.text:
            assert self.process.poll() is None, self.text
            assert time.monotonic() < until, self.text
            time.sleep(0.5)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo") / "home"


def started(home: Path, name: str, **env: str | Path) -> Demo:
    output = home.parent / f"{name}.txt"
    with output.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "demo"],
            cwd=CHECKOUT,
            env=os.environ | {"BACKSTREAM_HOME": str(home)} | {key: str(value) for key, value in env.items()},
            stdout=file,
            stderr=subprocess.STDOUT,
            text=True,
        )
    return Demo(home, process, output)


@pytest.fixture(scope="module")
def first(home: Path) -> Iterator[Demo]:
    """The first demo, its month published and its interface still up."""
    demo = started(home, "first")
    try:
        demo.wait_for("Press Ctrl+C")
        yield demo
    finally:
        demo.process.send_signal(signal.SIGINT)
        demo.process.wait(60)


@pytest.fixture(scope="module")
def user(first: Demo) -> Iterator[httpx.Client]:
    """A client of the interface, with the login that the demo names."""
    address, login = first.value("interface").split("  login ")
    name, password = login.split(" / ")
    with httpx.Client(base_url=address.partition("/dags/")[0], trust_env=False, timeout=60) as client:
        token = client.post("/auth/token", json={"username": name, "password": password}).json()
        client.headers["Authorization"] = f"Bearer {token['access_token']}"
        yield client


@pytest.fixture(scope="module")
def recorded(first: Demo) -> pd.DataFrame:
    """The flights that were scheduled for February and departed, as the demo recorded them."""
    flights = pd.read_parquet(first.home / "data" / "flights")
    since, until = pd.Timestamp("2013-02-01", tz="UTC"), pd.Timestamp("2013-03-01", tz="UTC")
    scheduled = flights["scheduled_departure"]
    return flights[(scheduled >= since) & (scheduled < until)]


def fates_of(text: str) -> dict[str, list[int]]:
    """The summary's table: per partition the events, then the counts of each fate."""
    lines = re.findall(r"^(EWR|JFK|LGA|all) +([\d,]+) =((?: +[\d,]+)+)$", text, re.MULTILINE)
    return {name: [int(n.replace(",", "")) for n in (events, *fates.split())] for name, events, fates in lines}


def test_the_summary_accounts_for_every_recorded_departure(first: Demo, recorded: pd.DataFrame) -> None:
    table = fates_of(first.text)
    assert {name: events for name, (events, *_) in table.items()} == {
        **recorded["origin"].value_counts().to_dict(),
        "all": len(recorded),
    }
    assert all(events == sum(fates) for events, *fates in table.values())


def test_the_readme_shows_what_the_demo_prints(first: Demo) -> None:
    block = (CHECKOUT / "README.md").read_text(encoding="utf-8").partition("```text\n")[2].partition("```")[0]
    assert [line for line in block.splitlines() if line not in first.text.splitlines()] == []


def test_no_note_about_files_or_optional_connections_is_among_its_lines(first: Demo) -> None:
    notes = ("no data:", "not found", "there is no summary", "warning")
    assert [line for line in first.text.lower().splitlines() if any(note in line for note in notes)] == []


def test_only_the_owner_may_read_databases_and_credentials(first: Demo) -> None:
    names = ("catalog.db", "airflow/airflow.db", "airflow/passwords.json", "airflow/secrets.json")
    assert {name: stat.S_IMODE((first.home / name).stat().st_mode) for name in names} == dict.fromkeys(
        names, 0o600
    )


def test_published_rows_equal_the_aggregates_of_recorded_departures(first: Demo, recorded: pd.DataFrame) -> None:
    hours = recorded["scheduled_departure"].dt.floor("h").rename("window_start")
    expected = (
        recorded.groupby(["carrier", hours])["dep_delay"]
        .agg(departures="size", mean_delay_min="mean", worst_delay_min="max")
        .reset_index()
    )
    published = reader.load_rows(Home(first.home), "flights", FEBRUARY).to_pandas()
    published["window_start"] = published["window_start"].astype(expected["window_start"].dtype)
    order = ["carrier", "window_start"]
    pd.testing.assert_frame_equal(
        published[[*expected.columns]].sort_values(order, ignore_index=True),
        expected.sort_values(order, ignore_index=True),
        check_dtype=False,
    )


def test_airflow_has_run_its_own_backfill_and_nothing_else(user: httpx.Client) -> None:
    runs = user.get("/api/v2/dags/backfill_flights/dagRuns").json()["dag_runs"]
    assert [(run["dag_run_id"], run["run_type"], run["state"]) for run in runs] == [
        (RUN_ID, "backfill", "success")
    ]
    assert runs[0]["conf"] == {"mode": "replay"}
    assert user.get("/api/v2/importErrors").json()["import_errors"] == []


def test_small_chunks_share_a_task_that_names_their_interval(user: httpx.Client) -> None:
    run = f"/api/v2/dags/backfill_flights/dagRuns/{RUN_ID}/taskInstances"
    tasks = user.get(run, params={"task_id": "replay"}).json()["task_instances"]
    replays = [task for task in tasks if task["task_id"] == "replay"]
    assert [task["rendered_map_index"] for task in replays] == [
        "flights 0000-0003: 2013-02-01T00:00Z to 2013-03-01T00:00Z (4 chunks)"
    ]
    assert {task["pool"] for task in replays} == {"spark"}


def report_page(client: httpx.Client, **headers: Any) -> httpx.Response:
    query = {"dag_id": "backfill_flights", "run_id": RUN_ID}
    return client.get("/backstream/report", params=query, headers=headers)


def test_the_report_is_a_file_and_a_tab_of_the_run(first: Demo, user: httpx.Client) -> None:
    file = Path(first.value("report"))
    answer = report_page(user)
    assert answer.status_code == 200
    assert answer.text == file.read_text(encoding="utf-8")
    assert answer.headers["content-security-policy"].startswith("default-src 'none'; style-src")


def test_a_browser_with_airflows_cookie_sees_the_report_too(user: httpx.Client) -> None:
    token = user.headers["Authorization"].removeprefix("Bearer ")
    assert report_page(user, Authorization="", Cookie=f"_token={token}").status_code == 200


def test_who_has_not_logged_in_sees_no_page(user: httpx.Client) -> None:
    assert report_page(user, Authorization="").status_code == 401
    assert user.get("/backstream/runs", headers={"Authorization": ""}).status_code == 401


def test_a_run_that_does_not_exist_has_no_report(user: httpx.Client) -> None:
    query = {"dag_id": "backfill_flights", "run_id": "<script>../../x"}
    answer = user.get("/backstream/report", params=query)
    assert answer.status_code == 404
    assert "<script>../../x" not in answer.text


def test_the_list_of_runs_names_each_with_its_verdict(user: httpx.Client) -> None:
    page = user.get("/backstream/runs").text
    rows = re.findall(r'<tr><th scope="row"[^>]*>.*?</tr>', page, re.DOTALL)
    assert rows
    for row in rows:
        cells = re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)
        said = [" ".join(re.sub(r"<[^>]*>", " ", cell).split()) for cell in cells]
        assert said[:3] == ["flights", "Published", "! Warning"]
        assert said[4:7] == ["1 Feb to 28 Feb 2013", "replay", "4,499"]


def test_a_second_demo_on_the_same_state_fails_and_names_the_other_process(first: Demo) -> None:
    other = started(first.home, "other", BACKSTREAM_DEMO_EXIT="1")
    assert other.process.wait(60) == 1
    assert f"another Airflow uses the state folder {first.home / 'airflow'}: process" in other.text


@pytest.fixture(scope="module")
def stopped(first: Demo) -> Demo:
    """The first demo after a Ctrl-C, with nothing of it left."""
    family = psutil.Process(first.process.pid).children(recursive=True)
    assert len(family) >= 3
    first.process.send_signal(signal.SIGINT)
    assert first.process.wait(60) == 0
    assert [process.pid for process in family if runs(process)] == []
    return first


def runs(process: psutil.Process) -> bool:
    """Whether it works on; a zombie has ended, and only waits for its parent to notice."""
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def test_ctrl_c_ends_the_demo_and_everything_it_has_started(stopped: Demo) -> None:
    assert stopped.text.splitlines()[-1] == "stopping   Airflow"


@pytest.mark.long
def test_a_second_run_has_nothing_to_do_and_shows_the_same_rows(stopped: Demo) -> None:
    second = started(stopped.home, "second", BACKSTREAM_DEMO_EXIT="1")
    assert second.process.wait(LIMIT_S) == 0, second.text
    assert second.value("content") == stopped.value("content")
    assert second.value("content").startswith("4,499 rows, hash ")
    assert second.value("published") == "4,499 rows to table flights, replacing 0", second.text
    assert fates_of(second.text) == fates_of(stopped.text)


@pytest.mark.long
def test_a_run_that_fails_ends_the_demo_with_the_reason(stopped: Demo, tmp_path: Path) -> None:
    text = FLIGHTS.read_text(encoding="utf-8")
    (tmp_path / "flights.toml").write_text(text.replace("max(dep_delay)", "max(no_such_column)"))
    failing = started(stopped.home, "failing", BACKSTREAM_DEMO_EXIT="1", BACKSTREAM_DEFINITIONS=tmp_path)
    assert failing.process.wait(LIMIT_S) == 1, failing.text
    assert f"failed     run {RUN_ID}" in failing.text
    assert "task plan failed; the end of its log:" in failing.text
    assert "no_such_column" in failing.text
    assert "content" not in failing.text
