"""From definitions to DAGs: `backfill_<name>` for each, the same five tasks however a run is started."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, CronDataIntervalTimetable, Param, get_current_context, task

from backstream.core.errors import SpecError
from backstream.core.folders import definitions_folder
from backstream.core.instants import moment
from backstream.core.plan import Mode
from backstream.definition.load import load
from backstream.definition.model import Definition
from backstream.orchestration import tasks
from backstream.orchestration.replay import POOL, ReplayOperator

RETRIES: dict[str, Any] = {
    "retries": 2,
    "retry_delay": timedelta(seconds=20),
    "retry_exponential_backoff": 2.0,
    "max_retry_delay": timedelta(minutes=10),
}

TAGS = ("backstream", "backfill")

DOC = """\
{description}

One run is one range, half-open and in UTC: the run's data interval when it is scheduled or part of a
Backfill, what the form says when it is started by hand. Its chunks run as Spark jobs in the pool `{pool}`;
a failed check publishes nothing; a publication replaces exactly the range, in one commit.

Defined in `{path}`.
"""


def backfill_dags(folder: Path | None = None) -> list[DAG]:
    """One DAG per sound definition in the folder; those of broken ones are left to `require_sound`."""
    return _built(folder or definitions_folder())[0]


def require_sound(folder: Path | None = None) -> None:
    """Check every definition in the folder.

    Airflow hides all DAGs of a file that has an import error, so the file that calls this holds none.

    Raises:
        SpecError: naming each broken definition with key and value, or the folder when there is none.
    """
    folder = folder or definitions_folder()
    if not folder.is_dir():
        msg = f"no folder of definitions at {folder}"
        raise SpecError(msg)
    complaints = _built(folder)[1]
    if len(complaints) == 1:
        raise SpecError(complaints[0])
    if complaints:
        listed = "".join("\n  " + each.replace("\n", "\n  ") for each in complaints)
        msg = f"{len(complaints)} definitions are broken{listed}"
        raise SpecError(msg)


def backfill_dag(definition_path: Path) -> DAG:
    """The DAG of one definition: plan, replay each chunk, audit, publish, report.

    Raises:
        SpecError: when the definition is broken, its schedule included.
    """
    definition = load(definition_path)
    first_ms, last_ms = definition.source.event_time_range
    with DAG(
        dag_id=f"backfill_{definition.name}",
        description=definition.description or None,
        doc_md=DOC.format(description=definition.description, pool=POOL, path=definition_path),
        schedule=_timetable(definition, definition_path),
        # Outside these no event can be: a source that has ended is not asked every month again.
        start_date=moment(first_ms),
        end_date=moment(last_ms),
        catchup=False,
        max_active_runs=1,
        params=_form(),
        tags=[*TAGS, definition.name],
        default_args=RETRIES,
        auto_register=False,
    ) as dag:
        _chain(definition_path)
    return dag


def _chain(definition_path: Path) -> None:
    """The tasks of one run, in order, in the DAG that is being built."""

    @task
    def plan() -> list[dict[str, Any]]:
        """Decide what is read, in which chunks, against which state of the lake; write it down as a plan."""
        return tasks.plan(definition_path, get_current_context())

    @task
    def audit(plan_path: str) -> str:
        """Check the result; a verdict of fail ends the run here, with its report and without publication."""
        return tasks.audit(plan_path)

    @task
    def publish(plan_path: str) -> int:
        """Replace exactly the range in the published table, in one commit."""
        return tasks.publish(plan_path)

    @task
    def report(plan_path: str) -> str:
        """Write the run report: verdict, checks, where the events went, what was published."""
        return tasks.report(plan_path)

    planned: Any = plan()
    replayed = ReplayOperator.partial(
        task_id="replay",
        pool=POOL,
        map_index_template="{{ task.name }}",
        doc_md="Replay one chunk as a Spark job: fates, panes and metrics, staged beside the lake.",
    ).expand_kwargs(planned)
    plan_path = planned[tasks.PLAN_KEY]
    replayed >> audit(plan_path) >> publish(plan_path) >> report(plan_path)


def _form() -> dict[str, Param]:
    """What a person may choose when starting a run by hand, or in the configuration of a Backfill."""
    instant: dict[str, Any] = {"type": ["null", "string"], "format": "date-time", "section": "Range"}
    without = "Without a range the run does its data interval."
    return {
        "since": Param(None, title="Since", description_md=f"First instant, included. {without}", **instant),
        "until": Param(None, title="Until", description_md=f"Last instant, excluded. {without}", **instant),
        "mode": Param(
            tasks.AS_DEFINED,
            type="string",
            enum=[tasks.AS_DEFINED, *(mode.value for mode in Mode)],
            title="Mode",
            description_md="`recompute`: only event time counts. `replay`: arrival order is reproduced.",
        ),
        "reason": Param("", type="string", maxLength=500, title="Reason", description="Kept with the run"),
    }


def _timetable(definition: Definition, definition_path: Path) -> CronDataIntervalTimetable:
    """Data intervals from one tick of the schedule to the next, in UTC.

    Raises:
        SpecError: when the schedule is no cron expression.
    """
    from airflow.timetables.interval import CronDataIntervalTimetable as CheckedTimetable

    schedule = definition.backfill.schedule
    try:
        CheckedTimetable(schedule, timezone="UTC").validate()
    except Exception as error:
        msg = f"backfill.schedule must be a cron expression such as @daily, got {schedule!r} ({definition_path})"
        raise SpecError(msg) from error
    return CronDataIntervalTimetable(schedule, timezone="UTC")


def _built(folder: Path) -> tuple[list[DAG], list[str]]:
    """The DAGs that could be built, and what is wrong with the other definitions."""
    built: dict[str, DAG] = {}
    takers: dict[str, Path] = {}
    complaints = []
    for path in sorted(folder.glob("*.toml")):
        try:
            name = load(path).name
            if name in takers:
                complaints.append(f"name is taken by {takers[name]}, got {name!r} ({path})")
                continue
            built[name], takers[name] = backfill_dag(path), path
        except SpecError as error:
            complaints.append(str(error))
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not hide the DAGs of the others
            complaints.append(f"{type(error).__name__}: {error} ({path})")
    return list(built.values()), complaints
