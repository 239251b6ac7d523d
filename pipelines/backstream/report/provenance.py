"""Who asked for a run, what was set aside for it, and whether anybody was to be asked."""

from __future__ import annotations

from backstream.core.plan import Plan
from backstream.definition.model import Definition

_WHO = (
    ("cli", "by hand, from the command line"),
    ("scheduled__", "by its schedule, in Airflow"),
    ("backfill__", "by a Backfill of Airflow"),
    ("manual__", "by hand, in Airflow"),
    ("asset_triggered__", "by an asset, in Airflow"),
)
"""How Airflow's run ids begin, and the command line's trigger."""

_ASKED_WHEN = {
    "never": "nobody",
    "warn": "a person, when the verdict is a warning",
    "always": "a person, always",
    "restatement": "a person, when something published would change",
}


def asked_by(plan: Plan) -> str:
    """What started the run: `by hand, from the command line`, or an Airflow run by its id."""
    how = next((words for prefix, words in _WHO if plan.trigger.startswith(prefix)), "")
    if plan.trigger == "cli":
        return how
    return f"{plan.trigger} ({how})" if how else plan.trigger


def overrides(plan: Plan, definition: Definition) -> tuple[str, ...]:
    """What this run does otherwise than its definition says."""
    said = definition.backfill.mode
    return () if plan.mode == said else (f"mode {plan.mode}, where the definition says {said}",)


def approval_text(definition: Definition) -> str:
    """When a person is asked before publication."""
    return _ASKED_WHEN[definition.approval.when]
