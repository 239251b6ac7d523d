"""What was measured, where: kept as JSON, so that a page can be made from it again."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import psutil
import pyspark
from pyspark.sql import SparkSession

from backstream.spark.java import huge_page_options

_GIBIBYTE = 1024**3


@dataclass(frozen=True, slots=True)
class Figure:
    """One thing measured by itself: `limit` is the most that is asked for, None where nothing is."""

    what: str
    value: float
    unit: str
    limit: float | None = None

    @property
    def is_met(self) -> bool | None:
        """Whether the limit is kept; None when nothing is asked."""
        return None if self.limit is None else self.value <= self.limit


@dataclass(frozen=True, slots=True)
class Cost:
    """What one command took where a table of some shape is published; `rss_mb` is its peak."""

    command: str
    shape: str
    wall_s: float
    cpu_s: float
    rss_mb: float


@dataclass(frozen=True, slots=True)
class TaskTimes:
    """When a task of a run in Airflow was queued, started, and ended: seconds after the run was triggered.

    `took_s` is from start to end. `load` is the load average of the last minute when the run was triggered.
    """

    round: int
    task: str
    queued_s: float
    started_s: float
    ended_s: float
    took_s: float
    load: float


@dataclass(frozen=True, slots=True)
class Runs:
    """The measured rounds of one job.

    Each round maps a measure to a number: `seconds`, and where it is known `rss_mb` (peak of all processes),
    `heap_mb` (peak of the JVM), `spilled_mb`, `collected_mb` (sent to the driver), `longest_task_share` (of the
    time of all tasks), `dropped` (behind a stream's watermark; in Structured Streaming groups), `batches`; of a
    whole job `processor_s` (of all its processes), `events` that it reads and `rows` that it makes.
    """

    engine: str
    reads: str
    settings: str
    rounds: list[dict[str, float]] = field(default_factory=list)

    def values(self, measure: str) -> list[float]:
        """One number per round."""
        return [each[measure] for each in self.rounds]

    def median(self, measure: str) -> float | None:
        """None when the measure is unknown for this job."""
        if any(measure not in each for each in self.rounds):
            return None
        return statistics.median(self.values(measure))

    def peak(self, measure: str) -> float | None:
        """The greatest of all rounds; None when the measure is unknown for this job."""
        if any(measure not in each for each in self.rounds):
            return None
        return max(self.values(measure))


@dataclass(frozen=True, slots=True)
class Results:
    """One run of the benchmark. `failed` maps a peer, or a whole job, to the reason why it was not measured."""

    rows: int
    rounds: int
    heap: str
    measured_on: str
    machine: Mapping[str, str]
    runs: dict[str, Runs] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    disagreements: list[str] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    costs: list[Cost] = field(default_factory=list)
    tasks: list[TaskTimes] = field(default_factory=list)
    jobs: dict[str, Runs] = field(default_factory=dict)
    """Whole jobs, from the start of a process to its exit; `runs` has what a warm session was measured with."""

    def write(self, path: Path) -> None:
        """Write as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")

    def joined(self, other: Self) -> Self:
        """These and what was measured of other jobs, with the same rows and on the same machine."""
        return replace(
            self,
            runs=self.runs | other.runs,
            failed=self.failed | other.failed,
            disagreements=self.disagreements + other.disagreements,
            figures=self.figures + other.figures,
            costs=self.costs + other.costs,
            tasks=self.tasks + other.tasks,
            jobs=self.jobs | other.jobs,
        )

    @classmethod
    def read(cls, path: Path) -> Self:
        """What was written.

        Raises:
            FileNotFoundError: when nothing was.
        """
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        runs = {name: Runs(**each) for name, each in content["runs"].items()}
        figures = [Figure(**each) for each in content.get("figures", ())]
        costs = [Cost(**each) for each in content.get("costs", ())]
        tasks = [TaskTimes(**each) for each in content.get("tasks", ())]
        jobs = {name: Runs(**each) for name, each in content.get("jobs", {}).items()}
        parts = {"runs": runs, "figures": figures, "costs": costs, "tasks": tasks, "jobs": jobs}
        return cls(**content | parts)


def today() -> str:
    """The date, for readers."""
    return datetime.now(UTC).date().isoformat()


def machine(spark: SparkSession) -> dict[str, str]:
    """What a reader must know of it."""
    jvm: Any = spark.sparkContext._gateway.jvm  # type: ignore[union-attr]  # noqa: SLF001 - PySpark has no public way to the JVM
    return computer() | {
        "java": str(jvm.System.getProperty("java.version")),
        "python": platform.python_version(),
        "spark": pyspark.__version__,
    }


def computer() -> dict[str, str]:
    """What a reader must know of it where no Spark takes part."""
    return {
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "memory": f"{psutil.virtual_memory().total / _GIBIBYTE:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "huge pages": huge_page_options() or "not told",
    }


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
