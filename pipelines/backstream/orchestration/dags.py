"""From definitions to DAGs: one for schedule and Backfill, one with a form, one for what is stale or missing.

Each definition has its own three, so that who may run what is Airflow's own permission per DAG, each form shows
what its definition says, and the schema of the form knows which choices have a meaning there.
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
from backstream.errors import SpecError
from backstream.eventtime.instants import duration_text, utc_datetime
from backstream.orchestration import notifications, params, tasks
from backstream.orchestration.notifications import VerdictNotifier
from backstream.orchestration.operators import POOL, WAITING, ApproveOperator, ReplayOperator, RestateOperator
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
One run is one range, half-open and in UTC. Its chunks run as Spark jobs in the pool `{pool}`; a failed check
publishes nothing; a publication replaces exactly the range, in one commit.
"""

_BACKFILL_DOC = """\
{description}

The range of a run is its data interval: it is scheduled, or part of a Backfill. A scheduled run also has redone
what is stale or missing before it, by a run of `restate_{name}`, and succeeds when both are done. For any other
range there is `reprocess_{name}`.

{run}
Defined in `{path}`.
"""

_REPROCESS_DOC = """\
{description}

Runs any range of whole UTC days, as the form says. Of two runs that overlap, the one that publishes last fails
and changes nothing.

{run}
Defined in `{path}`.
"""

_RESTATE_DOC = """\
{description}

Compares each published day with the input files there are now, and looks for days that no run covers; each
range that is found becomes a run of `reprocess_{name}`, one after another. Each scheduled run of `backfill_{name}`
starts it for the time before its data interval; pausing it ends that.

Defined in `{path}`.
"""


def backfill_dags(folder: Path | None = None) -> list[DAG]:
    """`backfill_<name>` of each sound definition in the folder; broken ones are left to `require_sound`."""
    return _built(folder or definitions_folder(), backfill_dag)[0]


def reprocess_dags(folder: Path | None = None) -> list[DAG]:
    """`reprocess_<name>` of each sound definition in the folder."""
    return _built(folder or definitions_folder(), reprocess_dag)[0]


def restate_dags(folder: Path | None = None) -> list[DAG]:
    """`restate_<name>` of each sound definition in the folder."""
    return _built(folder or definitions_folder(), restate_dag)[0]


def validate_definitions(folder: Path | None = None) -> None:
    """Check every definition in the folder.

    Airflow hides all DAGs of a file that has an import error, so the file that calls this holds none.

    Raises:
        SpecError: naming each broken definition with key and value, or the folder when there is none.
    """
    folder = folder or definitions_folder()
    if not folder.is_dir():
        msg = f"no folder of definitions at {folder}"
        raise SpecError(msg)
    complaints = _built(folder, backfill_dag)[1]
    if len(complaints) == 1:
        raise SpecError(complaints[0])
    if complaints:
        listed = "".join("\n  " + each.replace("\n", "\n  ") for each in complaints)
        msg = f"{len(complaints)} definitions are broken{listed}"
        raise SpecError(msg)


def backfill_dag(definition: Definition, path: Path) -> DAG:
    """The DAG for the schedule and for Airflow's native Backfill; the range of a run is its data interval.

    Raises:
        SpecError: when the schedule is wrong.
    """
    options = _scheduled(definition, path) | {"params": params.backfill_params(definition)}
    with _dag("backfill", _BACKFILL_DOC, definition, path, **options) as dag:
        add_run_tasks(definition, path)
        add_restate_trigger(f"restate_{definition.name}")
    return dag


def reprocess_dag(definition: Definition, path: Path) -> DAG:
    """The DAG with the form: any range, any number of runs at the same time."""
    options = _ON_DEMAND | {"params": params.reprocess_params(definition)}
    with _dag("reprocess", _REPROCESS_DOC, definition, path, **options) as dag:
        add_run_tasks(definition, path)
    return dag


def restate_dag(definition: Definition, path: Path) -> DAG:
    """The DAG that has redone what is stale or missing; one run at a time, so that no two find the same range."""
    options = _ON_DEMAND | {"params": params.restate_params(), "max_active_runs": 1}
    with _dag("restate", _RESTATE_DOC, definition, path, **options) as dag:
        add_restate_tasks(path, f"reprocess_{definition.name}")
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
    """From when a run was queued: the dates of a Backfill's runs are long gone."""
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
        # Outside these no event can be: a source that has ended is not asked every month again.
        "start_date": utc_datetime(first_ms),
        "end_date": utc_datetime(last_ms),
        "catchup": False,
    }


def _timetable(definition: Definition, path: Path) -> CronDataIntervalTimetable:
    """Data intervals from one tick of the schedule to the next, in UTC.

    Raises:
        SpecError: when the schedule is no cron expression.
    """
    schedule = definition.backfill.schedule
    try:
        load_timetable(schedule)
    except Exception as error:
        msg = f"backfill.schedule must be a cron expression such as @daily, got {schedule!r} ({path})"
        raise SpecError(msg) from error
    return CronDataIntervalTimetable(schedule, timezone="UTC")


def _built(folder: Path, build: Callable[[Definition, Path], DAG]) -> tuple[list[DAG], list[str]]:
    """The DAGs that could be built, and what is wrong with the other definitions."""
    built: dict[str, DAG] = {}
    takers: dict[str, Path] = {}
    complaints = []
    for path in sorted(folder.glob("*.toml")):
        try:
            definition = load_definition(path)
            name = definition.name
            if name in takers:
                complaints.append(f"name is taken by {takers[name]}, got {name!r} ({path})")
                continue
            _timetable(definition, path)  # without a sound schedule it is broken, and has no DAG of any kind
            built[name], takers[name] = build(definition, path), path
        except SpecError as error:
            complaints.append(str(error))
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not hide the DAGs of the others
            complaints.append(f"{type(error).__name__}: {error} ({path})")
    return list(built.values()), complaints


def dataset_asset(definition: Definition) -> Asset:
    """What downstream DAGs are scheduled by: one event per published range, with its counts."""
    return Asset(name=definition.name, uri=f"backstream://{definition.name}", group="backstream")


def add_run_tasks(definition: Definition, definition_path: Path) -> None:
    """Plan, replay each batch of chunks, audit, approve, publish, report."""
    asset = dataset_asset(definition)

    @task
    def plan() -> list[dict[str, Any]]:
        """Decide what is read, in which chunks, against which state of the lake; write it down as a plan."""
        return tasks.execute_plan(definition_path, get_current_context())

    @task(on_success_callback=VerdictNotifier(), on_failure_callback=VerdictNotifier())
    def audit(plan_path: str) -> str:
        """Check the result; a verdict of fail ends the run here, with its report and without publication."""
        return tasks.execute_audit(plan_path)

    @task(outlets=[asset])
    def publish(plan_path: str) -> int:
        """Replace exactly the range in the published table, in one commit."""
        return tasks.execute_publish(plan_path, get_current_context(), asset)

    @task
    def report(plan_path: str) -> str:
        """Write the run report: verdict, checks, where the events went, what was published."""
        return tasks.execute_report(plan_path)

    planned: Any = plan()
    replayed = ReplayOperator.partial(
        task_id="replay",
        pool=POOL,
        map_index_template="{{ task.name }}",
        doc_md="Replay a batch of chunks as a Spark job: fates, panes and metrics, staged beside the lake.",
    ).expand_kwargs(planned)
    plan_path = planned[tasks.PLAN_KEY]
    approve = ApproveOperator(
        task_id="approve",
        plan_path=plan_path,
        response_timeout=timedelta(milliseconds=definition.approval.timeout),
        doc_md="Ask a person, where the definition or the form says so; without an answer nothing is published.",
    )
    replayed >> audit(plan_path) >> approve >> publish(plan_path) >> report(plan_path)


def add_restate_trigger(restate_dag_id: str) -> None:
    """Beside all that: what is stale or missing before the interval of a scheduled run."""
    RestateOperator(
        task_id="restate",
        trigger_dag_id=restate_dag_id,
        doc_md="Of a scheduled run: have what is stale or missing before it redone, and wait for the end of that.",
        **WAITING,
    )


def add_restate_tasks(definition_path: Path, reprocess_dag_id: str) -> None:
    """Find what is stale or missing, and have each range run as a run of its own, one after another."""

    @task
    def find_intervals() -> list[dict[str, Any]]:
        """Compare what is published with the input files there are now, and look for days that no run covers."""
        return tasks.execute_find(definition_path, get_current_context())

    TriggerDagRunOperator.partial(
        task_id="reprocess",
        trigger_dag_id=reprocess_dag_id,
        fail_when_dag_is_paused=True,  # or it would wait until someone wonders
        max_active_tis_per_dagrun=1,
        map_index_template="{{ task.conf['since'] }} to {{ task.conf['until'] }}",
        doc_md="Run one range as a run of the other DAG, and wait for its end.",
        **WAITING,
    ).expand_kwargs(find_intervals())
