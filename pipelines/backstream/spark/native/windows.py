"""Compute tumbling, sliding, and cumulating windows in native tasks, one range of time per task."""

from __future__ import annotations

from backstream.eventtime.intervals import Interval
from backstream.native.fate_counts import NativeCounts
from backstream.native.supported import native_aggregates, read_spec
from backstream.native.task import RestTask, WindowTask
from backstream.native.task_cuts import TaskRange, cut_windows
from backstream.runs.table_schemas import DROPPED, PANES, WINDOWS
from backstream.spark.attempt import Attempt
from backstream.spark.chunk_group import ChunkGroup
from backstream.spark.native.outputs import (
    NativeResult,
    chunk_grid,
    collect_staged_files,
    list_counts,
    list_input_files,
    plan_rest_tasks,
    run_native_tasks,
    task_counts_path,
    task_output,
)
from backstream.spark.session import task_memory_mb
from backstream.spark.windows.fixed_windows import FixedWindows
from backstream.watermarks.firing_times import FiringTimes, WindowGrid


def compute_windows(group: ChunkGroup, results: FixedWindows, attempt: Attempt) -> NativeResult:
    """Compute the windows of chunks and count their records. Runs a job.

    Raises:
        CountError: when the driver doesn't find every row that a task has written.
    """
    window_tasks, rest_tasks = _tasks(group, results, attempt)
    done = list(run_native_tasks(group.spark, [*window_tasks, *rest_tasks]).values())
    counts = NativeCounts(
        list_counts(attempt, done),
        window_tasks[0].grid,
        group.definition.metric_windows,
        group.interval,
        results.lateness.firing_times.values if results.lateness else None,
        window_tasks[0].memory_mb,
    )
    return NativeResult(
        counts=counts,
        files=collect_staged_files(attempt, done),
        scanned=sum(result.scanned for result in done),
        rows_by_footer=sum(file.rows for file in list_input_files(group, _interval(group))),
        records_in_windows=counts.records_in_windows(),
    )


def _interval(group: ChunkGroup) -> Interval:
    """Return the interval of event time that the chunks read."""
    return Interval(group.interval.start_ms, group.halo_end_ms)


def _tasks(group: ChunkGroup, results: FixedWindows, attempt: Attempt) -> tuple[list[WindowTask], list[RestTask]]:
    definition, plan = group.definition, group.plan
    source, interval = definition.timed_source, _interval(group)
    aggregates = native_aggregates(definition, plan.columns)
    columns = [*source.key, *source.deduplicate_on]
    columns += [aggregate.column for aggregate in aggregates if aggregate.column]
    reading = read_spec(definition, plan.columns, columns)
    grid = WindowGrid.from_window(results.window, group.interval)
    files = list_input_files(group, interval)
    near = list_input_files(group, source.identity.reach(interval))
    slots, memory_mb = group.spark.sparkContext.defaultParallelism, task_memory_mb(group.spark)
    suffixes = [suffix for suffix in (WINDOWS, PANES, DROPPED) if suffix in plan.tables]

    def task(number: int, task_range: TaskRange) -> WindowTask:
        outputs = {
            suffix: task_output(attempt, suffix, number, task_range.chunk, task_range.day_ms)
            for suffix in suffixes
        }
        reach = source.identity.reach(_span(grid, task_range))
        paths = [file.path for file in near if file.may_hold(reach)]
        return WindowTask(
            number=number,
            reading=reading,
            grid=grid,
            keys=source.key,
            aggregates=aggregates,
            firing_times=_firing_times(results, grid, task_range),
            chunks=chunk_grid(group),
            numbers=task_range.numbers,
            stretch=task_range.stretch,
            files=paths or [files[0].path],
            windows=outputs[WINDOWS],
            panes=outputs.get(PANES),
            dropped=outputs.get(DROPPED),
            owned=group.interval,
            published=definition.backfill.publish,
            identity=source.identity,
            counts_path=task_counts_path(attempt, number),
            memory_mb=memory_mb,
            cell_late=definition.metric_windows.has_overlaps and results.lateness is not None,
        )

    windows = [
        task(number, task_range)
        for number, task_range in enumerate(cut_windows(grid, group.chunks, interval, files, slots))
    ]
    return windows, plan_rest_tasks(group, reading, interval, files, attempt, first=len(windows))


def _span(grid: WindowGrid, task_range: TaskRange) -> Interval:
    """Return the interval of event time that a task reads."""
    stretch, windows = task_range.stretch, grid.span(task_range.numbers)
    if not task_range.numbers:
        return stretch
    return Interval(min(windows.start_ms, stretch.start_ms), max(windows.end_ms, stretch.end_ms))


def _firing_times(results: FixedWindows, grid: WindowGrid, task_range: TaskRange) -> FiringTimes | None:
    """Return the firing times of the windows that may have a record of the task; None in a recompute."""
    if results.lateness is None:
        return None
    firing_times = results.lateness.firing_times.values
    span = _span(grid, task_range)
    first = (span.start_ms - grid.first_end_ms) // grid.step_ms - 1
    last = (span.end_ms + grid.window.size_ms - grid.first_end_ms) // grid.step_ms + 2
    low = max(0, min(first, task_range.numbers.start))
    return firing_times.part(range(low, min(last, firing_times.grid.count)))
