from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from backstream.lake.publication.publish import publish_range
from backstream.lake.reader import load_rows
from backstream.runs.manifest import Manifest
from backstream.runs.plan import Plan

if TYPE_CHECKING:
    from tests.lake.conftest import Lake

pytestmark = pytest.mark.slow

PUBLISHER = Path(__file__).parent / "publisher.py"


def start_publisher(plan: Plan, manifests: Sequence[Manifest], *options: str) -> subprocess.Popen[str]:
    """Start a process that publishes the plan."""
    for manifest in manifests:
        manifest.write(plan.folder.manifest(manifest.chunk_id))
    command = [sys.executable, str(PUBLISHER), str(plan.write()), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def publish_at_barrier(folder: Path, runs: Sequence[tuple[Plan, Sequence[Manifest]]]) -> list[str]:
    """Return the outputs of processes that all publish at the same moment."""
    folder.mkdir()
    processes = [start_publisher(plan, manifests, "--barrier", str(folder)) for plan, manifests in runs]
    while len(list(folder.glob("ready-*"))) < len(processes):
        assert all(process.poll() is None for process in processes), [each.communicate() for each in processes]
        time.sleep(0.01)
    (folder / "go").touch()
    ended = [process.communicate(timeout=120) for process in processes]
    assert [errors for _, errors in ended] == [""] * len(runs)
    return [output.strip() for output, _ in ended]


def versions(lake: Lake) -> int:
    """Return the number of commits of rows to the table; a catalog may not keep their snapshots."""
    current = lake.table().current_snapshot()
    return (current.sequence_number or 0) if current else 0


@pytest.mark.parametrize("populated", [False, True], ids=["empty", "populated"])
def test_of_overlapping_runs_at_the_same_moment_exactly_one_wins(
    lake: Lake, tmp_path: Path, *, populated: bool
) -> None:
    if populated:
        lake.publish("2013-02-01", "2013-02-03", {"2013-02-01T05:00Z": 1, "2013-02-02T05:00Z": 1})
    one = lake.plan("2013-02-01", "2013-02-03", "one")
    two = lake.plan("2013-02-02", "2013-02-04", "two")
    runs = [
        (one, lake.staged(one, {"2013-02-02T05:00Z": 10}, metrics=[("EWR", 10)])),
        (two, lake.staged(two, {"2013-02-02T05:00Z": 20}, metrics=[("EWR", 20)])),
    ]

    outputs = publish_at_barrier(tmp_path / "barrier", runs)

    winner = outputs.index("published")
    loser = runs[1 - winner][0]
    planned = "planned against version 1" if populated else "planned when the table was empty"
    assert outputs[1 - winner] == (
        f"refusing to publish flights {loser.range}: the table changed since it was planned\n"
        f"  {planned}, found version {2 if populated else 1}"
        f" ({runs[winner][0].range}, published by run {runs[winner][0].run_id})\n"
        "\n"
        "hint: plan the range again; nothing was published"
    )
    assert lake.departures("2013-02-02", "2013-02-03") == {"2013-02-02T05:00Z": [10, 20][winner]}
    assert versions(lake) == (2 if populated else 1)


def test_disjoint_runs_at_the_same_moment_all_succeed(lake: Lake, tmp_path: Path) -> None:
    days = ["2013-02-01", "2013-02-02", "2013-02-03", "2013-02-04", "2013-02-05"]
    plans = [lake.plan(since, until, since) for since, until in pairwise(days)]
    runs = [(plan, lake.staged(plan, {plan.triggered_by: 7}, metrics=[("EWR", 7)])) for plan in plans]

    outputs = publish_at_barrier(tmp_path / "barrier", runs)

    assert outputs == ["published"] * 4
    assert lake.departures() == {
        "2013-02-01T00:00Z": 7,
        "2013-02-02T00:00Z": 7,
        "2013-02-03T00:00Z": 7,
        "2013-02-04T00:00Z": 7,
    }
    assert load_rows(lake.home, "flights__metrics").num_rows == 4


def test_two_attempts_of_one_run_at_the_same_moment_publish_once(lake: Lake, tmp_path: Path) -> None:
    plan = lake.plan("2013-02-01", "2013-02-02")
    manifests = lake.staged(plan, {"2013-02-01T05:00Z": 3}, metrics=[("EWR", 3)])

    outputs = publish_at_barrier(tmp_path / "barrier", [(plan, manifests), (plan, manifests)])

    assert sorted(outputs) == ["already", "published"]
    assert lake.departures() == {"2013-02-01T05:00Z": 3}
    assert load_rows(lake.home, "flights__metrics").num_rows == 1


@pytest.mark.parametrize(
    ("point", "seen_after_the_kill", "the_retry_finds_it_done"),
    [
        ("side_tables_written", {"2013-02-01T05:00Z": 1}, False),
        ("metadata_written", {"2013-02-01T05:00Z": 1}, False),
        ("committed", {"2013-02-01T06:00Z": 2}, True),
    ],
)
def test_a_killed_publication_left_the_old_or_the_new_and_a_retry_heals(
    lake: Lake, point: str, seen_after_the_kill: dict[str, int], *, the_retry_finds_it_done: bool
) -> None:
    if point == "metadata_written" and lake.is_rest:
        pytest.skip("the server writes the metadata")
    lake.publish("2013-02-01", "2013-02-02", {"2013-02-01T05:00Z": 1}, trigger="before")
    plan = lake.plan("2013-02-01", "2013-02-02")
    manifests = lake.staged(plan, {"2013-02-01T06:00Z": 2}, metrics=[("EWR", 2)])
    killed = start_publisher(plan, manifests, "--die", point)
    assert killed.communicate(timeout=120) == ("", "")
    assert killed.returncode == -9
    assert lake.departures() == seen_after_the_kill

    done = publish_range(plan, manifests)

    assert done.already is the_retry_finds_it_done
    assert lake.departures() == {"2013-02-01T06:00Z": 2}
    assert load_rows(lake.home, "flights__metrics").num_rows == 1
    assert versions(lake) == 2


def test_a_reader_never_sees_a_mix_of_two_runs(lake: Lake) -> None:
    hours = [f"2013-02-01T{hour:02}:00Z" for hour in range(6)]
    lake.publish("2013-02-01", "2013-02-02", dict.fromkeys(hours, 0), trigger="run0")
    seen: list[set[int]] = []
    finished = threading.Event()

    def read() -> None:
        while not finished.is_set():
            seen.append(set(lake.departures().values()))

    reader = threading.Thread(target=read)
    reader.start()
    for count in range(1, 8):
        lake.publish("2013-02-01", "2013-02-02", dict.fromkeys(hours, count), trigger=f"run{count}")
    finished.set()
    reader.join()

    assert seen
    assert [each for each in seen if len(each) != 1] == []
