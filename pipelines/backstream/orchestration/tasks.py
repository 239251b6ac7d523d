"""What each task of a run does. The first line a task logs says what happened."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from airflow.sdk.exceptions import AirflowFailException

from backstream.core.audit import Audit
from backstream.core.errors import ConflictError, ContractError, PlanError, QualityError, SpecError
from backstream.core.folders import Home
from backstream.core.plan import Chunk, Mode, Plan
from backstream.core.publication import Publication
from backstream.orchestration.ranges import resolve_range

AS_DEFINED = "as defined"
"""The form's choice that leaves the mode to the definition."""

PLAN_KEY = "plan"
"""Under which the task `plan` leaves the plan's file for the tasks after it."""

HOPELESS = (SpecError, PlanError, ContractError, QualityError, ConflictError)
"""What the same plan meets again however often it is tried: only another range, definition or plan helps."""

log = logging.getLogger(__name__)


@contextmanager
def failing_for_good() -> Iterator[None]:
    """Turn an error that no retry heals into the one that Airflow does not retry.

    Raises:
        AirflowFailException: with the message of the error.
    """
    try:
        yield
    except HOPELESS as error:
        raise AirflowFailException(str(error)) from None


def plan(definition_path: Path, context: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Decide what the run reads, write it down, and push the plan's file as `PLAN_KEY`.

    Args:
        definition_path: the definition's TOML file.
        context: the task's context: the run's id, parameters and data interval.

    Returns:
        What differs between the Spark jobs, one per chunk; Airflow maps over a task's return value only.
    """
    steps = _steps()
    params = context["params"]
    with failing_for_good():
        wanted = resolve_range(params, (context.get("data_interval_start"), context.get("data_interval_end")))
        planned: Plan = steps.plan_run(
            definition_path,
            wanted.start_ms,
            wanted.end_ms,
            mode=mode_of(params.get("mode")),
            trigger=context["run_id"],
            reason=params.get("reason") or "",
            home=Home.from_environment(),
        )
    expected = sum(chunk.expected_events for chunk in planned.chunks)
    log.info(
        "%s %s: %s in %d chunks, about %s events (plan %s)",
        *(planned.dataset, planned.range, planned.mode, len(planned.chunks), f"{expected:,}"),
        planned.plan_hash,
    )
    context["ti"].xcom_push(key=PLAN_KEY, value=str(planned.folder.plan))
    return [_job(planned, chunk) for chunk in planned.chunks]


def audit(plan_path: str) -> str:
    """Check the run's result and return the verdict; one that forbids publication fails the task for good."""
    steps = _steps()
    with failing_for_good():
        found: Audit = steps.audit_run(Plan.read(Path(plan_path)))
    log.info("verdict %s: %s", found.verdict, found.summary)
    return found.verdict.value


def publish(plan_path: str) -> int:
    """Make the run's result the truth of its range, in one commit; return the rows now in it."""
    steps = _steps()
    with failing_for_good():
        published: Publication = steps.publish_run(Plan.read(Path(plan_path)))
    log.info(
        "published %s rows of %s in place of %s%s",
        *(f"{published.rows:,}", published.dataset, f"{published.replaced_rows:,}"),
        " (an earlier attempt had done it)" if published.already else "",
    )
    return published.rows


def report(plan_path: str) -> str:
    """Write the run report and return its file."""
    steps = _steps()
    with failing_for_good():
        path: Path = steps.report_run(Plan.read(Path(plan_path)))
    log.info("wrote %s", path)
    return str(path)


def mode_of(choice: str | None) -> Mode | None:
    """The mode a person chose; None leaves it to the definition.

    Raises:
        SpecError: when there is no such mode.
    """
    if choice in (None, "", AS_DEFINED):
        return None
    try:
        return Mode(str(choice))
    except ValueError:
        *first, last = [repr(name) for name in (AS_DEFINED, *(each.value for each in Mode))]
        msg = f"mode must be {', '.join(first)} or {last}, got {choice!r}"
        raise SpecError(msg) from None


def _steps() -> ModuleType:
    """The steps of a run, imported by the task that takes them: they bring pandas and Great Expectations."""
    # It tells hundreds of times, as information, which of its own functions its documentation leaves out.
    logging.getLogger("great_expectations").setLevel(logging.WARNING)
    return import_module("backstream.steps")


def _job(planned: Plan, chunk: Chunk) -> dict[str, Any]:
    """What tells one chunk's Spark job from another's."""
    return {
        "name": f"{planned.dataset} {chunk.chunk_id}: {chunk.interval}",
        "application_args": ["--plan", str(planned.folder.plan), "--chunk", chunk.chunk_id],
    }
