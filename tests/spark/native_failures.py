"""Run native tasks that are killed, many, or canceled, in a Spark application that repeats tasks.

`test_native_failures.py` runs it as a process, because the application of the other tests repeats no task.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Timer
from typing import Any, overload

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from tests.native.test_task_runner import DAY, READING, task_of, write_events

from backstream.chunks.tasks import run_native_tasks
from backstream.eventtime.instants import HOUR_MS, SECOND_MS
from backstream.eventtime.windows import Sliding
from backstream.native.task import RestTask, WindowTask
from backstream.spark.session import SMALL_DATA_SETTINGS, local_session
from backstream.spark.tasks import SparkTasks
from backstream.watermarks.firing_times import WindowGrid

ATTEMPTS, MANY = 3, 200


class WatchedFiles(Sequence[str]):
    """The files of a task. They record its processes, of which the first ones are killed, as by a crash."""

    def __init__(self, files: Sequence[str], processes: Path, killed: int = 0) -> None:
        self._files, self._processes, self._killed = files, processes, killed
        processes.mkdir(exist_ok=True)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        return self._files[index]

    def __len__(self) -> int:
        return len(self._files)

    def __iter__(self) -> Iterator[str]:
        earlier = len(self.processes())
        (self._processes / str(os.getpid())).touch()
        if earlier < self._killed:
            os.kill(os.getpid(), signal.SIGKILL)
        return iter(self._files)

    def processes(self) -> list[int]:
        """Return the processes that have read the list."""
        return [int(file.name) for file in self._processes.iterdir()]


def main(folder: Path) -> None:
    """Print the results as JSON."""
    file = folder / "events.parquet"
    rows = write_events(file, rows=1_000, keys=5).num_rows
    spark = local_session(
        "failures", {**SMALL_DATA_SETTINGS, "spark.master": f"local[2,{ATTEMPTS}]"}, input_bytes=0
    )
    rest = RestTask(0, READING, DAY, [str(file)], {}, str(folder / "counts.parquet"), 64)
    outside = replace(rest, interval=replace(DAY, end_ms=DAY.start_ms + HOUR_MS))
    many = run_native_tasks(SparkTasks(spark), [replace(outside, number=number) for number in range(MANY)])
    results = {
        "rows": rows,
        "many": [len(many), sum(result.scanned for result in many.values())],
        "one": run_native_tasks(SparkTasks(spark), [outside])[0].scanned,
        "killed once": _killed(spark, outside, folder / "once", 1),
        "killed always": _killed(spark, outside, folder / "always", ATTEMPTS),
        **_canceled(spark, folder),
    }
    spark.stop()
    print(json.dumps(results))  # noqa: T201 - the result of this process


def _killed(spark: SparkSession, task: RestTask, processes: Path, killed: int) -> list[Any]:
    """Return the result of a task whose first processes are killed, or its error, and the number of processes."""
    files = WatchedFiles(task.files, processes, killed)
    healthy = replace(task, number=0)
    try:
        result: Any = run_native_tasks(SparkTasks(spark), [healthy, replace(task, number=1, files=files)])[
            1
        ].scanned
    except RuntimeError as error:
        result = str(error)
    return [result, len(files.processes())]


def _canceled(spark: SparkSession, folder: Path) -> dict[str, Any]:
    """Return the seconds from a cancellation of a long task until its job and its process have ended."""
    files = WatchedFiles([str(folder / "large.parquet")], folder / "canceled")
    write_events(Path(files[0]), rows=200_000, keys=200_000)
    canceled = Timer(4, spark.sparkContext.cancelAllJobs)
    canceled.start()
    begin = time.monotonic() + canceled.interval
    try:
        run_native_tasks(SparkTasks(spark), [_long_task(folder, files)])
    except Py4JJavaError as error:
        message = str(error)
    job_s = time.monotonic() - begin
    while any(map(_is_alive, files.processes())):
        time.sleep(0.1)
    return {
        "canceled": "cancelled" in message,
        "processes": len(files.processes()),
        "job_s": job_s,
        "process_s": time.monotonic() - begin,
    }


def _long_task(folder: Path, files: Sequence[str]) -> WindowTask:
    """Return a task in which each record is in 3,600 windows; DuckDB computes it in one query."""
    window = Sliding(HOUR_MS, SECOND_MS)
    grid = WindowGrid(window, DAY.start_ms + SECOND_MS, 24 * 3_600)
    return replace(task_of(folder, []), grid=grid, numbers=range(grid.count), files=files)


def _is_alive(process: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


if __name__ == "__main__":
    main(Path(sys.argv[1]))
