"""Find the types of columns that are in the names of folders, as Spark derives them."""

from __future__ import annotations

from collections.abc import Container, Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from backstream.chunks.preparation.settings import Preparation
from backstream.source.reader import UnreadableError
from backstream.spark.preparation.raw_records import load_files_of_format


def find_folder_types(
    spark: SparkSession, preparation: Preparation, paths: Sequence[str], names: Container[str]
) -> dict[str, str]:
    """Return the Spark SQL types of these columns of folders. Spark lists the files, and reads none of them."""
    try:
        schema = load_files_of_format(spark, preparation.source, paths).schema
    except (AnalysisException, UnreadableError):  # Spark's preparation explains it
        return {}
    return {column.name: column.dataType.simpleString() for column in schema if column.name in names}
