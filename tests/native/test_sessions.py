"""Tasks of sessions equal the reference for random cuts of events, time, and keys, without Spark."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.spark.session_streams import Event, Expected, Place, Stream, Value, random_stream

from backstream.eventtime.duplicates import Identity
from backstream.eventtime.instants import HOUR_MS, MIN_MS
from backstream.eventtime.intervals import Interval
from backstream.eventtime.records import Fate, SourceClock
from backstream.eventtime.windows import Session, Tumbling
from backstream.native.database import open_database
from backstream.native.sessions.queries import SessionQueries
from backstream.native.sessions.task import BlockWatermarks, SessionTask, UnitTask
from backstream.native.task import Aggregate, ChunkGrid, ReadSpec, TaskOutput, TaskResult
from backstream.native.task_runner import run_native_task
from backstream.runs.table_schemas import DROPPED, PANES, WINDOWS

FAR_MS = 2_000_000_000_000
TYPES = {"happened": "timestamp", "arrived": "timestamp", "origin": "string", "seq": "bigint"}
READING = ReadSpec(
    "happened",
    "arrived",
    "origin",
    "seq",
    {**TYPES, "key": "string", "value": "bigint"},
    Interval(-FAR_MS, FAR_MS),
)
AGGREGATES = [Aggregate("events", "count", None), Aggregate("total", "sum", "value")]
VALUES = ("events", "total")
KEPT = ("first", "live", "final")
WINDOW = {"window_start": "timestamptz", "window_end": "timestamptz", "key": "string"}
TYPES_OF = {
    WINDOWS: {**WINDOW, **dict.fromkeys((*VALUES, "record_count"), "long")},
    PANES: {
        **WINDOW,
        **{f"{name}__{pane}": "long" for pane in KEPT for name in (*VALUES, "record_count")},
        "late_firings": "long",
    },
    DROPPED: {"key": "string", "event_time": "timestamptz", "arrival_seq": "long"},
}
COLUMNS = {
    suffix: [(name, kind, field_id) for field_id, (name, kind) in enumerate(types.items(), start=1)]
    for suffix, types in TYPES_OF.items()
}


class Run:
    """A stream that runs through unit tasks and session tasks, cut at random."""

    def __init__(self, folder: Path, stream: Stream, rng: random.Random, *, is_replay: bool) -> None:
        self._folder, self._stream, self._is_replay = folder, stream, is_replay
        times_ms = [event.event_time_ms for event in stream.events]
        self.span = Interval(min(times_ms), max(times_ms) + 1)
        self._chunks = ChunkGrid(self.span.start_ms, 2 * FAR_MS, 1)
        self._cells = Tumbling(HOUR_MS)
        for name in ("units", "counts", "moved"):
            (folder / name).mkdir()
        files = self._write_events(rng)
        shares = rng.choice([1, 2, 5])
        inside = sorted(rng.choices(times_ms, k=rng.choice([0, 1, 3])))
        bounds = [self.span.start_ms, *(at for at in dict.fromkeys(inside) if at > self.span.start_ms)]
        stretches = [Interval(*item) for item in pairwise([*bounds, self.span.end_ms])]
        self.made = [
            run_native_task(self._unit_task(number, item, files, shares)) for number, item in enumerate(stretches)
        ]
        units: dict[int, list[str]] = {}
        for item in self.made:
            for share, path in item.units.items():
                units.setdefault(share, []).append(path)
        self.tasks = [self._session_task(share, units[share]) for share in units]
        self.sessions = [run_native_task(task) for task in self.tasks]

    def rows(self, suffix: str) -> list[dict[str, object]]:
        """Return the rows that were written for a table."""
        paths = [path for item in self.sessions if suffix in item.written for path in item.written[suffix].paths]
        return [row for path in paths for row in pq.read_table(path).to_pylist()]

    def fates(self) -> Counter[str]:
        """Return the number of records by fate."""
        found: Counter[str] = Counter()
        for item in (*self.made, *self.sessions):
            for row in pq.read_table(item.counts).to_pylist() if item.counts else []:
                found[row["fate"]] += row["events"]
        return +found

    def _write_events(self, rng: random.Random) -> list[str]:
        """Write the records into files in random order, and return the paths."""
        numbers, count = list(range(len(self._stream.events))), rng.choice([1, 3])
        rng.shuffle(numbers)
        files = [str(self._folder / f"{part}.parquet") for part in range(count)]
        for part, file in enumerate(files):
            self._write(numbers[part::count], file)
        return files

    def _write(self, numbers: list[int], path: str) -> None:
        events = [self._stream.events[number] for number in numbers]
        instant = pa.timestamp("us", "UTC")
        columns = {
            "happened": pa.array([event.event_time_ms * 1_000 for event in events], instant),
            "arrived": pa.array([number * 1_000 for number in numbers], instant),
            "origin": pa.array(["A"] * len(events), pa.string()),
            "seq": pa.array(numbers, pa.int64()),
            "key": pa.array([event.key for event in events], pa.string()),
            "value": pa.array([event.value for event in events], pa.int64()),
        }
        pq.write_table(pa.table(columns), path)

    def _watermarks(self) -> BlockWatermarks:
        """Return the watermarks of the stream, with a separate block for the arrival of each record."""
        count, path = len(self._stream.events), self._folder / "watermarks.parquet"
        watermarks = pa.array([event.watermark_ms for event in self._stream.events], pa.int64())
        pq.write_table(pa.table({"block": pa.array(range(count), pa.int64()), "watermark_ms": watermarks}), path)
        return BlockWatermarks(str(path), SourceClock(0, 1, count), (0, count))

    def _unit_task(self, number: int, stretch: Interval, files: list[str], shares: int) -> UnitTask:
        return UnitTask(
            number=number,
            reading=READING,
            window=Session(self._stream.gap_ms),
            keys=["key"],
            aggregates=AGGREGATES,
            identity=Identity(),
            watermarks=self._watermarks() if self._is_replay else None,
            stretch=stretch,
            files=files,
            cells=self._cells,
            chunks=self._chunks,
            shares=shares,
            units_path=str(self._folder / "units" / "of.parquet"),
            counts_path=str(self._folder / "counts" / f"{number}.parquet"),
            memory_mb=256,
        )

    def _session_task(self, number: int, units: list[str]) -> SessionTask:
        outputs = {
            suffix: TaskOutput(str(self._folder / f"rows{suffix}" / f"{number}.parquet"), columns, "run")
            for suffix, columns in COLUMNS.items()
        }
        return SessionTask(
            number=number,
            window=Session(self._stream.gap_ms),
            allowed_lateness_ms=self._stream.allowed_lateness_ms,
            keys=["key"],
            aggregates=AGGREGATES,
            units=units,
            cells=self._cells,
            chunks=self._chunks,
            owned=self.span,
            windows=outputs[WINDOWS],
            panes=outputs[PANES] if self._is_replay else None,
            dropped=outputs[DROPPED] if self._is_replay else None,
            published="final",
            counts_path=str(self._folder / "moved" / f"{number}.parquet"),
            memory_mb=256,
        )


def place(row: dict[str, object]) -> Place:
    start, end = (round(row[name].timestamp() * 1000) for name in ("window_start", "window_end"))  # type: ignore[attr-defined]
    return str(row["key"]), start, end


def value(row: dict[str, object], pane: str = "") -> Value:
    values = [row[f"{name}{pane}"] for name in ("events", "total")]
    return None if values[0] is None else (int(str(values[0])), int(str(values[1])))


@pytest.mark.parametrize("seed", range(40))
def test_a_replay_equals_the_reference(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 - cases, not secrets
    stream = random_stream(rng)
    expected, run = Expected(stream), Run(tmp_path, stream, rng, is_replay=True)

    panes = {
        place(row): (
            value(row, "__first"),
            value(row, "__live"),
            value(row, "__final"),
            int(str(row["late_firings"])),
        )
        for row in run.rows(PANES)
    }

    assert panes == expected.values()
    assert run.fates() == Counter(expected.fates())
    assert {place(row): value(row) for row in run.rows(WINDOWS)} == expected.final()
    gone = [number for number, fate in enumerate(expected.fates()) if fate == Fate.DROPPED]
    assert sorted(int(str(row["arrival_seq"])) for row in run.rows(DROPPED)) == gone
    assert totals(run.made) == totals(run.sessions) == len(stream.events)


@pytest.mark.parametrize("seed", range(100, 120))
def test_a_recompute_equals_the_complete_sessions_of_the_reference(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 - cases, not secrets
    stream = random_stream(rng)
    expected, run = Expected(stream), Run(tmp_path, stream, rng, is_replay=False)

    assert {place(row): value(row) for row in run.rows(WINDOWS)} == expected.final()
    assert run.fates() == Counter({"on_time": len(stream.events)})
    assert totals(run.made) == totals(run.sessions) == len(stream.events)


def test_a_straggler_at_the_same_time_as_a_unit_in_time_is_in_its_chain(tmp_path: Path) -> None:
    """The second event has extended the session before the watermark of the third one could fire it."""
    events = [Event(35, MIN_MS, "x", 1), Event(45, MIN_MS, "x", 2), Event(45, 80, "x", 4)]
    run = Run(tmp_path, Stream(events, 40, 0), random.Random(1), is_replay=True)  # noqa: S311 - cases, not secrets
    (task,) = run.tasks
    queries = SessionQueries(task)

    with open_database(256) as database:
        database.execute(f"CREATE TEMP TABLE placed AS {queries.units_in_islands()}")
        database.execute(f"CREATE TEMP TABLE islands AS {queries.islands('FROM placed')}")
        found = database.execute("SELECT events, is_clean FROM islands").fetchall()

    assert found == [(3, True)]
    assert [value(row) for row in run.rows(WINDOWS)] == [(3, 7)]


def totals(done: list[TaskResult]) -> int:
    return sum(item.in_units for item in done)
