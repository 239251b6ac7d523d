"""A lake whose runs are killed, what it must hold after each, and those who read it all the while."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from tests.crash.child import made_of

from backstream.eventtime.instants import DAY_MS, epoch_ms
from backstream.lake.ledger import Status, list_runs
from backstream.lake.maintenance import vacuum_tables
from backstream.lake.reader import load_published_rows, load_rows
from backstream.runs.home import CATALOG_VARIABLE, Home
from backstream.runs.manifest import Manifest
from backstream.runs.plan import Plan
from backstream.runs.table_schemas import WINDOWS

Row = tuple[int, str, int, str]
"""Start of the window, page, clicks, and the run that says so."""
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Source:
    """What Spark made of a history, once: the plan of its run, and the definition."""

    plan: Plan
    definition: Path

    def rows(self, day_ms: int, run_id: str, more: int) -> list[Row]:
        """What a run says of a day."""
        _, later_ms = made_of(self.plan, day_ms)
        files = [file.path for manifest in self.manifests(day_ms) for file in manifest.files[WINDOWS]]
        rows = [row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()]
        return [
            (epoch_ms(row["window_start"]) + later_ms, row["page"], row["clicks"] + more, run_id) for row in rows
        ]

    def count(self, days: Iterable[int], suffix: str) -> int:
        """How many rows the chunks of some days staged for a table."""
        return sum(file.rows for day in days for each in self.manifests(day) for file in each.files[suffix])

    def events(self, days: Iterable[int]) -> int:
        """How many events the chunks of some days read."""
        return sum(each.events_read for day in days for each in self.manifests(day))

    def manifests(self, day_ms: int) -> list[Manifest]:
        """What the chunk of a day left."""
        made, _ = made_of(self.plan, day_ms)
        return [Manifest.read(self.plan.folder.manifest(made.chunk_id))]


@dataclass
class Forks:
    """The process that forks the runs."""

    folder: Path
    process: subprocess.Popen[str] = field(init=False)

    def __post_init__(self) -> None:
        """Start it; it has imported all that a run needs when it answers first."""
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        with (self.folder / "forks.log").open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, HERE / "forks.py"],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def run(self, *jobs: dict[str, Any]) -> list[dict[str, Any]]:
        """Have the jobs done at the same moment, each in a child of its own; the answers in their order."""
        told = [
            {"said": str(self.folder / f"said-{number}"), "moments": str(self.folder / f"moments-{number}")} | job
            for number, job in enumerate(jobs)
        ]
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps(told) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, (self.folder / "forks.log").read_text()
        answers: list[dict[str, Any]] = json.loads(line)
        return answers

    def close(self) -> None:
        """End it."""
        self.process.communicate(timeout=120)


@dataclass
class World:
    """One lake; `days` is what must be published: the rows of each day that any run has published."""

    home: Home
    source: Source
    forks: Forks
    catalog_uri: str | None
    days: dict[int, list[Row]] = field(default_factory=dict)
    states: list[str] = field(default_factory=list)
    runs: dict[str, list[int]] = field(default_factory=dict)
    restated: int = 0

    def __post_init__(self) -> None:
        """An empty lake is a state, too."""
        self.states.append(hash_of([]))

    def job(self, trigger: str, days: Sequence[int], more: int, **options: Any) -> dict[str, Any]:
        """A run of some days that follow one another."""
        environment = {CATALOG_VARIABLE: self.catalog_uri} if self.catalog_uri else {}
        return {
            "definition": str(self.source.definition),
            "home": str(self.home.path),
            "since_ms": days[0],
            "until_ms": days[-1] + DAY_MS,
            "trigger": trigger,
            "source": str(self.source.plan.folder.plan),
            "more": more,
            "environment": environment,
        } | options

    def published(self, run_id: str, days: Sequence[int], more: int) -> None:
        """From now on the lake must hold this."""
        new = {day: self.source.rows(day, run_id, more) for day in days}
        for day, said in new.items():
            old = {row[:2]: row[2] for row in self.days.get(day, [])}
            self.restated += sum(old.get(row[:2], row[2]) != row[2] for row in said)
        self.days |= new
        self.runs[run_id] = list(days)
        self.states.append(hash_of([row for rows in self.days.values() for row in rows]))

    def ran(self, trigger: str, days: Sequence[int], more: int, **options: Any) -> dict[str, Any]:
        """A run to its end, whatever was done of it before."""
        (answer,) = self.forks.run(self.job(trigger, days, more, **options))
        assert answer["exit"] == 0, answer
        assert answer["said"][0] in ("published", "already"), answer
        self.published(answer["said"][1], days, more)
        return answer

    def seen(self) -> str:
        """What a reader finds now."""
        table = load_rows(self.home, "clicks").to_pylist()
        return hash_of((epoch_ms(row["window_start"]), row["page"], row["clicks"], row["run_id"]) for row in table)

    def state_with(self, trigger: str, days: Sequence[int], more: int) -> str:
        """What a reader finds when a run has been published on top."""
        plan = self.plan_of(trigger)
        if plan is None:
            return self.states[-1]
        new = self.days | {day: self.source.rows(day, plan.run_id, more) for day in days}
        return hash_of([row for each in new.values() for row in each])

    def vacuumed(self) -> int:
        """Remove what nothing reaches, however young; what is published stays as it is."""
        before = self.seen()
        removed = sum(each.files for each in vacuum_tables(self.home, "clicks", 0))
        assert self.seen() == before
        return removed

    def require_all_there(self) -> None:
        """Side tables, ledger and folders hold each run once, and no more than that."""
        for suffix in self.source.plan.tables:
            wanted = sum(self.source.count(days, suffix) for days in self.runs.values())
            if suffix != WINDOWS:
                assert load_rows(self.home, f"clicks__{suffix}").num_rows == wanted, suffix
                assert load_published_rows(self.home, "clicks", suffix).num_rows == wanted, suffix
        assert load_published_rows(self.home, "clicks", "restatements").num_rows == self.restated
        ledger = [row for row in list_runs(self.home) if row.status is Status.PUBLISHED]
        assert Counter(row.run_id for row in ledger) == Counter(list(self.runs))
        assert sum(row.events_read or 0 for row in ledger) == sum(map(self.source.events, self.runs.values()))
        assert sum(row.rows or 0 for row in ledger) == sum(
            self.source.count(days, WINDOWS) for days in self.runs.values()
        )
        assert len(list((self.home.path / "runs/clicks").glob("*/report.html"))) == len(self.runs)

    def plan_of(self, trigger: str) -> Plan | None:
        """The plan that a run has written; None when it has not come so far."""
        found = list((self.home.path / "runs").glob(f"*/{trigger}.*/plan.json"))
        return Plan.read(found[0]) if found else None

    def manifests(self, trigger: str) -> dict[str, int]:
        """When each finished chunk of a run was finished, by its manifest."""
        files = (self.home.path / "runs").glob(f"*/{trigger}.*/chunks/*.json")
        return {file.name: file.stat().st_mtime_ns for file in files if not file.name.startswith(".")}


def hash_of(rows: Iterable[Row]) -> str:
    """The same for the same rows in any order."""
    return hashlib.sha256(json.dumps(sorted(rows)).encode()).hexdigest()[:16]
