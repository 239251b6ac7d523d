"""Prepare raw files with Spark: read any format, compute times and columns, and write Parquet files.

All conditions on single records are decided here, in Spark SQL. So both engines read the same values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial, reduce
from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, DataFrameReader, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DataType,
    DoubleType,
    FloatType,
    IntegralType,
    LongType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from backstream.definition.model import Definition
from backstream.definition.prepared import (
    ARRIVAL_TEXT,
    ARRIVAL_TIME,
    EVENT_TEXT,
    EVENT_TIME,
    FILE,
    MARKER,
    PARTITION,
    PREPARED_COLUMNS,
    REASON,
    RECORD,
    SEQUENCE,
    column_of_path,
    list_paths,
)
from backstream.definition.source_section import Source
from backstream.definition.values import TimeUnit
from backstream.errors import ContractError, SpecError
from backstream.eventtime.records import ONLY_PARTITION
from backstream.eventtime.union import SEPARATOR
from backstream.source.column_types import quote_column
from backstream.source.csv_headers import group_by_header, has_header
from backstream.source.prepared import BatchCounts
from backstream.source.raw_files import root_of_path
from backstream.spark.schemas import int64_literal, integer_quotient
from backstream.spark.source import file_uri, marker_ms_column
from backstream.spark.user_functions import register_functions
from backstream.user_code import UserCode

MALFORMED = "prepared_malformed"
"""Column with the text of a record that Spark's reader cannot parse; null for any other record."""
_FORMATS = {"avro": "org.apache.spark.sql.avro.AvroFileFormat", "iceberg": "parquet"}
"""Formats of raw files with another name in Spark. The name of Avro is not registered in PySpark's package."""
_WITH_TEXT = ("json", "csv")
_OPEN_COST_BYTES = 65_536
"""Assumed cost of opening a file, so that many small files share a task."""
_MICROS: Mapping[TimeUnit, int] = {
    TimeUnit.SECONDS: 1_000_000,
    TimeUnit.MILLISECONDS: 1_000,
    TimeUnit.MICROSECONDS: 1,
}
_MAX_EPOCH_US = 2**62
_ZONE = r"(?i)(z|utc|gmt|[+-]\d{2}(:?\d{2})?|\[[^\]]+\]|[a-z]+/[a-z_]+)\s*$"
"""Pattern of the end of a text that names its time zone."""


@dataclass(frozen=True, slots=True)
class Preparation:
    """The settings by which raw records are prepared; `where` is the file of the definition, for messages.

    `fetched` is the folder with copies of raw files that are not local, each at `<scheme>/<rest of its address>`;
    `addresses` are the addresses of the raw files by the paths of their copies.
    """

    definition: Definition
    where: str
    transformation: UserCode | None = None
    fetched: Path | None = None
    addresses: Mapping[str, str] = field(default_factory=dict)

    @property
    def source(self) -> Source:
        """The source with the time of the windows as its event time."""
        source = self.definition.timed_source
        if source is self.definition.source:
            return source
        return source.model_copy(
            update={"event_time_unit": source.arrival_time_unit, "event_time_pattern": source.arrival_time_pattern}
        )


def prepare_files(
    spark: SparkSession, preparation: Preparation, paths: Sequence[str], folder: Path, limit: int | None = None
) -> BatchCounts:
    """Read raw files, write prepared files into a new folder, and return the numbers of records.

    Args:
        spark: the session.
        preparation: the settings.
        paths: raw files of the source.
        folder: the folder to write; it must not exist.
        limit: the maximum number of records of each file, for a sample; None: all records.

    Raises:
        SpecError: when an expression of the definition has an error, or a column does not exist.
        DamagedFileError: when a file cannot be read.
        UserCodeError: when the transformation fails.
    """
    if not paths:
        folder.mkdir(parents=True)
        return BatchCounts(0, 0, 0, 0)
    register_functions(spark, preparation.definition)
    scanned, kept = Observation(), Observation()
    source = preparation.source
    with _explain_damaged_files(preparation):
        raw = _load_with_file(spark, preparation, paths, limit)
    raw = raw.observe(scanned, F.count(F.lit(1)).alias("rows"))
    with _explain_transformation(preparation, paths):
        records = _add_derived(_transform(raw, preparation), preparation)
    prepared = records.select(*_prepared_columns(records, preparation))
    is_unreadable = F.count_if(F.col(REASON).isNotNull()).alias("unreadable")
    returned = F.count(F.lit(1)).alias("rows")
    if source.where:
        is_kept = F.col(_IS_KEPT)
        left_out = F.count_if(~is_kept).alias("left_out")
        observed = prepared.observe(kept, returned, is_unreadable, left_out).where(is_kept).drop(_IS_KEPT)
    else:
        observed = prepared.observe(kept, returned, is_unreadable, F.lit(0).alias("left_out"))
    with _explain_transformation(preparation, paths), _explain_damaged_files(preparation):
        observed.write.option("compression", "zstd").parquet(str(folder))
    counts = kept.get
    return BatchCounts(scanned.get["rows"], counts["rows"], counts["left_out"], counts["unreadable"])


_IS_KEPT = "prepared_is_kept"
_FAILED_FILE = re.compile(r"FAILED_READ_FILE\S*\] \D*? file (\S+)\. ")
_CAUSE = re.compile(r"^\s*Caused by: [\w.$]*?(\w+(?:: .*)?)$", re.MULTILINE)


class DamagedFileError(ContractError):
    """A raw file cannot be read."""

    def __init__(self, path: str, reason: str, where: str) -> None:
        super().__init__(
            f"cannot read input file {path}: {reason} ({where}, source.path)\n\n"
            'hint: restore the file, move it away, or set source.corrupt_files = "skip"'
        )
        self.path, self.reason = path, reason


@contextmanager
def _explain_damaged_files(preparation: Preparation) -> Iterator[None]:
    """Convert Spark's errors about a file into `DamagedFileError`.

    Raises:
        DamagedFileError: with the file, and the innermost reason.
    """
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        text = str(error)  # the file is in the message of an inner cause
        failed = _FAILED_FILE.search(text)
        if isinstance(error, AnalysisException):
            msg = f"Spark cannot read the source: {_first_sentence(error)} ({preparation.where}, source.path)"
            raise ContractError(msg) from None
        if failed is None:
            raise
        causes = _CAUSE.findall(text[failed.end() :])
        reason = causes[-1] if causes else "Spark cannot read it"
        path = unquote(urlparse(failed[1]).path)
        raise DamagedFileError(preparation.addresses.get(path, path), reason, preparation.where) from None


def _load_with_file(
    spark: SparkSession, preparation: Preparation, paths: Sequence[str], limit: int | None
) -> DataFrame:
    """Return the records of raw files with their file; CSV files have the columns of their own headers."""
    source = preparation.source
    groups = [(source, list(paths))]
    if has_header(source):
        by_header = group_by_header(source, paths)
        groups = [(source.model_copy(update={"columns": columns}), files) for columns, files in by_header]
    if limit is not None:
        groups = [(own, [path]) for own, files in groups for path in files]
    frames = [_add_file(load_raw_records(spark, own, files), preparation) for own, files in groups]
    limited = frames if limit is None else [frame.limit(limit) for frame in frames]
    rows = reduce(partial(DataFrame.unionByName, allowMissingColumns=True), limited)
    present = {name.lower() for name in rows.columns}
    absent = {name: kind for name, kind in source.columns.items() if name.lower() not in present}
    return rows.withColumns({name: F.lit(None).cast(kind) for name, kind in absent.items()})


def _transform(rows: DataFrame, preparation: Preparation) -> DataFrame:
    """Return the rows after `source.transform`.

    Raises:
        SpecError: when the function cannot be loaded, or returns something else.
    """
    if preparation.transformation is None:
        return rows
    transformed = preparation.transformation.load_function(1)(rows)
    if not isinstance(transformed, DataFrame):
        kind = type(transformed).__name__
        msg = f"{preparation.transformation} must return a DataFrame, got {kind} ({preparation.where})"
        raise SpecError(msg)
    return transformed


def _explain_transformation(preparation: Preparation, paths: Sequence[str]) -> AbstractContextManager[None]:
    if preparation.transformation is None:
        return nullcontext()
    more = f" and {len(paths) - 1:,} more files" if len(paths) > 1 else ""
    return preparation.transformation.explain_errors(f"over {paths[0]}{more}")


def load_raw_records(spark: SparkSession, source: Source, paths: Sequence[str]) -> DataFrame:
    """Return the records of raw files, with `MALFORMED` for the formats whose records can be malformed."""
    spark.conf.set("spark.sql.files.openCostInBytes", _OPEN_COST_BYTES)
    reader = _reader(spark, source)
    roots = [root for root in map(root_of_path, source.paths) if Path(root).is_dir()]
    if len(roots) == len(source.paths) == 1:
        reader = reader.option("basePath", roots[0])  # folders below it may name the columns of a partition
    if source.format in {"parquet", "iceberg"}:
        # Spark has no type for nanoseconds; as numbers, they can be rounded down here.
        spark.conf.set("spark.sql.legacy.parquet.nanosAsLong", "true")
    rows = reader.load([_literal_path(path) for path in paths])
    if source.format in {"parquet", "iceberg"}:
        rows = _round_nanoseconds(rows, paths)
    return rows if source.format in _WITH_TEXT else rows.withColumn(MALFORMED, F.lit(None).cast("string"))


def _reader(spark: SparkSession, source: Source) -> DataFrameReader:
    reader = spark.read.format(_FORMATS.get(source.format, source.format))
    if source.format in _WITH_TEXT:
        columns = {**source.columns, MALFORMED: "string"}
        ddl = ", ".join(f"{quote_column(name)} {kind}" for name, kind in columns.items())
        reader = reader.schema(ddl).option("columnNameOfCorruptRecord", MALFORMED)
    if source.format in {"parquet", "iceberg"}:
        reader = reader.option("mergeSchema", "true")
    return reader.options(**source.options)


def _round_nanoseconds(rows: DataFrame, paths: Sequence[str]) -> DataFrame:
    """Replace columns of nanoseconds, which are numbers here, by timestamps in microseconds, rounded down."""
    kinds = {field.name: field.type for path in paths for field in pq.read_schema(path)}
    for name, kind in kinds.items():
        if pa.types.is_timestamp(kind) and kind.unit == "ns" and isinstance(rows.schema[name].dataType, LongType):
            instant = _instant_of_number(F.col(quote_column(name)), LongType(), TimeUnit.NANOSECONDS)
            rows = rows.withColumn(name, instant if kind.tz else instant.cast("timestamp_ntz"))
    return rows


def _literal_path(path: str) -> str:
    return "".join(f"\\{character}" if character in "{}[]*?\\" else character for character in path)


def _add_file(rows: DataFrame, preparation: Preparation) -> DataFrame:
    file = F.col("_metadata.file_path")
    if preparation.fetched is None:
        return rows.withColumn(FILE, file)
    folder = re.escape(file_uri(str(preparation.fetched)).removeprefix("file:/"))
    return rows.withColumn(FILE, F.regexp_replace(file, f"^file:/+{folder}/([a-z0-9]+)/", "$1://"))


def _add_derived(rows: DataFrame, preparation: Preparation) -> DataFrame:
    source = preparation.source
    for name, expression in source.derive.items():
        rows = rows.withColumn(name, _expression(rows, f"source.derive.{name}", expression, preparation))
    return rows


def _prepared_columns(rows: DataFrame, preparation: Preparation) -> list[Column]:
    source = preparation.source
    event = _Time("event_time", source.event_time, source.event_time_unit, source.event_time_pattern)
    times = [(event, EVENT_TIME, EVENT_TEXT)]
    if source.arrival_time:
        arrival = _Time("arrival_time", source.arrival_time, source.arrival_time_unit, source.arrival_time_pattern)
        times.append((arrival, ARRIVAL_TIME, ARRIVAL_TEXT))
    malformed = F.col(MALFORMED) if MALFORMED in rows.columns else F.lit(None).cast("string")
    reasons = [F.when(malformed.isNotNull(), F.lit("malformed_record"))]
    instants: dict[str, Column] = {}
    texts: dict[str, Column] = {}
    for time, column, text_column in times:
        written, instant = _instant(rows, time, preparation)
        reasons += [
            F.when(written.isNull(), F.lit(f"null_{time.name}")),
            F.when(instant.isNull(), F.lit(f"unparsable_{time.name}")),
        ]
        instants[column], texts[text_column] = instant, written.cast("string")
    reason = F.coalesce(*reasons)
    whole = F.to_json(
        F.struct(*(F.col(quote_column(name)) for name in rows.columns if name not in (MALFORMED, FILE))),
        {"ignoreNullFields": "false"},
    )
    columns = {name: F.when(reason.isNull(), instant) for name, instant in instants.items()}
    columns |= _payload(rows, preparation)
    if source.name:
        columns |= _columns_of_union(rows, preparation, F.when(reason.isNull(), instants[EVENT_TIME]))
    columns |= {name: F.when(reason.isNotNull(), F.make_valid_utf8(text)) for name, text in texts.items()}
    columns[RECORD] = F.when(reason.isNotNull(), F.make_valid_utf8(F.coalesce(malformed, whole)))
    columns[REASON] = reason
    if FILE in rows.columns:  # a transformation may remove it
        columns[FILE] = F.col(FILE)
    if source.where:
        condition = _expression(rows, "source.where", source.where, preparation)
        columns[_IS_KEPT] = malformed.isNotNull() | F.coalesce(condition, F.expr("false"))
    return [column.alias(name) for name, column in columns.items()]


def _columns_of_union(rows: DataFrame, preparation: Preparation, event: Column) -> dict[str, Column]:
    """Return the columns that all sources of a union have: partition, sequence, and the watermark of a record."""
    source, watermark = preparation.source, preparation.definition.watermark
    sequence = F.col(source.sequence).try_cast("long") if source.sequence else F.lit(0).cast("long")
    partition = F.col(source.partition).cast("string") if source.partition else F.lit(ONLY_PARTITION)
    marker = F.lit(None).cast("timestamp")
    if watermark.marker:
        marker = F.timestamp_millis(marker_ms_column(rows, watermark.marker, event, watermark.delay))
    return {
        PARTITION: F.concat(F.lit(f"{source.name}{SEPARATOR}"), partition),
        SEQUENCE: sequence,
        MARKER: F.when(event.isNotNull(), marker),
    }


def _payload(rows: DataFrame, preparation: Preparation) -> dict[str, Column]:
    """Return the columns that a result needs, each as a plain column."""
    payload: dict[str, Column] = {}
    paths = list_paths(preparation.definition)
    if preparation.definition.reads_all_columns:
        paths += [name for name in rows.columns if name not in {MALFORMED, FILE, *paths} and "." not in name]
    for path in paths:
        name = column_of_path(path)
        if name.lower() in PREPARED_COLUMNS:
            msg = f"column {name!r} cannot be used, because backstream reserves this name ({preparation.where})"
            raise SpecError(msg)
        if name in payload:
            msg = (
                f"{path!r} and another column of the source both become the column {name!r}"
                f" ({preparation.where})\n\nhint: give one of them another name in [source.derive]"
            )
            raise SpecError(msg)
        quoted = ".".join(map(quote_column, path.split(".")))
        payload[name] = _expression(rows, path, quoted, preparation)
    return payload


def _expression(rows: DataFrame, key: str, expression: str, preparation: Preparation) -> Column:
    """Return an expression over the columns of the files.

    Raises:
        SpecError: with the key, and the columns of the files, if Spark cannot resolve it.
    """
    try:
        column = F.expr(expression)
        rows.select(column).schema  # noqa: B018 - it resolves the columns
    except AnalysisException as error:
        reason = _first_sentence(error)
        names = ", ".join(name for name in rows.columns if name not in (MALFORMED, FILE))
        msg = (
            f"{key} cannot be computed from the source: {reason} ({preparation.where})"
            f"\n\nhint: the source has {names}"
        )
        raise SpecError(msg) from None
    return column


def _first_sentence(error: AnalysisException) -> str:
    return " ".join(str(error).partition("SQLSTATE")[0].split())


@dataclass(frozen=True, slots=True)
class _Time:
    """The settings of a time of the source: `event_time` or `arrival_time`."""

    name: str
    expression: str
    unit: TimeUnit | None
    pattern: str | None


def _instant(rows: DataFrame, time: _Time, preparation: Preparation) -> tuple[Column, Column]:
    """Return a time as it is written, and as an instant; the instant is null if it cannot be parsed."""
    key, zone = f"source.{time.name}", preparation.source.time_zone
    written = _expression(rows, key, time.expression, preparation)
    kind = rows.select(written).schema.fields[0].dataType
    if isinstance(kind, TimestampType):
        return written, written
    if isinstance(kind, TimestampNTZType):
        if zone is None:
            raise _time_error(key, time.expression, kind, 'set source.time_zone, e.g., "UTC"', preparation)
        return written, F.to_utc_timestamp(written.cast("timestamp"), zone)
    if isinstance(kind, IntegralType | DoubleType | FloatType) or kind.typeName() == "decimal":
        if time.unit is None:
            hint = f'set {key}_unit to "s", "ms", "us", or "ns"'
            raise _time_error(key, time.expression, kind, hint, preparation)
        return written, _instant_of_number(written, kind, time.unit)
    if isinstance(kind, StringType):
        return written, _instant_of_text(written, time, zone)
    raise _time_error(
        key, time.expression, kind, "use an expression that is a timestamp, a number, or text", preparation
    )


def _time_error(key: str, expression: str, kind: DataType, hint: str, preparation: Preparation) -> SpecError:
    return SpecError(
        f"{key} must be an instant, got {kind.simpleString()} from {expression!r} ({preparation.where})"
        f"\n\nhint: {hint}"
    )


def _instant_of_number(number: Column, kind: DataType, unit: TimeUnit) -> Column:
    """Return the instant of a number since 1970, in microseconds rounded down; null if it is out of range."""
    if not isinstance(kind, IntegralType):
        return _instant_of_decimal(number.try_cast("decimal(38,6)"), unit)
    whole = number.cast("long")
    if unit is TimeUnit.NANOSECONDS:
        is_valid = whole > F.lit(-_MAX_EPOCH_US)
        rounded_down = whole - F.pmod(whole, int64_literal(1_000))
        return F.timestamp_micros(F.when(is_valid, integer_quotient(rounded_down, int64_literal(1_000))))
    factor = _MICROS[unit]
    is_valid = F.abs(F.greatest(whole, int64_literal(-_MAX_EPOCH_US))) < F.lit(_MAX_EPOCH_US // factor)
    return F.timestamp_micros(F.when(is_valid, whole * int64_literal(factor)))


def _instant_of_decimal(number: Column, unit: TimeUnit) -> Column:
    micros = number / F.lit(1_000) if unit is TimeUnit.NANOSECONDS else number * F.lit(_MICROS[unit])
    is_valid = F.abs(micros) < F.lit(_MAX_EPOCH_US)
    return F.timestamp_micros(F.when(is_valid, F.floor(micros).cast("long")))


def _instant_of_text(text: Column, time: _Time, zone: str | None) -> Column:
    if time.unit is not None:
        return _instant_of_decimal(F.trim(text).try_cast("decimal(38,6)"), time.unit)
    parsed = F.try_to_timestamp(text, F.lit(time.pattern)) if time.pattern else F.try_to_timestamp(text)
    if zone is None:
        return parsed
    return F.when(text.rlike(_ZONE), parsed).otherwise(F.to_utc_timestamp(parsed, zone))
