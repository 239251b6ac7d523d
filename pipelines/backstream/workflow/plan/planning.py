"""Plan a run: choose its input files and chunks, and check them before any work starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from backstream import __version__
from backstream.definition.loader import (
    apply_overrides,
    load_definition,
    reason_against_mode,
    resolve_paths,
    resolve_raw_paths,
)
from backstream.definition.prepared import reads_prepared_files
from backstream.definition.source_section import Source
from backstream.errors import PlanError, SpecError
from backstream.eventtime.intervals import LocalDays, backfill_range, require_range_of_days
from backstream.eventtime.seals import DaySeal
from backstream.eventtime.time_zones import tzdata_version
from backstream.eventtime.windows import Session
from backstream.lake.publication.ownership import TableOwner
from backstream.native.supported import require_engine
from backstream.quality.suites import require_valid_suite
from backstream.runs.input_files import EQUAL_TO, FileList, ImplausibleTimes
from backstream.runs.plan import ArrivalOrder, InputFile, Mode, Plan
from backstream.source.arrival_index import ArrivalIndex, BucketGrid, IndexFolder
from backstream.source.columns import SourceColumns, resolve_columns
from backstream.source.damaged_files import ReadableInputs, ReadRequest, split_damaged_files
from backstream.source.deliveries import find_day_seals, reason_with_unsealed, require_sealed_days
from backstream.source.equal_files import counts_equal_files_twice, find_equal_files
from backstream.source.files import SourceFiles, find_arrival_bounds, list_source_files
from backstream.source.footers import load_footers
from backstream.source.implausible_times import find_implausible_times
from backstream.text import text_logger
from backstream.workflow.inputs.prepare import find_source_snapshots, require_prepared, summarize_preparation
from backstream.workflow.plan.allowed_ranges import find_event_span, needed_times, read_interval, require_range
from backstream.workflow.plan.chunk_plan import cut_chunks, require_few_chunks
from backstream.workflow.plan.job_logs import require_sound_job
from backstream.workflow.plan.other_definitions import describe_other_definitions
from backstream.workflow.plan.plan_request import PlanRequest, RunScope
from backstream.workflow.plan.removed_files import find_removed_files, write_files_read
from backstream.workflow.plan.run_tables import plan_run_tables
from backstream.workflow.plan.shared_home import (
    require_native_tasks,
    require_runner,
    require_stored_source,
    require_stored_tables,
)

log = text_logger(__name__)


@dataclass(frozen=True, slots=True)
class _RunSource:
    """The input files of a run, the columns that it reads, the arrival index, and the implausible times."""

    listed: SourceFiles
    files: ReadableInputs
    columns: SourceColumns
    index: ArrivalIndex
    implausible: tuple[ImplausibleTimes, ...]

    @property
    def inputs(self) -> tuple[InputFile, ...]:
        """The files that the run reads."""
        return self.files.inputs


def plan_run(request: PlanRequest) -> Plan:
    """Make the plan of a run and write it to the run folder; the lake does not change.

    Raises:
        BackstreamError: as `compose_plan` does.
    """
    plan = compose_plan(request)
    plan.write()
    write_files_read(plan)
    for notice in describe_other_definitions(plan, request.home):
        log.warning("%s", notice)
    return plan


def compose_plan(request: PlanRequest) -> Plan:
    """Return the plan of a run; nothing is written.

    Raises:
        SpecError: when the definition or the range is wrong.
        RangeError: when no event can be in the range.
        PlanError: when the range has too many chunks, the source cannot be read, a day is not sealed, or the table
            in the lake does not fit or belongs to another definition.
        ContractError: when the type of a time column is not an instant.
    """
    interval = backfill_range(request.interval.start_ms, request.interval.end_ms)
    require_range_of_days(interval)
    written = load_definition(request.definition)
    mode = request.mode or written.backfill.mode
    overridden = apply_overrides(written, request.overrides, mode)
    require_stored_source(resolve_raw_paths(overridden, request.home), request.home, str(request.definition))
    definition = resolve_paths(overridden, request.home)
    scope = RunScope(definition, overridden, mode, interval, str(request.definition), request.home)
    _require_one_time_zone(scope, request.local_days)
    require_valid_suite(definition.quality.suite, request.home.sound_suites)
    require_prepared(definition.source, needed_times(interval, definition, mode), scope.place)
    source = _load_source(scope)
    _require_plannable_range(scope, source)
    return _to_plan(request, scope, source, written.definition_hash)


def _require_one_time_zone(scope: RunScope, local_days: LocalDays | None) -> None:
    """Check that the days of a range are those of the windows.

    Raises:
        SpecError: when the range has the days of a time zone, and the windows have another local time.
    """
    zone = scope.definition.window.spec().zone
    if zone and local_days:
        msg = (
            f"cannot plan {local_days}: days of {scope.definition.name} are days in {zone.name}"
            f" ({scope.place}, window.time_zone)\n\nhint: leave the time zone of the range out"
        )
        raise SpecError(msg)


def _to_plan(request: PlanRequest, scope: RunScope, source: _RunSource, definition_hash: str) -> Plan:
    """Return the plan of a range that can be planned; its seals, clock, and tables are checked first."""
    definition, interval = scope.definition, scope.interval
    days = _find_seals(scope, source.inputs, is_unsealed_allowed=request.is_unsealed_allowed)
    clock_start_ms, clock_end_ms = _find_clock(scope, source)
    prepared = summarize_preparation(definition.source)
    owner = TableOwner(scope.home, definition.name, request.definition.absolute(), definition.source.key)
    tables = plan_run_tables(scope, owner, source.columns.types)
    require_stored_tables(definition, tables.planned, scope.home, scope.place)
    return Plan(
        dataset=definition.name,
        definition=definition.model_dump(mode="json"),
        definition_hash=definition_hash,
        definition_path=str(owner.definition),
        planned_by_version=__version__,
        mode=scope.mode,
        arrival_order=_arrival_order(definition.source),
        since_ms=interval.start_ms,
        until_ms=interval.end_ms,
        clock_start_ms=clock_start_ms,
        clock_end_ms=clock_end_ms,
        home_location=scope.home.location,
        inputs=source.inputs,
        chunks=cut_chunks(scope, source.inputs, source.index),
        tables=tables.planned,
        base_snapshots=tables.base_snapshots,
        base_files=tables.base_files,
        element_ids=tables.element_ids,
        triggered_by=request.trigger,
        reason=reason_with_unsealed(request.reason, days),
        overrides=dict(request.overrides),
        gate_override=request.gate_override,
        local_days=request.local_days,
        time_zone_data=tzdata_version() if definition.window.spec().zone else "",
        columns=source.columns.types,
        absent=source.columns.absent,
        ignored=source.listed.ignored or prepared.listing.ignored,
        skipped=(*source.files.skipped, *prepared.skipped),
        prepared=prepared.counts,
        damaged=source.files.damaged,
        code={code.target: code.source_hash() for code in definition.user_code},
        removed=_find_removed_files(scope, source),
        unopened=prepared.listing.unopened,
        equal_files=_find_equal_files(definition.source, source.inputs, prepared.listing.equal_files),
        misplaced=prepared.misplaced,
        inexact=prepared.inexact,
        implausible=source.implausible,
        source_snapshots=find_source_snapshots(definition.source),
        side_inputs=prepared.side_inputs,
    )


def _find_removed_files(scope: RunScope, source: _RunSource) -> FileList:
    files = dict.fromkeys(source.listed.paths) | {file.path: file for file in source.inputs}
    return find_removed_files(scope.home, scope.definition.name, scope.definition.source, files, scope.interval)


def _find_equal_files(source: Source, inputs: Sequence[InputFile], found: Mapping[str, str]) -> FileList:
    """Return the files with the content of another one: those that preparation found, or those of the inputs."""
    if not (reads_prepared_files(source) or find_source_snapshots(source)) and counts_equal_files_twice(source):
        # Files of other shapes have other content, so few files are read.
        sizes = {file.path: replace(file, path="", modified_ms=0) for file in inputs if file.rows}
        found = find_equal_files(sizes, "parquet")
    return FileList.from_paths(f"{path}{EQUAL_TO}{first}" for path, first in found.items())


def _load_source(scope: RunScope) -> _RunSource:
    """Read the footers of the source's files, and check that the engine can read their columns."""
    definition, place = scope.definition, scope.place
    listed = list_source_files(definition.source, place)
    footers = load_footers(listed, definition, scope.home).inspect()
    reach = definition.source.identity.reach(read_interval(scope.interval, definition))
    files = split_damaged_files(footers, ReadRequest(definition, scope.mode, reach, place), scope.home)
    columns = resolve_columns(footers.shapes, definition, place)
    require_engine(definition, columns.types, place)
    require_runner(definition, scope.mode, columns.types, listed, place)
    require_native_tasks(definition, scope.mode, columns.types, listed, scope.home, place)
    implausible = find_implausible_times(scope.raw, definition.source.paths, files.inputs, footers.times)
    return _RunSource(listed, files, columns, _load_index(scope, files.inputs), implausible)


def _load_index(scope: RunScope, inputs: Sequence[InputFile]) -> ArrivalIndex:
    """Return the index that earlier runs wrote; empty before the first run, and if the definition has no index."""
    definition = scope.definition
    window, emission = definition.window.spec(), definition.emission
    if isinstance(window, Session) or scope.mode is Mode.RECOMPUTE or not definition.is_in_index:
        return ArrivalIndex.empty()
    buckets = BucketGrid.from_window(window, emission, definition.lateness.allowed)
    folder = IndexFolder.from_source(scope.home.path, definition.name, definition.read_by, buckets)
    return ArrivalIndex.from_folder(folder, inputs)


def _require_plannable_range(scope: RunScope, source: _RunSource) -> None:
    """Check that the range can have events, and that one plan can hold its chunks."""
    definition = scope.definition
    allowed = definition.valid_times
    events = find_event_span(source.inputs, allowed, source.index.spans())
    notes = tuple(map(str, source.implausible))
    require_range(definition, scope.interval, events, scope.place, scope.home, notes)
    require_few_chunks(scope)
    require_sound_job(scope)


def _find_seals(scope: RunScope, inputs: Sequence[InputFile], *, is_unsealed_allowed: bool) -> list[DaySeal]:
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


def _find_clock(scope: RunScope, source: _RunSource) -> tuple[int, int]:
    """Return when the stream's source was opened and when its input ended, in epoch milliseconds.

    These are the first and the last arrival; `watermark.clock_start` replaces the first. A recompute has no clock.
    """
    if scope.mode is Mode.RECOMPUTE:
        return 0, 0
    definition = scope.definition
    if reason := reason_against_mode(definition, scope.mode):
        msg = (
            f"cannot replay {definition.name}: {reason} ({scope.place})\n\n"
            "hint: use the mode recompute, or set source.arrival_time to the column with the arrival time"
        )
        raise PlanError(msg, "mode")
    bounds = find_arrival_bounds(source.inputs)
    if bounds is None and source.implausible:  # a footer has no bounds after the year 9999
        msg = f"cannot replay {definition.name}: an arrival time is not in the years 1 to 9999 ({scope.place})"
        raise PlanError(msg + "".join(f"\n  {times}" for times in source.implausible), "mode")
    if bounds is None:
        msg = (
            f"cannot replay {definition.name}: the input files have no arrival times ({scope.place})\n"
            f"  source.arrival_time is {definition.source.arrival_time!r}\n\n"
            "hint: it must be a timestamp column whose Parquet footers have min and max"
        )
        raise PlanError(msg, "mode")
    first_ms, last_ms = bounds
    if definition.watermark.batches:
        return first_ms - 1, last_ms  # the watermark of the first batch is known before its records
    start_ms = definition.watermark.clock_start
    return (first_ms if start_ms is None else start_ms), last_ms


def _arrival_order(source: Source) -> ArrivalOrder:
    if source.arrival_time is None:
        return ArrivalOrder.UNKNOWN
    return ArrivalOrder.RECORDED if source.partition and source.sequence else ArrivalOrder.TIES_BROKEN
