"""Start the driver of a replay on a standalone cluster, and read the error that it leaves in the run folder.

The driver gets the settings of Spark and of backstream, but no address of the catalog or the warehouse, because
the master's REST server has no encryption: the task creates the tables before, and records a failure afterwards.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow.sdk import BaseHook

from backstream import errors
from backstream.errors import NO_RETRY_STATUS, BackstreamError, JobError, SpecError
from backstream.orchestration.standalone_cluster import FINISHED, StandaloneCluster
from backstream.orchestration.triggers import LOST, TIMED_OUT, DriverTrigger
from backstream.runs.plan import Plan
from backstream.spark.heap import load_defaults
from backstream.variables import (
    CATALOG_VARIABLE,
    ERROR_FILE_VARIABLE,
    HOME_VARIABLE,
    TASK_VARIABLE,
    WAREHOUSE_VARIABLE,
)

_KEPT = ("BACKSTREAM_", "PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
_LEFT_OUT = (CATALOG_VARIABLE, WAREHOUSE_VARIABLE, TASK_VARIABLE)
_DESCRIPTIONS = {
    LOST: "the Spark master no longer knows it",
    TIMED_OUT: "it was ended after the execution timeout of the task",
    "KILLED": "it was ended on the cluster",
}


def start(task: Any, plan: Plan) -> DriverTrigger:
    """Start the driver of a task, and return the trigger that waits for its end.

    Args:
        task: operator with the command of the job.
        plan: plan of the run, on a disk that the cluster shares.

    Raises:
        JobError: when the master cannot be reached, or doesn't start the driver.
        SpecError: when the plan is in an object store.
    """
    if plan.home.address:
        msg = (
            f"a driver on a standalone cluster needs a home on a shared disk, got {plan.home.address}"
            f" ({HOME_VARIABLE})\n\nhint: set the deploy mode of the connection to client"
        )
        raise SpecError(msg)
    connection = BaseHook.get_connection(task._conn_id)  # noqa: SLF001 - no public attribute has it
    cluster = StandaloneCluster.from_connection(connection.host or "", connection.extra_dejson)
    hook, defaults = task._get_hook(), load_defaults()  # noqa: SLF001 - builds the command of the job
    command = hook._build_spark_submit_command(task.application)[1:]  # noqa: SLF001 - as above
    settings = [word for name, value in defaults.items() for word in ("--conf", f"{name}={value}")]
    file = plan.folder.errors / f"driver-{uuid.uuid4().hex[:8]}.txt"
    file.parent.mkdir(parents=True, exist_ok=True)
    driver_id = cluster.submit(
        [*settings, *command, "--without-catalog"],
        defaults | {"spark.app.name": str(task.name)},
        _environment(os.environ | (hook._env or {})) | {ERROR_FILE_VARIABLE: str(file)},  # noqa: SLF001 - as above
    )
    limit = task.execution_timeout
    ends_at_s = time.time() + limit.total_seconds() if limit else None
    return DriverTrigger(cluster.master, cluster.url, driver_id, str(file), ends_at_s)


def find_error(name: str, event: Mapping[str, Any]) -> JobError | None:
    """Return the error of a driver that has ended, with the sentence that it left; None if it finished.

    Args:
        name: name of the job.
        event: event of the trigger, with the id of the driver, its state, and the file of its error.
    """
    driver_id, state = event["driver_id"], event["state"]
    if state == FINISHED:
        return None
    file = Path(event["error_file"])
    sentence = file.read_text(encoding="utf-8").strip() if file.exists() else ""
    cause = sentence or _DESCRIPTIONS.get(state, f"its state is {state}; the log is on the worker that ran it")
    return JobError(f"job {name} failed: {cause}\n  driver {driver_id}", _status(sentence))


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if name.startswith(_KEPT) and name not in _LEFT_OUT}


def _status(sentence: str) -> int | None:
    """Return the exit status that belongs to a sentence, which begins with the class of the error."""
    kind = getattr(errors, sentence.partition(":")[0], None)
    is_final = isinstance(kind, type) and issubclass(kind, BackstreamError) and not kind.is_retryable
    return NO_RETRY_STATUS if is_final else None
