"""Compute the state of a process function at a cut: the reference engine processes all earlier records."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from backstream.definition.prepared_columns import PREPARED_COLUMNS
from backstream.eventtime.records import Record
from backstream.eventtime.stream_state import ProcessState
from backstream.eventtime.timers import ProcessOperator
from backstream.eventtime.watermark_sources import new_source_run
from backstream.handover.handover_stream import CutStream
from backstream.native.record_scans import column_alias, scan_query
from backstream.native.records import group_files_by_schema
from backstream.native.sql import PARTITION_TEXT
from backstream.native.supported import read_spec
from backstream.native.task import ReadSpec
from backstream.user_code import UserCode

if TYPE_CHECKING:
    import duckdb

_METHODS = ("process_element",)
_TIMESTAMP, _STATE, _FUNCTION = "timestamp_ms", "state", "function"


def list_process_problems(cut: CutStream) -> Iterator[str]:
    """Yield the reasons why the state of a process function cannot be computed."""
    if cut.definition.source.deduplicate_on:
        yield "a process function does not get duplicates, and source.deduplicate_on is set"
    if cut.definition.marker is not None:
        yield "the reference engine cannot evaluate watermark.marker for a process function"


def compute_process_tables(
    database: duckdb.DuckDBPyConnection, cut: CutStream, partitions: Sequence[str]
) -> tuple[pa.Table, pa.Table]:
    """Return the pending timers, and the state of each key.

    Args:
        database: a database.
        cut: the stream of a definition with a process function.
        partitions: the source partitions.

    Raises:
        SpecError: when the class cannot be loaded, or JSON cannot hold a value of its state.
    """
    definition, process = cut.definition, cut.definition.process
    assert process is not None  # noqa: S101 - the caller has checked it
    keys = definition.source.key
    names = tuple(dict.fromkeys((*keys, *(process.reads or _source_columns(cut)))))
    reading = read_spec(definition, cut.columns, names)
    rows = _load_rows(database, cut, reading)
    numbers = {name: number for number, name in enumerate(partitions)}
    values, records = [], []
    for number, row in enumerate(rows.to_pylist()):
        values.append({name: row[column_alias(reading, name)] for name in names})
        key = tuple(values[-1][name] for name in keys)
        place = (row["arrival_ms"], numbers[str(row["source_partition"])])
        records.append(Record(*place, key[0] if len(key) == 1 else key, row["event_ms"], value=number))
    new_function = UserCode("process function", process.process_class).load_class(_METHODS)
    source = new_source_run(
        definition.emission.with_partitions(partitions), cut.clock, range(len(partitions)), None
    )
    source.process(records, range(len(partitions)))
    source.advance(cut.at_ms)
    # The value of a record of the reference engine is a number: that of its columns here.
    operator = ProcessOperator(partial(new_function, **process.kwargs), lambda record: values[record.value])
    operator.run(records, source.output)
    types = {name: rows.schema.field(column_alias(reading, name)).type for name in keys}
    return _to_tables(operator.snapshot(), types)


def _source_columns(cut: CutStream) -> list[str]:
    return [name for name in cut.columns if name not in PREPARED_COLUMNS]


def _load_rows(database: duckdb.DuckDBPyConnection, cut: CutStream, reading: ReadSpec) -> pa.Table:
    """Return the readable records before the cut in arrival order."""
    groups = group_files_by_schema([file.path for file in cut.files], reading)
    scan = scan_query(groups, reading)
    order = f"arrival_ms, arrival_seq, {PARTITION_TEXT}"
    before = f"SELECT * FROM ({scan}) WHERE arrival_ms < {cut.at_ms} ORDER BY {order}"
    return database.sql(before).to_arrow_table()


def _to_tables(states: Sequence[ProcessState], types: Mapping[str, pa.DataType]) -> tuple[pa.Table, pa.Table]:
    timers, values = [], []
    for state in states:
        parts: Sequence[Any] = (state.key,) if len(types) == 1 else cast("tuple[Any, ...]", state.key)
        key = dict(zip(types, parts, strict=True))
        timers += [key | {_TIMESTAMP: at_ms} for at_ms in state.timers_ms]
        values.append(key | {_STATE: json.dumps(state.state), _FUNCTION: json.dumps(state.function)})
    fields = list(types.items())
    return (
        pa.Table.from_pylist(timers, pa.schema([*fields, (_TIMESTAMP, pa.int64())])),
        pa.Table.from_pylist(values, pa.schema([*fields, (_STATE, pa.string()), (_FUNCTION, pa.string())])),
    )
