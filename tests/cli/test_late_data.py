"""A run that is killed, data that comes late, a range that is run again: with a real Spark, as a shell sees it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from tests.cli.test_processes import LENIENT_ABOUT_GAPS, backstream
from tests.workflow.history import CLICKS, at, write_clicks, write_definition

from backstream.lake.reader import load_rows
from backstream.runs.home import Home
from backstream.spark.session import SMALL_DATA_SETTINGS
from backstream.variables import HOME_VARIABLE

pytestmark = pytest.mark.slow

PUBLICATION = Home(Path()).run("clicks", "any").publication.name
DAYS = ["--since", "2024-03-01", "--until", "2024-03-04"]


@pytest.fixture
def definition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Clicks of three days, and Spark's settings for a few rows."""
    settings = {key: value for key, value in SMALL_DATA_SETTINGS.items() if key.startswith("spark.sql.codegen")}
    (tmp_path / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "home"))
    for day in (1, 2, 3):
        write_clicks(
            tmp_path / f"data/{day}.parquet", [(at(f"{day} 05:00"), at(f"{day} 05:01"), "A", day, "home")]
        )
    return str(write_definition(tmp_path, CLICKS + LENIENT_ABOUT_GAPS))


def kill_after_the_first_chunk(folder: Path, definition: str) -> None:
    """Kill a run and its Java between its first chunk and its publication; again if it was faster."""
    command: list[str | Path] = [Path(sys.executable).with_name("backstream"), "run", definition, *DAYS]
    for _ in range(5):
        run = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        while not list(folder.glob("home/runs/clicks/*/chunks/0000.json")) and run.poll() is None:
            time.sleep(0.02)
        with suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
        run.wait()
        if run.returncode == -signal.SIGKILL and not list(folder.glob(f"home/runs/clicks/*/{PUBLICATION}")):
            return
        shutil.rmtree(folder / "home")
    pytest.fail("five runs had published before they were killed")


def clicks(folder: Path) -> dict[str, int]:
    published = load_rows(Home(folder / "home"), "clicks").to_pylist()
    return {f"{row['window_start']:%dT%H}": row["clicks"] for row in published}


def test_an_interrupted_run_resumes_its_plan_and_a_stale_run_adds_late_data(
    tmp_path: Path, definition: str
) -> None:
    kill_after_the_first_chunk(tmp_path, definition)
    write_clicks(tmp_path / "data/late.parquet", [(at("2 05:30"), at("4 05:00"), "A", 9, "home")])

    resumed = backstream(tmp_path, "run", definition, *DAYS)

    said = resumed.stderr.splitlines()
    assert resumed.returncode == 0
    assert any(line.startswith("resuming the interrupted run ") for line in said), resumed.stderr
    assert "files that came after the plan are not read: 1 file, 1 record; replan to read them (--replan)" in said
    assert clicks(tmp_path) == {"01T05": 1, "02T05": 1, "03T05": 1}

    found = backstream(tmp_path, "stale", definition)
    assert found.stdout.splitlines()[3] == f"2024-03-02        1  added: {tmp_path}/data/late.parquet, 1 record"

    again = backstream(tmp_path, "run", definition, "--stale")

    assert again.returncode == 0, again.stderr
    assert "stale: clicks 2024-03-02T00:00Z to 2024-03-03T00:00Z" in again.stderr.splitlines()
    assert clicks(tmp_path) == {"01T05": 1, "02T05": 2, "03T05": 1}
    assert backstream(tmp_path, "stale", definition).stdout == "clicks: none of 3 published days is stale\n"
    last = backstream(tmp_path, "status").stdout.splitlines()[1]
    assert "2024-03-02 to 2024-03-03  recompute  published" in last
    assert "cli: late data" in last
