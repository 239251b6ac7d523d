"""Copy data files, and make their manifest entries from their footers."""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileType, copy_files
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table

from backstream.errors import ContractError, StorageError
from backstream.lake.storage import filesystem_of, is_on_disk, location_of, plain_path
from backstream.runs.manifest import StagedFile
from backstream.storage.parquet_footer import Footer
from backstream.storage.stores import map_files

_MAX_THREADS = 8
"""An object store serves many requests at once, and each one takes long."""


def to_data_files(table: Table, files: Sequence[StagedFile], locations: Sequence[str] = ()) -> list[DataFile]:
    """Return the manifest entries of checked files, in their order.

    PyIceberg's own function refuses Parquet columns that are optional if the table requires a value. Spark writes
    nearly all columns as optional; the checks of staged files have counted the nulls instead.

    Args:
        table: the table to which the entries belong.
        files: the checked files.
        locations: the locations of their copies; empty if the files are used in place.

    Raises:
        ContractError: when Python cannot hold a time of a file.
    """
    schema, spec = table.schema(), table.spec()
    columns, ids = compute_statistics_plan(schema, table.properties), parquet_path_to_id_mapping(schema)

    def to_entry(each: tuple[StagedFile, str]) -> DataFile:
        file, location = each
        try:
            statistics = data_file_statistics_from_parquet_metadata(
                parquet_metadata=_footer(table, file.path),
                stats_columns=columns,
                parquet_column_mapping=ids,
            )
        except OverflowError:
            name = ".".join(table.name())
            msg = (
                f"table {name} cannot hold a time that is not in the years 1 to 9999 ({file.path})\n\n"
                "hint: change the expression of the definition, so that such times become null"
            )
            raise ContractError(msg) from None
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


def copy_staged_files(table: Table, run_id: str, files: Sequence[StagedFile]) -> list[str]:
    """Return the locations of staged files for a commit.

    Files that are in the table's folder or in its object store are used in place. Jobs without the address of the
    warehouse stage their files on a disk, and these are copied. `vacuum` removes copies that were never committed.

    Raises:
        OSError: if the store refuses.
        StorageError: if a copy and its file differ in size.
    """
    locations = [location_of(file.path) for file in files]
    if is_on_disk(table.location()):
        return locations
    staged_on_disk = [location for location in locations if is_on_disk(location)]
    copies = dict(zip(staged_on_disk, copy_data_files(table, run_id, staged_on_disk), strict=True))
    return [copies.get(location, location) for location in locations]


def copy_data_files(table: Table, run_id: str, locations: Sequence[str]) -> list[str]:
    """Copy files into the folder of a run in a table, and return the locations of the copies in the same order.

    Raises:
        OSError: if the disk or the store refuses, with the name of a missing file.
        StorageError: if a copy and its file differ in size.
    """
    folder = f"{table.location()}/data/{run_id}/{uuid.uuid4().hex}"
    targets = [f"{folder}/part-{number:05}.parquet" for number in range(len(locations))]
    with ThreadPoolExecutor(_MAX_THREADS) as pool:
        list(pool.map(lambda source, target: _copy(table, source, target), locations, targets))
    return targets


def _copy(table: Table, source: str, target: str) -> None:
    if is_on_disk(target):
        path = Path(plain_path(target))
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(plain_path(source), path)
        return
    (source_store, source_path), (target_store, target_path) = (
        filesystem_of(table.io, location) for location in (source, target)
    )
    source_info = source_store.get_file_info(source_path)
    if source_info.type is FileType.NotFound:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), plain_path(source))
    copy_files(source_path, target_path, source_filesystem=source_store, destination_filesystem=target_store)
    if (size_bytes := target_store.get_file_info(target_path).size) != source_info.size:
        sizes = f"a copy has {size_bytes} bytes, its file has {source_info.size}"
        msg = f"{sizes}\n  {target}\n  {plain_path(source)}"
        raise StorageError(msg)
