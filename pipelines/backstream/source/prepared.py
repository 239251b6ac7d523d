"""Keep the prepared files of a source: batches of raw files that were read together, each in a folder of its own.

A batch appears by one rename, with the list of its raw files in it. So readers see whole batches only. If the home
is in an object store, the prepared files are written there first, and the batch appears with its list.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Self

from backstream.eventtime.intervals import Interval
from backstream.runs.home import Home
from backstream.runs.input_files import FileList, InexactNumbers, MisplacedRecords, PinnedInput, SkippedFile
from backstream.source.raw_contents import RawContents, list_replaced, mark_as_replaced, remove_contents
from backstream.source.raw_files import RawFile
from backstream.storage.files import load_json, remove_file, write_json
from backstream.storage.home_copy import HomeCopy
from backstream.storage.object_stores import explain_store_errors
from backstream.storage.store_lock import lock_address
from backstream.storage.stores import Stores, is_in_store

_MANIFEST = "_raw_files.json"
"""File in the folder of a batch: its raw files and its counts. Readers of Parquet ignore its name."""
_LISTING = "_listed.json"
BATCH_PREFIX = "batch-"
"""Prefix of the folder of a batch."""
_MAX_BATCH_BYTES = 256 * 2**20
"""Maximum size of the raw files of a batch. If one of them changes, all are read again."""
_MAX_BATCH_FILES = 20_000


@dataclass(frozen=True, slots=True)
class BatchCounts:
    """Records of a batch: read from raw files, left out by `source.where`, and unreadable ones.

    `returned` is the number of records after `source.transform`; without a transformation it equals `read`.
    """

    read: int
    returned: int
    left_out: int
    unreadable: int

    @classmethod
    def sum(cls, batches: Iterable[BatchCounts]) -> BatchCounts:
        """Return the counts of all batches together."""
        return cls(*map(sum, zip((0, 0, 0, 0), *map(astuple, batches), strict=True)))


@dataclass(frozen=True, slots=True)
class JobRecords:
    """The batches of a job that read the records of prepared files, with their number and the greatest event time.

    `mark` names the table of batches by which the records got their arrival times.
    """

    mark: str
    batches: Sequence[int]
    records: Sequence[int]
    greatest_ms: Sequence[int]


@dataclass(frozen=True, slots=True)
class PreparedBatch:
    """A folder of prepared files."""

    folder: Path
    files: tuple[RawFile, ...]
    counts: BatchCounts
    skipped: tuple[SkippedFile, ...] = ()
    """Damaged files, which `source.corrupt_files = "skip"` leaves out; they are among `files`."""
    side_inputs: Mapping[str, PinnedInput] = field(default_factory=dict)
    """The versions of the side inputs that the transformation got."""
    misplaced: tuple[MisplacedRecords, ...] = ()
    """The records that break the promise of `source.partition_filter`."""
    inexact: tuple[InexactNumbers, ...] = ()
    """The numbers that the declared types cannot hold."""
    job: JobRecords | None = None
    """The records of the batches of a job of Structured Streaming; None for another stream."""
    stored: tuple[RawFile, ...] = ()
    """The prepared files, if they are in an object store; otherwise they are in the folder."""

    @property
    def location(self) -> str:
        """The path of the folder, or its address."""
        copy = HomeCopy.find(self.folder / _MANIFEST)
        return copy.location(self.folder) if copy else str(self.folder)


@dataclass(frozen=True, slots=True)
class SourceListing:
    """The findings of the last listing of a source, besides the files that are prepared.

    `needed` are the event times that commands have needed so far, None without `source.partition_filter`. Files
    that cannot hold any of them are `unopened`. `ignored` files are not data, by reason. `equal_files` have the
    content of another file.
    """

    needed: tuple[Interval, ...] | None = None
    unopened: FileList = field(default_factory=FileList)
    ignored: Mapping[str, FileList] = field(default_factory=dict)
    equal_files: Mapping[str, str] = field(default_factory=dict)
    """The path of the other file, by path."""

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Return the listing in a folder of prepared files or copies; an empty one if there is none."""
        if not (folder / _LISTING).exists():
            return cls()
        content = load_json(folder / _LISTING, "listing of a source")
        return cls(
            None if content["needed"] is None else tuple(Interval(*ends) for ends in content["needed"]),
            FileList(**content["unopened"]),
            {reason: FileList(**files) for reason, files in content["ignored"].items()},
            content["equal_files"],
        )

    def write(self, folder: Path) -> None:
        """Write the listing by atomic rename."""
        content = {
            "needed": None if self.needed is None else [list(astuple(interval)) for interval in self.needed],
            "unopened": asdict(self.unopened),
            "ignored": {reason: asdict(files) for reason, files in self.ignored.items()},
            "equal_files": dict(self.equal_files),
        }
        write_json(folder / _LISTING, content)


@dataclass(frozen=True, slots=True)
class PreparedSource:
    """The folder of the prepared files of one source."""

    folder: Path

    @classmethod
    def from_location(cls, location: str) -> Self:
        """Return the prepared source at a path, or at an address in a home in an object store."""
        if not is_in_store(location):
            return cls(Path(location))
        address, *names = location.rsplit("/", 3)
        return cls(Home.from_location(address).path.joinpath(*names))

    def batches(self) -> list[PreparedBatch]:
        """Return all complete batches, sorted by name."""
        return [_load_batch(manifest) for manifest in sorted(self.folder.glob(f"{BATCH_PREFIX}*/{_MANIFEST}"))]

    def find_changes(
        self,
        files: Sequence[RawFile],
        side_inputs: Mapping[str, PinnedInput] = MappingProxyType({}),
        is_current: Callable[[PreparedBatch], bool] = lambda _: True,
    ) -> PreparedChanges:
        """Return the raw files that must be read, and the outdated batches.

        A batch is outdated if one of its raw files was changed or removed, a side input has another version, or it
        is not current for another reason.
        """
        current, outdated, kept = set(files), [], set[RawFile]()
        for batch in self.batches():
            is_same = current.issuperset(batch.files) and batch.side_inputs == side_inputs
            if is_same and is_current(batch):
                kept.update(batch.files)
            else:
                outdated.append(batch.folder)
        return PreparedChanges(tuple(file for file in files if file not in kept), tuple(outdated))

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder, so that two processes do not prepare the same files."""
        from filelock import FileLock  # executors import this module, and have no such package

        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / ".lock"):
            copy = HomeCopy.find(self.folder / _LISTING)
            if copy is None:
                yield
                return
            with lock_address(copy.location(self.folder)):
                copy.fetch_folder(self.folder)
                yield

    @contextmanager
    def new_batch(self) -> Iterator[Path]:
        """Yield the path of a draft folder, which does not exist; it is removed unless `add_batch` moved it."""
        draft = self.folder / f".draft-{uuid.uuid4().hex[:12]}"
        try:
            yield draft
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def add_batch(self, batch: PreparedBatch, contents: RawContents) -> None:
        """Make a draft visible as a batch; `batch.folder` is the draft. Its contents stay when it is replaced.

        Raises:
            StorageError: when the home is in an object store that refuses.
        """
        folder = self.folder / f"{BATCH_PREFIX}{uuid.uuid4().hex[:12]}"
        copy = HomeCopy.find(folder / _MANIFEST)
        stored = _upload_files(batch.folder, copy.location(folder)) if copy else []
        content = {
            "files": [asdict(file) for file in batch.files],
            "counts": asdict(batch.counts),
            "skipped": [asdict(file) for file in batch.skipped],
            "side_inputs": {name: asdict(pinned) for name, pinned in batch.side_inputs.items()},
            "misplaced": [asdict(records) for records in batch.misplaced],
            "inexact": [asdict(numbers) for numbers in batch.inexact],
            "job": asdict(batch.job) if batch.job else None,
            "stored": [asdict(file) for file in stored],
        }
        contents.write(self.folder, folder.name)
        if copy:
            write_json(folder / _MANIFEST, content)
            return
        write_json(batch.folder / _MANIFEST, content)
        batch.folder.rename(folder)

    def remove_batches(self, folders: Iterable[Path]) -> None:
        """Remove batches; each disappears by one rename, or with its list."""
        for folder in folders:
            mark_as_replaced(self.folder, folder.name)
            if HomeCopy.find(folder / _MANIFEST):
                stored = _load_batch(folder / _MANIFEST).stored
                remove_file(folder / _MANIFEST)
                Stores.from_environment().remove(file.path for file in stored)
                continue
            trash = self.folder / f".removed-{uuid.uuid4().hex[:12]}"
            folder.rename(trash)
            shutil.rmtree(trash, ignore_errors=True)

    def remove_unused_contents(self, is_read: Callable[[str], bool]) -> None:
        """Remove the contents of batches that were replaced long ago, unless a run that still counts read them."""
        current = {manifest.parent.name for manifest in self.folder.glob(f"{BATCH_PREFIX}*/{_MANIFEST}")}
        for batch in list_replaced(self.folder, current):
            if not is_read(batch):
                remove_contents(self.folder, batch)

    def remove_drafts(self) -> None:
        """Remove the drafts of killed processes, and objects that no list names. The caller holds the lock."""
        for pattern in (".draft-*", ".removed-*"):
            for folder in self.folder.glob(pattern):
                shutil.rmtree(folder, ignore_errors=True)
        if copy := HomeCopy.find(self.folder / _LISTING):
            stores, address = Stores.from_environment(), copy.location(self.folder)
            names = [name for name in stores.list_versions(address) if name.startswith(BATCH_PREFIX)]
            complete = {name.partition("/")[0] for name in names if name.endswith(f"/{_MANIFEST}")}
            stores.remove(f"{address}/{name}" for name in names if name.partition("/")[0] not in complete)


@dataclass(frozen=True, slots=True)
class PreparedChanges:
    """The difference between the raw files and the prepared ones."""

    new_files: tuple[RawFile, ...]
    outdated: tuple[Path, ...]

    def __bool__(self) -> bool:
        """Return whether there is anything to do."""
        return bool(self.new_files or self.outdated)


def split_into_batches(files: Sequence[RawFile]) -> list[list[RawFile]]:
    """Return files in batches of a limited size, in their order; a larger file is a batch of its own."""
    batches: list[list[RawFile]] = []
    size_bytes = 0
    for file in files:
        is_full = size_bytes + file.size_bytes > _MAX_BATCH_BYTES or (
            batches and len(batches[-1]) >= _MAX_BATCH_FILES
        )
        if not batches or is_full:
            batches.append([])
            size_bytes = 0
        batches[-1].append(file)
        size_bytes += file.size_bytes
    return batches


def _upload_files(folder: Path, address: str) -> list[RawFile]:
    """Copy the files of a folder to a store, and return the objects."""
    stores, paths = Stores.from_environment(), sorted(folder.rglob("*.parquet"))
    targets = {f"{address}/{path.relative_to(folder).as_posix()}": path for path in paths}
    with explain_store_errors("write", address):
        stores.upload_all(targets)
    versions = zip(targets, stores.find_versions(list(targets)), strict=True)
    return [RawFile(path, version.size_bytes, version.modified_ms) for path, version in versions if version]


def _load_batch(manifest: Path) -> PreparedBatch:
    content = load_json(manifest, "list of raw files")
    files = tuple(RawFile(**file) for file in content["files"])
    skipped = tuple(SkippedFile(**file) for file in content["skipped"])
    side_inputs = {name: PinnedInput(**pinned) for name, pinned in content["side_inputs"].items()}
    misplaced = tuple(MisplacedRecords(**records) for records in content["misplaced"])
    inexact = tuple(InexactNumbers(**numbers) for numbers in content["inexact"])
    counts, stored = BatchCounts(**content["counts"]), tuple(RawFile(**file) for file in content["stored"])
    job = JobRecords(**content["job"]) if content["job"] else None
    return PreparedBatch(manifest.parent, files, counts, skipped, side_inputs, misplaced, inexact, job, stored)
