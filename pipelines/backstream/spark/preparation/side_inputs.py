"""Load the side inputs of a transformation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from backstream.chunks.preparation.settings import MALFORMED
from backstream.definition.source_section import SideInput, Source
from backstream.errors import SpecError
from backstream.source.column_types import quote_column
from backstream.spark.preparation.checked_text import rewrite_text_files
from backstream.spark.preparation.raw_records import load_frames, load_line_frames

_VALID_UNTIL = "valid_until"
"""Column of an input with `as_of`: the time from which on the next row with the same key is valid."""


def load_side_input(
    spark: SparkSession, side: SideInput, source: Source, paths: Sequence[str], folder: Path, where: str
) -> DataFrame:
    """Return the rows of a side input; with `as_of`, also the column `valid_until`.

    Args:
        spark: the session.
        side: the section of the definition.
        source: the section as a source, with the folders of local files as its paths.
        paths: the local files.
        folder: the folder of files that are written in place of text files; it is needed as long as the rows.
        where: the file and the key of the definition, for messages.

    Raises:
        SpecError: when a column does not exist, a text file has a malformed line, or two rows have the same key.
    """
    lines = rewrite_text_files(spark, source, paths, folder)
    frames = load_frames(spark, source, [path for path in paths if path not in lines.raw_paths])
    frames += load_line_frames(spark, source, lines)
    loaded = reduce(partial(DataFrame.unionByName, allowMissingColumns=True), frames)
    _require_columns(loaded, side, where)
    malformed = loaded.where(F.col(MALFORMED).isNotNull()).first()
    if malformed is not None:
        msg = f"a line is not {source.format}, or has a value of another type: {malformed[MALFORMED]!r} ({where})"
        raise SpecError(msg)
    rows = loaded.drop(MALFORMED)
    _require_unique(rows, side, where)
    if side.as_of is None:
        return rows
    same_key = Window.partitionBy(*_columns(side.key)).orderBy(quote_column(side.as_of))
    return rows.withColumn(_VALID_UNTIL, F.lead(quote_column(side.as_of)).over(same_key))


def _require_columns(rows: DataFrame, side: SideInput, where: str) -> None:
    given = [*side.key, *([side.as_of] if side.as_of else [])]
    absent = [name for name in given if name not in rows.columns]
    if absent:
        names = ", ".join(name for name in rows.columns if name != MALFORMED)
        msg = f"the input has no column {absent[0]!r} ({where})\n\nhint: it has {names}"
        raise SpecError(msg)
    if side.as_of and _VALID_UNTIL in rows.columns:
        msg = f"the input has a column {_VALID_UNTIL!r}, which as_of would replace ({where})"
        raise SpecError(msg)


def _require_unique(rows: DataFrame, side: SideInput, where: str) -> None:
    """Check that no two rows have the same key, because a join would multiply records."""
    names = [*side.key, *([side.as_of] if side.as_of else [])]
    if not names:
        return
    repeated = rows.groupBy(*_columns(names)).agg(F.count(F.lit(1)).alias("rows_of_key")).where("rows_of_key > 1")
    if (first := repeated.first()) is not None:
        values = ", ".join(f"{name} = {first[name]}" for name in names)
        msg = f"{first['rows_of_key']} rows of the input have {values}, a join would multiply records ({where})"
        raise SpecError(msg)


def _columns(names: Sequence[str]) -> list[str]:
    return [quote_column(name) for name in names]
