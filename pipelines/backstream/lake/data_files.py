"""Staged files as a table's metadata describes them: location, partition, counts and bounds."""

from __future__ import annotations

import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table

from backstream.core.manifest import StagedFile
from backstream.lake.warehouse import location_of


def described(table: Table, file: StagedFile, location: str | None = None) -> DataFile:
    """The entry that makes a checked file part of a table; `location` is where its copy is, if it has one.

    PyIceberg's own function refuses Parquet columns that are optional where the table requires a value, and
    Spark writes nearly all columns so; the checks have counted the nulls instead.
    """
    schema, spec = table.schema(), table.spec()
    statistics = data_file_statistics_from_parquet_metadata(
        parquet_metadata=_footer(table, location_of(file.path)),
        stats_columns=compute_statistics_plan(schema, table.properties),
        parquet_column_mapping=parquet_path_to_id_mapping(schema),
    )
    entry = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=location or location_of(file.path),
        file_format=FileFormat.PARQUET,
        partition=statistics.partition(spec, schema),
        file_size_in_bytes=file.size_bytes,
        spec_id=spec.spec_id,
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )
    entry.spec_id = spec.spec_id  # not a field of the entry, so that `from_args` leaves it out
    return entry


def _footer(table: Table, location: str) -> pq.FileMetaData:
    with table.io.new_input(location).open() as file:
        return pq.read_metadata(file)
