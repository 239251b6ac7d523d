"""Test event-time timers of a process function with one instance per key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backstream.eventtime.emission import Emission
from backstream.eventtime.instants import MAX_MS
from backstream.eventtime.process_functions import Context
from backstream.eventtime.records import Record, SourceClock
from backstream.eventtime.timers import ProcessOperator
from backstream.eventtime.watermark_generators import StrategyKind, WatermarkStrategy
from backstream.eventtime.watermark_sources import compute_watermarks


class Third:
    """A process function that registers a timer at every third record of its key."""

    def __init__(self) -> None:
        self.records = 0

    def process_element(self, record: Mapping[str, Any], context: Context) -> None:
        """Count the record, and register a timer at the third."""
        self.records += 1
        if self.records == 3:
            context.timer_service.register(record["event_time_ms"])

    def on_timer(self, timestamp_ms: int, context: Context) -> None:
        """Register another timer in the past: it fires with the same watermark."""
        if timestamp_ms > 100:
            context.timer_service.register(timestamp_ms - 100)


def test_state_belongs_to_a_key() -> None:
    #  arrival  0  1  2  3  4  5
    #  key      a  b  a  b  a  b
    records = [Record(at, 0, "ab"[at % 2], 100 + at) for at in range(6)]
    emission = Emission(WatermarkStrategy(StrategyKind.MONOTONOUS, interval_ms=1))

    watermarks = compute_watermarks(records, emission, SourceClock(0, 1, 5), [0])
    firings = ProcessOperator(Third).run(records, watermarks).firings

    assert [(firing.key, firing.timestamp_ms, firing.watermark_ms) for firing in firings] == [
        ("a", 104, MAX_MS),
        ("a", 4, MAX_MS),
        ("b", 105, MAX_MS),
        ("b", 5, MAX_MS),
    ]
