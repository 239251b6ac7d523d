"""How far a run has come, and when it will be done: an interval, from what its finished chunks took."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import quantiles

from backstream.eventtime.instants import MINUTE_MS, SECOND_MS, epoch_ms
from backstream.runs.manifest import Manifest
from backstream.runs.plan import Plan

QUIET_MS = 10 * MINUTE_MS
"""How long a run may leave no file before it is taken for dead, unless its chunks take longer."""


@dataclass(frozen=True, slots=True)
class ChunkTiming:
    """What a finished chunk, or several that ran as one, took: expected events, seconds, when it was done."""

    expected_events: int
    seconds: float
    finished_ms: int


@dataclass(frozen=True, slots=True)
class Progress:
    """How many of a run's chunks are done, and between how many seconds and how many the rest will take."""

    done: int
    chunks: int
    seconds_left: tuple[float, float] | None

    def __str__(self) -> str:
        """Such as `12 of 400 chunks are done, 5 to 8 min left`."""
        counted = f"{self.done:,} of {self.chunks:,} chunks are done"
        if self.done == self.chunks or self.seconds_left is None:
            return counted
        low, high = (_rounded_up(seconds) for seconds in self.seconds_left)
        return f"{counted}, {low if low == high else f'{low} to {high}'} min left"


def load_progress(plan: Plan) -> Progress:
    """How far the chunks of a plan have come, from the manifests that are there."""
    done, left = [], []
    for chunk in plan.chunks:
        file = plan.folder.manifest(chunk.chunk_id)
        if file.exists():
            done.append(Manifest.read(file))
        else:
            left.append(chunk.expected_events)
    return Progress(len(done), len(plan.chunks), estimate_seconds_left(load_timings(_expected(plan), done), left))


def load_timings(expected: Mapping[str, int], manifests: Iterable[Manifest]) -> list[ChunkTiming]:
    """What each finished chunk took; chunks that ran as one count as one.

    Args:
        expected: by chunk, how many events it was expected to have.
        manifests: of the finished chunks.
    """
    ran_as_one: dict[tuple[str, str], list[Manifest]] = {}
    for each in manifests:
        ran_as_one.setdefault((each.attempt, each.finished_at), []).append(each)
    return [
        ChunkTiming(
            sum(expected[each.chunk_id] for each in several),
            sum(seconds for each in several for seconds in each.timings_s.values()),
            epoch_ms(datetime.fromisoformat(finished_at)) if finished_at else 0,
        )
        for (_, finished_at), several in ran_as_one.items()
    ]


def _expected(plan: Plan) -> dict[str, int]:
    return {chunk.chunk_id: chunk.expected_events for chunk in plan.chunks}


def _rounded_up(seconds: float) -> int:
    return math.ceil(seconds * SECOND_MS / MINUTE_MS)


def estimate_seconds_left(done: Sequence[ChunkTiming], left: Sequence[int]) -> tuple[float, float] | None:
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
