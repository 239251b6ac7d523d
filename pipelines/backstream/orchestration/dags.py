"""Create three DAGs per definition: for the schedule and Backfills, for requested ranges, and for restatements.

With DAGs of its own, each definition has its own permissions in Airflow. Its forms show the values of the
definition and offer only the parameters that apply to it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, Asset, CronDataIntervalTimetable, get_current_context, task
from airflow.sdk.definitions.callback import SyncCallback
from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference

from backstream.definition.loader import load_definition
from backstream.definition.model import Definition
from backstream.definition.prepared import reason_to_prepare
from backstream.errors import SpecError
from backstream.eventtime.instants import duration_text, utc_datetime
from backstream.orchestration import form, notifications, tasks
from backstream.orchestration.notifications import VerdictNotifier
from backstream.orchestration.operators import (
    POOL,
    WAITING,
    ApproveOperator,
    PrepareOperator,
    ReplayOperator,
    RestateOperator,
)
from backstream.orchestration.run_range import load_timetable
from backstream.runs.home import definitions_folder

RETRIES: dict[str, Any] = {
    "retries": 2,
    "retry_delay": timedelta(seconds=20),
    "retry_exponential_backoff": 2.0,
    "max_retry_delay": timedelta(minutes=10),
}

TAGS = ("backstream",)

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
DAG for the time before its data interval. To disable automatic restatement, pause this DAG.

Defined in `{path}`.
"""


def backfill_dags(folder: Path | None = None) -> list[DAG]:
    """Return `backfill_<name>` for each valid definition in the folder; `validate_definitions` checks the rest."""
    return _build_dags(folder or definitions_folder(), backfill_dag)[0]


def reprocess_dags(folder: Path | None = None) -> list[DAG]:
    """Return `reprocess_<name>` for each valid definition in the folder."""
    return _build_dags(folder or definitions_folder(), reprocess_dag)[0]


def restate_dags(folder: Path | None = None) -> list[DAG]:
    """Return `restate_<name>` for each valid definition in the folder."""
    return _build_dags(folder or definitions_folder(), restate_dag)[0]


def validate_definitions(folder: Path | None = None) -> None:
    """Check every definition in the folder.

    Airflow hides all DAGs of a file with an import error, so the file that calls this function must have no DAGs.

    Raises:
        SpecError: with the key and value of each error, or when the folder does not exist.
    """
    folder = folder or definitions_folder()
    if not folder.is_dir():
        msg = f"no folder of definitions at {folder}"
        raise SpecError(msg)
    problems = _build_dags(folder, backfill_dag)[1]
    if len(problems) == 1:
        raise SpecError(problems[0])
    if problems:
        listed = "".join("\n  " + problem.replace("\n", "\n  ") for problem in problems)
        msg = f"{len(problems)} definitions are invalid{listed}"
        raise SpecError(msg)


def backfill_dag(definition: Definition, path: Path) -> DAG:
    """Return the DAG for the schedule and Airflow's Backfills; the range of a run is its data interval.

    Raises:
        SpecError: when the schedule is not a cron expression.
    """
    options = _scheduled(definition, path) | {"params": form.backfill_params(definition)}
    with _dag("backfill", _BACKFILL_DOC, definition, path, **options) as dag:
        add_run_tasks(definition, path)
        add_restate_trigger(f"restate_{definition.name}")
    return dag


def reprocess_dag(definition: Definition, path: Path) -> DAG:
    """Return the DAG for ranges that a person requests; several runs can be active at the same time."""
    options = _ON_DEMAND | {"params": form.reprocess_params(definition)}
    with _dag("reprocess", _REPROCESS_DOC, definition, path, **options) as dag:
        add_run_tasks(definition, path)
    return dag


def restate_dag(definition: Definition, path: Path) -> DAG:
    """Return the DAG that reprocesses stale and missing days; with one active run, no range is found twice."""
    options = _ON_DEMAND | {"params": form.restate_params(), "max_active_runs": 1}
    with _dag("restate", _RESTATE_DOC, definition, path, **options) as dag:
        add_restate_tasks(definition, path, f"reprocess_{definition.name}")
    return dag


def _dag(kind: str, doc: str, definition: Definition, path: Path, schedule: Any, **options: Any) -> DAG:
    run = _RUN_DOC.format(pool=POOL)
    return DAG(
        dag_id=f"{kind}_{definition.name}",
        schedule=schedule,
        description=definition.description or None,
        doc_md=doc.format(description=definition.description, name=definition.name, path=path, run=run),
        tags=[*TAGS, kind, definition.name],
        default_args=RETRIES,
        on_failure_callback=notifications.notify_run_failure,
        deadline=_deadline(definition),
        auto_register=False,
        **options,
    )


def _deadline(definition: Definition) -> DeadlineAlert | None:
    """Return the deadline after a run was queued; logical dates of a Backfill are in the past."""
    limit_ms = definition.backfill.deadline
    if limit_ms is None:
        return None
    return DeadlineAlert(
        reference=DeadlineReference.DAGRUN_QUEUED_AT,
        interval=timedelta(milliseconds=limit_ms),
        callback=SyncCallback(notifications.notify_late_run, kwargs={"after": duration_text(limit_ms)}),
    )


def _scheduled(definition: Definition, path: Path) -> dict[str, Any]:
    first_ms, last_ms = definition.source.event_time_range
    return {
        "schedule": _timetable(definition, path),
        # The source has no events outside these dates, so Airflow must not schedule runs there.
        "start_date": utc_datetime(first_ms),
        "end_date": utc_datetime(last_ms),
        "catchup": False,
    }


def _timetable(definition: Definition, path: Path) -> CronDataIntervalTimetable:
    """Return the timetable of the schedule in UTC; a data interval lasts from one tick to the next.

    Raises:
        SpecError: when the schedule is not a cron expression.
    """
    schedule = definition.backfill.schedule
    try:
        load_timetable(schedule)
    except Exception as error:
        msg = f"backfill.schedule must be a cron expression such as @daily, got {schedule!r} ({path})"
        raise SpecError(msg) from error
    return CronDataIntervalTimetable(schedule, timezone="UTC")


def _build_dags(folder: Path, build: Callable[[Definition, Path], DAG]) -> tuple[list[DAG], list[str]]:
    """Return a DAG for each valid definition, and the problems of the other definitions."""
    dags: dict[str, DAG] = {}
    paths: dict[str, Path] = {}
    problems = []
    for path in sorted(folder.glob("*.toml")):
        try:
            definition = load_definition(path)
            name = definition.name
            if name in paths:
                problems.append(f"name is already used by {paths[name]}, got {name!r} ({path})")
                continue
            _timetable(definition, path)  # a definition with an invalid schedule gets no DAG of any kind
            dags[name], paths[name] = build(definition, path), path
        except SpecError as error:
            problems.append(str(error))
        except Exception as error:  # noqa: BLE001 - no error may hide the DAGs of other definitions
            problems.append(f"{type(error).__name__}: {error} ({path})")
    return list(dags.values()), problems


def dataset_asset(definition: Definition) -> Asset:
    """Return the asset that schedules downstream DAGs: one event per published range, with its counts."""
    return Asset(name=definition.name, uri=f"backstream://{definition.name}", group="backstream")


def add_run_tasks(definition: Definition, definition_path: Path) -> None:
    """Add the tasks of a run: plan, replay each batch of chunks, audit, approve, publish, and report."""
    asset = dataset_asset(definition)

    @task
    def plan() -> list[dict[str, Any]]:
        """Create the plan: the input files, the chunks, and the snapshots that the run replaces."""
        return tasks.execute_plan(definition_path, get_current_context())

    @task(on_success_callback=VerdictNotifier(), on_failure_callback=VerdictNotifier())
    def audit(plan_path: str) -> str:
        """Check the result. If the verdict is fail, the run ends without publication, and writes its report."""
        return tasks.execute_audit(plan_path)

    @task(outlets=[asset])
    def publish(plan_path: str) -> int:
        """Replace exactly the range in the published table, in one commit."""
        return tasks.execute_publish(plan_path, get_current_context(), asset)

    @task
    def report(plan_path: str) -> str:
        """Write the run report: verdict, checks, record accounting, and publication."""
        return tasks.execute_report(plan_path)

    jobs: Any = plan()
    add_prepare_task(definition, definition_path, jobs)
    replay = ReplayOperator.partial(
        task_id="replay",
        pool=POOL,
        map_index_template="{{ task.name }}",
        doc_md="Replay a batch of chunks as a Spark job, and stage windows, panes, and metrics beside the lake.",
    ).expand_kwargs(jobs)
    plan_path = jobs[tasks.PLAN_KEY]
    approve = ApproveOperator(
        task_id="approve",
        plan_path=plan_path,
        response_timeout=timedelta(milliseconds=definition.approval.timeout),
        doc_md="Wait for approval if the definition or the form requires it. A timeout rejects the publication.",
    )
    replay >> audit(plan_path) >> approve >> publish(plan_path) >> report(plan_path)


def add_prepare_task(definition: Definition, definition_path: Path, before: Any) -> None:
    """Add the task that prepares new files before another task, if the source needs it."""
    if reason_to_prepare(definition) is None:
        return
    prepare = PrepareOperator(
        task_id="prepare",
        name=f"prepare {definition.name}",
        pool=POOL,
        application_args=["--definition", str(definition_path)],
        doc_md="Read the new files of the source, and write their records to Parquet files with plain columns.",
    )
    prepare >> before


def add_restate_trigger(restate_dag_id: str) -> None:
    """Add the task that triggers the restatement of days before the data interval of a scheduled run."""
    RestateOperator(
        task_id="restate",
        trigger_dag_id=restate_dag_id,
        doc_md="In a scheduled run, reprocess earlier days that are stale or missing, and wait for the end.",
        **WAITING,
    )


def add_restate_tasks(definition: Definition, definition_path: Path, reprocess_dag_id: str) -> None:
    """Add the tasks that find stale and missing ranges, and reprocess one range after another."""

    @task
    def find_intervals() -> list[dict[str, Any]]:
        """Compare published days with the current input files, and find days that no run covers."""
        return tasks.execute_find_intervals(definition_path, get_current_context())

    intervals = find_intervals()
    add_prepare_task(definition, definition_path, intervals)
    TriggerDagRunOperator.partial(
        task_id="reprocess",
        trigger_dag_id=reprocess_dag_id,
        fail_when_dag_is_paused=True,  # otherwise the task would wait without an end
        max_active_tis_per_dagrun=1,
        map_index_template="{{ task.conf['since'] }} to {{ task.conf['until'] }}",
        doc_md="Trigger a run of the other DAG for one range, and wait for its end.",
        **WAITING,
    ).expand_kwargs(intervals)
