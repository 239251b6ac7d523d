"""Preview a plan for a dry run in Airflow, in the process of a task that has no Spark."""

from __future__ import annotations

from typing import Any, NoReturn

from backstream.errors import BackstreamError, PlanError
from backstream.runs.home import Home
from backstream.runs.plan import Plan
from backstream.workflow.preview.preview import preview_plan
from backstream.workflow.preview.text import preview_text, summary_text


def preview_dry_run(plan: Plan, home: Home) -> tuple[str, str, dict[str, Any] | None]:
    """Return the preview of a plan as one sentence, as a text, and as JSON.

    If there is none, the sentence and the text are the reason, and the JSON is None.

    Args:
        plan: the plan.
        home: the home folder.
    """
    try:
        found = preview_plan(plan, home, _refuse_spark)
    except BackstreamError as error:
        reason = f"no preview: {str(error).partition(chr(10))[0]}"
        return reason, reason, None
    return summary_text(found), preview_text(found), found.as_json()


def _refuse_spark() -> NoReturn:
    msg = "only Spark can compute the rows; use `backstream preview`"
    raise PlanError(msg)
