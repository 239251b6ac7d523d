"""Tables with years of published history, made directly: files, snapshots and folders as runs leave them.

Nothing is computed: rows are counted up, not aggregated. Each live data file has rows of its own day and run; the
files of runs that were restated since have one row each, and the audit frame and the report of a run are the same
physical file in each run's folder (hard links), because nobody reads those of other runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from shutil import copy2, rmtree

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update.snapshot import ManageSnapshots

from backstream.eventtime.instants import DAY_MS, MINUTE_MS, instant_ms, instant_text, utc_datetime
from backstream.eventtime.intervals import Interval
from backstream.lake import snapshots
from backstream.lake.catalog import load_table, open_catalog_for_writing
from backstream.lake.commit import OneTransaction, _OneSnapshot, commit_snapshot, to_data_files
from backstream.lake.ledger import CHECKS_TABLE, RUNS_TABLE, Status, run_row
from backstream.lake.snapshots import tag_name
from backstream.lake.tables import create_or_evolve_table
from backstream.runs.dataset_state import DayTotals, write_day_totals
from backstream.runs.home import Home
from backstream.runs.manifest import Manifest, StagedFile
from backstream.runs.plan import Chunk, Plan
from backstream.runs.results import Audit, Check, CheckOutcome, Publication, Severity, Verdict
from backstream.runs.table_schemas import METRICS, METRICS_TABLE, QUARANTINE_TABLE, WINDOWS, Column, windows_table
from backstream.workflow import plan_run
from backstream.workflow.dataset_state import refresh_dataset_state
from backstream.workflow.removed_files import write_files_read

NAME = "growth"
_TRIGGER = "growth"
FIRST_DAY_MS = instant_ms("2015-01-01", "first day")
EVENTS_OF_A_DAY = 736
_EVENTS_BEFORE = 48
_WINDOWS = DAY_MS // MINUTE_MS
_CHECKS = 12
_LEDGER_FILES = 40
_REPORT_BYTES = 200_000
_US_PER_MS = 1_000
_INSTANT = pa.timestamp("us", "UTC")
_KEYS = (Column("key", "string"),)
_VALUES = (Column("events", "long"), Column("total", "long"))
_TYPES = {"string": pa.string(), "long": pa.int64(), "timestamptz": _INSTANT}
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


@dataclass(frozen=True, slots=True)
class Shape:
    """What is published: so many rows in so many days, by so many runs; all 0: the table is empty."""

    rows: int = 0
    days: int = 0
    runs: int = 0

    def __str__(self) -> str:
        if not self.days:
            return "empty table"
        return f"{_short(self.rows)} rows, {self.days:,} days, {self.runs:,} runs"

    @property
    def interval(self) -> Interval:
        """The published days."""
        return Interval(FIRST_DAY_MS, FIRST_DAY_MS + self.days * DAY_MS)

    @property
    def new_day(self) -> Interval:
        """The day after those that are published, which has events."""
        return Interval(self.interval.end_ms, self.interval.end_ms + DAY_MS)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a shape lies: its home, its source, its definition."""

    folder: Path

    @property
    def home(self) -> Home:
        """All state."""
        return Home(self.folder / "home")

    @property
    def source(self) -> Path:
        """A file of events per day."""
        return self.folder / "source"

    @property
    def definitions(self) -> Path:
        """The folder of the definition."""
        return self.folder / "definitions"

    @property
    def definition(self) -> Path:
        """The one definition."""
        return self.definitions / f"{NAME}.toml"


def made(folder: Path, shape: Shape) -> Place:
    """The place of a shape, made unless it is there; whoever measures in it does so within `kept`."""
    place = Place(folder / f"{shape.rows}-{shape.days}-{shape.runs}")
    done = place.folder / "made"
    if not done.exists():
        rmtree(place.folder, ignore_errors=True)
        _make(place, shape)
        done.touch()
    return place


@contextmanager
def kept(place: Place) -> Iterator[None]:
    """Whatever runs meanwhile is forgotten: the catalog leads to the tables as they were; new runs are gone."""
    catalog = place.home.path / "catalog.db"
    copy = catalog.with_suffix(".kept")
    if not copy.exists():  # else the last one who measured here was killed
        copy2(catalog, copy)
    try:
        _forget(place)
        yield
    finally:
        _forget(place)
        copy.unlink()


def _forget(place: Place) -> None:
    catalog, runs = place.home.path / "catalog.db", place.home.path / "runs" / NAME
    copy2(catalog.with_suffix(".kept"), catalog)
    for run in runs.iterdir() if runs.is_dir() else ():
        if not run.name.startswith(f"{_TRIGGER}."):
            rmtree(run)


def _make(place: Place, shape: Shape) -> None:
    place.definitions.mkdir(parents=True)
    place.source.mkdir()
    days_of_a_run = max(1, shape.days // shape.runs) if shape.runs else 1
    text = _DEFINITION.format(name=NAME, source=place.source, chunk=min(30, days_of_a_run))
    place.definition.write_text(text, encoding="utf-8")
    for number in range(shape.days):
        _write_events(place, number, _EVENTS_BEFORE)
    _write_events(place, shape.days, EVENTS_OF_A_DAY)
    _write_events(place, shape.days + 1, _EVENTS_BEFORE)  # which seals the day before it
    base = _planned(place)
    if shape.days:
        _History(place, shape, base).make()
    refresh_dataset_state(place.definition, place.home)


def _planned(place: Place) -> Plan:
    """One real plan, with the tables that it names; those of the history are its like."""
    with open_catalog_for_writing(place.home) as catalog:
        for table in (windows_table(_KEYS, _VALUES), METRICS_TABLE, QUARANTINE_TABLE):
            create_or_evolve_table(catalog, table.name(NAME), table)
    span_ms = (FIRST_DAY_MS, FIRST_DAY_MS + DAY_MS)
    plan = plan_run(place.definition, *span_ms, trigger="base", home=place.home)
    rmtree(plan.folder.path)
    return plan


def _write_events(place: Place, number: int, events: int) -> None:
    """A file as a stream would have left it: a day's events, each of which arrived a little later."""
    at_us = (FIRST_DAY_MS + number * DAY_MS) * _US_PER_MS + np.arange(events) * (DAY_MS * _US_PER_MS // events)
    table = pa.table(
        {
            "happened_at": pa.array(at_us, _INSTANT),
            "arrived_at": pa.array(at_us + 30_000_000, _INSTANT),
            "origin": ["A"] * events,
            "seq": np.arange(events) + number * EVENTS_OF_A_DAY,
            "key": [f"key {each % 20}" for each in range(events)],
            "value": np.arange(events),
        }
    )
    file = place.source / f"{instant_text(FIRST_DAY_MS + number * DAY_MS)[:10]}.parquet"
    pq.write_table(table, file)
    modified_s = (FIRST_DAY_MS + (number + 1) * DAY_MS) // 1_000
    os.utime(file, (modified_s, modified_s))


def _replaced(
    transaction: OneTransaction,
    added: Sequence[DataFile],
    removed: Sequence[DataFile],
    said: dict[str, str],
    tag: str,
) -> Snapshot:
    """The next snapshot, as a publication makes it; all of them are committed together, which is quick."""
    producer = _OneSnapshot(Operation.OVERWRITE, transaction, transaction._table.io, snapshot_properties=said)  # noqa: SLF001
    for file in removed:
        producer.delete_data_file(file)
    for file in added:
        producer.append_data_file(file)
    producer.commit()
    ManageSnapshots(transaction).create_tag(producer.snapshot_id, tag).commit()
    snapshot = transaction.table_metadata.snapshot_by_id(producer.snapshot_id)
    assert snapshot is not None  # noqa: S101 - it was just made
    return snapshot


class _History:
    """The runs of a shape, one after the other: with fewer days than runs, days are restated in turn."""

    def __init__(self, place: Place, shape: Shape, base: Plan) -> None:
        self.place, self.shape, self.home, self.base = place, shape, place.home, base
        self._days_of_a_run = max(1, shape.days // shape.runs)
        self._last_run = {day: number for number in range(shape.runs) for day in self._days(number)}
        self._live: dict[int, DataFile] = {}
        self._metrics: list[DataFile] = []
        self._rows_of_a_day = shape.rows // shape.days
        self._columns = _columns(self._rows_of_a_day)
        self._same = place.folder / "same"

    def make(self) -> None:
        """All of it."""
        self._same.mkdir()
        (self._same / "report.html").write_text("x" * _REPORT_BYTES, encoding="utf-8")
        _write_audit(self._same / "audit.parquet")
        plans = []
        with open_catalog_for_writing(self.home) as catalog:
            windows, metrics = (
                load_table(catalog, self.base.tables[suffix].name) for suffix in (WINDOWS, METRICS)
            )
            with OneTransaction(windows) as transaction:
                for number in range(self.shape.runs):
                    plan = self._plan(number, transaction.table_metadata.current_snapshot_id)
                    files = {
                        WINDOWS: self._staged(plan, number),
                        METRICS: [self._metrics_file(plan, metrics)],
                    }
                    published = self._publish(transaction, windows, plan, files[WINDOWS])
                    self._leave(plan, files, published)
                    plans.append((plan, published))
            commit_snapshot(metrics, Operation.APPEND, self._metrics, [], {})
            self._record(catalog, plans)

    def _days(self, number: int) -> range:
        first = number * self._days_of_a_run % self.shape.days
        is_last = number == self.shape.runs - 1 and self.shape.runs <= self.shape.days
        return range(first, self.shape.days if is_last else first + self._days_of_a_run)

    def _plan(self, number: int, snapshot_id: int | None) -> Plan:
        """As it would have been made when the run's last day was over: later files had not come."""
        days = self._days(number)
        known = range(max(days.stop, self.shape.days if number * self._days_of_a_run >= self.shape.days else 0))
        inputs = tuple(self.base.inputs[day] for day in known)
        spans = [(day, min(day + 30, days.stop)) for day in range(days.start, days.stop, 30)]
        chunks = tuple(
            Chunk(
                f"{at:04}",
                *_span_ms(first, stop),
                _span_ms(first, stop)[1],
                tuple(range(first, stop)),
                _EVENTS_BEFORE,
            )
            for at, (first, stop) in enumerate(spans)
        )
        start_ms, end_ms = _span_ms(days.start, days.stop)
        return replace(
            self.base,
            since_ms=start_ms,
            until_ms=end_ms,
            inputs=inputs,
            chunks=chunks,
            base_snapshots=dict(self.base.base_snapshots) | {WINDOWS: snapshot_id},
            triggered_by=f"{_TRIGGER}.{number:05}",
        )

    def _staged(self, plan: Plan, number: int) -> list[StagedFile]:
        return [self._windows_file(plan, day, is_live=self._last_run[day] == number) for day in self._days(number)]

    def _windows_file(self, plan: Plan, day: int, *, is_live: bool) -> StagedFile:
        rows = self._rows_of_a_day if is_live else 1
        start_us = (FIRST_DAY_MS + day * DAY_MS) * _US_PER_MS
        minutes, key, value = (column[:rows] for column in self._columns)
        begins = minutes + start_us
        content = {
            "window_start": pa.array(begins, _INSTANT),
            "window_end": pa.array(begins + MINUTE_MS * _US_PER_MS, _INSTANT),
            "key": key,
            "events": value,
            "total": value,
            "record_count": value,
            "run_id": _repeated(plan.run_id, rows),
        }
        return _written(plan, WINDOWS, f"{day:05}", content, rows)

    def _metrics_file(self, plan: Plan, table: Table) -> StagedFile:
        bounds = {
            "window_start": [utc_datetime(plan.since_ms)],
            "window_end": [utc_datetime(plan.since_ms + MINUTE_MS)],
        }
        counts = {name: [0] for name in ("events", "on_time", "late", "dropped", "expired")}
        arrivals = {name: [None] for name in ("first_arrival", "last_arrival", "fired_at")}
        content = bounds | {"source_partition": ["A"]} | counts | arrivals | {"run_id": [plan.run_id]}
        found = _written(plan, METRICS, "metrics", content, 1)
        self._metrics += to_data_files(table, [found])
        return found

    def _publish(
        self, transaction: OneTransaction, table: Table, plan: Plan, files: Sequence[StagedFile]
    ) -> Publication:
        days = range((plan.since_ms - FIRST_DAY_MS) // DAY_MS, (plan.until_ms - FIRST_DAY_MS) // DAY_MS)
        removed = [self._live.pop(day) for day in days if day in self._live]
        added = to_data_files(table, files)
        self._live |= dict(zip(days, added, strict=True))
        rows, replaced = (sum(file.record_count for file in each) for each in (added, removed))
        said = snapshots.summary_properties(plan, rows, replaced, len(added))
        snapshot = _replaced(transaction, added, removed, said, tag_name(plan.run_id))
        return Publication(
            plan.run_id,
            NAME,
            plan.since_ms,
            plan.until_ms,
            {WINDOWS: snapshot.snapshot_id},
            rows,
            replaced,
            len(added),
            instant_text(snapshot.timestamp_ms),
        )

    def _leave(self, plan: Plan, files: dict[str, list[StagedFile]], published: Publication) -> None:
        """What a run leaves in its folder."""
        folder = plan.folder
        plan.write()
        write_files_read(plan)
        for chunk in plan.chunks:
            fates = {"A": {"on_time": _EVENTS_BEFORE}}
            staged = {suffix: tuple(found) for suffix, found in files.items()} | {"quarantine": ()}
            manifest = Manifest(plan.run_id, chunk.chunk_id, "0", _EVENTS_BEFORE, fates, staged)
            manifest.write(folder.manifest(chunk.chunk_id))
        for place in (folder.report, folder.audit_frame):
            place.hardlink_to(self._same / place.name)
        days = range(plan.since_ms, plan.until_ms, DAY_MS)
        write_day_totals(folder.day_totals, [DayTotals(day, _WINDOWS, 40, 48, 48, 0, 0, 0) for day in days])
        _audit(plan.run_id).write(folder.audit_result)
        published.write(folder.publication)

    def _record(self, catalog: Catalog, plans: Sequence[tuple[Plan, Publication]]) -> None:
        """The ledger, in as many files as it has once many small ones were merged."""
        size = -(-len(plans) // _LEDGER_FILES)
        for at in range(0, len(plans), size):
            part = list(enumerate(plans))[at : at + size]
            runs = [_ledger_row(plan, published, number) for number, (plan, published) in part]
            checks = [row for _, (plan, _) in part for row in _check_rows(plan.run_id)]
            for name, wanted, rows in (("runs", RUNS_TABLE, runs), ("checks", CHECKS_TABLE, checks)):
                table = create_or_evolve_table(catalog, name, wanted)
                table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))


def _span_ms(first: int, stop: int) -> tuple[int, int]:
    return FIRST_DAY_MS + first * DAY_MS, FIRST_DAY_MS + stop * DAY_MS


def _columns(rows: int) -> tuple[np.ndarray, pa.Array, np.ndarray]:
    """Of each day: when windows start within it, in microseconds, the keys, and a number; sorted by key."""
    keys = -(-rows // _WINDOWS)
    minutes = np.tile(np.arange(_WINDOWS) * MINUTE_MS * _US_PER_MS, keys)[:rows]
    texts = pa.array([f"key {number:06}" for number in range(keys)])
    key = pa.DictionaryArray.from_arrays(np.repeat(np.arange(keys, dtype=np.int32), _WINDOWS)[:rows], texts)
    return minutes, key.cast(pa.string()), np.arange(rows) % 97


def _repeated(text: str, rows: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), pa.array([text])).cast(pa.string())


def _written(plan: Plan, suffix: str, name: str, content: Mapping[str, object], rows: int) -> StagedFile:
    """A staged file as a job writes it: with field ids, in the folder of its run."""
    planned = plan.tables[suffix]
    fields = [
        pa.field(column, _TYPES[kind], metadata={b"PARQUET:field_id": str(field_id).encode()})
        for column, kind, field_id, _ in planned.columns
    ]
    path = Path(planned.location) / "data" / plan.run_id / name / "part-0.parquet"
    path.parent.mkdir(parents=True)
    found = pa.table({field.name: content[field.name] for field in fields}, schema=pa.schema(fields))
    pq.write_table(found, path, compression="zstd")
    return StagedFile(str(path), path.stat().st_size, rows)


def _write_audit(path: Path) -> None:
    """A frame of as many windows as a run of some days has."""
    pq.write_table(pa.table({"window_start": pa.array(np.arange(_WINDOWS), _INSTANT)}), path)


def _checks(run_id: str) -> tuple[Check, ...]:
    return tuple(
        Check(
            f"check {number} of the frame",
            "expect_column_values_to_be_between",
            Severity.WARNING,
            CheckOutcome.PASS,
            f"0 of {_WINDOWS} in {run_id}",
            "events",
            "at most 5 %",
            0,
            _WINDOWS,
        )
        for number in range(_CHECKS)
    )


def _audit(run_id: str) -> Audit:
    return Audit(run_id, "default", Verdict.PASS, "all checks pass", _checks(run_id))


def _check_rows(run_id: str) -> list[dict[str, object]]:
    common = {"run_id": run_id, "dataset": NAME, "suite": "default", "verdict": Verdict.PASS.value}
    wanted = {column.name for column in CHECKS_TABLE.columns}
    return [
        {name: value for name, value in (asdict(each) | common).items() if name in wanted}
        for each in _checks(run_id)
    ]


def _ledger_row(plan: Plan, published: Publication, number: int) -> dict[str, object]:
    """The run's row, a minute after the one before it; all of them before now."""
    ended_ms = FIRST_DAY_MS + number * MINUTE_MS
    row = run_row(plan, Status.PUBLISHED, (ended_ms - 40_000, ended_ms), Verdict.PASS, published.rows, 48)
    stored = asdict(row) | {"seconds": row.seconds}
    return {
        column.name: utc_datetime(stored[f"{column.name}_ms"])
        if column.type == "timestamptz"
        else stored[column.name]
        for column in RUNS_TABLE.columns
    } | {name: utc_datetime(getattr(row, f"{name}_ms")) for name in ("started_at", "finished_at")}


def _short(count: int) -> str:
    return f"{count // 1_000_000} M" if count % 1_000_000 == 0 else f"{count:,}"
