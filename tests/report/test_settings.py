"""The sentences about a watermark, of every kind that a definition can name."""

from __future__ import annotations

from typing import Any

import pytest

from backstream.definition.model import WatermarkSection
from backstream.eventtime.watermark_generators import StrategyKind
from backstream.eventtime.watermarks import EmissionModel
from backstream.report.descriptions import watermark_text

SLOWEST = "the slowest source partition decides"


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ({}, "none: every window waits for the end of the input"),
        (
            {"strategy": "monotonous", "emit": "on_event", "idle_timeout": "1m"},
            (
                "monotonous: each source partition delivers in order of event time; computed at each record; "
                f"{SLOWEST}; one that is silent for 1 min no longer counts"
            ),
        ),
        (
            {"strategy": "bounded_out_of_orderness", "delay": "10m", "emit_interval": "5s", "emit": "micro_batch"},
            (
                "bounded out-of-orderness: an event may come 10 min out of order; "
                f"computed between batches, of which one began every 5 s; {SLOWEST}"
            ),
        ),
        (
            {"strategy": "punctuated", "marker": "kind = 'end'", "delay": "1s"},
            (
                "punctuated: marked records say how far event time is, less 1 s (kind = 'end'); "
                f"computed at each of these; {SLOWEST}"
            ),
        ),
        (
            {"strategy": "time_lag", "delay": "2m"},
            f"time lag: event time is the clock, less 2 min; computed every 200 ms; {SLOWEST}",
        ),
        (
            {"strategy": "custom", "class": "mine.lag:Smoothed", "kwargs": {"records": 50}},
            f"custom: mine.lag:Smoothed(records = 50); computed every 200 ms; {SLOWEST}",
        ),
    ],
)
def test_a_watermark_in_words(said: dict[str, Any], text: str) -> None:
    assert watermark_text(WatermarkSection.model_validate(said)) == text


def test_every_strategy_and_emission_has_words() -> None:
    own = {StrategyKind.PUNCTUATED: {"marker": "true"}, StrategyKind.CUSTOM: {"class": "mine:Own"}}
    for strategy in StrategyKind:
        assert watermark_text(WatermarkSection.model_validate({"strategy": strategy, **own.get(strategy, {})}))
    for emission in EmissionModel:
        assert watermark_text(WatermarkSection.model_validate({"strategy": "monotonous", "emit": emission}))
