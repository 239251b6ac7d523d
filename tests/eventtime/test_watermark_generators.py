"""Test custom watermark generators: their import, their errors, and the two examples of the package."""

from __future__ import annotations

import pytest

from backstream.errors import SpecError
from backstream.eventtime.emission import Emission
from backstream.eventtime.records import Record, SourceClock
from backstream.eventtime.watermark_generators import (
    CustomWatermarks,
    StrategyKind,
    WatermarkStrategy,
    generator_factory,
)
from backstream.eventtime.watermark_sources import compute_watermarks
from backstream.examples.generators import Heartbeat, SmoothedLag

MODULE = "backstream.examples.generators"


def test_a_class_is_imported_by_name_with_its_options() -> None:
    strategy = WatermarkStrategy(StrategyKind.CUSTOM, generator=f"{MODULE}:Heartbeat", options={"delay_ms": 5})

    generator = generator_factory(strategy)()

    assert isinstance(generator, Heartbeat)
    assert generator.on_event(Record(0, 0, "", 20, marker=True)) == 15


@pytest.mark.parametrize(
    ("target", "options", "error"),
    [
        ("no.such.module:A", {}, "cannot be imported: ModuleNotFoundError(\"No module named 'no'\")"),
        (f"{MODULE}:Nothing", {}, f"cannot be imported: {MODULE} has no class 'Nothing'"),
        (f"{MODULE}:deque", {}, "must have the method on_event"),
        (
            f"{MODULE}:SmoothedLag",
            {"record": 3},
            "does not take the options {'record': 3}: got an unexpected keyword argument 'record'",
        ),
        (
            f"{MODULE}:SmoothedLag",
            {"records": 0},
            "rejected the options {'records': 0}: ValueError('records must be positive, got 0')",
        ),
    ],
)
def test_the_error_of_a_generator_is_reported(target: str, options: dict[str, int], error: str) -> None:
    with pytest.raises(SpecError) as refused:
        CustomWatermarks(target, options)()
    assert str(refused.value) == f"watermark generator {target} {error}"


def test_the_smoothed_lag_follows_the_mean_of_the_last_records() -> None:
    generator = SmoothedLag(records=2, margin_ms=10)
    assert generator.on_periodic_emit(0) is None

    generator.on_event(Record(100, 0, "", 70))
    assert generator.on_periodic_emit(200) == 100 - 30 - 10 - 1
    generator.on_event(Record(150, 0, "", 99))
    # Lags 30 and 51: the mean of 40.5 counts as 41.
    assert generator.on_periodic_emit(200) == 150 - 41 - 10 - 1
    generator.on_event(Record(160, 0, "", 160))
    assert generator.on_periodic_emit(300) == 160 - 26 - 10 - 1


def test_only_heartbeats_advance_the_watermark() -> None:
    #  arrival     0    1           2           3
    #  event time  50   60 marker   70          80 (marker 75)
    records = [
        Record(0, 0, "", 50),
        Record(1, 0, "", 60, marker=True),
        Record(2, 0, "", 70),
        Record(3, 0, "", 80, marker=75),
    ]
    emission = Emission(WatermarkStrategy(StrategyKind.CUSTOM, generator=f"{MODULE}:Heartbeat"))

    watermarks = compute_watermarks(records, emission, SourceClock(0, 200, 3), [0])

    assert [(event.watermark_ms, event.after) for event in watermarks.events[:-1]] == [(60, 1), (75, 3)]
