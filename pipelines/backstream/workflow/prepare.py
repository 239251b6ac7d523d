"""Prepare the new raw files of a source before a run is planned."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from backstream.definition.loader import load_definition, resolve_raw_paths
from backstream.definition.model import Definition
from backstream.definition.prepared import (
    is_copied,
    list_paths,
    list_single_sources,
    prepared_folder,
    reads_copies,
    reads_prepared_files,
    reason_to_prepare,
    transformation,
)
from backstream.definition.source_section import Source
from backstream.runs.home import Home
from backstream.runs.input_files import SkippedFile
from backstream.source.prepared import BatchCounts, PreparedSource, split_into_batches
from backstream.source.raw_files import RawFile, list_raw_files
from backstream.user_code import UserCode
from backstream.workflow.raw_source import LocalFiles, RawSource, copy_source, must_convert

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from backstream.spark.preparation.damaged_files import DamagedFileError

log = logging.getLogger(__name__)

_AT_ONCE = 2
"""Number of batches that are prepared at the same time: one is read while Spark plans the other."""


@dataclass(frozen=True, slots=True)
class PreparedFiles:
    """The result of a preparation: the number of raw files that were read, and their records."""

    files: int
    counts: BatchCounts

    @classmethod
    def sum(cls, results: Sequence[PreparedFiles]) -> PreparedFiles:
        """Return the result for all sources together."""
        counts = BatchCounts.sum(result.counts for result in results)
        return cls(sum(result.files for result in results), counts)

    def __str__(self) -> str:
        """Return the counts as text."""
        counts = self.counts
        transformed = f", {counts.returned:,} transformed" if counts.returned != counts.read else ""
        left_out = f", {counts.left_out:,} left out by source.where" if counts.left_out else ""
        unreadable = f", {counts.unreadable:,} unreadable" if counts.unreadable else ""
        return f"{self.files:,} new files, {counts.read:,} records{transformed}{left_out}{unreadable}"


def prepare_source(
    definition_path: Path,
    home: Home,
    spark: Callable[[], SparkSession],
    note: Callable[[str], None] = log.info,
) -> PreparedFiles | None:
    """Prepare the raw files of a source that are new or changed since the last preparation.

    Args:
        definition_path: the TOML file.
        home: the folder that holds all state.
        spark: returns the session; called only if there is something to prepare.
        note: receives a line before the work starts, and one after it.

    Returns:
        The counts; None if there was nothing to do.

    Raises:
        SpecError: when an expression or a column of the source is wrong.
        PlanError: when the source has no files.
    """
    definition = resolve_raw_paths(load_definition(definition_path), home)
    where = str(definition_path)
    is_single = not definition.source.parts
    if is_single and is_copied(definition, home) and not must_convert(definition, home, where):
        copied = copy_source(definition, home, where, spark, note)
        return None if copied is None else PreparedFiles(copied, BatchCounts(0, 0, 0, 0))
    is_needed = reason_to_prepare(definition) is not None
    results = [
        _prepare_single_source(single, where, home, spark, note, is_needed=is_needed)
        for single in list_single_sources(definition)
    ]
    done = [result for result in results if result is not None]
    return PreparedFiles.sum(done) if done else None


def _prepare_single_source(
    definition: Definition,
    where: str,
    home: Home,
    spark: Callable[[], SparkSession],
    note: Callable[[str], None],
    *,
    is_needed: bool,
) -> PreparedFiles | None:
    name = f"source {definition.source.name!r} of {definition.name}" if definition.source.name else definition.name
    where = f"{where}, source {definition.source.name!r}" if definition.source.name else where
    prepared = PreparedSource(prepared_folder(definition, home))
    if not (is_needed or prepared.folder.is_dir()) and not list_parquet_to_prepare(definition, where):
        return None
    with prepared.lock(), RawSource.open(definition, home, where) as listed:
        source = listed.settle(lambda files: prepared.find_changes(files).new_files)
        changes = prepared.find_changes(source.files)
        prepared.remove_drafts()
        source.remove_scratch(prepared.folder)
        if not changes:
            source.write_state(prepared.folder)
            return None
        size_mb = sum(file.size_bytes for file in changes.new_files) / 1e6
        note(f"preparing {len(changes.new_files):,} new files of {name}, {size_mb:,.1f} MB")
        counts = _prepare_batches(prepared, changes.new_files, source, spark())
        prepared.remove_batches(changes.outdated)
        source.write_state(prepared.folder)
    result = PreparedFiles(len(changes.new_files), counts)
    note(f"prepared {result}")
    return result


def _prepare_batches(
    prepared: PreparedSource, files: Sequence[RawFile], source: RawSource, spark: SparkSession
) -> BatchCounts:
    from backstream.spark.session import ship_package

    code = transformation(source.definition.source)
    if code is not None:
        ship_package(spark.sparkContext, code.target)

    def prepare_batch(batch: Sequence[RawFile]) -> BatchCounts:
        with source.local_files(batch, prepared.folder, lambda: spark) as local:
            return _prepare_batch(prepared, batch, local, source.where, code, spark)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return BatchCounts.sum(pool.map(prepare_batch, split_into_batches(files)))


def _prepare_batch(
    prepared: PreparedSource,
    batch: Sequence[RawFile],
    local: LocalFiles,
    where: str,
    code: UserCode | None,
    spark: SparkSession,
) -> BatchCounts:
    from backstream.spark.preparation.damaged_files import DamagedFileError
    from backstream.spark.preparation.prepare import prepare_files
    from backstream.spark.preparation.settings import Preparation

    preparation = Preparation(local.definition, where, code, fetched=local.folder, addresses=local.addresses)
    skipped: list[SkippedFile] = []
    while True:
        left_out = {file.path for file in skipped}
        paths = {local.paths[file] for file in batch if file.path not in left_out}
        with prepared.new_batch() as draft:
            try:
                counts = prepare_files(spark, preparation, sorted(paths), draft)
            except DamagedFileError as error:
                if local.definition.source.corrupt_files == "fail":
                    raise
                skipped.append(_skipped_file(batch, error))
                continue
            prepared.add_batch(draft, batch, counts, skipped)
            return counts


def _skipped_file(batch: Sequence[RawFile], error: DamagedFileError) -> SkippedFile:
    (file,) = (file for file in batch if file.path == error.path)
    return SkippedFile(file.path, file.size_bytes, file.modified_ms, error.reason)


@dataclass(frozen=True, slots=True)
class PreparationSummary:
    """The numbers of records of all prepared files of a source, and the damaged raw files that were left out."""

    counts: Mapping[str, int]
    skipped: tuple[SkippedFile, ...]


def summarize_preparation(source: Source) -> PreparationSummary:
    """Return the summary of a source; empty if it is read in place."""
    if not reads_prepared_files(source):
        return PreparationSummary({}, ())
    batches = [batch for folder in source.paths for batch in PreparedSource(Path(folder)).batches()]
    counts = BatchCounts.sum(batch.counts for batch in batches)
    return PreparationSummary(asdict(counts), tuple(file for batch in batches for file in batch.skipped))


def find_source_snapshots(source: Source) -> dict[str, int]:
    """Return the snapshots of the Iceberg tables whose files are prepared; empty for other sources."""
    if not (reads_prepared_files(source) or reads_copies(source)):
        return {}
    from backstream.lake.source_tables import SourceTableState

    states = (SourceTableState.load(Path(folder)) for folder in source.paths)
    return {state.table: state.snapshot_id for state in states if state}


def list_parquet_to_prepare(definition: Definition, where: str) -> list[RawFile]:
    """Return the files of a Parquet source if the engines cannot read them in place, else nothing.

    The first file decides: its times are INT96, nanoseconds, or without a zone, or a column is in its path.
    """
    from backstream.source.in_place import is_readable_in_place

    files = list_raw_files(definition.source, where)
    is_in_place = is_readable_in_place(files[0].path, definition.source, list_paths(definition))
    return [] if is_in_place else files
