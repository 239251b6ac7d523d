"""Planning: which files, in which chunks, against which state of the lake; checked before any work."""

from __future__ import annotations

import logging
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from backstream import __version__
from backstream.definition.aggregates import key_columns, value_columns
from backstream.definition.loader import apply_overrides, load_definition, resolve_paths
from backstream.definition.model import Definition, Source
from backstream.errors import PlanError
from backstream.eventtime.instants import MAX_MS, MIN_MS, duration_text
from backstream.eventtime.intervals import Interval, LocalDays, backfill_range, require_whole_days
from backstream.eventtime.windows import Session
from backstream.lake.catalog import open_catalog_for_reading
from backstream.lake.ownership import TableOwner, list_former_tables, require_ownable
from backstream.lake.planned_tables import plan_tables
from backstream.native.supported import require_engine
from backstream.quality.suites import require_valid_suite
from backstream.runs.home import Home
from backstream.runs.plan import ArrivalOrder, Chunk, InputFile, Mode, Plan
from backstream.runs.table_schemas import (
    METRICS_TABLE,
    QUARANTINE_TABLE,
    Table,
    dropped_table,
    firings_table,
    panes_table,
    windows_table,
)
from backstream.source.arrival_index import ArrivalIndex, BucketGrid, IndexFolder, is_index_exact
from backstream.source.columns import resolve_columns
from backstream.source.damaged_files import ReadRequest, split_damaged_files
from backstream.source.deliveries import find_day_seals, reason_with_unsealed, require_sealed_days
from backstream.source.files import find_arrival_bounds, list_source_files
from backstream.source.footers import load_footers
from backstream.source.time_columns import Longs
from backstream.workflow.allowed_ranges import find_event_span, read_interval, require_range
from backstream.workflow.removed_files import find_removed_files, write_files_read

log = logging.getLogger(__name__)
_RENAMED = (
    "notice: %s makes a new table `%s`; under its former name it wrote `%s`, which stays as it is\n"
    "  nothing writes `%s` any more; `%s` has only the days that are run from now on"
)


def plan_run(  # noqa: PLR0913 - each says another thing, by its name
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
    """Make and write the plan of a run; nothing is written to the lake.

    Args:
        definition_path: the TOML file.
        since_ms: first instant of the range; a UTC midnight.
        until_ms: first instant after it; a UTC midnight.
        mode: instead of the definition's.
        trigger: what asked for the run, such as an Airflow run id.
        reason: why, in the words of whoever asked; the days that are not sealed are added.
        is_unsealed_allowed: whether days that may still gain events may be published as final.
        overrides: keys of the definition that this run takes otherwise; see `definition.overrides`.
        gate_override: why the result is to be published even if the gate says no; empty: it is not.
        local_days: what was asked for, where that was days of a time zone; the range is what covers them.
        home: where state lies.

    Raises:
        SpecError: when the definition or the range is wrong.
        RangeError: when no event can be in the range.
        PlanError: when the range is too many chunks, the source cannot be read, a day is not sealed, or the table
            in the lake does not fit or is another's.
        ContractError: when a time column names no instant.
    """
    where = str(definition_path)
    interval = backfill_range(since_ms, until_ms)
    for value_ms, name in ((since_ms, "since"), (until_ms, "until")):
        require_whole_days(value_ms, name)
    written = load_definition(definition_path)
    chosen = mode or written.backfill.mode
    definition = resolve_paths(apply_overrides(written, overrides or {}, chosen), home)
    require_valid_suite(definition.quality.suite, home.sound_suites)
    files = list_source_files(definition.source, where)
    source = load_footers(files, definition, home).inspect()
    found = split_damaged_files(
        source, ReadRequest(definition, chosen, read_interval(interval, definition), where), home
    )
    columns = resolve_columns(source.shapes, definition, where)
    require_engine(definition, columns.types, where)
    index = _indexed(definition, found.inputs, chosen, home)
    allowed = Interval(*definition.source.event_time_range)
    require_range(definition, interval, find_event_span(found.inputs, allowed, index.spans()), where, home)
    _require_few(definition, interval, where)
    is_final = chosen is Mode.RECOMPUTE or definition.backfill.publish == "final"
    days = find_day_seals(definition, found.inputs, interval, home) if is_final else []
    if not is_unsealed_allowed:
        require_sealed_days(definition, days, where)
    clock_start_ms, clock_end_ms = _clock(definition, found.inputs, chosen, where)
    claim = TableOwner(definition.name, definition_path.absolute(), definition.source.key)
    with open_catalog_for_reading(home) as catalog:
        require_ownable(catalog, claim)
        for former in list_former_tables(catalog, claim):
            log.warning(_RENAMED, where, definition.name, former, former, definition.name)
        tables, base_snapshots = plan_tables(catalog, definition.name, _tables(definition, columns.types, chosen))
    plan = Plan(
        dataset=definition.name,
        definition=definition.model_dump(mode="json"),
        definition_hash=written.definition_hash,
        definition_path=str(claim.definition),
        planned_by_version=__version__,
        mode=chosen,
        arrival_order=_arrival_order(definition.source),
        since_ms=since_ms,
        until_ms=until_ms,
        clock_start_ms=clock_start_ms,
        clock_end_ms=clock_end_ms,
        home=str(home.path),
        inputs=found.inputs,
        chunks=_chunks(definition, interval, found.inputs, index),
        tables=tables,
        base_snapshots=base_snapshots,
        triggered_by=trigger,
        reason=reason_with_unsealed(reason, days),
        overrides=dict(overrides or {}),
        gate_override=gate_override,
        local_days=local_days,
        columns=columns.types,
        absent=columns.absent,
        ignored=files.ignored,
        skipped=found.skipped,
        damaged=found.damaged,
        gone=find_removed_files(home, definition.name, definition.source.path, files.paths, interval),
    )
    plan.write()
    write_files_read(plan)
    return plan


def _require_few(definition: Definition, interval: Interval, where: str) -> None:
    """Check, before any is made, that a range is not more chunks than one plan may have.

    Raises:
        PlanError: naming how many it would be, and how to ask for it otherwise.
    """
    length_ms, backfill = interval.end_ms - interval.start_ms, definition.backfill
    count = -(-length_ms // backfill.chunk)
    if count > backfill.max_chunks:
        enough_ms = -(-length_ms // backfill.max_chunks // backfill.chunk) * backfill.chunk
        msg = (
            f"cannot plan {interval}: it is {count:,} chunks of {duration_text(backfill.chunk)},"
            f" backfill.max_chunks is {backfill.max_chunks:,} ({where})\n\n"
            f"hint: ask for less, set backfill.chunk to {duration_text(enough_ms)} or more, or raise"
            " backfill.max_chunks"
        )
        raise PlanError(msg)


def _arrival_order(source: Source) -> ArrivalOrder:
    if source.arrival_time is None:
        return ArrivalOrder.UNKNOWN
    return ArrivalOrder.RECORDED if source.partition and source.sequence else ArrivalOrder.TIES_BROKEN


def _clock(definition: Definition, inputs: Sequence[InputFile], mode: Mode, where: str) -> tuple[int, int]:
    """When the stream's source was opened, and when its input ended: first and last arrival unless said."""
    if mode is Mode.RECOMPUTE:
        return 0, 0
    if definition.source.arrival_time is None:
        msg = (
            f"cannot replay {definition.name}: source.arrival_time is missing, so no order is known ({where})\n\n"
            "hint: use the mode recompute, or name the column that says when each record arrived"
        )
        raise PlanError(msg)
    bounds = find_arrival_bounds(inputs)
    if bounds is None:
        msg = (
            f"cannot replay {definition.name}: the files do not say when records arrived ({where})\n"
            f"  source.arrival_time is {definition.source.arrival_time!r}\n\n"
            "hint: it must be a timestamp column whose Parquet footers have min and max"
        )
        raise PlanError(msg)
    first_ms, last_ms = bounds
    start_ms = definition.watermark.clock_start
    return (first_ms if start_ms is None else start_ms), last_ms


def _tables(definition: Definition, types: Mapping[str, str], mode: Mode) -> list[Table]:
    keys, values = key_columns(definition, types), value_columns(definition, types)
    tables = [windows_table(keys, values), METRICS_TABLE, QUARANTINE_TABLE]
    if mode is Mode.REPLAY:
        tables += [panes_table(keys, values), dropped_table(keys)]
        tables += [firings_table(keys, values)] if definition.backfill.keep_firings else []
    return tables


def _indexed(definition: Definition, inputs: Sequence[InputFile], mode: Mode, home: Home) -> ArrivalIndex:
    """What earlier runs found in the files; empty before the first, and where no index is kept."""
    window, emission = definition.window.spec(), definition.watermark.spec()
    if isinstance(window, Session) or mode is Mode.RECOMPUTE or not is_index_exact(emission):
        return ArrivalIndex.empty()
    buckets = BucketGrid.from_window(window, emission, definition.lateness.allowed)
    return ArrivalIndex.from_folder(
        IndexFolder.from_source(home.path, definition.name, definition.read_by, buckets), inputs
    )


def _chunks(
    definition: Definition, interval: Interval, inputs: Sequence[InputFile], index: ArrivalIndex
) -> tuple[Chunk, ...]:
    pieces = list(interval.cut(definition.backfill.chunk))
    width = max(4, len(str(len(pieces))))
    # What cannot be read is found by whoever reads its file, so the index says nothing about such files.
    unknown = {file.path for file in index.missing(inputs)} | index.unplaced()
    held, positions = _Held.from_inputs(inputs, unknown), {file.path: number for number, file in enumerate(inputs)}

    def chunk(number: int, piece: Interval) -> Chunk:
        wanted = read_interval(piece, definition)
        counted = {path: events for path, events in index.events_in(wanted).items() if path not in unknown}
        known = [positions[path] for path in counted if path in positions]
        files = tuple(sorted([*held.within(wanted), *known]))
        expected = sum(
            _estimate(inputs[each], piece) if inputs[each].path in unknown else counted[inputs[each].path]
            for each in files
        )
        return Chunk(f"{number:0{width}}", piece.start_ms, piece.end_ms, wanted.end_ms, files, expected)

    return tuple(chunk(number, piece) for number, piece in enumerate(pieces))


class _Held(NamedTuple):
    """Files whose footers alone say what they may hold, as arrays: thousands of chunks ask thousands of files."""

    positions: Longs
    first_ms: Longs
    last_ms: Longs

    @classmethod
    def from_inputs(cls, inputs: Sequence[InputFile], paths: Container[str]) -> _Held:
        """Of those paths; a file without bounds may hold any event."""
        asked = [(number, file) for number, file in enumerate(inputs) if file.rows and file.path in paths]
        told = [file.min_event_ms is not None and file.max_event_ms is not None for _, file in asked]
        first = [file.min_event_ms if is_told else MIN_MS for (_, file), is_told in zip(asked, told, strict=True)]
        last = [file.max_event_ms if is_told else MAX_MS for (_, file), is_told in zip(asked, told, strict=True)]
        numbers = [number for number, _ in asked]
        return cls(*(np.array(values, dtype=np.int64) for values in (numbers, first, last)))

    def within(self, interval: Interval) -> list[int]:
        """The positions of the files in which an event of the interval may be."""
        is_near = (self.first_ms < interval.end_ms) & (self.last_ms >= interval.start_ms)
        return [int(position) for position in self.positions[is_near]]


def _estimate(file: InputFile, piece: Interval) -> int:
    """The file's rows, spread evenly over its event times."""
    if file.min_event_ms is None or file.max_event_ms is None:
        return file.rows
    span_ms = file.max_event_ms + 1 - file.min_event_ms
    overlap_ms = min(piece.end_ms, file.max_event_ms + 1) - max(piece.start_ms, file.min_event_ms)
    return file.rows * max(0, overlap_ms) // span_ms
