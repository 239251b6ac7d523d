"""The Java that Spark runs on, asked for before it starts; nothing here loads Spark."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from backstream.core.errors import SetupError

OLDEST_JAVA = 17
JAVA_HINT = "bin/setup installs one, or says how"
OPTIONS_VARIABLE = "SPARK_SUBMIT_OPTS"
"""Options of the Java that `spark-submit` or PySpark starts, the driver's; those of a session come after."""
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
"""Where Linux says who gets huge pages of memory (everybody, who asks, or nobody), the choice in brackets."""
ASKED_FOR = "madvise"
ASK_FOR_HUGE_PAGES = "-XX:+UseTransparentHugePages"
_CHOSEN = re.compile("HugePages|LargePages|HugeTLBFS")
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


def ask_for_huge_pages() -> None:
    """Have the driver's Java ask for huge pages, where who asks gets them and nobody has chosen otherwise.

    Grouping looks up millions of places in memory, at random, and with pages of 4 kB the processor must find out
    where each page lies. Only Linux knows the option, and only it says who gets them.
    """
    is_chosen = any(_CHOSEN.search(os.environ.get(name, "")) for name in _VARIABLES)
    if huge_pages() == ASKED_FOR and not is_chosen:
        os.environ[OPTIONS_VARIABLE] = f"{os.environ.get(OPTIONS_VARIABLE, '')} {ASK_FOR_HUGE_PAGES}".strip()
