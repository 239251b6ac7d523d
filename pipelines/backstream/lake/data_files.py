"""Make the manifest entries of data files from their footers."""

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

from backstream.lake.storage import location_of
from backstream.runs.manifest import StagedFile
from backstream.storage.parquet_footer import Footer
from backstream.storage.stores import map_files


def to_data_files(table: Table, files: Sequence[StagedFile], locations: Sequence[str] = ()) -> list[DataFile]:
    """Return the manifest entries of checked files, in their order.

    PyIceberg's own function refuses Parquet columns that are optional if the table requires a value. Spark writes
    nearly all columns as optional; the checks of staged files have counted the nulls instead.

    Args:
        table: the table to which the entries belong.
        files: the checked files.
        locations: the locations of their copies; empty if the files are used in place.
    """
    schema, spec = table.schema(), table.spec()
    columns, ids = compute_statistics_plan(schema, table.properties), parquet_path_to_id_mapping(schema)

    def to_entry(each: tuple[StagedFile, str]) -> DataFile:
        file, location = each
        statistics = data_file_statistics_from_parquet_metadata(
            parquet_metadata=_footer(table, file.path),
            stats_columns=columns,
            parquet_column_mapping=ids,
        )
        data_file = DataFile.from_args(
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
        data_file.spec_id = spec.spec_id  # `from_args` ignores it, because it isn't a field of the entry
        return data_file

    targets = locations or [location_of(file.path) for file in files]
    located = zip(files, targets, strict=True)
    return map_files(to_entry, {file.path: (file, target) for file, target in located})


def _footer(table: Table, path: str) -> pq.FileMetaData:
    if "://" not in path:
        return pq.read_metadata(pa.BufferReader(Footer.from_file(path).content))
    with table.io.new_input(path).open() as file:
        return pq.read_metadata(file)
