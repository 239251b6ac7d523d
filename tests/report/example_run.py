"""Define one small run: four days of hourly windows of two source partitions, three of them missing."""

from __future__ import annotations

import pandas as pd

from backstream.definition.loader import parse_definition
from backstream.definition.model import Definition
from backstream.eventtime.instants import DAY_MS, HOUR_MS, instant_ms
from backstream.quality.audit_frame import audit_frame
from backstream.report.html import render_report
from backstream.runs.manifest import Manifest
from backstream.runs.plan import ArrivalOrder, Chunk, InputFile, Mode, Plan
from backstream.runs.results import Audit, Check, CheckOutcome, Publication, Severity, Verdict

SINCE_MS = instant_ms("2026-03-01", "since")
UNTIL_MS = instant_ms("2026-03-05", "until")

DEFINITION = parse_definition(
    {
        "name": "clicks",
        "description": "Clicks per hour",
        "source": {"path": "data", "event_time": "at", "arrival_time": "seen", "partition": "gate"},
        "window": {"kind": "tumbling", "size": "1h"},
        "watermark": {"strategy": "bounded_out_of_orderness", "delay": "10m", "idle_timeout": "2h"},
        "lateness": {"allowed": "1h"},
        "aggregates": {"clicks": "count(*)"},
        "quality": {"expected_partitions": ["north", "south"]},
    },
    "test",
)

PLAN = Plan(
    dataset="clicks",
    definition={},
    definition_hash="d00d",
    definition_path="definitions/clicks.toml",
    planned_by_version="1.2.3",
    mode=Mode.REPLAY,
    arrival_order=ArrivalOrder.RECORDED,
    since_ms=SINCE_MS,
    until_ms=UNTIL_MS,
    clock_start_ms=SINCE_MS,
    clock_end_ms=UNTIL_MS,
    home_location="home",
    inputs=(InputFile("data/one.parquet", 1_234, 2_000_000), InputFile("data/two.parquet", 10, 345_678)),
    chunks=(
        Chunk("0000", SINCE_MS, SINCE_MS + 2 * DAY_MS, SINCE_MS + 2 * DAY_MS, (0,), 1_900),
        Chunk("0001", SINCE_MS + 2 * DAY_MS, UNTIL_MS, UNTIL_MS, (0, 1), 1_950),
    ),
    triggered_by="manual__1",
    reason="a test",
)

PUBLICATION = Publication(
    run_id=PLAN.run_id,
    dataset="clicks",
    since_ms=SINCE_MS,
    until_ms=UNTIL_MS,
    snapshots={"": 4711, "metrics": 4712},
    rows=98_765,
    replaced_rows=4_321,
    files=4,
    published_at="2026-03-06T09:12:04+00:00",
)


def metrics(**changes: dict[str, int] | None) -> pd.DataFrame:
    """Return 20 events in each hour of four days in north and south; `south_30=None` omits window 30 of south."""
    rows = []
    for gate in ("north", "south"):
        for at, start_ms in enumerate(range(SINCE_MS, UNTIL_MS, HOUR_MS)):
            counts: dict[str, int] | None = {"on_time": 20, "late": 0, "dropped": 0}
            counts = changes.get(f"{gate}_{at}", counts)
            if counts is not None:
                rows.append({"source_partition": gate, "start_ms": start_ms, **counts})
    frame = pd.DataFrame(rows, columns=["source_partition", "start_ms", "on_time", "late", "dropped"])
    frame["window_start"] = pd.to_datetime(frame["start_ms"].astype("int64"), unit="ms", utc=True)
    frame["window_end"] = frame["window_start"] + pd.Timedelta(hours=1)
    frame["events"] = frame["on_time"] + frame["late"] + frame["dropped"]
    return frame.assign(expired=0)


WITH_A_GAP = metrics(south_30=None, south_31=None, north_5={"on_time": 15, "late": 3, "dropped": 2}, north_6=None)


def manifests() -> list[Manifest]:
    """Return manifests that agree with `WITH_A_GAP`, with 7 more duplicates and 5 records of a halo."""
    first = {
        "north": {"on_time": 935, "late": 3, "dropped": 2},
        "south": {"on_time": 920, "duplicate": 7, "halo": 5},
    }
    second = {"north": {"on_time": 960}, "south": {"on_time": 960}}
    return [
        Manifest("run", "0000", "1", 1_872, first, {}, {"read": 3.0, "write": 9.5}, "2026-03-06T09:11:00Z"),
        Manifest("run", "0001", "1", 1_920, second, {}, {"read": 2.0}, "2026-03-06T09:12:00Z"),
    ]


def audit(verdict: Verdict, *checks: Check) -> Audit:
    return Audit(PLAN.run_id, "window_audit", verdict, "3 of 192 windows have no event", checks)


MISSING = Check(
    name="expected windows have events",
    expectation="expect_column_values_to_be_in_set",
    severity=Severity.WARNING,
    outcome=CheckOutcome.WARN,
    observed="3 of 192 windows do not",
    column="is_present",
    limit="every window",
    unexpected_count=30,
    element_count=192,
    failing=tuple(
        {
            "source_partition": partition,
            "window_start": start,
            "is_present": False,
            "expected": "50 events",
            "found": "no event",
            "command": "backstream show clicks",
        }
        for partition, start in (
            ("north", "2026-03-01T06:00Z"),
            ("south", "2026-03-02T06:00Z"),
            ("south", "2026-03-02T07:00Z"),
        )
    ),
)
PASSED = Check("counted once", "expect", Severity.CRITICAL, CheckOutcome.PASS, "all 192 windows do")
LATE = Check(
    name="late share of windows",
    expectation="expect",
    severity=Severity.CRITICAL,
    outcome=CheckOutcome.FAIL,
    column="late_ratio",
    failing=(
        {
            "source_partition": "north",
            "window_start": "2026-03-01T05:00Z",
            "late_ratio": 0.25,
            "expected": "at most 5 %",
            "found": "5 of 20 events (25 %)",
            "command": "backstream show clicks",
        },
    ),
)
BROKEN = Check("watermark", "expect", Severity.INFO, CheckOutcome.ERROR, "could not run: no such column")


def frame_of(came: pd.DataFrame, definition: Definition = DEFINITION) -> pd.DataFrame:
    return audit_frame(PLAN, definition, came)


def warned() -> str:
    return render_report(
        PLAN,
        manifests(),
        audit(Verdict.WARN, PASSED, MISSING),
        frame_of(WITH_A_GAP),
        PUBLICATION,
        DEFINITION,
    )
