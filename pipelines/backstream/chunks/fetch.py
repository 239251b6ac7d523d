"""Copy raw files to the disk in native tasks."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from backstream.chunks.tasks import Tasks
from backstream.source.copies import FetchResult, FetchTask, fetch_file
from backstream.storage.stores import NO_STORES, Stores

_AT_ONCE = 4
"""Number of files that a task copies at the same time, since an object store answers slowly."""
_TASKS_PER_SLOT = 4


def fetch_files(tasks: Tasks, planned: Sequence[FetchTask]) -> list[FetchResult]:
    """Copy raw files, and return the result of each."""
    if not planned:
        return []
    by_size = sorted(planned, key=lambda task: task.file.size_bytes, reverse=True)
    count = min(len(planned), tasks.slots * _TASKS_PER_SLOT)
    shares = [by_size[start::count] for start in range(count)]
    return [result for results in tasks.run(_fetch_all, shares) for result in results]


def _fetch_all(share: Sequence[FetchTask], _: Stores = NO_STORES) -> list[FetchResult]:
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(fetch_file, share))
