"""What each command and page costs, however much is published: seconds and peak memory of a process of its own.

Each shape of published history (`benchmarks/history.py`) lies in a folder that is kept for the next time. A day of
736 events comes after it, which is planned, run and published; then all else is asked for. Measured are the wall
clock, the processor seconds of the command's process and its peak resident memory; Java, which `run` starts, is
not in the last two, since it holds the same whatever is published.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from backstream.eventtime.instants import instant_text
from backstream.runs.home import DEFINITIONS_VARIABLE, HOME_VARIABLE, WAREHOUSE_VARIABLE
from benchmarks.history import NAME, Place, Shape, kept, made
from benchmarks.results import Cost
from benchmarks.visit import VISITS

SHAPES = (
    Shape(),
    Shape(10_000_000, 30, 10),
    Shape(100_000_000, 30, 10),
    Shape(100_000_000, 3_000, 1_000),
)
_HEAP = "1g"
_SETTING = "BACKSTREAM_DRIVER_MEMORY"
_PLAN, _RUN, _REPORT, _DIFF = "plan", "run of one small day", "report of that run", "diff of that run"
_OF_A_RUN = (_REPORT, _DIFF)

Say = Callable[[str], None]


class Bar(NamedTuple):
    """What is asked of a command: at most so many seconds, so many times those on an empty table, so many MB."""

    seconds: float | None
    times: float
    mb: float

    def __str__(self) -> str:
        seconds = "" if self.seconds is None else f"{self.seconds:g} s, "
        return f"at most {seconds}{self.times:g} x, {self.mb:g} MB"

    def is_met(self, first: Cost, last: Cost) -> bool:
        """Whether a cost keeps the bar, beside the same on an empty table."""
        is_quick = self.seconds is None or last.cpu_s <= self.seconds
        return is_quick and last.cpu_s <= self.times * first.cpu_s and last.rss_mb <= self.mb


def bar_of(command: str) -> Bar:
    """What is asked of a command; of a run, which works with Spark, no seconds."""
    seconds = None if command == _RUN else 3.0
    return Bar(seconds, 1.2 if command in _OF_A_RUN else 2.0, 400.0)


def costs(say: Say, folder: Path, rounds: int, shapes: Sequence[Shape] = SHAPES) -> list[Cost]:
    """All commands over all shapes; each the median of the rounds, but for the one run."""
    found: list[Cost] = []
    for shape in shapes:
        say(f"{shape}: made in {folder}")
        place = made(folder, shape)
        with kept(place):
            for cost in _of_shape(place, shape, rounds):
                say(f"{shape}: {cost.command}: {cost.cpu_s:.2f} s of processor, {cost.rss_mb:.0f} MB")
                found.append(cost)
    return found


def scaled(rows: int) -> tuple[Shape, ...]:
    """The shapes with at most so many rows: files and runs, whose number matters more, stay as many."""
    share = min(1.0, rows / max(shape.rows for shape in SHAPES))
    return tuple(replace(shape, rows=round(shape.rows * share)) for shape in SHAPES)


@dataclass(frozen=True, slots=True)
class _Measured:
    wall_s: float
    cpu_s: float
    rss_mb: float


def _of_shape(place: Place, shape: Shape, rounds: int) -> Iterator[Cost]:
    for name, command in _commands(place, shape).items():
        times = 1 if name == _RUN else rounds
        each = [_measured(command, place) for _ in range(times)]
        middle = {field: statistics.median(getattr(one, field) for one in each) for field in ("wall_s", "cpu_s")}
        yield Cost(name, str(shape), rss_mb=max(one.rss_mb for one in each), **middle)


def _commands(place: Place, shape: Shape) -> Mapping[str, Sequence[str]]:
    """By name; what is planned is run, and that run is what the others are asked about."""
    backstream = [sys.executable, "-m", "backstream.cli"]
    definition = str(place.definition)
    day = _range(shape.new_day.start_ms, shape.new_day.end_ms)
    all_days = _range(shape.interval.start_ms, shape.new_day.end_ms)
    visit = [sys.executable, "-m", "benchmarks.visit", NAME]
    return {
        _PLAN: [*backstream, "plan", definition, *day],
        _RUN: [*backstream, "run", definition, *day],
        _REPORT: [*backstream, "report", definition, *day],
        _DIFF: [*backstream, "diff", definition, *day],
        "stale": [*backstream, "stale", definition],
        "days": [*backstream, "days", definition, *all_days],
        "status": [*backstream, "status"],
        "show --limit 20": [*backstream, "show", NAME, "--limit", "20"],
        **{page: [*visit, page] for page in VISITS},
    }


def _range(since_ms: int, until_ms: int) -> list[str]:
    return ["--since", instant_text(since_ms)[:10], "--until", instant_text(until_ms)[:10]]


def _measured(command: Sequence[str], place: Place) -> _Measured:
    """Of the process itself: what it has started counts only where it was waited for."""
    whole = [sys.executable, "-m", "benchmarks.spent", *command]
    done = subprocess.run(
        whole, env=_environment(place), cwd=place.folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        msg = f"{' '.join(command)} ended with {done.returncode}\n{done.stderr}"
        raise RuntimeError(msg)
    return _Measured(**json.loads(done.stdout))


def _environment(place: Place) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name != WAREHOUSE_VARIABLE}
    paths = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [inherited.get("PYTHONPATH")])])
    return inherited | {
        HOME_VARIABLE: str(place.home.path),
        DEFINITIONS_VARIABLE: str(place.definitions),
        _SETTING: _HEAP,
        "PYTHONPATH": paths,
    }
