"""Chunks run by the native engine: Spark sends out tasks and collects what they did, and never sees a record."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from backstream.core.instants import moment
from backstream.core.intervals import Interval
from backstream.core.plan import Plan
from backstream.core.tables import DROPPED, METRICS, PANES, WINDOWS
from backstream.core.windows import Sliding
from backstream.native.counts import NativeCounts
from backstream.native.cut import TASK_ROWS, Piece, grouped_files, pieces
from backstream.native.run import run_task
from backstream.native.sql import STAGING_CHUNK, STAGING_DAY
from backstream.native.supported import aggregates_of, reading_of, reason_against
from backstream.native.task import (
    Chunks,
    Done,
    Grid,
    Output,
    Places,
    RestTask,
    Thresholds,
    WindowTask,
    in_folder,
)
from backstream.spark.read import file_uri
from backstream.spark.shipping import ship
from backstream.spark.slots import memory_mb
from backstream.spark.stage import Attempt, Staged, staged_by_tasks
from backstream.spark.streams.thresholds import Positions, WindowGrid
from backstream.spark.windows.results import FixedWindows
from backstream.spark.work import Work
from backstream.spark.writes import TaskWrite


def is_chosen(work: Work) -> bool:
    """Whether these chunks are for the native engine: as the definition says, or else if it knows all of that."""
    engine = work.definition.backfill.engine
    if engine != "auto":
        return engine == "native"
    return reason_against(work.definition, work.plan.columns) is None


@dataclass(frozen=True, slots=True)
class Computed:
    """What the native engine made of chunks. `scanned` are the rows of `rows_by_footer` that were met."""

    counts: NativeCounts
    files: Mapping[str, Staged]
    scanned: int
    rows_by_footer: int


def compute(work: Work, results: FixedWindows, attempt: Attempt) -> Computed:
    """Compute the windows of chunks and count their records. Runs a job.

    Raises:
        CountError: when the driver does not find each row that a task has written.
    """
    ship(work.spark.sparkContext)
    windows, rest = _tasks(work, results, attempt)
    done = {each.number: each for each in _run(work.spark, [*windows, *rest])}
    files: dict[str, Staged] = {}
    for suffix in (PANES, WINDOWS, DROPPED):
        found = [(each, each.written[suffix]) for each in done.values() if suffix in each.written]
        if found:
            paths = [Path(path) for _, made in found for path in made.paths]
            writes = [TaskWrite(each.number, each.host, made.rows) for each, made in found]
            files[suffix] = staged_by_tasks(suffix, attempt, paths, writes)
    counted = [each.counts for each in done.values() if each.counts]
    grid, judged = windows[0].grid, results.lateness.judged.thresholds if results.lateness else None
    places = [_places(each, 0, judged.grid.count) for each in (judged.fired, judged.gone)] if judged else []
    thresholds = Thresholds(0, *places) if places else None
    counts = NativeCounts(counted, grid, work.definition.cells, work.interval, thresholds, windows[0].memory_mb)
    rows_by_footer = {file.path: file.rows for file in work.plan.inputs}
    scanned = sum(each.scanned for each in done.values())
    return Computed(counts, files, scanned, sum(rows_by_footer[path] for path in _paths(work)))


def stage_metrics(work: Work, counts: NativeCounts, attempt: Attempt) -> Staged:
    """Write the metrics of each chunk.

    Raises:
        CountError: when a file that was just written cannot be read.
    """
    split_by = (STAGING_CHUNK,)
    output = _output_of(work.plan, METRICS, in_folder(attempt.folder(METRICS), 0, attempt.attempt), split_by)
    written = counts.write_metrics(output, _chunks(work))
    if written is None:
        return {}
    writes = [TaskWrite(0, socket.gethostname(), written.rows)]
    return staged_by_tasks(METRICS, attempt, [Path(path) for path in written.paths], writes)


def _output_of(plan: Plan, suffix: str, path: str, split_by: Sequence[str] = ()) -> Output:
    columns = [(name, kind, field_id) for name, kind, field_id, _ in plan.tables[suffix].columns]
    return Output(path, columns, plan.run_id, split_by)


def _chunks(work: Work) -> Chunks:
    first = work.chunks[0]
    return Chunks(first.start_ms, first.end_ms - first.start_ms, len(work.chunks))


def _paths(work: Work) -> list[str]:
    """The files that the chunks read."""
    interval = Interval(work.interval.start_ms, work.read_until_ms)
    return sorted({*work.paths, *work.recorded.paths_of(interval)})


def _tasks(work: Work, results: FixedWindows, attempt: Attempt) -> tuple[list[WindowTask], list[RestTask]]:
    definition, plan = work.definition, work.plan
    source, interval = definition.timed_source, Interval(work.interval.start_ms, work.read_until_ms)
    aggregates = aggregates_of(definition, plan.columns)
    also = [*source.key, *source.deduplicate_on, *(each.column for each in aggregates if each.column)]
    reading = reading_of(definition, plan.columns, also)
    bounds = WindowGrid.of(results.window, work.interval)
    grid = Grid(results.window, bounds.first_end_ms, bounds.step_ms, bounds.count)
    wanted = set(_paths(work))
    files = [file for file in plan.inputs if file.path in wanted]
    slots, most_mb = work.spark.sparkContext.defaultParallelism, memory_mb(work.spark)
    suffixes = [suffix for suffix in (WINDOWS, PANES, DROPPED) if suffix in plan.tables]

    def task(number: int, piece: Piece) -> WindowTask:
        outputs = {suffix: _output(attempt, suffix, piece, number) for suffix in suffixes}
        held = [file.path for file in files if file.may_hold(_span(grid, piece))]
        return WindowTask(
            number=number,
            reading=reading,
            grid=grid,
            keys=source.key,
            aggregates=aggregates,
            thresholds=_thresholds(results, grid, piece),
            chunks=_chunks(work),
            numbers=piece.numbers,
            stretch=piece.stretch,
            files=held or [files[0].path],
            windows=outputs[WINDOWS],
            panes=outputs.get(PANES),
            dropped=outputs.get(DROPPED),
            owned=work.interval,
            published=definition.backfill.publish,
            deduplicate_on=source.deduplicate_on,
            counts_path=_counts_path(attempt, number),
            memory_mb=most_mb,
            cell_late=isinstance(definition.cells, Sliding) and results.lateness is not None,
        )

    windows = [
        task(number, piece) for number, piece in enumerate(pieces(grid, work.chunks, interval, files, slots))
    ]
    owners = {path: work.owned_files[file_uri(path)] for path in wanted if file_uri(path) in work.owned_files}
    rest = [
        RestTask(number, reading, interval, several, owners, _counts_path(attempt, number), most_mb)
        for number, several in enumerate(grouped_files(files, TASK_ROWS), start=len(windows))
    ]
    return windows, rest


def _output(attempt: Attempt, suffix: str, piece: Piece, number: int) -> Output:
    """What a task writes for a table: files of one chunk, and of one day where the table keeps days apart."""
    plan, folder = attempt.plan, attempt.folder(suffix)
    has_days = plan.tables[suffix].day_column is not None
    if piece.day_ms is None:
        split_by = (STAGING_CHUNK, STAGING_DAY) if has_days else (STAGING_CHUNK,)
        return _output_of(plan, suffix, in_folder(folder, number, attempt.attempt), split_by)
    folder /= f"{STAGING_CHUNK}={piece.chunk}"
    if has_days:
        folder /= f"{STAGING_DAY}={moment(piece.day_ms).date()}"
    return _output_of(plan, suffix, in_folder(folder, number, attempt.attempt))


def forget_counts(attempt: Attempt) -> None:
    """Take the files of counts away; what they come to is in the manifests and in the table of metrics."""
    shutil.rmtree(_counts_folder(attempt), ignore_errors=True)


def _counts_folder(attempt: Attempt) -> Path:
    return attempt.folder(WINDOWS).with_suffix(".counts")


def _counts_path(attempt: Attempt, number: int) -> str:
    return in_folder(_counts_folder(attempt), number, attempt.attempt)


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
    times_ms = positions.arrival_time_ms[low:high].tolist()
    if positions.arrival_seq is None:
        return Places(times_ms)
    return Places(times_ms, positions.arrival_seq[low:high].tolist(), list(positions.source_partition[low:high]))


def _run(spark: SparkSession, tasks: Sequence[WindowTask | RestTask]) -> list[Done]:
    return spark.sparkContext.parallelize(tasks, len(tasks)).map(run_task).collect()
