"""Prepare the new raw files of a source before a run is planned."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
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
from backstream.runs.input_files import PinnedInput, SkippedFile
from backstream.source.prepared import BatchCounts, PreparedBatch, PreparedSource, split_into_batches
from backstream.source.raw_files import RawFile, list_raw_files
from backstream.workflow.raw_source import RawSource, copy_source, must_convert
from backstream.workflow.side_inputs import LoadedInputs, load_side_inputs, pin_side_inputs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from backstream.spark.preparation.damaged_files import DamagedFileError
    from backstream.spark.preparation.settings import Preparation

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
        pinned = pin_side_inputs(definition, home, where)
        source = listed.settle(lambda files: prepared.find_changes(files, pinned).new_files)
        changes = prepared.find_changes(source.files, pinned)
        prepared.remove_drafts()
        source.remove_scratch(prepared.folder)
        if not changes:
            source.write_state(prepared.folder)
            return None
        size_mb = sum(file.size_bytes for file in changes.new_files) / 1e6
        note(f"preparing {len(changes.new_files):,} new files of {name}, {size_mb:,.1f} MB")
        with load_side_inputs(definition, home, where, spark, prepared.folder) as sides:
            counts = _prepare_batches(prepared, changes.new_files, source, sides, spark())
        prepared.remove_batches(changes.outdated)
        source.write_state(prepared.folder)
    result = PreparedFiles(len(changes.new_files), counts)
    note(f"prepared {result}")
    return result


def _prepare_batches(
    prepared: PreparedSource,
    files: Sequence[RawFile],
    source: RawSource,
    sides: LoadedInputs,
    spark: SparkSession,
) -> BatchCounts:
    from backstream.spark.preparation.settings import Preparation
    from backstream.spark.session import ship_package

    code = transformation(source.definition.source)
    if code is not None:
        ship_package(spark.sparkContext, code.target)

    def prepare_batch(batch: Sequence[RawFile]) -> BatchCounts:
        with (
            source.local_files(batch, prepared.folder, lambda: spark) as local,
            prepared.new_batch() as draft,
        ):
            preparation = Preparation(
                local.definition,
                source.where,
                code,
                fetched=local.folder,
                addresses=local.addresses,
                side_inputs=sides.rows,
            )
            counts, skipped = _prepare_batch(
                spark, preparation, {file: local.paths[file] for file in batch}, draft
            )
            prepared.add_batch(PreparedBatch(draft, tuple(batch), counts, tuple(skipped), sides.pinned))
            return counts

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return BatchCounts.sum(pool.map(prepare_batch, split_into_batches(files)))


def _prepare_batch(
    spark: SparkSession, preparation: Preparation, paths: Mapping[RawFile, str], draft: Path
) -> tuple[BatchCounts, list[SkippedFile]]:
    """Prepare raw files, given with their local paths; return the counts, and the damaged files that are left out.

    Raises:
        DamagedFileError: when a file is damaged, and the definition does not skip it.
    """
    from backstream.spark.preparation.damaged_files import DamagedFileError
    from backstream.spark.preparation.prepare import prepare_files

    skipped: list[SkippedFile] = []
    while True:
        left_out = {file.path for file in skipped}
        readable = sorted({path for file, path in paths.items() if file.path not in left_out})
        try:
            return prepare_files(spark, preparation, readable, draft), skipped
        except DamagedFileError as error:
            if preparation.definition.source.corrupt_files == "fail":
                raise
            skipped.append(_skipped_file(paths, error))
            shutil.rmtree(draft, ignore_errors=True)


def _skipped_file(batch: Iterable[RawFile], error: DamagedFileError) -> SkippedFile:
    (file,) = (file for file in batch if file.path == error.path)
    return SkippedFile(file.path, file.size_bytes, file.modified_ms, error.reason)


@dataclass(frozen=True, slots=True)
class PreparationSummary:
    """The numbers of records of all prepared files of a source, and the damaged raw files that were left out.

    `side_inputs` are the versions of the inputs that its transformation got.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    skipped: tuple[SkippedFile, ...] = ()
    side_inputs: Mapping[str, PinnedInput] = field(default_factory=dict)


def summarize_preparation(source: Source) -> PreparationSummary:
    """Return the summary of a source; empty if it is read in place."""
    if not reads_prepared_files(source):
        return PreparationSummary()
    batches = [batch for folder in source.paths for batch in PreparedSource(Path(folder)).batches()]
    counts = BatchCounts.sum(batch.counts for batch in batches)
    return PreparationSummary(
        asdict(counts),
        tuple(file for batch in batches for file in batch.skipped),
        {name: pinned for batch in batches for name, pinned in batch.side_inputs.items()},
    )


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
