"""Context of a run report from tables, ledger, and recording, and the forecast of a run from previous runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Any

from backstream.formatting import count_of, count_text, seconds_text
from backstream.lake.diff import WINDOW, AggregateChange, ChangeTotals
from backstream.lake.ledger import RunRow
from backstream.runs.manifest import Manifest
from backstream.runs.plan import Plan
from backstream.runs.results import CheckOutcome, LaterAudit, Receipt

_SHOWN = ("window_start", "change", "old_value", "new_value", "difference")
_NOT_KEYS = {*WINDOW, *_SHOWN, "aggregate", "old_run_id", "new_run_id"}
_MIN_FOR_QUARTILES = 4


@dataclass(frozen=True, slots=True)
class ChangeSummary:
    """Changes of a run in the published table, or a preview of them; `against` describes the state before."""

    is_published: bool
    against: str
    totals: ChangeTotals

    @property
    def is_empty(self) -> bool:
        """Return whether no row changes."""
        return not any(self.totals.windows.values())


@dataclass(frozen=True, slots=True)
class DelayCounts:
    """Distribution of the arrival delay, arrival time minus event time, of the records in the range.

    `counts` has one number per step of `delay_histogram.LADDER_MS`, and a last one for longer delays.
    `quantiles_ms` maps a share of the records to the delay that this share does not exceed.
    """

    records: int
    counts: tuple[int, ...]
    quantiles_ms: Mapping[float, int]


@dataclass(frozen=True, slots=True)
class RunContext:
    """Context of a run report. Unknown parts are None or empty; `unavailable` may have the reason.

    `own` is the row of the run in the ledger. `past` has the rows of other runs of the dataset, newest first.
    `outcomes` maps a check to its outcomes in previous runs, oldest first. `verification` is the newest receipt,
    `later_audit` the newest judgement after the publication. `late_slices` is the number of keys and slices with
    dropped records.
    """

    written_at_ms: int = 0
    changes: ChangeSummary | None = None
    own: RunRow | None = None
    past: tuple[RunRow, ...] = ()
    outcomes: Mapping[str, tuple[CheckOutcome, ...]] = field(default_factory=dict)
    delays: DelayCounts | None = None
    verification: Receipt | None = None
    later_audit: LaterAudit | None = None
    late_slices: int | None = None
    unavailable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Forecast:
    """Expected and actual value of one figure; `between` are the quartiles of previous runs."""

    name: str
    expected: str
    between: str
    actual: str
    off_by: float | None
    """Relative deviation of the actual value; None when unknown."""


def largest_changes(change: AggregateChange) -> list[dict[str, Any]]:
    """Return the largest changes of an aggregate, largest first.

    A row has `window_start`, `change`, `old_value` and `new_value` (text), `difference`, and `keys`, a mapping.
    """
    return [_change_row(row) for table in change.largest for row in table.to_pylist()]


def _change_row(row: Mapping[str, Any]) -> dict[str, Any]:
    keys = {name: value for name, value in row.items() if name not in _NOT_KEYS}
    return {name: row[name] for name in _SHOWN} | {"keys": keys}


def compute_forecasts(
    plan: Plan, manifests: Sequence[Manifest], rows: int | None, known: RunContext
) -> tuple[Forecast, ...]:
    """Return forecast and actual value of records, rows, and seconds of a run.

    The record count comes from Parquet footers or the arrival index. Rows and seconds are extrapolated from
    previous runs of the same dataset and mode: the median per record, and the quartiles as bounds.
    """
    planned = sum(chunk.expected_events for chunk in plan.chunks)
    is_finished = len(manifests) == len(plan.chunks)
    read = sum(manifest.events_read for manifest in manifests) if is_finished else None
    past = [row for row in known.past if row.mode == plan.mode and row.events_read and _is_before(row, known.own)]
    seconds = known.own.seconds if known.own else None
    row_rates = [(row.rows or 0) / _events(row) for row in past if row.rows]
    second_rates = [row.seconds / _events(row) for row in past]
    return (
        Forecast("records read", count_text(planned), "", _text(read, _rounded_text), _deviation(planned, read)),
        _extrapolate("rows", row_rates, planned, rows, _rounded_text),
        _extrapolate("time", second_rates, planned, seconds, seconds_text),
    )


def _extrapolate(
    name: str, rates: Sequence[float], planned: int, actual: float | None, text: Callable[[float], str]
) -> Forecast:
    if not rates or not planned:
        return Forecast(name, "no previous runs", "", _text(actual, text), None)
    low, high = (min(rates), max(rates)) if len(rates) < _MIN_FOR_QUARTILES else _quartiles(rates)
    expected = median(rates) * planned
    runs = count_of(len(rates), "previous run")
    between = f"{text(low * planned)} to {text(high * planned)} ({runs})" if len(rates) > 1 else runs
    return Forecast(name, text(expected), between, _text(actual, text), _deviation(expected, actual))


def _quartiles(rates: Sequence[float]) -> tuple[float, float]:
    low, _, high = quantiles(rates, n=4, method="inclusive")
    return low, high


def _is_before(row: RunRow, own: RunRow | None) -> bool:
    return own is None or row.finished_at_ms <= own.started_at_ms


def _events(row: RunRow) -> int:
    return row.events_read or 1


def _deviation(expected: float, actual: float | None) -> float | None:
    return None if actual is None or not expected else actual / expected - 1


def _rounded_text(value: float) -> str:
    return count_text(round(value))


def _text(value: float | None, text: Callable[[float], str]) -> str:
    return "unknown" if value is None else text(value)
