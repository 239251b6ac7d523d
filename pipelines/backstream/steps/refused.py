"""Stale days that a no was said to: by the gate, or a person, who had all of what came late before them."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from backstream.core.audit import Audit
from backstream.core.decision import Decision
from backstream.core.folders import Home, RunFolder
from backstream.core.instants import DAY_MS
from backstream.lake.ledger import Status, runs
from backstream.steps.stale import Staleness, stale_since


def refused_days(definition_path: Path, home: Home, found: Staleness) -> set[int]:
    """The stale days whose newest run was refused, and for which nothing has come since that was planned.

    A run that was refused because another came first is none of them: nobody has looked at what it would say.
    """
    rows = runs(home, found.dataset)  # the newest first
    newest = {day_ms: row for row in reversed(rows) for day_ms in range(row.since_ms, row.until_ms, DAY_MS)}
    days_of: dict[str, set[int]] = defaultdict(set)
    for day in found.days:
        row = newest.get(day.day_ms)
        if row and row.status is Status.REFUSED and _is_a_no(home.run(found.dataset, row.run_id)):
            days_of[row.run_id].add(day.day_ms)
    return set().union(*days_of.values()) - stale_since(definition_path, home, days_of)


def _is_a_no(run: RunFolder) -> bool:
    decision = Decision.read(run.decision)
    if decision:
        return not decision.is_approved
    return run.verdict.exists() and not Audit.read(run.verdict).may_publish
