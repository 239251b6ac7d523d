"""A run whose range has a billion possible windows costs as much as its records."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from backstream.chunks.replay import replay_chunks
from backstream.eventtime.instants import DAY_MS, instant_ms
from backstream.eventtime.intervals import Interval
from backstream.lake.reader import load_rows
from backstream.pages.windows import day_windows
from backstream.runs.home import Home
from backstream.runs.plan import Mode
from backstream.runs.results import Verdict
from backstream.spark.engine import SparkEngine
from backstream.workflow.audit import audit_run
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.plan.planning import plan_run
from backstream.workflow.publish import publish_run
from backstream.workflow.report import report_run

DEFINITION = """
name = "clicks"
[source]
path = "{folder}/in"
event_time = "at"
arrival_time = "arrived"
partition = "gate"
key = ["gate"]
[window]
kind = "tumbling"
size = "1s"
[watermark]
strategy = "bounded_out_of_orderness"
delay = "5s"
[lateness]
allowed = "1m"
[aggregates]
clicks = "count(*)"
[quality]
missing_ratio = {{ warn = 0.0, fail = 1.0 }}
[backfill]
chunk = "30d"
engine = "{engine}"
publish = "live"
"""
FIRST, LAST = datetime(2016, 12, 1, 8, tzinfo=UTC), datetime(2026, 11, 28, 8, tzinfo=UTC)
GATES = ("a", "b", "c", "d")
COUNT = 33


def write_dataset(folder: Path, engine: str) -> Path:
    """Write a definition, and records 110 days apart; one arrives years late, all others after an hour."""
    events = [FIRST + (LAST - FIRST) * number // (COUNT - 1) for number in range(COUNT)]
    arrivals = [(events[28] if number == 20 else at) + timedelta(hours=1) for number, at in enumerate(events)]
    instants = pa.timestamp("ms", "UTC")
    columns = {
        "at": pa.array(events, instants),
        "arrived": pa.array(arrivals, instants),
        "gate": pa.array([GATES[number % len(GATES)] for number in range(COUNT)]),
    }
    (folder / "in").mkdir()
    pq.write_table(pa.table(columns), folder / "in/a.parquet")
    path = folder / "clicks.toml"
    path.write_text(DEFINITION.format(folder=folder, engine=engine))
    return path


@pytest.mark.parametrize("mode", [Mode.RECOMPUTE, Mode.REPLAY])
@pytest.mark.parametrize("engine", ["auto", "spark"])
def test_a_run_with_a_billion_possible_windows_ends_soon(
    spark: SparkSession, tmp_path: Path, engine: str, mode: Mode
) -> None:
    before_kb, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    interval = Interval(instant_ms("2016-12-01", "since"), instant_ms("2026-11-29", "until"))
    home = Home(tmp_path / "home")

    plan = plan_run(PlanRequest(write_dataset(tmp_path, engine), interval, mode=mode, trigger="cli", home=home))
    list(replay_chunks(SparkEngine(spark), plan, plan.chunks))
    audit = audit_run(plan)
    publish_run(plan)
    report = report_run(plan).read_text()
    day = day_windows(plan.folder, instant_ms("2016-12-01", "day"))

    is_replay = mode is Mode.REPLAY
    assert load_rows(home, "clicks").num_rows == COUNT - is_replay
    assert ("3 % were dropped" in audit.summary) == is_replay
    assert audit.verdict is Verdict.WARN
    missing = 4 * interval.length_ms // 1_000 - COUNT
    assert f"{missing:,} of 1,261,440,000 windows have no event" in audit.summary
    assert f"{missing:,}" in report
    assert day is not None
    assert len(day.windows) + day.left_out == DAY_MS // 1_000
    assert time.monotonic() - started < 240  # seconds, on a busy machine
    used_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb) / 1_024
    assert used_mb < 1_000


@pytest.mark.slow
def test_ten_years_need_no_more_memory_and_time_than_a_day(tmp_path: Path) -> None:
    """The heap is as small as that for the day; with more of it, Java only collects its garbage later."""
    definition = write_dataset(tmp_path, "spark")
    ranges = {"day": ("2016-12-01", "2016-12-02"), "years": ("2016-12-01", "2026-11-29")}
    seconds = {}
    for name, (since, until) in ranges.items():
        started = time.monotonic()
        ended = subprocess.run(
            [sys.executable, "-m", "backstream.cli", "run", str(definition), "--since", since, "--until", until],
            env={
                **os.environ,
                "BACKSTREAM_HOME": str(tmp_path / name),
                "BACKSTREAM_DRIVER_MEMORY": "512m",
            },
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        seconds[name] = time.monotonic() - started
        assert ended.returncode == 0, ended.stderr

    assert seconds["years"] < 2 * seconds["day"] + 10
