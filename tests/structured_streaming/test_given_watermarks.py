"""The reference runs only the ticks at which a watermark that a job wrote down comes into force."""

from __future__ import annotations

from array import array
from random import Random

import pytest

from backstream.eventtime.emission import Emission, Topology
from backstream.eventtime.records import Record, SourceClock
from backstream.eventtime.watermark_generators import GivenWatermarks, StrategyKind, WatermarkStrategy
from backstream.eventtime.watermark_sources import compute_watermarks


@pytest.mark.parametrize("seed", range(20))
def test_each_record_meets_the_watermark_in_force(seed: int) -> None:
    rng = Random(seed)  # noqa: S311 - cases, not secrets
    at_ms = array("q", sorted(rng.sample(range(200), rng.randint(1, 30))))
    values_ms = array("q", sorted(rng.sample(range(-1, 500), len(at_ms))))
    given = GivenWatermarks(at_ms, values_ms, at_ms)
    strategy = WatermarkStrategy(StrategyKind.STRUCTURED_STREAMING, interval_ms=1, given=given)
    start_ms = rng.randint(-5, 60)
    arrivals_ms = sorted(rng.choices(range(start_ms + 1, 260), k=20))
    records = [Record(at, 0, "a", 0) for at in arrivals_ms]

    found = compute_watermarks(
        records, Emission(strategy, Topology.OPERATOR), SourceClock(start_ms, 1, arrivals_ms[-1]), [0]
    )

    assert found.in_force_ms == [given.in_force(at) for at in arrivals_ms]
    assert found.current_ms == given.in_force(260)
    assert not found.is_final
