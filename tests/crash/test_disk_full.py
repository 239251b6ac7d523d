"""Check that a run reports a full disk with file and place, and that a retry completes it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.crash.conftest import DAYS
from tests.crash.world import Forks, Source, World

from backstream.lake.run_rows import list_runs
from backstream.runs.home import Home
from backstream.runs.status import RunStatus

pytestmark = pytest.mark.slow


class Point(NamedTuple):
    """The moment at which the disk is full, and the beginning of the error."""

    name: str
    patterns: list[str]
    error: str
    is_visible: bool = False


FULL = "No space left on device"
COMMIT = r"create .*/clicks/metadata/.*-m\d+.avro"
PUBLISH = "could not publish clicks 2024-03-01T00:00Z to 2024-03-04T00:00Z"
METRICS, RESTATEMENTS = (f"could not append to table `clicks__{name}`" for name in ("metrics", "restatements"))
CHECKS, LEDGER = (f"could not record in table `{name}`" for name in ("checks", "runs"))
POINTS = [
    Point("plan", [r"open .*/\.plan.json"], f"cannot write plan.json: {FULL}"),
    Point("audit", [r"os.rename .*/chunks/0002.json", "."], f"cannot write audit.parquet: {FULL}"),
    Point("verdict", [r"os.rename .*/day_totals.json"], f"cannot write audit_result.json: {FULL}"),
    Point("checks", [r"create .*/checks/data/"], f"{CHECKS}: {FULL}"),
    Point("side table", [r"create .*/clicks__metrics/metadata/"], f"{METRICS}: {FULL}"),
    Point("restatements", [r"create .*/clicks__restatements/data/"], f"{RESTATEMENTS}: {FULL}"),
    Point("windows", [COMMIT], f"{PUBLISH}: {FULL}"),
    Point("database", [COMMIT, "before UPDATE"], f"{PUBLISH}: the catalog failed"),
    Point("ledger", [COMMIT, r"create .*/runs/data/"], f"{LEDGER}: {FULL}", is_visible=True),
    Point(
        "publication", [r"open .*/\.publication.json"], f"cannot write publication.json: {FULL}", is_visible=True
    ),
    Point("report", [r"open .*/\.report.html"], f"cannot write report.html: {FULL}", is_visible=True),
]


@contextmanager
def mounted(folder: Path) -> Iterator[Path]:
    """Mount a small disk; skip the test if the machine does not allow it."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=16m", "none", str(folder)]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    if result.returncode:
        pytest.skip(f"cannot mount a disk of 16 MB here: {result.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture
def small(source: Source, forks: Forks, tmp_path: Path) -> Iterator[World]:
    """Return a lake on a small disk."""
    with mounted(tmp_path / "disk") as disk:
        yield World(Home(disk / "home"), source, forks, None)


def test_a_full_disk_is_reported_and_a_retry_completes_the_run(small: World, tmp_path: Path) -> None:
    ballast = tmp_path / "disk/ballast"
    small.run_to_end("first", DAYS, 0)
    for number, point in enumerate(POINTS, start=1):
        before, trigger = small.states[-1], f"k{number}"

        job = small.job(trigger, DAYS, number, fill_at=point.patterns, ballast=str(ballast))
        (failed,) = small.forks.run(job)

        assert failed["exit"] == 0, point.name
        kind, message = failed["outcome"]
        assert kind == ("CatalogError" if "catalog" in point.error else "StorageError"), message
        assert message.startswith(point.error), message
        assert str(small.home.path) in message
        ballast.unlink()
        assert small.current_state() == (
            small.state_with(trigger, DAYS, number) if point.is_visible else before
        ), point.name
        assert small.run_to_end(trigger, DAYS, number)["outcome"][0] == (
            "already" if point.is_visible else "published"
        )
        assert small.current_state() == small.states[-1]
    small.require_complete()
    assert RunStatus.FAILED not in {row.status for row in list_runs(small.home)}
