"""What the lake, the ledger and the recording tell about a run, beside what the run itself has left."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Any

from backstream.lake.ledger import RunRow
from backstream.report.formatting import count_text, seconds_text
from backstream.runs.manifest import Manifest
from backstream.runs.plan import Plan
from backstream.runs.results import CheckOutcome

WINDOW = ("window_start", "window_end")
SAID = ("change", "aggregate", "old_value", "new_value", "difference", "old_run_id", "new_run_id")
"""Columns of a difference that are not keys of the dataset."""


@dataclass(frozen=True, slots=True)
class AggregateTotals:
    """One aggregate: rows that differ, the sum of their differences, and the largest, largest first.

    A row has `window_start`, the keys, `change`, `old_value`, `new_value` (text) and `difference`.
    """

    name: str
    rows: int
    difference: float
    largest: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class ChangeSummary:
    """What a run changed in the published table, or would change; `against` names the state before it."""

    is_published: bool
    against: str
    windows: Mapping[str, int]
    aggregates: tuple[AggregateTotals, ...]
    old_runs: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class DelayCounts:
    """How long after its event time each record of the range arrived.

    `counts` has one number per step of `report.delays.LADDER_MS`, the last for what is longer than all of them;
    `quantiles_ms` maps a share of the records to the delay that so many of them kept.
    """

    records: int
    counts: tuple[int, ...]
    quantiles_ms: Mapping[float, int]


@dataclass(frozen=True, slots=True)
class RunContext:
    """All of it. What is None or empty is not known; `why_not` may say why.

    `own` is the run's row in the ledger; `past` are rows of other runs of the dataset, the newest first;
    `outcomes` maps a check to its outcomes in the runs before this one, the oldest first.
    """

    written_at_ms: int = 0
    changes: ChangeSummary | None = None
    own: RunRow | None = None
    past: tuple[RunRow, ...] = ()
    outcomes: Mapping[str, tuple[CheckOutcome, ...]] = field(default_factory=dict)
    delays: DelayCounts | None = None
    unavailable: Mapping[str, str] = field(default_factory=dict)


_FEW = 4  # below this the extremes stand for the quartiles


@dataclass(frozen=True, slots=True)
class Forecast:
    """One figure: expected, between which bounds (quartiles of past runs), and what it became; None: not known."""

    name: str
    expected: str
    between: str
    actual: str
    off_by: float | None


def compute_forecasts(
    plan: Plan, manifests: Sequence[Manifest], rows: int | None, known: RunContext
) -> tuple[Forecast, ...]:
    """Records, rows and seconds of a run: planned or foretold, and actual.

    Records are foretold by the files' footers or the arrival index, the others by what past runs of the
    dataset and mode took per record: the median, between the quartiles.
    """
    planned = sum(chunk.expected_events for chunk in plan.chunks)
    read = sum(each.events_read for each in manifests) if len(manifests) == len(plan.chunks) else None
    past = [row for row in known.past if row.mode == plan.mode and row.events_read and _is_before(row, known.own)]
    seconds = known.own.seconds if known.own else None
    return (
        Forecast("records read", count_text(planned), "", _text(read, _count), _off_by(planned, read)),
        _foretold("rows", [(row.rows or 0) / _events(row) for row in past if row.rows], planned, rows, _count),
        _foretold("time", [row.seconds / _events(row) for row in past], planned, seconds, seconds_text),
    )


def _foretold(
    name: str, rates: Sequence[float], planned: int, actual: float | None, text: Callable[[float], str]
) -> Forecast:
    if not rates or not planned:
        return Forecast(name, "no past run to tell by", "", _text(actual, text), None)
    low, high = (min(rates), max(rates)) if len(rates) < _FEW else _quartiles(rates)
    expected = median(rates) * planned
    runs = f"{len(rates)} past run{'s' if len(rates) > 1 else ''}"
    between = f"{text(low * planned)} to {text(high * planned)}, by {runs}" if len(rates) > 1 else f"by {runs}"
    return Forecast(name, text(expected), between, _text(actual, text), _off_by(expected, actual))


def _quartiles(rates: Sequence[float]) -> tuple[float, float]:
    low, _, high = quantiles(rates, n=4, method="inclusive")
    return low, high


def _is_before(row: RunRow, own: RunRow | None) -> bool:
    return own is None or row.finished_at_ms <= own.started_at_ms


def _events(row: RunRow) -> int:
    return row.events_read or 1


def _off_by(expected: float, actual: float | None) -> float | None:
    return None if actual is None or not expected else actual / expected - 1


def _count(value: float) -> str:
    return count_text(round(value))


def _text(value: float | None, text: Callable[[float], str]) -> str:
    return "not known" if value is None else text(value)
