"""What each check of a dataset found, run after run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from backstream.lake.ledger import RunRow
from backstream.runs.results import CheckOutcome

_RUNS_SHOWN = 40
_GRAVITY = [
    outcome.value
    for outcome in (CheckOutcome.ERROR, CheckOutcome.FAIL, CheckOutcome.WARN, CheckOutcome.INFO, CheckOutcome.PASS)
]


@dataclass(frozen=True, slots=True)
class CheckRow:
    """What one check of one run found; its words are those of `core.audit.Check`."""

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
    """One check: what it found in each of the runs shown, None where it was not made; the newest first."""

    name: str
    severity: str
    limit: str
    found: tuple[CheckRow | None, ...]

    @property
    def newest(self) -> CheckRow | None:
        """What it found last."""
        return next((each for each in self.found if each), None)

    @property
    def fitting(self) -> list[float]:
        """The share of what it looked at that was as wanted, run after run, the oldest first."""
        counted = [each for each in self.found if each and each.element_count]
        return [1 - each.unexpected_count / each.element_count for each in reversed(counted)]

    @property
    def counts(self) -> list[tuple[str, int]]:
        """How often each outcome, the gravest first."""
        counted = Counter(each.outcome for each in self.found if each)
        return sorted(counted.items(), key=lambda item: _gravity(item[0]))


def check_histories(rows: Sequence[CheckRow], runs: Sequence[RunRow]) -> tuple[list[RunRow], list[CheckHistory]]:
    """The newest runs that were checked, and each check over them, those that matter now first.

    Args:
        rows: all recorded checks of the dataset.
        runs: its runs, newest first.
    """
    by_place = {(row.run_id, row.name): row for row in rows}
    checked = {row.run_id for row in rows}
    shown = list({run.run_id: run for run in runs if run.run_id in checked}.values())[:_RUNS_SHOWN]
    latest: dict[str, CheckRow] = {}
    for run in reversed(shown):
        latest |= {row.name: row for row in rows if row.run_id == run.run_id}
    found = [
        CheckHistory(name, row.severity, row.limit, tuple(by_place.get((run.run_id, name)) for run in shown))
        for name, row in latest.items()
    ]
    return shown, sorted(found, key=lambda each: (_gravity(each.newest.outcome if each.newest else ""), each.name))


def _gravity(outcome: str) -> int:
    return _GRAVITY.index(outcome) if outcome in _GRAVITY else len(_GRAVITY)
