"""Preview a plan for a dry run in Airflow, in the process of a task that has no Spark."""

from __future__ import annotations

from typing import NoReturn

from backstream.errors import BackstreamError, PlanError
from backstream.runs.home import Home
from backstream.runs.plan import Plan
from backstream.workflow.preview.preview import preview_plan
from backstream.workflow.preview.text import preview_text, summary_text


def preview_dry_run(plan: Plan, home: Home) -> tuple[str, str]:
    """Return the preview of a plan as one sentence and as a text; if there is none, the reason twice.

    Args:
        plan: the plan.
        home: the home folder.
    """
    try:
        found = preview_plan(plan, home, _refuse_spark)
    except BackstreamError as error:
        reason = f"no preview: {str(error).partition(chr(10))[0]}"
        return reason, reason
    return summary_text(found), preview_text(found)


def _refuse_spark() -> NoReturn:
    msg = "only Spark can compute the rows; use `backstream preview`"
    raise PlanError(msg)
