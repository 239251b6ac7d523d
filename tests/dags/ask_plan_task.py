"""Questions about the tasks that plan a run, find stale days, and write a report."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

LONG_AGO = {"since": "2004-03-01T00:00:00Z", "until": "2004-04-01T00:00:00Z"}
ALL_YEARS = {"since": "0001-01-01T00:00:00Z", "until": "9999-12-31T00:00:00Z"}


THIRD_DAY = {
    "since": "2024-03-03T00:00:00Z",
    "until": "2024-03-04T00:00:00Z",
    "mode": "recompute",
    "reason": "why",
    "allow_unsealed": True,
}


def plans(definition: str, home: str, late: str, filtered: str, filtered_home: str) -> dict[str, list[Any]]:
    """Return the results of the task `plan` for some runs: jobs, plan file, and log, or error and message.

    The files of the source are those of `late` too, once a run has been planned. The files of `filtered` are
    prepared, and their folders hold their days.
    """
    os.environ["BACKSTREAM_HOME"] = home
    os.environ.pop("AIRFLOW_CONN_BACKSTREAM_CATALOG", None)
    whole = {"since": "2024-03-01T00:00:00Z", "until": "2024-03-05T01:00:00+01:00", "reason": "why"}
    told = {
        "dry run": _planned(definition, "zero", whole | {"dry_run": True}),
        "first": _planned(definition, "one", whole | {"max_spark_jobs": 3}),
    }
    data = Path(definition).parent / "data"
    Path(late).rename(data / "late.parquet")
    told |= {
        "cleared": _planned(definition, "one", whole | {"max_spark_jobs": 1}),
        "asked otherwise": _planned(definition, "one", whole | {"chunk": "2d"}),
        "another run": _planned(definition, "two", whole),
    }
    (data / "late.parquet").unlink()
    told |= {
        "cannot go on": _planned(definition, "two", whole),
        "replanned": _planned(definition, "two", whole | {"replan": True}),
        "nonsense": _planned(definition, "three", whole | {"delay": "1h"}),
        "future": _planned(definition, "three", whole | {"until": "2999-01-01T00:00:00Z"}),
        "hours": _planned(definition, "three", whole | {"chunk": "5h"}),
        "unknown field": _planned(definition, "three", whole | {"colour": "red"}),
        "found before": _found(definition, until="2024-03-04T00:00:00Z"),
        "found everywhere": _found(definition),
        "left to others": _found(definition, "2024-03-03", until="2024-03-05T00:00:00Z"),
        "only waited for": _found(definition, "2024-03-03", is_published=True, until="2024-03-05T00:00:00Z"),
        "no event": _planned(definition, "three", whole | LONG_AGO),
        "all years": _planned(definition, "three", whole | ALL_YEARS | {"dry_run": True}),
        "reported": _reported(told["first"][1], home),
        "half a day": _planned(definition, "three", whole | {"since": "2024-03-01T12:00:00Z"}),
        "no range": _planned(definition, "four", {"since": "soon", "until": "later", "reason": "why"}),
    }
    told |= {"requests": _requests(home), "prepare": _prepare_arguments(filtered, THIRD_DAY)}
    os.environ["BACKSTREAM_HOME"] = filtered_home
    return told | {"filtered": _planned(filtered, "one", THIRD_DAY, "orders")}


def _requests(home: str) -> Any:
    """Return the requests of the runs by trigger."""
    from dataclasses import asdict

    from backstream.runs.home import Home
    from backstream.runs.requests import load_requests

    return {request.dag_run_id: asdict(request) for request in load_requests(Home(Path(home)), "clicks")}


def _found(
    definition: str, unfinished: str = "", *, is_published: bool = False, **form: Any
) -> list[dict[str, Any]]:
    """Return the runs that `restate_<name>` triggers while a run of `backfill_<name>` is unfinished."""
    from backstream.definition.loader import load_definition
    from backstream.orchestration import tasks as ours
    from backstream.orchestration.dags import restate_dag

    def runs(dag_id: str, logical_dates: list[datetime], states: list[str]) -> int:
        assert (dag_id, states) == ("backfill_clicks", ["queued", "running"])
        return sum(f"{date:%Y-%m-%d}" == unfinished for date in logical_dates)

    def tasks(dag_id: str, logical_dates: list[datetime], task_ids: list[str], states: list[str]) -> int:
        assert (dag_id, task_ids) == ("backfill_clicks", ["publish"])
        return len(logical_dates) if is_published and "success" in states else 0

    path = Path(definition)
    dag = restate_dag(load_definition(path), path)
    params = dag.params.dump() | {"approval": "always", "reason": "again"} | form
    context = {
        "params": params,
        "dag": dag,
        "run_id": "r",
        "ti": SimpleNamespace(get_dr_count=runs, get_ti_count=tasks),
    }
    return ours.execute_find_intervals(path, context)


def _prepare_arguments(definition: str, form: dict[str, Any]) -> list[Any]:
    """Return the arguments of the job of the task `prepare` in a run with a form, and in a restatement."""
    from backstream.definition.loader import load_definition
    from backstream.orchestration.dags import reprocess_dag, restate_dag

    path, arguments = Path(definition), []
    for make_dag in (reprocess_dag, restate_dag):
        dag = make_dag(load_definition(path), path)
        prepare: Any = dag.get_task("prepare")
        arguments.append(prepare.job_arguments({"params": dag.params.dump() | form, "dag": dag}))
    return arguments


def _planned(definition: str, run_id: str, form: dict[str, Any], name: str = "clicks") -> list[Any]:
    import io
    import logging

    from backstream.definition.loader import load_definition
    from backstream.orchestration import tasks as ours
    from backstream.orchestration.dags import reprocess_dag

    path = Path(definition)
    dag = reprocess_dag(load_definition(path), path)
    pushed: dict[str, str] = {}
    context = {
        "params": dag.params.dump() | form,
        "dag": dag,
        "run_id": run_id,
        "dag_run": SimpleNamespace(triggering_user_name="ada", start_date=f"start of {run_id}"),
        "ti": SimpleNamespace(
            task_id="plan",
            xcom_push=lambda key, value: pushed.update({key: value}),
            xcom_pull=lambda **_: None,
        ),
    }
    heard = io.StringIO()
    handler = logging.StreamHandler(heard)
    ours.log.logger.addHandler(handler)
    ours.log.setLevel(logging.INFO)
    try:
        jobs = ours.execute_plan(path, name, context)
    except Exception as error:  # noqa: BLE001 - the answer is which one it is
        return [type(error).__name__, str(error)]
    finally:
        ours.log.logger.removeHandler(handler)
    return [[job["name"] for job in jobs], pushed.get("plan", ""), heard.getvalue()]


def _reported(plan: str, home: str) -> list[str]:
    """Return the result and the log of the task `report` if the state for the pages cannot be written."""
    import io
    import logging

    from backstream.orchestration import tasks as ours

    in_its_way = Path(home) / "dataset_state" / "clicks.json"
    in_its_way.unlink(missing_ok=True)
    in_its_way.mkdir(parents=True)
    heard = io.StringIO()
    handler = logging.StreamHandler(heard)
    ours.log.logger.addHandler(handler)
    try:
        return [ours.execute_report(Path(plan), plan), heard.getvalue()]
    finally:
        ours.log.logger.removeHandler(handler)
        in_its_way.rmdir()
