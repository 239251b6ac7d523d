"""The cost of each command and page over published tables: seconds and peak memory of a separate process.

Each shape of published history (`benchmarks/history.py`) has a folder, which later benchmarks use again.
A day of 736 events follows the history. The benchmark plans, runs and publishes this day. Then it measures the
other commands.

It measures the wall clock, the processor seconds of the command's process, and the peak of its resident memory.
The last two exclude the Java process of `run`, because its memory is the same for any published history.
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

from backstream.eventtime.instants import DAY_MS, instant_text
from backstream.variables import DEFINITIONS_VARIABLE, HOME_VARIABLE, WAREHOUSE_VARIABLE
from benchmarks.history import kept, made
from benchmarks.history_shape import NAME, Place, Shape, key_of
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
_EXPLAIN = "explain one row"
_OF_A_RUN = (_REPORT, _DIFF)

Say = Callable[[str], None]


class Bar(NamedTuple):
    """The limits of a command: seconds, a multiple of the seconds on an empty table, and MB."""

    seconds: float | None
    times: float
    mb: float

    def __str__(self) -> str:
        seconds = "" if self.seconds is None else f"{self.seconds:g} s, "
        return f"at most {seconds}{self.times:g} x, {self.mb:g} MB"

    def is_met(self, first: Cost, last: Cost) -> bool:
        """Return whether a cost keeps the bar, compared with the cost on an empty table."""
        is_quick = self.seconds is None or last.cpu_s <= self.seconds
        return is_quick and last.cpu_s <= self.times * first.cpu_s and last.rss_mb <= self.mb


def bar_of(command: str) -> Bar:
    """Return the limits of a command. A run has no limit in seconds, because it uses Spark."""
    seconds = {_RUN: None, _EXPLAIN: 10.0}.get(command, 3.0)
    return Bar(seconds, 1.2 if command in _OF_A_RUN else 2.0, 400.0)


def costs(say: Say, folder: Path, rounds: int, shapes: Sequence[Shape] = SHAPES) -> list[Cost]:
    """Return the costs of all commands over all shapes, as medians of the rounds. `run` has only one round."""
    all_costs: list[Cost] = []
    for shape in shapes:
        say(f"{shape}: made in {folder}")
        place = made(folder, shape)
        with kept(place):
            for cost in _measure_shape(place, shape, rounds):
                say(f"{shape}: {cost.command}: {cost.cpu_s:.2f} s of processor, {cost.rss_mb:.0f} MB")
                all_costs.append(cost)
    return all_costs


def scaled(rows: int) -> tuple[Shape, ...]:
    """Return the shapes with at most `rows` rows. They keep the numbers of files and runs, which matter more."""
    share = min(1.0, rows / max(shape.rows for shape in SHAPES))
    return tuple(replace(shape, rows=round(shape.rows * share)) for shape in SHAPES)


@dataclass(frozen=True, slots=True)
class _Use:
    wall_s: float
    cpu_s: float
    rss_mb: float


def _measure_shape(place: Place, shape: Shape, rounds: int) -> Iterator[Cost]:
    for name, command in _commands(place, shape).items():
        times = 1 if name == _RUN else rounds
        uses = [_measure(command, place) for _ in range(times)]
        middle = {field: statistics.median(getattr(use, field) for use in uses) for field in ("wall_s", "cpu_s")}
        yield Cost(name, str(shape), rss_mb=max(use.rss_mb for use in uses), **middle)


def _commands(place: Place, shape: Shape) -> Mapping[str, Sequence[str]]:
    """Return the commands by name. The first two plan and run a day, and the others read this run."""
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
        _EXPLAIN: [*backstream, "explain", NAME, *_middle_row(shape)],
        "stale": [*backstream, "stale", definition],
        "days": [*backstream, "days", definition, *all_days],
        "status": [*backstream, "status"],
        "show --limit 20": [*backstream, "show", NAME, "--limit", "20"],
        **{page: [*visit, page] for page in VISITS},
    }


def _middle_row(shape: Shape) -> list[str]:
    """Return the options of the first row of the middle day; of the new day without others."""
    start_ms = shape.interval.start_ms + shape.days // 2 * DAY_MS
    return ["--window", instant_text(start_ms), "--key", f"key={key_of(0)}"]


def _range(since_ms: int, until_ms: int) -> list[str]:
    return ["--since", instant_text(since_ms)[:10], "--until", instant_text(until_ms)[:10]]


def _measure(command: Sequence[str], place: Place) -> _Use:
    """Measure the process of a command. Of its children, only those that it waits for count."""
    full_command = [sys.executable, "-m", "benchmarks.spent", *command]
    process = subprocess.run(
        full_command, env=_environment(place), cwd=place.folder, capture_output=True, text=True, check=False
    )
    if process.returncode:
        msg = f"{' '.join(command)} ended with {process.returncode}\n{process.stderr}"
        raise RuntimeError(msg)
    return _Use(**json.loads(process.stdout))


def _environment(place: Place) -> dict[str, str]:
    variables = {name: value for name, value in os.environ.items() if name != WAREHOUSE_VARIABLE}
    paths = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [variables.get("PYTHONPATH")])])
    return variables | {
        HOME_VARIABLE: str(place.home.path),
        DEFINITIONS_VARIABLE: str(place.definitions),
        _SETTING: _HEAP,
        "PYTHONPATH": paths,
    }
