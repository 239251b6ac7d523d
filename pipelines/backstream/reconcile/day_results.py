"""Summarize a comparison per UTC day, and record it for the pages."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from backstream.eventtime.instants import DAY_MS, SECOND_MS, epoch_ms, instant_text
from backstream.reconcile.comparison import Reconciliation
from backstream.reconcile.frames import WINDOW_START
from backstream.runs.home import Home
from backstream.runs.reconciled_days import ReconciledDay, record_reconciled_days

_VALUES = ("window_start", "window_end", "cause", "aggregate", "ours", "theirs", "difference", "evidence")


def record_comparison(home: Home, result: Reconciliation) -> None:
    """Record the result of each compared day; a later comparison of the day replaces it.

    Raises:
        StorageError: when the home cannot be written.
    """
    record_reconciled_days(home, result.dataset, list(_summarize_days(result)))


def _summarize_days(result: Reconciliation) -> Iterator[ReconciledDay]:
    at_ms, differing, largest = int(time.time() * SECOND_MS), dict[int, int](), dict[int, dict[str, Any]]()
    for row in result.differing.to_pylist():
        start_ms = epoch_ms(row[WINDOW_START])
        day_ms = start_ms // DAY_MS * DAY_MS
        differing[day_ms] = differing.get(day_ms, 0) + 1
        largest.setdefault(day_ms, _describe_row(row, start_ms))
    for day_ms, windows in result.days.items():
        yield ReconciledDay(day_ms, at_ms, result.theirs, windows, differing.get(day_ms, 0), largest.get(day_ms))


def _describe_row(row: dict[str, Any], start_ms: int) -> dict[str, Any]:
    keys = " ".join(str(value) for name, value in row.items() if name not in _VALUES)
    texts = {
        name: "none" if row[name] is None else str(row[name]) for name in ("aggregate", "ours", "theirs", "cause")
    }
    return {"window_start": instant_text(start_ms), "keys": keys, **texts}
