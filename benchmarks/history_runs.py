"""Write the files, snapshots, folders, and ledger rows of the runs of a history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update.snapshot import ManageSnapshots

from backstream.eventtime.instants import DAY_MS, MINUTE_MS, instant_text, utc_datetime
from backstream.lake import snapshots
from backstream.lake.catalog import load_table, open_catalog_for_writing
from backstream.lake.commit import commit_snapshot
from backstream.lake.ledger import CHECKS_TABLE, RUNS_TABLE, run_row
from backstream.lake.publication.data_files import to_data_files
from backstream.lake.snapshot_producers import OneTransaction, stage_snapshot
from backstream.lake.snapshots import tag_name
from backstream.lake.tables import create_or_evolve_table
from backstream.runs.dataset_state import DayTotals, write_day_totals
from backstream.runs.manifest import Manifest, StagedFile
from backstream.runs.plan import Chunk, Plan
from backstream.runs.results import Audit, Check, CheckOutcome, Publication, Severity, Verdict
from backstream.runs.status import RunStatus
from backstream.runs.table_schemas import METRICS, WINDOWS
from backstream.workflow.plan.removed_files import write_files_read
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

_WINDOWS = DAY_MS // MINUTE_MS
_CHECKS = 12
_LEDGER_FILES = 40
_REPORT_BYTES = 200_000
_TYPES = {"string": pa.string(), "long": pa.int64(), "timestamptz": INSTANT}


def _add_snapshot(
    transaction: OneTransaction,
    new_files: Sequence[DataFile],
    old_files: Sequence[DataFile],
    properties: dict[str, str],
    tag: str,
) -> Snapshot:
    """Add the next snapshot, as a publication does. One commit for all snapshots is fast."""
    table = transaction._table  # noqa: SLF001 - a history of thousands of snapshots in one commit
    producer = stage_snapshot(transaction, table, Operation.OVERWRITE, new_files, old_files, properties)
    ManageSnapshots(transaction).create_tag(producer.snapshot_id, tag).commit()
    snapshot = transaction.table_metadata.snapshot_by_id(producer.snapshot_id)
    assert snapshot is not None  # noqa: S101 - the producer just committed it
    return snapshot


class History:
    """The consecutive runs of a shape. If there are fewer days than runs, the runs restate the days in turn."""

    def __init__(self, place: Place, shape: Shape, base: Plan) -> None:
        self.place, self.shape, self.home, self.base = place, shape, place.home, base
        self._days_of_a_run = max(1, shape.days // shape.runs)
        self._last_run = {day: number for number in range(shape.runs) for day in self._days(number)}
        self._live: dict[int, DataFile] = {}
        self._metrics: list[DataFile] = []
        self._rows_of_a_day = shape.rows // shape.days
        self._columns = _columns(self._rows_of_a_day)
        self._common_folder = place.folder / "same"

    def make(self) -> None:
        """Write the files, snapshots, folders and ledger rows of all runs."""
        self._common_folder.mkdir()
        (self._common_folder / "report.html").write_text("x" * _REPORT_BYTES, encoding="utf-8")
        _write_audit(self._common_folder / "audit.parquet")
        plans = []
        with open_catalog_for_writing(self.home) as catalog:
            windows, metrics = (
                load_table(catalog, self.base.tables[suffix].name) for suffix in (WINDOWS, METRICS)
            )
            with OneTransaction(windows) as transaction:
                for number in range(self.shape.runs):
                    plan = self._plan(number, transaction.table_metadata.current_snapshot_id)
                    files = {
                        WINDOWS: self._write_windows(plan, number),
                        METRICS: [self._metrics_file(plan, metrics)],
                    }
                    publication = self._publish(transaction, windows, plan, files[WINDOWS])
                    self._write_folder(plan, files, publication)
                    plans.append((plan, publication))
            commit_snapshot(metrics, Operation.APPEND, self._metrics, [], {})
            self._record(catalog, plans)

    def _days(self, number: int) -> range:
        first = number * self._days_of_a_run % self.shape.days
        is_last = number == self.shape.runs - 1 and self.shape.runs <= self.shape.days
        return range(first, self.shape.days if is_last else first + self._days_of_a_run)

    def _plan(self, number: int, snapshot_id: int | None) -> Plan:
        """Return the plan as of the end of the run's last day. It excludes the files of later days."""
        days = self._days(number)
        input_days = range(
            max(days.stop, self.shape.days if number * self._days_of_a_run >= self.shape.days else 0)
        )
        inputs = tuple(self.base.inputs[day] for day in input_days)
        spans = [(day, min(day + 30, days.stop)) for day in range(days.start, days.stop, 30)]
        chunks = tuple(
            Chunk(
                f"{at:04}",
                *_span_ms(first, stop),
                _span_ms(first, stop)[1],
                tuple(range(first, stop)),
                EVENTS_BEFORE,
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
            triggered_by=f"{TRIGGER}.{number:05}",
        )

    def _write_windows(self, plan: Plan, number: int) -> list[StagedFile]:
        return [self._windows_file(plan, day, is_live=self._last_run[day] == number) for day in self._days(number)]

    def _windows_file(self, plan: Plan, day: int, *, is_live: bool) -> StagedFile:
        rows = self._rows_of_a_day if is_live else 1
        start_us = (FIRST_DAY_MS + day * DAY_MS) * US_PER_MS
        minutes, key, count, total = (column[:rows] for column in self._columns)
        begins = minutes + start_us
        content = {
            "window_start": pa.array(begins, INSTANT),
            "window_end": pa.array(begins + MINUTE_MS * US_PER_MS, INSTANT),
            "key": key,
            "events": count,
            "total": total,
            "record_count": count,
            "run_id": _repeat(plan.run_id, rows),
        }
        return _write_file(plan, WINDOWS, f"{day:05}", content, rows)

    def _metrics_file(self, plan: Plan, table: Table) -> StagedFile:
        bounds = {
            "window_start": [utc_datetime(plan.since_ms)],
            "window_end": [utc_datetime(plan.since_ms + MINUTE_MS)],
        }
        counts = {name: [0] for name in ("events", "on_time", "late", "dropped", "expired")}
        arrivals = {name: [None] for name in ("first_arrival", "last_arrival", "fired_at")}
        content = bounds | {"source_partition": ["A"]} | counts | arrivals | {"run_id": [plan.run_id]}
        file = _write_file(plan, METRICS, "metrics", content, 1)
        self._metrics += to_data_files(table, [file])
        return file

    def _publish(
        self, transaction: OneTransaction, table: Table, plan: Plan, files: Sequence[StagedFile]
    ) -> Publication:
        days = range((plan.since_ms - FIRST_DAY_MS) // DAY_MS, (plan.until_ms - FIRST_DAY_MS) // DAY_MS)
        old_files = [self._live.pop(day) for day in days if day in self._live]
        new_files = to_data_files(table, files)
        self._live |= dict(zip(days, new_files, strict=True))
        rows, old_rows = (sum(file.record_count for file in group) for group in (new_files, old_files))
        properties = snapshots.summary_properties(plan, rows, old_rows, len(new_files))
        snapshot = _add_snapshot(transaction, new_files, old_files, properties, tag_name(plan.run_id))
        return Publication(
            plan.run_id,
            NAME,
            plan.since_ms,
            plan.until_ms,
            {WINDOWS: snapshot.snapshot_id},
            rows,
            old_rows,
            len(new_files),
            instant_text(snapshot.timestamp_ms),
        )

    def _write_folder(self, plan: Plan, files: dict[str, list[StagedFile]], publication: Publication) -> None:
        """Write the files of a run into its folder."""
        folder = plan.folder
        plan.write()
        write_files_read(plan)
        for chunk in plan.chunks:
            fates = {"A": {"on_time": EVENTS_BEFORE}}
            chunk_files = {suffix: tuple(group) for suffix, group in files.items()} | {"quarantine": ()}
            manifest = Manifest(plan.run_id, chunk.chunk_id, "0", EVENTS_BEFORE, fates, chunk_files)
            manifest.write(folder.manifest(chunk.chunk_id))
        for place in (folder.report, folder.audit_frame):
            place.hardlink_to(self._common_folder / place.name)
        days = range(plan.since_ms, plan.until_ms, DAY_MS)
        write_day_totals(folder.day_totals, [DayTotals(day, _WINDOWS, 40, 48, 48, 0, 0, 0) for day in days])
        _audit(plan.run_id).write(folder.audit_result)
        publication.write(folder.publication)

    def _record(self, catalog: Catalog, plans: Sequence[tuple[Plan, Publication]]) -> None:
        """Write the ledger. It has as many files as a real ledger after compaction of its small files."""
        size = -(-len(plans) // _LEDGER_FILES)
        for at in range(0, len(plans), size):
            part = list(enumerate(plans))[at : at + size]
            runs = [_ledger_row(plan, published, number) for number, (plan, published) in part]
            checks = [row for _, (plan, _) in part for row in _check_rows(plan.run_id)]
            for name, definition, rows in (("runs", RUNS_TABLE, runs), ("checks", CHECKS_TABLE, checks)):
                table = create_or_evolve_table(catalog, name, definition)
                table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))


def _span_ms(first: int, stop: int) -> tuple[int, int]:
    return FIRST_DAY_MS + first * DAY_MS, FIRST_DAY_MS + stop * DAY_MS


def _columns(rows: int) -> tuple[np.ndarray, pa.Array, np.ndarray, np.ndarray]:
    """Return the columns of one day, sorted by key: window start in microseconds, key, number of events, total."""
    keys = -(-rows // _WINDOWS)
    count = 2 + np.arange(rows) % 97
    total = count.copy()
    for event in range(EVENTS_BEFORE):
        place = event % KEYS * _WINDOWS + event * _WINDOWS // EVENTS_BEFORE
        if place < rows:
            count[place], total[place] = 1, event
    minutes = np.tile(np.arange(_WINDOWS) * MINUTE_MS * US_PER_MS, keys)[:rows]
    texts = pa.array([key_of(number) for number in range(keys)])
    key = pa.DictionaryArray.from_arrays(np.repeat(np.arange(keys, dtype=np.int32), _WINDOWS)[:rows], texts)
    return minutes, key.cast(pa.string()), count, total


def _repeat(text: str, rows: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), pa.array([text])).cast(pa.string())


def _write_file(plan: Plan, suffix: str, name: str, content: Mapping[str, object], rows: int) -> StagedFile:
    """Write a staged file with field ids into the folder of its run, as a job does."""
    target = plan.tables[suffix]
    fields = [
        pa.field(column, _TYPES[kind], metadata={b"PARQUET:field_id": str(field_id).encode()})
        for column, kind, field_id, _ in target.columns
    ]
    path = Path(target.location) / "data" / plan.run_id / name / "part-0.parquet"
    path.parent.mkdir(parents=True)
    table = pa.table({field.name: content[field.name] for field in fields}, schema=pa.schema(fields))
    pq.write_table(table, path, compression="zstd")
    return StagedFile(str(path), path.stat().st_size, rows)


def _write_audit(path: Path) -> None:
    """Write an audit frame with the windows of a run of some days, and the columns that later runs read."""
    columns = {
        **{name: pa.array(np.arange(_WINDOWS), INSTANT) for name in ("window_start", "window_end", "last_start")},
        "windows": np.ones(_WINDOWS, np.int64),
        "is_expected": np.ones(_WINDOWS, bool),
        **{name: np.ones(_WINDOWS, np.int64) for name in ("events", "late", "dropped")},
        "completeness": np.ones(_WINDOWS),
    }
    pq.write_table(pa.table(columns), path)


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
    columns = {column.name for column in CHECKS_TABLE.columns}
    return [
        {name: value for name, value in (asdict(check) | common).items() if name in columns}
        for check in _checks(run_id)
    ]


def _ledger_row(plan: Plan, publication: Publication, number: int) -> dict[str, object]:
    """Return the ledger row of a run, one minute after the row before it. All rows are in the past."""
    ended_ms = FIRST_DAY_MS + number * MINUTE_MS
    row = run_row(plan, RunStatus.PUBLISHED, (ended_ms - 40_000, ended_ms), Verdict.PASS, publication.rows, 48)
    values = asdict(row) | {"seconds": row.seconds}
    return {
        column.name: utc_datetime(values[f"{column.name}_ms"])
        if column.type == "timestamptz"
        else values[column.name]
        for column in RUNS_TABLE.columns
    } | {name: utc_datetime(getattr(row, f"{name}_ms")) for name in ("started_at", "finished_at")}
