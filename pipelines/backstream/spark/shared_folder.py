"""Test at the start of a cluster job whether driver and executors see the files of each other."""

from __future__ import annotations

import os
import re
import shutil
import socket
import uuid
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pyspark import SparkContext

from backstream.errors import CountError, PlanError, StorageError
from backstream.runs.plan import Plan
from backstream.runs.table_schemas import WINDOWS
from backstream.spark.session import ship_package
from backstream.storage.stores import Stores, is_below, is_in_store
from backstream.variables import WAREHOUSE_VARIABLE

_ROUNDS = 5
"""The number of attempts to get a marker from every executor."""
_MAX_INPUT_FOLDERS = 20
"""The maximum number of tested folders; a mount usually contains all folders of a source."""


class _Answer(NamedTuple):
    """The answer of one task: its machine, the marker that it wrote, and the input files that it cannot read.

    `parent` is the process that started that of the task, one per executor. `error` is why there is no marker.
    """

    host: str
    parent: int
    marker: str
    unreadable: Sequence[str]
    error: str = ""


def require_visible_files(context: SparkContext, plan: Plan) -> int:
    """Check that the executors can read the input of a plan, and that other machines see what they write.

    Returns:
        The number of checked executors. Others can join later.

    Raises:
        CountError: when the driver does not see the files of executors.
        PlanError: when a file or a table is on a disk that executors do not share.
        StorageError: when executors cannot read the input.
    """
    if plan.home.is_shared:
        return _require_shared_disk(context, plan.staging(WINDOWS), [file.path for file in plan.inputs])
    _require_stored_files(plan)
    return count_executors(context)


def _require_shared_disk(context: SparkContext, folder: Path, inputs: Sequence[str]) -> int:
    """Check that driver and executors see the files of each other: staged files and the input files of a job.

    Each executor writes a marker into a folder, and looks for one input file of each folder. Nothing is written if
    driver and executors are one process. Executors that join later aren't tested; the rows they write are counted
    anyway. Tasks in Python also start what native tasks need. Runs a job.

    Args:
        context: the context of the job.
        folder: folder of the staged files.
        inputs: the paths of all input files.

    Returns:
        The number of executors that answered.

    Raises:
        CountError: naming the machines whose files the driver doesn't see, the folder, and the remedy.
        StorageError: naming the machine, the input file, and the remedy.
    """
    if _is_one_process(context):
        return 0
    # A file that the driver doesn't find was removed, which another check reports.
    by_folder = {os.path.dirname(path): path for path in inputs if not is_in_store(path) and os.path.exists(path)}  # noqa: PTH110, PTH120 - of thousands of files
    files = list(by_folder.values())[:_MAX_INPUT_FOLDERS]
    ship_package(context)
    probe, answers = folder / f".probe-{uuid.uuid4().hex}", list[_Answer]()
    try:
        for _ in range(_ROUNDS):
            tasks = _count_tasks(context)
            numbers = context.parallelize(range(tasks), tasks)
            answers += numbers.mapPartitions(partial(_answer, str(probe), files)).collect()
            executors = {(answer.host, answer.parent) for answer in answers}
            if len(executors) >= count_executors(context):
                break
        _require_markers(probe, answers)
    finally:
        shutil.rmtree(probe, ignore_errors=True)
    if unreadable := [(answer.host, path) for answer in answers for path in answer.unreadable]:
        host, path = min(unreadable)
        msg = (
            f"an executor on {host} cannot read an input file that the driver can read\n  {path}\n\n"
            "hint: mount the folder of the input on the machines of all executors at the same path, and run the"
            " same command again; finished chunks are kept"
        )
        raise StorageError(msg)
    return len(executors)


def _answer(probe: str, files: Sequence[str], _: Iterable[int]) -> Iterator[_Answer]:
    """Write a marker, and look for the input files; runs on an executor."""
    marker, error = f"{probe}/{uuid.uuid4().hex}", ""
    try:
        Path(probe).mkdir(parents=True, exist_ok=True)
        Path(marker).touch(exist_ok=False)
    except OSError as failed:
        error = failed.strerror or type(failed).__name__
    unreadable = [path for path in files if not os.access(path, os.R_OK)]
    yield _Answer(socket.gethostname(), os.getppid(), marker, unreadable, error)


def _require_markers(probe: Path, answers: Sequence[_Answer]) -> None:
    """Check that the driver sees all markers."""
    seen = {str(path) for path in probe.glob("*")}
    lost = [answer for answer in answers if answer.marker not in seen]
    if lost:
        hosts, reasons = sorted({answer.host for answer in lost}), {answer.error for answer in lost} - {""}
        because = f": {min(reasons)}" if reasons else ""
        msg = (
            f"{len(lost):,} of {len(answers):,} files of the shared folder test that executors wrote on"
            f" {', '.join(hosts)} cannot be seen by the driver{because}\n  {probe.parent}\n\n"
            "hint: the executors must write to a folder that the driver sees; mount it on each"
            " of their machines and run the same command again; finished chunks are kept"
        )
        raise CountError(msg)


def _require_stored_files(plan: Plan) -> None:
    """Check that input and tables of a plan are in object stores, because executors share no folder.

    Raises:
        PlanError: naming the first file or table that is elsewhere, and the remedy.
    """
    warehouse = Stores.from_environment().warehouse
    elsewhere = [file.path for file in plan.inputs if not is_in_store(file.path)]
    elsewhere += [table.location for table in plan.tables.values() if not is_below(table.location, warehouse)]
    if elsewhere:
        msg = (
            f"cannot run {plan.run_id} on executors that do not share the home: it needs {elsewhere[0]}\n\n"
            f"hint: give the job the address of the warehouse ({WAREHOUSE_VARIABLE}), and create a new plan"
        )
        raise PlanError(msg)


def _is_one_process(context: SparkContext) -> bool:
    """Return whether driver and executors are one process."""
    return re.fullmatch(r"local(\[.*\])?", context.master or "") is not None


def _count_tasks(context: SparkContext) -> int:
    """Return the number of small tasks after which every executor has probably had some."""
    return 2 * max(context.defaultParallelism, count_executors(context))


def count_executors(context: SparkContext) -> int:
    """Return the number of executors of an application without its driver."""
    store = context._jsc.sc().statusStore()  # noqa: SLF001 - PySpark has no API for executors
    executors = store.executorList(True)  # noqa: FBT003 - Java has no keyword arguments
    return sum(str(executors.apply(number).id()) != "driver" for number in range(int(executors.size())))
