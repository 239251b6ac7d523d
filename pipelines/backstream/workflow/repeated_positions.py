"""Positions that came more than once: the same source partition, sequence and event time in several records.

A log gives each record one position. Where one comes twice, the archive holds a record twice, and it counts twice.
Most archives prove the opposite cheaply: in each file a partition's numbers are distinct, and no two files share a
stretch of them. Of other files all numbers are put together, and records are compared whose number comes twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from backstream.definition.model import Definition
from backstream.errors import PlanError
from backstream.eventtime.intervals import Interval
from backstream.eventtime.records import ONLY_PARTITION
from backstream.quality.evidence import RepeatedPositions
from backstream.runs.plan import InputFile, Plan
from backstream.source.reader import READERS
from backstream.source.time_columns import Longs, TimeColumn

Bools = npt.NDArray[np.bool_]

_AT_ONCE = 30_000_000
"""Numbers that are put together at once: 16 bytes each, since they are sorted."""
_NAMED = 3


@dataclass(frozen=True, slots=True)
class _Span:
    """The numbers of one source partition in one file; `numbers` are all of them, unless there are too many."""

    file: str
    partition: str
    first: int
    last: int
    is_distinct: bool
    numbers: Longs | None


@dataclass(frozen=True, slots=True)
class _Positions:
    """Positions of some records: `codes` number the `partitions`; `event_ms` is 0 where only Spark can tell."""

    partitions: Sequence[str]
    codes: Longs
    sequences: Longs
    event_ms: Longs

    def where(self, chosen: Bools) -> _Positions:
        """Some of them."""
        return _Positions(self.partitions, self.codes[chosen], self.sequences[chosen], self.event_ms[chosen])


def find_repeated_positions(plan: Plan, definition: Definition) -> RepeatedPositions:
    """Return the positions of the plan's range that more than one record has.

    None is looked for where the source has no sequence, or where duplicates are looked for as such.
    """
    source = definition.timed_source
    if source.sequence is None or source.deduplicate_on:
        return RepeatedPositions()
    numbers = sorted({number for chunk in plan.chunks for number in chunk.files})
    files = [plan.inputs[number] for number in numbers if plan.inputs[number].may_hold(plan.range)]
    read, parts = _Reader(definition, plan.range), math.ceil(sum(file.rows for file in files) / _AT_ONCE)

    def spans_of(file: InputFile) -> list[_Span]:
        return list(_spans(file.path, read.positions(file), is_kept=parts <= 1))

    with ThreadPoolExecutor(READERS) as pool:
        spans = [span for several in pool.map(spans_of, files) for span in several]
    paths = _suspects(spans)
    suspects = [file for file in files if file.path in paths]
    if parts <= 1:
        return _repeated(read, suspects, [_twice(span for span in spans if span.file in paths)])
    return _repeated(read, suspects, (_twice(_part(read, suspects, part, parts)) for part in range(parts)))


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

    def _event_time(self) -> TimeColumn | None:
        try:
            return TimeColumn.from_expression(self.definition.timed_source.event_time, "source.event_time")
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


def _spans(path: str, found: _Positions, *, is_kept: bool) -> Iterator[_Span]:
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
        kept = numbers if is_kept else None
        yield _Span(path, partition, int(numbers[0]), int(numbers[-1]), is_distinct, kept)


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


def _part(read: _Reader, files: Sequence[InputFile], part: int, parts: int) -> Iterator[_Span]:
    """The numbers of some files that leave a remainder."""
    for file in files:
        found = read.positions(file)
        found = found.where(found.sequences % parts == part)
        yield from _spans(file.path, found, is_kept=True)


def _twice(spans: Iterable[_Span]) -> dict[str, Longs]:
    """The numbers that come more than once, by partition."""
    numbers: dict[str, list[Longs]] = {}
    for span in spans:
        if span.numbers is not None:
            numbers.setdefault(span.partition, []).append(span.numbers)
    found: dict[str, Longs] = {}
    for partition, several in numbers.items():
        ordered = np.sort(np.concatenate(several))
        again = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
        if len(again):
            found[partition] = again
    return found


def _repeated(
    read: _Reader, files: Sequence[InputFile], several: Iterable[Mapping[str, Longs]]
) -> RepeatedPositions:
    """Compare the records whose number comes more than once."""
    count, first = 0, list[tuple[str, int, int]]()
    for twice in several:
        if not twice:
            continue
        rows = _counted(read, files, twice)
        again = rows.filter(pc.greater(rows["count"], 1))
        count += again.num_rows
        by = [("partition", "ascending"), ("sequence", "ascending"), ("event_ms", "ascending")]
        named = again.sort_by(by).slice(0, _NAMED).to_pylist()
        first += [(each["partition"], each["sequence"], each["count"]) for each in named]
    shown = sorted(first)[:_NAMED]
    return RepeatedPositions(
        count, tuple(f"{partition} {number} {times} times" for partition, number, times in shown)
    )


def _counted(read: _Reader, files: Sequence[InputFile], twice: Mapping[str, Longs]) -> pa.Table:
    """How often each position with one of these numbers came: `partition`, `sequence`, `event_ms`, `count`."""
    tables = []
    for file in files:
        found = read.positions(file)
        is_asked = np.zeros(len(found.codes), dtype=bool)
        for code, partition in enumerate(found.partitions):
            if partition in twice:
                of_partition = found.codes == code
                is_asked[of_partition] = np.isin(found.sequences[of_partition], twice[partition])
        chosen = found.where(is_asked)
        partitions = pa.DictionaryArray.from_arrays(
            pa.array(chosen.codes, pa.int32()), pa.array(list(found.partitions), pa.string())
        )
        columns: dict[str, Any] = {
            "partition": partitions.cast(pa.string()),
            "sequence": chosen.sequences,
            "event_ms": chosen.event_ms,
        }
        tables.append(pa.table(columns))
    rows = pa.concat_tables(tables)
    counted = rows.group_by(rows.column_names).aggregate([([], "count_all")])
    return counted.rename_columns([*rows.column_names, "count"])
