"""What the lake, the ledger and the recording tell about a run, beside what the run itself has left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from backstream.core.audit import Outcome
from backstream.lake.ledger import RunRow

WINDOW = ("window_start", "window_end")
SAID = ("change", "aggregate", "old_value", "new_value", "difference", "old_run_id", "new_run_id")
"""Columns of a difference that are not keys of the dataset."""


@dataclass(frozen=True, slots=True)
class AggregateChange:
    """One aggregate: rows that differ, the sum of their differences, and the largest, largest first.

    A row has `window_start`, the keys, `change`, `old_value`, `new_value` (text) and `difference`.
    """

    name: str
    rows: int
    difference: float
    largest: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Changed:
    """What a run changed in the published table, or would change; `against` names the state before it."""

    is_published: bool
    against: str
    windows: Mapping[str, int]
    aggregates: tuple[AggregateChange, ...]
    old_runs: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Delays:
    """How long after its event time each record of the range arrived.

    `counts` has one number per step of `report.delays.LADDER_MS`, the last for what is longer than all of them;
    `quantiles_ms` maps a share of the records to the delay that so many of them kept.
    """

    records: int
    counts: tuple[int, ...]
    quantiles_ms: Mapping[float, int]


@dataclass(frozen=True, slots=True)
class Known:
    """All of it. What is None or empty is not known; `why_not` may say why.

    `own` is the run's row in the ledger; `past` are rows of other runs of the dataset, the newest first;
    `outcomes` maps a check to its outcomes in the runs before this one, the oldest first.
    """

    written_at_ms: int = 0
    changed: Changed | None = None
    own: RunRow | None = None
    past: tuple[RunRow, ...] = ()
    outcomes: Mapping[str, tuple[Outcome, ...]] = field(default_factory=dict)
    delays: Delays | None = None
    why_not: Mapping[str, str] = field(default_factory=dict)
