"""Find the columns that the names of folders hold, with the types that Spark derives from all files together."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from backstream.native.preparation.folders import FolderValue, find_folder_texts, parse_folder_values
from backstream.source.reader import UnreadableError
from backstream.spark.preparation.raw_records import load_files_of_format, root_of_folders
from backstream.spark.preparation.settings import Preparation


@dataclass(frozen=True, slots=True)
class FolderColumns:
    """The types of the columns of folders, and their values by file; files with unusual values are not in it."""

    types: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Mapping[str, FolderValue]] = field(default_factory=dict)


def find_folder_columns(
    spark: SparkSession, preparation: Preparation, paths: Sequence[str]
) -> FolderColumns | None:
    """Return the columns of the folders of raw files; None if only Spark can find them.

    Spark lists the files, and reads none of them.
    """
    root = root_of_folders(preparation.source)
    if root is None:
        return FolderColumns(values={path: {} for path in paths})
    texts = find_folder_texts(paths, root)
    if texts is None:
        return None
    names = next(iter(texts.values()), {})
    types = _load_types(spark, preparation, paths, names) if names else {}
    if len(types) < len(names):  # a declared column has another spelling
        return None
    values = {path: parse_folder_values(own, types) for path, own in texts.items()}
    return FolderColumns(types, {path: own for path, own in values.items() if own is not None})


def _load_types(
    spark: SparkSession, preparation: Preparation, paths: Sequence[str], names: Container[str]
) -> dict[str, str]:
    try:
        schema = load_files_of_format(spark, preparation.source, paths).schema
    except (AnalysisException, UnreadableError):  # Spark's preparation explains it
        return {}
    return {column.name: column.dataType.simpleString() for column in schema if column.name in names}


def declare_folder_columns(preparation: Preparation, types: Mapping[str, str]) -> Preparation:
    """Return settings with the types of folders' columns; from fewer files, Spark would derive other types."""
    definition = preparation.definition
    source = definition.source.model_copy(update={"columns": {**definition.source.columns, **types}})
    return replace(preparation, definition=definition.model_copy(update={"source": source}))
