"""Run the process function of a definition: one key at a time, over records sorted by key and arrival.

The Arrow function gets the sorted records of many keys as one stream of batches. It keeps the state of one key, so
its memory does not depend on the number of keys.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from backstream.chunks.attempt import Attempt
from backstream.chunks.lateness import load_full_timeline
from backstream.definition.columns import declared_columns
from backstream.definition.prepared_columns import PREPARED_COLUMNS
from backstream.definition.result_sections import Process
from backstream.errors import UserCodeError
from backstream.eventtime.instants import MAX_MS, MIN_MS, instant_text
from backstream.eventtime.intervals import Interval
from backstream.eventtime.process_functions import Context, Emitted, ProcessFunction
from backstream.eventtime.windows import Tumbling
from backstream.runs.table_schemas import RECORD_COUNT, pane_count_column
from backstream.source.column_types import quote_column
from backstream.spark.chunk_group import SparkGroup
from backstream.spark.key_runs import KeyRun, TimerQueue
from backstream.spark.schemas import ARRIVAL_ORDER, int64_literal
from backstream.spark.session import ship_package
from backstream.spark.source import IS_FILTERED
from backstream.spark.staging import spark_type_of_name
from backstream.spark.watermarks.join import add_watermarks
from backstream.spark.windows.aggregation import WINDOW
from backstream.user_code import UserCode, last_line_of_trace, user_trace
from backstream.watermarks.timeline import Longs, to_int64

_METHODS = ("process_element",)
"""The methods that the class must have."""
_KIND, _TAG, _TEXT, _ROW = "process__kind", "process__tag", "process__text", "process__row"
_ROW_KIND, _OUTPUT_KIND, _SKIPPED_KIND, _ERROR_KIND = "row", "output", "skipped", "error"
_NUMBERS = (WINDOW[0], "event_time_ms", "row_index", RECORD_COUNT)
_MAX_ROWS = 10_000
"""The number of rows of a batch that the Arrow function returns."""
_MAX_RECORD_TEXT = 500


class ProcessResult(NamedTuple):
    """The rows of a process function, the windows without a row, and the side outputs."""

    values: DataFrame
    skipped: DataFrame
    skipped_records: int
    """The number of records in skipped windows."""
    outputs: DataFrame


def compute_process(
    group: SparkGroup, process: Process, attempt: Attempt, keep: Callable[[DataFrame], DataFrame]
) -> ProcessResult:
    """Run the process function over all records that can affect the rows of the chunks. Runs jobs.

    Raises:
        SpecError: when the class can't be imported or created.
        UserCodeError: when it fails, or emits a row that does not fit the declared columns.
    """
    code = UserCode("process function", process.process_class)
    code.create(_METHODS, process.kwargs)  # fail before records are read
    ship_package(group.spark.sparkContext, process.process_class)
    records, rises_ms = _load_records(group, process)
    keys = group.definition.source.key
    all_columns = [name for name in group.schema.names if name not in PREPARED_COLUMNS]
    columns = tuple(dict.fromkeys((*keys, *(process.reads or all_columns))))
    schema = _output_schema(group, records)
    task = _ProcessTask(
        code=code,
        kwargs=process.kwargs,
        keys=keys,
        columns=columns,
        schema=to_arrow_schema(schema, timezone="UTC"),
        window=cast("Tumbling", group.definition.window.spec()),
        owned=group.interval,
        place=str(attempt),
        rises=group.spark.sparkContext.broadcast(rises_ms),
    )
    needed = [*dict.fromkeys((*columns, "event_time_ms", "watermark_ms", *ARRIVAL_ORDER))]
    by_key = records.select(*(F.col(quote_column(name)) for name in needed))
    by_key = by_key.repartition(*(F.col(key) for key in keys)) if keys else by_key.repartition(1)
    ordered = by_key.sortWithinPartitions(*keys, *_arrival_order(group, columns))
    output = keep(ordered.mapInArrow(task, schema))
    is_skipped = F.col(_KIND) == F.lit(_SKIPPED_KIND)
    error = F.min(F.when(F.col(_KIND) == F.lit(_ERROR_KIND), F.col(_TEXT)))
    skipped = F.coalesce(F.sum(F.when(is_skipped, F.col(RECORD_COUNT))), F.lit(0))
    ((error_text, skipped_records),) = output.agg(error, skipped).collect()
    if error_text is not None:
        raise UserCodeError(error_text)
    return _split_output(output, keys, task.window, process, int(skipped_records))


def _load_records(group: SparkGroup, process: Process) -> tuple[DataFrame, Longs]:
    """Return the records that the function gets, with `watermark_ms`, and all rises of the watermark."""
    reach = None
    if process.state_reach is not None:
        owned, reach_ms = group.interval, process.state_reach
        reach = Interval(owned.start_ms - reach_ms, owned.end_ms + reach_ms)
    unique = group.event_files.unique_events(group.definition.source.identity, reach)
    records = unique.where(~F.col(IS_FILTERED)).drop(IS_FILTERED)
    if not group.is_replay:
        return records.withColumn("watermark_ms", int64_literal(MIN_MS)), to_int64([MAX_MS])
    timeline = load_full_timeline(group, group.reader)
    return records.transform(add_watermarks(group.spark, timeline, group.clock)), timeline.all_rises_ms()


def _arrival_order(group: SparkGroup, columns: Sequence[str]) -> list[Any]:
    """Return the order of the records of a key; without a sequence, a hash of the record breaks ties."""
    if group.definition.source.sequence:
        return list(ARRIVAL_ORDER)
    names = [name for name in columns if not group.schema[name].dataType.simpleString().startswith("map")]
    return [*ARRIVAL_ORDER, F.xxhash64(*(F.col(quote_column(name)) for name in names))]


def _output_schema(group: SparkGroup, records: DataFrame) -> StructType:
    declared = [
        StructField(column.name, spark_type_of_name(column.type)) for column in declared_columns(group.definition)
    ]
    return StructType(
        [
            *(records.schema[key] for key in group.definition.source.key),
            *(StructField(name, LongType()) for name in _NUMBERS),
            *(StructField(name, StringType()) for name in (_KIND, _TAG, _TEXT)),
            StructField(_ROW, StructType(declared)),
        ]
    )


def _split_output(
    output: DataFrame, keys: Sequence[str], window: Tumbling, process: Process, skipped_records: int
) -> ProcessResult:
    end_ms = (F.col(WINDOW[0]) + int64_literal(window.size_ms)).alias(WINDOW[1])
    place = [*(F.col(key) for key in keys), F.col(WINDOW[0]), end_ms]

    def of_kind(kind: str) -> DataFrame:
        return output.where(F.col(_KIND) == F.lit(kind))

    values = [F.col(_ROW)[name].alias(name) for name in process.columns]
    no_panes = [int64_literal(0).alias(pane_count_column(pane)) for pane in ("first", "live")]
    position, count = [F.col("event_time_ms"), F.col("row_index")], F.col(RECORD_COUNT)
    return ProcessResult(
        of_kind(_ROW_KIND).select(*place, *position, *values, count),
        of_kind(_SKIPPED_KIND).select(*place, *no_panes, count.alias(pane_count_column("final"))),
        skipped_records,
        of_kind(_OUTPUT_KIND).select(*keys, *position, F.col(_TAG).alias("tag"), F.col(_TEXT).alias("row")),
    )


class _Broadcast(Protocol):
    """A value that Spark sends to each worker once."""

    @property
    def value(self) -> Longs:
        """The value."""


@dataclass(frozen=True, slots=True)
class _ProcessTask:
    """The Arrow function that runs a process function over the sorted records of some keys.

    `owned` is the interval of the starts of the windows to publish, and `place` names the chunks in errors.
    """

    code: UserCode
    kwargs: Mapping[str, Any]
    keys: Sequence[str]
    columns: Sequence[str]
    schema: pa.Schema
    window: Tumbling
    owned: Interval
    place: str
    rises: _Broadcast

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the emitted rows; after an error a row with its text, and nothing more."""
        keys = _Keys(self, self.code.load_class(_METHODS), self.rises.value)
        try:
            for batch in batches:
                keys.process_batch(batch)
                if len(keys.rows) >= _MAX_ROWS:
                    yield keys.take_rows()
            keys.finish()
            yield keys.take_rows()
        except Exception as error:  # noqa: BLE001 - the driver raises it
            yield pa.RecordBatch.from_pylist([{_KIND: _ERROR_KIND, _TEXT: keys.describe(error)}], self.schema)

    def window_start_ms(self, time_ms: int) -> int | None:
        """Return the start of the window of an instant; None if other chunks publish it."""
        start_ms = time_ms - (time_ms - self.window.offset_ms) % self.window.size_ms
        return start_ms if self.owned.start_ms <= start_ms < self.owned.end_ms else None


@dataclass(slots=True)
class _Keys:
    """The keys of one Arrow function, one after the other."""

    task: _ProcessTask
    new_function: Callable[..., ProcessFunction]
    rises_ms: Longs
    rows: list[dict[str, Any]] = field(default_factory=list)
    names: frozenset[str] = frozenset()
    run: KeyRun | None = None
    key: tuple[Any, ...] = ()
    record: Mapping[str, Any] | None = None
    owned_rows: list[Emitted] = field(default_factory=list)
    record_counts: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        row_type = self.task.schema.field(_ROW).type
        self.names = frozenset(row_type.field(number).name for number in range(row_type.num_fields))
        self.rises_ms = np.asarray(self.rises_ms)

    def process_batch(self, batch: pa.RecordBatch) -> None:
        """Process records; the first may be of the key of the batch before."""
        values = [batch.column(name).to_pylist() for name in self.task.keys]
        keys = zip(*values, strict=True) if values else repeat((), batch.num_rows)
        records = batch.select(list(self.task.columns)).to_pylist()
        times = (batch.column(name).to_pylist() for name in ("event_time_ms", "watermark_ms"))
        for key, record, time_ms, watermark_ms in zip(keys, records, *times, strict=True):
            if self.run is None or not _is_same(key, self.key):
                self.finish()
                self._begin(key)
            self._process(record, time_ms, watermark_ms)

    def finish(self) -> None:
        """Fire the pending timers of the current key, and collect its rows."""
        if self.run is None:
            return
        self.record = None
        self.run.finish()
        self._keep_owned_rows()
        self._collect_rows()
        self.run = None

    def take_rows(self) -> pa.RecordBatch:
        """Return the collected rows as a batch, and forget them."""
        rows, self.rows = self.rows, []
        try:
            return pa.RecordBatch.from_pylist(rows, self.task.schema)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise self._wrong_value_error(rows) or error from None

    def describe(self, error: Exception) -> str:
        """Return the message of an error: what failed, where, and the trace of the user's code."""
        if isinstance(error, UserCodeError):
            return str(error)
        at = f", {self.run.place()}" if self.run else ""
        text = (
            f"{self.task.code} failed in {self.task.place}{at}: {last_line_of_trace(error)}\n{user_trace(error)}"
        )
        if self.record is None:
            return text
        record = repr(dict(self.record))
        return f"{text}\n  record: {record[:_MAX_RECORD_TEXT]}{'..' if len(record) > _MAX_RECORD_TEXT else ''}"

    def _begin(self, key: tuple[Any, ...]) -> None:
        self.key, self.owned_rows, self.record_counts = key, [], Counter()
        context = Context(key[0] if len(key) == 1 else key, TimerQueue(), columns=self.names)
        self.run = KeyRun(self.rises_ms, self.new_function(**self.task.kwargs), context)

    def _process(self, record: Mapping[str, Any], time_ms: int, watermark_ms: int) -> None:
        assert self.run is not None  # noqa: S101 - `process_batch` has begun a key
        self.record = record
        self.run.process_element(record, time_ms, watermark_ms)
        start_ms = self.task.window_start_ms(time_ms)
        if start_ms is not None:
            self.record_counts[start_ms] += 1
        if self.run.context.emitted:
            self._keep_owned_rows()

    def _keep_owned_rows(self) -> None:
        """Move the emitted rows that these chunks publish; forget the others."""
        assert self.run is not None  # noqa: S101 - called for a key only
        emitted, self.run.context.emitted = self.run.context.emitted, []
        self.owned_rows += [row for row in emitted if self.task.window_start_ms(row.timestamp_ms) is not None]

    def _collect_rows(self) -> None:
        """Collect the rows of the current key; the first of a window has its records, and 0 rows are an entry."""
        indexes: Counter[tuple[int, bool]] = Counter()
        place = dict(zip(self.task.keys, self.key, strict=True))
        counts = self.record_counts
        for time_ms, tag, row in sorted(self.owned_rows, key=lambda emitted: emitted.timestamp_ms):
            start_ms = self.task.window_start_ms(time_ms)
            index = indexes[time_ms, tag is None]
            indexes[time_ms, tag is None] += 1
            entry = {**place, WINDOW[0]: start_ms, "event_time_ms": time_ms, "row_index": index}
            if tag is None:
                count = counts.pop(start_ms, 0) if start_ms is not None else 0
                self.rows.append({**entry, _KIND: _ROW_KIND, _ROW: row, RECORD_COUNT: count})
            else:
                text = json.dumps(row, default=str, ensure_ascii=False)
                self.rows.append({**entry, _KIND: _OUTPUT_KIND, _TAG: str(tag), _TEXT: text})
        for start_ms, count in counts.items():
            self.rows.append({**place, WINDOW[0]: start_ms, _KIND: _SKIPPED_KIND, RECORD_COUNT: count})

    def _wrong_value_error(self, rows: Sequence[Mapping[str, Any]]) -> UserCodeError | None:
        """Return the error of the first value that does not have its declared type."""
        fields = list(self.task.schema.field(_ROW).type)
        for row in rows:
            for declared in fields:
                value = (row.get(_ROW) or {}).get(declared.name)
                try:
                    pa.scalar(value, declared.type)
                except (pa.ArrowException, TypeError, ValueError, OverflowError):
                    at = instant_text(row["event_time_ms"])
                    key = tuple(row[name] for name in self.task.keys)
                    msg = (
                        f"{self.task.code} emitted a row whose column {declared.name!r} must be"
                        f" {declared.type}, got {value!r}\n"
                        f"  {self.task.place}\n  key {key[0] if len(key) == 1 else key!r}, time {at}"
                    )
                    return UserCodeError(msg)
        return None


def _is_same(key: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Return whether two keys are equal, with NaN equal to NaN as in Spark."""
    return key == other or all(
        one == two or (one != one and two != two)  # noqa: PLR0124 - only NaN differs from itself
        for one, two in zip(key, other, strict=True)
    )
