"""Plan a run: choose its input files and chunks, and check them before any work starts."""

from __future__ import annotations

import logging
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from backstream import __version__
from backstream.definition.aggregates import key_columns, value_columns
from backstream.definition.loader import apply_overrides, load_definition, resolve_paths
from backstream.definition.model import Definition
from backstream.definition.source_section import Source
from backstream.errors import PlanError
from backstream.eventtime.instants import MAX_MS, MIN_MS, duration_text
from backstream.eventtime.intervals import Interval, LocalDays, backfill_range, require_range_of_days
from backstream.eventtime.seals import DaySeal
from backstream.eventtime.windows import Session
from backstream.lake.catalog import open_catalog_for_reading
from backstream.lake.ownership import TableOwner, list_former_tables, require_ownable
from backstream.lake.planned_tables import plan_element_ids, plan_tables
from backstream.lake.range_copies import plan_target
from backstream.lake.target_table import TargetTable
from backstream.native.supported import require_engine
from backstream.quality.suites import require_valid_suite
from backstream.runs.home import Home
from backstream.runs.plan import ArrivalOrder, Chunk, InputFile, Mode, Plan, PlannedTable, definition_id
from backstream.runs.table_schemas import (
    METRICS_TABLE,
    QUARANTINE_TABLE,
    WITHHELD_TABLE,
    Table,
    dropped_table,
    firings_table,
    panes_table,
    process_rows_table,
    side_outputs_table,
    skipped_windows_table,
    windows_table,
)
from backstream.source.arrival_index import ArrivalIndex, BucketGrid, IndexFolder, is_index_exact
from backstream.source.columns import SourceColumns, resolve_columns
from backstream.source.damaged_files import ReadableInputs, ReadRequest, split_damaged_files
from backstream.source.deliveries import find_day_seals, reason_with_unsealed, require_sealed_days
from backstream.source.files import SourceFiles, find_arrival_bounds, list_source_files
from backstream.source.footers import load_footers
from backstream.source.time_columns import Longs
from backstream.workflow.allowed_ranges import find_event_span, read_interval, require_range
from backstream.workflow.prepare import find_source_snapshots, summarize_preparation
from backstream.workflow.removed_files import find_removed_files, write_files_read

log = logging.getLogger(__name__)
_RENAMED = (
    "notice: %s now writes to the new table `%s`. Its previous table `%s` is kept and no longer updated\n"
    "  `%s` starts empty: it contains only the days that are run from now on"
)


@dataclass(frozen=True, slots=True)
class _RunScope:
    """The definition, mode and range of a run; `place` is the path of the definition for error messages."""

    definition: Definition
    mode: Mode
    interval: Interval
    place: str
    home: Home

    @property
    def is_final(self) -> bool:
        """Return whether the run publishes final results, which need sealed days."""
        return self.mode is Mode.RECOMPUTE or self.definition.backfill.publish == "final"


@dataclass(frozen=True, slots=True)
class _RunSource:
    """The input files of a run, the columns that it reads, and the arrival index of the files."""

    listed: SourceFiles
    files: ReadableInputs
    columns: SourceColumns
    index: ArrivalIndex

    @property
    def inputs(self) -> tuple[InputFile, ...]:
        """The files that the run reads."""
        return self.files.inputs


def plan_run(  # noqa: PLR0913 - keyword arguments, each an option of the command line
    definition_path: Path,
    since_ms: int,
    until_ms: int,
    *,
    mode: Mode | None = None,
    trigger: str,
    reason: str = "",
    is_unsealed_allowed: bool = False,
    overrides: Mapping[str, str] | None = None,
    gate_override: str = "",
    local_days: LocalDays | None = None,
    home: Home,
) -> Plan:
    """Make the plan of a run and write it to the run folder; the lake does not change.

    Args:
        definition_path: the TOML file.
        since_ms: first instant of the range; a UTC midnight.
        until_ms: first instant after the range; a UTC midnight.
        mode: replaces the mode of the definition.
        trigger: the origin of the run, such as an Airflow run id.
        reason: the user's reason for the run; the days that are not sealed are added.
        is_unsealed_allowed: whether the run may publish days as final that can still gain events.
        overrides: keys of the definition that have another value in this run; see `apply_overrides`.
        gate_override: the reason for publishing a result that fails the quality gate; empty: do not publish it.
        local_days: the days of a time zone that the user requested; the range covers them.
        home: the folder that holds all state.

    Raises:
        SpecError: when the definition or the range is wrong.
        RangeError: when no event can be in the range.
        PlanError: when the range has too many chunks, the source cannot be read, a day is not sealed, or the table
            in the lake does not fit or belongs to another definition.
        ContractError: when the type of a time column is not an instant.
    """
    interval = backfill_range(since_ms, until_ms)
    require_range_of_days(interval)
    written = load_definition(definition_path)
    mode = mode or written.backfill.mode
    definition = resolve_paths(apply_overrides(written, overrides or {}, mode), home)
    scope = _RunScope(definition, mode, interval, str(definition_path), home)
    require_valid_suite(definition.quality.suite, home.sound_suites)
    source = _load_source(scope)
    _require_plannable_range(scope, source)
    days = _find_seals(scope, source.inputs, is_unsealed_allowed=is_unsealed_allowed)
    clock_start_ms, clock_end_ms = _find_clock(scope, source.inputs)
    prepared = summarize_preparation(definition.source)
    owner = TableOwner(home, definition.name, definition_path.absolute(), definition.source.key)
    tables = _plan_tables(scope, owner, source.columns.types)
    plan = Plan(
        dataset=definition.name,
        definition=definition.model_dump(mode="json"),
        definition_hash=written.definition_hash,
        definition_path=str(owner.definition),
        planned_by_version=__version__,
        mode=mode,
        arrival_order=_arrival_order(definition.source),
        since_ms=since_ms,
        until_ms=until_ms,
        clock_start_ms=clock_start_ms,
        clock_end_ms=clock_end_ms,
        home=str(home.path),
        inputs=source.inputs,
        chunks=_cut_chunks(scope, source),
        tables=tables.planned,
        base_snapshots=tables.base_snapshots,
        element_ids=tables.element_ids,
        triggered_by=trigger,
        reason=reason_with_unsealed(reason, days),
        overrides=dict(overrides or {}),
        gate_override=gate_override,
        local_days=local_days,
        columns=source.columns.types,
        absent=source.columns.absent,
        ignored=source.listed.ignored,
        skipped=(*source.files.skipped, *prepared.skipped),
        prepared=prepared.counts,
        damaged=source.files.damaged,
        code={code.target: code.source_hash() for code in definition.user_code},
        gone=find_removed_files(home, definition.name, definition.source, source.listed.paths, interval),
        source_snapshots=find_source_snapshots(definition.source),
        side_inputs=prepared.side_inputs,
    )
    plan.write()
    write_files_read(plan)
    return plan


def _load_source(scope: _RunScope) -> _RunSource:
    """Read the footers of the source's files, and check that the engine can read their columns."""
    definition, place = scope.definition, scope.place
    listed = list_source_files(definition.source, place)
    footers = load_footers(listed, definition, scope.home).inspect()
    reach = read_interval(scope.interval, definition)
    files = split_damaged_files(footers, ReadRequest(definition, scope.mode, reach, place), scope.home)
    columns = resolve_columns(footers.shapes, definition, place)
    require_engine(definition, columns.types, place)
    return _RunSource(listed, files, columns, _load_index(scope, files.inputs))


def _load_index(scope: _RunScope, inputs: Sequence[InputFile]) -> ArrivalIndex:
    """Return the index that earlier runs wrote; empty before the first run, and if the definition has no index."""
    definition = scope.definition
    window, emission = definition.window.spec(), definition.emission
    if isinstance(window, Session) or scope.mode is Mode.RECOMPUTE or not is_index_exact(emission):
        return ArrivalIndex.empty()
    buckets = BucketGrid.from_window(window, emission, definition.lateness.allowed)
    folder = IndexFolder.from_source(scope.home.path, definition.name, definition.read_by, buckets)
    return ArrivalIndex.from_folder(folder, inputs)


def _require_plannable_range(scope: _RunScope, source: _RunSource) -> None:
    """Check that the range can have events, and that one plan can hold its chunks."""
    definition = scope.definition
    allowed = Interval(*definition.source.event_time_range)
    events = find_event_span(source.inputs, allowed, source.index.spans())
    require_range(definition, scope.interval, events, scope.place, scope.home)
    _require_few_chunks(scope)


def _require_few_chunks(scope: _RunScope) -> None:
    """Check, before any chunk is made, that the range has at most `backfill.max_chunks` chunks.

    Raises:
        PlanError: with the number of chunks and the settings to change.
    """
    length_ms, backfill = scope.interval.end_ms - scope.interval.start_ms, scope.definition.backfill
    count = -(-length_ms // backfill.chunk)
    if count > backfill.max_chunks:
        enough_ms = -(-length_ms // backfill.max_chunks // backfill.chunk) * backfill.chunk
        msg = (
            f"cannot plan {scope.interval}: it has {count:,} chunks of {duration_text(backfill.chunk)},"
            f" backfill.max_chunks is {backfill.max_chunks:,} ({scope.place})\n\n"
            f"hint: request a shorter range, set backfill.chunk to {duration_text(enough_ms)} or more, or raise"
            " backfill.max_chunks"
        )
        raise PlanError(msg)


def _find_seals(scope: _RunScope, inputs: Sequence[InputFile], *, is_unsealed_allowed: bool) -> list[DaySeal]:
    """Return the seals of the range's days; empty unless the run publishes final results.

    Raises:
        PlanError: when a day is not sealed, unless that is allowed.
    """
    if not scope.is_final:
        return []
    days = find_day_seals(scope.definition, inputs, scope.interval, scope.home)
    if not is_unsealed_allowed:
        require_sealed_days(scope.definition, days, scope.place)
    return days


def _find_clock(scope: _RunScope, inputs: Sequence[InputFile]) -> tuple[int, int]:
    """Return when the stream's source was opened and when its input ended, in epoch milliseconds.

    These are the first and the last arrival; `watermark.clock_start` replaces the first. A recompute has no clock.
    """
    if scope.mode is Mode.RECOMPUTE:
        return 0, 0
    definition = scope.definition
    if definition.source.arrival_time is None:
        msg = (
            f"cannot replay {definition.name}: source.arrival_time is missing, so the arrival order is unknown"
            f" ({scope.place})\n\n"
            "hint: use the mode recompute, or set source.arrival_time to the column with the arrival time"
        )
        raise PlanError(msg)
    bounds = find_arrival_bounds(inputs)
    if bounds is None:
        msg = (
            f"cannot replay {definition.name}: the input files have no arrival times ({scope.place})\n"
            f"  source.arrival_time is {definition.source.arrival_time!r}\n\n"
            "hint: it must be a timestamp column whose Parquet footers have min and max"
        )
        raise PlanError(msg)
    first_ms, last_ms = bounds
    start_ms = definition.watermark.clock_start
    return (first_ms if start_ms is None else start_ms), last_ms


class _RunTables(NamedTuple):
    """The tables that a run writes, their current snapshots, and the field ids of list elements, by suffix."""

    planned: dict[str, PlannedTable]
    base_snapshots: dict[str, int | None]
    element_ids: dict[str, dict[str, int]]


def _plan_tables(scope: _RunScope, owner: TableOwner, types: Mapping[str, str]) -> _RunTables:
    """Return the tables that the run writes; nothing is created.

    Raises:
        PlanError: when a table does not fit or belongs to another definition.
    """
    name = scope.definition.name
    with open_catalog_for_reading(scope.home) as catalog:
        require_ownable(catalog, owner)
        for former in list_former_tables(catalog, owner):
            log.warning(_RENAMED, scope.place, name, former, name)
        wanted = _list_tables(scope.definition, types, scope.mode)
        planned, bases = plan_tables(catalog, name, wanted)
        if section := scope.definition.publish:
            target, writer = TargetTable(**section.model_dump()), definition_id(owner.definition)
            bases |= plan_target(catalog, target, wanted[0].columns, writer)
        return _RunTables(planned, bases, plan_element_ids(catalog, name, wanted))


def _list_tables(definition: Definition, types: Mapping[str, str], mode: Mode) -> list[Table]:
    keys, values = key_columns(definition, types), value_columns(definition, types)
    if definition.process:
        rows = [process_rows_table(keys, values), side_outputs_table(keys), skipped_windows_table(keys)]
        return [*rows, METRICS_TABLE, QUARANTINE_TABLE]
    tables = [windows_table(keys, values), METRICS_TABLE, QUARANTINE_TABLE]
    tables += [WITHHELD_TABLE] if definition.having else []
    tables += [skipped_windows_table(keys)] if definition.job else []
    if mode is Mode.REPLAY:
        tables += [panes_table(keys, values), dropped_table(keys)]
        tables += [firings_table(keys, values)] if definition.backfill.keep_firings else []
    return tables


def _arrival_order(source: Source) -> ArrivalOrder:
    if source.arrival_time is None:
        return ArrivalOrder.UNKNOWN
    return ArrivalOrder.RECORDED if source.partition and source.sequence else ArrivalOrder.TIES_BROKEN


def _cut_chunks(scope: _RunScope, source: _RunSource) -> tuple[Chunk, ...]:
    """Cut the range into chunks, each with its input files and its expected number of events."""
    inputs, index = source.inputs, source.index
    intervals = list(scope.interval.cut(scope.definition.backfill.chunk))
    width = max(4, len(str(len(intervals))))
    # The index has no times of unreadable records, so the footers decide which chunks read their files.
    by_footer = {file.path for file in index.list_unindexed(inputs)} | index.paths_without_times()
    bounds, positions = _FileBounds.from_inputs(inputs, by_footer), {file.path: n for n, file in enumerate(inputs)}

    def chunk(number: int, interval: Interval) -> Chunk:
        reach = read_interval(interval, scope.definition)
        counted = {path: events for path, events in index.events_in(reach).items() if path not in by_footer}
        indexed = [positions[path] for path in counted if path in positions]
        files = tuple(sorted([*bounds.overlapping(reach), *indexed]))
        expected = sum(
            estimate_events(file, interval) if file.path in by_footer else counted[file.path]
            for file in (inputs[position] for position in files)
        )
        return Chunk(f"{number:0{width}}", interval.start_ms, interval.end_ms, reach.end_ms, files, expected)

    return tuple(chunk(number, interval) for number, interval in enumerate(intervals))


class _FileBounds(NamedTuple):
    """The event times of files by their footers, as arrays: thousands of chunks look up thousands of files."""

    positions: Longs
    first_ms: Longs
    last_ms: Longs

    @classmethod
    def from_inputs(cls, inputs: Sequence[InputFile], paths: Container[str]) -> _FileBounds:
        """Return the bounds of the files with these paths; a file without bounds may hold any event."""
        files = [(position, file) for position, file in enumerate(inputs) if file.rows and file.path in paths]
        is_bounded = [file.min_event_ms is not None and file.max_event_ms is not None for _, file in files]
        first = [
            file.min_event_ms if known else MIN_MS for (_, file), known in zip(files, is_bounded, strict=True)
        ]
        last = [file.max_event_ms if known else MAX_MS for (_, file), known in zip(files, is_bounded, strict=True)]
        positions = [position for position, _ in files]
        return cls(*(np.array(values, dtype=np.int64) for values in (positions, first, last)))

    def overlapping(self, interval: Interval) -> list[int]:
        """Return the positions of the files that may hold an event of the interval."""
        is_near = (self.first_ms < interval.end_ms) & (self.last_ms >= interval.start_ms)
        return [int(position) for position in self.positions[is_near]]


def estimate_events(file: InputFile, interval: Interval) -> int:
    """Return the number of a file's rows in an interval, as if they were spread evenly over its event times."""
    if file.min_event_ms is None or file.max_event_ms is None:
        return file.rows
    span_ms = file.max_event_ms + 1 - file.min_event_ms
    overlap_ms = min(interval.end_ms, file.max_event_ms + 1) - max(interval.start_ms, file.min_event_ms)
    return file.rows * max(0, overlap_ms) // span_ms
