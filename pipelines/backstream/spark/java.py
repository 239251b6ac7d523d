"""The archive of classes that Java starts with: it maps those of Spark into memory instead of loading each.

Spark has some 20,000 classes, and Java reads, checks and links each when it is first used: four seconds of every
process. Java keeps what is ready for use in a file where it is asked to (class data sharing, "CDS",
https://docs.oracle.com/en/java/javase/17/vm/class-data-sharing.html), and checks by itself that the file fits the
Java and the jars; where it does not, it loads classes as ever. Java makes no archive where its class path has a
folder with files in it, as Spark's has when it is configured by files: then every class is loaded as ever.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path

from backstream.errors import SetupError
from backstream.spark.heap import CONF_VARIABLE, SETTINGS_FILE, SUBMIT_ARGUMENTS, conf_folder, heap_mb, spark_home

QUIET = "-Xlog:disable -Xlog:all=error:stderr"
"""Java tells of each class that it leaves out; nobody can do anything about it."""
_TO_WRITE = "-XX:+DisplayVMOutputToStderr"
"""What Java cannot write, it says when it ends: on standard output, if it is not told otherwise."""
_FOLDERS_OF_HADOOP = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
_MORE_CLASSES = "SPARK_DIST_CLASSPATH"
_MAGIC = (0xF00BABA8).to_bytes(4, sys.byteorder)
"""How an archive begins once it is complete: Java writes its beginning last."""
_ABANDONED_S = 600
"""After so many seconds a process that meant to write the archive has not."""
VARIABLE = "BACKSTREAM_CLASS_ARCHIVE"
"""A folder for archives instead of that of the Python environment; empty: no archive."""


def archive_read_options() -> str:
    """The options of a Java that starts with the archive; none where there is none yet."""
    path = archive_path()
    return f"-XX:SharedArchiveFile={path} {QUIET}" if path and is_archive_complete(path) else ""


def archive_options() -> str:
    """The same; where there is none yet, those of a Java that writes it when it ends, which takes it some seconds.

    Nobody should wait for that Java: PySpark's ends by itself after the process that started it.
    """
    path = archive_path()
    if path is None or is_archive_complete(path):
        return archive_read_options()
    is_ours = not _has_folder_of_files() and _is_ours_to_write(path)
    return f"-XX:ArchiveClassesAtExit={path} {_TO_WRITE} {QUIET}" if is_ours else ""


def settings_beside_class_path(home: Path) -> Path | None:
    """Return the file of Spark's settings that can be named to `spark-submit`, so that the archive can be used.

    Spark puts the folder of its settings on the class path, and Java then refuses the archive. Where that folder
    has nothing but settings, the file is enough. None: it has other files, or Spark has more settings in its home.
    """
    own, named = home / "conf", os.environ.get(CONF_VARIABLE)
    if not named or (own.is_dir() and any(own.iterdir())):
        return None
    file = Path(named) / SETTINGS_FILE
    return file if file.is_file() and [*file.parent.iterdir()] == [file] else None


def archive_path() -> Path | None:
    """Where the archive of this environment's Spark and Java is; None: nobody wants one."""
    folder = os.environ.get(VARIABLE, str(Path(sys.prefix) / "share" / "backstream"))
    java = _java()
    if not folder or java is None or " " in folder:  # options are told apart by spaces
        return None
    file = java.resolve()
    place = _hash(f"{file} {file.stat().st_mtime_ns} {Path(sys.prefix).resolve()} {spark_home()}")
    return Path(folder) / f"spark-{version('pyspark')}-{place}-{_hash(_jars())}.jsa"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _jars() -> str:
    """Spark's jars with their times: once one of them was installed again, Java silently refuses the archive."""
    folder = spark_home() / "jars"
    jars = sorted((each.name, each.stat().st_mtime_ns) for each in os.scandir(folder)) if folder.is_dir() else []
    return f"{folder} {jars}"


def is_archive_complete(path: Path) -> bool:
    """Whether an archive was written to its end."""
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def _java() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    return Path(found) if found and Path(found).exists() else None


def _has_folder_of_files() -> bool:
    """Whether Spark puts a folder with files on the class path: those of its settings and Hadoop's, mostly."""
    said = [os.environ.get(name, "") for name in _FOLDERS_OF_HADOOP]
    said += os.environ.get(_MORE_CLASSES, "").split(os.pathsep)
    folders = [conf_folder(), *(Path(each) for each in said if each)]
    return any(folder.is_dir() and any(folder.iterdir()) for folder in folders)


def _is_ours_to_write(path: Path) -> bool:
    """Whether no other process is about to write it: two that wrote into one file would spoil it."""
    mark = path.with_suffix(".mark")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if mark.exists() and time.time() - mark.stat().st_mtime > _ABANDONED_S:
            mark.unlink(missing_ok=True)
        mark.open("x").close()
    except OSError:
        return False
    _remove_those_of_other_jars(path)
    return True


def _remove_those_of_other_jars(path: Path) -> None:
    """Remove the archives that this one replaces: they take 180 MB each, and no Java can read them any more.

    Those of another Spark home have another name, up to the jars: its Java still reads them.
    """
    same, _, _ = path.stem.rpartition("-")
    for old in path.parent.glob(f"{same}-*"):
        if old.stem != path.stem:
            with suppress(OSError):
                old.unlink()


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


def huge_page_options() -> str | None:
    """Who gets huge pages on this machine, in Linux' words; None: nothing says so."""
    try:
        said = re.search(r"\[(\w+)\]", HUGE_PAGES.read_text())
    except OSError:
        return None  # not Linux, or one that keeps it to itself
    return said[1] if said else None


@contextmanager
def tune_java(heap: str | None, input_bytes: int | None = None) -> Iterator[None]:
    """Have a Java that is started within run as a batch job should; what somebody has chosen holds.

    Args:
        heap: its heap, where it is ours to choose.
        input_bytes: how large the files are that it will read, at most; None: nobody knows.
    """
    before, is_free = os.environ.get(OPTIONS_VARIABLE), not _ARCHIVE.search(_said())
    archive = archive_options() if is_free else ""
    _add(*_huge_pages_options(), archive, *_collector_options(heap), *_compiler_options(input_bytes))
    try:
        yield
    finally:
        # Another Java of this environment may have another heap.
        if before is None:
            os.environ.pop(OPTIONS_VARIABLE, None)
        else:
            os.environ[OPTIONS_VARIABLE] = before


def java_options(input_bytes: int | None = None) -> None:
    """The same for the Java of a later `spark-submit`, whose heap others choose, and which is waited for."""
    archive = "" if _ARCHIVE.search(_said()) else archive_read_options()
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
    return [ASK_FOR_HUGE_PAGES] if huge_page_options() == ASKED_FOR and not _CHOSEN.search(_said()) else []


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
