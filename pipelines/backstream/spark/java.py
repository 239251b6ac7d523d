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
"""Options of each Java that Spark starts on this machine; those of a session or of an application come after."""
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
"""Where Linux says who gets huge pages of memory (everybody, who asks, or nobody), the choice in brackets."""
_ASK_FOR_HUGE_PAGES = "-XX:+UseTransparentHugePages"


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


def ask_for_huge_pages(told: Path = HUGE_PAGES) -> None:
    """Have Java ask for huge pages, on a machine that gives them to who asks; in Spark's own variable.

    Grouping looks up millions of places in memory, at random, and with pages of 4 kB the processor must find out
    where each page lies. Only Linux knows the option, and only it has the file.
    """
    options = os.environ.get(OPTIONS_VARIABLE, "")
    if told.exists() and "[madvise]" in told.read_text() and "UseTransparentHugePages" not in options:
        os.environ[OPTIONS_VARIABLE] = f"{options} {_ASK_FOR_HUGE_PAGES}".strip()
