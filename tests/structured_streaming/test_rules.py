"""The rules of Structured Streaming in plain Python agree with all recorded windows and sessions."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from tests.structured_streaming.recorded import log_of, records_of, rows_of

from backstream.conformance.comparison import find_difference
from backstream.conformance.reference_engine import run_cases
from backstream.structured_streaming.rules import BatchWatermarks, JobWindows, emit_sessions, emit_windows

FILE = Path(__file__).parents[1] / "conformance/spark/structured_streaming.jsonl"
LINES = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]


def test_all_recorded_windows_and_sessions_agree() -> None:
    tally = find_difference(LINES, run_cases)

    assert tally.differ == []
    assert tally.agree == 59
    assert dict(tally.unsupported) == {
        "joins of streams": 16,
        "deduplication": 6,
        "windows of windows": 4,
        "output mode complete: no record is late, and no window ends": 1,
    }


def _with(number: int, change: Any) -> dict[str, Any]:
    line: dict[str, Any] = copy.deepcopy(LINES[number])
    change(line)
    return line


@pytest.mark.parametrize(
    "change",
    [
        lambda line: line["spark"]["batches"][1]["rows"][0]["ids"].append(9),
        lambda line: line["spark"]["batches"][1]["rows"].clear(),
        lambda line: line["case"]["query"].update(size_us=9_000_000),
        lambda line: line["case"]["steps"][0]["batches"][1]["a"][0].update(ts_us=26_000_000),
    ],
)
def test_a_changed_recording_differs(change: Any) -> None:
    tally = find_difference([_with(0, change)], run_cases)

    assert len(tally.differ) == 1, tally


def test_the_windows_of_a_whole_job_are_those_that_it_emitted() -> None:
    log = log_of("orders")
    watermarks = BatchWatermarks([batch.watermark_ms for batch in log.batches])

    found = emit_windows(records_of("orders", log), watermarks, JobWindows(3_600_000_000, 3_600_000_000))

    assert set(found) == rows_of("orders")
    assert len(found) == 27


def test_the_sessions_of_a_whole_job_are_those_that_it_emitted() -> None:
    log = log_of("sessions")
    watermarks = BatchWatermarks([batch.watermark_ms for batch in log.batches])

    found = set(emit_sessions(records_of("sessions", log), watermarks, 300_000_000))

    assert found == rows_of("sessions")
    assert len(found) == 7
