"""Collect the results of each check of a dataset over its runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from backstream.lake.ledger import RunRow
from backstream.runs.results import CheckOutcome

RUNS_SHOWN = 40
"""Runs in the history of a check."""
_SEVERITY_ORDER = [
    outcome.value
    for outcome in (CheckOutcome.ERROR, CheckOutcome.FAIL, CheckOutcome.WARN, CheckOutcome.INFO, CheckOutcome.PASS)
]


@dataclass(frozen=True, slots=True)
class CheckRow:
    """Result of one check in one run; the fields are those of `runs.results.Check`."""

    run_id: str
    name: str
    severity: str
    outcome: str
    observed: str
    limit: str
    unexpected_count: int
    element_count: int


@dataclass(frozen=True, slots=True)
class CheckHistory:
    """One check and its results in the runs shown, newest first; None for a run without this check."""

    name: str
    severity: str
    limit: str
    found: tuple[CheckRow | None, ...]

    @property
    def newest(self) -> CheckRow | None:
        """Newest result."""
        return next((row for row in self.found if row), None)

    @property
    def fitting(self) -> list[float]:
        """Share of passing elements by run, oldest first."""
        counted = [row for row in self.found if row and row.element_count]
        return [1 - row.unexpected_count / row.element_count for row in reversed(counted)]

    @property
    def counts(self) -> list[tuple[str, int]]:
        """Number of results by outcome, most severe first."""
        counts = Counter(row.outcome for row in self.found if row)
        return sorted(counts.items(), key=lambda item: _severity_rank(item[0]))


def check_histories(rows: Sequence[CheckRow], runs: Sequence[RunRow]) -> tuple[list[RunRow], list[CheckHistory]]:
    """Return the newest checked runs, and the history of each check over them, failed checks first.

    Args:
        rows: all recorded checks of the dataset.
        runs: its runs, newest first.
    """
    by_run_and_name = {(row.run_id, row.name): row for row in rows}
    checked = {row.run_id for row in rows}
    shown = list({run.run_id: run for run in runs if run.run_id in checked}.values())[:RUNS_SHOWN]
    latest: dict[str, CheckRow] = {}
    for run in reversed(shown):
        latest |= {row.name: row for row in rows if row.run_id == run.run_id}
    histories = [
        CheckHistory(
            name, row.severity, row.limit, tuple(by_run_and_name.get((run.run_id, name)) for run in shown)
        )
        for name, row in latest.items()
    ]
    return shown, sorted(histories, key=lambda history: (_newest_rank(history), history.name))


def _newest_rank(history: CheckHistory) -> int:
    return _severity_rank(history.newest.outcome if history.newest else "")


def _severity_rank(outcome: str) -> int:
    return _SEVERITY_ORDER.index(outcome) if outcome in _SEVERITY_ORDER else len(_SEVERITY_ORDER)
