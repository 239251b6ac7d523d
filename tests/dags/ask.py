"""Run by the tests as a process of its own: asks Airflow a question and prints the answer as a line of JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

HEAVY = ("pyspark", "pandas", "great_expectations", "numpy", "pyarrow", "pyiceberg")
LOCAL_SPARK = json.dumps({"conn_type": "spark", "host": "local[2]"})


def dags(folder: str, *definitions: str) -> list[dict[str, Any]]:
    """What is in a folder of DAG files, for each folder of definitions, and what parsing has imported."""
    from airflow.dag_processing.dagbag import DagBag

    found = []
    for each in definitions:
        os.environ["BACKSTREAM_DEFINITIONS"] = each
        bag = DagBag(dag_folder=folder)
        told = {
            "errors": bag.import_errors,
            "warnings": {path: list(warnings) for path, warnings in bag.captured_warnings.items()},
            "dags": {dag_id: _told(dag) for dag_id, dag in bag.dags.items()},
            "heavy": _heavy(),
        }
        found.append(told)
    return found


def _told(dag: Any) -> dict[str, Any]:
    return {
        "tags": sorted(dag.tags),
        "catchup": dag.catchup,
        "max_active_runs": dag.max_active_runs,
        "schedule": [type(dag.timetable).__name__, dag.timetable.expression, str(dag.timetable.timezone)],
        "params": {name: dag.params.get_param(name).schema for name in dag.params},
        "defaults": dag.params.dump(),
        "first_and_last": [dag.start_date.isoformat(), dag.end_date.isoformat()],
        "chain": {task.task_id: sorted(task.downstream_task_ids) for task in dag.tasks},
        "pools": {task.task_id: task.pool for task in dag.tasks},
        "docs": {task.task_id: task.doc_md for task in dag.tasks},
        "mapped": [task.task_id for task in dag.tasks if task.is_mapped],
    }


def tasks() -> dict[str, Any]:
    """What a task makes of errors, of choices in the form, of a missing connection, and how it calls Spark."""
    return {
        "errors": _errors(),
        "modes": [_mode(choice) for choice in ("as defined", "", "replay", "recompute", "fast")],
        "without connection": _raised(lambda: _operator().execute({})),
        "submitted": _submitted(),
        "ended": {status: _raised(lambda: _ended_with(status)) for status in (0, 1, 3)},  # noqa: B023 - called at once
        "heavy": _heavy(),
    }


def _errors() -> dict[str, list[str]]:
    """What becomes of each of our errors inside a task: the class that Airflow sees, and the message."""
    from backstream.core import errors as ours

    kinds = [kind for kind in vars(ours).values() if isinstance(kind, type)]
    return {kind.__name__: _raised(lambda: _fail(kind)) for kind in kinds}  # noqa: B023 - called at once


def _fail(kind: type[Exception]) -> None:
    from backstream.orchestration.tasks import failing_for_good

    msg = "12 of 744 windows are incomplete\n  first: .."
    with failing_for_good():
        raise kind(msg)


def _mode(choice: str) -> str:
    from backstream.core.errors import SpecError
    from backstream.orchestration.tasks import mode_of

    try:
        return repr(mode_of(choice))
    except SpecError as error:
        return str(error)


def _operator(**options: Any) -> Any:
    from backstream.orchestration.replay import ReplayOperator

    arguments = ["--plan", "/nowhere/plan.json", "--chunk", "0000"]
    return ReplayOperator(task_id="replay", name="flights 0000", application_args=arguments, **options)


def _ended_with(status: int) -> None:
    """Execute the task with a `spark-submit` that says something and ends with a status."""
    binary = Path(f"spark-submit-{status}").resolve()
    binary.write_text(f"#!/bin/sh\necho a job of status {status}\nexit {status}\n", encoding="utf-8")
    binary.chmod(0o755)
    _operator(spark_binary=str(binary)).execute({})


def _submitted() -> dict[str, Any]:
    os.environ["AIRFLOW_CONN_BACKSTREAM_SPARK"] = LOCAL_SPARK
    task = _operator()
    hook = task._get_hook()  # noqa: SLF001 - the command it builds is the point
    command = hook._build_spark_submit_command(task.application)  # noqa: SLF001 - as above
    return {"command": command, "environment": hook._env}  # noqa: SLF001 - as above


def _raised(action: Callable[[], object]) -> list[str]:
    try:
        action()
    except Exception as error:  # noqa: BLE001 - the answer is which one it is
        return [type(error).__name__, str(error)]
    return ["nothing", ""]


def _heavy() -> list[str]:
    return [module for module in HEAVY if module in sys.modules]


if __name__ == "__main__":
    answer = globals()[sys.argv[1]](*sys.argv[2:])
    print(json.dumps(answer))  # noqa: T201 - the answer
