"""Advise on a recording with a partition that stops: only an idle timeout helps."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.workflow.history import CLICKS, at, write_clicks, write_definition

from backstream.eventtime.delay_analysis import CriticalDelays
from backstream.eventtime.instants import DAY_MS, HOUR_MS, instant_ms
from backstream.runs.home import Home
from backstream.workflow.advice_text import advice_text
from backstream.workflow.advise import AssumedSettings, prepare_advice, recommend_delay

SPAN_MS = (instant_ms("2024-03-01", "since"), instant_ms("2024-03-29", "until"))


@pytest.fixture
def definition(tmp_path: Path) -> Path:
    """Write hourly clicks of 28 days; partition B stops after three days."""
    hours = [("A", hour) for hour in range(28 * 24)] + [("B", hour) for hour in range(3 * 24)]
    rows = [
        (start, start, origin, hour, "home")
        for origin, hour in hours
        for start in [at("1") + timedelta(hours=hour)]
    ]
    write_clicks(tmp_path / "data/a.parquet", rows)
    return write_definition(tmp_path, CLICKS)


def test_silent_partitions_are_named_and_the_timeout_releases_the_results(
    spark: SparkSession, definition: Path, tmp_path: Path
) -> None:
    home = Home(tmp_path / "home")
    request = prepare_advice(definition, *SPAN_MS, 0.999, home)
    advice = recommend_delay(spark, request)
    assert advice.idle_timeout_ms == 2 * HOUR_MS
    assert advice.at(0).wait.median_ms > 9 * DAY_MS
    text = advice_text(request, advice)
    assert (
        "Silent partitions hold the watermark back, whatever the delay is:\n"
        "slowest partition  held for  longest silence  from               until\n"
        "B                  24d23h    25d              2024-03-03T23:00Z  2024-03-28T23:00Z\n"
    ) in text, text
    assert 'Recommended: idle_timeout = "2h", longer than nearly all pauses' in text

    assumed = prepare_advice(definition, *SPAN_MS, 0.999, home, AssumedSettings(2 * HOUR_MS, HOUR_MS))
    changed = recommend_delay(spark, assumed)
    assert (changed.idle_timeout_ms, changed.at(0).wait.median_ms <= 3 * HOUR_MS) == (None, True)
    assert "allowed lateness 1h, a watermark every 200ms, a silent partition is idle after 2h" in advice_text(
        assumed, changed
    )


def test_columns_do_not_touch_however_large_the_counts_are(
    spark: SparkSession, definition: Path, tmp_path: Path
) -> None:
    request = prepare_advice(definition, *SPAN_MS, 0.999, Home(tmp_path / "home"))
    dropped = CriticalDelays.from_counts([(HOUR_MS, 1_234_567_890)], 10**10)
    overdue = CriticalDelays.from_counts([(HOUR_MS, 2_469_135_780)], 10**10)
    advice = replace(recommend_delay(spark, request), dropped=dropped, overdue=overdue)

    first = advice_text(request, advice).split("\n\n")[1].splitlines()[1]

    assert re.split(r" {2,}", first)[:4] == ["0s", "1,234,567,890", "1,234,567,890", "87.65 %"]
