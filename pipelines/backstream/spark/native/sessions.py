"""Sessions in native tasks: units per stretch of time, then sessions per share of the keys."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq

from backstream.errors import ContractError, CountError, SpecError
from backstream.eventtime.instants import DAY_MS
from backstream.eventtime.intervals import Interval
from backstream.eventtime.windows import Tumbling
from backstream.native.fate_counts import NativeCounts
from backstream.native.sessions.task import BlockWatermarks, SessionTask, UnitTask
from backstream.native.supported import native_aggregates, read_spec
from backstream.native.task import TaskResult
from backstream.native.task_cuts import count_key_shares, cut_time
from backstream.runs.plan import InputFile
from backstream.runs.table_schemas import DROPPED, PANES, WINDOWS
from backstream.spark.chunk_group import ChunkGroup
from backstream.spark.native.outputs import (
    NativeResult,
    chunk_grid,
    collect_staged_files,
    list_input_files,
    plan_rest_tasks,
    run_native_tasks,
    scratch_folder,
    task_counts_path,
    task_output,
    units_path,
)
from backstream.spark.session import task_memory_mb
from backstream.spark.sessions.session_windows import SessionWindows
from backstream.spark.staging import Attempt
from backstream.spark.watermarks.join import in_force_table
from backstream.spark.watermarks.partial_streams import ticks_of_file


def compute_sessions(work: ChunkGroup, results: SessionWindows, attempt: Attempt) -> NativeResult:
    """Compute the sessions of chunks and count their records. Runs two jobs.

    Raises:
        ContractError: when executors have different versions of DuckDB.
        CountError: when the driver does not find each row that a task has written, or when units have been lost
            between the tasks that make them and those that read them.
        SpecError: when watermarks move between two ticks, which the engine does not know.
    """
    files = list_input_files(work, results.span)
    slots, rows = work.spark.sparkContext.defaultParallelism, sum(file.rows for file in files)
    making = _unit_tasks(work, results, attempt, files, count_key_shares(rows, slots))
    rest = plan_rest_tasks(work, making[0].reading, results.span, files, attempt, first=len(making))
    made = run_native_tasks(work.spark, [*making, *rest])
    _require_one_hash(list(made.values()))
    sessions = run_native_tasks(work.spark, _session_tasks(work, results, attempt, list(made.values())))
    _require_all_units(attempt, list(made.values()), list(sessions.values()))
    done = [*made.values(), *sessions.values()]
    paths = [each.counts for each in done if each.counts]
    return NativeResult(
        counts=NativeCounts(paths, None, _cells(work), work.interval, None, task_memory_mb(work.spark)),
        files=collect_staged_files(attempt, done),
        scanned=sum(each.scanned for each in done),
        rows_by_footer=rows,
        records_in_windows=sum(each.in_windows for each in done),
    )


def _cells(work: ChunkGroup) -> Tumbling:
    cells = work.definition.metric_windows
    assert isinstance(cells, Tumbling)  # noqa: S101 - the hours, of sessions
    return cells


def _unit_tasks(
    work: ChunkGroup, results: SessionWindows, attempt: Attempt, files: Sequence[InputFile], shares: int
) -> list[UnitTask]:
    definition, plan = work.definition, work.plan
    aggregates = native_aggregates(definition, plan.columns)
    source = definition.timed_source
    also = [*source.key, *source.deduplicate_on, *(each.column for each in aggregates if each.column)]
    reading, slots = read_spec(definition, plan.columns, also), work.spark.sparkContext.defaultParallelism
    path = _write_watermarks(results, scratch_folder(attempt))

    def task(number: int, stretch: Interval) -> UnitTask:
        held = [file for file in files if file.may_hold(stretch)] or [files[0]]
        blocks = [ticks_of_file(file, work.clock) for file in held]
        met = (min(each.start for each in blocks), max(each.stop for each in blocks))
        return UnitTask(
            number=number,
            reading=reading,
            gap_ms=results.window.gap_ms,
            keys=source.key,
            aggregates=aggregates,
            deduplicate_on=source.deduplicate_on,
            watermarks=BlockWatermarks(path, work.clock, met) if path else None,
            stretch=stretch,
            files=[file.path for file in held],
            cells=_cells(work),
            chunks=chunk_grid(work),
            shares=shares,
            units_path=units_path(attempt, number),
            counts_path=task_counts_path(attempt, number),
            memory_mb=task_memory_mb(work.spark),
        )

    return [task(number, each) for number, each in enumerate(cut_time(results.span, files, slots))]


def _write_watermarks(results: SessionWindows, folder: Path) -> str | None:
    """Leave the watermarks of blocks for the tasks, and return the file; None in a recompute."""
    heard = results.heard
    if heard is None:
        return None
    if any(heard.marker_positions):
        msg = "the native engine knows no sessions of a stream whose watermarks move between two ticks"
        raise SpecError(msg)
    path = folder / "watermarks.parquet"
    table = in_force_table(heard)
    pq.write_table(table.rename_columns(["block", "watermark_ms"]), path, row_group_size=100_000)
    return str(path)


def _session_tasks(
    work: ChunkGroup, results: SessionWindows, attempt: Attempt, made: Sequence[TaskResult]
) -> list[SessionTask]:
    definition, plan = work.definition, work.plan
    aggregates = native_aggregates(definition, plan.columns)
    suffixes = [suffix for suffix in (WINDOWS, PANES, DROPPED) if suffix in plan.tables]
    start_ms = work.interval.start_ms
    day_ms = start_ms - start_ms % DAY_MS
    is_one_day = len(work.chunks) == 1 and work.interval.end_ms <= day_ms + DAY_MS

    def task(number: int, units: Sequence[str]) -> SessionTask:
        outputs = {
            suffix: task_output(attempt, suffix, number, 0, day_ms if is_one_day else None) for suffix in suffixes
        }
        return SessionTask(
            number=number,
            gap_ms=results.window.gap_ms,
            allowed_lateness_ms=definition.lateness.allowed,
            keys=definition.source.key,
            aggregates=aggregates,
            units=units,
            cells=_cells(work),
            chunks=chunk_grid(work),
            owned=work.interval,
            windows=outputs[WINDOWS],
            panes=outputs.get(PANES),
            dropped=outputs.get(DROPPED),
            published=definition.backfill.publish,
            counts_path=task_counts_path(attempt, number),
            memory_mb=task_memory_mb(work.spark),
        )

    shares: dict[int, list[str]] = {}
    for each in made:
        for share, path in each.units.items():
            shares.setdefault(share, []).append(path)
    return [task(number, shares[share]) for number, share in enumerate(sorted(shares), start=len(made))]


def _require_one_hash(made: Sequence[TaskResult]) -> None:
    """Check that a key fell into the same share wherever its units were made.

    Raises:
        ContractError: naming the versions, and a machine of each.
    """
    hosts = {each.hashed_by: each.host for each in made if each.units}
    if len(hosts) > 1:
        found = ", ".join(f"{version} on {host}" for version, host in sorted(hosts.items()))
        msg = (
            f"executors have different versions of DuckDB, which may put one key into two shares: {found}\n\n"
            'hint: install the same version everywhere, or set backfill.engine = "spark"'
        )
        raise ContractError(msg)


def _require_all_units(attempt: Attempt, made: Sequence[TaskResult], sessions: Sequence[TaskResult]) -> None:
    """Check that sessions were made of as many records as went into units.

    Raises:
        CountError: naming both numbers.
    """
    expected, found = sum(each.in_units for each in made), sum(each.in_units for each in sessions)
    if expected != found:
        msg = (
            f"the units of sessions hold {expected:,} records, the sessions made of them {found:,}\n"
            f"  {attempt}\n\nhint: run the same again; if it says so again, report it: this must not happen"
        )
        raise CountError(msg)
