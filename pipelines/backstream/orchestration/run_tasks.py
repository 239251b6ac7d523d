"""Add the tasks of a run to a DAG or a task group: plan, replay, audit, approve, publish, and report."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import Asset, AssetAny, TaskGroup, get_current_context, task

from backstream.definition.folder import find_definition
from backstream.definition.loader import load_definition
from backstream.definition.model import Definition
from backstream.definition.prepared import list_single_sources, reason_to_prepare
from backstream.orchestration import tasks
from backstream.orchestration.airflow_versions import HAS_ASSET_PARTITIONS, HAS_PAUSED_STATE
from backstream.orchestration.dag_options import CONNECTION_ID, POOL, DagOptions
from backstream.orchestration.definitions import find_team
from backstream.orchestration.job_operators import PrepareOperator, ReplayOperator
from backstream.orchestration.notifications import VerdictNotifier
from backstream.orchestration.params import GROUP_PARAMS, require_known_params
from backstream.orchestration.priority import WEIGHT_RULE
from backstream.orchestration.run_operators import (
    WAITING,
    ApproveOperator,
    AuditOperator,
    PublishOperator,
    RestateOperator,
)
from backstream.runs.dag_names import qualified_name


def _dataset_asset(name: str) -> Asset:
    """Return the asset that schedules downstream DAGs: one event per published range, with its counts."""
    return Asset(name=name, uri=f"backstream://{name}", group="backstream")


def _days_asset(name: str) -> Asset:
    """Return the asset whose partitions are the days: one event per published day.

    The assets are two, because Airflow does not trigger a DAG without partitions by an event that has one.
    """
    return Asset(name=f"{name}.days", uri=f"backstream://{name}/days", group="backstream")


def input_assets(definition: Definition) -> AssetAny | None:
    """Return the assets of the inputs, each of which triggers the DAG `restate_<name>`; None without any."""
    inputs = [definition.source, *definition.source.parts, *definition.inputs.values()]
    names = dict.fromkeys(each.asset for each in inputs if each.asset)
    refs = [Asset.ref(uri=name) if "://" in name else Asset.ref(name=name) for name in names]
    return AssetAny(*refs) if refs else None


def add_run_tasks(
    definition: Definition, path: Path, options: DagOptions, request: Mapping[str, Any] | None = None
) -> None:
    """Add the tasks of a run: plan, replay each batch of chunks, audit, approve, publish, and report.

    Args:
        definition: definition of the dataset.
        path: its TOML file.
        options: pool and connection of the Spark jobs.
        request: parameters of the run, as templates; None for the parameters of the DAG.
    """

    @task
    def plan(request: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """Create the plan: the input files, the chunks, and the snapshots that the run replaces."""
        return tasks.execute_plan(path, definition.name, get_current_context(), request)

    @task
    def report(plan_path: str) -> str:
        """Write the run report: verdict, checks, record accounting, and publication."""
        return tasks.execute_report(path, plan_path)

    jobs: Any = plan() if request is None else plan(dict(request))
    prepare = _make_prepare_task(definition, path, options, request, is_of_run=True)
    if prepare is not None:
        prepare >> jobs
    replay = ReplayOperator.partial(
        task_id="replay",
        definition_path=str(path),
        map_index_template="{{ task.name }}",
        doc_md="Replay a batch of chunks as a Spark job, and stage windows, panes, and metrics beside the lake.",
        **options.job_arguments,
    ).expand_kwargs(jobs)
    result = {"plan_path": jobs[tasks.PLAN_KEY], "definition_path": str(path)}
    approve = ApproveOperator(
        task_id="approve",
        **result,
        response_timeout=timedelta(milliseconds=definition.approval.timeout),
        doc_md="Wait for approval if the definition or the form requires it. A timeout rejects the publication.",
    )
    audit = AuditOperator(
        task_id="audit",
        on_success_callback=VerdictNotifier(),
        on_failure_callback=VerdictNotifier(),
        doc_md="Check the result. If the verdict is fail, the run publishes nothing, and writes its report.",
        **result,
    )
    name = qualified_name(definition.name, find_team(path))
    publish = PublishOperator(
        task_id="publish",
        asset=_dataset_asset(name),
        days=_days_asset(name) if HAS_ASSET_PARTITIONS else None,
        doc_md="Replace exactly the range in the published table, in one commit.",
        **result,
    )
    replay >> audit >> approve >> publish >> report(result["plan_path"])


def _make_prepare_task(
    definition: Definition,
    path: Path,
    options: DagOptions,
    request: Mapping[str, Any] | None = None,
    *,
    is_of_run: bool = False,
) -> PrepareOperator | None:
    """Return the task that prepares new files before another task; None if the source does not need it."""
    if reason_to_prepare(definition) is None:
        return None
    has_filter = any(single.source.partition_filter for single in list_single_sources(definition))
    return PrepareOperator(
        task_id="prepare",
        name=f"prepare {definition.name}",
        dataset=definition.name if is_of_run else "",
        definition_path=str(path),
        application_args=["--definition", str(path)],
        reads_range=is_of_run and has_filter,
        request=request,
        doc_md="Read the new files of the source, and write their records to Parquet files with plain columns.",
        **options.job_arguments,
    )


def add_restate_trigger(restate_dag_id: str) -> None:
    """Add the task that triggers the restatement of days before the data interval of a scheduled run."""
    RestateOperator(
        task_id="restate",
        trigger_dag_id=restate_dag_id,
        doc_md="In a scheduled run, reprocess earlier days that are stale or missing, and wait for the end.",
        **WAITING,
    )


def add_restate_tasks(definition: Definition, path: Path, options: DagOptions, reprocess_dag_id: str) -> None:
    """Add the tasks that find stale and missing ranges, and reprocess one range after another."""

    @task
    def find_intervals() -> list[dict[str, Any]]:
        """Compare published days with the current input files, and find days that no run covers."""
        return tasks.execute_find_intervals(path, get_current_context())

    intervals = find_intervals()
    prepare = _make_prepare_task(definition, path, options)
    if prepare is not None:
        prepare >> intervals
    TriggerDagRunOperator.partial(
        task_id="reprocess",
        trigger_dag_id=reprocess_dag_id,
        fail_when_dag_is_paused=HAS_PAUSED_STATE,  # otherwise the task waits while the DAG is paused
        max_active_tis_per_dagrun=1,
        map_index_template="{{ task.conf['since'] }} to {{ task.conf['until'] }}",
        doc_md="Trigger a run of the other DAG for one range, and wait for its end.",
        **WAITING,
    ).expand_kwargs(intervals)


def add_keep_batches_task(path: Path) -> None:
    """Add the task that copies the batches of a job of Structured Streaming out of its checkpoint."""

    @task
    def keep_batches() -> str:
        """Copy the batches that have ended since the last run, and name those that Spark has removed before."""
        return tasks.execute_keep_batches(path)

    keep_batches()


class BackfillTaskGroup(TaskGroup):
    """The tasks of one run, from `plan` to `report`, for a range of the team's choice.

    Example:
        with DAG("sales", schedule="@weekly"):
            extract() >> BackfillTaskGroup("orders", "orders.toml", since="{{ ds }}T00:00:00Z", ...) >> send_mail()
    """

    def __init__(
        self,
        group_id: str,
        definition: Path | str,
        *,
        since: str | None = None,
        until: str | None = None,
        pool: str = POOL,
        spark_connection: str = CONNECTION_ID,
        run_params: Mapping[str, Any] | None = None,
        **arguments: Any,
    ) -> None:
        """Add the tasks to the current DAG.

        Args:
            group_id: id of the group, the prefix of its task ids.
            definition: TOML file, or the name of a definition in the folders of the settings.
            since: start of the range, ISO 8601 with an offset, may be a template; by default the data interval's.
            until: end of the range, excluded, as `since`.
            pool: pool of the tasks that run Spark jobs.
            spark_connection: id of the Airflow connection to Spark.
            run_params: parameters of the run as in the form of `reprocess_<name>`, such as `mode` and `reason`.
            arguments: further arguments of Airflow's task group, such as `default_args` and `tooltip`.

        Raises:
            SpecError: when the definition does not exist, or it or a parameter is invalid.
        """
        path = find_definition(definition) if isinstance(definition, str) else definition
        require_known_params(run_params or {}, GROUP_PARAMS, f"the task group {group_id}")
        request = GROUP_PARAMS | dict(run_params or {}) | {"since": since, "until": until}
        super().__init__(group_id, **arguments)
        self.default_args.setdefault("weight_rule", self.dag.default_args.get("weight_rule", WEIGHT_RULE))
        with self:
            add_run_tasks(load_definition(path), path.resolve(), DagOptions(pool, spark_connection), request)
