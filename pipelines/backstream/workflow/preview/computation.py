"""Compute the rows of sampled keys with DuckDB in this process, or on Spark if DuckDB cannot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from backstream.chunks.engine_choice import reason_for_spark
from backstream.chunks.group import ChunkGroup
from backstream.chunks.native_engine import Engine, NativeEngine, Stopwatch, new_attempt
from backstream.chunks.threads import Threads
from backstream.definition.model import Definition
from backstream.eventtime.intervals import Interval
from backstream.eventtime.windows import Session
from backstream.native.database import open_database
from backstream.native.key_sample import KeySample
from backstream.native.raw_input import RawInput
from backstream.native.sql import ICEBERG_TYPES, quote_name
from backstream.native.supported import native_aggregates
from backstream.native.task import ReadSpec
from backstream.runs.plan import Chunk, Plan
from backstream.runs.table_schemas import WINDOWS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


StartSpark = Callable[[str], "SparkSession"]
"""Returns a session; receives the reason why it is needed."""
_MEMORY_MB = 256
_LAYOUT = "tables"


def needed_span(definition: Definition, plan: Plan) -> Interval:
    """Return the event times that the rows of a plan depend on; sessions and processes have no fixed reach."""
    if isinstance(definition.window.spec(), Session) or definition.process:
        return definition.valid_times
    return Interval(plan.chunks[0].start_ms, max(chunk.halo_end_ms for chunk in plan.chunks))


def list_sampled_columns(definition: Definition, plan: Plan) -> list[str] | None:
    """Return the columns that the rows of a sample depend on, besides times and arrival order; None: all."""
    if reason_for_spark(definition, plan.columns, plan.mode) is not None:
        return None
    aggregates = native_aggregates(definition, plan.columns)
    condition = [definition.filter.where] if definition.filter else []
    return [*definition.source.key, *condition, *(each.column for each in aggregates if each.column)]


def compute_sampled_rows(raw: RawInput, sample: KeySample, folder: Path, start_spark: StartSpark) -> pa.Table:
    """Return the rows that the run of a plan would publish for the sampled keys.

    The watermarks are those of the whole stream.

    Args:
        raw: the input of the plan.
        sample: the records of the keys.
        folder: a folder for temporary files.
        start_spark: starts Spark for a reason; it is called only if DuckDB cannot compute the rows.
    """
    if not sample.file.rows:
        return _read_rows(raw.plan, [])
    reason = reason_for_spark(raw.definition, raw.plan.columns, raw.plan.mode)
    if reason is None:
        return _compute(NativeEngine(Threads()), raw, sample, folder)
    from backstream.spark.engine import SparkEngine

    return _compute(SparkEngine(start_spark(reason)), raw, sample, folder)


def _owned_interval(plan: Plan) -> Interval:
    return Interval(plan.chunks[0].start_ms, plan.chunks[-1].end_ms)


def _compute(engine: Engine, raw: RawInput, sample: KeySample, folder: Path) -> pa.Table:
    """Compute the rows as one chunk that reads the sample; its watermarks are those of the plan's files."""
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
    whole = ChunkGroup.from_plan(plan, plan.chunks)
    group = replace(ChunkGroup.from_plan(sampled, sampled.chunks), whole_stream=whole)
    group = replace(group, definition=_with_read_columns(group.definition, sample.reading))
    attempt = new_attempt(group)
    with engine.explain_errors(group, attempt):
        outputs = engine.compute(group, attempt, Stopwatch(lambda _: None))
    files = outputs.files.get(WINDOWS, {}).get(0, ())
    return _read_rows(plan, [file.path for file in files])


def _with_read_columns(definition: Definition, reading: ReadSpec) -> Definition:
    """Return a definition without the columns that the sample lacks: a recompute needs no arrival order."""
    arrival = None if reading.arrival_time == reading.event_time else definition.source.arrival_time
    columns = {"arrival_time": arrival, "partition": reading.partition, "sequence": reading.sequence}
    return definition.model_copy(update={"source": definition.source.model_copy(update=columns)})


def _read_rows(plan: Plan, paths: list[str]) -> pa.Table:
    """Return the rows of files with the columns of the table of windows."""
    columns = {name: kind for name, kind, *_ in plan.tables[WINDOWS].columns}
    if not paths:
        values = (f"NULL::{ICEBERG_TYPES.get(kind, kind)} AS {quote_name(name)}" for name, kind in columns.items())
        with open_database(_MEMORY_MB) as database:
            return database.sql(f"SELECT {', '.join(values)} LIMIT 0").to_arrow_table()
    tables = [pq.ParquetFile(path).read(columns=list(columns)) for path in paths]
    # A file may have no null in a column that can have one.
    nullable = [pa.schema([field.with_nullable(nullable=True) for field in table.schema]) for table in tables]
    return pa.concat_tables(table.cast(schema) for table, schema in zip(tables, nullable, strict=True))
