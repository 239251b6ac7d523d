"""Read raw files, call the transformation of the user, write prepared files, and number malformed lines."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import reduce
from pathlib import Path
from urllib.parse import unquote, urlparse

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation, SparkSession, Window
from pyspark.sql import functions as F

from backstream.chunks.preparation.settings import Preparation, raw_file_uri
from backstream.definition.prepared_columns import FILE, LINE, MALFORMED_RECORD, REASON, RECORD
from backstream.errors import SpecError
from backstream.installed_spark import require_queries
from backstream.runs.input_files import InexactNumbers
from backstream.source.old_spark import require_spark_reader
from backstream.source.prepared import BatchCounts
from backstream.source.raw_files import TEXT_FORMATS
from backstream.spark.counted_writes import PARQUET_OPTIONS
from backstream.spark.preparation.checked_text import check_text_files
from backstream.spark.preparation.inexact_numbers import find_inexact_numbers
from backstream.spark.preparation.prepared_columns import IS_KEPT, add_derived_columns, select_prepared_columns
from backstream.spark.preparation.raw_records import (
    add_raw_file,
    explain_damaged_files,
    literal_path,
    load_raw_records,
)
from backstream.spark.user_functions import register_functions
from backstream.storage.files import file_uri

_TEXT, _OCCURRENCE, _PREPARED_FILE = "text", "occurrence", "own_file"
_SOURCE, _OWN_LINE = "line_source", "own_line"
_BLOCK, _POSITION, _FIRST, _ROWS_BEFORE = "block_start", "position", "first_position", "rows_before"
_NUMBERED = "_numbered"
"""Folder of files that are not complete yet; readers ignore its name."""


def _transform_records(rows: DataFrame, preparation: Preparation) -> DataFrame:
    """Return the rows after `source.transform`.

    Raises:
        SpecError: when the function cannot be loaded, or returns something else.
    """
    if preparation.transformation is None:
        return rows
    sides = preparation.side_inputs
    function = preparation.transformation.load_function(1, dict.fromkeys(sides, "a DataFrame"))
    transformed = function(rows, **sides)
    if not isinstance(transformed, DataFrame):
        kind = type(transformed).__name__
        msg = f"{preparation.transformation} must return a DataFrame, got {kind} ({preparation.where})"
        raise SpecError(msg)
    return transformed


def _explain_transformation(preparation: Preparation, paths: Sequence[str]) -> AbstractContextManager[None]:
    """Convert an exception of the transformation into an error with its own lines and the raw files."""
    if preparation.transformation is None:
        return nullcontext()
    more = f" and {len(paths) - 1:,} more files" if len(paths) > 1 else ""
    return preparation.transformation.explain_errors(f"over {paths[0]}{more}")


def prepare_files(
    spark: SparkSession, preparation: Preparation, paths: Sequence[str], folder: Path, limit: int | None = None
) -> tuple[BatchCounts, tuple[InexactNumbers, ...]]:
    """Read raw files and line files, and write prepared files into a new folder.

    Args:
        spark: the session.
        preparation: the settings.
        paths: raw files of the source.
        folder: the folder to write; it must not exist.
        limit: the maximum number of records of each file, for a sample; None: all records.

    Returns:
        The numbers of records, and the numbers in them that a declared type cannot hold.

    Raises:
        SpecError: when an expression of the definition has an error, or a column does not exist.
        DamagedFileError: when a file cannot be read.
        StorageError: when a file was removed.
        UserCodeError: when the transformation fails.
    """
    if not paths and preparation.line_files is None:
        folder.mkdir(parents=True)
        return BatchCounts(0, 0, 0, 0), ()
    _require_queries(preparation, paths)
    require_spark_reader(preparation.source, paths, preparation.where)
    register_functions(spark, preparation.definition)
    with (
        explain_damaged_files(preparation, paths),
        check_text_files(spark, preparation, paths, folder, limit) as (checked, remaining),
    ):
        counts = _write_records(spark, checked, remaining, folder, limit)
        return counts, find_inexact_numbers(spark, checked, remaining, limit)


def _require_queries(preparation: Preparation, paths: Sequence[str]) -> None:
    """Check that the installed Spark can prepare the files that the native reader has left.

    Raises:
        SpecError: naming the first file.
    """
    lines = preparation.line_files
    first = next(iter((*paths, *map(lines.raw_path, lines.numbers))) if lines else iter(paths), "files")
    require_queries(f"prepare {preparation.addresses.get(first, first)}, which the native reader does not support")


def _write_records(
    spark: SparkSession, preparation: Preparation, paths: Sequence[str], folder: Path, limit: int | None
) -> BatchCounts:
    scanned, kept = Observation(), Observation()
    source = preparation.source
    with explain_damaged_files(preparation, paths):
        raw = load_raw_records(spark, preparation, paths, limit)
    raw = raw.observe(scanned, F.count(F.lit(1)).alias("rows"))
    with _explain_transformation(preparation, paths):
        records = add_derived_columns(_transform_records(raw, preparation), preparation)
    prepared = select_prepared_columns(records, preparation)
    is_unreadable = F.count_if(F.col(REASON).isNotNull()).alias("unreadable")
    is_malformed = F.count_if(F.col(REASON) == F.lit(MALFORMED_RECORD)).alias("malformed")
    returned = F.count(F.lit(1)).alias("rows")
    is_kept = F.col(IS_KEPT) if source.where else F.expr("true")
    left_out = F.count_if(~is_kept).alias("left_out")
    observed = prepared.observe(kept, returned, is_unreadable, is_malformed, left_out)
    observed = observed.where(is_kept).drop(IS_KEPT)
    with _explain_transformation(preparation, paths), explain_damaged_files(preparation, paths):
        observed.write.options(**PARQUET_OPTIONS).parquet(str(folder))
        counts = kept.get
        if counts["malformed"] and source.format in TEXT_FORMATS:
            _number_malformed_lines(spark, preparation, folder)
    return BatchCounts(scanned.get["rows"], counts["rows"], counts["left_out"], counts["unreadable"])


def _number_malformed_lines(spark: SparkSession, preparation: Preparation, folder: Path) -> None:
    """Set the column `LINE` of the malformed records in a folder of prepared files.

    A record without a line of its own has no number: one that a transformation has multiplied or changed, or one
    of a file with `multiLine`.
    """
    is_malformed = F.col(REASON).eqNullSafe(F.lit(MALFORMED_RECORD))
    written = spark.read.parquet(str(folder))
    if FILE not in written.columns:
        return
    own_file = F.col("_metadata.file_path").alias(_PREPARED_FILE)
    found = written.where(is_malformed).select(FILE, own_file).distinct().collect()
    uris = sorted({row[FILE] for row in found if row[FILE]})
    prepared_paths = sorted({_path_of_uri(row[_PREPARED_FILE]) for row in found})
    if not uris:
        return
    rows = spark.read.schema(written.schema).parquet(*map(literal_path, prepared_paths))
    lines = _load_lines_of(spark, preparation, uris)
    numbered = rows.where(~is_malformed).unionByName(_with_numbers(rows.where(is_malformed), lines))
    numbered.write.options(**PARQUET_OPTIONS).parquet(str(folder / _NUMBERED))
    for path in map(Path, prepared_paths):
        path.unlink()
    for path in (folder / _NUMBERED).glob("*.parquet"):
        path.rename(folder / path.name)
    shutil.rmtree(folder / _NUMBERED)


def _with_numbers(malformed: DataFrame, lines: DataFrame) -> DataFrame:
    """Return malformed records with the numbers of the lines that have their text."""
    place = [F.col(FILE), F.col(_TEXT)]
    counted = malformed.drop(LINE).withColumn(_TEXT, F.substring_index(RECORD, "\n", 1))
    counted = counted.withColumn(_OCCURRENCE, _rank(place, F.col(RECORD)))
    wanted = lines.join(counted.select(FILE, _TEXT).distinct(), [FILE, _TEXT], "left_semi")
    ranked = wanted.withColumn(_OCCURRENCE, _rank(place, F.col(LINE)))
    joined = counted.join(ranked, [FILE, _TEXT, _OCCURRENCE], "left")
    return joined.select(*malformed.columns)


def _rank(place: Sequence[Column], order: Column) -> Column:
    return F.row_number().over(Window.partitionBy(*place).orderBy(order))


def _load_lines_of(spark: SparkSession, preparation: Preparation, uris: Sequence[str]) -> DataFrame:
    """Return lines of raw files, given by their URIs in `FILE`, with `FILE`, their text, and their number."""
    numbers: dict[str, dict[str, np.ndarray]] = {}
    if line_files := preparation.line_files:
        for path, known in line_files.numbers.items():
            numbers.setdefault(raw_file_uri(line_files.raw_path(path), preparation), {})[path] = known
    frames = []
    if raw_paths := [_local_path(uri, preparation) for uri in uris if uri not in numbers]:
        frames.append(_load_lines(spark, preparation, raw_paths).drop(_SOURCE))
    if own := {path: each for uri in uris for path, each in numbers.get(uri, {}).items()}:
        lines = _load_lines(spark, preparation, [*own], line_files.folder if line_files else None)
        raw_numbers = spark.createDataFrame(_numbers_by_line(own))
        frames.append(lines.withColumnRenamed(LINE, _OWN_LINE).join(raw_numbers, [_SOURCE, _OWN_LINE]))
    return reduce(DataFrame.unionByName, (frame.select(FILE, _TEXT, LINE) for frame in frames))


def _numbers_by_line(numbers: Mapping[str, np.ndarray]) -> pa.Table:
    """Return the number in the raw file by the line of a line file, whose first line is empty."""
    counts = [len(own) for own in numbers.values()]
    return pa.table(
        {
            _SOURCE: np.repeat([file_uri(path) for path in numbers], counts),
            _OWN_LINE: np.concatenate([np.arange(2, count + 2) for count in counts]),
            LINE: np.concatenate([*numbers.values()]),
        }
    )


def _load_lines(
    spark: SparkSession, preparation: Preparation, paths: Sequence[str], lines_folder: Path | None = None
) -> DataFrame:
    """Return the lines of files with `FILE`, their own file, their text, and their number in it.

    A task reads the blocks of files one after the other, so the positions of its rows are those of the lines.
    """
    options = {key: value for key, value in preparation.source.options.items() if key.lower() == "linesep"}
    text = spark.read.options(**options).text([literal_path(path) for path in paths])
    rows = add_raw_file(text, preparation, lines_folder).select(
        FILE,
        F.col("_metadata.file_path").alias(_SOURCE),
        F.make_valid_utf8("value").alias(_TEXT),
        F.col("_metadata.file_block_start").alias(_BLOCK),
        F.monotonically_increasing_id().alias(_POSITION),
    )
    blocks = rows.groupBy(_SOURCE, _BLOCK).agg(F.min(_POSITION).alias(_FIRST), F.count(F.lit(1)).alias("rows"))
    earlier = Window.partitionBy(_SOURCE).orderBy(_BLOCK).rowsBetween(Window.unboundedPreceding, -1)
    blocks = blocks.withColumn(_ROWS_BEFORE, F.coalesce(F.sum("rows").over(earlier), F.lit(0))).drop("rows")
    number = F.col(_POSITION) - F.col(_FIRST) + F.col(_ROWS_BEFORE) + F.lit(1)
    return rows.join(blocks, [_SOURCE, _BLOCK]).select(FILE, _SOURCE, _TEXT, number.alias(LINE))


def _local_path(uri: str, preparation: Preparation) -> str:
    """Return the path of a raw file, or of its copy, by the URI in `FILE`."""
    if preparation.fetched is None:
        return _path_of_uri(uri)
    paths = {address: path for path, address in preparation.addresses.items()}
    return paths[unquote(uri)]


def _path_of_uri(uri: str) -> str:
    return unquote(urlparse(uri).path)
