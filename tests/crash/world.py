"""Model a lake whose runs are killed, and the rows that it must have after each run."""

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
from tests.crash.child import find_source_chunk

from backstream.eventtime.instants import DAY_MS, epoch_ms
from backstream.lake.maintenance import vacuum_tables
from backstream.lake.reader import load_published_rows, load_rows
from backstream.lake.run_rows import list_runs
from backstream.runs.home import Home
from backstream.runs.manifest import Manifest
from backstream.runs.plan import Plan
from backstream.runs.status import RunStatus
from backstream.runs.table_schemas import WINDOWS
from backstream.variables import CATALOG_VARIABLE

Row = tuple[int, str, int, str]
"""Start of the window, page, clicks, and the run that published them."""
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Source:
    """A run of a history on Spark: its plan and its definition."""

    plan: Plan
    definition: Path

    def rows(self, day_ms: int, run_id: str, more: int) -> list[Row]:
        """Return the rows that a run publishes for a day."""
        _, shift_ms = find_source_chunk(self.plan, day_ms)
        files = [file.path for manifest in self.manifests(day_ms) for file in manifest.files[WINDOWS]]
        rows = [row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()]
        return [
            (epoch_ms(row["window_start"]) + shift_ms, row["page"], row["clicks"] + more, run_id) for row in rows
        ]

    def count(self, days: Iterable[int], suffix: str) -> int:
        """Return the number of rows that the chunks of these days staged for a table."""
        return sum(file.rows for day in days for chunk in self.manifests(day) for file in chunk.files[suffix])

    def events(self, days: Iterable[int]) -> int:
        """Return the number of events that the chunks of these days read."""
        return sum(chunk.events_read for day in days for chunk in self.manifests(day))

    def manifests(self, day_ms: int) -> list[Manifest]:
        """Return the manifest of the chunk of a day."""
        chunk, _ = find_source_chunk(self.plan, day_ms)
        return [Manifest.read(self.plan.folder.manifest(chunk.chunk_id))]


@dataclass
class Forks:
    """The process that forks the runs."""

    folder: Path
    process: subprocess.Popen[str] = field(init=False)

    def __post_init__(self) -> None:
        """Start the process; it has imported all modules when it answers for the first time."""
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
        """Run the jobs at the same moment, each in a child process, and return their answers in order."""
        jobs_with_files = [
            {"outcome": str(self.folder / f"outcome-{number}"), "moments": str(self.folder / f"moments-{number}")}
            | job
            for number, job in enumerate(jobs)
        ]
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps(jobs_with_files) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, (self.folder / "forks.log").read_text()
        answers: list[dict[str, Any]] = json.loads(line)
        return answers

    def close(self) -> None:
        """Stop the process."""
        self.process.communicate(timeout=120)


@dataclass
class World:
    """A lake with its expected content: `days` has the published rows per day, `states` their hashes over time."""

    home: Home
    source: Source
    forks: Forks
    catalog_uri: str | None
    days: dict[int, list[Row]] = field(default_factory=dict)
    states: list[str] = field(default_factory=list)
    runs: dict[str, list[int]] = field(default_factory=dict)
    restated: int = 0

    def __post_init__(self) -> None:
        """Add the state of the empty lake."""
        self.states.append(hash_rows([]))

    def job(self, trigger: str, days: Sequence[int], more: int, **options: Any) -> dict[str, Any]:
        """Return a job: a run of adjacent days."""
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

    def expect_published(self, run_id: str, days: Sequence[int], more: int) -> None:
        """Add the rows of a run to the expected content."""
        new = {day: self.source.rows(day, run_id, more) for day in days}
        for day, rows in new.items():
            old = {row[:2]: row[2] for row in self.days.get(day, [])}
            self.restated += sum(old.get(row[:2], row[2]) != row[2] for row in rows)
        self.days |= new
        self.runs[run_id] = list(days)
        self.states.append(hash_rows([row for rows in self.days.values() for row in rows]))

    def run_to_end(self, trigger: str, days: Sequence[int], more: int, **options: Any) -> dict[str, Any]:
        """Run or resume a job until it is published."""
        (answer,) = self.forks.run(self.job(trigger, days, more, **options))
        assert answer["exit"] == 0, answer
        assert answer["outcome"][0] in ("published", "already"), answer
        self.expect_published(answer["outcome"][1], days, more)
        return answer

    def current_state(self) -> str:
        """Return the hash of the published rows."""
        table = load_rows(self.home, "clicks").to_pylist()
        return hash_rows(
            (epoch_ms(row["window_start"]), row["page"], row["clicks"], row["run_id"]) for row in table
        )

    def state_with(self, trigger: str, days: Sequence[int], more: int) -> str:
        """Return the hash of the published rows after the publication of a run."""
        plan = self.find_plan(trigger)
        if plan is None:
            return self.states[-1]
        new = self.days | {day: self.source.rows(day, plan.run_id, more) for day in days}
        return hash_rows([row for rows in new.values() for row in rows])

    def vacuum(self) -> int:
        """Vacuum without a grace period, check the published rows, and return the number of removed files."""
        before = self.current_state()
        removed = sum(table.files for table in vacuum_tables(self.home, "clicks", 0))
        assert self.current_state() == before
        return removed

    def require_complete(self) -> None:
        """Check that side tables, ledger and folders have each run exactly once."""
        for suffix in self.source.plan.tables:
            expected = sum(self.source.count(days, suffix) for days in self.runs.values())
            if suffix != WINDOWS:
                assert load_rows(self.home, f"clicks__{suffix}").num_rows == expected, suffix
                assert load_published_rows(self.home, "clicks", suffix).num_rows == expected, suffix
        assert load_published_rows(self.home, "clicks", "restatements").num_rows == self.restated
        ledger = [row for row in list_runs(self.home) if row.status is RunStatus.PUBLISHED]
        assert Counter(row.run_id for row in ledger) == Counter(list(self.runs))
        assert sum(row.events_read or 0 for row in ledger) == sum(map(self.source.events, self.runs.values()))
        assert sum(row.rows or 0 for row in ledger) == sum(
            self.source.count(days, WINDOWS) for days in self.runs.values()
        )
        assert len(list((self.home.path / "runs/clicks").glob("*/report.html"))) == len(self.runs)

    def find_plan(self, trigger: str) -> Plan | None:
        """Return the plan of a run; None if it has not written one."""
        paths = list((self.home.path / "runs").glob(f"*/{trigger}.*/plan.json"))
        return Plan.read(paths[0]) if paths else None

    def manifests(self, trigger: str) -> dict[str, int]:
        """Return the modification time of the manifest of each finished chunk."""
        files = (self.home.path / "runs").glob(f"*/{trigger}.*/chunks/*.json")
        return {file.name: file.stat().st_mtime_ns for file in files if not file.name.startswith(".")}


def hash_rows(rows: Iterable[Row]) -> str:
    """Return a hash of rows that does not depend on their order."""
    return hashlib.sha256(json.dumps(sorted(rows)).encode()).hexdigest()[:16]
