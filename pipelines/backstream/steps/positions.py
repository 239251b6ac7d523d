"""Positions that came more than once: the same source partition, sequence and event time in several records.

A log gives each record one position. Where one comes twice, the archive holds a record twice, and it counts twice.
Most archives prove the opposite cheaply: in each file a partition's numbers are distinct, and no two files share a
stretch of them. Only files of which this is not so are compared number by number.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from backstream.core.errors import PlanError
from backstream.core.intervals import Interval
from backstream.core.plan import InputFile, Plan
from backstream.core.records import ONLY_PARTITION
from backstream.definition.model import Definition
from backstream.quality.evidence import Repeated
from backstream.steps.instants import InstantColumn, Longs

_AT_ONCE = 20_000_000
"""Positions that are compared at once: 24 bytes each."""
_NAMED = 3


@dataclass(frozen=True, slots=True)
class _Span:
    """The numbers of one source partition in one file."""

    file: str
    partition: str
    first: int
    last: int
    is_distinct: bool


@dataclass(frozen=True, slots=True)
class _Positions:
    """Positions of some records: `codes` number the `partitions`; `event_ms` is 0 where only Spark can tell."""

    partitions: Sequence[str]
    codes: Longs
    sequences: Longs
    event_ms: Longs


def find_repeated_positions(plan: Plan, definition: Definition) -> Repeated:
    """Return the positions of the plan's range that more than one record has.

    None is looked for where the source has no sequence, or where duplicates are looked for as such.
    """
    source = definition.timed_source
    if source.sequence is None or source.deduplicate_on:
        return Repeated()
    numbers = sorted({number for chunk in plan.chunks for number in chunk.files})
    files = [plan.inputs[number] for number in numbers if plan.inputs[number].may_hold(plan.range)]
    read = _Reader(definition, plan.range)
    spans = [span for file in files for span in _spans(file.path, read.positions(file))]
    suspects = _suspects(spans)
    return _repeated(read, [file for file in files if file.path in suspects]) if suspects else Repeated()


@dataclass(frozen=True, slots=True)
class _Reader:
    definition: Definition
    interval: Interval

    def positions(self, file: InputFile) -> _Positions:
        """The positions of the records of a file that happened in the interval."""
        source, event = self.definition.timed_source, self._event_time()
        named = [source.sequence, source.partition, event.name if event else None]
        with pq.ParquetFile(Path(file.path)) as opened:
            there = set(opened.schema_arrow.names)
            rows = opened.read([name for name in dict.fromkeys(named) if name and name in there])
        rows = _with_numbers(rows, str(source.sequence))
        event_ms = np.zeros(rows.num_rows, dtype=np.int64)
        if event and event.name in rows.column_names:
            rows = rows.filter(pc.is_valid(rows[event.name]))
            event_ms = event.values_ms(rows[event.name])
            is_inside = (event_ms >= self.interval.start_ms) & (event_ms < self.interval.end_ms)
            rows, event_ms = rows.filter(pa.array(is_inside)), event_ms[is_inside]
        sequences = np.asarray(rows[str(source.sequence)].to_numpy(), dtype=np.int64)
        partitions, codes = _coded(rows, source.partition)
        return _Positions(partitions, codes, sequences, event_ms)

    def _event_time(self) -> InstantColumn | None:
        try:
            return InstantColumn.of(self.definition.timed_source.event_time, "source.event_time")
        except PlanError:
            return None


def _with_numbers(rows: pa.Table, name: str) -> pa.Table:
    """The rows whose sequence is a number; others go to quarantine."""
    rows = rows.filter(pc.is_valid(rows[name]))
    if not pa.types.is_integer(rows[name].type):
        text = rows[name].cast(pa.string())
        is_number = pc.match_substring_regex(text, r"^-?\d{1,18}$")
        rows = rows.set_column(rows.column_names.index(name), name, text).filter(is_number)
    return rows.set_column(rows.column_names.index(name), name, rows[name].cast(pa.int64()))


def _coded(rows: pa.Table, partition: str | None) -> tuple[Sequence[str], Longs]:
    if partition is None or partition not in rows.column_names:
        return [ONLY_PARTITION], np.zeros(rows.num_rows, dtype=np.int64)
    column = rows[partition].combine_chunks()
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode(null_encoding="encode")
    return [str(each) for each in encoded.dictionary.to_pylist()], np.asarray(
        encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False), dtype=np.int64
    )


def _spans(path: str, found: _Positions) -> Iterator[_Span]:
    """Each partition's first and last number in a file, and whether all its numbers are distinct."""
    if len(found.codes) != len(
        found.sequences
    ):  # some are no numbers: they go to quarantine, and are not compared
        return
    order = np.argsort(
        found.codes.astype(np.int16) if len(found.partitions) < 2**15 else found.codes, kind="stable"
    )
    codes, sequences = found.codes[order], found.sequences[order]
    bounds = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
    for begin, end in pairwise(bounds):
        if begin == end or codes[begin] < 0:
            continue
        numbers = sequences[begin:end]
        if not bool(np.all(np.diff(numbers) > 0)):
            numbers = np.sort(numbers)
        is_distinct = bool(np.all(np.diff(numbers) > 0))
        partition = found.partitions[int(codes[begin])]
        yield _Span(path, partition, int(numbers[0]), int(numbers[-1]), is_distinct)


def _suspects(spans: Sequence[_Span]) -> set[str]:
    """The files that hold a number twice, or share a stretch of a partition's numbers with another file."""
    found = {span.file for span in spans if not span.is_distinct}
    ordered = sorted(spans, key=lambda span: (span.partition, span.first))
    furthest: _Span | None = None
    for span in ordered:
        if furthest and furthest.partition == span.partition and span.first <= furthest.last:
            found |= {furthest.file, span.file}
        if furthest is None or furthest.partition != span.partition or span.last > furthest.last:
            furthest = span
    return found


def _repeated(read: _Reader, files: Sequence[InputFile]) -> Repeated:
    """Compare all positions of some files: those with the same remainder at once."""
    parts = max(1, math.ceil(sum(file.rows for file in files) / _AT_ONCE))
    count, first = 0, list[tuple[str, int, int]]()
    for part in range(parts):
        rows = _of_part(read, files, part, parts)
        again = rows.filter(pc.greater(rows["count"], 1))
        count += again.num_rows
        by = [("partition", "ascending"), ("sequence", "ascending"), ("event_ms", "ascending")]
        named = again.sort_by(by).slice(0, _NAMED).to_pylist()
        first += [(each["partition"], each["sequence"], each["count"]) for each in named]
    shown = sorted(first)[:_NAMED]
    return Repeated(count, tuple(f"{partition} {number} {times} times" for partition, number, times in shown))


def _of_part(read: _Reader, files: Sequence[InputFile], part: int, parts: int) -> pa.Table:
    """How often each position of a part came: `partition`, `sequence`, `event_ms`, `count`."""
    tables = []
    for file in files:
        found = read.positions(file)
        chosen = (found.sequences % parts == part) & (found.codes >= 0)
        partition = pa.DictionaryArray.from_arrays(
            pa.array(found.codes[chosen], pa.int32()), pa.array(list(found.partitions), pa.string())
        )
        columns: dict[str, Any] = {
            "partition": partition.cast(pa.string()),
            "sequence": found.sequences[chosen],
            "event_ms": found.event_ms[chosen],
        }
        tables.append(pa.table(columns))
    rows = pa.concat_tables(tables)
    counted = rows.group_by(rows.column_names).aggregate([([], "count_all")])
    return counted.rename_columns([*rows.column_names, "count"])
