"""Start the Java of a session, without the lines that every Java of Spark writes to the standard error."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from threading import Lock, Thread

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

_NOTES = re.compile(rb"WARNING: |(?:NOTE: )?Picked up \w+: ")
"""Lines of Java itself about the modules and options that Spark's scripts give to it: no option disables them.

Errors of Java and of Spark begin with other words, and so do the warnings of Java's machine.
"""
_STANDARD_ERROR = 2
_lock = Lock()


def start_java(conf: SparkConf) -> None:
    """Start the Java of this process, if there is none yet.

    Args:
        conf: the settings of the session; Java starts with the heap that they have.
    """
    with _lock:
        if SparkContext._gateway is not None:  # noqa: SLF001 - PySpark has no public name for it
            return
        read_end, write_end = os.pipe()
        # The thread ends with Java, or with this process. It reads without a file object, which Python could not
        # close at its exit while the thread reads.
        Thread(target=_copy_lines, args=(read_end,), name="stderr of Java", daemon=True).start()
        try:
            gateway = launch_gateway(conf, {"stderr": write_end})  # type: ignore[no-untyped-call]
        finally:
            os.close(write_end)
        SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001 - takes a gateway from the caller


def _copy_lines(read_end: int) -> None:
    """Copy lines to the standard error of this process until the other end is closed."""
    rest = b""
    while chunk := os.read(read_end, 65_536):
        *lines, rest = (rest + chunk).split(b"\n")
        _write(b"".join(line + b"\n" for line in lines if not _NOTES.match(line)))
    _write(rest)
    os.close(read_end)


def _write(content: bytes) -> None:
    with suppress(OSError):  # nobody reads; Java must be able to go on
        while content:
            content = content[os.write(_STANDARD_ERROR, content) :]
