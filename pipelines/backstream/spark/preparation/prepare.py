"""Read raw files, call the transformation of the user, and write the records as prepared files."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from backstream.definition.prepared_columns import MALFORMED_RECORD, REASON
from backstream.errors import SpecError
from backstream.source.prepared import BatchCounts
from backstream.spark.preparation.damaged_files import explain_damaged_files
from backstream.spark.preparation.line_numbers import number_malformed_lines
from backstream.spark.preparation.prepared_columns import IS_KEPT, add_derived_columns, select_prepared_columns
from backstream.spark.preparation.raw_records import load_raw_records
from backstream.spark.preparation.settings import PARQUET_OPTIONS, Preparation
from backstream.spark.user_functions import register_functions


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
) -> BatchCounts:
    """Read raw files and line files, write prepared files into a new folder, and return the numbers of records.

    Args:
        spark: the session.
        preparation: the settings.
        paths: raw files of the source.
        folder: the folder to write; it must not exist.
        limit: the maximum number of records of each file, for a sample; None: all records.

    Raises:
        SpecError: when an expression of the definition has an error, or a column does not exist.
        DamagedFileError: when a file cannot be read.
        StorageError: when a file was removed.
        UserCodeError: when the transformation fails.
    """
    if not paths and preparation.line_files is None:
        folder.mkdir(parents=True)
        return BatchCounts(0, 0, 0, 0)
    register_functions(spark, preparation.definition)
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
        if counts["malformed"]:
            number_malformed_lines(spark, preparation, folder)
    return BatchCounts(scanned.get["rows"], counts["rows"], counts["left_out"], counts["unreadable"])
