"""Kill runs at random moments: a retry completes each, and no reader sees a part of one.

`BACKSTREAM_KILLS` is the number of kills on both databases together, `BACKSTREAM_SEED` the random seed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.crash.conftest import DAYS
from tests.crash.world import HERE, World

from backstream.runs.manifest import Manifest, is_staged

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("BACKSTREAM_KILLS", "6"))
SEED = os.environ.get("BACKSTREAM_SEED", "1")
READERS = ("pyiceberg", "duckdb", "spark")


@dataclass
class Tally:
    """The counts of kills and their results."""

    kills: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    places: Counter[str] = field(default_factory=Counter)
    vacuums: int = 0
    removed_files: int = 0

    def lines(self, reads: dict[str, int]) -> Iterator[str]:
        """Yield the counts as text."""
        yield f"seed {SEED}: {sum(self.kills.values())} attempts killed or not: {dict(self.kills)}"
        yield f"  the last retry found the run {dict(self.found)}"
        yield f"  vacuum between kill and retry {self.vacuums} times, {self.removed_files} files removed in all"
        yield from (f"  {count:4} died at: {place}" for place, count in self.places.most_common())
        yield from (f"  reader {kind}: {count:,} reads, each of one state" for kind, count in reads.items())


@pytest.mark.parametrize(
    ("world", "kills"), [("sqlite", KILLS - KILLS // 3), ("postgres", KILLS // 3)], indirect=["world"]
)
def test_a_retry_completes_a_killed_run_and_no_reader_sees_a_part_of_it(
    world: World, kills: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    random, tally = Random(f"{SEED} {kills}"), Tally()  # noqa: S311 - kills, not secrets
    answer = world.run_to_end("first", DAYS, 0)
    with read_continuously(world, tmp_path) as reads:
        for number in count(1):
            if tally.kills["killed"] >= kills:
                break
            first = random.randrange(len(DAYS))
            days = DAYS[first : random.randint(first + 1, len(DAYS))]
            answer = kill_and_retry(world, f"k{number}", days, number, random, tally, answer)
            assert world.current_state() == world.states[-1]
        tally.removed_files += world.vacuum()
    world.require_complete()
    with capsys.disabled():
        print("\n" + "\n".join(tally.lines(reads)))  # noqa: T201 - the numbers are the point


def kill_and_retry(
    world: World,
    trigger: str,
    days: list[int],
    more: int,
    random: Random,
    tally: Tally,
    undisturbed: dict[str, Any],
) -> dict[str, Any]:
    """Kill a run one to three times, retry it, and check the result of the retry."""
    for _ in range(random.choice([1, 1, 2, 3])):
        how: dict[str, Any] = {"die_at": random.randint(1, len(undisturbed["moments"]))}
        if random.random() < 0.3:
            how = {"die_after_s": random.uniform(0, undisturbed["seconds"])}
        (answer,) = world.forks.run(world.job(trigger, days, more, **how))
        is_killed = answer["exit"] == -9
        tally.kills["killed" if is_killed else "had ended before"] += 1
        if is_killed:
            tally.places[place(answer["moments"]) if "die_at" in how else "a random time"] += 1
        assert world.current_state() in (world.states[-1], world.state_with(trigger, days, more))
    if random.random() < 0.15:
        tally.vacuums += 1
        tally.removed_files += world.vacuum()
    chunks = find_finished_chunks(world, trigger)
    final = world.run_to_end(trigger, days, more)
    tally.found[final["outcome"][0]] += 1
    assert {name: world.manifests(trigger)[name] for name in chunks} == chunks
    return final if final["outcome"][0] == "published" and not chunks else undisturbed


def find_finished_chunks(world: World, trigger: str) -> dict[str, int]:
    """Return the chunks that a retry must not run again: all their files exist."""
    plan = world.find_plan(trigger)
    if plan is None:
        return {}
    done = world.manifests(trigger)
    return {name: at for name, at in done.items() if is_staged(Manifest.read(plan.folder.path / "chunks" / name))}


def place(moments: list[str]) -> str:
    """Return the place where a run died as short text."""
    (moment,) = moments
    what, _, path = moment.partition(" /")
    words = what.split()
    for part in ("plan.json", "chunks", "verdict", "audit", "publication", "report", "__", "/runs/", "/checks/"):
        if part in path:
            return f"{words[0]} {part.strip('/')}"
    return f"{words[0]} {'windows' if '/clicks/' in moment else ''}" if "/" in moment else moment


@contextmanager
def read_continuously(world: World, folder: Path) -> Iterator[dict[str, int]]:
    """Read the table during the block; then count the reads, and check that the states were read in order."""
    reads: dict[str, int] = {}
    stop = folder / "stop"
    command = [sys.executable, str(HERE / "reader.py")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    readers = {
        kind: subprocess.Popen(
            [*command, kind, str(world.home.path), "clicks", str(folder / kind), str(stop)], env=environment
        )
        for kind in READERS
    }
    try:
        yield reads
    finally:
        stop.touch()
        codes = [reader.wait(timeout=120) for reader in readers.values()]
    assert codes == [0] * len(readers)
    for kind in READERS:
        states = [line.split() for line in (folder / kind).read_text().splitlines()]
        reads[kind] = sum(int(count) for count, _ in states)
        places = [world.states.index(state) for _, state in states]  # fails for an unexpected state
        assert places == sorted(places)
