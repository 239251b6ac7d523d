"""Read all logs of a job of Structured Streaming: checkpoints, kept batches, progress reports, event logs."""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from backstream.storage.stores import Stores, explain_reading, is_in_store
from backstream.structured_streaming.batches import BatchLog, merge_logs, require_sound
from backstream.structured_streaming.checkpoint import has_batches, read_checkpoint
from backstream.structured_streaming.kept_batches import (
    add_to_kept,
    has_kept,
    list_kept_until,
    read_kept,
)
from backstream.structured_streaming.progress import read_progress
from backstream.text import text_logger

log = text_logger(__name__)


@dataclass(frozen=True, slots=True)
class JobLogs:
    """The places of the logs of a job.

    Attributes:
        checkpoints: checkpoints, and folders of kept batches: their paths or addresses.
        reports: files of progress reports, and event logs.
        own: a folder of kept batches, which gets those that Spark may remove.
        stores: the object stores.
    """

    checkpoints: Sequence[str]
    reports: Sequence[str]
    own: str
    stores: Stores

    def read(self, since: int = 0) -> BatchLog:
        """Return the batches in the logs of one job, without an unfinished last one; logs are compared.

        Args:
            since: the number of a batch; most of the kept batches before it are not read. Reports are read as a
                whole, so with reports all batches are.

        Raises:
            SpecError: when a log has another form, or the logs contradict each other.
            StorageError: when a store cannot be read.
        """
        stores = self.stores
        with _many_objects():
            is_kept = {address: has_kept(address, stores) for address in (*self.checkpoints, self.own)}
            checkpoints = [address for address in self.checkpoints if not is_kept[address]]
            live = [
                read_checkpoint(address, stores)
                for address in checkpoints
                if self._is_there(address, is_first=not is_kept[self.own])
            ]
            first = 0 if self.reports else min([since, *(each.batches[0].number for each in live)])
            folders = [address for address, has in is_kept.items() if has]
            known = [each for address in folders if (each := read_kept(address, stores, first))]
            ids = {query_id for each in (*known, *live) for query_id in each.query_ids}
            query_id = next(iter(ids)) if len(ids) == 1 else None
            live += [read_progress(location, stores, query_id) for location in self.reports]
            if not live:
                return require_sound(merge_logs(known))
            found = require_sound(merge_logs(live))
            merged, _ = add_to_kept(found, merge_logs(known) if known else None, self.own, stores)
            return merged

    def _is_there(self, address: str, *, is_first: bool) -> bool:
        """Return whether a checkpoint must be read: it is there, or the home has no batches of it either."""
        if is_first or has_batches(address, self.stores):
            return True
        log.warning("the checkpoint is gone: %s; the batches that earlier runs have kept are read", address)
        return False

    def kept_version(self, until: int) -> str:
        """Return a digest of the names of the files of kept batches that end at a batch or before it.

        Raises:
            StorageError: when a store cannot be read.
        """
        names = [list_kept_until(address, self.stores, until) for address in (*self.checkpoints, self.own)]
        return hashlib.sha256(repr(names).encode()).hexdigest()[:12]

    @property
    def version(self) -> str:
        """A digest of the names, sizes, and modification times of all files of the logs.

        Raises:
            StorageError: when a store cannot be read.
        """
        content = hashlib.sha256()
        for address in (*self.checkpoints, *self.reports):
            for line in sorted(self._list_files(address)):
                content.update(f"{line}\n".encode())
        return content.hexdigest()[:12]

    def _list_files(self, address: str) -> Iterator[str]:
        if is_in_store(address):
            # Of a checkpoint, the ends of the batches are enough: each batch has one. Folders of kept batches and
            # reports have no such folder.
            with explain_reading(address):
                versions = self.stores.list_versions(f"{address}/offsets") or self.stores.list_versions(address)
            yield from (f"{name} {version.size_bytes} {version.modified_ms}" for name, version in versions.items())
            return
        root = Path(address)
        for file in [root] if root.is_file() else root.rglob("*"):
            with suppress(FileNotFoundError):  # Spark removes old ones meanwhile
                stat = file.stat()
                yield f"{file} {stat.st_size} {stat.st_mtime_ns}"


@contextmanager
def _many_objects() -> Iterator[None]:
    """Stop the search for garbage: millions of small objects are made, and none of them is garbage."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
