"""Test the text of each watermark strategy of a definition."""

from __future__ import annotations

from typing import Any

import pytest

from backstream.definition.watermark_sections import WatermarkSection
from backstream.eventtime.emission import EmissionModel
from backstream.eventtime.watermark_generators import StrategyKind
from backstream.report.descriptions import watermark_text

SLOWEST = "minimum over all source partitions"


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ({}, "none: all windows fire at the end of the input"),
        (
            {"strategy": "monotonous", "emit": "on_event", "idle_timeout": "1m"},
            (
                "monotonous: each source partition delivers in order of event time; emitted at each record; "
                f"{SLOWEST}; a source partition is idle after 1 min without records"
            ),
        ),
        (
            {"strategy": "bounded_out_of_orderness", "delay": "10m", "emit_interval": "5s", "emit": "micro_batch"},
            (
                "bounded out-of-orderness: events arrive at most 10 min out of order; "
                f"emitted between micro-batches, one every 5 s; {SLOWEST}"
            ),
        ),
        (
            {"strategy": "punctuated", "marker": "kind = 'end'", "delay": "1s"},
            (
                "punctuated: event time of marked records, less 1 s (kind = 'end'); "
                f"emitted at each marked record; {SLOWEST}"
            ),
        ),
        (
            {"strategy": "time_lag", "delay": "2m"},
            f"time lag: clock time, less 2 min; emitted every 200 ms; {SLOWEST}",
        ),
        (
            {"strategy": "flink_sql", "delay": "5s", "emit": "on_event"},
            (
                "of Flink SQL: greatest event time of each source partition, less 5 s; "
                f"emitted at each record; {SLOWEST}"
            ),
        ),
        (
            {"strategy": "flink_sql", "delay": "5s", "topology": "operator"},
            (
                "of Flink SQL: greatest event time of all source partitions, less 5 s, 0 at first; "
                "emitted every 200 ms, and at a record that raises it by more than that"
            ),
        ),
        (
            {"strategy": "custom", "class": "mine.lag:Smoothed", "kwargs": {"records": 50}},
            f"custom: mine.lag:Smoothed(records = 50); emitted every 200 ms; {SLOWEST}",
        ),
    ],
)
def test_a_watermark_in_words(said: dict[str, Any], text: str) -> None:
    assert watermark_text(WatermarkSection.model_validate(said)) == text


def test_every_strategy_and_emission_has_words() -> None:
    own = {
        StrategyKind.PUNCTUATED: {"marker": "true"},
        StrategyKind.CUSTOM: {"class": "mine:Own"},
        StrategyKind.STRUCTURED_STREAMING: {"checkpoint": "/jobs/clicks"},
    }
    for strategy in set(StrategyKind) - {StrategyKind.PER_SOURCE}:
        assert watermark_text(WatermarkSection.model_validate({"strategy": strategy, **own.get(strategy, {})}))
    for emission in EmissionModel:
        assert watermark_text(WatermarkSection.model_validate({"strategy": "monotonous", "emit": emission}))
