"""Measurements and their machine. A JSON file keeps them, so that a later command can write the page."""

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
class Cost:
    """The cost of one command beside a published table of some shape. `rss_mb` is the peak of its memory."""

    command: str
    shape: str
    wall_s: float
    cpu_s: float
    rss_mb: float


@dataclass(frozen=True, slots=True)
class Runs:
    """The measured rounds of one job.

    Each round maps a measure to a number. All rounds have `seconds`. If they are known, a round also has:

    * `rss_mb`, the peak of all processes, and `heap_mb`, the peak of the JVM
    * `spilled_mb`, and `collected_mb`, the results that tasks send to the driver
    * `longest_task_share`, as a part of the time of all tasks
    * `dropped`, the records behind the watermark of a stream, or groups in Structured Streaming
    * `batches`

    A whole job also has `processor_s` (of all its processes), `events` of its input, and `rows` of its result.
    """

    engine: str
    reads: str
    settings: str
    rounds: list[dict[str, float]] = field(default_factory=list)

    def values(self, measure: str) -> list[float]:
        """Return one number per round."""
        return [entry[measure] for entry in self.rounds]

    def median(self, measure: str) -> float | None:
        """Return the median of all rounds, or None if the measure is unknown for this job."""
        if any(measure not in entry for entry in self.rounds):
            return None
        return statistics.median(self.values(measure))

    def peak(self, measure: str) -> float | None:
        """Return the greatest number of all rounds, or None if the measure is unknown for this job."""
        if any(measure not in entry for entry in self.rounds):
            return None
        return max(self.values(measure))


@dataclass(frozen=True, slots=True)
class Results:
    """One run of the benchmark. `failed` maps a peer, or a whole job, to the reason for its failure."""

    rows: int
    rounds: int
    heap: str
    measured_on: str
    machine: Mapping[str, str]
    runs: dict[str, Runs] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    disagreements: list[str] = field(default_factory=list)
    costs: list[Cost] = field(default_factory=list)
    jobs: dict[str, Runs] = field(default_factory=dict)
    """Whole jobs, from the start of a process to its exit. `runs` has the measurements of a warm session."""

    def write(self, path: Path) -> None:
        """Write the results as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")

    def joined(self, other: Self) -> Self:
        """Return these results, joined with those of other jobs. Both have the same rows and the same machine."""
        return replace(
            self,
            runs=self.runs | other.runs,
            failed=self.failed | other.failed,
            disagreements=self.disagreements + other.disagreements,
            costs=self.costs + other.costs,
            jobs=self.jobs | other.jobs,
        )

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the results in a file.

        Raises:
            FileNotFoundError: if the file is absent.
        """
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        runs = {name: Runs(**entry) for name, entry in content["runs"].items()}
        costs = [Cost(**entry) for entry in content.get("costs", ())]
        jobs = {name: Runs(**entry) for name, entry in content.get("jobs", {}).items()}
        parts = {"runs": runs, "costs": costs, "jobs": jobs}
        return cls(**content | parts)


def today() -> str:
    """Return the date in UTC, for readers."""
    return datetime.now(UTC).date().isoformat()


def machine(spark: SparkSession) -> dict[str, str]:
    """Return the facts about the machine and its software, for readers."""
    jvm: Any = spark.sparkContext._gateway.jvm  # type: ignore[union-attr]  # noqa: SLF001 - PySpark has no public way to the JVM
    return computer() | {
        "java": str(jvm.System.getProperty("java.version")),
        "python": platform.python_version(),
        "spark": pyspark.__version__,
    }


def computer() -> dict[str, str]:
    """Return the facts about the machine, for readers of results without Spark."""
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
