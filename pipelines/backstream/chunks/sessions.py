"""Compute sessions in native tasks: units per range of time, then sessions per share of the keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pyarrow.parquet as pq

from backstream.chunks.attempt import Attempt
from backstream.chunks.group import ChunkGroup
from backstream.chunks.halo import find_native_halo
from backstream.chunks.lateness import load_timeline
from backstream.chunks.outputs import (
    NativeResult,
    chunk_grid,
    collect_staged_files,
    list_counts,
    plan_rest_tasks,
    task_counts_path,
    task_output,
    units_path,
)
from backstream.chunks.tasks import Tasks, run_native_tasks
from backstream.errors import ContractError, CountError, SpecError
from backstream.eventtime.instants import DAY_MS
from backstream.eventtime.intervals import Interval
from backstream.eventtime.windows import Session, Tumbling
from backstream.native.fate_counts import NativeCounts
from backstream.native.sessions.task import BlockWatermarks, SessionTask, UnitTask
from backstream.native.supported import native_aggregates, read_spec
from backstream.native.task import TaskResult
from backstream.native.task_cuts import count_key_shares, cut_time
from backstream.runs.plan import InputFile
from backstream.runs.table_schemas import DROPPED, PANES, WINDOWS
from backstream.watermarks.local_times import localize_watermarks
from backstream.watermarks.stream_slices import ticks_of_file
from backstream.watermarks.streams import StreamReader
from backstream.watermarks.timeline import WatermarkTimeline


@dataclass(frozen=True, slots=True)
class SessionBasis:
    """The event times that sessions need, and the watermarks in them; these are None in a recompute."""

    window: Session
    span: Interval
    timeline: WatermarkTimeline | None

    @classmethod
    def from_group(cls, group: ChunkGroup, window: Session, tasks: Tasks, reader: StreamReader) -> Self:
        """Find how far the sessions extend, and in a replay the watermarks there."""
        halo = find_native_halo(group, window, tasks)
        span = Interval(min(halo.start_ms, group.interval.start_ms), halo.end_ms)
        if not group.is_replay:
            return cls(window, span, None)
        return cls(window, span, localize_watermarks(load_timeline(group, span, reader), window.zone))


def compute_sessions(group: ChunkGroup, basis: SessionBasis, tasks: Tasks, attempt: Attempt) -> NativeResult:
    """Compute the sessions of chunks and count their records.

    Raises:
        ContractError: when executors have different versions of DuckDB.
        CountError: when the driver doesn't find every row that a task has written, or when units were lost between
            the tasks that write and read them.
        SpecError: when watermarks move between two ticks, which the engine doesn't support.
    """
    files = group.list_input_files(basis.span)
    rows = sum(file.rows for file in files)
    unit_tasks = _unit_tasks(group, basis, tasks, attempt, files)
    rest_tasks = plan_rest_tasks(
        group, unit_tasks[0].reading, basis.span, files, attempt, tasks.memory_mb, first=len(unit_tasks)
    )
    unit_results = list(run_native_tasks(tasks, [*unit_tasks, *rest_tasks]).values())
    _require_one_hash(unit_results)
    session_tasks = _session_tasks(group, basis, tasks.memory_mb, attempt, unit_results)
    session_results = list(run_native_tasks(tasks, session_tasks).values())
    _require_all_units(attempt, unit_results, session_results)
    done = [*unit_results, *session_results]
    paths = list_counts(attempt, done)
    return NativeResult(
        counts=NativeCounts(paths, None, _cells(group), group.interval, None, tasks.memory_mb),
        files=collect_staged_files(attempt, done),
        scanned=sum(result.scanned for result in done),
        rows_by_footer=rows,
        records_in_windows=sum(result.in_windows for result in done),
    )


def _cells(group: ChunkGroup) -> Tumbling:
    cells = group.definition.metric_windows
    assert isinstance(cells, Tumbling)  # noqa: S101 - the metrics of sessions are hourly
    return cells


def _unit_tasks(
    group: ChunkGroup, basis: SessionBasis, runner: Tasks, attempt: Attempt, files: Sequence[InputFile]
) -> list[UnitTask]:
    definition, plan = group.definition, group.plan
    aggregates = native_aggregates(definition, plan.columns)
    source = definition.timed_source
    columns = [*source.key, *source.deduplicate_on]
    columns += [aggregate.column for aggregate in aggregates if aggregate.column]
    reading = read_spec(definition, plan.columns, columns)
    shares = count_key_shares(sum(file.rows for file in files), runner.slots)
    path = _write_watermarks(basis, attempt.scratch)
    near = group.list_input_files(source.identity.reach(basis.span))

    def task(number: int, interval: Interval) -> UnitTask:
        task_files = [file for file in files if file.may_hold(interval)] or [files[0]]
        blocks = [ticks_of_file(file, group.clock) for file in task_files]
        block_range = (min(span.start for span in blocks), max(span.stop for span in blocks))
        return UnitTask(
            number=number,
            reading=reading,
            window=basis.window,
            keys=source.key,
            aggregates=aggregates,
            identity=source.identity,
            watermarks=BlockWatermarks(path, group.clock, block_range) if path else None,
            stretch=interval,
            files=[file.path for file in near if file.may_hold(source.identity.reach(interval))]
            or [files[0].path],
            cells=_cells(group),
            chunks=chunk_grid(group),
            shares=shares,
            units_path=units_path(attempt, number),
            counts_path=task_counts_path(attempt, number),
            memory_mb=runner.memory_mb,
        )

    return [task(number, interval) for number, interval in enumerate(cut_time(basis.span, files, runner.slots))]


def _write_watermarks(basis: SessionBasis, folder: Path) -> str | None:
    """Write the watermarks of blocks for the tasks, and return the file; None in a recompute."""
    timeline = basis.timeline
    if timeline is None:
        return None
    if any(timeline.marker_positions):
        msg = "the native engine doesn't support sessions if watermarks move between two ticks"
        raise SpecError(msg)
    path = folder / "watermarks.parquet"
    pq.write_table(timeline.in_force().rename_columns(["block", "watermark_ms"]), path, row_group_size=100_000)
    return str(path)


def _session_tasks(
    group: ChunkGroup, basis: SessionBasis, memory_mb: int, attempt: Attempt, unit_results: Sequence[TaskResult]
) -> list[SessionTask]:
    definition, plan = group.definition, group.plan
    aggregates = native_aggregates(definition, plan.columns)
    suffixes = [suffix for suffix in (WINDOWS, PANES, DROPPED) if suffix in plan.tables]
    start_ms = group.interval.start_ms
    day_ms = start_ms - start_ms % DAY_MS
    is_one_day = len(group.chunks) == 1 and group.interval.end_ms <= day_ms + DAY_MS

    def task(number: int, units: Sequence[str]) -> SessionTask:
        outputs = {
            suffix: task_output(attempt, suffix, number, 0, day_ms if is_one_day else None) for suffix in suffixes
        }
        return SessionTask(
            number=number,
            window=basis.window,
            allowed_lateness_ms=definition.lateness.allowed,
            keys=definition.source.key,
            aggregates=aggregates,
            units=units,
            cells=_cells(group),
            chunks=chunk_grid(group),
            owned=group.interval,
            windows=outputs[WINDOWS],
            panes=outputs.get(PANES),
            dropped=outputs.get(DROPPED),
            published=definition.backfill.publish,
            counts_path=task_counts_path(attempt, number),
            memory_mb=memory_mb,
        )

    shares: dict[int, list[str]] = {}
    for result in unit_results:
        for share, path in result.units.items():
            shares.setdefault(share, []).append(path)
    return [task(number, shares[share]) for number, share in enumerate(sorted(shares), start=len(unit_results))]


def _require_one_hash(unit_results: Sequence[TaskResult]) -> None:
    """Check that all tasks put a key into the same share.

    Raises:
        ContractError: naming the versions of DuckDB, and a machine of each.
    """
    hosts = {result.hashed_by: result.host for result in unit_results if result.units}
    if len(hosts) > 1:
        versions = ", ".join(f"{version} on {host}" for version, host in sorted(hosts.items()))
        msg = (
            f"executors have different versions of DuckDB, which may put one key into two shares: {versions}\n\n"
            'hint: install the same version everywhere, or set backfill.engine = "spark"'
        )
        raise ContractError(msg)


def _require_all_units(
    attempt: Attempt, unit_results: Sequence[TaskResult], session_results: Sequence[TaskResult]
) -> None:
    """Check that the sessions have as many records as the units.

    Raises:
        CountError: naming both numbers.
    """
    expected = sum(result.in_units for result in unit_results)
    actual = sum(result.in_units for result in session_results)
    if expected != actual:
        msg = (
            f"the units of sessions have {expected:,} records, the sessions have {actual:,}\n"
            f"  {attempt}\n\nhint: run the same command again; if the error occurs again, report it as a bug"
        )
        raise CountError(msg)
