"""Compare all windows of a replay with the reference engine, which reads the same files again."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.reconcile.conftest import DEFINITION, TYPES, Published, clicks
from tests.spark.runs import replay_chunk
from tests.workflow.history import write_clicks, write_definition
from typer.testing import CliRunner

from backstream import api
from backstream.cli import app
from backstream.eventtime.instants import epoch_ms, instant_ms
from backstream.eventtime.intervals import Interval
from backstream.eventtime.windows import TimeWindow
from backstream.lake.publication.publish import publish_range
from backstream.lake.reader import load_published_rows, load_rows
from backstream.native.raw_input import RawInput, Target
from backstream.runs.home import Home
from backstream.runs.plan import Mode
from backstream.variables import HOME_VARIABLE
from backstream.workflow.explain import compare_row
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.plan.planning import plan_run
from backstream.workflow.recomputation.windows import RecomputedWindow, recompute_windows

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "explain.md"


def recompute_all(published: Published, summary: str) -> list[RecomputedWindow]:
    """Return all published windows by the reference engine, which must agree with each of them.

    The summary of the stream is that of the `index`, or of the `files` for an explanation or a `sample`.
    """
    home = published.plan.home_location if summary == "index" else str(published.folder / "no index")
    raw = RawInput.from_plan(replace(published.plan, home_location=home), "verify")
    rows = load_rows(published.home, "clicks").to_pylist()
    targets = [
        Target(TimeWindow(epoch_ms(row["window_start"]), epoch_ms(row["window_end"])), (row["page"],))
        for row in rows
    ]
    found = recompute_windows(raw, targets, is_sample=summary == "sample")
    assert [compare_row(raw, again, row) for again, row in zip(found, rows, strict=True)] == [[]] * len(rows)
    return found


@pytest.mark.parametrize("summary", ["index", "files", "sample"])
def test_every_window_of_a_replay_is_the_same_with_its_panes(published: Published, summary: str) -> None:
    found = recompute_all(published, summary)
    assert {each.source.startswith("from the arrival index") for each in found} == {summary == "index"}
    panes = load_published_rows(published.home, "clicks", "panes").to_pylist()
    late = {(row["window_start"], row["page"]): row["late_firings"] for row in panes if row["late_firings"]}
    again = {
        (row["window_start"], row["page"]): count
        for row, each in zip(load_rows(published.home, "clicks").to_pylist(), found, strict=True)
        if (count := sum(firing.timing == "late" for firing in each.firings))
    }
    assert again == {place: count for place, count in late.items() if place in again}
    assert len(again) > 100
    if summary == "sample":
        return
    fired = {
        row["window_start"]: row["fired_at"]
        for row in load_published_rows(published.home, "clicks", "metrics").to_pylist()
    }
    on_time = [firing for each in found for firing in each.firings[:1] if firing.timing == "on_time"]
    starts = [
        each.target.window.start_ms for each in found if each.firings and each.firings[0].timing == "on_time"
    ]
    by_start = {epoch_ms(start): at and epoch_ms(at) for start, at in fired.items()}
    assert [firing.at_ms for firing in on_time] == [by_start[start_ms] for start_ms in starts]


@pytest.mark.parametrize(
    ("window", "watermark"),
    [
        ('kind = "session"\ngap = "12m"', 'delay = "10m"'),
        ('kind = "sliding"\nsize = "2h"\nslide = "30m"', 'delay = "10m"\nidle_timeout = "20m"'),
        ('kind = "tumbling"\nsize = "1h"', 'delay = "10m"\nemit = "micro_batch"\nemit_interval = "5m"'),
        ('kind = "tumbling"\nsize = "1h"', 'delay = "10m"\nidle_timeout = "15m"\ntopology = "subtasks"'),
    ],
    ids=["session", "sliding-idle", "micro-batch", "subtasks-idle"],
)
def test_other_windows_and_watermarks(spark: SparkSession, tmp_path: Path, window: str, watermark: str) -> None:
    for origin in ("A", "B"):
        write_clicks(tmp_path / f"data/{origin}.parquet", clicks(origin, 0, seed=ord(origin)), TYPES)
    text = DEFINITION.replace('kind = "tumbling"\nsize = "1h"', window).replace('delay = "10m"', watermark)
    text = text.replace("[backfill]", '[backfill]\npublish = "live"')
    interval = Interval(instant_ms("2024-03-05", "since"), instant_ms("2024-03-06", "until"))
    home = Home(tmp_path / "home")
    plan = plan_run(
        PlanRequest(write_definition(tmp_path, text), interval, mode=Mode.REPLAY, trigger="t", home=home)
    )
    publish_range(plan, [replay_chunk(spark, plan, chunk) for chunk in plan.chunks])
    recompute_all(Published(tmp_path, plan), "sample")
    found = recompute_all(Published(tmp_path, plan), "index")
    fates = Counter(record.fate for each in found for record in each.records)
    assert min(fates["late"], fates["on_time"]) > 0


def test_the_page_shows_what_the_command_prints(published: Published, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(published.home.path))
    monkeypatch.chdir(published.folder)
    options = ["--window", "2024-03-05T00:00Z", "--key", "page=cart", "--limit", "6"]
    result = CliRunner(env={"NO_COLOR": "1"}).invoke(app, ["explain", "clicks", *options])
    assert result.exit_code == 0, result.output
    printed = result.output.split("\nrun  ")[0]
    assert printed in DOCUMENTATION.read_text(), printed


def test_the_python_function_and_json(published: Published) -> None:
    found = api.explain("clicks", "2024-03-05T00:00Z", {"page": "cart"}, home=published.home.path)
    assert found.is_confirmed
    assert found.row is not None
    assert found.row["clicks"] == found.recomputed.record_count
    result = CliRunner(env={HOME_VARIABLE: str(published.home.path)}).invoke(
        app, ["explain", "clicks", "--window", "2024-03-05T00:00Z", "--key", "page=cart", "--format", "json"]
    )
    content = json.loads(result.stdout)
    assert content["fates"] == dict(Counter(record.fate for record in found.recomputed.records))
    assert content["published"]["clicks"] == content["recomputed"]["clicks"]


def test_the_value_of_the_live_system_is_shown_with_the_cause(published: Published, tmp_path: Path) -> None:
    panes = published.panes()
    theirs = panes[["window_start", "window_end", "page"]].copy()
    for name in ("clicks", "seconds", "longest", "mean"):
        theirs[name] = panes[f"{name}__first"]
    theirs[panes["record_count__first"] > 0].to_parquet(tmp_path / "live.parquet", index=False)
    options = ["--window", "2024-03-05T00:00Z", "--key", "page=cart", "--against", str(tmp_path / "live.parquet")]
    environment = {HOME_VARIABLE: str(published.home.path), "BACKSTREAM_DEFINITIONS": str(published.folder)}
    result = CliRunner(env=environment).invoke(app, ["explain", "clicks", *options])
    assert result.exit_code == 0, result.output
    lines = [line for line in result.stdout.splitlines() if line.startswith("live system")]
    assert len(lines) == 1
    assert "late data" in lines[0]
