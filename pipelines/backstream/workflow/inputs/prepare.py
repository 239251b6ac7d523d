"""Prepare the new raw files of a source before a run is planned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from backstream.definition.columns import source_columns
from backstream.definition.loader import load_definition, resolve_raw_paths
from backstream.definition.model import Definition
from backstream.definition.prepared import (
    is_copied,
    list_paths,
    list_single_sources,
    prepared_folder,
    reads_copies,
    reads_prepared_files,
    reason_to_convert,
    reason_to_prepare,
)
from backstream.definition.source_section import Source
from backstream.errors import PlanError
from backstream.eventtime.intervals import ALL_TIMES, Interval, merge_intervals
from backstream.runs.home import Home
from backstream.runs.input_files import FileList, InexactNumbers, MisplacedRecords, PinnedInput, SkippedFile
from backstream.source.equal_files import counts_equal_files_twice, find_equal_files
from backstream.source.folder_periods import FolderPeriods
from backstream.source.prepared import (
    BatchCounts,
    PreparedSource,
    SourceListing,
)
from backstream.source.raw_files import RawFile, list_raw_files
from backstream.source.raw_types import require_columns_of_files
from backstream.text import text_logger
from backstream.workflow.inputs.prepared_batches import PreparedFiles, prepare_batches
from backstream.workflow.inputs.raw_source import RawSource, copy_source, must_convert
from backstream.workflow.inputs.side_inputs import load_side_inputs, pin_side_inputs
from backstream.workflow.plan.shared_home import require_stored_source
from backstream.workflow.runners import Runner

log = text_logger(__name__)


def prepare_source(
    definition_path: Path,
    home: Home,
    runner: Runner,
    note: Callable[[str], None] = log.info,
    needed: Interval | None = ALL_TIMES,
) -> PreparedFiles | None:
    """Prepare the raw files of a source that are new or changed since the last preparation.

    With `source.partition_filter`, only the files of folders that may hold the needed event times.

    Args:
        definition_path: the TOML file.
        home: the folder that holds all state.
        runner: runs the work; it is used only if there is something to prepare.
        note: receives a line before the work starts, and one after it.
        needed: the event times that the caller needs; those that earlier calls needed are always included. None:
            no others.

    Returns:
        The counts; None if there was nothing to do.

    Raises:
        SpecError: when an expression or a column of the source is wrong.
        PlanError: when the source has no files.
    """
    definition = resolve_raw_paths(load_definition(definition_path), home)
    where = str(definition_path)
    if not home.is_shared:
        require_stored_source(definition, home, where)
        if reason_to_convert(definition) is None:  # tasks read the files where they are
            return None
    is_single = not definition.source.parts
    if is_single and is_copied(definition, home) and not must_convert(definition, home, where):
        copied = copy_source(definition, home, where, runner, note)
        return None if copied is None else PreparedFiles(copied, BatchCounts(0, 0, 0, 0))
    is_needed = reason_to_prepare(definition) is not None
    results = [
        _prepare_single_source(_Request(single, where, home, runner, note, needed), is_needed=is_needed)
        for single in list_single_sources(definition)
    ]
    done = [result for result in results if result is not None]
    return PreparedFiles.sum(done) if done else None


class _Request(NamedTuple):
    """The arguments of `prepare_source` for a single source."""

    definition: Definition
    where: str
    home: Home
    runner: Runner
    note: Callable[[str], None]
    needed: Interval | None


def _prepare_single_source(request: _Request, *, is_needed: bool) -> PreparedFiles | None:
    definition, home, note = request.definition, request.home, request.note
    name = f"source {definition.source.name!r} of {definition.name}" if definition.source.name else definition.name
    where = f"{request.where}, source {definition.source.name!r}" if definition.source.name else request.where
    prepared = PreparedSource(prepared_folder(definition, home))
    if not (is_needed or prepared.folder.is_dir()) and not list_parquet_to_prepare(definition, where):
        return None
    with prepared.lock(), RawSource.open(definition, home, where) as listed:
        pinned = pin_side_inputs(definition, home, where)
        source = listed.settle(lambda files: prepared.find_changes(files, pinned).new_files)
        job = None
        if definition.watermark.job_logs:
            from backstream.workflow.inputs.job_batches import JobBatches  # other sources need no such import

            job = JobBatches.load(definition, home, source.files, where, source.appends)
        changes = prepared.find_changes(source.files, pinned, job.is_current if job else lambda _: True)
        listing, files = _choose_files(source, changes.new_files, request.needed, prepared.folder)
        prepared.remove_drafts()
        source.remove_scratch(prepared.folder)
        if not files and not changes.outdated:
            listing.write(prepared.folder)
            source.write_state(prepared.folder)
            return None
        if source.is_local and definition.source.transform is None:
            require_columns_of_files(definition, (file.path for file in files), where)
        size_mb = sum(file.size_bytes for file in files) / 1e6
        note(f"preparing {len(files):,} new files of {name}, {size_mb:,.1f} MB")
        with load_side_inputs(definition, home, where, request.runner, prepared.folder) as sides:
            result = prepare_batches(prepared, files, source, sides, request.runner, job)
        prepared.remove_batches(changes.outdated)
        listing.write(prepared.folder)
        source.write_state(prepared.folder)
    note(f"prepared {result}")
    return result


def _choose_files(
    source: RawSource, new_files: Sequence[RawFile], needed: Interval | None, folder: Path
) -> tuple[SourceListing, list[RawFile]]:
    """Return the listing of a source, and the new files that may hold the needed event times."""
    former = SourceListing.load(folder)
    listing = SourceListing(ignored=source.ignored, equal_files=_find_second_deliveries(source, new_files, former))
    if source.definition.source.partition_filter is None:
        return listing, list(new_files)
    periods = FolderPeriods(source.definition.source, source.where)
    intervals = merge_intervals([*(former.needed or ()), *([needed] if needed else [])])
    files = [file for file in new_files if periods.may_hold(file.path, intervals)]
    chosen = set(files)
    unopened = FileList.from_paths(file.path for file in new_files if file not in chosen)
    return replace(listing, needed=tuple(intervals), unopened=unopened), files


def _find_second_deliveries(
    source: RawSource, new_files: Sequence[RawFile], former: SourceListing
) -> Mapping[str, str]:
    """Return the files with the content of another one; files are compared again only if there are new ones."""
    if source.table is not None or not counts_equal_files_twice(source.definition.source):
        return {}
    sizes = {file.path: file.size_bytes for file in source.files}
    if not new_files:
        return {path: first for path, first in former.equal_files.items() if {path, first} <= sizes.keys()}
    return find_equal_files(sizes, source.definition.source.format)


@dataclass(frozen=True, slots=True)
class PreparationSummary:
    """The numbers of records of all prepared files of a source, and the damaged raw files that were left out.

    `side_inputs` are the versions of the inputs that its transformation got. `misplaced` are the records that are
    not in the folder of their event time. `inexact` are the numbers that a declared type cannot hold.
    `listing` is that of all sources of a union together.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    skipped: tuple[SkippedFile, ...] = ()
    side_inputs: Mapping[str, PinnedInput] = field(default_factory=dict)
    misplaced: tuple[MisplacedRecords, ...] = ()
    inexact: tuple[InexactNumbers, ...] = ()
    listing: SourceListing = field(default_factory=SourceListing)


def summarize_preparation(source: Source) -> PreparationSummary:
    """Return the summary of a source; empty if it is read in place."""
    sources = [PreparedSource.from_location(path) for path in source.paths]
    listing = _sum_listings(SourceListing.load(prepared.folder) for prepared in sources)
    if not reads_prepared_files(source):
        return PreparationSummary(listing=listing) if reads_copies(source) else PreparationSummary()
    batches = [batch for prepared in sources for batch in prepared.batches()]
    counts = BatchCounts.sum(batch.counts for batch in batches)
    return PreparationSummary(
        asdict(counts),
        tuple(file for batch in batches for file in batch.skipped),
        {name: pinned for batch in batches for name, pinned in batch.side_inputs.items()},
        tuple(records for batch in batches for records in batch.misplaced),
        InexactNumbers.sum(numbers for batch in batches for numbers in batch.inexact),
        listing,
    )


def _sum_listings(listings: Iterable[SourceListing]) -> SourceListing:
    whole = list(listings)
    reasons = sorted({reason for listing in whole for reason in listing.ignored})
    return SourceListing(
        unopened=FileList.sum(listing.unopened for listing in whole),
        ignored={reason: FileList.sum(_lists_of(reason, whole)) for reason in reasons},
        equal_files={path: first for listing in whole for path, first in listing.equal_files.items()},
    )


def _lists_of(reason: str, listings: Iterable[SourceListing]) -> list[FileList]:
    return [listing.ignored[reason] for listing in listings if reason in listing.ignored]


def require_prepared(source: Source, needed: Interval, where: str) -> None:
    """Check that the files are prepared that may hold the needed event times.

    Raises:
        PlanError: when an earlier preparation needed other event times.
    """
    if not reads_prepared_files(source):
        return
    for folder in source.paths:
        prepared = SourceListing.load(PreparedSource.from_location(folder).folder).needed
        if prepared is not None and next(needed.without(prepared), None) is not None:
            msg = (
                f"the files of the folders that may hold {needed} are not prepared"
                f" ({where}, source.partition_filter)"
                "\n\nhint: run `backstream prepare` for the definition"
            )
            raise PlanError(msg)


def find_source_snapshots(source: Source) -> dict[str, int]:
    """Return the snapshots of the Iceberg tables whose files are prepared; empty for other sources."""
    if not (reads_prepared_files(source) or reads_copies(source)):
        return {}
    from backstream.lake.source_tables import SourceTableState

    states = (SourceTableState.load(PreparedSource.from_location(folder).folder) for folder in source.paths)
    return {state.table: state.snapshot_id for state in states if state}


def list_parquet_to_prepare(definition: Definition, where: str) -> Sequence[RawFile]:
    """Return the files of a Parquet source if the engines cannot read them in place, else nothing.

    The first file decides: its times are INT96, nanoseconds, or without a zone, or a column is in its path. Or the
    files have several types for a column of numbers.
    """
    from backstream.source.in_place import have_types_to_unite, is_readable_in_place

    files = list_raw_files(definition.source, where)
    is_in_place = is_readable_in_place(files[0].path, definition.source, list_paths(definition))
    columns = source_columns(definition)
    return [] if is_in_place and not have_types_to_unite([file.path for file in files], columns) else files
