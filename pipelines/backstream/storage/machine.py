"""Measure the memory of this machine."""

from __future__ import annotations

import os
from pathlib import Path

CONTAINER_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
"""The Linux files with a container's memory limit, in versions 2 and 1; `max` or a huge number is no limit."""


SMALL_INPUT_BYTES = 16 * 2**20
"""The largest size of files that count as small: about a million events in Parquet. It is chosen, not measured."""


def machine_memory_bytes() -> int:
    """Return the memory of this machine, or of the container of this process."""
    limits = [file.read_text().strip() for file in CONTAINER_LIMITS if file.is_file()]
    return min(
        os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        *(int(limit) for limit in limits if limit.isdecimal()),
    )
