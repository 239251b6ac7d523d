"""A day of hourly windows of two source partitions, as rows that a test can change."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from backstream.definition.loader import parse_definition
from backstream.definition.model import Definition
from backstream.eventtime.instants import HOUR_MS, instant_ms
from backstream.quality.gate import evaluate_suite
from backstream.runs.manifest import Manifest, StagedFile
from backstream.runs.plan import ArrivalOrder, Chunk, InputFile, Mode, Plan
from backstream.runs.results import Audit, CheckOutcome

SINCE_MS, UNTIL_MS = instant_ms("2026-03-01", "since"), instant_ms("2026-03-02", "until")
PLAN = Plan(
    dataset="clicks",
    definition={},
    definition_hash="d",
    definition_path="clicks.toml",
    planned_by_version="1",
    mode=Mode.REPLAY,
    arrival_order=ArrivalOrder.RECORDED,
    since_ms=SINCE_MS,
    until_ms=UNTIL_MS,
    clock_start_ms=SINCE_MS,
    clock_end_ms=UNTIL_MS,
    home_location="home",
    inputs=(InputFile("/data/clicks.parquet", 2_400, 96_000, SINCE_MS, UNTIL_MS - 1),),
    chunks=(Chunk("0000", SINCE_MS, UNTIL_MS, UNTIL_MS, (0,), 2_400),),
)

HOURLY = {"kind": "tumbling", "size": "1h"}


def definition(timetable: Path, *, window: Mapping[str, str] = HOURLY, **quality: Any) -> Definition:
    limits = {"late_ratio": {"warn": 0.05, "fail": 0.25}, "missing_ratio": {"warn": 0.0, "fail": 0.25}}
    expected = {"path": str(timetable), "event_time": "due", "partition": "gate"}
    return parse_definition(
        {
            "name": "clicks",
            "source": {"path": "data", "event_time": "at", "partition": "gate"},
            "window": dict(window),
            "watermark": {"strategy": "bounded_out_of_orderness", "delay": "10m"},
            "aggregates": {"clicks": "count(*)"},
            "quality": limits | {"expected": expected} | quality,
        },
        "test",
    )


Row = dict[str, Any]
MINUTE_MS = 60_000


def good() -> list[Row]:
    """Return 24 windows of 50 events for each of two source partitions; one event of each window is late."""
    return [
        {
            "source_partition": source_partition,
            "start_ms": start_ms,
            "end_ms": start_ms + HOUR_MS,
            "events": 50,
            "on_time": 49,
            "late": 1,
            "dropped": 0,
        }
        for source_partition in ("a", "b")
        for start_ms in range(SINCE_MS, UNTIL_MS, HOUR_MS)
    ]


def metrics(rows: list[Row]) -> pd.DataFrame:
    names = ["source_partition", "start_ms", "end_ms", "events", "on_time", "late", "dropped"]
    frame = pd.DataFrame(rows, columns=names).assign(expired=0)
    frame["window_start"] = pd.to_datetime(frame.pop("start_ms"), unit="ms", utc=True)
    frame["window_end"] = pd.to_datetime(frame.pop("end_ms"), unit="ms", utc=True)
    return frame


def fates_of(rows: list[Row]) -> Manifest:
    """Return the manifest of a chunk that lost no record and staged a row per window."""
    fates: dict[str, dict[str, int]] = {}
    for row in rows:
        counts = fates.setdefault(row["source_partition"], {"on_time": 0, "late": 0, "dropped": 0})
        for fate in counts:
            counts[fate] += row[fate]
    rows_staged = len({row["start_ms"] for row in rows if row["events"]})
    staged = StagedFile("part-0.parquet", 1, rows_staged, sum(row["events"] for row in rows))
    read = sum(sum(counts.values()) for counts in fates.values())
    return Manifest("run", "0000", "1", read, fates, {"": (staged,)})


def results_of(rows: list[Row]) -> pa.Table:
    """Return the rows of a chunk without keys: a row per window with events."""
    return sum_by_window(rows, {"record_count": ["events"]})


def panes_of(rows: list[Row]) -> pa.Table:
    """Return the panes of these rows."""
    names_by_pane = {"first": ["on_time"], "live": ["on_time", "late"], "final": ["events"]}
    return sum_by_window(rows, {f"record_count__{pane}": names for pane, names in names_by_pane.items()})


def sum_by_window(rows: list[Row], columns: Mapping[str, list[str]]) -> pa.Table:
    """Return a row per window with events, with the sums of their counts."""
    windows = sorted({(row["start_ms"], row["end_ms"]) for row in rows if row["events"]})
    instants = pa.timestamp("ms", "UTC")
    rows_by_window = [[row for row in rows if (row["start_ms"], row["end_ms"]) == window] for window in windows]
    return pa.table(
        {
            "window_start": pa.array([start for start, _ in windows], instants),
            "window_end": pa.array([end for _, end in windows], instants),
        }
        | {
            column: pa.array(
                [sum(row[name] for row in window_rows for name in names) for window_rows in rows_by_window],
                pa.int64(),
            )
            for column, names in columns.items()
        }
    )


def judged(rows: list[Row], quality_definition: Definition) -> Audit:
    audit, _ = judge_rows(rows, quality_definition, [fates_of(rows)])
    return audit


def judge_rows(
    rows: list[Row], quality_definition: Definition, manifests: list[Manifest], of: list[Row] | None = None
) -> tuple[Audit, pd.DataFrame]:
    """Evaluate metrics, with results made of the same rows or of the rows `of`."""
    results = of or rows
    return evaluate_suite(
        PLAN,
        quality_definition,
        metrics(rows),
        manifests,
        results=[results_of(results)],
        panes=[panes_of(results)],
    )


def failing(audit: Audit) -> dict[str, list[str]]:
    """Return the failed checks, with the first rows of their frames; a check of the run has no such row."""
    return {
        check.name: [_row_text(row, check.column) for row in check.failing if check.column in row][:2]
        for check in audit.checks
        if check.outcome is not CheckOutcome.PASS
    }


def _row_text(row: Mapping[str, Any], column: str | None) -> str:
    names = ("source_partition", "window_start", str(column))
    return " ".join(str(row[name]) for name in names if name in row)
