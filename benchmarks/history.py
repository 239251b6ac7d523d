"""Tables with years of published history, and the files, snapshots and folders that their runs write.

This module writes them directly. It numbers rows, and aggregates nothing. Only the rows of the few input events
are true, so that `explain` can confirm them. Each live data file has rows of its own day and run. If a later run
restated a day, the older file has one row. Hard links put the same audit frame and the same report into each run
folder, because no program reads those of other runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import copy2, rmtree

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from backstream.eventtime.instants import DAY_MS, instant_text
from backstream.eventtime.intervals import Interval
from backstream.lake.catalog import open_catalog_for_writing
from backstream.lake.tables import create_or_evolve_table
from backstream.runs.plan import Plan
from backstream.runs.table_schemas import METRICS_TABLE, QUARANTINE_TABLE, Column, windows_table
from backstream.workflow.dataset_state import refresh_dataset_state
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.plan.planning import plan_run
from benchmarks.history_runs import History
from benchmarks.history_shape import (
    EVENTS_BEFORE,
    FIRST_DAY_MS,
    INSTANT,
    KEYS,
    NAME,
    TRIGGER,
    US_PER_MS,
    Place,
    Shape,
    key_of,
)

EVENTS_OF_A_DAY = 736
_KEYS = (Column("key", "string"),)
_VALUES = (Column("events", "long"), Column("total", "long"))
_DEFINITION = """\
name = "{name}"

[source]
path = "{source}"
event_time = "happened_at"
arrival_time = "arrived_at"
partition = "origin"
sequence = "seq"
key = ["key"]

[window]
kind = "tumbling"
size = "1m"

[watermark]
strategy = "bounded_out_of_orderness"
delay = "1m"

[lateness]
allowed = "5m"

[aggregates]
events = "count(*)"
total = "sum(value)"

[backfill]
mode = "recompute"
max_arrival_delay = "1h"
chunk = "{chunk}d"

[quality]
missing_ratio = {{ warn = 1.0, fail = 1.0 }}
"""


def made(folder: Path, shape: Shape) -> Place:
    """Return the place of a shape, and create it if it is absent. Measure in it only within `kept`."""
    place = Place(folder / f"{shape.rows}-{shape.days}-{shape.runs}")
    marker = place.folder / "made"
    if not marker.exists():
        rmtree(place.folder, ignore_errors=True)
        _make(place, shape)
        marker.touch()
    return place


@contextmanager
def kept(place: Place) -> Iterator[None]:
    """Restore the catalog and remove the folders of new runs, before and after the block."""
    catalog = place.home.path / "catalog.db"
    copy = catalog.with_suffix(".kept")
    if not copy.exists():  # if the copy exists, the last measurement was killed
        copy2(catalog, copy)
    try:
        _restore(place)
        yield
    finally:
        _restore(place)
        copy.unlink()


def _restore(place: Place) -> None:
    catalog, runs = place.home.path / "catalog.db", place.home.path / "runs" / NAME
    copy2(catalog.with_suffix(".kept"), catalog)
    for run in runs.iterdir() if runs.is_dir() else ():
        if not run.name.startswith(f"{TRIGGER}."):
            rmtree(run)


def _make(place: Place, shape: Shape) -> None:
    place.definitions.mkdir(parents=True)
    place.source.mkdir()
    days_of_a_run = max(1, shape.days // shape.runs) if shape.runs else 1
    text = _DEFINITION.format(name=NAME, source=place.source, chunk=min(30, days_of_a_run))
    place.definition.write_text(text, encoding="utf-8")
    for number in range(shape.days):
        _write_events(place, number, EVENTS_BEFORE)
    _write_events(place, shape.days, EVENTS_OF_A_DAY)
    _write_events(place, shape.days + 1, EVENTS_BEFORE)  # these events seal the day before
    base = _create_base_plan(place)
    if shape.days:
        History(place, shape, base).make()
    refresh_dataset_state(place.definition, place.home)


def _create_base_plan(place: Place) -> Plan:
    """Create the tables, and return one real plan. The plans of the history are copies of it."""
    with open_catalog_for_writing(place.home) as catalog:
        for table in (windows_table(_KEYS, _VALUES), METRICS_TABLE, QUARANTINE_TABLE):
            create_or_evolve_table(catalog, table.name(NAME), table)
    span_ms = (FIRST_DAY_MS, FIRST_DAY_MS + DAY_MS)
    plan = plan_run(PlanRequest(place.definition, Interval(*span_ms), trigger="base", home=place.home))
    rmtree(plan.folder.path)
    return plan


def _write_events(place: Place, number: int, events: int) -> None:
    """Write the events of one day as a file from a stream. Each event arrived a little later than it happened."""
    at_us = (FIRST_DAY_MS + number * DAY_MS) * US_PER_MS + np.arange(events) * (DAY_MS * US_PER_MS // events)
    table = pa.table(
        {
            "happened_at": pa.array(at_us, INSTANT),
            "arrived_at": pa.array(at_us + 30_000_000, INSTANT),
            "origin": ["A"] * events,
            "seq": np.arange(events) + number * EVENTS_OF_A_DAY,
            "key": [key_of(row % KEYS) for row in range(events)],
            "value": np.arange(events),
        }
    )
    file = place.source / f"{instant_text(FIRST_DAY_MS + number * DAY_MS)[:10]}.parquet"
    pq.write_table(table, file)
    modified_s = (FIRST_DAY_MS + (number + 1) * DAY_MS) // 1_000
    os.utime(file, (modified_s, modified_s))
