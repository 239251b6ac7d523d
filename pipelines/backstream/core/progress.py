"""How far a run has come, and when it will be done: an interval, from what its finished chunks took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import quantiles

from backstream.core.instants import MINUTE_MS, SECOND_MS

QUIET_MS = 10 * MINUTE_MS
"""How long a run may leave no file before it is taken for dead, unless its chunks take longer."""


@dataclass(frozen=True, slots=True)
class ChunkTiming:
    """What one finished chunk took: its expected events, its seconds, and when it was done."""

    expected_events: int
    seconds: float
    finished_ms: int


def seconds_left(done: Sequence[ChunkTiming], left: Sequence[int]) -> tuple[float, float] | None:
    """Between how many seconds and how many the rest will take; None: unknown, no chunk with events is done yet.

    The quartiles of the finished chunks' seconds per expected event, times the events left, by as many chunks at
    once as were seen to run.

    Args:
        done: the finished chunks.
        left: expected events of each of the others.
    """
    rates = [chunk.seconds / chunk.expected_events for chunk in done if chunk.expected_events]
    if not left:
        return 0.0, 0.0
    if not rates:
        return None
    low, high = (rates[0], rates[0]) if len(rates) == 1 else _quartiles(rates)
    at_once = min(_at_once(done), len(left))
    return low * sum(left) / at_once, high * sum(left) / at_once


def is_alive(now_ms: int, last_sign_ms: int, done: Sequence[ChunkTiming]) -> bool:
    """Whether a run that has not ended left a file so recently that it must be under way."""
    longest_ms = max((chunk.seconds for chunk in done), default=0.0) * SECOND_MS
    return now_ms - last_sign_ms <= max(QUIET_MS, 2 * longest_ms)


def _quartiles(rates: Sequence[float]) -> tuple[float, float]:
    low, _, high = quantiles(rates, n=4, method="inclusive")
    return low, high


def _at_once(done: Sequence[ChunkTiming]) -> float:
    """How many chunks ran at the same time, on average, from the first begin to the last end."""
    begin_ms = min(chunk.finished_ms - chunk.seconds * SECOND_MS for chunk in done)
    span_ms = max(chunk.finished_ms for chunk in done) - begin_ms
    worked_ms = sum(chunk.seconds for chunk in done) * SECOND_MS
    return max(1.0, worked_ms / span_ms) if span_ms > 0 else 1.0
