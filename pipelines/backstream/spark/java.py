"""The Java that Spark runs on, asked for before it starts; nothing here loads Spark."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from backstream.core.errors import SetupError
from backstream.spark import class_archive
from backstream.spark.heap import SETTINGS_FILE, SUBMIT_ARGUMENTS, conf_folder, heap_mb

OLDEST_JAVA = 17
JAVA_HINT = "bin/setup installs one, or says how"
OPTIONS_VARIABLE = "SPARK_SUBMIT_OPTS"
"""Options of the Java that `spark-submit` or PySpark starts, the driver's; those of a session come after."""
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
"""Where Linux says who gets huge pages of memory (everybody, who asks, or nobody), the choice in brackets."""
ASKED_FOR = "madvise"
ASK_FOR_HUGE_PAGES = "-XX:+UseTransparentHugePages"
PARALLEL_COLLECTOR = "-XX:+UseParallelGC"
LEAST_PARALLEL_MB = 3_000
FIRST_COMPILER = "-XX:TieredStopAtLevel=1"
SMALL_INPUT_BYTES = 16 * 2**20
"""Of Parquet: about a million events. The size is chosen, not measured.

Without the second compiler a job of 100,000 events was faster, and a replay of two million slower.
"""
_CHOSEN = re.compile("HugePages|LargePages|HugeTLBFS")
_ARCHIVE = re.compile("SharedArchiveFile|ArchiveClassesAtExit|-Xshare|-Xlog")
_COLLECTOR = re.compile(r"-XX:\+Use\w*GC|-Xms")
_COMPILER = re.compile(r"Tiered|-XX:.*Compil|-Xint|-Xcomp")
_VARIABLES = (OPTIONS_VARIABLE, "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")


def require_java() -> None:
    """Check that Spark will find a Java runtime that it can run on.

    Raises:
        SetupError: when there is none, or an older one than 17.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        where = f"at JAVA_HOME={home}" if home else "on PATH, and JAVA_HOME is not set"
        msg = f"no Java runtime {where}; Spark needs version {OLDEST_JAVA} or newer\n\nhint: {JAVA_HINT}"
        raise SetupError(msg)
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(?:1\.)?(\d+)', said)
    if version is None or int(version[1]) < OLDEST_JAVA:
        found = said.splitlines()[0] if said else "no answer"
        msg = f"Spark needs Java {OLDEST_JAVA} or newer, got {found} ({java})\n\nhint: {JAVA_HINT}"
        raise SetupError(msg)


def huge_pages() -> str | None:
    """Who gets huge pages on this machine, in Linux' words; None: nothing says so."""
    try:
        said = re.search(r"\[(\w+)\]", HUGE_PAGES.read_text())
    except OSError:
        return None  # not Linux, or one that keeps it to itself
    return said[1] if said else None


@contextmanager
def tuned(heap: str | None, input_bytes: int | None = None) -> Iterator[None]:
    """Have a Java that is started within run as a batch job should; what somebody has chosen holds.

    Args:
        heap: its heap, where it is ours to choose.
        input_bytes: how large the files are that it will read, at most; None: nobody knows.
    """
    before, is_free = os.environ.get(OPTIONS_VARIABLE), not _ARCHIVE.search(_said())
    archive = class_archive.options_to_read_or_write() if is_free else ""
    _add(*_huge_pages_options(), archive, *_collector_options(heap), *_compiler_options(input_bytes))
    try:
        yield
    finally:
        # Another Java of this environment may have another heap.
        if before is None:
            os.environ.pop(OPTIONS_VARIABLE, None)
        else:
            os.environ[OPTIONS_VARIABLE] = before


def tune(input_bytes: int | None = None) -> None:
    """The same for the Java of a later `spark-submit`, whose heap others choose, and which is waited for."""
    archive = "" if _ARCHIVE.search(_said()) else class_archive.options_to_read()
    _add(*_huge_pages_options(), archive, *_compiler_options(input_bytes))


def _add(*options: str) -> None:
    had = os.environ.get(OPTIONS_VARIABLE, "")
    wanted = " ".join(option for option in options if option and option not in had)
    if wanted:
        os.environ[OPTIONS_VARIABLE] = f"{had} {wanted}".strip()


def _huge_pages_options() -> list[str]:
    """Ask for huge pages, where who asks gets them and nobody has chosen otherwise.

    Grouping looks up millions of places in memory, at random, and with pages of 4 kB the processor must find out
    where each page lies. Only Linux knows the option, and only it says who gets them.
    """
    return [ASK_FOR_HUGE_PAGES] if huge_pages() == ASKED_FOR and not _CHOSEN.search(_said()) else []


def _collector_options(heap: str | None) -> list[str]:
    """Collect garbage with all cores at once, in a heap that does not have to grow first.

    Java's default collector works beside the program, so that a server answers in time; a job waits for nothing
    but its end. In a small heap the default gets by with less.
    """
    if heap is None or heap_mb(heap) < LEAST_PARALLEL_MB or _COLLECTOR.search(_said() + _said_for_spark()):
        return []
    return [PARALLEL_COLLECTOR, f"-Xms{heap}"]


def _compiler_options(input_bytes: int | None) -> list[str]:
    """Do without Java's second compiler where there is little to read.

    It makes faster code from what runs often, and a small run has ended before that pays: of 134 small chunks Java
    took 25 to 28 seconds of processor time instead of 43.
    """
    is_small = input_bytes is not None and input_bytes <= SMALL_INPUT_BYTES
    return [FIRST_COMPILER] if is_small and not _COMPILER.search(_said() + _said_for_spark()) else []


def _said() -> str:
    return " ".join(os.environ.get(name, "") for name in _VARIABLES)


def _said_for_spark() -> str:
    """Options that a session adds to those of the variable."""
    defaults = conf_folder() / SETTINGS_FILE
    return os.environ.get(SUBMIT_ARGUMENTS, "") + (defaults.read_text() if defaults.is_file() else "")
