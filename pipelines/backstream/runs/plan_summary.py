"""Store a summary of a plan beside it, for lists of runs: a plan may be large."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from backstream.eventtime.intervals import Interval
from backstream.runs.run_file import RunFile


@dataclass(frozen=True, slots=True)
class PlanSummary(RunFile):
    """A planned run; `expected_events` is by chunk, `staging` are the folders of its staged files."""

    what = "summary of a plan"

    dataset: str
    run_id: str
    plan_hash: str
    triggered_by: str
    reason: str
    mode: str
    since_ms: int
    until_ms: int
    expected_events: Mapping[str, int]
    staging: tuple[str, ...]

    @property
    def interval(self) -> Interval:
        """The backfill range."""
        return Interval(self.since_ms, self.until_ms)
