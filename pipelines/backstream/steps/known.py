"""Gathering what a report tells beside the run's own files; what cannot be told says why, and stops nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from backstream.core.audit import Outcome
from backstream.core.errors import BackstreamError
from backstream.core.instants import SECOND_MS
from backstream.core.plan import Plan
from backstream.core.publication import Publication
from backstream.definition.model import Definition
from backstream.lake.as_of import AsOf
from backstream.lake.changes import AggregateChange as SummedChange
from backstream.lake.ledger import RunRow, checks, runs
from backstream.report.known import SAID, AggregateChange, Changed, Known
from backstream.report.words import second_text
from backstream.steps.delays import delays_of
from backstream.steps.history import Difference, difference
from backstream.steps.state import home_of

_CHANGES_SHOWN = 8
_RUNS_SHOWN = 12
_HIDDEN = (*SAID, "window_end")


def known_of(plan: Plan, definition: Definition, publication: Publication | None, *, is_complete: bool) -> Known:
    """What the lake, the ledger and the recording tell about a run now.

    Args:
        plan: of the run.
        definition: that the plan holds.
        publication: what the run committed, None when nothing.
        is_complete: whether every chunk has finished, so that there is something to compare.
    """
    why_not: dict[str, str] = {}
    rows = runs(home_of(plan), plan.dataset)
    past = _newest_outcomes(rows, plan.run_id)
    delays, why_not["delays"] = delays_of(plan, definition)
    changed, why_not["changed"] = (
        _changed(plan, publication) if is_complete else (None, "not every chunk finished")
    )
    return Known(
        written_at_ms=int(time.time() * SECOND_MS),
        changed=changed,
        own=next((row for row in rows if row.run_id == plan.run_id), None),
        past=past,
        outcomes=_outcomes(plan, past),
        delays=delays,
        why_not=why_not,
    )


def _newest_outcomes(rows: Sequence[RunRow], own: str) -> tuple[RunRow, ...]:
    """The last row of each other run, the newest first."""
    found: dict[str, RunRow] = {}
    for row in rows:
        if row.run_id != own:
            found.setdefault(row.run_id, row)
    return tuple(found.values())


def _outcomes(plan: Plan, past: Sequence[RunRow]) -> dict[str, tuple[Outcome, ...]]:
    """What each check said in the last runs, the oldest first; a run audited twice by its last answer."""
    shown = [row.run_id for row in past[:_RUNS_SHOWN]]
    said: dict[str, dict[str, Outcome]] = {}
    for row in checks(home_of(plan), plan.dataset, shown):
        said.setdefault(row["name"], {})[row["run_id"]] = Outcome(row["outcome"])
    return {
        name: tuple(of_run[run_id] for run_id in reversed(shown) if run_id in of_run)
        for name, of_run in said.items()
    }


def _changed(plan: Plan, publication: Publication | None) -> tuple[Changed | None, str]:
    if publication and not publication.replaced_rows and not publication.already:
        return None, "nothing had been published in this range before"
    try:
        return _told(difference(home_of(plan), plan.run_id, _CHANGES_SHOWN)), ""
    except BackstreamError as error:
        return None, str(error).partition("\n")[0]


def _told(found: Difference) -> Changed:
    changes = found.changes
    return Changed(
        is_published=found.is_published,
        against=_state(found.against) if found.against else "",
        windows=changes.windows,
        aggregates=tuple(_aggregate(name, total) for name, total in changes.aggregates.items()),
        old_runs=changes.old_runs,
    )


def _state(against: AsOf) -> str:
    by = f" by run {against.run_id}" if against.run_id else ""
    return f"version {against.version} of {second_text(against.made_at_ms)}{by}"


def _aggregate(name: str, total: SummedChange) -> AggregateChange:
    rows = [row for table in total.largest for row in table.slice(0, _CHANGES_SHOWN).to_pylist()]
    return AggregateChange(name, total.rows, total.difference, tuple(_row(row) for row in rows))


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A difference as the report shows it: its window, its keys in words, what was said and what is said now."""
    keys = {name: value for name, value in row.items() if name not in (*_HIDDEN, "window_start")}
    told = {name: row[name] for name in ("window_start", "change", "old_value", "new_value", "difference")}
    return told | {"keys": keys}
