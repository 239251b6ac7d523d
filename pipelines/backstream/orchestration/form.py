"""Define the parameters of the DAGs, which Airflow shows as a form.

The Airflow server checks a form by its JSON schema before it starts a run, and each task checks it again. The
schema of a parameter has no other parameter and no current time, so the task `plan` checks what depends on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from airflow.sdk import Param

from backstream.definition.loader import reason_against_mode
from backstream.definition.model import Definition
from backstream.definition.watermark_sections import DELAYED
from backstream.eventtime.instants import DAY_MS, duration_text, instant_text, utc_datetime
from backstream.eventtime.watermark_generators import StrategyKind
from backstream.orchestration.params import AS_DEFINED
from backstream.runs.chunk_groups import MAX_BATCHES
from backstream.runs.plan import Mode

_DURATION = r"^(\d+(ms|s|m|h|d))+$"
_DAYS = r"^[1-9]\d*d$"
_YEARS = r"^(19[789]|2\d\d)\d-"
"""Years from 1970 to 2999: no source has events in the year 1 or 9999."""
_MAX_YEARS = 30
"""Years of events up to which a schema lists them; a longer list is not readable."""
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
        "since": _instant("Since", "Start of the range", f"Not before `{instant_text(first_ms)}`", definition),
        "until": _instant(
            "Until",
            "End of the range, excluded",
            f"Not after `{instant_text(end_ms)}` or in the future",
            definition,
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


def _refusal(schema: Mapping[str, Any], reason: str) -> dict[str, Any]:
    """Return a schema that refuses the values of another one. The server's error contains the reason."""
    return {"not": {"description": reason, **schema}}


def _instant(title: str, what: str, limit: str, definition: Definition) -> Param:
    """Return a parameter for an instant in a year with events. The task `plan` checks its exact limits."""
    first_ms, end_ms = definition.source.event_time_range
    # A text with an offset can have the year of the day before or after.
    years = range(utc_datetime(first_ms - DAY_MS).year, utc_datetime(end_ms + DAY_MS).year + 1)
    outside = f"outside source.event_time_range, {instant_text(first_ms)} to {instant_text(end_ms)}"
    other_years = {"type": "string", "pattern": f"^(?!({'|'.join(map(str, years))})-)[0-9]{{4}}-"}
    return Param(
        **_REQUIRED,
        **(_refusal(other_years, outside) if len(years) <= _MAX_YEARS else {}),
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
        form["delay"] = _replay_override("Delay", duration_text(watermark.delay), definition)
    if has_one_source and watermark.strategy not in (StrategyKind.NONE, StrategyKind.STRUCTURED_STREAMING):
        idle = duration_text(watermark.idle_timeout) if watermark.idle_timeout else "never"
        form["idle_timeout"] = _replay_override("Idle timeout", idle, definition)
    allowed = duration_text(definition.lateness.allowed)
    form["allowed_lateness"] = _replay_override("Allowed lateness", allowed, definition)
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
    refused = [(mode, reason) for mode in Mode if (reason := reason_against_mode(definition, mode))]
    refusal: dict[str, Any] = {}
    if refused:
        refusal["allOf"] = [_refusal({"const": mode.value}, reason) for mode, reason in refused]
    return Param(
        AS_DEFINED,
        type="string",
        enum=[AS_DEFINED, *(mode.value for mode in Mode)],
        **refusal,
        title="Mode",
        description_md=(
            "`recompute`: use event time only; no record is late. `replay`: process records in arrival order. "
            f"Defined: `{defined}`."
        ),
        section="Execution",
    )


def _replay_override(title: str, defined: str, definition: Definition) -> Param:
    """Return a parameter that a replay uses; if no run can be a replay, each value is refused."""
    reason = reason_against_mode(definition, Mode.REPLAY)
    refusal = _refusal({"type": "string"}, f"for a replay only, but {reason}") if reason else {}
    return _override(title, f"{defined}; replay only", refusal=refusal)


def _override(
    title: str,
    defined: str,
    example: str = "45m",
    pattern: str = _DURATION,
    refusal: Mapping[str, Any] = MappingProxyType({}),
) -> Param:
    return Param(
        None,
        **refusal,
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
