"""Run the jobs of some runs, each with one fault, in one application that spark-submit starts on a cluster.

spark-submit tests/chain/submitted.py FAULT PLAN.json [FAULT PLAN.json ..]
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from unittest.mock import patch

import psutil
from pyspark.sql import SparkSession
from tests.chain.breaks import WITHIN, broken_write, flipped_fate, lost_row

from backstream.jobs import replay
from backstream.runs.plan import Plan

END = "--- the job of one run has ended with status "
"""Start of the line that is printed after each job."""


def kill_an_executor(_: Path) -> None:
    """Kill an executor, as if its machine failed after its tasks had written."""
    executors = [process for process in psutil.process_iter(["cmdline"]) if _is_executor(process)]
    executors[0].send_signal(signal.SIGKILL)


def _is_executor(process: psutil.Process) -> bool:
    """Return whether a process is an executor of this application; others may run on the same machine."""
    words = process.info["cmdline"] or []
    is_executor = any("CoarseGrainedExecutorBackend" in word for word in words)
    return is_executor and any(word.endswith(f"@{_driver_address()}") for word in words)


def _driver_address() -> str:
    settings = SparkSession.builder.getOrCreate().sparkContext.getConf()
    return f"{settings.get('spark.driver.host')}:{settings.get('spark.driver.port')}"


FAULTS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    **{name: partial(broken_write, "", change) for name, change in WITHIN.items()},
    "none": ExitStack,
    "an executor killed after writing": lambda: broken_write("", kill_an_executor),
    "no marker is asked for": lambda: patch("backstream.spark.chunk_job.require_shared_folder", lambda *_: None),
    "a row lost": lambda: lost_row("panes"),
    "a fate flipped": flipped_fate,
}
"""The faults by their names on the command line."""


def run(fault: str, file: Path) -> int:
    """Run the job of all chunks of a plan with a fault; return its status."""
    chunks = (word for chunk in Plan.read(file).chunks for word in ("--chunk", chunk.chunk_id))
    with FAULTS[fault]():
        return replay.main(["--plan", str(file), *chunks])


if __name__ == "__main__":
    for fault, plan in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        print(f"\n{END}{run(fault, Path(plan))}", flush=True)  # noqa: T201 - its caller reads it
