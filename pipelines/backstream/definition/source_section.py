"""Define the section `[source]` of a definition."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema

from backstream.definition.values import (
    Instant,
    Name,
    NonNegativeDuration,
    Section,
    Sql,
    TimePattern,
    TimeUnit,
    UserCodeName,
    require_order,
    require_simple_sql,
    require_time_pattern,
    require_time_zone,
)
from backstream.definition.watermark_sections import SourceWatermark
from backstream.eventtime.duplicates import Identity
from backstream.eventtime.instants import DAY_MS, instant_ms

_QUOTED = re.compile(r"`((?:[^`]|``)+)`")
_COLUMN = re.compile(r"\s*\w+\s*")
COLUMN_OF_NUMBERS = re.compile(r"\s*(timestamp_millis|timestamp_seconds)\((\w+)\)\s*")
"""A time that is a column of numbers. The footer of a file bounds it, as a column of timestamps."""


def _unquote_column(name: str) -> str:
    """Return the name of a column that may be quoted as in SQL."""
    quoted = _QUOTED.fullmatch(name)
    return quoted[1].replace("``", "`") if quoted else name


ColumnName = Annotated[str, Field(min_length=1), AfterValidator(_unquote_column)]
"""The name of a column, or a dotted path into one, with or without the backticks of SQL."""


class StoredRecords(Section):
    """Location and format of files with records."""

    format: Literal["parquet", "json", "csv", "orc", "avro", "iceberg"] = "parquet"
    """The format of the files. `json` has one record per line. Files that are not Parquet are prepared: each new
    file is read once, and its records are written to Parquet files in the home folder. `iceberg` reads the current
    snapshot of a table."""
    path: str | Annotated[tuple[str, ...], Field(min_length=1)]
    """The folder of the files, a path with wildcards, or a list of them. `${NAME}` is replaced by an environment
    variable. A path may be in an object store, e.g., `"s3://bucket/orders/"`. For `iceberg`, the name of the
    table: `"catalog.namespace.table"`."""
    columns: dict[str, str] = {}
    """The columns of JSON and CSV files: a name and a type of Spark SQL, e.g., `"struct<id: bigint>"`. Other
    columns of these files are ignored. For other formats, the type of columns whose types differ between files."""
    options: dict[str, str] = {}
    """Options of Spark's reader for the format, e.g., `header = "true"`. `encoding` is that of JSON and CSV files,
    e.g., `"UTF-16"` or `"windows-1252"`; by default UTF-8."""
    records: Annotated[str, Field(min_length=1)] | None = None
    """The field of a JSON value that holds an array of records, e.g., `"Records"` or `"data.items"`. A value can
    have several lines. By default each value, or each element of an array, is a record."""
    asset: Annotated[str, Field(min_length=1)] | None = None
    """The Airflow asset that your DAGs update when records arrive: its name, or its URI. Each update triggers
    `restate_<name>`, which reprocesses the stale and missing days."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Return `path` as a list."""
        return (self.path,) if isinstance(self.path, str) else self.path

    @model_validator(mode="after")
    def _check_format(self) -> Self:
        if self.format in _FORMATS_WITHOUT_SCHEMA and not self.columns:
            msg = f'columns is missing with format = "{self.format}": name the columns and their Spark SQL types'
            raise ValueError(msg)
        if "" in (
            self.path if isinstance(self.path, tuple) else (self.path,)
        ):  # it would be the working directory
            msg = f'path must not be empty, got {self.path!r}: write "." for the working directory'
            raise ValueError(msg)
        if self.format == "iceberg" and not (isinstance(self.path, str) and _TABLE.fullmatch(self.path)):
            msg = f'path must be catalog.namespace.table with format = "iceberg", got {self.path!r}'
            raise ValueError(msg)
        if self.records and self.format != "json":
            msg = f'records is for format = "json", got format = "{self.format}"'
            raise ValueError(msg)
        _require_complete_reading(self.options)
        return self


def _require_complete_reading(options: Mapping[str, str]) -> None:
    """Check that options have valid values, and that none leaves out records or files without a word."""
    for name, value in options.items():
        if name.lower() in ("encoding", "charset"):
            try:
                codecs.lookup(value)
            except LookupError:
                msg = f'options.{name} must be an encoding such as "UTF-16" or "windows-1252", got {value!r}'
                raise ValueError(msg) from None
        if name.lower() in _BOOLEANS and value.lower() not in ("true", "false"):
            msg = f"options.{name} must be true or false, got {value!r}"
            raise ValueError(msg)
        if name.lower() in _CHARACTERS and len(value.replace("\\t", "\t")) > 1:
            msg = f"options.{name} must be one character or empty, got {value!r}"
            raise ValueError(msg)
        if name.lower() in ("sep", "delimiter", "linesep") and not value:
            msg = f"options.{name} must not be empty"
            raise ValueError(msg)
        if name.lower() in ("timestampformat", "timestampntzformat", "dateformat"):
            try:
                require_time_pattern(value)
            except ValueError as error:
                msg = f"options.{name} {error}"
                raise ValueError(msg) from None
        if remedy := _INCOMPLETE.get(name.lower()):
            msg = f"options.{name} is not allowed, because records would be left out and not counted: {remedy}"
            raise ValueError(msg)


_BOOLEANS = {"header", "multiline", "ignoreleadingwhitespace", "ignoretrailingwhitespace", "columnpruning"}
_CHARACTERS = {"quote", "escape", "comment", "chartoescapequoteescaping"}
_INCOMPLETE = {
    "mode": "unreadable records go to quarantine",
    "columnnameofcorruptrecord": "unreadable records go to quarantine",
    "ignorecorruptfiles": 'use source.corrupt_files = "skip"',
    "ignoremissingfiles": 'use source.corrupt_files = "skip"',
    **dict.fromkeys(
        ("pathglobfilter", "modifiedbefore", "modifiedafter", "recursivefilelookup", "basepath"),
        "use wildcards in source.path",
    ),
}
"""Options of Spark's reader in lower case, with the way in which backstream does the same."""
_FORMATS_WITHOUT_SCHEMA = ("json", "csv")
_TABLE = re.compile(r"[^./\s]+(\.[^./\s]+){2,}")


class FlinkSql(Section):
    """Script of Flink SQL that gives the columns, the watermark, the windows, and the aggregates."""

    script: str
    """The file of the script, from the folder of the definition on, e.g., `"job.sql"`."""
    insert: str | None = None
    """The table of the INSERT, if the script has several."""
    value: ColumnName | None = None
    """The column of the archive that has the value of a Kafka record. By default, its fields are columns."""


class SideInput(StoredRecords):
    """Further input of `source.transform`, such as a table of customers; it gets it under this name."""

    key: tuple[str, ...] = ()
    """The columns that identify a row; rows with the same values are an error."""
    as_of: str | None = None
    """The column of the time from which on a row is valid. The function also gets the column `valid_until`: the
    time from which on the next row with the same key is valid, or null."""


class PartitionFilter(Section):
    """Promise that the folders of a source hold only records with certain event times."""

    columns: Annotated[tuple[str, ...], Field(min_length=1)]
    """The columns of the folders from the longest period to the shortest, e.g., `["dt", "hour"]`. The first is a
    year, a month, a day, or longer, such as `2024-03-01`; each other one has two digits."""
    slack: NonNegativeDuration
    """The longest time by which an event can be before or after the period of its folder, e.g., `"1d"`."""


class Source(StoredRecords):
    """Location of the recorded events, and the columns with their times, source partition, and sequence."""

    event_time: Annotated[str, Field(min_length=1), AfterValidator(require_simple_sql)]
    """The event time of a record: a column, a field such as `payload.at`, or SQL over the columns."""
    event_time_unit: TimeUnit | None = None
    """The unit of event times that are numbers since 1970."""
    event_time_pattern: TimePattern | None = None
    """The pattern of event times that are text, in Spark's notation, e.g., `"dd/MM/yyyy HH:mm:ss"`; by default
    ISO 8601."""
    arrival_time: Sql | None = None
    """The arrival time of a record: a column, a field, or SQL over the columns. A replay needs it."""
    arrival_time_unit: TimeUnit | None = None
    """The unit of arrival times that are numbers since 1970."""
    arrival_time_pattern: TimePattern | None = None
    """The pattern of arrival times that are text."""
    time_zone: Annotated[str, AfterValidator(require_time_zone)] | None = None
    """The time zone of times that are written without one, e.g., `"America/New_York"`."""
    derive: dict[Name, Sql] = {}
    """Additional columns: a name and SQL over the columns of the files and over earlier derived ones."""
    where: Sql | None = None
    """SQL condition: other records are left out, and counted."""
    transform: UserCodeName | None = None
    """Python function, `package.module:function`, that changes the records before anything else reads them. It
    takes and returns a Spark DataFrame."""
    prepare: bool = False
    """`true`: prepare the files although both engines could read them where they are."""
    partition_filter: PartitionFilter | None = None
    """The folders whose files a recompute opens: those that may hold the range. Their periods are in `time_zone`,
    by default in UTC. Each record that breaks the promise is counted."""
    partition: ColumnName | None = None
    """The column of the source partition, e.g., the Kafka partition; by default there is one partition."""
    sequence: ColumnName | None = None
    """The column of the order within a source partition, e.g., the Kafka offset; by default the arrival time."""
    key: tuple[ColumnName, ...] = ()
    """The columns of the key: the result has one row per key and window."""
    deduplicate_on: tuple[ColumnName, ...] = ()
    """The columns of the id of a record. Of records with the same id, one counts, and the others are duplicates.
    Null equals null, but a record whose columns are all null has no id, so it is never a duplicate."""
    deduplicate_within: NonNegativeDuration = DAY_MS
    """The largest difference between the event times of two records that are duplicates if they have the same id.
    `"0s"`: only records with the same event time. A run reads records beyond its range by this duration."""
    deduplicate_keep: Literal["first", "last"] = "first"
    """The record that counts among those with the same id: the first or the last in arrival order. This is the
    order of arrival times, sequences, and source partitions, then of the paths of files and the positions in them.
    Without `arrival_time`, the event time replaces it."""
    event_time_range: Annotated[tuple[Instant, Instant], AfterValidator(require_order)] = Field(
        default=(0, instant_ms("2100-01-01", "end")),
        json_schema_extra={"default": ["1970-01-01T00:00Z", "2100-01-01T00:00Z"]},
    )
    """Half-open range of valid event times; other records are quarantined."""
    corrupt_files: Literal["fail", "skip"] = "fail"
    """`skip`: damaged files are skipped, and the plan, the report, and the quality gate list them.
    `fail`: planning fails if the range needs a damaged file."""
    name: Name | None = None
    """The name of the source if there are several; the names of its partitions are `<name>/<partition>`."""
    watermark: SourceWatermark | None = None
    """The watermarks of the source if there are several; by default those of `[watermark]`."""
    parts: SkipJsonSchema[tuple[Source, ...]] = ()
    """The sources of a union; this source then describes their prepared files."""

    @model_validator(mode="after")
    def _check_times(self) -> Self:
        for key in ("event_time", "arrival_time"):
            unit, pattern = getattr(self, f"{key}_unit"), getattr(self, f"{key}_pattern")
            if unit and pattern:
                msg = f"{key}_unit is for numbers and {key}_pattern for text: only one can be set"
                raise ValueError(msg)
            if (unit or pattern) and getattr(self, key) is None:
                msg = f"{key}_{'unit' if unit else 'pattern'} has no meaning without {key}"
                raise ValueError(msg)
        if self.partition_filter and self.format == "iceberg":
            msg = "partition_filter is for folders, and an Iceberg table has metadata: use where instead"
            raise ValueError(msg)
        for key in ("deduplicate_within", "deduplicate_keep"):
            if not self.deduplicate_on and getattr(self, key) != type(self).model_fields[key].default:
                msg = f"{key} needs deduplicate_on, the columns of the id of a record"
                raise ValueError(msg)
        return self

    @property
    def computed_times(self) -> list[str]:
        """The keys of times that SQL computes from columns, so that no footer of a file bounds them."""
        return [
            key
            for key in ("event_time", "arrival_time")
            if (text := getattr(self, key)) and not (_COLUMN.fullmatch(text) or COLUMN_OF_NUMBERS.fullmatch(text))
        ]

    @property
    def identity(self) -> Identity:
        """The rule for duplicates."""
        return Identity(self.deduplicate_on, self.deduplicate_within, self.deduplicate_keep)


SHARED_KEYS = (
    *("key", "deduplicate_on", "deduplicate_within", "deduplicate_keep"),
    *("event_time_range", "corrupt_files"),
)
"""Keys that all sources of a union have in common."""
