"""Runs killed at random moments: a retry heals each, and nobody has ever seen half of one.

`BACKSTREAM_KILLS` says how many kills there are, on both databases together, `BACKSTREAM_SEED` says which.
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

from backstream.runs.manifest import Manifest

KILLS = int(os.environ.get("BACKSTREAM_KILLS", "15"))
SEED = os.environ.get("BACKSTREAM_SEED", "1")
READERS = ("pyiceberg", "duckdb", "spark")


@dataclass
class Tally:
    """What came of the kills."""

    kills: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    places: Counter[str] = field(default_factory=Counter)
    vacuums: int = 0
    removed_files: int = 0

    def lines(self, seen: dict[str, int]) -> Iterator[str]:
        """For people."""
        yield f"seed {SEED}: {sum(self.kills.values())} attempts killed or not: {dict(self.kills)}"
        yield f"  the last retry found the run {dict(self.found)}"
        yield f"  vacuum between kill and retry {self.vacuums} times, {self.removed_files} files removed in all"
        yield from (f"  {count:4} died at: {place}" for place, count in self.places.most_common())
        yield from (f"  reader {kind}: {count:,} reads, each of one state" for kind, count in seen.items())


@pytest.mark.parametrize(
    ("world", "kills"), [("sqlite", KILLS - KILLS // 3), ("postgres", KILLS // 3)], indirect=["world"]
)
def test_a_killed_run_is_healed_by_a_retry_and_no_reader_sees_a_mix(
    world: World, kills: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    random, tally = Random(f"{SEED} {kills}"), Tally()  # noqa: S311 - kills, not secrets
    answer = world.ran("first", DAYS, 0)
    with watched(world, tmp_path) as seen:
        for number in count(1):
            if tally.kills["killed"] >= kills:
                break
            first = random.randrange(len(DAYS))
            days = DAYS[first : random.randint(first + 1, len(DAYS))]
            answer = killed_and_retried(world, f"k{number}", days, number, random, tally, answer)
            assert world.seen() == world.states[-1]
        tally.removed_files += world.vacuumed()
    world.require_all_there()
    with capsys.disabled():
        print("\n" + "\n".join(tally.lines(seen)))  # noqa: T201 - the numbers are the point


def killed_and_retried(
    world: World,
    trigger: str,
    days: list[int],
    more: int,
    random: Random,
    tally: Tally,
    undisturbed: dict[str, Any],
) -> dict[str, Any]:
    """Kill a run, some of them more than once, retry it, and check what the retry did."""
    for _ in range(random.choice([1, 1, 2, 3])):
        how: dict[str, Any] = {"die_at": random.randint(1, len(undisturbed["moments"]))}
        if random.random() < 0.3:
            how = {"die_after_s": random.uniform(0, undisturbed["seconds"])}
        (answer,) = world.forks.run(world.job(trigger, days, more, **how))
        is_killed = answer["exit"] == -9
        tally.kills["killed" if is_killed else "had ended before"] += 1
        if is_killed:
            tally.places[place(answer["moments"]) if "die_at" in how else "a random time"] += 1
        assert world.seen() in (world.states[-1], world.state_with(trigger, days, more))
    if random.random() < 0.15:
        tally.vacuums += 1
        tally.removed_files += world.vacuumed()
    chunks = done_chunks(world, trigger)
    final = world.ran(trigger, days, more)
    tally.found[final["said"][0]] += 1
    assert {name: world.manifests(trigger)[name] for name in chunks} == chunks
    return final if final["said"][0] == "published" and not chunks else undisturbed


def done_chunks(world: World, trigger: str) -> dict[str, int]:
    """The chunks that a retry must not run again: those whose files are all there."""
    plan = world.plan_of(trigger)
    if plan is None:
        return {}
    done = world.manifests(trigger)
    return {name: at for name, at in done.items() if Manifest.read(plan.folder.path / "chunks" / name).is_staged()}


def place(moments: list[str]) -> str:
    """Where a run died, in few words."""
    (moment,) = moments
    what, _, path = moment.partition(" /")
    words = what.split()
    for part in ("plan.json", "chunks", "verdict", "audit", "publication", "report", "__", "/runs/", "/checks/"):
        if part in path:
            return f"{words[0]} {part.strip('/')}"
    return f"{words[0]} {'windows' if '/clicks/' in moment else ''}" if "/" in moment else moment


@contextmanager
def watched(world: World, folder: Path) -> Iterator[dict[str, int]]:
    """Read all the while; afterwards, how often each reader did, and that it saw states in their order only."""
    seen: dict[str, int] = {}
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
        yield seen
    finally:
        stop.touch()
        codes = [each.wait(timeout=120) for each in readers.values()]
    assert codes == [0] * len(readers)
    for kind in READERS:
        found = [line.split() for line in (folder / kind).read_text().splitlines()]
        seen[kind] = sum(int(count) for count, _ in found)
        places = [world.states.index(state) for _, state in found]  # fails on a state that never was
        assert places == sorted(places)
