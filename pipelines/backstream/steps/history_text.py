"""What a run changes, in words and totals for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from backstream.steps.history import Difference

_RUNS_SHOWN = 5


def difference_text(found: Difference) -> str:
    """Which run against which state; rows per kind of change; a line per aggregate; who had said otherwise."""
    changes = found.changes
    verb = "changed" if found.is_published else "would change"
    against = f"{found.against}" if found.against else "the empty table"
    counts = ", ".join(f"{count:,} {change}" for change, count in changes.windows.items())
    lines = [
        f"{found.dataset}  {found.interval}  run {found.run_id} {verb}",
        f"against  {against}",
        f"rows     {counts}",
        *_aggregate_lines(found),
        *_run_lines(found),
    ]
    return "\n".join(lines)


def _aggregate_lines(found: Difference) -> Iterator[str]:
    if not found.changes.aggregates:
        return
    width = max(9, *(len(name) for name in found.changes.aggregates))
    yield ""
    yield f"{'aggregate':<{width}} {'rows':>12} {'sum of differences':>20} {'of their sizes':>20}"
    for name, total in found.changes.aggregates.items():
        yield f"{name:<{width}} {total.rows:>12,} {total.difference:>20,.6g} {total.absolute:>20,.6g}"


def _run_lines(found: Difference) -> Iterator[str]:
    old_runs = list(found.changes.old_runs.items())
    if not old_runs:
        return
    yield ""
    for run_id, count in old_runs[:_RUNS_SHOWN]:
        yield f"run {run_id} had said otherwise of {count:,} rows"
    if len(old_runs) > _RUNS_SHOWN:
        yield f"and {len(old_runs) - _RUNS_SHOWN} more runs"
