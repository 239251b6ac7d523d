"""Run each kind of window from plan to publication, as the command line does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.spark.histories import days, definition_of, random_history, write_history
from tests.spark.runs import toml_value

from backstream.lake.catalog import open_catalog_for_writing
from backstream.lake.catalog_address import table_identifier
from backstream.runs.home import Home
from backstream.runs.plan import Mode, Plan
from backstream.workflow.audit import audit_run
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.plan.planning import plan_run
from backstream.workflow.publish import publish_run

KINDS: Mapping[str, Mapping[str, str]] = {
    "tumbling": {"kind": "tumbling", "size": "1h"},
    "sliding": {"kind": "sliding", "size": "3h", "slide": "1h"},
    "session": {"kind": "session", "gap": "40m"},
    "cumulate": {"kind": "cumulate", "size": "6h", "step": "2h"},
}
ANY = {"warn": 1.0, "fail": 1.0}
LENIENT = {"missing_ratio": ANY, "late_ratio": ANY, "dropped_ratio": ANY, "duplicate_ratio": ANY}
"""Limits for random histories, which have empty windows and many late events."""


def write_definition(folder: Path, kind: str, **sections: Mapping[str, Any]) -> Path:
    """Write a history of two days and its definition."""
    write_history(folder / "data", random_history(seed=len(kind), rows=300, days=2))
    quality = LENIENT | {"verify": 1_000}
    content = definition_of(folder / "data", window=KINDS[kind], quality=quality, **sections)
    path = folder / "events.toml"
    path.write_text("".join(f"{key} = {toml_value(value)}\n" for key, value in content.items()))
    return path


def plan_of(folder: Path, trigger: str, mode: Mode = Mode.REPLAY) -> Plan:
    """Plan both days of a history; each trigger is a run."""
    interval, home = days(0, 2), Home(folder / "home")
    return plan_run(PlanRequest(folder / "events.toml", interval, mode=mode, trigger=trigger, home=home))


def publish(plan: Plan) -> None:
    """Audit a run and publish it."""
    audit_run(plan)
    publish_run(plan)


def rows_published(plan: Plan) -> int:
    """Return the number of published rows."""
    with open_catalog_for_writing(plan.home) as catalog:
        table = catalog.load_table(table_identifier(plan.dataset))
        return sum(task.file.record_count for task in table.scan().plan_files())
