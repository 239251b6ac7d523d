"""What a person may choose for a run: the forms of the DAGs, and what their answers mean.

The server checks a form by its JSON schema before it starts a run, and each task again with the same words. What
no schema can say is checked by the task `plan`. Nothing that is filled in is left unused without a word.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from airflow.sdk import Param

from backstream.definition.loader import DELAYED
from backstream.definition.model import Definition
from backstream.errors import SpecError
from backstream.eventtime.instants import duration_text, instant_text
from backstream.eventtime.watermark_generators import StrategyKind
from backstream.runs.chunk_groups import MOST_BATCHES
from backstream.runs.plan import Mode

AS_DEFINED = "as defined"
"""The choice that leaves something to the definition."""

_DURATION = r"^(\d+(ms|s|m|h|d))+$"
_OVERRIDES = {
    "delay": "watermark.delay",
    "idle_timeout": "watermark.idle_timeout",
    "allowed_lateness": "lateness.allowed",
    "chunk": "backfill.chunk",
    "approval": "approval.when",
}
_NOT_OURS = {"openlineage"}
"""What Airflow's own parts add to the configuration of a run."""


@dataclass(frozen=True, slots=True)
class RunParams:
    """A filled-in form, but for its range. None: `mode` as defined, `max_spark_jobs` as the pool lets."""

    mode: Mode | None
    overrides: Mapping[str, str]
    max_spark_jobs: int | None
    is_unsealed_allowed: bool
    gate_override: str
    is_dry_run: bool
    is_replan: bool
    reason: str

    @classmethod
    def from_params(cls, params: Mapping[str, Any], known: Collection[str], dag_id: str) -> RunParams:
        """What the parameters of a run say.

        Args:
            params: the run's parameters, as the form and the configuration of the run have filled them in.
            known: the names that the form has.
            dag_id: whose form it is.

        Raises:
            SpecError: when a parameter is unknown, or the mode is.
        """
        require_known_params(params, known, dag_id)
        overrides = {key: str(params[name]) for name, key in _OVERRIDES.items() if _is_said(params.get(name))}
        return cls(
            mode=parse_mode(params.get("mode")),
            overrides=overrides,
            max_spark_jobs=params.get("max_spark_jobs"),
            is_unsealed_allowed=bool(params.get("allow_unsealed")),
            gate_override=(params.get("gate_override") or "").strip(),
            is_dry_run=bool(params.get("dry_run")),
            is_replan=bool(params.get("replan")),
            reason=(params.get("reason") or "").strip(),
        )


def require_known_params(params: Mapping[str, Any], known: Collection[str], dag_id: str) -> None:
    """Check that the configuration of a run names nothing that would be ignored.

    Raises:
        SpecError: naming the first such parameter, and those that there are.
    """
    for name, value in params.items():
        if name not in known and name not in _NOT_OURS:
            msg = f"{name} is no parameter of {dag_id}, got {value!r}\n  there are: {', '.join(known)}"
            raise SpecError(msg)


def _is_said(value: object) -> bool:
    return value not in (None, "", AS_DEFINED)


def parse_mode(choice: str | None) -> Mode | None:
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


def backfill_params(definition: Definition) -> dict[str, Param]:
    """The range is the run's data interval; nothing has to be filled in, for most runs have nobody who would."""
    return _how(definition) | _publication(definition) | _again() | {"reason": _reason(is_required=False)}


def reprocess_params(definition: Definition) -> dict[str, Param]:
    """The range and a reason have to be filled in."""
    first_ms, end_ms = definition.source.event_time_range
    ends = {
        "since": _instant("Since", "First instant, included", f"From `{instant_text(first_ms)}` on"),
        "until": _instant("Until", "Last, excluded", f"To `{instant_text(end_ms)}`, and not in the future"),
    }
    ends["time_zone"] = Param(
        None,
        type=["null", "string"],
        title="Time zone",
        description_md=(
            "Such as `America/New_York`: both ends are midnights there, and the UTC days that hold it are run. "
            "Empty: both are midnights in UTC."
        ),
        section="Range",
    )
    dry_run = Param(
        False,  # noqa: FBT003 - the form's default
        type="boolean",
        title="Dry run",
        description_md="Plan only: the log of the task `plan` says what would be read, chunk by chunk.",
        section="Publication",
    )
    how = _how(definition) | _publication(definition) | {"dry_run": dry_run} | _again()
    return ends | {"reason": _reason(is_required=True)} | how


def restate_params() -> dict[str, Param]:
    """Where to look, and what to do with what is found."""
    everywhere = "Empty: everything that was published."
    ends = {
        name: Param(None, type=["null", "string"], format="date-time", title=title, description_md=everywhere)
        for name, title in (("since", "Not before"), ("until", "Not after"))
    }
    missing = Param(
        True,  # noqa: FBT003 - the form's default
        type="boolean",
        title="Include missing days",
        description_md="Days between those that were published which no run covers.",
    )
    dry_run = Param(
        False,  # noqa: FBT003 - the form's default
        type="boolean",
        title="Dry run",
        description_md="Only say what is stale or missing, in the log of the task `find_intervals`.",
    )
    passed_on = {"approval": _approval(None), "allow_unsealed": _unsealed(), "reason": _reason(is_required=False)}
    return ends | {"include_missing": missing, "dry_run": dry_run} | passed_on


def _instant(title: str, what: str, possible: str) -> Param:
    """No schema knows what time it is: the task `plan` refuses a range without an event, at once."""
    return Param(
        type="string",
        format="date-time",
        title=title,
        description_md=(
            f"{what}; with its offset, such as `2013-02-01T00:00:00Z`. {possible}. Days of the lake are UTC days."
        ),
        section="Range",
    )


def _reason(*, is_required: bool) -> Param:
    told: dict[str, Any] = {"title": "Reason", "description": "Kept in the plan, the report and the ledger"}
    if is_required:
        return Param(type="string", pattern=r"\S", maxLength=500, section="Range", **told)
    return Param("", type="string", maxLength=500, **told)


def _how(definition: Definition) -> dict[str, Param]:
    watermark = definition.watermark
    form = {"mode": _mode(definition)}
    if watermark.strategy in DELAYED:
        form["delay"] = _override("Delay", f"defined: {duration_text(watermark.delay)}; replay only")
    if watermark.strategy is not StrategyKind.NONE:
        idle = duration_text(watermark.idle_timeout) if watermark.idle_timeout else "never"
        form["idle_timeout"] = _override("Idle timeout", f"defined: {idle}; replay only")
    form["allowed_lateness"] = _override(
        "Allowed lateness", f"defined: {duration_text(definition.lateness.allowed)}; replay only"
    )
    form["chunk"] = _override("Chunk", f"defined: {duration_text(definition.backfill.chunk)}; whole days")
    form["max_spark_jobs"] = Param(
        None,
        type=["null", "integer"],
        minimum=1,
        maximum=MOST_BATCHES,
        title="Spark jobs",
        description_md=f"How many Spark jobs it becomes, {MOST_BATCHES} at most. Empty: small chunks share one.",
        section="How",
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
            f"`recompute`: only event time counts. `replay`: arrival order is reproduced. Defined: `{defined}`."
        ),
        section="How",
    )


def _override(title: str, said: str) -> Param:
    return Param(
        None,
        type=["null", "string"],
        pattern=_DURATION,
        title=title,
        description_md=f"Such as `45m`. Empty: as defined ({said}).",
        section="How",
    )


def _publication(definition: Definition) -> dict[str, Param]:
    gate_override = Param(
        None,
        type=["null", "string"],
        pattern=r"\S",
        maxLength=500,
        title="Publish what the gate refuses",
        description_md=(
            "Why it is to be published all the same; kept in the report and the ledger. "
            "Empty: a verdict of fail publishes nothing. What could not be checked is never published."
        ),
        section="Publication",
    )
    return {"approval": _approval(definition), "gate_override": gate_override, "allow_unsealed": _unsealed()}


def _approval(definition: Definition | None) -> Param:
    defined = f" Defined: `{definition.approval.when}`." if definition else ""
    return Param(
        AS_DEFINED,
        type="string",
        enum=[AS_DEFINED, "never", "warn", "always", "restatement"],
        title="Approval",
        description_md=(
            "When a person is asked before publication: `warn`, unless the verdict is pass; `restatement`, when "
            f"published rows would be replaced.{defined}"
        ),
        section="Publication",
    )


def _unsealed() -> Param:
    return Param(
        False,  # noqa: FBT003 - the form's default
        type="boolean",
        title="Allow unsealed days",
        description_md="Publish days as final that may still gain events; the report and the ledger will say so.",
        section="Publication",
    )


def _again() -> dict[str, Param]:
    replan = Param(
        False,  # noqa: FBT003 - the form's default
        type="boolean",
        title="Replan",
        description_md="A run that is cleared goes on with its plan. Set, it is planned again, with all files.",
        section="How",
    )
    return {"replan": replan}
