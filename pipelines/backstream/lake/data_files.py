"""Staged files as a table's metadata describes them: location, partition, counts and bounds."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table

from backstream.core.footers import Footer
from backstream.core.manifest import StagedFile
from backstream.lake.warehouse import location_of


def described(table: Table, files: Sequence[StagedFile], locations: Sequence[str] = ()) -> list[DataFile]:
    """The entries that make checked files part of a table, in their order.

    PyIceberg's own function refuses Parquet columns that are optional where the table requires a value, and
    Spark writes nearly all columns so; the checks have counted the nulls instead.

    Args:
        table: which they become part of.
        files: where they were checked.
        locations: where their copies are; empty: they are taken from where they are.
    """
    schema, spec = table.schema(), table.spec()
    columns, ids = compute_statistics_plan(schema, table.properties), parquet_path_to_id_mapping(schema)

    def entry(file: StagedFile, location: str) -> DataFile:
        statistics = data_file_statistics_from_parquet_metadata(
            parquet_metadata=_footer(table, file.path),
            stats_columns=columns,
            parquet_column_mapping=ids,
        )
        made = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=location,
            file_format=FileFormat.PARQUET,
            partition=statistics.partition(spec, schema),
            file_size_in_bytes=file.size_bytes,
            spec_id=spec.spec_id,
            sort_order_id=None,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )
        made.spec_id = spec.spec_id  # not a field of the entry, so that `from_args` leaves it out
        return made

    places = locations or [location_of(file.path) for file in files]
    return [entry(file, place) for file, place in zip(files, places, strict=True)]


def _footer(table: Table, path: str) -> pq.FileMetaData:
    if "://" not in path:
        return pq.read_metadata(pa.BufferReader(Footer.of(path).content))
    with table.io.new_input(path).open() as file:
        return pq.read_metadata(file)
