"""One process at a time has the lock of a folder in an object store."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.lake.store import BUCKET, Store

from backstream.errors import StorageError
from backstream.storage import store_lock
from backstream.storage.store_lock import lock_address
from backstream.variables import WAREHOUSE_VARIABLE

ADDRESS = f"s3://{BUCKET}/locked"


@pytest.fixture(autouse=True)
def keys(s3: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give this process the keys of the store."""
    monkeypatch.setenv(WAREHOUSE_VARIABLE, s3.new_warehouse())
    monkeypatch.setattr(store_lock, "_PAUSE_S", 0.02)


def test_two_processes_never_have_the_lock_at_once(s3: Store) -> None:
    inside: list[int] = []
    seen: list[int] = []

    def work(number: int) -> None:
        with lock_address(ADDRESS):
            inside.append(number)
            time.sleep(0.05)
            seen.append(len(inside))
            inside.remove(number)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))

    assert seen == [1] * 6
    assert not s3.keys(f"{BUCKET}/locked")


def test_the_lock_of_a_dead_process_is_taken_when_it_is_abandoned(
    s3: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with s3.filesystem.open_output_stream(f"{BUCKET}/locked/.lock/dead") as stream:
        stream.write(b"")
    monkeypatch.setattr(store_lock, "_LIMIT_S", 0.1)
    with pytest.raises(StorageError, match=r"^another process has the lock .*\n  s3://lake/locked/\.lock$"):
        lock_address(ADDRESS).__enter__()

    monkeypatch.setattr(store_lock, "_ABANDONED_MS", 1_000)
    monkeypatch.setattr(store_lock, "_LIMIT_S", 10)
    with lock_address(ADDRESS):
        assert len(s3.keys(f"{BUCKET}/locked")) == 1


def test_a_running_process_renews_its_lock(s3: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_lock, "_RENEWAL_S", 0.3)
    monkeypatch.setattr(store_lock, "_ABANDONED_MS", 1_500)
    monkeypatch.setattr(store_lock, "_LIMIT_S", 0.1)
    with lock_address(ADDRESS):
        time.sleep(3)
        with pytest.raises(StorageError, match="another process has the lock"):
            lock_address(ADDRESS).__enter__()
    assert not s3.keys(f"{BUCKET}/locked")


def test_a_process_that_fails_leaves_no_lock(s3: Store) -> None:
    with pytest.raises(ZeroDivisionError), lock_address(ADDRESS):
        _ = 1 / 0
    assert not s3.keys(f"{BUCKET}/locked")
