"""Definitions of orders, and what their runs published."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

from tests.prepared.events import NO_TIME

import backstream
from backstream.lake.reader import load_published_rows
from backstream.runs.home import Home

_ORDERS = """
name = "orders"
[source]
{source}
[window]
kind = "tumbling"
size = "1h"
[watermark]
strategy = "bounded_out_of_orderness"
delay = "30m"
[aggregates]
orders = "count(*)"
revenue = "sum({amount})"
[quality]
late_ratio = {{ warn = 1.0, fail = 1.0 }}
dropped_ratio = {{ warn = 1.0, fail = 1.0 }}
missing_ratio = {{ warn = 1.0, fail = 1.0 }}
quarantined_ratio = {{ warn = 1.0, fail = 1.0 }}
rows_ratio = 0.0
"""
PLAIN = 'event_time = "at"\narrival_time = "received"\npartition = "partition"\nsequence = "offset"\n'
"""The columns of a source in which all are plain."""
RANGE = ("2024-03-01", "2024-03-03")


def write_orders(folder: Path, source: str, amount: str = "amount") -> Path:
    path = folder / "orders.toml"
    path.write_text(_ORDERS.format(source=source, amount=amount))
    return path


def run_orders(definition: Path, home: Home, mode: str = "recompute") -> backstream.RunResult:
    return backstream.run(definition, *RANGE, mode=mode, home=home.path, allow_unsealed=True)


def rows_of_second_day(definition: Path, home: Home) -> list[int]:
    """Return the numbers of rows of the files that a run of March 2 reads."""
    plan = backstream.plan(definition, "2024-03-02", "2024-03-03", home=home.path, allow_unsealed=True)
    return [
        plan.inputs[number].rows for number in sorted({number for chunk in plan.chunks for number in chunk.files})
    ]


def require_one_bad_record(home: Home) -> None:
    """Check that the quarantine has the record without a time, and no other."""
    (bad,) = load_published_rows(home, "orders", "quarantine").to_pylist()
    assert (bad["reason"], json.loads(bad["record"])["offset"]) == ("null_event_time", NO_TIME.offset)


def published_orders(home: Home, key: str = "user") -> dict[tuple[str, datetime], tuple[int, int]]:
    rows = backstream.read("orders", home=home.path).to_pylist()
    assert len({(row[key], row["window_start"]) for row in rows}) == len(rows)
    return {(row[key], row["window_start"]): (row["orders"], row["revenue"]) for row in rows}
