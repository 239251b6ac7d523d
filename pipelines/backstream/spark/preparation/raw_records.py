"""Load the records of raw files in any format, each with its file, and explain files that cannot be read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial, reduce
from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from backstream.chunks.preparation.settings import (
    MALFORMED,
    LineFiles,
    Preparation,
    copies_pattern,
    root_of_folders,
    uri_pattern,
)
from backstream.definition.model import Definition
from backstream.definition.prepared import list_read_paths
from backstream.definition.prepared_columns import FILE
from backstream.definition.source_section import Source
from backstream.definition.values import TimeUnit
from backstream.errors import ContractError, SpecError
from backstream.source.column_types import quote_column, spark_type_of_arrow
from backstream.source.file_types import load_column_types
from backstream.source.files import read_error_text
from backstream.source.raw_files import TEXT_FORMATS
from backstream.source.reader import UnreadableError
from backstream.source.text_files import group_by_header, has_header, require_known_compressions
from backstream.spark.failures import (
    EXPRESSION_ERRORS,
    EXPRESSION_HINT,
    find_fragment,
    spark_reason,
)
from backstream.spark.java_end import is_end_of_java
from backstream.spark.preparation.prepared_columns import instant_of_number
from backstream.spark.preparation.read_types import convert_read_types, read_fields
from backstream.spark.preparation.united_types import convert_columns, split_by_types
from backstream.spark.schemas import parse_schema

_FORMATS = {"avro": "org.apache.spark.sql.avro.AvroFileFormat", "iceberg": "parquet"}
"""Formats of raw files with another name in Spark. The name of Avro is not registered in PySpark's package."""
_OPEN_COST_BYTES = 65_536
"""Assumed cost of opening a file, so that many small files share a task."""
_FAILED_FILE = re.compile(r"FAILED_READ_FILE\S*\] \D*? file (\S+)\. ")
_CAUSE = re.compile(r"^\s*Caused by: [\w.$]*?(\w+(?:: .*)?)$", re.MULTILINE)


def load_raw_records(
    spark: SparkSession, preparation: Preparation, paths: Sequence[str], limit: int | None
) -> DataFrame:
    """Return the records of raw files and line files; CSV files have the columns of their own headers."""
    source, lines = preparation.source, preparation.line_files
    frames = [
        frame.transform(partial(add_raw_file, preparation=preparation))
        for frame in load_frames(
            spark, source, paths, is_per_file=limit is not None, is_read=partial(_is_read, preparation.definition)
        )
    ]
    if lines:
        frames += [
            frame.transform(partial(add_raw_file, preparation=preparation, lines_folder=lines.folder))
            for frame in load_line_frames(spark, source, lines, is_per_file=limit is not None)
        ]
    limited = frames if limit is None else [frame.limit(limit) for frame in frames]
    if not limited:  # such as files of empty arrays
        limited = [spark.createDataFrame([], f"{MALFORMED} string, {FILE} string")]
    rows = reduce(partial(DataFrame.unionByName, allowMissingColumns=True), limited)
    present = {name.lower() for name in rows.columns}
    absent = {name: kind for name, kind in source.columns.items() if name.lower() not in present}
    return rows.withColumns({name: F.lit(None).cast(kind) for name, kind in absent.items()})


def _is_read(definition: Definition, column: str) -> bool:
    paths = list_read_paths(definition)
    names = column.lower().split(".")  # names may have dots
    return paths is None or any([name.lower() for name in path[: len(names)]] == names for path in paths)


def load_frames(
    spark: SparkSession,
    source: Source,
    paths: Sequence[str],
    *,
    is_per_file: bool = False,
    is_read: Callable[[str], bool] = lambda _: True,
) -> list[DataFrame]:
    """Return the records of raw files: a frame for the files that Spark can read together, or for each file.

    Args:
        spark: the session.
        source: the source.
        paths: the files.
        is_per_file: whether each file has a frame of its own.
        is_read: whether the definition reads a column; others may have types that do not fit together.

    Raises:
        PlanError: when no type holds the values of a column in all files.
        UnreadableError: when a file is damaged.
    """
    groups = _group_by_columns(source, paths) if paths else []
    if is_per_file:
        groups = [(own, [path]) for own, files in groups for path in files]
    if source.format in TEXT_FORMATS:
        return [load_files_of_format(spark, own, files) for own, files in groups]
    types = split_by_types(source, paths, is_read) if paths else []
    return [
        load_files_of_format(spark, own, files).transform(partial(convert_columns, types=united))
        for own, all_files in groups
        for typed, united in types
        if (files := [path for path in all_files if path in {*typed}])
    ]


_LINE_OPTIONS = {"encoding", "charset", "linesep"}
"""Options that line files do not need: they have UTF-8, and the usual newlines."""


def load_line_frames(
    spark: SparkSession, source: Source, lines: LineFiles, *, is_per_file: bool = False
) -> list[DataFrame]:
    """Return the records of line files, and their lines without a record as malformed records."""
    left_out = _LINE_OPTIONS | ({"multiline"} if source.format == "json" else set())
    options = {name: value for name, value in source.options.items() if name.lower() not in left_out}
    options["lineSep"] = "\n"  # without it, Spark takes the first line break in a file, even one within quotes
    folders = tuple(f"{lines.folder}{path}" for path in source.paths)
    own = source.model_copy(update={"path": folders, "options": options})
    frames = load_frames(spark, own, lines.record_paths, is_per_file=is_per_file)
    if lines.rejected:
        texts = spark.read.text([literal_path(path) for path in sorted(lines.rejected)])
        frames.append(texts.where("value != ''").select(F.col("value").alias(MALFORMED)))
    return frames


def _group_by_columns(source: Source, paths: Sequence[str]) -> list[tuple[Source, list[str]]]:
    """Return groups of files that Spark can read together, with their source.

    CSV files with a header may differ in their columns. If some files are in folders that hold columns, Spark
    leaves out all files that are in no such folder.
    """
    groups = [(source, list(paths))]
    if has_header(source):
        require_known_compressions(source, paths)
        by_header = group_by_header(source, paths) or [(dict(source.columns), list(paths))]
        groups = [(source.model_copy(update={"columns": columns}), files) for columns, files in by_header]
    root = root_of_folders(source)
    if root is None:
        return groups
    return [(own, files) for own, all_files in groups for files in _split_by_folders(root, all_files)]


def _split_by_folders(root: str, paths: Sequence[str]) -> list[list[str]]:
    """Return the files in folders whose names hold columns, and the others, as far as there are any."""
    start = len(root)
    in_columns = [path for path in paths if "=" in path[start:].rpartition("/")[0]]
    if len(in_columns) in (0, len(paths)):
        return [list(paths)]
    chosen = {*in_columns}
    return [in_columns, [path for path in paths if path not in chosen]]


def load_files_of_format(spark: SparkSession, source: Source, paths: Sequence[str]) -> DataFrame:
    """Return the records of raw files, with the columns of `WORKING_COLUMNS` that they can have."""
    require_known_compressions(source, paths)
    spark.conf.set("spark.sql.files.openCostInBytes", _OPEN_COST_BYTES)
    declared = _declared_columns(source)
    reader = _reader(spark, source, declared)
    if root := root_of_folders(source):
        reader = reader.option("basePath", root)
    if source.format in {"parquet", "iceberg"}:
        # Spark has no type for nanoseconds; as numbers, they can be rounded down here.
        spark.conf.set("spark.sql.legacy.parquet.nanosAsLong", "true")
    rows = reader.load([literal_path(path) for path in paths])
    if source.format in {"parquet", "iceberg"}:
        rows = _round_nanoseconds(rows, paths)
    if source.format in TEXT_FORMATS:
        return convert_read_types(rows, declared, source)
    if source.format == "orc":
        rows = _without_zones(rows, paths)
    return rows.withColumn(MALFORMED, F.lit(None).cast("string"))


def _declared_columns(source: Source) -> StructType:
    ddl = ", ".join(f"{quote_column(name)} {kind}" for name, kind in source.columns.items())
    return parse_schema(ddl)


def _reader(spark: SparkSession, source: Source, declared: StructType) -> DataFrameReader:
    reader = spark.read.format(_FORMATS.get(source.format, source.format))
    if source.format in TEXT_FORMATS:
        read = read_fields(declared, source.format)
        reader = reader.schema(StructType([*read, StructField(MALFORMED, StringType())])).option(
            "columnNameOfCorruptRecord", MALFORMED
        )
    if source.format in {"parquet", "iceberg"}:
        reader = reader.option("mergeSchema", "true")
    if source.format == "json":
        reader = reader.option("allowSingleQuotes", "false")  # as JSON, and as `init`
    return reader.options(**source.options)


def _round_nanoseconds(rows: DataFrame, paths: Sequence[str]) -> DataFrame:
    """Replace columns of nanoseconds, which are numbers here, by timestamps in microseconds, rounded down."""
    kinds = {field.name: field.type for path in paths for field in _read_schema(path)}
    for name, kind in kinds.items():
        if pa.types.is_timestamp(kind) and kind.unit == "ns" and isinstance(rows.schema[name].dataType, LongType):
            instant = instant_of_number(F.col(quote_column(name)), LongType(), TimeUnit.NANOSECONDS)
            rows = rows.withColumn(name, instant if kind.tz else instant.cast("timestamp_ntz"))
    return rows


def _without_zones(rows: DataFrame, paths: Sequence[str]) -> DataFrame:
    """Return the times of ORC that have no zone as such; Spark reads them as instants in its own zone."""
    kinds = [load_column_types("orc", path) for path in paths]
    local = {name for own in kinds for name, kind in own.items() if kind == "timestamp_ntz"}
    return rows.withColumns({name: F.col(quote_column(name)).cast("timestamp_ntz") for name in sorted(local)})


def _read_schema(path: str) -> pa.Schema:
    try:
        return pq.read_schema(path)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise UnreadableError(path, read_error_text(error)) from None


def literal_path(path: str) -> str:
    """Return the pattern of Spark that names only this path."""
    return "".join(f"\\{character}" if character in "{}[]*?\\" else character for character in path)


def add_raw_file(rows: DataFrame, preparation: Preparation, lines_folder: Path | None = None) -> DataFrame:
    """Add the URI of the raw file of each record; that of a copy is the URI of the original.

    Args:
        rows: the records.
        preparation: the settings.
        lines_folder: the folder of their files, if these are line files.
    """
    file = F.col("_metadata.file_path")
    if lines_folder is not None:
        file = F.regexp_replace(file, f"^{uri_pattern(lines_folder)}(/.*)~[^/~]*$", "file:$1")
    if preparation.fetched is None:
        return rows.withColumn(FILE, file)
    return rows.withColumn(FILE, F.regexp_replace(file, copies_pattern(preparation.fetched), "$1://"))


class DamagedFileError(ContractError):
    """A raw file cannot be read."""

    def __init__(self, path: str, reason: str, where: str) -> None:
        super().__init__(UnreadableError(path, reason).explain(where))
        self.path, self.reason = path, reason


@contextmanager
def explain_damaged_files(preparation: Preparation, paths: Sequence[str]) -> Iterator[None]:
    """Convert errors about one of these files into `DamagedFileError`.

    Raises:
        DamagedFileError: with the file, and the innermost reason.
        SpecError: with the key, if a setting of the source is wrong.
        StorageError: when a file was removed since it was listed; the next preparation lists the files again.
    """
    try:
        yield
    except UnreadableError as error:
        lines = preparation.line_files
        path = lines.raw_path(error.path) if lines and error.path in lines.numbers else error.path
        raise DamagedFileError(preparation.addresses.get(path, path), error.reason, preparation.where) from None
    except (PySparkException, Py4JJavaError, FileNotFoundError) as error:
        preparation.require_files(paths)
        if is_end_of_java(error):
            raise
        text = str(error)  # the file is in the message of an inner cause
        failed = _FAILED_FILE.search(text)
        if problem := _unreadable_column_error(preparation, paths):
            raise problem from error
        if failed is None:
            raise _preparation_error(error, preparation, paths) from error
        causes = _CAUSE.findall(text[failed.end() :])
        reason = causes[-1] if causes else "no reason"
        if ":" not in reason:  # only the name of a class of Java
            reason = "it is damaged, perhaps cut off"
        path = unquote(urlparse(failed[1]).path)
        raise DamagedFileError(preparation.addresses.get(path, path), reason, preparation.where) from None


def _unreadable_column_error(preparation: Preparation, paths: Sequence[str]) -> ContractError | None:
    """Return the error for the first column of Parquet files of a type that Spark does not have."""
    for path in paths if preparation.source.format in {"parquet", "iceberg"} else ():
        with suppress(UnreadableError):
            for field in _read_schema(path):
                if spark_type_of_arrow(field.type) is None:
                    msg = (
                        f"column {field.name!r} is of a type that Spark cannot read: {field.type}"
                        f" ({preparation.addresses.get(path, path)})\n\n"
                        "hint: write it as another type, e.g., string, or leave it out of the files;"
                        f" or read them in place, without source.prepare ({preparation.where})"
                    )
                    return ContractError(msg)
    return None


def _preparation_error(error: Exception, preparation: Preparation, paths: Sequence[str]) -> SpecError:
    """Return the error for a setting of the source that has no meaning, or no value for a record."""
    more = f" and {len(paths) - 1:,} more files" if len(paths) > 1 else ""
    files = f"{preparation.addresses.get(paths[0], paths[0])}{more}" if paths else "files"
    fragment, reason = find_fragment(error), spark_reason(error)
    key = _find_key(preparation.source, fragment, reason)
    named = f" in {fragment!r}" if fragment else ""
    hint = EXPRESSION_HINT if isinstance(error, EXPRESSION_ERRORS) and fragment else _hint(key)
    return SpecError(f"cannot prepare {files}: {reason}{named} ({preparation.where}, {key})\n\nhint: {hint}")


def _hint(key: str) -> str:
    if key == "source":  # the reader names nothing of the definition
        return "compare the keys of [source] with the files: format, columns, and options"
    return f"change {key}"


_LITERAL = re.compile(r"(?<=')\w+(?=')|\b\d{2,}\b")
"""A text of one word, or a number, in SQL."""


def _find_key(source: Source, fragment: str, reason: str) -> str:
    """Return the key of the source that an error of Spark is about; the source if it is not known."""
    expressions = {
        "event_time": source.event_time,
        "arrival_time": source.arrival_time or "",
        "where": source.where or "",
        **{f"derive.{name}": expression for name, expression in source.derive.items()},
    }
    found = [key for key, expression in expressions.items() if fragment and fragment in expression]
    options = source.options.items()
    found += [f"options.{name}" for name, _ in options if name.lower() in reason.lower()]
    found += [f"options.{name}" for name, value in options if value and value in reason]
    words = {*re.findall(r"\w+", reason)}
    found += [key for key, expression in expressions.items() if words & {*_LITERAL.findall(expression)}]
    lengths = {*re.findall(r"\d{2,}", reason)}
    found += [f"columns.{name}" for name, kind in source.columns.items() if lengths & {*re.findall(r"\d+", kind)}]
    return f"source.{found[0]}" if found else "source"
