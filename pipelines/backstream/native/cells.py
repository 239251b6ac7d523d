"""Reduce the records of files to what their watermarks need, in a native task.

    records of partition a     arrival 10:00:07, 10:00:11, 10:00:19      event 10:00:02, 10:00:09, 10:00:04
    ticks every 10 s           block 0: 10:00:02                         block 1: 10:00:09
    with markers               also each record that raises the maximum of its partition

`watermarks.cells` computes watermarks from cells. A custom generator needs all records of its partition instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from backstream.eventtime.emission import Emission
from backstream.eventtime.instants import MIN_MS
from backstream.eventtime.records import SourceClock
from backstream.eventtime.watermark_generators import WatermarkGenerator
from backstream.native.record_scans import scan_query
from backstream.native.records import group_files_by_schema
from backstream.native.sql import PARTITION_TEXT, floor_to_step, quote_text
from backstream.native.task import ReadSpec
from backstream.native.task_disk import TaskDisk
from backstream.watermarks.user_generators import run_generators

if TYPE_CHECKING:
    import duckdb

_POSITION = ("arrival_time_ms", "arrival_seq")


@dataclass(frozen=True, slots=True)
class CellsTask:
    """A task that returns the cells of files, and the markers of an emission that needs them.

    With `buckets`, only the records of these arrival buckets are read; `bucket_ms` is their length. `marker_ms` is
    the watermark that a record carries in ms, in SQL over the aliases of the records.
    """

    reading: ReadSpec
    files: Sequence[str]
    clock: SourceClock
    emission: Emission
    memory_mb: int
    blocks: range | None = None
    buckets: pa.Array | None = None
    bucket_ms: int = 0
    marker_ms: str = "NULL::BIGINT"

    def __str__(self) -> str:
        return f"the watermarks of {len(self.files)} files ({', '.join(self.files[:3])} ...)"


@dataclass(frozen=True, slots=True)
class GeneratorTask:
    """A task that runs a custom generator for each of some partitions; with `is_joint` one for all of them.

    The marker of a record is found as in `cells`.
    """

    cells: CellsTask
    partitions: Sequence[str]
    is_joint: bool
    new_generator: Callable[[], WatermarkGenerator]

    def __str__(self) -> str:
        return f"the custom watermarks of {len(self.partitions)} source partitions"


def read_task_cells(task: CellsTask, disk: TaskDisk, database: duckdb.DuckDBPyConnection) -> pa.Table:
    """Return the cells of a task; the markers are in the same table, with `marker_ms`."""
    records = _records(task, disk, database)
    greatest = f"{PARTITION_TEXT} AS source_partition, block, max(event_time_ms) AS event_time_ms"
    if task.emission.is_mergeable:
        return database.sql(f"SELECT {greatest} FROM ({records}) GROUP BY ALL").to_arrow_table()
    cells = (
        f"SELECT source_partition, block, event_time_ms, position[1] AS arrival_time_ms,"
        f" position[2] AS arrival_seq, NULL::BIGINT AS marker_ms"
        f" FROM (SELECT {greatest}, max([{', '.join(_POSITION)}]) AS position FROM ({records}) GROUP BY 1, 2)"
    )
    marked = _with_raises(task.emission, records) if task.emission.emits_at_raises else records
    markers = (
        f"SELECT {PARTITION_TEXT} AS source_partition, block, event_time_ms, arrival_time_ms, arrival_seq,"
        f" marker_ms FROM ({marked}) WHERE marker_ms IS NOT NULL"
    )
    return database.sql(f"{cells} UNION ALL {markers}").to_arrow_table()


def run_task_generators(task: GeneratorTask, disk: TaskDisk, database: duckdb.DuckDBPyConnection) -> pa.Table:
    """Return the output of the generators of a task."""
    records = _records(task.cells, disk, database)
    outputs = []
    for partitions in [task.partitions] if task.is_joint else [[name] for name in task.partitions]:
        texts = ", ".join(map(quote_text, partitions))
        rows = database.sql(
            f"SELECT {PARTITION_TEXT} AS source_partition, arrival_time_ms, arrival_seq, event_time_ms, marker_ms"
            f" FROM ({records}) WHERE {PARTITION_TEXT} IN ({texts})"
        ).to_arrow_table()
        outputs.append(run_generators(rows, task.new_generator, task.cells.emission, task.cells.clock))
    return pa.concat_tables(outputs)


def _records(task: CellsTask, disk: TaskDisk, database: duckdb.DuckDBPyConnection) -> str:
    """Return a query of partition, position, event time, block, and marker of the records of a task."""
    groups = group_files_by_schema(disk.fetch(task.files, [*task.reading.types]), task.reading)
    block = _block(task.clock)
    columns = (
        "source_partition, arrival_ms AS arrival_time_ms, arrival_seq, event_ms AS event_time_ms,"
        f" {block} AS block, {task.marker_ms} AS marker_ms"
    )
    conditions = []
    if task.blocks is not None:
        conditions.append(f"block >= {task.blocks.start} AND block < {task.blocks.stop}")
    if task.buckets is not None:
        database.register("kept_buckets", pa.table({"bucket": task.buckets}))
        bucket = f"{floor_to_step('arrival_time_ms', 0, task.bucket_ms)} // {task.bucket_ms}"
        conditions.append(f"{bucket} IN (SELECT bucket FROM kept_buckets)")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"SELECT * FROM (SELECT {columns} FROM ({scan_query(groups, task.reading)})){where}"


def _block(clock: SourceClock) -> str:
    """Return `SourceClock.ticks_before` of the arrival."""
    if not clock.interval_ms:
        return "0::BIGINT"
    return f"greatest(least(arrival_ms, {clock.end_ms}) - {clock.start_ms}, 0) // {clock.interval_ms}"


def _with_raises(emission: Emission, records: str) -> str:
    """Return the records with the watermark of those that raise the greatest event time of their partition.

    A task may have some of the records only. Then a record can be marked that raises nothing; its watermark has no
    effect. With an idle timeout, the first record of a block is marked too: it may end idleness. The operator of
    Flink SQL emits only for a record more than an interval ahead of all that its last emission has seen.
    """
    arrived = "PARTITION BY source_partition ORDER BY arrival_time_ms, arrival_seq"
    so_far = f"max(event_time_ms) OVER ({arrived} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    is_marker = f"event_time_ms > coalesce({so_far}, {MIN_MS})"
    if emission.is_assigner:
        periods = f"PARTITION BY source_partition ORDER BY block // {emission.ticks_per_emission}"
        seen = f"max(event_time_ms) OVER ({periods} RANGE BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
        is_marker += f" AND event_time_ms > coalesce({seen}, {MIN_MS}) + {emission.strategy.interval_ms}"
    elif emission.strategy.idle_timeout_ms:
        is_marker += f" OR coalesce(lag(block) OVER ({arrived}) != block, true)"
    watermark_ms = f"event_time_ms - {emission.delay_ms} - 1"
    return f"SELECT * REPLACE (CASE WHEN {is_marker} THEN {watermark_ms} END AS marker_ms) FROM ({records})"
