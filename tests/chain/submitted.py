"""Run the jobs of some runs, each with one fault, in one application that spark-submit starts on a cluster.

spark-submit tests/chain/submitted.py FAULT PLAN.json [FAULT PLAN.json ..]
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any
from unittest.mock import patch

import psutil
from pyarrow.fs import FileSelector
from pyspark.sql import SparkSession
from tests.chain.breaks import WITHIN, broken_write, flipped_fate, lost_row

from backstream.jobs import replay
from backstream.runs.manifest import Manifest
from backstream.runs.plan import Plan
from backstream.storage.stores import Stores

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


@contextmanager
def kill_in_the_middle() -> Iterator[None]:
    """Kill an executor as soon as a task has uploaded a file, while it and other tasks go on."""
    stores = Stores.from_environment()
    filesystem, place = stores.open(f"{stores.warehouse}/backstream")
    before, ended = _list_staged(filesystem, place), Event()

    def watch() -> None:
        while not ended.wait(0.05):
            if _list_staged(filesystem, place) - before:
                kill_an_executor(Path())
                return

    watching = Thread(target=watch)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join()
        print(f"executors lost: {_count_lost_executors()}", flush=True)  # noqa: T201 - its caller reads it


def _count_lost_executors() -> int:
    """Return the number of executors that have ended; Spark may notice the first one some seconds later."""
    store = SparkSession.builder.getOrCreate().sparkContext._jsc.sc().statusStore()  # noqa: SLF001 - no API for it
    end = time.monotonic() + 10
    while not (lost := store.executorList(False).size() - store.executorList(True).size()):  # noqa: FBT003 - of Java
        if time.monotonic() > end:
            break
        time.sleep(0.1)
    return int(lost)


def _list_staged(filesystem: Any, place: str) -> set[str]:
    infos = filesystem.get_file_info(FileSelector(place, recursive=True, allow_not_found=True))
    return {info.path for info in infos if "/data/" in info.path and info.is_file}


@contextmanager
def kill_the_driver() -> Iterator[None]:
    """Kill this process when the first chunk is done, while others run."""
    write = Manifest.write

    def write_and_die(manifest: Manifest, path: Path) -> None:
        write(manifest, path)
        os.kill(os.getpid(), signal.SIGKILL)

    with patch.object(Manifest, "write", write_and_die):
        yield


FAULTS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    **{name: partial(broken_write, "", change) for name, change in WITHIN.items()},
    "none": ExitStack,
    "an executor killed after writing": lambda: broken_write("", kill_an_executor),
    "an executor killed in the middle": kill_in_the_middle,
    "the driver killed after a chunk": kill_the_driver,
    "no marker is asked for": lambda: patch("backstream.spark.shared_folder.require_visible_files", lambda *_: 0),
    "a row lost": lambda: lost_row("panes"),
    "a fate flipped": flipped_fate,
}
"""The faults by their names on the command line."""


def run(fault: str, location: str) -> int:
    """Run the job of all chunks of a plan with a fault; return its status."""
    chunks = (word for chunk in Plan.load(location).chunks for word in ("--chunk", chunk.chunk_id))
    with FAULTS[fault]():
        return replay.main(["--plan", location, *chunks])


if __name__ == "__main__":
    for fault, plan in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        print(f"\n{END}{run(fault, plan)}", flush=True)  # noqa: T201 - its caller reads it
