"""Define the parameters of the DAGs, which Airflow shows as a form.

The Airflow server checks a form by its JSON schema before it starts a run, and each task checks it again.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import Param

from backstream.definition.loader import DELAYED
from backstream.definition.model import Definition
from backstream.eventtime.instants import duration_text, instant_text
from backstream.eventtime.watermark_generators import StrategyKind
from backstream.orchestration.params import AS_DEFINED
from backstream.runs.chunk_groups import MAX_BATCHES
from backstream.runs.plan import Mode

_DURATION = r"^(\d+(ms|s|m|h|d))+$"
_DAYS = r"^[1-9]\d*d$"
_YEARS = r"^(19[789]|2\d\d)\d-"
"""Years from 1970 to 2999: no source has events in the year 1 or 9999."""
_REQUIRED: dict[str, Any] = {"type": ["null", "string"], "allOf": [{"type": "string"}]}
"""Type of a required text. Airflow's form marks an empty field as wrong at once if its type has no `null`."""


def backfill_params(definition: Definition) -> dict[str, Param]:
    """Return the parameters of `backfill_<name>`; none is required, because the schedule starts most runs."""
    return (
        _execution_params(definition)
        | _publication_params(definition)
        | _replan_param()
        | {"reason": _reason(is_required=False)}
    )


def reprocess_params(definition: Definition) -> dict[str, Param]:
    """Return the parameters of `reprocess_<name>`; the range and a reason are required."""
    first_ms, end_ms = definition.source.event_time_range
    ends = {
        "since": _instant("Since", "Start of the range", f"Not before `{instant_text(first_ms)}`"),
        "until": _instant(
            "Until", "End of the range, excluded", f"Not after `{instant_text(end_ms)}` or in the future"
        ),
    }
    ends["time_zone"] = Param(
        None,
        type=["null", "string"],
        title="Time zone",
        description_md=(
            "For example, `America/New_York`. `since` and `until` are then midnights in this time zone, and the "
            "run covers all UTC days that overlap the range. Default: UTC."
        ),
        section="Range",
    )
    dry_run = Param(
        False,  # noqa: FBT003 - the form's default
        type="boolean",
        title="Dry run",
        description_md="Only create the plan. The log of the task `plan` lists the chunks.",
        section="Publication",
    )
    execution, publication = _execution_params(definition), _publication_params(definition)
    return (
        ends
        | {"reason": _reason(is_required=True)}
        | execution
        | publication
        | {"dry_run": dry_run}
        | _replan_param()
    )


def restate_params() -> dict[str, Param]:
    """Return the parameters of `restate_<name>`: the limits of the search, and options of the runs."""
    everywhere = "Default: no limit."
    ends = {
        name: Param(None, type=["null", "string"], format="date-time", title=title, description_md=everywhere)
        for name, title in (("since", "Not before"), ("until", "Not after"))
    }
    missing = Param(
        True,  # noqa: FBT003 - the form's default
        type="boolean",
        title="Include missing days",
        description_md="Also reprocess days between published days that no run covers.",
    )
    dry_run = Param(
        False,  # noqa: FBT003 - the form's default
        type="boolean",
        title="Dry run",
        description_md="Only find stale and missing days. The log of the task `find_intervals` lists them.",
    )
    run_params = {
        "approval": _approval(None),
        "allow_unsealed": _allow_unsealed(),
        "reason": _reason(is_required=False),
    }
    return ends | {"include_missing": missing, "dry_run": dry_run} | run_params


def _instant(title: str, what: str, limit: str) -> Param:
    """Return a parameter for an instant. The task `plan` checks its limits, since a schema has no current time."""
    return Param(
        **_REQUIRED,
        format="date-time",
        pattern=_YEARS,
        title=title,
        description_md=(
            f"{what}, with an offset, e.g., `2013-02-01T00:00:00Z`. {limit}. Must be the start of a UTC day."
        ),
        section="Range",
    )


def _reason(*, is_required: bool) -> Param:
    texts: dict[str, Any] = {"title": "Reason", "description": "Stored in the plan, the report, and the ledger"}
    if is_required:
        return Param(**_REQUIRED, pattern=r"\S", maxLength=500, section="Range", **texts)
    return Param("", type="string", maxLength=500, **texts)


def _execution_params(definition: Definition) -> dict[str, Param]:
    watermark = definition.watermark
    form = {"mode": _mode(definition)}
    has_one_source = not definition.source.parts
    if has_one_source and watermark.strategy in DELAYED:
        form["delay"] = _override("Delay", f"{duration_text(watermark.delay)}; replay only")
    if has_one_source and watermark.strategy is not StrategyKind.NONE:
        idle = duration_text(watermark.idle_timeout) if watermark.idle_timeout else "never"
        form["idle_timeout"] = _override("Idle timeout", f"{idle}; replay only")
    form["allowed_lateness"] = _override(
        "Allowed lateness", f"{duration_text(definition.lateness.allowed)}; replay only"
    )
    form["chunk"] = _override("Chunk", f"{duration_text(definition.backfill.chunk)}; whole days", "7d", _DAYS)
    form["max_spark_jobs"] = Param(
        None,
        type=["null", "integer"],
        minimum=1,
        maximum=MAX_BATCHES,
        title="Spark jobs",
        description_md=f"Maximum number of Spark jobs, up to {MAX_BATCHES}. Default: small chunks share a job.",
        section="Execution",
    )
    return form


def _mode(definition: Definition) -> Param:
    defined = definition.backfill.mode.value
    return Param(
        AS_DEFINED,
        type="string",
        enum=[AS_DEFINED, *(mode.value for mode in Mode)],
        title="Mode",
        description_md=(
            "`recompute`: use event time only; no record is late. `replay`: process records in arrival order. "
            f"Defined: `{defined}`."
        ),
        section="Execution",
    )


def _override(title: str, defined: str, example: str = "45m", pattern: str = _DURATION) -> Param:
    return Param(
        None,
        type=["null", "string"],
        pattern=pattern,
        title=title,
        description_md=f"For example, `{example}`. Default: as defined ({defined}).",
        section="Execution",
    )


def _publication_params(definition: Definition) -> dict[str, Param]:
    gate_override = Param(
        None,
        type=["null", "string"],
        pattern=r"\S",
        maxLength=500,
        title="Override the quality gate",
        description_md=(
            "Reason for publishing although the verdict is `fail`. Stored in the report and the ledger. "
            "Default: a verdict of `fail` publishes nothing. If a check has an error, nothing is published."
        ),
        section="Publication",
    )
    return {"approval": _approval(definition), "gate_override": gate_override, "allow_unsealed": _allow_unsealed()}


def _approval(definition: Definition | None) -> Param:
    defined = f" Defined: `{definition.approval.when}`." if definition else ""
    return Param(
        AS_DEFINED,
        type="string",
        enum=[AS_DEFINED, "never", "warn", "always", "restatement"],
        title="Approval",
        description_md=(
            "When publication needs an approver. `warn`: unless the verdict is `pass`. `restatement`: if the run "
            f"replaces published rows.{defined}"
        ),
        section="Publication",
    )


def _allow_unsealed() -> Param:
    return Param(
        False,  # noqa: FBT003 - the form's default
        type="boolean",
        title="Allow unsealed days",
        description_md="Publish days that can still gain events. The report and the ledger record this.",
        section="Publication",
    )


def _replan_param() -> dict[str, Param]:
    replan = Param(
        False,  # noqa: FBT003 - the form's default
        type="boolean",
        title="Replan",
        description_md="A cleared run reuses its plan. Select this to create a new plan with all current files.",
        section="Execution",
    )
    return {"replan": replan}
