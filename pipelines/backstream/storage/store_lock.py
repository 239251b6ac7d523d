"""Lock a folder in an object store, without any other service.

A lock is an object in `<folder>/.lock`. A process writes its own object, and has the lock if there is no other.
If there is one, the process removes its own, and tries again later. So two processes never both have the lock,
because at least one of them sees the object of the other.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

from backstream.errors import StorageError
from backstream.storage.heartbeat import heartbeat
from backstream.storage.object_stores import explain_store_errors
from backstream.storage.stores import Stores

_RENEWAL_S = 10.0
_ABANDONED_MS = 60_000
"""The age of a lock whose process has ended, by the clock of the store; a running process renews its lock."""
_PAUSE_S = 0.5
_LIMIT_S = 3_600.0
_MS_PER_S = 1_000


@contextmanager
def lock_address(address: str) -> Iterator[None]:
    """Lock a folder in an object store for a block.

    Raises:
        StorageError: when the store refuses, or another process has the lock for an hour.
    """
    folder, stores = f"{address}/.lock", Stores.from_environment()
    own = f"{folder}/{uuid.uuid4().hex}"
    deadline_s = time.monotonic() + _LIMIT_S
    with explain_store_errors("lock", address):
        while not _try(stores, folder, own):
            if time.monotonic() > deadline_s:
                msg = f"another process has the lock for {_LIMIT_S:.0f} s\n  {folder}"
                raise StorageError(msg)
            time.sleep(random.uniform(_PAUSE_S / 2, _PAUSE_S))  # noqa: S311 - two processes must not go in step
    try:
        with heartbeat(partial(_renew, stores, own), _RENEWAL_S):
            yield
    finally:
        with suppress(OSError):  # it is abandoned soon
            stores.remove([own])


def _try(stores: Stores, folder: str, own: str) -> bool:
    """Return whether the process has the lock now."""
    _write(stores, own)
    locks = {f"{folder}/{name}": version for name, version in stores.list_versions(folder).items()}
    now_ms = locks[own].modified_ms
    others = {path for path, version in locks.items() if path != own}
    abandoned = {path for path in others if now_ms - locks[path].modified_ms > _ABANDONED_MS}
    stores.remove(abandoned)
    if others - abandoned:
        stores.remove([own])
        return False
    return True


def _renew(stores: Stores, own: str) -> None:
    with suppress(OSError):
        _write(stores, own)


def _write(stores: Stores, path: str) -> None:
    filesystem, target = stores.open(path)
    with filesystem.open_output_stream(target):
        pass
