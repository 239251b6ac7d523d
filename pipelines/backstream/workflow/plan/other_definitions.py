"""Find published days outside of a plan's range that another version of its definition computed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from backstream.definition.changed_keys import ChangedKeys
from backstream.definition.loader import parse_definition
from backstream.errors import BackstreamError
from backstream.lake.published_windows import load_published_windows
from backstream.lake.run_rows import list_runs
from backstream.runs.home import Home
from backstream.runs.plan import Plan
from backstream.runs.store import Runs
from backstream.text import count_of


def describe_other_definitions(plan: Plan, home: Home) -> Iterator[str]:
    """Yield a notice for each version of the definition and mode whose days the run leaves in the table.

    A run whose plan cannot be read is left out.
    """
    rows = {row.run_id: row for row in list_runs(home, plan.dataset)}
    days: dict[tuple[str, str], set[int]] = defaultdict(set)
    runs: dict[tuple[str, str], str] = {}
    for day_ms, run_ids in load_published_windows(home, plan.dataset).runs_by_day().items():
        for run_id in run_ids if not plan.since_ms <= day_ms < plan.until_ms else ():
            row = rows.get(run_id)
            if row and row.definition_hash != plan.definition_hash:
                version = row.definition_hash, row.mode
                days[version].add(day_ms)
                runs[version] = run_id
    for version, run_id in runs.items():
        if keys := _changed_keys(plan, home, run_id):
            yield (
                f"notice: {', '.join(keys)} changed since the runs of "
                f"{count_of(len(days[version]), 'published day')} outside of this range, whose rows stay "
                f"as they are\n  `backstream stale {plan.dataset}` lists the days"
            )


def _changed_keys(plan: Plan, home: Home, run_id: str) -> tuple[str, ...]:
    try:
        old = Runs(home).plan(plan.dataset, run_id)
        changed = ChangedKeys.between(_as_json(old.definition), _as_json(plan.definition))
    except BackstreamError:
        return ()
    return changed.of_mode(old.mode)


def _as_json(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Return the definition of a plan with the defaults of keys that it lacks."""
    return parse_definition(dict(definition), "a plan").model_dump(mode="json")
