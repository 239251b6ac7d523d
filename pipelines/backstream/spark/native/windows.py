"""Tumbling, sliding and cumulate windows in native tasks, each of which gets a stretch of time."""

from __future__ import annotations

from backstream.eventtime.intervals import Interval
from backstream.eventtime.windows import Sliding
from backstream.native.fate_counts import NativeCounts
from backstream.native.supported import native_aggregates, read_spec
from backstream.native.task import RestTask, TaskGrid, TaskPositions, TaskThresholds, WindowTask
from backstream.native.task_cuts import TaskRange, cut_windows
from backstream.runs.table_schemas import DROPPED, PANES, WINDOWS
from backstream.spark.chunk_group import ChunkGroup
from backstream.spark.native.outputs import (
    NativeResult,
    chunk_grid,
    collect_staged_files,
    list_input_files,
    plan_rest_tasks,
    run_native_tasks,
    task_counts_path,
    task_output,
)
from backstream.spark.session import task_memory_mb
from backstream.spark.staging import Attempt
from backstream.spark.watermarks.firing_times import ArrivalPositions, WindowGrid
from backstream.spark.windows.fixed_windows import FixedWindows


def compute_windows(work: ChunkGroup, results: FixedWindows, attempt: Attempt) -> NativeResult:
    """Compute the windows of chunks and count their records. Runs a job.

    Raises:
        CountError: when the driver does not find each row that a task has written.
    """
    windows, rest = _tasks(work, results, attempt)
    done = run_native_tasks(work.spark, [*windows, *rest])
    counted = [each.counts for each in done.values() if each.counts]
    judged = results.lateness.firing_times.thresholds if results.lateness else None
    places = [_places(each, 0, judged.grid.count) for each in (judged.fired, judged.cleaned_up)] if judged else []
    thresholds = TaskThresholds(0, *places) if places else None
    grid, most_mb = windows[0].grid, windows[0].memory_mb
    counts = NativeCounts(counted, grid, work.definition.metric_windows, work.interval, thresholds, most_mb)
    return NativeResult(
        counts=counts,
        files=collect_staged_files(attempt, list(done.values())),
        scanned=sum(each.scanned for each in done.values()),
        rows_by_footer=sum(file.rows for file in list_input_files(work, _interval(work))),
        records_in_windows=counts.records_in_windows(),
    )


def _interval(work: ChunkGroup) -> Interval:
    """The event times that the chunks read."""
    return Interval(work.interval.start_ms, work.halo_end_ms)


def _tasks(work: ChunkGroup, results: FixedWindows, attempt: Attempt) -> tuple[list[WindowTask], list[RestTask]]:
    definition, plan = work.definition, work.plan
    source, interval = definition.timed_source, _interval(work)
    aggregates = native_aggregates(definition, plan.columns)
    also = [*source.key, *source.deduplicate_on, *(each.column for each in aggregates if each.column)]
    reading = read_spec(definition, plan.columns, also)
    bounds = WindowGrid.from_window(results.window, work.interval)
    grid = TaskGrid(results.window, bounds.first_end_ms, bounds.step_ms, bounds.count)
    files = list_input_files(work, interval)
    slots, most_mb = work.spark.sparkContext.defaultParallelism, task_memory_mb(work.spark)
    suffixes = [suffix for suffix in (WINDOWS, PANES, DROPPED) if suffix in plan.tables]

    def task(number: int, piece: TaskRange) -> WindowTask:
        outputs = {suffix: task_output(attempt, suffix, number, piece.chunk, piece.day_ms) for suffix in suffixes}
        held = [file.path for file in files if file.may_hold(_span(grid, piece))]
        return WindowTask(
            number=number,
            reading=reading,
            grid=grid,
            keys=source.key,
            aggregates=aggregates,
            thresholds=_thresholds(results, grid, piece),
            chunks=chunk_grid(work),
            numbers=piece.numbers,
            stretch=piece.stretch,
            files=held or [files[0].path],
            windows=outputs[WINDOWS],
            panes=outputs.get(PANES),
            dropped=outputs.get(DROPPED),
            owned=work.interval,
            published=definition.backfill.publish,
            deduplicate_on=source.deduplicate_on,
            counts_path=task_counts_path(attempt, number),
            memory_mb=most_mb,
            cell_late=isinstance(definition.metric_windows, Sliding) and results.lateness is not None,
        )

    windows = [
        task(number, piece) for number, piece in enumerate(cut_windows(grid, work.chunks, interval, files, slots))
    ]
    return windows, plan_rest_tasks(work, reading, interval, files, attempt, first=len(windows))


def _span(grid: TaskGrid, piece: TaskRange) -> Interval:
    """The event times of all that a piece reads."""
    first, end = piece.numbers
    if first == end:
        return piece.stretch
    start_ms = grid.first_end_ms + first * grid.step_ms - grid.window.size_ms
    end_ms = grid.first_end_ms + (end - 1) * grid.step_ms
    return Interval(min(start_ms, piece.stretch.start_ms), max(end_ms, piece.stretch.end_ms))


def _thresholds(results: FixedWindows, grid: TaskGrid, piece: TaskRange) -> TaskThresholds | None:
    """Those of the windows that hold some record of a piece."""
    if results.lateness is None:
        return None
    every = results.lateness.firing_times.thresholds
    span = _span(grid, piece)
    first = (span.start_ms - grid.first_end_ms) // grid.step_ms - 1
    last = (span.end_ms + grid.window.size_ms - grid.first_end_ms) // grid.step_ms + 2
    low, high = max(0, min(first, piece.numbers[0])), min(last, every.grid.count)
    return TaskThresholds(low, _places(every.fired, low, high), _places(every.cleaned_up, low, high))


def _places(positions: ArrivalPositions, low: int, high: int) -> TaskPositions:
    times_ms = positions.arrival_time_ms[low:high].tolist()
    if positions.arrival_seq is None:
        return TaskPositions(times_ms)
    return TaskPositions(
        times_ms, positions.arrival_seq[low:high].tolist(), list(positions.source_partition[low:high])
    )
