"""Write a home with years of runs of many datasets, with the files that runs leave, and without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pandas as pd

from backstream.eventtime.instants import DAY_MS, HOUR_MS, MINUTE_MS, instant_ms
from backstream.lake.ledger import CHECKS, CHECKS_TABLE, RUNS, RUNS_TABLE, RunRow, run_row, stored_run
from backstream.lake.ledger_tables import append_rows, summarize_files
from backstream.pages import lists, views
from backstream.pages.filters import Filter
from backstream.pages.render import Page
from backstream.pages.store import PageStore
from backstream.quality.audit_frame import WINDOW_COLUMNS
from backstream.runs.dataset_state import DatasetState, DayIssue, DayTotals, write_day_totals
from backstream.runs.home import Home
from backstream.runs.plan import ArrivalOrder, Chunk, InputFile, Mode, Plan
from backstream.runs.requests import RunRequest
from backstream.runs.results import Verdict
from backstream.runs.status import RunStatus

FIRST_MS = instant_ms("2022-01-01", "first day")
LARGEST = "flights"
"""The dataset with most of the runs; each other dataset has two."""
USERS = ("ann", "bob", "", "eve")
REASONS = ("late files of JFK", "wrong time zone", "", "new definition of a departure")
CHECK_NAMES = tuple(f"check {number}" for number in range(42))
_DEFINITION = """
name = "{name}"
description = "Departures per carrier and hour"
[source]
path = "${{BACKSTREAM_HOME}}/data/{name}"
event_time = "at"
key = ["carrier"]
[window]
kind = "tumbling"
size = "1h"
[watermark]
strategy = "bounded_out_of_orderness"
delay = "30m"
[aggregates]
departures = "count(*)"
"""
_PARTITIONS = ("EWR", "JFK", "LGA")


def write_history(home: Home, definitions: Path, days: int, runs: int, datasets: int) -> None:
    """Write definitions, run folders, requests, and the ledger.

    Args:
        home: an empty home.
        definitions: the folder for the definitions.
        days: days of history of each dataset.
        runs: number of runs of all datasets, at least twice the number of datasets.
        datasets: number of datasets.
    """
    definitions.mkdir(parents=True, exist_ok=True)
    names = [LARGEST, *(f"dataset_{number:03d}" for number in range(1, datasets))]
    rows: list[RunRow] = []
    for name in names:
        (definitions / f"{name}.toml").write_text(_DEFINITION.format(name=name), encoding="utf-8")
        count = runs - 2 * (datasets - 1) if name == LARGEST else 2
        rows += _write_dataset(home, name, days, count)
    append_rows(home, RUNS, RUNS_TABLE, (), [stored_run(row) for row in rows])
    summarize_files(home, RUNS, RUNS_TABLE, None)
    checks = [check for row in rows if row.verdict for check in _checks(row)]
    append_rows(home, CHECKS, CHECKS_TABLE, (), checks)


def pages(dag_ids: set[str]) -> Mapping[str, Callable[[PageStore], Page]]:
    """Return each page of the history as a function of the store."""
    dag_id = f"backfill_{LARGEST}"
    narrow = Filter(text="jfk", since="2022-01-01", until="2022-02-01")
    return {
        "Backfills": lambda store: lists.overview_page(store, dag_ids),
        "Backfills, searched": lambda store: lists.overview_page(store, dag_ids, Filter(text="19")),
        "Runs": lambda store: lists.runs_page(store, dag_ids),
        "Runs, filtered": lambda store: lists.runs_page(store, dag_ids, None, narrow),
        "Runs of a dataset": lambda store: lists.runs_page(store, {dag_id}, dag_id),
        "Windows": lambda store: views.windows_page(store, dag_id, may_run=True),
        "a day": lambda store: views.day_page(store, dag_id, "2022-02-09", may_run=True),
        "Checks": lambda store: lists.checks_page(store, dag_id),
    }


def _write_dataset(home: Home, name: str, days: int, runs: int) -> Iterator[RunRow]:
    """Write a backfill of all days, and runs over one day each; yield their rows in the ledger."""
    end_ms = FIRST_MS + days * DAY_MS
    for number in range(runs):
        start_ms = FIRST_MS + (number * 7 % days) * DAY_MS
        since_ms, until_ms = (FIRST_MS, end_ms) if number == 0 else (start_ms, start_ms + DAY_MS)
        plan = _plan(home, name, since_ms, until_ms, number)
        plan.write()
        status, verdict = _outcome(number)
        if status is not RunStatus.FAILED:
            write_day_totals(plan.folder.day_totals, list(_totals(since_ms, until_ms, verdict)))
            plan.folder.report.write_text("<!doctype html><title>report</title>", encoding="utf-8")
        if name == LARGEST and number in (0, runs - 1):
            _window_frame(until_ms - DAY_MS, until_ms).to_parquet(plan.folder.audit_frame, index=False)
        ended_ms = end_ms + number * HOUR_MS
        RunRequest(
            dataset=name,
            dag_id=f"reprocess_{name}",
            dag_run_id=plan.triggered_by,
            triggered_by=plan.triggered_by,
            requested_at_ms=ended_ms - 6 * MINUTE_MS,
            by=USERS[number % len(USERS)],
            reason=plan.reason,
            mode=plan.mode.value,
            since_ms=since_ms,
            until_ms=until_ms,
            run_id=plan.run_id,
        ).write(home)
        yield run_row(plan, status, (ended_ms - 5 * MINUTE_MS, ended_ms), verdict, 2_400, 48_000)
    stale = tuple(DayIssue(FIRST_MS + day * DAY_MS, "stale", "1 input file changed", 3) for day in range(5, 8))
    state = DatasetState(name, end_ms + runs * HOUR_MS, FIRST_MS, end_ms + 2 * DAY_MS, None, stale)
    state.write(home.dataset_state(name))


def _plan(home: Home, name: str, since_ms: int, until_ms: int, number: int) -> Plan:
    return Plan(
        dataset=name,
        definition={"source": {"key": ["carrier"]}},
        definition_hash="d1",
        definition_path=f"{name}.toml",
        planned_by_version="0.1.0",
        mode=Mode.REPLAY,
        arrival_order=ArrivalOrder.RECORDED,
        since_ms=since_ms,
        until_ms=until_ms,
        clock_start_ms=since_ms,
        clock_end_ms=until_ms,
        home_location=str(home.path),
        inputs=(InputFile(f"/data/{name}/part-0.parquet", 2_000, 60_000),),
        chunks=(Chunk("0000", since_ms, until_ms, until_ms, (0,), 60_000),),
        triggered_by=f"manual__{number:04d}",
        reason=REASONS[number % len(REASONS)],
    )


def _outcome(number: int) -> tuple[RunStatus, Verdict | None]:
    if number % 40 == 39:
        return RunStatus.FAILED, None
    if number % 20 == 19:
        return RunStatus.REFUSED, Verdict.FAIL
    return RunStatus.PUBLISHED, Verdict.WARN if number % 10 == 9 else Verdict.PASS


def _totals(since_ms: int, until_ms: int, verdict: Verdict | None) -> Iterator[DayTotals]:
    problems = 0 if verdict is Verdict.PASS else 1
    for day_ms in range(since_ms, until_ms, DAY_MS):
        yield DayTotals(day_ms, 72, 72 - problems, 48_000, 47_000, 900, 100, problems)


def _window_frame(since_ms: int, until_ms: int) -> pd.DataFrame:
    """Return the audit frame of hourly windows of three source partitions."""
    frame = pd.DataFrame(
        [(name, start) for start in range(since_ms, until_ms, HOUR_MS) for name in _PARTITIONS],
        columns=["source_partition", "start_ms"],
    )
    frame["window_start"] = pd.to_datetime(frame["start_ms"], unit="ms", utc=True).dt.as_unit("ms")
    frame["window_end"] = frame["window_start"] + pd.Timedelta(hours=1)
    counts = {"events": 667, "on_time": 653, "late": 12, "dropped": 2}
    zeros = dict.fromkeys(("expired", "unaccounted", "surplus", "expected_events"), 0)
    flags = dict.fromkeys(
        ("is_expected", "in_range", "is_aligned", "is_placed", "is_present", "is_counted_on"), True
    )
    shares = {"late_ratio": 0.021, "dropped_ratio": 0.003, "completeness": 1.0}
    bands = {"has_band": False, "is_limited": True, "band_low": 0.0, "band_high": 0.0}
    frame = frame.assign(**counts, **zeros, **flags, **shares, **bands)
    return frame.assign(copies=1, windows=1, last_start=frame["window_start"], is_count_known=False)[
        WINDOW_COLUMNS
    ]


def _checks(row: RunRow) -> Iterator[dict[str, object]]:
    """Yield one row of the table of checks per check of a run."""
    failed = 0 if row.verdict is Verdict.PASS else 1
    outcome = row.verdict.value if row.verdict else ""
    for number, name in enumerate(CHECK_NAMES):
        yield {
            "run_id": row.run_id,
            "dataset": row.dataset,
            "suite": "window_audit",
            "verdict": outcome,
            "name": name,
            "expectation": "expect_column_values_to_be_between",
            "severity": "warning",
            "outcome": "warn" if failed and not number else "pass",
            "observed": "1 of 72 does not" if failed and not number else "",
            "column": None,
            "limit": "every window",
            "unexpected_count": 0 if number else failed,
            "element_count": 72,
        }
