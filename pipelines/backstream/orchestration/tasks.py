"""What each task of a run does. The first line a task logs says what happened."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from backstream.definition.loader import load_definition, parse_definition
from backstream.definition.model import Definition
from backstream.errors import BackstreamError, QualityError
from backstream.eventtime.instants import duration_text, instant_text
from backstream.eventtime.intervals import Interval
from backstream.orchestration.connections import provide_lake
from backstream.orchestration.params import AS_DEFINED, RunParams, require_known_params
from backstream.orchestration.run_range import (
    data_interval,
    resolve_limits,
    resolve_local_days,
    resolve_range,
    running_data_intervals,
    with_seconds,
)
from backstream.runs.chunk_groups import batch_groups, batch_name
from backstream.runs.home import Home
from backstream.runs.input_notes import describe_inputs
from backstream.runs.plan import Chunk, Plan
from backstream.runs.progress import load_progress
from backstream.runs.results import Audit, Publication

if TYPE_CHECKING:
    from backstream.workflow.restate import RestateRange

PLAN_KEY = "plan"
"""Under which the task `plan` leaves the plan's file for the tasks after it."""

REPLAN_HINT = "a new run plans the range anew; so does a Backfill with the configuration replan = true"

log = logging.getLogger(__name__)


@contextmanager
def fail_without_retry() -> Iterator[None]:
    """Turn an error that is not worth a retry into the one that Airflow does not retry.

    Raises:
        AirflowFailException: with the message of the error.
    """
    try:
        yield
    except BackstreamError as error:
        if error.is_retryable:
            raise
        raise AirflowFailException(str(error)) from None


def execute_plan(definition_path: Path, context: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Decide what the run reads, write it down, and push the plan's file as `PLAN_KEY`.

    A run that was cleared goes on with the plan it had, unless it had ended or the form says otherwise.

    Args:
        definition_path: the definition's TOML file.
        context: the task's context: the run's id, parameters and data interval.

    Returns:
        What differs between the Spark jobs, one per batch of chunks; none of a dry run.
    """
    with fail_without_retry():
        asked = RunParams.from_params(context["params"], list(context["dag"].params), context["dag"].dag_id)
        wanted = resolve_range(context["params"], data_interval(context))
        begun = None if asked.is_replan or asked.is_dry_run else _begun(definition_path, wanted, asked, context)
        planned = begun or _planned(definition_path, wanted, asked, context)
    if asked.is_dry_run:
        log.info("dry run: nothing but this was done\n%s", describe_plan(planned))
        return []
    context["ti"].xcom_push(key=PLAN_KEY, value=str(planned.folder.plan))
    most_events = parse_definition(planned.definition, str(definition_path)).backfill.max_events_per_job
    return [_job(planned, batch) for batch in batch_groups(planned.chunks, most_events, asked.max_spark_jobs)]


def _planned(definition_path: Path, wanted: Interval, asked: RunParams, context: Mapping[str, Any]) -> Plan:
    planned: Plan = load_workflow().plan_run(
        definition_path,
        wanted.start_ms,
        wanted.end_ms,
        mode=asked.mode,
        trigger=context["run_id"],
        reason=asked.reason,
        is_unsealed_allowed=asked.is_unsealed_allowed,
        overrides=asked.overrides,
        gate_override=asked.gate_override,
        local_days=resolve_local_days(context["params"]),
        home=Home.from_environment(),
    )
    expected = sum(chunk.expected_events for chunk in planned.chunks)
    log.info(
        "%s %s: %s in %d chunks, about %s events (plan %s)%s",
        *(planned.dataset, planned.range, planned.mode, len(planned.chunks), f"{expected:,}"),
        planned.plan_hash,
        f"; {planned.reason}" if planned.reason else "",
    )
    if planned.local_days:
        log.info("%s", planned.local_days.describe)
    for label, told in describe_inputs(planned):
        log.warning("%s: %s", label.lower(), told)
    return planned


def _begun(definition_path: Path, wanted: Interval, asked: RunParams, context: Mapping[str, Any]) -> Plan | None:
    """The plan that an earlier attempt of this run left; None when it has ended, or was asked something else."""
    definition = load_definition(definition_path)
    found: Plan | None = load_workflow().find_unfinished_plan(
        context["run_id"], definition.name, Home.from_environment()
    )
    if found is None:
        return None
    mode = asked.mode or definition.backfill.mode
    was = (found.range, found.mode, dict(found.overrides), found.gate_override)
    if was != (wanted, mode, dict(asked.overrides), asked.gate_override):
        log.warning("planning anew: plan %s of this run was for something else", found.plan_hash)
        return None
    load_workflow().require_resumable(found, REPLAN_HINT)
    log.info("%s %s: going on with plan %s; %s", found.dataset, found.range, found.plan_hash, load_progress(found))
    return found


def execute_find(definition_path: Path, context: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The runs of `reprocess_<name>` that late data or a gap asks for; none when the form wants to know only.

    Args:
        definition_path: the definition's TOML file.
        context: the task's context: the run's id and parameters.
    """
    params = context["params"]
    with fail_without_retry():
        require_known_params(params, list(context["dag"].params), context["dag"].dag_id)
        found = load_workflow().find_restatements(
            definition_path,
            Home.from_environment(),
            *resolve_limits(params),
            is_missing_wanted=params["include_missing"],
        )
    log.info("%s", found.summary)
    ranges = [
        part for each in found.ranges for part in _left(each, load_definition(definition_path), context["ti"])
    ]
    runs = [_restating(each, params, context["run_id"]) for each in ranges]
    for run in runs:
        log.info("%(since)s to %(until)s: %(reason)s", run["conf"])
    return [] if params["dry_run"] else runs


def _left(wanted: RestateRange, definition: Definition, ti: Any) -> list[RestateRange]:
    """What is left of a range without the intervals that the schedule or a Backfill is at work on."""
    dag_id = f"backfill_{definition.name}"
    others = running_data_intervals(ti, dag_id, definition.backfill.schedule, wanted.interval)
    for other in others:
        log.info("%s: left to its run of %s, which has not ended", other, dag_id)
    return [replace(wanted, interval=part) for part in wanted.interval.without(others)]


def _restating(wanted: RestateRange, params: Mapping[str, Any], run_id: str) -> dict[str, Any]:
    since_ms, until_ms = wanted.interval.start_ms, wanted.interval.end_ms
    reason = f"{params['reason']}; {wanted.reason}" if params.get("reason") else wanted.reason
    conf = {
        "since": with_seconds(since_ms),
        "until": with_seconds(until_ms),
        "mode": wanted.mode.value if wanted.mode else AS_DEFINED,
        "approval": params["approval"],
        "allow_unsealed": params["allow_unsealed"],
        "reason": reason,
    }
    # Both ends: a run that is there already is run again with the range that it was started with.
    return {
        "trigger_run_id": f"restate__{instant_text(since_ms)}__{instant_text(until_ms)}__{run_id}",
        "conf": conf,
    }


def execute_audit(plan_path: str) -> str:
    """Check the run's result and return the verdict; one that forbids publication fails the task for good."""
    with fail_without_retry():
        planned = Plan.read(Path(plan_path))
        try:
            found: Audit = load_workflow().audit_run(planned)
        except QualityError:
            _refresh(planned)  # no other task of the run will
            raise
    log.info("verdict %s: %s", found.verdict, found.summary)
    return found.verdict.value


def execute_publish(plan_path: str, context: Mapping[str, Any], asset: Any) -> int:
    """Make the run's result the truth of its range, in one commit; return the rows now in it.

    The asset gets one event for the whole range, with its counts.
    """
    with fail_without_retry():
        planned = Plan.read(Path(plan_path))
        published: Publication = load_workflow().publish_run(planned)
    log.info(
        "published %s rows of %s in place of %s%s",
        *(f"{published.rows:,}", published.dataset, f"{published.replaced_rows:,}"),
        " (an earlier attempt had done it)" if published.already else "",
    )
    context["outlet_events"][asset].extra = {
        "run_id": published.run_id,
        "since": instant_text(published.since_ms),
        "until": instant_text(published.until_ms),
        "mode": planned.mode.value,
        "rows": published.rows,
        "replaced_rows": published.replaced_rows,
        "verdict": Audit.read(planned.folder.audit_result).verdict.value,
    }
    return published.rows


def execute_report(plan_path: str) -> str:
    """Write the run report and return its file; after that, have the pages show the dataset as it is now."""
    with fail_without_retry():
        planned = Plan.read(Path(plan_path))
        path: Path = load_workflow().report_run(planned)
    log.info("wrote %s", path)
    _refresh(planned)
    return str(path)


def _refresh(planned: Plan) -> None:
    if warning := load_workflow().refresh_after_run(planned):
        log.warning("%s", warning)


def describe_plan(planned: Plan) -> str:
    """A line per chunk: what it reads, about how many events, and its halo."""
    lines = [f"{planned.dataset}  {planned.range}  {planned.mode}, arrival order {planned.arrival_order}"]
    for chunk in planned.chunks:
        halo = duration_text(chunk.halo_end_ms - chunk.end_ms)
        read = f"{len(chunk.files):,} files, about {chunk.expected_events:,} events, halo {halo}"
        lines.append(f"{chunk.chunk_id}  {chunk.interval}  {read}")
    return "\n".join(lines)


def load_workflow() -> ModuleType:
    """The steps of a run, imported by the task that takes them: they bring pandas and Great Expectations."""
    # It tells hundreds of times, as information, which of its own functions its documentation leaves out.
    logging.getLogger("great_expectations").setLevel(logging.WARNING)
    provide_lake()
    return import_module("backstream.workflow")


def _job(planned: Plan, batch: Sequence[Chunk]) -> dict[str, Any]:
    """What tells one batch's Spark job from another's."""
    chunks = [word for chunk in batch for word in ("--chunk", chunk.chunk_id)]
    return {
        "name": batch_name(planned.dataset, batch),
        "application_args": ["--plan", str(planned.folder.plan), *chunks],
    }
