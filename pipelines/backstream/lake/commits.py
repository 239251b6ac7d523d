"""One commit, one snapshot: what leaves the table and what enters it become true together."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile, ManifestFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update.snapshot import ManageSnapshots, _MergeAppendFiles, _OverwriteFiles
from sqlalchemy.exc import SQLAlchemyError

from backstream.core.errors import ConflictError, LedgerError

ATTEMPTS = 8
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0

_BETWEEN = "another commit came between"

Result = TypeVar("Result")


class _OneAppend(_MergeAppendFiles):
    """PyIceberg's append, which merges manifests once there are many of them (`schemas.py` says how many)."""

    def _refresh_for_retry(self) -> None:
        """As in `_OneSnapshot`."""
        raise CommitFailedException(_BETWEEN)


class OneTransaction(Transaction):
    """PyIceberg's transaction, which copies the metadata with all snapshots whenever it looks at it."""

    _seen: tuple[int, TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        """The table with what was staged so far: the same object until more is staged."""
        if self._seen is None or self._seen[0] != len(self._updates):
            base = self._table.metadata
            self._seen = (len(self._updates), super().table_metadata if self._updates else base)
        return self._seen[1]


class _OneSnapshot(_OverwriteFiles):
    """PyIceberg's overwrite, without what makes it forget our rules (docs/decisions/0002)."""

    def _existing_manifests(self) -> list[ManifestFile]:
        """Manifests that only list files removed long ago say nothing, yet would be carried for ever."""
        kept = super()._existing_manifests()
        return [each for each in kept if each.has_added_files() or each.has_existing_files()]

    def _refresh_for_retry(self) -> None:
        """PyIceberg's own retry, if a table asks for it: it would not look at who came between."""
        raise CommitFailedException(_BETWEEN)


@contextmanager
def attempting(what: str) -> Iterator[None]:
    """Have an error of the disk or of the database carry a note of what could not be done, for `opened`."""
    try:
        yield
    except (OSError, SQLAlchemyError) as error:
        error.add_note(what)
        raise


def with_retries(what: str, attempt: Callable[[], Result]) -> Result:
    """The result of an attempt that reads the table's state anew each time, as often as others get between.

    Raises:
        ConflictError: when others got between at every attempt.
    """
    for number in range(ATTEMPTS):
        try:
            with attempting(what):
                return attempt()
        except CommitFailedException:
            longest_s = min(_FIRST_PAUSE_S * 2**number, _LONGEST_PAUSE_S)
            time.sleep(random.uniform(0, longest_s))  # noqa: S311 - jitter, not a secret
    msg = f"could not {what}: other commits came between at all {ATTEMPTS} attempts\n\nhint: try again"
    raise ConflictError(msg)


def committed(
    table: Table,
    operation: Operation,
    added: Sequence[DataFile],
    removed: Sequence[DataFile],
    properties: dict[str, str],
    tag: str | None = None,
) -> Snapshot:
    """The one snapshot that takes files out of a table and puts others in; its tag is set by the same commit.

    Raises:
        CommitFailedException: when the table is not what it was when it was loaded; nothing was changed.
        LedgerError: when the commit succeeded and its snapshot cannot be found.
    """
    kind = _OneAppend if operation is Operation.APPEND else _OneSnapshot
    with OneTransaction(table) as transaction:
        producer = kind(operation, transaction, table.io, snapshot_properties=properties)
        for file in removed:
            producer.delete_data_file(file)
        for file in added:
            producer.append_data_file(file)
        producer.commit()
        if tag is not None:
            ManageSnapshots(transaction).create_tag(producer.snapshot_id, tag).commit()
    if (snapshot := table.snapshot_by_id(producer.snapshot_id)) is None:
        msg = f"snapshot {producer.snapshot_id} of table `{table.name()[-1]}` is not there after its commit"
        raise LedgerError(msg)
    return snapshot
