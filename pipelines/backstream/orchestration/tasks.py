"""Execute the tasks of a run. The first line in the log of a task reports the result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from logging import INFO, WARNING
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backstream.definition.loader import load_definition, parse_definition
from backstream.definition.model import Definition
from backstream.errors import BackstreamError, QualityError
from backstream.eventtime.instants import instant_text
from backstream.eventtime.intervals import Interval
from backstream.orchestration.airflow_versions import AirflowFailException
from backstream.orchestration.connections import provide_environment
from backstream.orchestration.metrics import send_audit, send_publication
from backstream.orchestration.params import AS_DEFINED, GROUP_PARAMS, RunParams, require_known_params
from backstream.orchestration.requests import record_request, trigger_of
from backstream.orchestration.run_range import (
    data_interval,
    partition_keys,
    resolve_limits,
    resolve_local_days,
    resolve_range,
    running_data_intervals,
    with_seconds,
)
from backstream.runs.choices import RunChoices
from backstream.runs.chunk_groups import batch_groups, batch_name
from backstream.runs.dag_names import BACKFILL, dag_id_of
from backstream.runs.home import Home, RunFolder
from backstream.runs.input_notes import describe_inputs
from backstream.runs.plan import Chunk, Plan
from backstream.runs.progress import Phase, begin_phase, load_progress
from backstream.runs.results import Audit
from backstream.text import text_logger, visible_line
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.requested_range import RequestedRange

if TYPE_CHECKING:
    from backstream.workflow.late_data.restate import RestateRange

PLAN_KEY = "plan"
"""XCom key of the plan file, which the task `plan` pushes for the later tasks."""

_REPLAN_HINT = "to create a new plan, start a new run, or a Backfill with the configuration replan = true"

log = text_logger(__name__)


@contextmanager
def fail_without_retry() -> Iterator[None]:
    """Convert errors that a retry cannot fix into the error class that Airflow doesn't retry.

    Raises:
        AirflowFailException: with the message of the error.
    """
    try:
        yield
    except BackstreamError as error:
        if error.is_retryable:
            raise
        raise AirflowFailException(str(error)) from None


def execute_plan(
    definition_path: Path, dataset: str, context: Mapping[str, Any], request: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Create the plan of the run, and push its file as `PLAN_KEY`.

    A cleared run keeps its plan, unless its parameters have changed, or a new plan would lead to other rows.

    Args:
        definition_path: TOML file of the definition.
        dataset: its name.
        context: context of the task, with the run id, the parameters, and the data interval.
        request: parameters of a run in a task group; None for those of the DAG run.

    Returns:
        The arguments of each Spark job, one job per batch of chunks; an empty list for a dry run.
    """
    params = context["params"] if request is None else request
    known = context["dag"].params if request is None else GROUP_PARAMS
    with fail_without_retry():
        provide_environment(definition_path)
        trigger = trigger_of(context)
        with record_request(context, dataset, params, trigger) as recorded:
            run_params = RunParams.from_params(params, list(known), context["dag"].dag_id)
            interval = resolve_range(params, data_interval(context))
            choices, is_new = run_params.choices, run_params.is_replan or run_params.is_dry_run
            resumed = None if is_new else _find_resumable_plan(definition_path, interval, choices, trigger)
            requested = RequestedRange(interval, resolve_local_days(params))
            plan = resumed or _create_plan(definition_path, requested, choices, trigger)
            recorded.add_plan(plan)
            if run_params.is_dry_run:
                from backstream.workflow.plan.impact import estimate_impact
                from backstream.workflow.preview.preview import preview_dry_run

                home = Home.from_environment()
                impact = estimate_impact(plan, home)
                changes, preview, result = preview_dry_run(plan, home)
                recorded.add(impact=impact.as_json() | {"changes": changes, "preview": result})
    if run_params.is_dry_run:
        from backstream.workflow.plan_text import plan_text

        log.info("dry run: created the plan only\n%s\n\n%s", plan_text(plan), preview)
        return []
    context["ti"].xcom_push(key=PLAN_KEY, value=plan.location)
    max_events = parse_definition(plan.definition, str(definition_path)).max_events_per_job
    return [
        _job_arguments(plan, batch) for batch in batch_groups(plan.chunks, max_events, run_params.max_spark_jobs)
    ]


def _create_plan(definition_path: Path, requested: RequestedRange, choices: RunChoices, trigger: str) -> Plan:
    from backstream.workflow.plan.planning import plan_run

    home = Home.from_environment()
    plan = plan_run(PlanRequest.of(choices, definition_path, requested, trigger=trigger, home=home))
    log.info(
        "%s %s: %s in %d chunks, about %s events (plan %s)%s",
        *(plan.dataset, plan.range, plan.mode, len(plan.chunks), f"{plan.expected_events:,}"),
        plan.plan_hash,
        f"; {visible_line(plan.reason)}" if plan.reason else "",
    )
    if plan.local_days:
        log.info("%s", plan.local_days.describe)
    for label, text in describe_inputs(plan):
        log.warning("%s: %s", label.lower(), text)
    return plan


def _find_resumable_plan(
    definition_path: Path, interval: Interval, choices: RunChoices, trigger: str
) -> Plan | None:
    """Return the plan of an earlier attempt of this run; None if the run needs a new one."""
    from backstream.workflow.demands import describe_final
    from backstream.workflow.resume import find_plan_of, note_later_files, require_resumable

    definition = load_definition(definition_path)
    plan = find_plan_of(trigger, definition.name, Home.from_environment())
    if plan is None:
        return None
    mode = choices.mode or definition.backfill.mode
    planned_for = (plan.range, plan.mode, dict(plan.overrides), plan.gate_override)
    if planned_for != (interval, mode, dict(choices.overrides), choices.gate_override):
        log.warning("creating a new plan: the parameters of this run changed since plan %s", plan.plan_hash)
        return None
    if final := describe_final(plan):
        is_moved = Path(plan.definition_path) != definition_path
        if is_moved and plan.definition_hash != definition.definition_hash:
            log.warning("creating a new plan: the definition is now %s, and differs", definition_path)
            return None
        log.info("%s; %s", final, _REPLAN_HINT)
        return plan
    require_resumable(plan, _REPLAN_HINT)
    log.info("%s %s: resuming plan %s; %s", plan.dataset, plan.range, plan.plan_hash, load_progress(plan))
    if later := note_later_files(plan):
        log.warning("%s", later)
    return plan


def execute_find_intervals(definition_path: Path, context: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the runs of `reprocess_<name>` for stale and missing ranges; an empty list for a dry run.

    Args:
        definition_path: TOML file of the definition.
        context: context of the task, with the run id and the parameters.
    """
    from backstream.workflow.late_data.restate import find_restatements

    params = context["params"]
    with fail_without_retry():
        require_known_params(params, list(context["dag"].params), context["dag"].dag_id)
        provide_environment(definition_path)
        restatements = find_restatements(
            definition_path,
            Home.from_environment(),
            *resolve_limits(params),
            is_missing_wanted=params["include_missing"],
        )
    log.info("%s", restatements.summary)
    definition = load_definition(definition_path)
    ranges = [
        part
        for stale_range in restatements.ranges
        for part in _unclaimed_parts(stale_range, definition, context["ti"])
    ]
    runs = [_reprocess_run(part, params, context["run_id"]) for part in ranges]
    for run in runs:
        conf = run["conf"]
        log.info("%s to %s: %s", conf["since"], conf["until"], visible_line(conf["reason"]))
    return [] if params["dry_run"] else runs


def _unclaimed_parts(stale_range: RestateRange, definition: Definition, ti: Any) -> list[RestateRange]:
    """Return a range without the data intervals of unfinished runs of the schedule or of a Backfill."""
    dag_id = dag_id_of(BACKFILL, definition.name)
    claimed = running_data_intervals(ti, dag_id, definition.backfill.schedule, stale_range.interval)
    for interval in claimed:
        log.info("%s: skipped, its run of %s has not ended", interval, dag_id)
    return [replace(stale_range, interval=part) for part in stale_range.interval.without(claimed)]


def _reprocess_run(stale_range: RestateRange, params: Mapping[str, Any], run_id: str) -> dict[str, Any]:
    """Return the arguments that trigger `reprocess_<name>` for a range."""
    since_ms, until_ms = stale_range.interval.start_ms, stale_range.interval.end_ms
    conf = {
        "since": with_seconds(since_ms),
        "until": with_seconds(until_ms),
        "mode": stale_range.mode.value if stale_range.mode else AS_DEFINED,
        "approval": params["approval"],
        "allow_unsealed": params["allow_unsealed"],
        "reason": f"{params['reason']}; {stale_range.reason}" if params.get("reason") else stale_range.reason,
    }
    # The id has both ends, because Airflow reruns an existing run with the configuration of its first start.
    return {
        "trigger_run_id": f"restate__{instant_text(since_ms)}__{instant_text(until_ms)}__{run_id}",
        "conf": conf,
    }


def begin_task(definition_path: Path, plan_path: str, phase: Phase) -> None:
    """Record the phase of a run before the imports of a task, which take seconds.

    The settings and the Airflow connections come first, because a home in a store can have its keys there.
    """
    provide_environment(definition_path)
    begin_phase(RunFolder.from_plan(plan_path), phase)


def execute_audit(definition_path: Path, plan_path: str) -> str:
    """Audit the result and return the verdict; a verdict that forbids publication fails the task without retry."""
    with fail_without_retry():
        begin_task(definition_path, plan_path, Phase.AUDIT)
        from backstream.workflow.audit import audit_run, judge_again
        from backstream.workflow.demands import describe_final

        plan = Plan.load(plan_path)
        if final := describe_final(plan):
            if later := judge_again(plan):
                log.warning("run %s is published and stays so; %s", plan.run_id, later)
            else:
                log.info("%s", final)
            return Audit.read(plan.folder.audit_result).verdict.value
        try:
            audit = audit_run(plan)
        except QualityError:
            send_audit(plan, Audit.read(plan.folder.audit_result))
            _refresh_dataset_state(plan)  # the later tasks don't run
            raise
    send_audit(plan, audit)
    log.info("verdict %s: %s", audit.verdict, audit.summary)
    return audit.verdict.value


def execute_publish(
    definition_path: Path, plan_path: str, context: Mapping[str, Any], asset: Any, days: Any
) -> tuple[int, bool]:
    """Replace the rows of the range in one commit; return the number of published rows, and whether they are news.

    Airflow must send no event about rows that it has sent before, or that are gone.

    Args:
        definition_path: TOML file of the definition.
        plan_path: file of the plan.
        context: context of the task, with the events of its assets.
        asset: asset of the dataset, which gets one event for the whole range, with its counts.
        days: asset of the days, which gets one event per day of the range; None without such assets.
    """
    with fail_without_retry():
        begin_task(definition_path, plan_path, Phase.PUBLISH)
        from backstream.workflow.demands import describe_final, has_published_rows
        from backstream.workflow.publish import publish_run

        plan = Plan.load(plan_path)
        publication = publish_run(plan)
        if plan.folder.events_sent.exists() or not has_published_rows(plan, publication):
            log.info("%s", describe_final(plan))
            return publication.rows, False
    send_publication(plan, publication)
    log.info(
        "published %s rows of %s, replacing %s%s",
        *(f"{publication.rows:,}", publication.dataset, f"{publication.replaced_rows:,}"),
        " (by an earlier attempt)" if publication.already else "",
    )
    context["outlet_events"][asset].extra = {
        "run_id": publication.run_id,
        "since": instant_text(publication.since_ms),
        "until": instant_text(publication.until_ms),
        "mode": plan.mode.value,
        "rows": publication.rows,
        "replaced_rows": publication.replaced_rows,
        "verdict": Audit.read(plan.folder.audit_result).verdict.value,
    }
    if days is not None:
        context["outlet_events"][days].add_partitions(partition_keys(plan.range))
        context["outlet_events"][days].extra = {"run_id": publication.run_id, "mode": plan.mode.value}
    return publication.rows, True


def execute_report(definition_path: Path, plan_path: str) -> str:
    """Write the run report, refresh the dataset state for the pages, and return the report file."""
    from backstream.workflow.report import report_run

    with fail_without_retry():
        provide_environment(definition_path)
        plan = Plan.load(plan_path)
        path = report_run(plan)
    log.info("wrote %s", path)
    _refresh_dataset_state(plan)
    return str(path)


def execute_keep_batches(definition_path: Path) -> str:
    """Copy the batches that the job of a definition has ended to the home, and return their numbers.

    Args:
        definition_path: TOML file of the definition.
    """
    from backstream.workflow.inputs.job_batches import keep_job_batches

    with fail_without_retry():
        provide_environment(definition_path)
        kept = keep_job_batches(load_definition(definition_path), Home.from_environment())
    for checkpoint, batches in kept.items():
        log.log(WARNING if batches.lost else INFO, "%s\n%s", checkpoint, batches)
    return "\n".join(f"{checkpoint}: {batches}" for checkpoint, batches in kept.items())


def _refresh_dataset_state(plan: Plan) -> None:
    from backstream.workflow.dataset_state import refresh_after_run

    if warning := refresh_after_run(plan):
        log.warning("%s", warning)


def _job_arguments(plan: Plan, batch: Sequence[Chunk]) -> dict[str, Any]:
    """Return the arguments of the `replay` task for one batch of chunks."""
    chunks = [word for chunk in batch for word in ("--chunk", chunk.chunk_id)]
    return {
        "name": batch_name(plan.dataset, batch),
        "application_args": ["--plan", plan.location, *chunks],
    }
