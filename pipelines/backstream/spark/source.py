"""Read recorded events from files, and normalize them; unreadable records get a reason."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    DataType,
    IntegralType,
    StringType,
    StructType,
)

from backstream.chunks.group import require_undamaged
from backstream.definition import prepared_columns
from backstream.definition.columns import payload_columns
from backstream.definition.model import Definition
from backstream.definition.source_section import Source
from backstream.errors import ContractError
from backstream.eventtime.duplicates import Identity, Kept, RecordGap
from backstream.eventtime.intervals import Interval
from backstream.eventtime.records import ONLY_PARTITION, Fate
from backstream.eventtime.time_zones import TimeZone
from backstream.eventtime.windows import Session
from backstream.native.sql import local_time
from backstream.runs.plan import InputFile
from backstream.source.column_types import quote_column, reason_not_a_time
from backstream.spark.schemas import (
    ARRIVAL_ORDER,
    EVENT,
    EVENT_TIME_US,
    PARTITION_NUMBER,
    IntervalColumns,
    Step,
    parse_schema,
    table_literals,
)
from backstream.spark.time_texts import instant_of_text

REASON = "quarantine_reason"
"""The column with the reason why a record is unreadable; null for readable records."""
FILE = "source_file"
FILE_SIZE = "source_file_size"
"""The column with the size of the file in bytes, if requested."""
RECORD = "record"
IS_FILTERED = "is_filtered"
"""The column with whether `[filter]` keeps a record from windows."""
MARKER = "marker_ms"
"""The column with the watermark that a record carries if watermarks are punctuated; null for none."""
WRITTEN_EVENT_TIME = "written_event_time"
WRITTEN_ARRIVAL_TIME = "written_arrival_time"

_INSTANT = "event_instant_ms"
"""The column of the instant of an event, if event times are local."""

_WILDCARD = re.compile(r"[{}\[\]*?\\]")
"""Characters that Spark would expand as wildcards."""


def load_files(spark: SparkSession, paths: Sequence[str], schema: StructType) -> DataFrame:
    """Return the rows of Parquet files with the columns of a schema; a column that a file lacks is null."""
    literal = [_WILDCARD.sub(r"\\\g<0>", path) for path in paths]
    return spark.read.schema(schema).parquet(*literal)


def read_schema(columns: Mapping[str, str]) -> StructType:
    """Return columns with their Spark SQL types as a schema."""
    ddl = ", ".join(f"{quote_column(name)} {kind}" for name, kind in columns.items())
    return parse_schema(ddl)


def add_file(rows: DataFrame) -> DataFrame:
    """Add `source_file` to normalized events, since a source may have a column with this name.

    Add it only if it is needed: otherwise Spark stores all file metadata for every row.
    """
    return rows.withColumn(FILE, F.col("_metadata.file_path"))


def add_position(rows: DataFrame) -> DataFrame:
    """Add `source_file`, and the position of a row in its file, to normalized events."""
    return rows.transform(add_file).withColumn(_ROW, F.col("_metadata.row_index"))


def add_record(rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Add `record`, these columns as JSON; for quarantine only, since it reads every column of a file."""
    own = [name for name in columns if name not in prepared_columns.PREPARED_COLUMNS]
    record = F.to_json(
        F.struct(*(F.col(quote_column(name)).alias(name) for name in own)), {"ignoreNullFields": "false"}
    )
    is_prepared = prepared_columns.RECORD in columns
    return rows.withColumn(RECORD, F.coalesce(F.col(prepared_columns.RECORD), record) if is_prepared else record)


def normalize_events(definition: Definition, zone: TimeZone | None = None) -> Step:
    """Add event and arrival time in ms, partition, sequence, the columns of a run, and a reason if unreadable.

    Args:
        definition: the definition of an event.
        zone: the time zone of event times; None: they are instants.

    Raises:
        ContractError: when the type of a time column isn't a time.
    """
    source, marker = definition.timed_source, definition.marker
    window = definition.window_spec
    is_in_us = isinstance(window, Session) and window.per_ms > 1

    def step(rows: DataFrame) -> DataFrame:
        kept = [name for name in payload_columns(definition, rows.columns) if name not in (*EVENT, EVENT_TIME_US)]
        event, arrival = _times(rows, source)
        columns = {
            "event_time_ms": F.unix_millis(event),
            **({EVENT_TIME_US: F.unix_micros(event)} if is_in_us else {}),
            "arrival_time_ms": F.unix_millis(arrival),
            "source_partition": F.col(source.partition).cast("string")
            if source.partition
            else F.lit(ONLY_PARTITION),
            "arrival_seq": F.col(source.sequence).try_cast("long") if source.sequence else F.lit(0).cast("long"),
            WRITTEN_EVENT_TIME: _first_of(rows, prepared_columns.EVENT_TEXT, _as_text(source.event_time)),
            WRITTEN_ARRIVAL_TIME: _first_of(rows, prepared_columns.ARRIVAL_TEXT, _as_text(source.arrival_time)),
            **({MARKER: marker_ms_column(rows, marker, event, definition.watermark.delay)} if marker else {}),
            IS_FILTERED: ~F.expr(definition.filter.where) if definition.filter else F.expr("false"),
        }
        if source.partition and isinstance(_type_of(rows, F.col(source.partition)), IntegralType):
            columns[PARTITION_NUMBER] = F.col(source.partition)
        wanted = dict.fromkeys((*kept, RECORD, prepared_columns.FILE, prepared_columns.LINE))
        names = [name for name in wanted if name in rows.columns]
        is_prepared = prepared_columns.REASON in rows.columns
        kept_columns = [F.col(quote_column(name)) if is_prepared else _require_utf8(rows, name) for name in names]
        columns[REASON] = _first_of(rows, prepared_columns.REASON, _reason(source, columns))
        events = rows.select(*(column.alias(name) for name, column in columns.items()), *kept_columns)
        if zone is None:
            return events
        near = zone.around(zone.local_span(Interval(*source.event_time_range)))
        local = {_INSTANT: F.col("event_time_ms"), "event_time_ms": F.expr(local_time(near, "event_time_ms"))}
        return events.withColumns(local)

    return step


NOT_UTF8 = "has bytes that are not UTF-8 in"


def _require_utf8(rows: DataFrame, name: str) -> Column:
    """Return a column; a text of a Parquet file that is not UTF-8 fails with the column and the file."""
    column = F.col(quote_column(name))
    if name == RECORD or not isinstance(_type_of(rows, column), StringType):
        return column
    message = F.concat(F.lit(f"column '{name}' {NOT_UTF8} "), F.input_file_name())
    return F.when(F.is_valid_utf8(column) | column.isNull(), column).otherwise(F.raise_error(message)).alias(name)


def _first_of(rows: DataFrame, name: str, column: Column) -> Column:
    """Return the value that the preparation of the source left for a record; another column without one."""
    return F.coalesce(F.col(name), column) if name in rows.columns else column


def marker_ms_column(rows: DataFrame, marker: str, event: Column, delay_ms: int) -> Column:
    """Return the watermark of a record: the time in the marker, or the event time less the delay if it is true."""
    if isinstance(_type_of(rows, F.expr(marker)), BooleanType):
        return F.when(F.expr(marker), F.unix_millis(event) - F.lit(delay_ms))
    return F.unix_millis(_parse_time(rows, "watermark.marker", marker))


def _times(rows: DataFrame, source: Source) -> tuple[Column, Column]:
    event = _parse_time(rows, "source.event_time", source.event_time)
    if source.arrival_time is None:
        # It wasn't recorded. Only the order among duplicates depends on it.
        return event, event
    return event, _parse_time(rows, "source.arrival_time", source.arrival_time)


def _parse_time(rows: DataFrame, key: str, expression: str) -> Column:
    kind = _type_of(rows, F.expr(expression))
    if wrong := reason_not_a_time(key, expression, kind.simpleString()):
        raise ContractError(wrong)
    column = F.expr(expression)
    return instant_of_text(column, None, None) if isinstance(kind, StringType) else column


def _type_of(rows: DataFrame, column: Column) -> DataType:
    return rows.select(column).schema.fields[0].dataType


def _as_text(expression: str | None) -> Column:
    return F.lit(None).cast("string") if expression is None else F.expr(expression).cast("string")


def _reason(source: Source, columns: Mapping[str, Column]) -> Column:
    """Return the reason why a record is unreadable, else null.

    The conditions use the columns of the file, so that text is created only for unreadable records.
    """
    first_ms, end_ms = source.event_time_range
    event_ms = columns["event_time_ms"]
    reasons = {
        "null_event_time": F.expr(source.event_time).isNull(),
        "unparsable_event_time": event_ms.isNull(),
        "absurd_event_time": (event_ms < F.lit(first_ms)) | (event_ms >= F.lit(end_ms)),
        **({"null_source_partition": F.col(source.partition).isNull()} if source.partition else {}),
        "null_sequence": columns["arrival_seq"].isNull(),
    }
    if source.arrival_time is not None:
        reasons["null_arrival_time"] = F.expr(source.arrival_time).isNull()
        reasons["unparsable_arrival_time"] = columns["arrival_time_ms"].isNull()
    return F.coalesce(*(F.when(is_so, F.lit(reason)) for reason, is_so in reasons.items()))


def is_for_windows() -> Column:
    """Return whether windows get a record, of columns that `mark_duplicates` has made."""
    return F.col(REASON).isNull() & ~F.col("is_duplicate") & ~F.col(IS_FILTERED)


def fate_outside_windows(fate: Column) -> Column:
    """Return the fate of a record that windows don't get, and another one for records that they get."""
    return (
        F.when(F.col(REASON).isNotNull(), F.lit(Fate.QUARANTINED))
        .when(F.col("is_duplicate"), F.lit(Fate.DUPLICATE))
        .when(F.col(IS_FILTERED), F.lit(Fate.FILTERED))
        .otherwise(fate)
    )


def is_in_chunk(spark: SparkSession, interval: Interval, owned_files: Iterable[str]) -> Column:
    """Return whether a chunk reads a record: one in its interval, or an unreadable one of a file that it owns.

    An unreadable record has no event time, so the first chunk that reads its file owns it.
    """
    is_readable = F.col(REASON).isNull()
    is_inside = IntervalColumns.from_interval(spark, interval).hold(F.col("event_time_ms"))
    owned = table_literals(spark, {"files": pa.array(list(owned_files), pa.string())})["files"]
    is_owned = F.array_contains(owned, F.col(FILE))
    return (is_readable & F.coalesce(is_inside, F.expr("false"))) | (~is_readable & is_owned)


def count_gaps(source: Source, events: DataFrame) -> list[Column]:
    """Return the number of readable events with each `RecordGap`, named by it."""

    def is_empty(name: str) -> Column:
        column = F.col(quote_column(name))
        is_text = isinstance(_type_of(events, column), StringType)
        return column.isNull() | (column == F.lit("")) if is_text else column.isNull()

    never = F.expr("false")
    has_no_id, has_empty_id = never, never
    if source.deduplicate_on:
        has_no_id = reduce(Column.__and__, (F.col(quote_column(name)).isNull() for name in source.deduplicate_on))
        has_empty_id = reduce(Column.__and__, map(is_empty, source.deduplicate_on)) & ~has_no_id
    has_no_key = reduce(Column.__or__, map(is_empty, source.key), never)
    conditions = {
        RecordGap.NO_ID: has_no_id,
        RecordGap.EMPTY_ID: has_empty_id,
        RecordGap.NO_KEY: has_no_key,
    }
    is_readable = F.col(REASON).isNull()
    return [F.count_if(is_readable & condition).alias(gap) for gap, condition in conditions.items()]


def mark_duplicates(identity: Identity) -> Step:
    """Add `is_duplicate` to normalized events by the rule of `Identity`; they have the columns of `add_position`.

    The events must include those of `identity.reach`. Without columns, no event is a duplicate.
    """
    if not identity.columns:
        return lambda events: events.withColumn("is_duplicate", F.expr("false"))
    ids = [F.col(quote_column(name)) for name in identity.columns]
    has_id = F.col(REASON).isNull() & reduce(Column.__or__, (each.isNotNull() for each in ids))

    def step(events: DataFrame) -> DataFrame:
        # Events that have no copies are divided by event time, so that no task gets all of them.
        at_ms = F.col(_INSTANT if _INSTANT in events.columns else "event_time_ms")
        same = Window.partitionBy(has_id, F.when(~has_id, at_ms) if identity.within_ms else at_ms, *ids)
        in_order = same.orderBy(*_order_of_copies(events, identity.keep))
        number = F.row_number().over(in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow))
        placed = events.withColumn(_PLACE, number)
        first = F.lit(1)
        if identity.within_ms:
            near = same.orderBy("event_time_ms").rangeBetween(-identity.within_ms, identity.within_ms)
            first = F.min(_PLACE).over(near)
        return placed.withColumn("is_duplicate", has_id & (F.col(_PLACE) > first)).drop(_PLACE, _ROW)

    return step


def _without_duplicates(events: DataFrame, identity: Identity) -> DataFrame:
    """Return normalized events without duplicates; they must include those of `identity.reach`."""
    if not identity.columns:
        return events
    marked = events.transform(add_position).transform(mark_duplicates(identity))
    return marked.where(~F.col("is_duplicate")).drop("is_duplicate", FILE)


_PLACE, _ROW = "place_among_copies", "row_in_file"


def _order_of_copies(events: DataFrame, keep: Kept) -> list[Column]:
    """Return the order in which the first of several copies counts."""
    raw_file = [F.col(prepared_columns.FILE)] if prepared_columns.FILE in events.columns else []
    position = [*map(F.col, ARRIVAL_ORDER), *raw_file, F.col(FILE), F.col(_ROW)]
    return [column.asc_nulls_first() if keep == "first" else column.desc_nulls_last() for column in position]


@dataclass(frozen=True, slots=True)
class EventFiles:
    """The events of one or more files."""

    spark: SparkSession
    files: Sequence[InputFile]
    read: Callable[[Sequence[str]], DataFrame]
    """Returns the normalized events of the files at these paths, without unreadable records."""
    damaged: Sequence[InputFile] = ()
    """Files that can't be read, with the bounds of their last readable version; a run may not need them."""

    def all(self) -> DataFrame:
        """Return the events of all files."""
        return self.read([file.path for file in self.files])

    def between(self, interval: Interval) -> DataFrame:
        """Return the events of an interval."""
        is_inside = IntervalColumns.from_interval(self.spark, interval).hold(F.col("event_time_ms"))
        return self.around(interval).where(is_inside)

    def unique_events(self, identity: Identity, interval: Interval | None) -> DataFrame:
        """Return the events of an interval without duplicates; None: of all files."""
        if interval is None:
            return _without_duplicates(self.all(), identity)
        unique = _without_duplicates(self.between(identity.reach(interval)), identity)
        return unique.where(IntervalColumns.from_interval(self.spark, interval).hold(F.col("event_time_ms")))

    def around(self, interval: Interval) -> DataFrame:
        """Return the events of the files that may have an event of an interval."""
        # If no file can have such an event, any file will do: it has none in the interval.
        return self.read(self.paths_of(interval) or [self.files[0].path])

    def paths_of(self, interval: Interval) -> list[str]:
        """Return the files that may have an event of an interval.

        Raises:
            ContractError: when a damaged file is one of them.
        """
        require_undamaged(self.damaged, interval)
        return [file.path for file in self.files if file.may_hold(interval)]
