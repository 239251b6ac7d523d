"""Read recorded events in native tasks, for their watermarks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from backstream.chunks.tasks import Tasks
from backstream.definition.model import Definition
from backstream.eventtime.emission import Topology
from backstream.eventtime.watermark_generators import StrategyKind, generator_factory
from backstream.native.cells import CellsTask, GeneratorTask
from backstream.native.expressions import Typed, list_columns, translate
from backstream.native.record_scans import column_alias, time_in_ms
from backstream.native.supported import read_spec, reason_not_readable
from backstream.native.task import TIMES, IndexTask, ReadSpec
from backstream.native.task_cuts import group_files_by_rows
from backstream.native.task_runner import run_cells_task, run_generator_task, run_index_task
from backstream.runs.plan import InputFile
from backstream.source.arrival_index import BucketGrid, join_index_rows
from backstream.watermarks.cells import timeline_of_maxima
from backstream.watermarks.streams import StreamPart, list_partitions
from backstream.watermarks.timeline import WatermarkTimeline
from backstream.watermarks.user_generators import OUTPUT, merge_outputs, require_end, require_no_error

_MIN_ROWS = 250_000
"""The number of rows up to which one task reads all files."""
_MIN_INDEX_ROWS = 1_000_000
"""The minimum number of rows that a task reads for the index."""
_MAX_CELLS = 20_000_000
"""The number of cells that the driver gets at once: some 640 MB."""


def reason_no_watermarks(definition: Definition, columns: Mapping[str, str]) -> str | None:
    """Return the reason why native tasks cannot read the watermarks of a stream; None if they can."""
    if reason := reason_not_readable(definition, columns):
        return reason
    if definition.marker and _find_marker_ms(definition, columns) is None:
        return f"watermark.marker is an expression of Spark: {definition.marker}"
    return None


def _find_marker_ms(definition: Definition, columns: Mapping[str, str]) -> str | None:
    """Return the watermark that a record carries in ms, in DuckDB's SQL; None if it has no translation."""
    if definition.marker is None:
        return "NULL::BIGINT"
    reading = _marker_spec(definition, columns)
    aliases = {name: Typed(column_alias(reading, name), kind) for name, kind in reading.types.items()}
    translated = translate(definition.marker, aliases)
    if translated is None or translated.type_name not in {*TIMES, "boolean"}:
        return None
    if translated.type_name in TIMES:
        return time_in_ms(translated.sql)
    return f"CASE WHEN {translated.sql} THEN event_ms - {definition.watermark.delay} END"


def _marker_spec(definition: Definition, columns: Mapping[str, str]) -> ReadSpec:
    """Return how to read the columns of watermarks."""
    names = [name for name in list_columns(definition.marker or "") if name in columns]
    return replace(read_spec(definition, columns, names), zone=None)  # watermarks are instants


@dataclass(frozen=True, slots=True)
class NativeReader:
    """A `StreamReader` with native tasks."""

    tasks: Tasks
    definition: Definition
    columns: Mapping[str, str]
    """The columns of the source, with their Spark SQL types."""

    @property
    def max_rows(self) -> int:
        """About how many cells fit into the driver."""
        return _MAX_CELLS

    def read_index(self, files: Sequence[InputFile], grid: BucketGrid) -> pa.Table:
        """Return the rows of the arrival index for some files."""
        reading = replace(read_spec(self.definition, self.columns), zone=None)
        memory_mb = self.tasks.memory_mb
        task_rows = max(_MIN_INDEX_ROWS, sum(file.rows for file in files) // (4 * self.tasks.slots))
        tasks = [IndexTask(reading, grid, paths, memory_mb) for paths in group_files_by_rows(files, task_rows)]
        return join_index_rows(files, pa.concat_tables(self.tasks.run(run_index_task, tasks)))

    def read_cells(self, part: StreamPart) -> pa.Table:
        """Return the cells of events; see `StreamReader`."""
        return pa.concat_tables(self.tasks.run(run_cells_task, list(self._plan(part))))

    def read_partitions(self, part: StreamPart) -> pa.Table:
        """Return the source partitions that have events."""
        one_block = replace(part, clock=replace(part.clock, interval_ms=0))
        return self.read_cells(one_block).select(["source_partition"])

    def read_timeline(self, part: StreamPart, expected: Iterable[str]) -> WatermarkTimeline:
        """Return the watermarks of any emission; see `StreamReader`.

        Raises:
            SpecError: when a custom generator can't be created, or fails at a record or tick.
        """
        if part.emission.strategy.kind is StrategyKind.CUSTOM:
            return self._run_generators(part, expected)
        cells = _join_cells(self.read_cells(part))
        partitions = list_partitions(expected, cells, part.emission)
        return timeline_of_maxima(cells, part.emission, part.clock, partitions)

    def _run_generators(self, part: StreamPart, expected: Iterable[str]) -> WatermarkTimeline:
        new_generator = generator_factory(part.emission.strategy)
        emission = part.emission.with_custom_generator()
        require_end(new_generator, emission, part.clock)
        (cells,) = self._plan(replace(part, emission=emission), tasks=1)
        names = sorted(self.read_partitions(part)["source_partition"].unique().to_pylist())
        is_joint = emission.topology is Topology.OPERATOR
        count = min(len(names), 1 if is_joint else self.tasks.slots)
        tasks = [GeneratorTask(cells, names[number::count], is_joint, new_generator) for number in range(count)]
        ran = self.tasks.run(run_generator_task, tasks, code=[part.emission.strategy.generator])
        outputs = pa.concat_tables([OUTPUT.empty_table(), *ran])  # without a readable record, there is no task
        require_no_error(outputs)
        return merge_outputs(
            outputs, emission, part.clock, list_partitions(expected, outputs, emission), new_generator
        )

    def _plan(self, part: StreamPart, tasks: int | None = None) -> Iterator[CellsTask]:
        marker_ms = _find_marker_ms(self.definition, self.columns)
        assert marker_ms is not None  # noqa: S101 - `reason_no_watermarks` has translated it
        reading = _marker_spec(self.definition, self.columns)
        for paths in _share_files(part.files, tasks or self.tasks.slots):
            yield CellsTask(
                reading,
                paths,
                part.clock,
                part.emission,
                self.tasks.memory_mb,
                part.blocks,
                part.buckets and pa.array(part.buckets.numbers),
                part.buckets.grid.arrival_width_ms if part.buckets else 0,
                marker_ms,
            )


def _share_files(files: Sequence[InputFile], tasks: int) -> list[list[str]]:
    """Return the paths of files for each task: in order of arrival, so that few blocks are in two tasks."""
    ordered = sorted(files, key=lambda file: (file.min_arrival_ms or 0, file.path))
    rows = sum(file.rows for file in ordered)
    return group_files_by_rows(ordered, max(-(-rows // tasks), _MIN_ROWS))


def _join_cells(cells: pa.Table) -> pa.Table:
    """Return one cell per partition and block, with the last of the positions, and the markers."""
    is_marker = pa.compute.is_valid(cells["marker_ms"])
    markers, found = cells.filter(is_marker), cells.filter(pa.compute.invert(is_marker))
    order = [(name, "ascending") for name in ("source_partition", "block", "arrival_time_ms", "arrival_seq")]
    joined = (
        found.sort_by(order)
        .group_by(["source_partition", "block"], use_threads=False)
        .aggregate([("event_time_ms", "max"), ("arrival_time_ms", "last"), ("arrival_seq", "last")])
    )
    joined = joined.rename_columns(
        ["source_partition", "block", "event_time_ms", "arrival_time_ms", "arrival_seq"]
    ).append_column("marker_ms", pa.nulls(joined.num_rows, pa.int64()))
    return pa.concat_tables([joined.select(cells.column_names), markers])
