"""Tumbling, sliding and cumulate windows in native tasks, each of which gets a stretch of time."""

from __future__ import annotations

from backstream.eventtime.intervals import Interval
from backstream.eventtime.windows import Sliding
from backstream.native.fate_counts import NativeCounts
from backstream.native.supported import aggregates_of, reading_of
from backstream.native.task import (
    Grid,
    Places,
    RestTask,
    Thresholds,
    WindowTask,
)
from backstream.native.task_cuts import Piece, pieces
from backstream.runs.table_schemas import DROPPED, PANES, WINDOWS
from backstream.spark.chunk_group import Work
from backstream.spark.native.outputs import (
    Computed,
    chunks_of,
    counts_path,
    files_of,
    output,
    rest_tasks,
    run_tasks,
    staged_files,
)
from backstream.spark.session import memory_mb
from backstream.spark.staging import Attempt
from backstream.spark.watermarks.firing_times import Positions, WindowGrid
from backstream.spark.windows.fixed_windows import FixedWindows


def compute(work: Work, results: FixedWindows, attempt: Attempt) -> Computed:
    """Compute the windows of chunks and count their records. Runs a job.

    Raises:
        CountError: when the driver does not find each row that a task has written.
    """
    windows, rest = _tasks(work, results, attempt)
    done = run_tasks(work.spark, [*windows, *rest])
    counted = [each.counts for each in done.values() if each.counts]
    judged = results.lateness.judged.thresholds if results.lateness else None
    places = [_places(each, 0, judged.grid.count) for each in (judged.fired, judged.gone)] if judged else []
    thresholds = Thresholds(0, *places) if places else None
    grid, most_mb = windows[0].grid, windows[0].memory_mb
    counts = NativeCounts(counted, grid, work.definition.cells, work.interval, thresholds, most_mb)
    return Computed(
        counts=counts,
        files=staged_files(attempt, list(done.values())),
        scanned=sum(each.scanned for each in done.values()),
        rows_by_footer=sum(file.rows for file in files_of(work, _interval(work))),
        records_in_windows=counts.records_in_windows(),
    )


def _interval(work: Work) -> Interval:
    """The event times that the chunks read."""
    return Interval(work.interval.start_ms, work.read_until_ms)


def _tasks(work: Work, results: FixedWindows, attempt: Attempt) -> tuple[list[WindowTask], list[RestTask]]:
    definition, plan = work.definition, work.plan
    source, interval = definition.timed_source, _interval(work)
    aggregates = aggregates_of(definition, plan.columns)
    also = [*source.key, *source.deduplicate_on, *(each.column for each in aggregates if each.column)]
    reading = reading_of(definition, plan.columns, also)
    bounds = WindowGrid.of(results.window, work.interval)
    grid = Grid(results.window, bounds.first_end_ms, bounds.step_ms, bounds.count)
    files = files_of(work, interval)
    slots, most_mb = work.spark.sparkContext.defaultParallelism, memory_mb(work.spark)
    suffixes = [suffix for suffix in (WINDOWS, PANES, DROPPED) if suffix in plan.tables]

    def task(number: int, piece: Piece) -> WindowTask:
        outputs = {suffix: output(attempt, suffix, number, piece.chunk, piece.day_ms) for suffix in suffixes}
        held = [file.path for file in files if file.may_hold(_span(grid, piece))]
        return WindowTask(
            number=number,
            reading=reading,
            grid=grid,
            keys=source.key,
            aggregates=aggregates,
            thresholds=_thresholds(results, grid, piece),
            chunks=chunks_of(work),
            numbers=piece.numbers,
            stretch=piece.stretch,
            files=held or [files[0].path],
            windows=outputs[WINDOWS],
            panes=outputs.get(PANES),
            dropped=outputs.get(DROPPED),
            owned=work.interval,
            published=definition.backfill.publish,
            deduplicate_on=source.deduplicate_on,
            counts_path=counts_path(attempt, number),
            memory_mb=most_mb,
            cell_late=isinstance(definition.cells, Sliding) and results.lateness is not None,
        )

    windows = [
        task(number, piece) for number, piece in enumerate(pieces(grid, work.chunks, interval, files, slots))
    ]
    return windows, rest_tasks(work, reading, interval, files, attempt, first=len(windows))


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
