"""Compute tumbling, sliding, and cumulating windows in native tasks, one range of time per task."""

from __future__ import annotations

from backstream.chunks.attempt import Attempt
from backstream.chunks.group import ChunkGroup
from backstream.chunks.lateness import ReplayLateness
from backstream.chunks.outputs import (
    NativeResult,
    chunk_grid,
    collect_staged_files,
    list_counts,
    plan_rest_tasks,
    task_counts_path,
    task_output,
)
from backstream.chunks.tasks import Tasks, run_native_tasks
from backstream.eventtime.intervals import Interval
from backstream.eventtime.windows import Session
from backstream.native.fate_counts import NativeCounts
from backstream.native.supported import native_aggregates, read_spec
from backstream.native.task import RestTask, WindowTask
from backstream.native.task_cuts import TaskRange, cut_windows
from backstream.runs.table_schemas import DROPPED, PANES, WINDOWS
from backstream.watermarks.firing_times import FiringTimes, WindowGrid


def compute_windows(
    group: ChunkGroup, lateness: ReplayLateness | None, tasks: Tasks, attempt: Attempt
) -> NativeResult:
    """Compute the windows of chunks and count their records.

    Raises:
        CountError: when the driver doesn't find every row that a task has written.
    """
    window_tasks, rest_tasks = _tasks(group, lateness, tasks, attempt)
    done = list(run_native_tasks(tasks, [*window_tasks, *rest_tasks]).values())
    counts = NativeCounts(
        list_counts(attempt, done),
        window_tasks[0].grid,
        group.definition.metric_windows,
        group.interval,
        lateness.firing_times if lateness else None,
        window_tasks[0].memory_mb,
    )
    return NativeResult(
        counts=counts,
        files=collect_staged_files(attempt, done),
        scanned=sum(result.scanned for result in done),
        rows_by_footer=sum(file.rows for file in group.list_input_files(_interval(group))),
        records_in_windows=counts.records_in_windows(),
    )


def _interval(group: ChunkGroup) -> Interval:
    """Return the interval of event time that the chunks read."""
    return Interval(group.interval.start_ms, group.halo_end_ms)


def _tasks(
    group: ChunkGroup, lateness: ReplayLateness | None, runner: Tasks, attempt: Attempt
) -> tuple[list[WindowTask], list[RestTask]]:
    definition, plan = group.definition, group.plan
    source, interval = definition.timed_source, _interval(group)
    aggregates = native_aggregates(definition, plan.columns)
    columns = [*source.key, *source.deduplicate_on]
    columns += [aggregate.column for aggregate in aggregates if aggregate.column]
    reading = read_spec(definition, plan.columns, columns)
    window = definition.window.spec()
    assert not isinstance(window, Session)  # noqa: S101 - `compute_sessions` has those
    grid = WindowGrid.from_window(window, group.interval)
    files = group.list_input_files(interval)
    near = group.list_input_files(source.identity.reach(interval))
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
            firing_times=_firing_times(lateness, grid, task_range),
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
            memory_mb=runner.memory_mb,
            cell_late=definition.metric_windows.has_overlaps and lateness is not None,
        )

    windows = [
        task(number, task_range)
        for number, task_range in enumerate(cut_windows(grid, group.chunks, interval, files, runner.slots))
    ]
    return windows, plan_rest_tasks(group, reading, interval, files, attempt, runner.memory_mb, first=len(windows))


def _span(grid: WindowGrid, task_range: TaskRange) -> Interval:
    """Return the interval of event time that a task reads."""
    stretch, windows = task_range.stretch, grid.span(task_range.numbers)
    if not task_range.numbers:
        return stretch
    return Interval(min(windows.start_ms, stretch.start_ms), max(windows.end_ms, stretch.end_ms))


def _firing_times(lateness: ReplayLateness | None, grid: WindowGrid, task_range: TaskRange) -> FiringTimes | None:
    """Return the firing times of the windows that may have a record of the task; None in a recompute."""
    if lateness is None:
        return None
    firing_times = lateness.firing_times
    span = _span(grid, task_range)
    first = (span.start_ms - grid.first_end_ms) // grid.step_ms - 1
    last = (span.end_ms + grid.window.size_ms - grid.first_end_ms) // grid.step_ms + 2
    low = max(0, min(first, task_range.numbers.start))
    return firing_times.part(range(low, min(last, firing_times.grid.count)))
