"""Write a home with years of history, with the functions that runs use, but without Spark.

`flights` has 3,000 days: a backfill, a restatement with a warning, a refused run, and days that are stale, open
and missing. `clicks` never ran. `orders` is full of markup. `visits` has its input files. `broken` is no
definition.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from tests.browser.visits import publish_visits, write_definition
from tests.lake.conftest import Lake

from backstream.definition.run_sections import Quality
from backstream.eventtime.instants import DAY_MS, HOUR_MS, MINUTE_MS, instant_ms, instant_text, utc_datetime
from backstream.lake.ledger import record_checks, record_run, run_row
from backstream.lake.publication.publish import publish_range
from backstream.quality.audit_frame import WINDOW_COLUMNS
from backstream.runs.dataset_state import DatasetState, DayIssue, write_day_totals
from backstream.runs.home import Home
from backstream.runs.plan import ArrivalOrder, Chunk, InputFile, Mode, Plan
from backstream.runs.requests import RunRequest
from backstream.runs.results import (
    ApprovalRequest,
    Audit,
    Check,
    CheckOutcome,
    Publication,
    Severity,
    worst_verdict,
)
from backstream.runs.status import RunStatus
from backstream.runs.table_schemas import Column, windows_table
from backstream.workflow.dataset_state import compute_day_totals

FIRST_MS = instant_ms("2016-01-01", "first")
DAYS = 3_000
END_MS = FIRST_MS + DAYS * DAY_MS
RAN_MS = instant_ms("2024-03-20T06:00Z", "ran")
BAD_DAY = "2024-02-08"
HOSTILE = '"><script>document.title="owned"</script><img src=x onerror=alert(1)>\u202etxt\x07'
WAITING = tuple(f"manual__2024-03-20T06:0{n}:00+00:00" for n in range(4))
"""The runs that wait for approval, here and in Airflow; each test answers one of them."""
DAG_ID = "reprocess_flights"
TEAM_RUN = ("weekly", "manual__weekly")
"""A run that waits in the task group `load` of a team's own DAG."""
CONF = {"since": "2024-03-01T00:00:00Z", "until": "2024-03-02T00:00:00Z", "reason": "no run"}
REFUSED_CONFS: tuple[dict[str, str], ...] = ({"chunk": "5h"}, {"since": "0001-01-01T00:00:00Z"}, {"reason": " "})
"""Values of which each alone makes no sense, so that Airflow starts no run."""
ANSWER_UNTIL_MS = instant_ms("2099-03-21T06:00Z", "until")
PARTITIONS = ("EWR", "JFK", "LGA")

_DEFINITION = """
name = "{name}"
description = "{description}"
[source]
path = "${{BACKSTREAM_HOME}}/data/{name}"
event_time = "at"
arrival_time = "seen"
partition = "gate"
key = ["carrier"]
[window]
kind = "tumbling"
size = "1h"
[watermark]
strategy = "bounded_out_of_orderness"
delay = "30m"
[lateness]
allowed = "1h"
[aggregates]
departures = "count(*)"
mean_delay_min = "avg(delay_min)"
"""
_WINDOWS_TABLE = windows_table(
    [Column("carrier", "string")], [Column("departures", "long"), Column("mean_delay_min", "double")]
)


_UNEXPECTED = {CheckOutcome.PASS: 0, CheckOutcome.WARN: 8, CheckOutcome.FAIL: 40}


def define(definitions: Path) -> None:
    """Write the definitions into an empty folder."""
    definitions.mkdir(parents=True, exist_ok=True)
    described = {"flights": "Departures per carrier and hour", "clicks": "Clicks per hour", "orders": HOSTILE}
    for name, description in described.items():
        text = _DEFINITION.format(name=name, description=json.dumps(description)[1:-1])
        (definitions / f"{name}.toml").write_text(text, encoding="utf-8")
    write_definition(definitions)
    (definitions / "broken.toml").write_text('name = "broken"\n[window]\nkind = "<i>round"\n', encoding="utf-8")


def seed(home: Home, definitions: Path) -> None:
    """Write the history into an empty home."""
    write_events(home)
    publish_visits(home, definitions / "visits.toml", HOSTILE)
    _flights(home)
    _orders(home)
    home.advice("flights").parent.mkdir(parents=True, exist_ok=True)
    home.advice("flights").write_text(json.dumps(advice()), encoding="utf-8")


def write_events(home: Home) -> None:
    """Write the first and the last event of `flights`."""
    times = pa.array([utc_datetime(FIRST_MS), utc_datetime(END_MS - 1)], pa.timestamp("us", "UTC"))
    names = {"gate": ["EWR", "JFK"], "carrier": ["AA", "UA"], "delay_min": [1.0, 2.0]}
    events = pa.table({"at": times, "seen": times} | names)
    (home.data / "flights").mkdir(parents=True)
    pq.write_table(events, home.data / "flights" / "a.parquet")


def plan_of(home: Home, dataset: str, since_ms: int, until_ms: int, **told: str) -> Plan:
    """Return a plan in chunks of 28 days; `told` can have trigger, reason, and files."""
    chunks = tuple(
        Chunk(
            f"{n:04d}", start, min(until_ms, start + 28 * DAY_MS), min(until_ms, start + 28 * DAY_MS), (0,), 60_000
        )
        for n, start in enumerate(range(since_ms, until_ms, 28 * DAY_MS))
    )
    days = (until_ms - since_ms) // DAY_MS
    files = tuple(InputFile(f"/data/{dataset}/day={n:04d}/part-0.parquet", 2_000, 60_000) for n in range(days))
    return Plan(
        dataset=dataset,
        definition={"source": {"key": ["carrier"]}},
        definition_hash="d1",
        definition_path=f"{dataset}.toml",
        planned_by_version="0.1.0",
        mode=Mode.REPLAY,
        arrival_order=ArrivalOrder.RECORDED,
        since_ms=since_ms,
        until_ms=until_ms,
        clock_start_ms=since_ms,
        clock_end_ms=until_ms,
        home_location=str(home.path),
        inputs=files,
        chunks=chunks,
        triggered_by=told.get("trigger", "manual__2024-03-20T06:00:00+00:00"),
        reason=told.get("reason", ""),
    )


def frame_of(
    since_ms: int, until_ms: int, missing: Sequence[str] = (), partitions: Sequence[str] = PARTITIONS
) -> pd.DataFrame:
    """Return an audit frame of hourly windows; on the days `missing`, some windows of one partition are empty."""
    starts = np.arange(since_ms, until_ms, HOUR_MS)
    cells = len(starts) * len(partitions)
    chance = np.random.default_rng(7)
    frame = pd.DataFrame(
        {
            "source_partition": np.tile(np.array(partitions), len(starts)),
            "start_ms": np.repeat(starts, len(partitions)),
            "late": chance.integers(0, 3, cells),
            "dropped": chance.integers(0, 2, cells),
            "on_time": chance.integers(20, 60, cells),
        }
    )
    bad = {instant_ms(day, "day") for day in missing}
    is_bad = frame["start_ms"].floordiv(DAY_MS).mul(DAY_MS).isin(bad)
    gone = is_bad & (frame["source_partition"] == partitions[1]) & (frame["start_ms"] // HOUR_MS % 3 == 0)
    frame.loc[gone, ["late", "dropped", "on_time"]] = 0
    frame["events"] = frame[["late", "dropped", "on_time"]].sum(axis=1)
    frame["window_start"] = pd.to_datetime(frame["start_ms"], unit="ms", utc=True).dt.as_unit("ms")
    frame["window_end"] = frame["window_start"] + pd.Timedelta(hours=1)
    frame = frame.assign(
        expired=0, unaccounted=0, surplus=0, copies=1, expected_events=0, is_expected=True, in_range=True
    ).assign(is_aligned=True, is_placed=True, is_count_known=False, is_present=frame["events"] > 0)
    frame["late_ratio"] = ((frame["late"] + frame["dropped"]) / frame["events"].clip(lower=1)).astype("float64")
    frame["dropped_ratio"] = (frame["dropped"] / frame["events"].clip(lower=1)).astype("float64")
    frame["completeness"] = frame["is_present"].astype("float64")
    frame["is_counted_on"] = frame["is_present"]
    frame = frame.assign(has_band=True, is_limited=True, band_low=60.0, band_high=170.0)
    frame = frame.assign(windows=1, last_start=frame["window_start"])
    return frame[WINDOW_COLUMNS]


def leave(
    home: Home, plan: Plan, frame: pd.DataFrame, status: RunStatus, checks: Sequence[Check], at_ms: int
) -> None:
    """Write the files of a run and its rows in the ledger."""
    plan.write()
    frame.to_parquet(plan.folder.audit_frame, index=False)
    write_day_totals(plan.folder.day_totals, compute_day_totals(frame, Quality()))
    audit = Audit(plan.run_id, "window_audit", worst_verdict(checks), "seeded", tuple(checks))
    audit.write(plan.folder.audit_result)
    plan.folder.report.write_text(
        f"<!doctype html><title>report</title><h1>Report of {plan.dataset}</h1>", "utf-8"
    )
    record_checks(home, plan.dataset, audit)
    rows = len(frame) if status is RunStatus.PUBLISHED else None
    if rows:
        written_at = instant_text(at_ms)
        said = Publication(plan.run_id, plan.dataset, plan.since_ms, plan.until_ms, {}, rows, 0, 1, written_at)
        said.write(plan.folder.publication)
    span_ms = (at_ms - 5 * MINUTE_MS, at_ms)
    record_run(home, run_row(plan, status, span_ms, audit.verdict, rows, int(frame["events"].sum())))


def check(name: str, outcome: CheckOutcome, observed: str = "", severity: Severity = Severity.CRITICAL) -> Check:
    """Return one check of an audit."""
    return Check(
        name,
        "expect",
        severity,
        outcome,
        observed,
        limit="every window",
        unexpected_count=_UNEXPECTED[outcome],
        element_count=192,
    )


def advice() -> dict[str, object]:
    """Return output of `backstream advise --format json` for a recording with a long tail of late records."""
    delays = [0, *(int(1_000 * 1.32**n) for n in range(41))]
    records = 100_000
    late = [int(24_000 / (1 + delay / (6 * MINUTE_MS))) for delay in delays]
    dropped = [int(9_000 / (1 + (delay / (20 * MINUTE_MS)) ** 2)) for delay in delays]
    late[-1] = dropped[-1] = 0
    shown = [
        {"delay_ms": ms, "dropped": 9_000 // (n + 1), "late": 20_000 // (n + 2), "kept": 0.9, "median_wait_ms": ms}
        for n, ms in enumerate([0, 30 * MINUTE_MS, HOUR_MS, 3 * HOUR_MS])
    ]
    return {
        "dataset": "flights",
        "since": "2024-01-01T00:00Z",
        "until": "2024-03-01T00:00Z",
        "records": records,
        "keep": 0.99,
        "recommended_ms": HOUR_MS,
        "on_time_ms": 5 * HOUR_MS,
        "current_ms": 30 * MINUTE_MS,
        "shown": shown,
        "lateness_ms": HOUR_MS,
        "lateness": [
            {"allowed_ms": ms, "delay_ms": 30 * MINUTE_MS, "dropped": 9_000 // (n + 1), "late": 900 * n}
            for n, ms in enumerate((0, HOUR_MS, 6 * HOUR_MS))
        ],
        "holders": [
            _holder("EWR", silences=[(20, 50)], holds=[(21, 50)]),
            _holder(HOSTILE, silences=[(0, 30), (40, 60)], holds=[(0, 20), (55, 60)]),
        ],
        "idle_timeout_ms": 2 * HOUR_MS,
        "curve": {"step_ms": 1, "delay_ms": delays, "dropped": dropped, "late": late},
        "charted": [FIRST_MS, FIRST_MS + 60 * DAY_MS],
        "assumed": "outage of EWR from 2024-01-21T00:00Z to 2024-02-20T00:00Z",
        "recorded": {
            "curve": {"delay_ms": delays, "dropped": [count // 2 for count in dropped], "late": late},
            "compared": [shown[1] | {"dropped": 2_250}, shown[1]],
        },
    }


def _holder(name: str, silences: list[tuple[int, int]], holds: list[tuple[int, int]]) -> dict[str, object]:
    """Return a partition that holds the watermark; spans are in days after the first one."""
    spans = [
        [(FIRST_MS + start * DAY_MS, FIRST_MS + end * DAY_MS) for start, end in each] for each in (silences, holds)
    ]
    held_ms = sum(end - start for start, end in spans[1])
    longest = {"silent_from_ms": spans[0][0][0], "silent_until_ms": spans[0][0][1]}
    return {"source_partition": name, "held_ms": held_ms, "silences": spans[0], "holds": spans[1]} | longest


def _flights(home: Home) -> None:
    """Write runs from the oldest to the newest."""
    passed = [
        check("expected windows have events", CheckOutcome.PASS, "all do"),
        check("every record is counted exactly once", CheckOutcome.PASS),
    ]
    until_ms = END_MS - 40 * DAY_MS
    backfill = plan_of(home, "flights", FIRST_MS, until_ms, trigger="backfill__2016", reason="first load")
    leave(home, backfill, frame_of(FIRST_MS, until_ms), RunStatus.PUBLISHED, passed, RAN_MS - 90 * DAY_MS)
    # 40 days before the end: 30 published for real, then a gap of 4, then 6 that are open.
    lake, since_ms = Lake(home), until_ms
    for n, trigger in enumerate(("scheduled__2024-02", "restate__2024-02")):
        text = [instant_text(each) for each in (since_ms, since_ms + 30 * DAY_MS)]
        planned = lake.plan(text[0], text[1], trigger, [_WINDOWS_TABLE])
        starts = [instant_text(ms) for ms in range(since_ms, since_ms + 30 * DAY_MS, 6 * HOUR_MS)]
        publish_range(planned, lake.staged(planned, dict.fromkeys(starts, 10 + n)), home)
        warned = [
            check(
                "expected windows have events", CheckOutcome.WARN, "8 of 2,160 windows do not", Severity.WARNING
            ),
            check("every record is counted exactly once", CheckOutcome.PASS, "all are"),
        ]
        found = frame_of(since_ms, since_ms + 30 * DAY_MS, [BAD_DAY, "2024-02-09"])
        leave(home, planned, found, RunStatus.PUBLISHED, [passed, warned][n], RAN_MS - (30 - n) * DAY_MS)
    refused = plan_of(home, "flights", since_ms + 20 * DAY_MS, since_ms + 22 * DAY_MS, trigger="manual__refused")
    failed = [check("expected windows have events", CheckOutcome.FAIL, "40 of 144 windows do not"), passed[1]]
    leave(home, refused, frame_of(refused.since_ms, refused.until_ms), RunStatus.REFUSED, failed, RAN_MS - DAY_MS)
    _running(home, since_ms + 30 * DAY_MS)
    _waiting(home)
    _dry_run(home)
    stale = tuple(
        DayIssue(since_ms + n * DAY_MS, "stale", "1 input file changed: late.parquet", 5) for n in (14, 15)
    )
    unsealed = tuple(
        DayIssue(END_MS - n * DAY_MS, "open", "no arrival after 2024-03-20T00:00Z") for n in range(1, 7)
    )
    DatasetState("flights", RAN_MS, FIRST_MS, END_MS, unsealed, stale).write(home.dataset_state("flights"))


def _waiting(home: Home) -> None:
    """Write runs that wait for approval, with a report that was written before the question."""
    checks = [check("expected windows have events", CheckOutcome.WARN, "8 of 144 do not", Severity.WARNING)]
    row = {"window_start": "2024-03-16 05:00", "keys": {"carrier": HOSTILE}, "published": "11", "new": "14"}
    changed = {"name": "departures", "count": 44, "difference": "+132", "rows": [row | {"difference": "+3"}] * 8}
    for n, (dag_id, run_id) in enumerate([*((DAG_ID, run_id) for run_id in WAITING), TEAM_RUN]):
        since_ms = instant_ms("2024-03-16", "since") + n * DAY_MS
        is_team = (dag_id, run_id) == TEAM_RUN
        group, trigger = ("load.", f"{dag_id}.load.plan.{run_id}") if is_team else ("", run_id)
        plan = plan_of(home, "flights", since_ms, since_ms + DAY_MS, trigger=trigger, reason="late files")
        plan.write()
        asked = RunRequest("flights", dag_id, run_id, trigger, RAN_MS, by="ada", run_id=plan.run_id)
        replace(asked, task_group=group.rstrip(".")).write(home)
        Audit(plan.run_id, "suite", worst_verdict(checks), "8 of 144 windows are empty", tuple(checks)).write(
            plan.folder.audit_result
        )
        plan.folder.report.write_text("<!doctype html><title>report</title><h1>Before approval</h1>", "utf-8")
        ApprovalRequest(
            dag_id=dag_id,
            dag_run_id=run_id,
            task_id=f"{group}approve",
            asked_at_ms=RAN_MS,
            until_ms=ANSWER_UNTIL_MS,
            text="text",
            unit_ms=HOUR_MS,
            verdict="warn",
            finding="8 of 144 windows are empty",
            against="version 3 of 2024-02-18 06:00:00 UTC by run flights-seeded",
            rows={"added": 0, "removed": 0, "changed": 44},
            aggregates=(changed,),
        ).write(plan.folder.approval_request)


def _dry_run(home: Home) -> None:
    """Write a dry run with its result."""
    publisher = {"triggered_by": "scheduled__2024-02", "by": "ada", "reason": "first", "published_at_ms": RAN_MS}
    impact = {"days": 2, "events": 1_484, "rows_replaced": 44, "publishers": [publisher | {"days": 1}]}
    plan = plan_of(
        home, "flights", instant_ms(BAD_DAY, "since"), instant_ms("2024-02-10", "until"), trigger="manual__dry"
    )
    plan.write()
    asked = RunRequest("flights", DAG_ID, "manual__dry", "manual__dry", RAN_MS, by="ada", reason="how much?")
    found = {"changes": "about 760 rows would change", "preview": preview()}
    result = impact | {"other_publishers": 0, "seconds": (65.0, 180.0)} | found
    replace(asked, is_dry_run=True, run_id=plan.run_id, impact=result).write(home)


def preview() -> dict[str, object]:
    """Return the stored preview of a dry run whose texts have markup."""
    rows = {"value": 760.0, "low": 523.0, "high": 1_070.0}
    days = [
        {
            "day_ms": instant_ms(BAD_DAY, "day") + n * DAY_MS,
            "sampled_rows": 38,
            "rows": rows,
            "causes": {"late data": 30, "definition": 8},
        }
        for n in range(2)
    ]
    unbounded = {"value": -12.5, "low": None, "high": None}
    cost = {
        "files": 31,
        "rows": 1_484,
        "bytes_read": 204_700,
        "seconds": (65.0, 180.0),
        "rows_written": rows,
        "tasks": 6,
    }
    return {
        "share": 0.05,
        "sampled_keys": 218,
        "sampled_records": 1_108,
        "days": days,
        "aggregates": [
            {"name": "departures", "sampled_rows": 38, "difference": rows},
            {"name": HOSTILE, "sampled_rows": 1, "difference": unbounded},
        ],
        "details": {"late data": [HOSTILE, "/data/b", "/data/c", "/data/d"], "definition": ["window.size"]},
        "cost": cost,
    }


def _running(home: Home, since_ms: int) -> None:
    """Write a run in progress, and one without a heartbeat for an hour."""
    plan = plan_of(home, "flights", since_ms, since_ms + 2 * DAY_MS, trigger="manual__running")
    planned_s = plan.write().stat().st_mtime
    (plan.folder.path / "chunks").mkdir()
    os.utime(plan.folder.plan, (planned_s - 60, planned_s - 60))
    os.utime(plan.folder.path / "chunks", (planned_s + 86_400, planned_s + 86_400))  # however slow the tests are
    dead = plan_of(home, "flights", FIRST_MS, FIRST_MS + DAY_MS, trigger="manual__interrupted")
    dead.write()
    (dead.folder.path / "chunks").mkdir()
    for path, ago_s in (
        (dead.folder.plan, 7_200),
        (dead.folder.path / "chunks", 3_600),
        (dead.folder.path, 3_600),
    ):
        os.utime(path, (planned_s - ago_s, planned_s - ago_s))


def _orders(home: Home) -> None:
    """Write a run in which all values from data have markup."""
    plan = plan_of(home, "orders", FIRST_MS, FIRST_MS + 2 * DAY_MS, trigger=HOSTILE, reason=HOSTILE)
    frame = frame_of(FIRST_MS, FIRST_MS + 2 * DAY_MS, ["2016-01-01"], ("north", HOSTILE))
    checks = [check(HOSTILE, CheckOutcome.WARN, HOSTILE, Severity.WARNING)]
    leave(home, plan, frame, RunStatus.PUBLISHED, checks, RAN_MS)
    note = DayIssue(FIRST_MS + DAY_MS, "stale", HOSTILE, 1)
    seen = DatasetState("orders", RAN_MS, FIRST_MS, FIRST_MS + 2 * DAY_MS, None, (note,), (HOSTILE,))
    seen.write(home.dataset_state("orders"))
    home.advice("orders").parent.mkdir(parents=True, exist_ok=True)
    home.advice("orders").write_text(
        json.dumps(advice() | {"dataset": HOSTILE, "since": HOSTILE}), encoding="utf-8"
    )
    _orders_approval(home)


def _orders_approval(home: Home) -> None:
    """Write a failed request, and a run that waits for approval, whose values have markup."""
    texts = {"by": HOSTILE, "reason": HOSTILE, "error": HOSTILE, "mode": HOSTILE}
    failed = RunRequest("orders", "reprocess_orders", HOSTILE + "2", HOSTILE + "2", RAN_MS, **texts)  # type: ignore[arg-type]
    failed.write(home)
    plan = plan_of(home, "orders", FIRST_MS + 2 * DAY_MS, FIRST_MS + 3 * DAY_MS, trigger=HOSTILE, reason=HOSTILE)
    plan.write()
    replace(failed, dag_run_id=HOSTILE, triggered_by=HOSTILE, run_id=plan.run_id).write(home)
    checks = [check(HOSTILE, CheckOutcome.WARN, HOSTILE, Severity.WARNING)]
    Audit(plan.run_id, HOSTILE, worst_verdict(checks), HOSTILE, tuple(checks)).write(plan.folder.audit_result)
    row = {"window_start": HOSTILE, "keys": {HOSTILE: HOSTILE}, "published": HOSTILE, "new": HOSTILE}
    changed = {"name": HOSTILE, "count": 1, "difference": HOSTILE, "rows": [row | {"difference": HOSTILE}]}
    ApprovalRequest(
        dag_id="reprocess_orders",
        dag_run_id=HOSTILE,
        task_id="approve",
        asked_at_ms=RAN_MS,
        until_ms=RAN_MS + DAY_MS,
        text=HOSTILE,
        unit_ms=HOUR_MS,
        verdict="warn",
        finding=HOSTILE,
        against=HOSTILE,
        rows={"added": 0, "removed": 0, "changed": 1},
        aggregates=(changed,),
    ).write(plan.folder.approval_request)
