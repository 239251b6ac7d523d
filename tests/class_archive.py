"""Write the archive of Spark's classes before the tests, so that each Java that they start uses it.

In a new environment, the first local session writes the archive when its Java ends. In a run of tests, this can be
the session that all tests of a process share. Each Java that starts before its end loads 20,000 classes by itself,
which takes five seconds of the processor.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.package import publish_cases

from backstream.spark.java import (
    FIRST_COMPILER,
    OPTIONS_VARIABLE,
    archive_path,
    archive_read_options,
    is_archive_complete,
)
from backstream.variables import CLASS_ARCHIVE_VARIABLE, HEAP_VARIABLE

CASE = "tumbling replay spark"
"""A run that uses most of the classes that tests use."""
QUICK_OPTIONS = f"{FIRST_COMPILER} -XX:+UseSerialGC"
"""Options of Java for little data: only the first compiler, and one thread that collects garbage.

The second compiler took a third of the processor time of 16 tests of tests/spark/test_chunks.py.
"""
_LIMIT_S = 120.0


def quick_options() -> str:
    """Return the options of each Java of the tests, with the archive if there is one."""
    return f"{QUICK_OPTIONS} {archive_read_options()}".strip()


def main() -> None:
    """Write the archive, unless there is one or this environment cannot have one."""
    path = archive_path()
    if path is None or is_archive_complete(path):
        return
    variables = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("BACKSTREAM_") or name == CLASS_ARCHIVE_VARIABLE
    }
    with TemporaryDirectory(prefix="backstream-") as folder:
        subprocess.run(
            [sys.executable, publish_cases.__file__, folder, CASE],
            env=variables | {HEAP_VARIABLE: "1g", OPTIONS_VARIABLE: quick_options()},
            stdout=subprocess.DEVNULL,
            check=True,
        )
    _wait_for(path)


def _wait_for(path: Path) -> None:
    """Wait until Java, which ends after the process that started it, has written the archive."""
    end_s = time.monotonic() + _LIMIT_S
    while path.with_suffix(".mark").exists() and not is_archive_complete(path) and time.monotonic() < end_s:
        time.sleep(0.2)


if __name__ == "__main__":
    main()
