"""Find repeated positions: several records with the same source partition, sequence number and event time.

A log assigns one position to each record. A repeated position means that the archive has a record twice, and that
it is counted twice. Most archives are cheap to check: the numbers of a partition are distinct in each file, and
the number ranges of two files do not overlap. For the remaining files, all numbers are sorted, and the records
with repeated numbers are compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
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
from backstream.quality.evidence import MAX_EXAMPLES, RepeatedPosition, RepeatedPositions
from backstream.runs.plan import InputFile, Plan
from backstream.source.local_times import list_local_ms
from backstream.source.reader import READERS
from backstream.source.time_columns import Longs, TimeColumn
from backstream.storage.stores import Stores, is_in_store

_Bools = npt.NDArray[np.bool_]

_MAX_NUMBERS = 30_000_000
"""The numbers that are sorted in memory at once, 16 bytes each."""


@dataclass(frozen=True, slots=True)
class _Span:
    """The numbers of one source partition in one file; `numbers` is None if they do not fit into memory."""

    file: str
    partition: str
    first: int
    last: int
    is_distinct: bool
    numbers: Longs | None


@dataclass(frozen=True, slots=True)
class _Positions:
    """Positions of records; `codes` are indices of `partitions`, `event_ms` is 0 if it was not read.

    The event time is not read if only Spark can evaluate it.
    """

    partitions: Sequence[str]
    codes: Longs
    sequences: Longs
    event_ms: Longs

    def filter(self, mask: _Bools) -> _Positions:
        return _Positions(self.partitions, self.codes[mask], self.sequences[mask], self.event_ms[mask])


def find_repeated_positions(plan: Plan, definition: Definition) -> RepeatedPositions:
    """Return the positions in the plan's range that more than one record has.

    The result is empty if the source has no sequence, or if the run removes duplicates.
    """
    source = definition.timed_source
    if source.sequence is None or source.deduplicate_on:
        return RepeatedPositions()
    numbers = sorted({number for chunk in plan.chunks for number in chunk.files})
    files = [plan.inputs[number] for number in numbers if plan.inputs[number].may_hold(plan.range)]
    reader, parts = _Reader(definition, plan.range), math.ceil(sum(file.rows for file in files) / _MAX_NUMBERS)

    def list_spans(file: InputFile) -> list[_Span]:
        # Without their times, the records of a file within the range are enough to find suspects.
        is_timed = not _is_within(file, plan.range)
        return list(_spans(file.path, reader.positions(file, is_timed=is_timed), is_kept=parts <= 1))

    with ThreadPoolExecutor(READERS) as pool:
        spans = [span for file_spans in pool.map(list_spans, files) for span in file_spans]
    paths = _find_suspects(spans)
    suspects = [file for file in files if file.path in paths]
    if parts <= 1:
        return _compare_records(
            reader, suspects, [_repeated_numbers(span for span in spans if span.file in paths)]
        )
    repeated = (_repeated_numbers(_scan_part(reader, suspects, part, parts)) for part in range(parts))
    return _compare_records(reader, suspects, repeated)


@dataclass(frozen=True, slots=True)
class _Reader:
    definition: Definition
    interval: Interval

    def positions(self, file: InputFile, *, is_timed: bool = True) -> _Positions:
        """Return the positions of a file's records with an event time in the interval; of all without times."""
        source, event = self.definition.timed_source, self._event_time() if is_timed else None
        names = [source.sequence, source.partition, event.name if event else None]
        stored = Stores.from_environment().parquet_source(file.path)
        footer = pq.read_metadata(stored)
        present = set(footer.schema.to_arrow_schema().names)
        if source.sequence not in present:  # all its records are in quarantine
            none = np.zeros(0, dtype=np.int64)
            return _Positions([], none, none, none)
        options = {
            "read_dictionary": [name for name in (source.partition,) if name in present],
            "pre_buffer": is_in_store(file.path),
        }
        with pq.ParquetFile(stored, metadata=footer, **options) as parquet:
            rows = parquet.read([name for name in dict.fromkeys(names) if name and name in present])
        rows = _cast_sequence(rows, str(source.sequence))
        event_ms = np.zeros(rows.num_rows, dtype=np.int64)
        if event and event.name in rows.column_names:
            rows = _remove_nulls(rows, event.name)
            event_ms = list_local_ms(self.definition.window.spec().zone, event.values_ms(rows[event.name]))
            is_inside = (event_ms >= self.interval.start_ms) & (event_ms < self.interval.end_ms)
            rows, event_ms = rows.filter(pa.array(is_inside)), event_ms[is_inside]
        sequences = np.asarray(rows[str(source.sequence)].to_numpy(), dtype=np.int64)
        partitions, codes = _encode_partitions(rows, source.partition)
        return _Positions(partitions, codes, sequences, event_ms)

    def _event_time(self) -> TimeColumn | None:
        try:
            return TimeColumn.from_expression(self.definition.timed_source.event_time, "source.event_time")
        except PlanError:
            return None


def _is_within(file: InputFile, interval: Interval) -> bool:
    """Return whether all events of a file are in an interval."""
    if file.min_event_ms is None or file.max_event_ms is None:
        return False
    return interval.start_ms <= file.min_event_ms and file.max_event_ms < interval.end_ms


def _remove_nulls(rows: pa.Table, name: str) -> pa.Table:
    return rows.filter(pc.is_valid(rows[name])) if rows[name].null_count else rows


def _cast_sequence(rows: pa.Table, name: str) -> pa.Table:
    """Return the rows whose sequence is a number, as integers; the run puts the others into quarantine."""
    rows = _remove_nulls(rows, name)
    if not pa.types.is_integer(rows[name].type):
        text = rows[name].cast(pa.string())
        is_number = pc.match_substring_regex(text, r"^-?\d{1,18}$")
        rows = rows.set_column(rows.column_names.index(name), name, text).filter(is_number)
    return rows.set_column(rows.column_names.index(name), name, rows[name].cast(pa.int64()))


def _encode_partitions(rows: pa.Table, partition: str | None) -> tuple[Sequence[str], Longs]:
    if partition is None or partition not in rows.column_names:
        return [ONLY_PARTITION], np.zeros(rows.num_rows, dtype=np.int64)
    column = rows[partition].combine_chunks()
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode(null_encoding="encode")
    partitions = [str(value) for value in encoded.dictionary.to_pylist()]
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return partitions, np.asarray(codes, dtype=np.int64)


def _spans(path: str, positions: _Positions, *, is_kept: bool) -> Iterator[_Span]:
    """Yield each partition's first and last number in a file, and whether all its numbers are distinct."""
    if len(positions.codes) != len(positions.sequences):
        return  # some sequences are no numbers: their records are in quarantine and are not compared
    few = len(positions.partitions) < 2**15
    order = np.argsort(positions.codes.astype(np.int16) if few else positions.codes, kind="stable")
    codes, sequences = positions.codes[order], positions.sequences[order]
    bounds = [0, *(np.flatnonzero(codes[1:] != codes[:-1]) + 1).tolist(), len(codes)]
    for begin, end in pairwise(bounds):
        if begin == end or codes[begin] < 0:
            continue
        numbers = sequences[begin:end]
        if not (is_distinct := _rises(numbers)):
            numbers = np.sort(numbers)
            is_distinct = _rises(numbers)
        partition = positions.partitions[int(codes[begin])]
        kept = numbers if is_kept else None
        yield _Span(path, partition, int(numbers[0]), int(numbers[-1]), is_distinct, kept)


def _rises(numbers: Longs) -> bool:
    return bool(np.all(numbers[1:] > numbers[:-1]))


def _find_suspects(spans: Sequence[_Span]) -> set[str]:
    """Return the files that have a number twice, or whose numbers of a partition overlap those of another file."""
    paths = {span.file for span in spans if not span.is_distinct}
    ordered = sorted(spans, key=lambda span: (span.partition, span.first))
    furthest: _Span | None = None
    for span in ordered:
        if furthest and furthest.partition == span.partition and span.first <= furthest.last:
            paths |= {furthest.file, span.file}
        if furthest is None or furthest.partition != span.partition or span.last > furthest.last:
            furthest = span
    return paths


def _scan_part(reader: _Reader, files: Sequence[InputFile], part: int, parts: int) -> Iterator[_Span]:
    """Yield the numbers of the files whose remainder of a division by `parts` is `part`."""
    for file in files:
        positions = reader.positions(file)
        yield from _spans(file.path, positions.filter(positions.sequences % parts == part), is_kept=True)


def _repeated_numbers(spans: Iterable[_Span]) -> dict[str, Longs]:
    """Return the numbers that occur more than once, by partition."""
    numbers: dict[str, list[Longs]] = {}
    for span in spans:
        if span.numbers is not None:
            numbers.setdefault(span.partition, []).append(span.numbers)
    repeated: dict[str, Longs] = {}
    for partition, arrays in numbers.items():
        ordered = np.sort(np.concatenate(arrays))
        duplicates = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
        if len(duplicates):
            repeated[partition] = duplicates
    return repeated


def _compare_records(
    reader: _Reader, files: Sequence[InputFile], parts: Iterable[Mapping[str, Longs]]
) -> RepeatedPositions:
    """Compare the records with repeated numbers; only records with the same event time share a position."""
    count, examples = 0, list[tuple[str, int, int]]()
    for numbers in parts:
        if not numbers:
            continue
        rows = _count_positions(reader, files, numbers)
        repeated = rows.filter(pc.greater(rows["count"], 1))
        count += repeated.num_rows
        by = [("partition", "ascending"), ("sequence", "ascending"), ("event_ms", "ascending")]
        first = repeated.sort_by(by).slice(0, MAX_EXAMPLES).to_pylist()
        examples += [(row["partition"], row["sequence"], row["count"]) for row in first]
    shown = sorted(examples)[:MAX_EXAMPLES]
    return RepeatedPositions(count, tuple(RepeatedPosition(*position) for position in shown))


def _count_positions(reader: _Reader, files: Sequence[InputFile], numbers: Mapping[str, Longs]) -> pa.Table:
    """Return how often each position with these numbers occurs: `partition`, `sequence`, `event_ms`, `count`."""
    tables = []
    for file in files:
        positions = reader.positions(file)
        has_number = np.zeros(len(positions.codes), dtype=bool)
        for code, partition in enumerate(positions.partitions):
            if partition in numbers:
                is_partition = positions.codes == code
                has_number[is_partition] = np.isin(positions.sequences[is_partition], numbers[partition])
        chosen = positions.filter(has_number)
        partitions = pa.DictionaryArray.from_arrays(
            pa.array(chosen.codes, pa.int32()), pa.array(list(positions.partitions), pa.string())
        )
        columns: dict[str, Any] = {
            "partition": partitions.cast(pa.string()),
            "sequence": chosen.sequences,
            "event_ms": chosen.event_ms,
        }
        tables.append(pa.table(columns))
    rows = pa.concat_tables(tables)
    counts = rows.group_by(rows.column_names).aggregate([([], "count_all")])
    return counts.rename_columns([*rows.column_names, "count"])
