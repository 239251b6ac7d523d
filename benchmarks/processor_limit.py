"""Limit the processor time of processes by a control group of Linux, which needs root.

So several workers get equal parts of the cores of a small machine.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")
_PERIOD_US = 100_000
_WAIT_S = 10.0


@contextmanager
def processor_limit(name: str, cores: float) -> Iterator[list[str]]:
    """Yield the beginning of a command, which limits the command and its children to so many cores together.

    Args:
        name: of the control group, which exists during the block.
        cores: a fraction, or more than one core; 0 sets no limit.

    Raises:
        SystemExit: when this process can't create control groups.
    """
    if not cores:
        yield []
        return
    has_version_2 = (_GROUPS / "cgroup.controllers").exists()
    group = _GROUPS / name if has_version_2 else _GROUPS / "cpu" / name
    quota_us = round(cores * _PERIOD_US)
    try:
        group.mkdir(exist_ok=True)
        if has_version_2:
            (group / "cpu.max").write_text(f"{quota_us} {_PERIOD_US}")
        else:
            (group / "cpu.cfs_quota_us").write_text(str(quota_us))
    except OSError as error:
        msg = f"cannot limit processors by a control group in {_GROUPS}: {error}"
        raise SystemExit(msg) from error
    try:
        yield ["sh", "-c", f'echo $$ > "{group}/cgroup.procs" && exec "$@"', "sh"]
    finally:
        _remove(group)


def _remove(group: Path) -> None:
    """Remove a group, which is possible when its last process has ended."""
    deadline = time.monotonic() + _WAIT_S
    while time.monotonic() < deadline:
        with suppress(OSError):
            os.rmdir(group)  # noqa: PTH106 - the files of a control group aren't files
            return
        time.sleep(0.1)
