"""Test the chart of the batches of a Structured Streaming job on the page of the watermark."""

from __future__ import annotations

import json
import re
import shutil
from itertools import pairwise
from pathlib import Path

from tests.structured_streaming.recorded import JOBS, log_of

from backstream.definition.loader import load_definition, resolve_raw_paths
from backstream.definition.prepared import BatchesPointer, batches_folder
from backstream.eventtime.instants import MINUTE_MS, instant_ms, instant_text
from backstream.pages.job_batches import load_job_watermarks
from backstream.runs.home import Home
from backstream.structured_streaming.batch_table import BatchTable
from backstream.structured_streaming.batches import Batch, BatchLog

DEFINITION = """\
name = "orders"

[source]
path = "/orders"
event_time = "at"
key = ["key"]

[window]
kind = "tumbling"
size = "1h"

[watermark]
strategy = "structured_streaming"
checkpoint = "/checkpoint"

[aggregates]
n = "count(*)"
"""
YEAR_MS = instant_ms("2025-01-01", "year")
REPORTS = [json.loads(line) for line in (JOBS / "orders/progress.jsonl").read_text().splitlines()]


def with_table(folder: Path, log: BatchLog) -> tuple[Home, Path]:
    """Write a definition, and the table of batches that its preparation would make."""
    path, home = folder / "orders.toml", Home(folder / "home")
    path.write_text(DEFINITION)
    tables = batches_folder(resolve_raw_paths(load_definition(path), home), home)
    tables.mkdir(parents=True)
    BatchesPointer(BatchTable.from_log(log).write(str(tables)), "").write(tables)
    return home, path


def test_long_empty_and_restarted_batches_are_marked(tmp_path: Path) -> None:
    home, path = with_table(tmp_path, log_of("orders"))
    restarts = [two["batchId"] for one, two in pairwise(REPORTS) if one["runId"] != two["runId"]]
    empty = [report["batchId"] for report in REPORTS if report["numInputRows"] == 0]
    assert (len(restarts), bool(empty)) == (1, True)

    job = load_job_watermarks(home, load_definition(path))

    assert job is not None
    assert (job.batches, job.first, job.last, job.lost) == (38, 0, 37, 0)
    assert (job.counts["empty"], job.counts["restarted"]) == (len(empty), 1)
    numbers = re.findall(r"batch-(\w+)\"[^>]*><title>batch (\d+),", job.chart)
    assert [int(number) for kind, number in numbers if kind == "empty"] == empty
    assert [int(number) for kind, number in numbers if kind == "restarted"] == restarts
    assert {batch.number for batch in job.newest if "restarted" in batch.kinds} == {*restarts}
    assert f"Watermark of 38 batches, up to {instant_text(log_of('orders').batches[-1].watermark_ms)}" in job.chart


def test_lost_batches_are_a_gap(tmp_path: Path) -> None:
    log = log_of("orders")
    home, path = with_table(
        tmp_path, BatchLog(log.query_ids, (*log.batches[2:20], *log.batches[25:]), log.files, "")
    )

    job = load_job_watermarks(home, load_definition(path))

    assert job is not None
    assert (job.batches, job.first, job.lost) == (31, 2, 7)
    assert job.chart.count("lost batches") == 1


def test_many_batches_are_a_small_chart(tmp_path: Path) -> None:
    began_ms = [YEAR_MS + number * MINUTE_MS for number in range(20_000)]
    ends = [{"0": {"logOffset": number // 2}} for number in range(20_000)]
    batches = [Batch(number, at_ms, ends[number], began_ms=at_ms) for number, at_ms in enumerate(began_ms)]
    home, path = with_table(tmp_path, BatchLog(frozenset(), tuple(batches), {}, ""))

    job = load_job_watermarks(home, load_definition(path))

    assert job is not None
    assert job.counts == {"long": 0, "empty": 10_000, "restarted": 0}
    assert len(job.chart) < 250_000


def test_without_a_preparation_there_is_no_chart(tmp_path: Path) -> None:
    home, path = with_table(tmp_path, log_of("orders"))
    shutil.rmtree(home.path)

    assert load_job_watermarks(home, load_definition(path)) is None
    assert load_job_watermarks(home, None) is None
