"""Windows with the same firing times are one stretch; Spark finds the stretch of a window in a tree."""

from __future__ import annotations

import numpy as np
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from backstream.errors import SpecError
from backstream.eventtime.records import SourceClock
from backstream.eventtime.windows import Tumbling
from backstream.spark.watermarks.firing_time_columns import FiringTimeColumns
from backstream.watermarks.firing_times import ArrivalPositions, FiringTimes, WindowGrid
from backstream.watermarks.timeline import WatermarkTimeline


@pytest.mark.parametrize(
    ("count", "stretches"),
    [(1, 1), (70, 3), (4_096, 100), (4_097, 2), (10**6, 1_000), (315_000_000, 5_000), (10**12, 300)],
)
def test_each_window_has_the_values_of_its_stretch(spark: SparkSession, count: int, stretches: int) -> None:
    chance = np.random.default_rng(count)
    middle = count // 2 + np.arange(min(stretches, 40))  # some stretches of one window
    numbers = np.unique(np.concatenate([[0], chance.integers(0, count, stretches), middle]).clip(0, count - 1))
    positions = ArrivalPositions(np.arange(len(numbers), dtype=np.int64))
    times = FiringTimes(WindowGrid(Tumbling(1_000), 1_000, count), numbers, positions, positions)
    asked = np.unique(np.concatenate([numbers, numbers - 1, numbers + 1, chance.integers(-3, count + 3, 500)]))

    rows = spark.createDataFrame([(int(number),) for number in asked], "number long")
    fired_at = F.unix_millis(FiringTimeColumns(spark, times).fired_at(F.col("number")))
    found = rows.select("number", fired_at.alias("at")).collect()

    expected = np.searchsorted(numbers, asked, side="right") - 1
    inside = (asked >= 0) & (asked < count)
    for row, position, is_inside in zip(sorted(found), expected.tolist(), inside.tolist(), strict=True):
        assert (row.number, row.at) == (row.number, position if is_inside else None)


def test_a_grid_of_few_windows_lists_them_and_a_long_one_has_stretches() -> None:
    changes = np.array([3, 3, 900, -5, 10**12], dtype=np.int64)
    assert WindowGrid(Tumbling(1), 0, 1_000).list_stretches(changes).tolist() == list(range(1_000))
    assert WindowGrid(Tumbling(1), 0, 10**9).list_stretches(changes).tolist() == [0, 3, 900]
    many = np.arange(0, 200_000, 2, dtype=np.int64)
    assert len(WindowGrid(Tumbling(1), 0, 3_000_000).list_stretches(many)) == 3_000_000


def test_a_task_gets_the_stretches_of_its_windows() -> None:
    numbers = np.array([0, 10, 20, 30], dtype=np.int64)
    positions = ArrivalPositions(np.array([1, 2, 3, 4], dtype=np.int64))
    times = FiringTimes(WindowGrid(Tumbling(1), 0, 50), numbers, positions, positions)

    part = times.part(range(12, 30))

    assert (list(part.numbers), part.grid.count, list(part.fired.arrival_time_ms)) == ([12, 20], 30, [2, 3])
    assert not part.is_listed
    assert FiringTimes(WindowGrid(Tumbling(1), 0, 4), np.arange(4), positions, positions).is_listed


def test_a_watermark_that_follows_the_clock_over_too_many_windows_is_an_error() -> None:
    rise, steps = np.array([0], dtype=np.int64), np.array([10**10], dtype=np.int64)
    timeline = WatermarkTimeline(
        rise, rise, rise, is_final=True, marker_positions=(None,), steps=steps, step_ms=200
    )

    with pytest.raises(SpecError) as raised:
        FiringTimes.from_timeline(
            timeline, WindowGrid(Tumbling(1_000), 0, 315_000_000), SourceClock(0, 200, 10**12), 0
        )

    assert str(raised.value) == (
        "the watermark follows the clock, so each of 315,000,000 windows that run together fires at another time;"
        " at most 50,000,000 fit into memory (watermark.strategy, window.size)\n\n"
        "hint: set a larger window.size or a shorter backfill.chunk, and backfill.max_events_per_job to 0"
    )
