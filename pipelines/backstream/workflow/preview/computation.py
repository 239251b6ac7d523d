"""Compute the rows of sampled keys with DuckDB in this process, or on Spark if DuckDB cannot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from backstream.definition.model import Definition
from backstream.eventtime.duplicates import Identity
from backstream.eventtime.intervals import Interval
from backstream.eventtime.records import SourceClock
from backstream.eventtime.windows import FixedWindow, Session
from backstream.native.index_files import extend_index_here
from backstream.native.key_sample import KeySample
from backstream.native.raw_input import RawInput
from backstream.native.supported import native_aggregates, reason_not_native
from backstream.native.task import ChunkGrid, TaskOutput, WindowTask
from backstream.native.task_runner import run_native_task
from backstream.runs.plan import Chunk, Mode, Plan
from backstream.runs.table_schemas import DROPPED, PANES, WINDOWS
from backstream.source.arrival_index import BucketGrid, IndexFolder
from backstream.watermarks.firing_times import FiringTimes, WindowGrid
from backstream.watermarks.firing_times_from_index import compute_firing_times

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_MEMORY_MB = 1_500
_LAYOUT = "tables"


def reason_for_spark(definition: Definition, plan: Plan) -> str | None:
    """Return the reason why only Spark can compute the rows of a sample; None if DuckDB can."""
    if definition.backfill.engine == "spark":
        return "backfill.engine is spark"
    reason = reason_not_native(definition, plan.columns)
    if reason:
        return reason
    if isinstance(definition.window.spec(), Session):
        return "windows are sessions"
    if definition.derive_after or definition.having:
        return "derive_after and having are expressions of Spark"
    if plan.mode is Mode.REPLAY and not definition.emission.is_in_index:
        return "the arrival index does not determine these watermarks"
    return None


def needed_span(definition: Definition, plan: Plan) -> Interval:
    """Return the event times that the rows of a plan depend on; sessions and processes have no fixed reach."""
    if isinstance(definition.window.spec(), Session) or definition.process:
        return Interval(*definition.source.event_time_range)
    return Interval(plan.chunks[0].start_ms, max(chunk.halo_end_ms for chunk in plan.chunks))


def list_sampled_columns(definition: Definition, plan: Plan) -> list[str] | None:
    """Return the columns that the rows of a sample depend on, besides times and arrival order; None: all."""
    if reason_for_spark(definition, plan) is not None:
        return None
    aggregates = native_aggregates(definition, plan.columns)
    return [*definition.source.key, *(each.column for each in aggregates if each.column)]


def compute_sampled_rows(
    raw: RawInput, sample: KeySample, folder: Path, start_spark: Callable[[], SparkSession]
) -> pa.Table:
    """Return the rows that the run of a plan would publish for the sampled keys.

    The watermarks are those of the whole stream.

    Args:
        raw: the input of the plan.
        sample: the records of the keys.
        folder: a folder for temporary files.
        start_spark: starts Spark; it is called only if DuckDB cannot compute the rows.
    """
    if not sample.file.rows:
        return _read_rows(raw.plan, [])
    if reason_for_spark(raw.definition, raw.plan) is None:
        return _compute_here(raw, sample, folder)
    return _compute_on_spark(start_spark(), raw, sample, folder)


def _compute_here(raw: RawInput, sample: KeySample, folder: Path) -> pa.Table:
    """Compute the rows with one task of the native engine."""
    plan, definition, source = raw.plan, raw.definition, raw.definition.timed_source
    window, owned, read = definition.window.spec(), _owned_interval(plan), needed_span(definition, plan)
    assert not isinstance(window, Session)  # noqa: S101 - `reason_for_spark` has checked it
    aggregates, grid = native_aggregates(definition, plan.columns), WindowGrid.from_window(window, owned)
    suffixes = [suffix for suffix in (WINDOWS, PANES, DROPPED) if suffix in plan.tables]
    outputs = {suffix: _output(plan, suffix, folder) for suffix in suffixes}
    result = run_native_task(
        WindowTask(
            number=0,
            reading=sample.reading,
            grid=grid,
            keys=source.key,
            aggregates=aggregates,
            firing_times=_find_firing_times(raw, window, read) if plan.mode is Mode.REPLAY else None,
            chunks=ChunkGrid(owned.start_ms, owned.end_ms - owned.start_ms, 1),
            numbers=range(grid.count),
            stretch=read,
            files=[sample.file.path],
            windows=outputs[WINDOWS],
            panes=outputs.get(PANES),
            dropped=outputs.get(DROPPED),
            owned=owned,
            published=definition.backfill.publish,
            identity=Identity(),
            counts_path=str(folder / "counts.parquet"),
            memory_mb=_MEMORY_MB,
        )
    )
    written = result.written.get(WINDOWS)
    return _read_rows(plan, list(written.paths) if written else [])


def _owned_interval(plan: Plan) -> Interval:
    return Interval(plan.chunks[0].start_ms, plan.chunks[-1].end_ms)


def _output(plan: Plan, suffix: str, folder: Path) -> TaskOutput:
    columns = [(name, kind, field_id) for name, kind, field_id, _ in plan.tables[suffix].columns]
    return TaskOutput(str(folder / _LAYOUT / f"{suffix or 'windows'}.parquet"), columns, plan.run_id)


def _find_firing_times(raw: RawInput, window: FixedWindow, read: Interval) -> FiringTimes:
    """Return the firing times of all windows that start in an interval, from the arrival index."""
    plan, definition = raw.plan, raw.definition
    buckets = BucketGrid.from_window(window, definition.emission, definition.lateness.allowed)
    folder = IndexFolder.from_source(plan.home.path, plan.dataset, definition.read_by, buckets)
    index = extend_index_here(definition, plan.columns, plan.inputs, folder)
    clock = SourceClock(plan.clock_start_ms, definition.watermark.emit_interval, plan.clock_end_ms)
    grid = WindowGrid.from_window(window, read)
    return compute_firing_times(definition, index, buckets, grid, clock)


def _compute_on_spark(spark: SparkSession, raw: RawInput, sample: KeySample, folder: Path) -> pa.Table:
    """Compute the rows as one chunk that reads the sample; its watermarks are those of the plan's files."""
    from backstream.spark.chunk_group import ChunkGroup
    from backstream.spark.chunk_outputs import Stopwatch, compute_outputs, new_attempt
    from backstream.spark.user_functions import explain_function_errors, register_functions

    plan, owned = raw.plan, _owned_interval(raw.plan)
    halo_end_ms = max(chunk.halo_end_ms for chunk in plan.chunks)
    chunk = Chunk("0000", owned.start_ms, owned.end_ms, halo_end_ms, (0,), sample.file.rows)
    tables = {
        suffix: replace(table, location=str(folder / _LAYOUT / table.name))
        for suffix, table in plan.tables.items()
    }
    sampled = replace(
        plan, inputs=(sample.file,), chunks=(chunk,), tables=tables, home_location=str(folder), damaged=()
    )
    whole = ChunkGroup.from_plan(spark, plan, plan.chunks)
    group = replace(ChunkGroup.from_plan(spark, sampled, sampled.chunks), whole_stream=whole)
    register_functions(spark, group.definition)
    attempt = new_attempt(group)
    with explain_function_errors(group.definition, "in the preview"):
        outputs = compute_outputs(group, attempt, Stopwatch(lambda _: None))
    files = outputs.files.get(WINDOWS, {}).get(0, ())
    return _read_rows(plan, [file.path for file in files])


def _read_rows(plan: Plan, paths: list[str]) -> pa.Table:
    """Return the rows of files with the columns of the table of windows."""
    names = [name for name, *_ in plan.tables[WINDOWS].columns]
    if not paths:
        return pa.table({name: pa.nulls(0) for name in names})
    return pa.concat_tables([pq.ParquetFile(path).read(columns=names) for path in paths])
