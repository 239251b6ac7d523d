"""Chunks run by the native engine: Spark sends out tasks and collects what they did, and never sees a record."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from backstream.core.errors import SpecError
from backstream.core.instants import DAY_MS, moment
from backstream.core.intervals import Interval
from backstream.core.tables import PANES, WINDOWS
from backstream.core.windows import Sliding
from backstream.native.cut import TASK_ROWS, Piece, grouped_files, pieces
from backstream.native.run import run_rest_task, run_window_task
from backstream.native.supported import aggregates_of, reason_against
from backstream.native.task import (
    Chunks,
    Done,
    Grid,
    Output,
    Places,
    Reading,
    RestTask,
    Thresholds,
    WindowTask,
    in_folder,
)
from backstream.spark.heap import heap_mb, machine_bytes
from backstream.spark.read import file_uri, rows_of, schema_of
from backstream.spark.shipping import ship
from backstream.spark.stage import Attempt, Staged, staged_by_tasks
from backstream.spark.streams.thresholds import Positions, WindowGrid
from backstream.spark.windows.metrics import Counts
from backstream.spark.windows.results import FixedWindows
from backstream.spark.windows.slices import late_columns
from backstream.spark.work import Work
from backstream.spark.writes import TaskWrite

ENGINE_EVENTS = 50_000
"""Expected events of a chunk and day from which on `auto` takes the native engine."""
_LEAST_MB, _MOST_MB = 256, 16_384
_COUNTS = "counts"
_COUNTED = {
    "event_time_ms": "bigint",
    "source_partition": "string",
    "fate": "string",
    "chunk_number": "int",
    "events": "bigint",
    "first_arrival_ms": "bigint",
    "last_arrival_ms": "bigint",
}
_LATE_TYPES = {"late_arrival_time_ms": "bigint", "late_arrival_seq": "bigint", "late_source_partition": "string"}


FAILED = "the native engine could not compute"
"""How the error of a task begins."""


def is_chosen(work: Work) -> bool:
    """Whether these chunks are for the native engine, by the definition, or else by the number of events."""
    engine = work.definition.backfill.engine
    if engine != "auto":
        return engine == "native"
    days = max(len(work.chunks), math.ceil((work.interval.end_ms - work.interval.start_ms) / DAY_MS))
    is_large = work.expected_events >= days * ENGINE_EVENTS
    return is_large and reason_against(work.definition, work.plan.columns) is None


def failure(error: Exception) -> str:
    """Return the sentence of a task's error, without the traces around it."""
    found = re.search(rf"{FAILED}[^\n]*", str(error))
    return found[0] if found else str(error)


@dataclass(frozen=True, slots=True)
class Computed:
    """What the native engine made of chunks.

    `scanned` are the rows of `rows_by_footer` that were met. `read` are the records per number of the chunk.
    """

    counts: Counts
    files: Mapping[str, Staged]
    scanned: int
    rows_by_footer: int
    read: Mapping[int, int]


def compute(work: Work, results: FixedWindows, attempt: Attempt) -> Computed:
    """Compute the windows of chunks and count their records. Runs a job.

    Raises:
        CountError: when the driver does not find each row that a task has written.
        SpecError: when the definition is not one that the engine runs.
    """
    if reason := reason_against(work.definition, work.plan.columns):
        msg = f'backfill.engine = "native" cannot run {work.definition.name}: {reason}'
        raise SpecError(msg)
    spark = work.spark
    ship(spark.sparkContext)
    windows, rest = _tasks(work, results, attempt)
    done = _run(spark, [*windows, *rest])
    by_number = {each.number: each for each in done}
    files: dict[str, Staged] = {}
    for suffix in (PANES, WINDOWS):
        paths = {
            task.number: (path, by_number[task.number])
            for task in windows
            if (path := _path(task, suffix)) and by_number[task.number].rows.get(suffix)
        }
        if suffix in work.plan.tables:
            written = [TaskWrite(n, each.host, each.rows[suffix]) for n, (_, each) in sorted(paths.items())]
            files[suffix] = staged_by_tasks(suffix, attempt, [Path(path) for path, _ in paths.values()], written)
    read: dict[int, int] = {}
    for each in done:
        for number, events in each.read.items():
            read[number] = read.get(number, 0) + events
    counted = [task.counts_path for task in (*windows, *rest) if by_number[task.number].counts]
    rows_by_footer = {file.path: file.rows for file in work.plan.inputs}
    return Computed(
        _counts(work, results, counted),
        files,
        sum(each.scanned for each in done),
        sum(rows_by_footer[path] for path in _paths(work)),
        read,
    )


def _path(task: WindowTask, suffix: str) -> str | None:
    output = task.windows if suffix == WINDOWS else task.panes
    return output.path if output else None


def _paths(work: Work) -> list[str]:
    """The files that the chunks read."""
    interval = Interval(work.interval.start_ms, work.read_until_ms)
    return sorted({*work.paths, *work.recorded.paths_of(interval)})


def _tasks(work: Work, results: FixedWindows, attempt: Attempt) -> tuple[list[WindowTask], list[RestTask]]:
    definition, plan = work.definition, work.plan
    source, interval = definition.timed_source, Interval(work.interval.start_ms, work.read_until_ms)
    aggregates = aggregates_of(definition, plan.columns)
    times = (source.event_time, source.arrival_time or source.event_time)
    named = [*times, source.partition, source.sequence, *source.key, *(each.column for each in aggregates)]
    reading = Reading(
        *times,
        source.partition,
        source.sequence,
        {name: plan.columns[name] for name in dict.fromkeys(named) if name},
        Interval(*source.event_time_range),
    )
    bounds = WindowGrid.of(results.window, work.interval)
    grid = Grid(results.window, bounds.first_end_ms, bounds.step_ms, bounds.count)
    wanted = set(_paths(work))
    files = [file for file in plan.inputs if file.path in wanted]
    slots = work.spark.sparkContext.defaultParallelism
    memory_mb = _memory_mb(work.spark, slots)
    chunks = Chunks(work.chunks[0].start_ms, work.chunks[0].end_ms - work.chunks[0].start_ms, len(work.chunks))
    tables = {
        suffix: [(name, kind, field_id) for name, kind, field_id, _ in plan.tables[suffix].columns]
        for suffix in (WINDOWS, PANES)
        if suffix in plan.tables
    }

    def task(number: int, piece: Piece) -> WindowTask:
        outputs = {
            suffix: Output(in_folder(_folder(attempt, suffix, piece), number, attempt.attempt), columns)
            for suffix, columns in tables.items()
        }
        held = [file.path for file in files if file.may_hold(_span(grid, piece))]
        return WindowTask(
            number=number,
            reading=reading,
            grid=grid,
            keys=source.key,
            aggregates=aggregates,
            thresholds=_thresholds(results, grid, piece),
            chunks=chunks,
            numbers=piece.numbers,
            stretch=piece.stretch,
            files=held or [files[0].path],
            windows=outputs[WINDOWS],
            panes=outputs.get(PANES),
            published=definition.backfill.publish,
            counts_path=_counts_path(attempt, number),
            run_id=plan.run_id,
            memory_mb=memory_mb,
            cell_late=isinstance(definition.cells, Sliding) and results.lateness is not None,
        )

    windows = [task(number, piece) for number, piece in enumerate(pieces(grid, work.chunks, interval, files, slots))]
    owners = {path: work.owned_files[file_uri(path)] for path in wanted if file_uri(path) in work.owned_files}
    rest = [
        RestTask(number, reading, interval, several, owners, _counts_path(attempt, number), memory_mb)
        for number, several in enumerate(grouped_files(files, TASK_ROWS), start=len(windows))
    ]
    return windows, rest


def _folder(attempt: Attempt, suffix: str, piece: Piece) -> Path:
    """Where files of one chunk lie, and of one day where the table keeps days apart."""
    folder = attempt.folder(suffix) / f"staging_chunk={piece.chunk}"
    if attempt.plan.tables[suffix].day_column is None:
        return folder
    return folder / f"staging_day={moment(piece.day_ms).date()}"


def _counts_path(attempt: Attempt, number: int) -> str:
    return in_folder(attempt.folder(WINDOWS).with_suffix(".counts"), number, attempt.attempt)


def _span(grid: Grid, piece: Piece) -> Interval:
    """The event times of all that a piece reads."""
    first, end = piece.numbers
    if first == end:
        return piece.stretch
    start_ms = grid.first_end_ms + first * grid.step_ms - grid.window.size_ms
    end_ms = grid.first_end_ms + (end - 1) * grid.step_ms
    return Interval(min(start_ms, piece.stretch.start_ms), max(end_ms, piece.stretch.end_ms))


def _thresholds(results: FixedWindows, grid: Grid, piece: Piece) -> Thresholds | None:
    """Those of the windows that hold some record of a piece."""
    if results.lateness is None:
        return None
    every = results.lateness.judged.thresholds
    span = _span(grid, piece)
    first = (span.start_ms - grid.first_end_ms) // grid.step_ms - 1
    last = (span.end_ms + grid.window.size_ms - grid.first_end_ms) // grid.step_ms + 2
    low, high = max(0, min(first, piece.numbers[0])), min(last, every.grid.count)
    return Thresholds(low, _places(every.fired, low, high), _places(every.gone, low, high))


def _places(positions: Positions, low: int, high: int) -> Places:
    times_ms = positions.arrival_time_ms[low:high]
    if positions.arrival_seq is None:
        return Places(times_ms)
    return Places(times_ms, positions.arrival_seq[low:high], list(positions.source_partition[low:high]))


def _run(spark: SparkSession, tasks: Sequence[WindowTask | RestTask]) -> list[Done]:
    return spark.sparkContext.parallelize(tasks, len(tasks)).map(_run_task).collect()


def _run_task(task: WindowTask | RestTask) -> Done:
    try:
        return run_window_task(task) if isinstance(task, WindowTask) else run_rest_task(task)
    except Exception as error:
        msg = f"{FAILED} {task}: {error}"
        raise RuntimeError(msg) from error


def _counts(work: Work, results: FixedWindows, paths: Sequence[str]) -> Counts:
    """The counts that tasks wrote."""
    judged, cells = results.lateness.judged if results.lateness else None, work.definition.cells
    late = late_columns(judged if isinstance(cells, Sliding) else None)
    schema = schema_of(_COUNTED | {name: _LATE_TYPES[name] for name in late})
    rows: DataFrame = (
        rows_of(work.spark, paths, schema) if paths else work.spark.createDataFrame([], schema)
    ).fillna("unknown", ["source_partition"])
    return Counts(rows, cells, work.owned, judged)


def _memory_mb(spark: SparkSession, slots: int) -> int:
    """How much memory a task may take before it spills: of a machine, half of what Java leaves."""
    context = spark.sparkContext
    if (context.master or "").startswith("local"):
        free_mb = machine_bytes() // 2**20 - heap_mb(spark.conf.get("spark.driver.memory", "1g") or "1g")
        return min(max(free_mb // (2 * slots), _LEAST_MB), _MOST_MB)
    beside = spark.conf.get("spark.executor.pyspark.memory", None) or spark.conf.get(
        "spark.executor.memoryOverhead", None
    )
    cores = int(spark.conf.get("spark.executor.cores", None) or 1)
    return max(heap_mb(beside) // cores, _LEAST_MB) if beside else _LEAST_MB


