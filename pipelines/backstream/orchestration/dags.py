"""Create three DAGs per definition: for the schedule and Backfills, for requested ranges, and for restatements.

A definition that names the checkpoint of a job of Structured Streaming has a fourth one, which copies its batches.

With DAGs of its own, each definition has its own permissions in Airflow. Its forms show the values of the
definition and offer only the parameters that apply to it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Param

from backstream.definition.model import Definition
from backstream.errors import SpecError
from backstream.eventtime.instants import duration_text, utc_datetime
from backstream.orchestration import form, notifications
from backstream.orchestration.airflow_versions import HAS_DEADLINES, CronDataIntervalTimetable
from backstream.orchestration.dag_options import TASK_DEFAULTS, DagOptions
from backstream.orchestration.definitions import LoadedDefinitions, find_team, require_timetable
from backstream.orchestration.run_tasks import (
    add_keep_batches_task,
    add_restate_tasks,
    add_restate_trigger,
    add_run_tasks,
    input_assets,
)
from backstream.runs.dag_names import BACKFILL, KEEP_BATCHES, REPROCESS, RESTATE, dag_id_of, qualified_name

_TAGS = ("backstream",)

_ON_DEMAND: dict[str, Any] = {"schedule": None, "is_paused_upon_creation": False}

_RUN_DOC = """\
A run covers one half-open range in UTC. Its chunks run as Spark jobs in the pool `{pool}`. If a check fails, the
run publishes nothing. A publication replaces exactly the range, in one commit.
"""

_BACKFILL_DOC = """\
{description}

The range of a run is its data interval. Runs are scheduled or part of a Backfill. A scheduled run also triggers
`restate_{name}` to reprocess earlier days that are stale or missing, and succeeds when both are complete. For any
other range, use `reprocess_{name}`.

{run}
Defined in `{path}`.
"""

_REPROCESS_DOC = """\
{description}

Runs the range of whole UTC days that you enter in the form. If two runs overlap, the one that publishes last fails
and changes nothing.

{run}
Defined in `{path}`.
"""

_RESTATE_DOC = """\
{description}

Compares each published day with the current input files, and finds days that no run covers. Each stale or missing
range becomes a run of `reprocess_{name}`, one after another. Each scheduled run of `backfill_{name}` triggers this
DAG for the time before its data interval. Each update of the asset in `source.asset` triggers it for all days.
To disable automatic restatement, pause this DAG.

Defined in `{path}`.
"""

_KEEP_BATCHES_DOC = """\
{description}

Copies the batches that have ended since the last run from `watermark.checkpoint` to the home, before Spark removes
them. Runs of `backfill_{name}` and `reprocess_{name}` read them there. The streaming job may run meanwhile.

Defined in `{path}`.
"""


DEFAULTS = DagOptions()


def build_dags(loaded: LoadedDefinitions, options: DagOptions, *kinds: str) -> dict[str, DAG]:
    """Return the DAGs of some kinds by id: `backfill`, `reprocess`, `restate`, and `keep_batches`, by default all.

    Only a definition with `watermark.checkpoint` has a DAG of the kind `keep_batches`.

    Raises:
        SpecError: when a kind does not exist.
    """
    for kind in kinds:
        if kind not in _BUILDERS:
            msg = f"kinds must be of {', '.join(_BUILDERS)}, got {kind!r}"
            raise SpecError(msg)
    dags = [
        _BUILDERS[kind](definition, path, options)
        for path, definition in loaded.definitions.items()
        for kind in kinds or tuple(_BUILDERS)
        if kind != KEEP_BATCHES or definition.watermark.checkpoint
    ]
    return {dag.dag_id: dag for dag in dags}


def require_valid(loaded: LoadedDefinitions) -> None:
    """Check that no definition has a problem.

    Airflow hides all DAGs of a file with an import error, so the file that calls this function must have no DAGs.

    Raises:
        SpecError: with the key and value of each problem.
    """
    problems = loaded.problems
    if len(problems) == 1:
        raise SpecError(problems[0])
    if problems:
        listed = "".join("\n  " + problem.replace("\n", "\n  ") for problem in problems)
        msg = f"{len(problems)} definitions are invalid{listed}"
        raise SpecError(msg)


def backfill_dag(definition: Definition, path: Path, options: DagOptions = DEFAULTS) -> DAG:
    """Return the DAG for the schedule and Airflow's Backfills; the range of a run is its data interval.

    Raises:
        SpecError: when the schedule is not a cron expression.
    """
    with _dag(BACKFILL, _BACKFILL_DOC, definition, path, options, **_schedule_arguments(definition, path)) as dag:
        add_run_tasks(definition, path, options)
        add_restate_trigger(dag_id_of(RESTATE, definition.name, find_team(path)))
    return _with_params(dag, form.backfill_params(definition))


def reprocess_dag(definition: Definition, path: Path, options: DagOptions = DEFAULTS) -> DAG:
    """Return the DAG for ranges that a person requests; several runs can be active at the same time."""
    with _dag(REPROCESS, _REPROCESS_DOC, definition, path, options, **_ON_DEMAND) as dag:
        add_run_tasks(definition, path, options)
    return _with_params(dag, form.reprocess_params(definition))


def restate_dag(definition: Definition, path: Path, options: DagOptions = DEFAULTS) -> DAG:
    """Return the DAG that reprocesses stale and missing days; with one active run, no range is found twice."""
    arguments = _ON_DEMAND | {"schedule": input_assets(definition), "max_active_runs": 1}
    with _dag(RESTATE, _RESTATE_DOC, definition, path, options, **arguments) as dag:
        add_restate_tasks(definition, path, options, dag_id_of(REPROCESS, definition.name, find_team(path)))
    return _with_params(dag, form.restate_params())


def _keep_batches_dag(definition: Definition, path: Path, options: DagOptions = DEFAULTS) -> DAG:
    """Return the DAG that copies the batches of a job of Structured Streaming each hour.

    Spark removes them after 100 batches.
    A paused DAG would lose batches, so it begins at once.
    """
    first_ms, _ = definition.source.event_time_range
    arguments = {
        "schedule": "@hourly",
        "start_date": utc_datetime(first_ms),
        "catchup": False,
        "max_active_runs": 1,
        "is_paused_upon_creation": False,
    }
    with _dag(KEEP_BATCHES, _KEEP_BATCHES_DOC, definition, path, options, **arguments) as dag:
        add_keep_batches_task(path)
    return dag


def _dag(kind: str, doc: str, definition: Definition, path: Path, options: DagOptions, **arguments: Any) -> DAG:
    team = find_team(path)
    name, run = qualified_name(definition.name, team), _RUN_DOC.format(pool=options.pool)
    defaults: dict[str, Any] = {
        "description": definition.description or None,
        "doc_md": doc.format(description=definition.description, name=name, path=path, run=run),
        "on_failure_callback": notifications.notify_run_failure,
        "auto_register": False,
    }
    if deadline := _deadline(definition):
        defaults["deadline"] = deadline
    return DAG(  # noqa: AIR002 - `arguments` has the schedule
        dag_id=dag_id_of(kind, definition.name, team),
        tags=[*_TAGS, kind, definition.name, *([team] if team else []), *options.tags],
        default_args=TASK_DEFAULTS | dict(options.default_args),
        **(defaults | arguments | dict(options.dag_args)),
    )


def _with_params(dag: DAG, params: dict[str, Param]) -> DAG:
    """Return the DAG with its parameters, which its tasks get when they run.

    If a DAG has its parameters before its tasks, Airflow copies all of them for each task. This would take most of
    the time to parse a DAG file.
    """
    dag.params.update(params)
    return dag


def _deadline(definition: Definition) -> Any:
    """Return the deadline after a run was queued; None without a deadline, or below Airflow 3.2."""
    limit_ms = definition.backfill.deadline
    if limit_ms is None or not HAS_DEADLINES:
        return None
    from airflow.sdk.definitions.callback import SyncCallback
    from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference

    return DeadlineAlert(
        reference=DeadlineReference.DAGRUN_QUEUED_AT,  # logical dates of a Backfill are in the past
        interval=timedelta(milliseconds=limit_ms),
        callback=SyncCallback(notifications.notify_late_run, kwargs={"after": duration_text(limit_ms)}),
    )


def _schedule_arguments(definition: Definition, path: Path) -> dict[str, Any]:
    first_ms, last_ms = definition.source.event_time_range
    require_timetable(definition, path)
    return {
        "schedule": CronDataIntervalTimetable(definition.backfill.schedule, timezone="UTC"),
        # The source has no events outside these dates, so Airflow must not schedule runs there.
        "start_date": utc_datetime(first_ms),
        "end_date": utc_datetime(last_ms),
        "catchup": False,
    }


_BUILDERS: dict[str, Callable[[Definition, Path, DagOptions], DAG]] = {
    BACKFILL: backfill_dag,
    REPROCESS: reprocess_dag,
    RESTATE: restate_dag,
    KEEP_BATCHES: _keep_batches_dag,
}
