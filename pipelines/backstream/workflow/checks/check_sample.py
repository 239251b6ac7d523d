"""Read a sample of a source as a run reads it: its records, its unreadable records, and two windows of result."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from backstream.definition import prepared, prepared_columns
from backstream.definition.loader import load_definition, resolve_raw_paths
from backstream.definition.model import Definition
from backstream.errors import BackstreamError
from backstream.eventtime.instants import MAX_MS
from backstream.eventtime.records import Record, SourceClock
from backstream.eventtime.stream_replay import localize
from backstream.eventtime.union import complete_partitions
from backstream.eventtime.watermark_sources import compute_watermarks
from backstream.eventtime.watermarks import WatermarkEvent, Watermarks
from backstream.eventtime.window_operator import Pane, WindowResults, fire_windows
from backstream.eventtime.windows import TimeWindow
from backstream.installed_spark import require_queries
from backstream.native.supported import require_engine
from backstream.runs.home import Home
from backstream.runs.input_files import ImplausibleTimes, InexactNumbers
from backstream.source.column_types import group_by_schema
from backstream.source.columns import resolve_columns
from backstream.source.files import inspect_files, list_source_files
from backstream.source.implausible_times import find_implausible_times
from backstream.spark.preparation.prepare import prepare_files
from backstream.spark.sample import aggregate_sample, load_sample
from backstream.spark.schemas import PARTITION_NUMBER
from backstream.spark.source import (
    FILE,
    IS_FILTERED,
    MARKER,
    REASON,
    RECORD,
    WRITTEN_ARRIVAL_TIME,
    WRITTEN_EVENT_TIME,
)
from backstream.spark.user_functions import register_functions
from backstream.workflow.inputs.job_batches import JobBatches
from backstream.workflow.inputs.prepare import list_parquet_to_prepare
from backstream.workflow.inputs.raw_source import RawSource
from backstream.workflow.inputs.side_inputs import load_side_inputs
from backstream.workflow.runners import SparkRunner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_T = TypeVar("_T")
_MAX_FILES = 3
_WINDOWS = 2


@dataclass(frozen=True, slots=True)
class CheckedSample:
    """The readable records of a sample, the unreadable ones with reason and file, and rows of two windows.

    `without_id` counts the records that have no id, if the definition removes duplicates.
    `fates` counts the records by their fate in a replay of the sample; empty without arrival times.
    `watermarks` names the watermarks of that replay.
    `max_quarantined` is the share of unreadable records above which a run is not published.
    `inexact` are the numbers that a declared type cannot hold, and `max_inexact` is the same limit for them.
    `implausible` are the times of the read files that are far from all others.
    """

    types: Mapping[str, str]
    read: int
    records: pa.Table
    quarantined: pa.Table
    duplicates: int
    without_id: int
    windows: int
    rows: pa.Table
    fates: Mapping[str, int]
    watermarks: str
    max_quarantined: float
    max_inexact: float
    note: str = ""
    inexact: tuple[InexactNumbers, ...] = ()
    implausible: tuple[ImplausibleTimes, ...] = ()


def check_sample(spark: SparkSession, path: Path, limit: int, home: Home) -> CheckedSample:
    """Return the sample of a definition's source.

    Args:
        spark: the session.
        path: the TOML file.
        limit: the maximum number of records, from up to three files.
        home: the folder that holds all state.

    Raises:
        SpecError: when the definition does not fit the source.
        PlanError: when the source cannot be read.
    """
    place = str(path)
    definition = resolve_raw_paths(load_definition(path), home)
    require_queries(f"read a sample of {definition.name}", place)
    if not _must_prepare(definition, place):
        files = _spread(list_source_files(definition.source, place).paths)
        return _check_files(spark, definition, definition, place, files, max(1, limit // len(files)))
    with TemporaryDirectory(prefix="backstream-") as folder:
        batches, inexact = [], list[InexactNumbers]()
        scratch = Home(Path(folder) / "home")  # a run decides which batches of a job are kept
        for number, single in enumerate(prepared.list_single_sources(definition)):
            with RawSource.open(single, home, place) as listed:
                batches.append(Path(folder) / str(number))
                inexact += _prepare_sample(spark, listed, limit, batches[-1], (home, scratch))
        shaped = prepared.as_prepared(definition, scratch if definition.watermark.job_logs else home)
        source = shaped.source.model_copy(update={"path": tuple(map(str, batches))})
        files = [str(path) for batch in batches for path in sorted(batch.glob("*.parquet"))]
        prepared_definition = shaped.model_copy(update={"source": source})
        checked = _check_files(spark, definition, prepared_definition, place, files, limit)
        return replace(checked, inexact=InexactNumbers.sum(inexact))


def _must_prepare(definition: Definition, place: str) -> bool:
    is_certain = prepared.reason_to_prepare(definition) is not None
    return is_certain or len(list_parquet_to_prepare(definition, place)) > 0


def _prepare_sample(
    spark: SparkSession, listed: RawSource, limit: int, folder: Path, homes: tuple[Home, Home]
) -> tuple[InexactNumbers, ...]:
    """Prepare the first records of some raw files, wherever they are, and return their inexact numbers.

    Args:
        spark: the session.
        listed: the raw files.
        limit: the maximum number of records.
        folder: the folder for the prepared files.
        homes: the home, and that of the batches of a job.
    """
    home, job_home = homes
    source = listed.settle(lambda files: files)
    job = JobBatches.load(source.definition, job_home, source.files, source.where, source.appends)
    files = _spread(source.files)
    runner = SparkRunner(lambda: spark)
    with (
        source.local_files(files, folder, runner) as local,
        load_side_inputs(source.definition, home, source.where, runner, folder) as sides,
    ):
        preparation = source.preparation(local, sides.rows)
        paths = sorted(local.paths[file] for file in files)
        _, inexact = prepare_files(spark, preparation, paths, folder, max(1, limit // len(files)))
        if job:
            job.assign(folder)
    return inexact


def _check_files(
    spark: SparkSession, raw: Definition, definition: Definition, place: str, files: Sequence[str], limit: int
) -> CheckedSample:
    """Return the sample of Parquet files that an engine can read where they are, up to a limit of each file.

    `raw` is the definition of the raw files.
    """
    inspection = inspect_files(list_source_files(definition.source, place), definition.timed_source)
    implausible = find_implausible_times(raw, definition.source.paths, inspection.inputs, inspection.times)
    types = resolve_columns(inspection.shapes, definition, place).types
    require_engine(definition, types, place)
    register_functions(spark, definition)
    groups = [({**columns, **types}, paths) for columns, paths in group_by_schema(files)]
    sample = _examine(spark, definition, types, load_sample(spark, definition, groups, limit))
    return replace(sample, implausible=implausible)


def _spread(files: Sequence[_T]) -> list[_T]:
    """Return the first file, the last one, and one between them."""
    if len(files) <= _MAX_FILES:
        return list(files)
    return [files[number * (len(files) - 1) // (_MAX_FILES - 1)] for number in range(_MAX_FILES)]


def _examine(
    spark: SparkSession, definition: Definition, types: Mapping[str, str], table: pa.Table
) -> CheckedSample:
    reasons = table[REASON].to_pylist()
    unreadable = table.filter(pa.array([reason is not None for reason in reasons], pa.bool_()))
    readable = table.filter(pa.array([reason is None for reason in reasons], pa.bool_()))
    events = _in_arrival_order(readable)
    unique = _without_duplicates(events, definition)
    records = _records(unique, definition)
    results, fates, note = _fire(records, _list_partitions(unique, definition), definition)
    panes = _last_panes(results)
    chosen = _largest_windows(panes)
    rows = _window_rows(spark, definition, unique, [pane for pane in panes if pane.window in chosen])
    return CheckedSample(
        types,
        table.num_rows,
        _record_table(readable, definition),
        _quarantined_table(unreadable),
        events.num_rows - unique.num_rows,
        _count_without_id(readable, definition),
        len({pane.window for pane in panes}),
        rows,
        fates,
        "with the watermarks of the job"
        if definition.watermark.job_logs
        else "as if the sample were the whole stream",
        definition.quality.quarantined_ratio.fail,
        definition.quality.inexact_ratio.fail,
        note,
    )


def _in_arrival_order(events: pa.Table) -> pa.Table:
    order = [(name, "ascending") for name in ("arrival_time_ms", "arrival_seq", "source_partition")]
    return events.take(pc.sort_indices(events, sort_keys=order)) if events.num_rows else events


def _without_duplicates(events: pa.Table, definition: Definition) -> pa.Table:
    """Return the records that are not duplicates, as a run does."""
    identity = definition.source.identity
    if not identity.columns:
        return events
    ids = zip(*(events[name].to_pylist() for name in identity.columns), strict=True)
    marks = identity.mark_duplicates(list(zip(ids, events["event_time_ms"].to_pylist(), strict=True)))
    return events.filter(pc.invert(pa.array(marks, pa.bool_())))


def _count_without_id(events: pa.Table, definition: Definition) -> int:
    """Return the number of records whose columns of `source.deduplicate_on` are all null."""
    identity = definition.source.identity
    ids = zip(*(events[name].to_pylist() for name in identity.columns), strict=True)
    return sum(not identity.is_given(values) for values in ids)


def _records(events: pa.Table, definition: Definition) -> list[Record]:
    """Return the records for the reference engine, in arrival order."""
    partitions = events["source_partition"].to_pylist()
    numbers = {name: number for number, name in enumerate(_list_partitions(events, definition))}
    key = [events[name].to_pylist() for name in definition.source.key]
    keys: Sequence[tuple[Any, ...]] = list(zip(*key, strict=True)) if key else [()] * events.num_rows
    markers = events[MARKER].to_pylist() if MARKER in events.column_names else [None] * events.num_rows
    columns = [events[name].to_pylist() for name in ("arrival_time_ms", "event_time_ms", IS_FILTERED)]
    return [
        Record(arrival_ms, numbers[partition], of_key, event_ms, marker=marker, is_filtered=is_filtered)
        for arrival_ms, event_ms, is_filtered, partition, of_key, marker in zip(
            *columns, partitions, keys, markers, strict=True
        )
    ]


def _list_partitions(events: pa.Table, definition: Definition) -> list[str]:
    """Return the partitions of the sample, sorted; a source without records has one."""
    return complete_partitions(definition.emission.source_names, events["source_partition"].to_pylist())


def _fire(
    records: Sequence[Record], partitions: Sequence[str], definition: Definition
) -> tuple[WindowResults, Mapping[str, int], str]:
    """Return the complete windows of the sample, and the fates of its records in a replay of the sample."""
    window, allowed_ms = definition.window.spec(), definition.lateness.allowed
    complete = Watermarks([WatermarkEvent(MAX_MS, len(records) - 1, 0)]) if records else Watermarks()
    local = localize(records, window)
    results = fire_windows(local, complete, window, allowed_ms)
    if definition.source.arrival_time is None or not records:
        return results, {}, ""
    emission = definition.emission.with_partitions(partitions)
    clock = SourceClock(records[0].arrival_time_ms, emission.tick_ms, records[-1].arrival_time_ms)
    try:
        watermarks = compute_watermarks(records, emission, clock, range(len(partitions)))
        fates = Counter(fate.value for fate in fire_windows(local, watermarks, window, allowed_ms).fates)
    except BackstreamError as error:
        return results, {}, f"the sample cannot be replayed: {error}"
    return results, fates, ""


def _last_panes(results: WindowResults) -> list[Pane]:
    return list({(pane.key, pane.window): pane for pane in results.panes}.values())


def _largest_windows(panes: Sequence[Pane]) -> set[TimeWindow]:
    """Return the windows with the most records, the earlier ones first."""
    sizes: dict[TimeWindow, int] = defaultdict(int)
    for pane in panes:
        sizes[pane.window] += len(pane.records)
    return set(sorted(sizes, key=lambda window: (-sizes[window], window))[:_WINDOWS])


def _window_rows(spark: SparkSession, definition: Definition, events: pa.Table, panes: Sequence[Pane]) -> pa.Table:
    """Return the rows that a run would publish for some windows of the sample."""
    ordered = sorted(panes, key=lambda pane: (pane.window, str(pane.key)))
    return aggregate_sample(spark, definition, events, [(pane.window, pane.records) for pane in ordered])


def _quarantined_table(unreadable: pa.Table) -> pa.Table:
    """Return the reason, the raw file, the line if it is known, and the content of unreadable records."""
    file = prepared_columns.FILE if prepared_columns.FILE in unreadable.column_names else FILE
    rows = unreadable.select([REASON, file, RECORD])
    has_lines = prepared_columns.LINE in unreadable.column_names
    lines = unreadable[prepared_columns.LINE] if has_lines else pa.nulls(unreadable.num_rows, pa.int64())
    return rows.add_column(2, "line", lines)


def _record_table(table: pa.Table, definition: Definition) -> pa.Table:
    """Return the records with times as instants, without the working columns of a run."""
    source = definition.source
    keys = {
        "arrival_time_ms": source.arrival_time,
        "source_partition": source.partition,
        "arrival_seq": source.sequence,
    }
    unset = [name for name, key in keys.items() if key is None]
    working = (REASON, RECORD, FILE, IS_FILTERED, WRITTEN_EVENT_TIME, WRITTEN_ARRIVAL_TIME, PARTITION_NUMBER)
    hidden = (*working, prepared_columns.FILE, prepared_columns.LINE, *unset)
    kept = table.drop_columns([name for name in hidden if name in table.column_names])
    names = [name.replace("_time_ms", "_time") for name in kept.column_names]
    columns = [
        column.cast(pa.timestamp("ms", "UTC")) if name.endswith("_time_ms") else column
        for name, column in zip(kept.column_names, kept.columns, strict=True)
    ]
    return pa.table(columns, names=names)
