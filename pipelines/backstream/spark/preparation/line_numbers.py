"""Number the lines of raw files that are malformed, so that a person can find them.

Spark's readers of JSON and CSV do not know the numbers of lines. Malformed lines are rare. So their files are read
once more as text, and only the prepared files that have a malformed record are written again.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlparse

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from backstream.definition.prepared import FILE, LINE, MALFORMED_RECORD, REASON, RECORD
from backstream.spark.preparation.raw_records import add_raw_file, literal_path
from backstream.spark.preparation.settings import PARQUET_OPTIONS, Preparation

_TEXT, _OCCURRENCE, _PREPARED_FILE = "text", "occurrence", "own_file"
_BLOCK, _POSITION, _FIRST, _ROWS_BEFORE = "block_start", "position", "first_position", "rows_before"
_NUMBERED = "_numbered"
"""Folder of files that are not complete yet; readers ignore its name."""


def number_malformed_lines(spark: SparkSession, preparation: Preparation, folder: Path) -> None:
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
    raw_paths = sorted({_local_path(row[FILE], preparation) for row in found if row[FILE]})
    prepared_paths = sorted({_path_of_uri(row[_PREPARED_FILE]) for row in found})
    if not raw_paths:
        return
    rows = spark.read.schema(written.schema).parquet(*map(literal_path, prepared_paths))
    lines = _load_lines(spark, preparation, raw_paths)
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


def _load_lines(spark: SparkSession, preparation: Preparation, paths: Sequence[str]) -> DataFrame:
    """Return the lines of raw files with `FILE`, their text, and their number.

    A task reads the blocks of files one after the other, so the positions of its rows are those of the lines.
    """
    options = {key: value for key, value in preparation.source.options.items() if key.lower() == "linesep"}
    text = spark.read.options(**options).text([literal_path(path) for path in paths])
    rows = add_raw_file(text, preparation).select(
        FILE,
        F.make_valid_utf8("value").alias(_TEXT),
        F.col("_metadata.file_block_start").alias(_BLOCK),
        F.monotonically_increasing_id().alias(_POSITION),
    )
    blocks = rows.groupBy(FILE, _BLOCK).agg(F.min(_POSITION).alias(_FIRST), F.count(F.lit(1)).alias("rows"))
    earlier = Window.partitionBy(FILE).orderBy(_BLOCK).rowsBetween(Window.unboundedPreceding, -1)
    blocks = blocks.withColumn(_ROWS_BEFORE, F.coalesce(F.sum("rows").over(earlier), F.lit(0))).drop("rows")
    number = F.col(_POSITION) - F.col(_FIRST) + F.col(_ROWS_BEFORE) + F.lit(1)
    return rows.join(blocks, [FILE, _BLOCK]).select(FILE, _TEXT, number.alias(LINE))


def _local_path(uri: str, preparation: Preparation) -> str:
    """Return the path of a raw file, or of its copy, by the URI in `FILE`."""
    if preparation.fetched is None:
        return _path_of_uri(uri)
    paths = {address: path for path, address in preparation.addresses.items()}
    return paths[unquote(uri)]


def _path_of_uri(uri: str) -> str:
    return unquote(urlparse(uri).path)
