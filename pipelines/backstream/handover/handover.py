"""Hand over a stream to a live job: write the state of a run's recorded input at an instant as a bundle."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from backstream.definition.loader import parse_definition
from backstream.definition.model import Definition
from backstream.errors import PlanError, SpecError
from backstream.eventtime.instants import instant_text
from backstream.eventtime.stream_state import SplitState
from backstream.eventtime.watermark_generators import StrategyKind
from backstream.eventtime.windows import WindowSpec
from backstream.handover.handover_process import compute_process_tables, list_process_problems
from backstream.handover.handover_stream import CutState, CutStream, compute_cut_state
from backstream.native.database import open_database
from backstream.native.handover_queries import PARTIAL_SUFFIXES
from backstream.native.supported import reason_not_readable
from backstream.native.task import TIMES, duckdb_type
from backstream.native.task_disk import open_task_disk
from backstream.runs.handover_bundle import (
    PARTITIONS_FILE,
    RECORDS_FILE,
    STATES_FILE,
    TIMERS_FILE,
    WINDOWS_FILE,
    HandoverBundle,
)
from backstream.runs.plan import Mode, Plan
from backstream.storage.files import replace_file
from backstream.storage.stores import Stores

if TYPE_CHECKING:
    import duckdb

_MEMORY_MB = 4_000
"""Memory of DuckDB; it spills to a temporary folder above it."""


def hand_over_run(plan: Plan, at_ms: int, folder: Path | None = None) -> tuple[HandoverBundle, Path]:
    """Write the bundle of a run's recorded input at an instant, and return it with its folder.

    Args:
        plan: the plan of a replay.
        at_ms: the cut: records that arrived before it are in the state.
        folder: the folder of the bundle; by default in the folder of the run.

    Raises:
        SpecError: when the definition cannot be handed over, or no position separates the records.
        PlanError: when an input file was deleted or changed.
    """
    definition = parse_definition(plan.definition, f"plan {plan.run_id}")
    _require_supported(plan, definition)
    _require_unchanged_files(plan)
    files = [file for file in plan.inputs if file.rows]
    if not files:
        msg = f"cannot hand over {plan.dataset}: run {plan.run_id} has no records"
        raise SpecError(msg)
    with open_task_disk(Stores.from_environment()) as disk, open_database(_MEMORY_MB) as database:
        paths = disk.fetch([file.path for file in files])
        cut = CutStream(
            definition,
            plan.columns,
            [replace(file, path=path) for file, path in zip(files, paths, strict=True)],
            plan.clock_start_ms,
            at_ms,
            sorted(definition.quality.named_partitions),
        )
        database.execute(f"SET threads = {os.cpu_count() or 1}")
        state = compute_cut_state(database, cut)
        tables = _list_tables(database, cut, state)
    instant = instant_text(at_ms).replace(":", "")
    return _write_bundle(plan, cut, state, tables, folder or plan.folder.path / "handover" / instant)


def _require_supported(plan: Plan, definition: Definition) -> None:
    """Check that the state of a definition can be computed from its records, without the code of the user."""
    for problem in _list_problems(plan, definition):
        msg = f"cannot hand over {plan.dataset}: {problem} (run {plan.run_id})"
        raise SpecError(msg)


_NOT_HANDED_OVER = {
    StrategyKind.CUSTOM: "the state of a custom watermark generator depends on each of its records",
    StrategyKind.FLINK_SQL: "the operators of a Flink SQL job keep their state in a form of their own",
    StrategyKind.STRUCTURED_STREAMING: "a job of Structured Streaming continues from its own checkpoint",
}
"""The strategies whose state no other job can get."""


def _list_problems(plan: Plan, definition: Definition) -> Iterator[str]:
    if plan.mode is not Mode.REPLAY:
        yield f"only a replay has watermarks, and this run is a {plan.mode.value}"
    if definition.filter is not None:
        yield "a job that continues from its state would not apply [filter]"
    yield from _list_other_operators(definition)
    if definition.watermark.finished_partitions == "release":
        yield 'watermark.finished_partitions = "release" has no meaning in a stream that goes on'
    if definition.source.deduplicate_on and definition.source.deduplicate_keep == "last":
        yield 'with source.deduplicate_keep = "last", a later record can replace one that a window has counted'
    if reason := reason_not_readable(definition, plan.columns):
        yield reason
    marker = definition.marker
    if marker is not None and plan.columns.get(marker) not in {*TIMES, "boolean", "bigint"}:
        yield f"watermark.marker must be a column with a boolean or a timestamp, got {marker!r}"
    cut = CutStream(definition, plan.columns, (), 0, 0)
    if definition.process is not None:
        yield from list_process_problems(cut)
    if cut.needs_records or definition.process is not None:
        yield from _list_unreadable_columns(
            plan, "the records" if definition.process else "the records of open windows"
        )


def _list_other_operators(definition: Definition) -> Iterator[str]:
    """Yield the parts of a definition whose live operators have a state that is not made here."""
    if definition.job is not None:
        yield "its rows come from your own Spark job, which has no state between windows"
    if definition.join is not None:
        yield "the state of a join is that of Flink's own operator"
    kinds = {strategy.kind for strategy in definition.emission.strategies}
    yield from (reason for kind, reason in _NOT_HANDED_OVER.items() if kind in kinds)
    if definition.window.spec().zone:
        yield _NOT_HANDED_OVER[StrategyKind.FLINK_SQL] + ", and only SQL has windows in local time"


def _list_unreadable_columns(plan: Plan, needed: str) -> Iterator[str]:
    for name, type_name in plan.columns.items():
        if duckdb_type(type_name) is None:
            yield f"{needed} are needed, and column {name!r} has the type {type_name}"


def _require_unchanged_files(plan: Plan) -> None:
    versions = Stores.from_environment().find_versions([file.path for file in plan.inputs])
    for file, version in zip(plan.inputs, versions, strict=True):
        if version is None:
            msg = f"cannot read input file {file.path}: {os.strerror(errno.ENOENT)}\n\nhint: restore the file"
            raise PlanError(msg)
        if version.size_bytes != file.size_bytes:
            msg = (
                f"input file was changed after run {plan.run_id} was planned: {file.size_bytes:,} bytes then,"
                f" {version.size_bytes:,} bytes now ({file.path})\n\nhint: create a new run"
            )
            raise PlanError(msg)


def _list_tables(database: duckdb.DuckDBPyConnection, cut: CutStream, state: CutState) -> dict[str, pa.Table]:
    """Return the tables of the bundle by file name."""
    tables = {PARTITIONS_FILE: _partition_table(cut, state)}
    if cut.definition.process is not None:
        tables[TIMERS_FILE], tables[STATES_FILE] = compute_process_tables(database, cut, state.partitions)
        return tables
    tables[WINDOWS_FILE] = state.windows
    if state.records is not None:
        tables[RECORDS_FILE] = state.records
    return tables


def _write_bundle(
    plan: Plan, cut: CutStream, state: CutState, tables: Mapping[str, pa.Table], folder: Path
) -> tuple[HandoverBundle, Path]:
    definition, clock = cut.definition, cut.clock
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        with replace_file(folder / name) as draft:
            pq.write_table(table, draft)
    partials = {
        aggregate.name: tuple(
            f"{aggregate.name}{suffix}" for suffix in PARTIAL_SUFFIXES.get(aggregate.function, ("",))
        )
        for aggregate in cut.aggregates
    }
    bundle = HandoverBundle(
        dataset=plan.dataset,
        run_id=plan.run_id,
        plan_hash=plan.plan_hash,
        at_ms=cut.at_ms,
        watermark_ms=state.stream.watermark_ms,
        is_idle=state.stream.is_idle,
        clock_start_ms=clock.start_ms,
        window={"kind": definition.window.kind, **_geometry(definition.window.spec())},
        allowed_lateness_ms=definition.lateness.allowed,
        watermark=_watermark_content(definition),
        key=tuple(definition.source.key),
        aggregates=dict(definition.aggregates),
        partials=partials,
        holistic_aggregates=tuple(cut.holistic_aggregates),
        partitions=state.partitions,
        stream=state.stream,
        files={name: table.num_rows for name, table in tables.items()},
    )
    bundle.write(folder)
    return bundle, folder


def _geometry(window: WindowSpec) -> dict[str, int]:
    return {name: value for name, value in asdict(window).items() if name != "zone"}


def _watermark_content(definition: Definition) -> dict[str, Any]:
    """Return topology, emission model, and the strategy of each source; a single source has no name."""
    emission = definition.emission
    sources = [(source.name, source.strategy) for source in emission.sources] or [("", emission.strategy)]
    return {
        "topology": emission.topology.value,
        "emit": emission.model.value,
        "sources": [
            {
                "name": name,
                "strategy": strategy.kind.value,
                "delay_ms": strategy.bound_ms,
                "interval_ms": strategy.interval_ms,
                "idle_timeout_ms": strategy.idle_timeout_ms,
            }
            for name, strategy in sources
        ],
    }


def _partition_table(cut: CutStream, state: CutState) -> pa.Table:
    """Return a row per source partition: its next position, watermark, and idleness."""
    found: Mapping[str, Mapping[str, Any]] = {row["source_partition"]: row for row in state.positions.to_pylist()}
    splits: dict[int | None, SplitState] = {
        split.partition: split for source in state.stream.sources for split in source.splits
    }
    rows = []
    for number, name in enumerate(state.partitions):
        position, split = found.get(name, {}), splits.get(number)
        rows.append(
            {
                "source_partition": name,
                "records": position.get("records", 0),
                "next_seq": _next_seq(position) if cut.read_spec.sequence else None,
                "last_arrival_time_ms": position.get("last_arrival_ms"),
                "watermark_ms": split.watermark_ms if split else None,
                "is_idle": split.is_idle if split else None,
                "max_event_time_ms": split.generator.get("max_event_time_ms") if split else None,
            }
        )
    return pa.Table.from_pylist(rows, _PARTITION_SCHEMA)


def _next_seq(position: Mapping[str, Any]) -> int | None:
    """Return the position after the last record before the cut; without one, that of the first record after it."""
    last, first = position.get("last_seq"), position.get("first_seq_after")
    return first if last is None else last + 1


_PARTITION_SCHEMA = pa.schema(
    [
        ("source_partition", pa.string()),
        ("records", pa.int64()),
        ("next_seq", pa.int64()),
        ("last_arrival_time_ms", pa.int64()),
        ("watermark_ms", pa.int64()),
        ("is_idle", pa.bool_()),
        ("max_event_time_ms", pa.int64()),
    ]
)
"""The columns of `partitions.parquet`."""
