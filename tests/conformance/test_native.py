"""Compare the native engine with recordings of Apache Flink 2.3.0, without Spark.

The engine computes no single firing, but three values per window: of its first firing, of its last one, and of all
its events. Each record has a power of two as its value, so that a sum names the records that it contains.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backstream.conformance.cases import Case, load_cases, parse_case
from backstream.errors import BackstreamError
from backstream.eventtime.duplicates import Identity
from backstream.eventtime.instants import MIN_MS
from backstream.eventtime.intervals import Interval
from backstream.eventtime.records import Fate
from backstream.eventtime.watermark_sources import compute_watermarks
from backstream.eventtime.window_operator import fire_windows
from backstream.eventtime.windows import Session, Sliding, Tumbling
from backstream.native.sessions.task import BlockWatermarks, SessionTask, UnitTask
from backstream.native.sessions.window_replay import to_watermarks
from backstream.native.task import (
    Aggregate,
    ChunkGrid,
    ReadSpec,
    TaskGrid,
    TaskOutput,
    TaskResult,
    WindowTask,
)
from backstream.native.task_runner import run_native_task
from backstream.runs.table_schemas import DROPPED, PANES, WINDOWS
from backstream.spark.watermarks import firing_times
from backstream.spark.watermarks.compress import to_timeline
from backstream.spark.watermarks.firing_times import FiringTimes, WindowGrid
from backstream.spark.watermarks.join import in_force_table
from backstream.spark.watermarks.timeline import WatermarkTimeline, to_int64

RECORDINGS = sorted((Path(__file__).parent / "flink").glob("*.jsonl"))
FAR_MS = 2**52
"""The native engine computes no session beyond it (`native/supported.py`)."""
MAX_WINDOWS = 1_000_000
"""So many windows between two events are several chunks in a run."""
TYPES = {
    "happened": "timestamp",
    "arrived": "timestamp",
    "origin": "string",
    "seq": "bigint",
    "key": "string",
    "bit": "bigint",
}
AGGREGATES = [Aggregate("bits", "sum", "bit")]
WINDOW = {"window_start": "timestamptz", "window_end": "timestamptz", "key": "string"}
COLUMNS_BY_TABLE = {
    WINDOWS: {**WINDOW, "bits": "long", "record_count": "long"},
    PANES: {
        **WINDOW,
        **{f"{name}__{pane}": "long" for pane in ("first", "live", "final") for name in ("bits", "record_count")},
        "late_firings": "long",
    },
    DROPPED: {"key": "string", "arrival_seq": "long"},
}
Window = tuple[str, int, int]
"""Key, start, and end of a window."""
Panes = dict[Window, tuple[int, int, int, int]]
"""The records of the first, the live, and the final pane as bits (0: no pane), and the number of late firings."""


def list_reasons_for_spark(case: Case) -> Iterator[str]:
    """Yield the reasons why Spark computes a case, by the rules of `native/supported.py`."""
    times_ms = [record.event_time_ms for record in case.records]
    if max(map(abs, (*times_ms, case.allowed_lateness_ms))) > FAR_MS:
        yield "times or lateness near the limit of 64 bits"
    elif not times_ms:
        yield "no records"
    elif case.emission.suppresses_final_when_idle:
        yield "no final watermark, which a definition cannot ask for"
    elif isinstance(case.window, Session):
        if any(timeline_of(case).marker_positions):
            yield "sessions, with watermarks between two ticks"
    elif isinstance(case.window, Sliding) and case.window.slide_ms > case.window.size_ms:
        yield "gaps between windows"
    elif WindowGrid.from_window(case.window, owned_starts(case)).count > MAX_WINDOWS:
        yield "more windows than a chunk has"


def timeline_of(case: Case) -> WatermarkTimeline:
    """Return the watermarks of a case in the form that the tasks' firing times are made of."""
    watermarks = compute_watermarks(case.records, case.emission, case.clock, case.partitions)
    rows = [
        {
            "block": case.clock.ticks_before(record.arrival_time_ms),
            "arrival_time_ms": record.arrival_time_ms,
            "arrival_seq": number,
            "source_partition": case.partition_names[record.source_partition],
            "marker_ms": record.marker or None,
        }
        for number, record in enumerate(case.records)
    ]
    blocks = to_int64(sorted({case.clock.ticks_before(record.arrival_time_ms) for record in case.records}))
    return to_timeline(watermarks, rows, case.clock, blocks)


def owned_starts(case: Case) -> Interval:
    """Return an interval with the starts of all windows of a case."""
    times_ms = [record.event_time_ms for record in case.records]
    size_ms = 0 if isinstance(case.window, Session) else case.window.size_ms
    return Interval(min(times_ms) - size_ms, max(times_ms) + 1)


class NativeRun:
    """A case that ran through tasks of the native engine."""

    def __init__(self, folder: Path, case: Case) -> None:
        self._folder, self._case = folder, case
        self._owned = owned_starts(case)
        self._chunks = ChunkGrid(self._owned.start_ms, self._owned.end_ms - self._owned.start_ms, 1)
        self._reading = ReadSpec("happened", "arrived", "origin", "seq", TYPES, Interval(-FAR_MS, FAR_MS))
        self._file = str(folder / "events.parquet")
        self._write_events()
        self._results = self._run_sessions() if isinstance(case.window, Session) else self._run_windows()

    def panes(self) -> Panes:
        """Return the panes of all windows."""
        return {
            self._window(row): (
                *(row[f"bits__{pane}"] or 0 for pane in ("first", "live", "final")),
                row["late_firings"],
            )
            for row in self._rows(PANES)
        }

    def dropped(self) -> list[int]:
        """Return the numbers of the dropped records."""
        return sorted(row["arrival_seq"] for row in self._rows(DROPPED))

    def fates(self) -> Counter[str]:
        """Return the number of records by fate."""
        found: Counter[str] = Counter()
        for result in self._results:
            for row in pq.read_table(result.counts).to_pylist() if result.counts else []:
                found[row["fate"]] += row["events"]
        return +found

    def _rows(self, table: str) -> Iterator[dict[str, Any]]:
        for result in self._results:
            if table in result.written:
                for path in result.written[table].paths:
                    yield from pq.read_table(path).to_pylist()

    def _window(self, row: Mapping[str, Any]) -> Window:
        start_ms, end_ms = (round(row[name].timestamp() * 1000) for name in ("window_start", "window_end"))
        return row["key"], start_ms, end_ms

    def _write_events(self) -> None:
        records, instant = self._case.records, pa.timestamp("us", "UTC")
        columns = {
            "happened": pa.array([record.event_time_ms * 1_000 for record in records], instant),
            "arrived": pa.array([record.arrival_time_ms * 1_000 for record in records], instant),
            "origin": pa.array([self._case.partition_names[record.source_partition] for record in records]),
            "seq": pa.array(range(len(records)), pa.int64()),
            "key": pa.array([str(record.key) for record in records]),
            "bit": pa.array([1 << number for number in range(len(records))], pa.int64()),
        }
        pq.write_table(pa.table(columns), self._file)

    def _outputs(self) -> dict[str, TaskOutput]:
        return {
            table: TaskOutput(
                str(self._folder / f"rows{table}.parquet"),
                [(name, kind, field_id) for field_id, (name, kind) in enumerate(columns.items(), start=1)],
                "run",
            )
            for table, columns in COLUMNS_BY_TABLE.items()
        }

    def _run_windows(self) -> list[TaskResult]:
        case, outputs = self._case, self._outputs()
        assert not isinstance(case.window, Session)
        grid = WindowGrid.from_window(case.window, self._owned)
        times = FiringTimes.from_timeline(timeline_of(case), grid, case.clock, case.allowed_lateness_ms)
        task = WindowTask(
            number=0,
            reading=self._reading,
            grid=TaskGrid(case.window, grid.first_end_ms, grid.step_ms, grid.count),
            keys=["key"],
            aggregates=AGGREGATES,
            firing_times=times.for_task(),
            chunks=self._chunks,
            numbers=(0, grid.count),
            stretch=self._owned,
            files=[self._file],
            windows=outputs[WINDOWS],
            panes=outputs[PANES],
            dropped=outputs[DROPPED],
            owned=self._owned,
            published="final",
            identity=Identity(),
            counts_path=str(self._folder / "counts.parquet"),
            memory_mb=256,
        )
        return [run_native_task(task)]

    def _run_sessions(self) -> list[TaskResult]:
        case, outputs, cells = self._case, self._outputs(), Tumbling(3_600_000)
        assert isinstance(case.window, Session)
        made = run_native_task(
            UnitTask(
                number=0,
                reading=self._reading,
                gap_ms=case.window.gap_ms,
                keys=["key"],
                aggregates=AGGREGATES,
                identity=Identity(),
                watermarks=self._write_watermarks(),
                stretch=self._owned,
                files=[self._file],
                cells=cells,
                chunks=self._chunks,
                shares=1,
                units_path=str(self._folder / "units.parquet"),
                counts_path=str(self._folder / "counts.parquet"),
                memory_mb=256,
            )
        )
        task = SessionTask(
            number=1,
            gap_ms=case.window.gap_ms,
            allowed_lateness_ms=case.allowed_lateness_ms,
            keys=["key"],
            aggregates=AGGREGATES,
            units=list(made.units.values()),
            cells=cells,
            chunks=self._chunks,
            owned=self._owned,
            windows=outputs[WINDOWS],
            panes=outputs[PANES],
            dropped=outputs[DROPPED],
            published="final",
            counts_path=str(self._folder / "moved.parquet"),
            memory_mb=256,
        )
        return [made, run_native_task(task)]

    def _write_watermarks(self) -> BlockWatermarks:
        timeline, path = timeline_of(self._case), self._folder / "watermarks.parquet"
        pq.write_table(in_force_table(timeline).rename_columns(["block", "watermark_ms"]), path)
        blocks = timeline.blocks.tolist()
        return BlockWatermarks(str(path), self._case.clock, (blocks[0], blocks[-1] + 1))


def panes_of_flink(case: Case, firings: list[dict[str, Any]]) -> Panes:
    """Return the panes of Flink's firings; the final pane has all events, as in a stream without watermarks."""
    first: dict[Window, int] = {}
    live: dict[Window, int] = {}
    late: Counter[Window] = Counter()
    for firing in sorted(firings, key=lambda each: (each["wm"], each["kind"] == "late", each["by"])):
        window = (str(firing["key"]), firing["start"], firing["end"])
        live[window] = to_bits(firing["records"])
        if firing["kind"] == "late":
            late[window] += 1
        else:
            first[window] = live[window]
    final = {
        (str(pane.key), *pane.window): to_bits(pane.records)
        for pane in fire_windows(case.records, to_watermarks([MIN_MS] * len(case.records)), case.window, 0).panes
    }
    return {
        window: (first.get(window, 0), live.get(window, 0), final.get(window, 0), late[window])
        for window in {*live, *final}
    }


def to_bits(records: Any) -> int:
    return sum(1 << number for number in records)


def fates_of(case: Case) -> Counter[str]:
    watermarks = compute_watermarks(case.records, case.emission, case.clock, case.partitions)
    fates = fire_windows(case.records, watermarks, case.window, case.allowed_lateness_ms).fates
    return Counter(Fate(fate).value for fate in fates)


@pytest.mark.parametrize("recordings", RECORDINGS, ids=lambda path: path.stem)
def test_the_native_engine_agrees_with_flink(
    recordings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = 0
    for number, line in enumerate(load_cases([recordings])):
        # In every second case, windows with the same firing times are one stretch, as in a long range.
        most = 1_000_000 * (number % 2)
        monkeypatch.setattr(firing_times, "_MAX_LISTED_WINDOWS", most)
        monkeypatch.setattr(firing_times, "_LISTED_PER_STRETCH", most)
        try:
            case = parse_case(line["case"])
        except BackstreamError:
            assert "error" in line["flink"]
            continue
        if any(list_reasons_for_spark(case)):
            continue
        folder = tmp_path / str(number)
        folder.mkdir()
        run, flink = NativeRun(folder, case), line["flink"]

        assert (case.name, run.panes()) == (case.name, panes_of_flink(case, flink["firings"]))
        assert (case.name, run.dropped()) == (case.name, sorted(flink["late"]))
        assert (case.name, run.fates()) == (case.name, fates_of(case))
        ran += 1

    assert ran >= 15


def test_most_recordings_run_natively() -> None:
    reasons: Counter[str] = Counter()
    for line in load_cases(RECORDINGS):
        try:
            reasons[next(list_reasons_for_spark(parse_case(line["case"])), "none")] += 1
        except BackstreamError:
            reasons["an error, as in Flink"] += 1

    assert dict(reasons) == {
        "none": 633,
        "sessions, with watermarks between two ticks": 35,
        "gaps between windows": 19,
        "no final watermark, which a definition cannot ask for": 17,
        "times or lateness near the limit of 64 bits": 8,
        "an error, as in Flink": 2,
        "no records": 1,
    }
