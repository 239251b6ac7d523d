"""Choose the options of the driver's Java: class archive, memory pages, garbage collector, compiler, and logs.

Spark has some 20,000 classes. Java reads, verifies, and links each class at its first use, which takes four
seconds per process. With a class archive (class data sharing, "CDS",
https://docs.oracle.com/en/java/javase/17/vm/class-data-sharing.html), Java maps the prepared classes into memory.
Java itself checks that the archive matches its version and the jars, and otherwise loads the classes as usual. If
the class path has a folder with files, Java doesn't use an archive. This is the case if Spark is configured by
files.
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
from pathlib import Path

from backstream.errors import SetupError
from backstream.installed_spark import find_older_spark, spark_home, spark_version
from backstream.spark.heap import CONF_VARIABLE, SETTINGS_FILE, SUBMIT_ARGUMENTS, conf_folder, heap_mb
from backstream.storage.machine import SMALL_INPUT_BYTES
from backstream.variables import CLASS_ARCHIVE_VARIABLE

QUIET = "-Xlog:disable -Xlog:all=error,cds*=off:stderr"
"""Java logs the classes that it leaves out of the archive, and options that differ. No user can act on them."""
_TO_WRITE = "-XX:+DisplayVMOutputToStderr"
"""Java reports a failed write when it exits, by default on standard output."""
_HADOOP_VARIABLES = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
_CLASS_PATH_VARIABLE = "SPARK_DIST_CLASSPATH"
_MAGIC = (0xF00BABA8).to_bytes(4, sys.byteorder)
"""The first bytes of a complete archive: Java writes them last."""
_ABANDONED_S = 600
"""The number of seconds after which an unfinished write counts as abandoned."""


def archive_read_options() -> str:
    """Return the Java options that use the archive; empty if there is no archive yet."""
    path = archive_path()
    return f"-XX:SharedArchiveFile={path} {QUIET}" if path and is_archive_complete(path) else ""


def archive_options() -> str:
    """Return the Java options that use the archive, or that write it at exit if there is none yet.

    Writing takes some seconds. Use these options only if no process waits for Java: PySpark's Java exits after the
    Python process that started it.
    """
    path = archive_path()
    if path is None or is_archive_complete(path):
        return archive_read_options()
    can_write = not _has_folder_of_files() and _claim_write(path)
    return f"-XX:ArchiveClassesAtExit={path} {_TO_WRITE} {QUIET}" if can_write else ""


def settings_beside_class_path(home: Path) -> Path | None:
    """Return the file of Spark's settings to pass to `spark-submit`, so that the archive can be used.

    Spark puts the folder of its settings on the class path, and then Java doesn't use the archive. If the folder
    has nothing but the settings file, the file can be passed alone. None if the folder has other files, or if
    Spark's home has settings, too.
    """
    own, configured = home / "conf", os.environ.get(CONF_VARIABLE)
    if not configured or (own.is_dir() and any(own.iterdir())):
        return None
    file = Path(configured) / SETTINGS_FILE
    return file if file.is_file() and [*file.parent.iterdir()] == [file] else None


def archive_folder() -> Path:
    """Return the default folder of class archives, in the Python environment."""
    return Path(sys.prefix) / "share" / "backstream"


def archive_path() -> Path | None:
    """Return the path of the archive for this Spark and Java; None if it is disabled, or there is no Java."""
    folder = os.environ.get(CLASS_ARCHIVE_VARIABLE, str(archive_folder()))
    java = find_java()
    if not folder or java is None or " " in folder:  # Java options are separated by spaces
        return None
    file = java.resolve()
    environment = _hash(f"{file} {file.stat().st_mtime_ns} {Path(sys.prefix).resolve()} {spark_home()}")
    return Path(folder) / f"spark-{spark_version() or 'unknown'}-{environment}-{_hash(_jars())}.jsa"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _jars() -> str:
    """Return Spark's jars with their times: after a reinstallation of a jar, Java silently ignores the archive."""
    folder = spark_home() / "jars"
    jars = sorted((jar.name, jar.stat().st_mtime_ns) for jar in os.scandir(folder)) if folder.is_dir() else []
    return f"{folder} {jars}"


def is_archive_complete(path: Path) -> bool:
    """Return whether an archive is complete."""
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def find_java() -> Path | None:
    """Return the Java program that Spark starts; None if there is none."""
    home = os.environ.get("JAVA_HOME")
    path = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    return Path(path) if path and Path(path).exists() else None


def _has_folder_of_files() -> bool:
    """Return whether Spark puts a folder with files on the class path, e.g., those of its settings or Hadoop's."""
    paths = [os.environ.get(name, "") for name in _HADOOP_VARIABLES]
    paths += os.environ.get(_CLASS_PATH_VARIABLE, "").split(os.pathsep)
    folders = [conf_folder(), *(Path(path) for path in paths if path)]
    return any(folder.is_dir() and any(folder.iterdir()) for folder in folders)


def _claim_write(path: Path) -> bool:
    """Return whether this process may write the archive; two writers would corrupt the file."""
    marker = path.with_suffix(".mark")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if marker.exists() and time.time() - marker.stat().st_mtime > _ABANDONED_S:
            marker.unlink(missing_ok=True)
        marker.open("x").close()
    except OSError:
        return False
    _remove_old_archives(path)
    return True


def _remove_old_archives(path: Path) -> None:
    """Remove the archives that this one replaces: they take 180 MB each, and Java can't use them any longer.

    Archives of another Spark home have another name before the jars, and are kept.
    """
    environment, _, _ = path.stem.rpartition("-")
    for old in path.parent.glob(f"{environment}-*"):
        if old.stem != path.stem:
            with suppress(OSError):
                old.unlink()


_OLDEST_JAVA = 17
_NEWEST_JAVA, _ANY_JAVA_SINCE = 23, "4.1"
"""The newest Java of Spark before 4.1: a later Java lacks a method that its libraries call."""
_JAVA_HINT = "install a Java 17 runtime, and set JAVA_HOME to its folder"
OPTIONS_VARIABLE = "SPARK_SUBMIT_OPTS"
"""The variable with options for the driver's Java; options of a session are added after them."""
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
"""The Linux setting for huge pages: always, madvise (on request), or never; the choice is in brackets."""
ASKED_FOR = "madvise"
ASK_FOR_HUGE_PAGES = "-XX:+UseTransparentHugePages"
PARALLEL_COLLECTOR = "-XX:+UseParallelGC"
_MIN_PARALLEL_MB = 3_000
FIRST_COMPILER = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
"""Java starts faster without its second compiler. Executors get no collector, since two are an error.

With one compiler, Java reserves 48 MB for compiled code, which some 11 runs in one process fill. Then it compiles
nothing any more, and a run takes several times as long. 240 MB is what Java reserves for two compilers.
"""
_CHOSEN = re.compile("HugePages|LargePages|HugeTLBFS")
_ARCHIVE = re.compile("SharedArchiveFile|ArchiveClassesAtExit|-Xshare|-Xlog")
_COLLECTOR = re.compile(r"-XX:\+Use\w*GC|-Xms")
_COMPILER = re.compile(r"Tiered|-XX:.*(?:Compil|CodeCache)|-Xint|-Xcomp")
LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
_LOG_FILES = "log4j*"
_VARIABLES = (OPTIONS_VARIABLE, "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")


def require_java() -> None:
    """Check that Spark can find a Java runtime of a supported version.

    Raises:
        SetupError: when there is none, one older than 17, or one that is too new for an older Spark.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        where = f"at JAVA_HOME={home}" if home else "on PATH, and JAVA_HOME is not set"
        msg = f"no Java runtime {where}; Spark needs version {_OLDEST_JAVA} or newer\n\nhint: {_JAVA_HINT}"
        raise SetupError(msg)
    output = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(?:1\.)?(\d+)', output)
    if version is None or int(version[1]) < _OLDEST_JAVA:
        first_line = output.splitlines()[0] if output else "no output"
        msg = f"Spark needs Java {_OLDEST_JAVA} or newer, got {first_line} ({java})\n\nhint: {_JAVA_HINT}"
        raise SetupError(msg)
    if int(version[1]) > _NEWEST_JAVA and (spark := find_older_spark(_ANY_JAVA_SINCE)):
        msg = f"Spark {spark} does not run on Java {version[1]} ({java})\n\nhint: {_JAVA_HINT}"
        raise SetupError(msg)


def huge_page_options() -> str | None:
    """Return the Linux setting for huge pages on this machine; None if there is none."""
    try:
        choice = re.search(r"\[(\w+)\]", HUGE_PAGES.read_text())
    except OSError:
        return None  # not Linux, or the file isn't readable
    return choice[1] if choice else None


@contextmanager
def tune_java(heap: str | None, input_bytes: int | None = None) -> Iterator[None]:
    """Set the options of a Java that is started inside the block, for a batch job. Options of the user are kept.

    Args:
        heap: the heap, if backstream chooses it.
        input_bytes: the maximum size of the files that it will read; None if unknown.
    """
    before, is_free = os.environ.get(OPTIONS_VARIABLE), not _ARCHIVE.search(_user_options())
    archive = archive_options() if is_free else ""
    _add_options(
        *_huge_pages_options(),
        archive,
        *_collector_options(heap),
        *_compiler_options(input_bytes),
        *_log_options(),
    )
    try:
        yield
    finally:
        # The next Java of this process may have another heap.
        if before is None:
            os.environ.pop(OPTIONS_VARIABLE, None)
        else:
            os.environ[OPTIONS_VARIABLE] = before


def set_java_options(input_bytes: int | None = None) -> None:
    """Set the options for the Java of a later `spark-submit`.

    The user chooses its heap, and a process waits for its exit, so it doesn't write an archive.
    """
    archive = "" if _ARCHIVE.search(_user_options()) else archive_read_options()
    _add_options(*_huge_pages_options(), archive, *_compiler_options(input_bytes))


def _add_options(*options: str) -> None:
    existing = os.environ.get(OPTIONS_VARIABLE, "")
    added = " ".join(option for option in options if option and option not in existing)
    if added:
        os.environ[OPTIONS_VARIABLE] = f"{existing} {added}".strip()


def _huge_pages_options() -> list[str]:
    """Return the option that requests huge pages, if Linux gives them on request and the user has no other option.

    Grouping reads random memory addresses millions of times. With pages of 4 kB, the processor must translate most
    of these addresses. Java has the option on Linux only.
    """
    return [ASK_FOR_HUGE_PAGES] if huge_page_options() == ASKED_FOR and not _CHOSEN.search(_user_options()) else []


def _log_options() -> list[str]:
    """Return the option with the settings for logs, unless the user has some, or a space would split the path."""
    has_own = "log4j" in _user_options() or any(conf_folder().glob(_LOG_FILES))
    return [] if has_own or " " in str(LOG_SETTINGS) else [f"-Dlog4j2.configurationFile={LOG_SETTINGS}"]


def _collector_options(heap: str | None) -> list[str]:
    """Return the options for the parallel garbage collector, and for a heap that has its full size from the start.

    Java's default collector runs beside the program and keeps pauses short, as a server needs. A batch job needs a
    short total time. In a small heap, the default collector needs less memory.
    """
    if heap is None or heap_mb(heap) < _MIN_PARALLEL_MB or _COLLECTOR.search(_user_options() + _session_options()):
        return []
    return [PARALLEL_COLLECTOR, f"-Xms{heap}"]


def _compiler_options(input_bytes: int | None) -> list[str]:
    """Return the option that disables Java's second compiler, if there is little to read.

    The second compiler optimizes code that runs often. A small run ends before that pays off: for 134 small
    chunks, Java used 25 to 28 seconds of processor time instead of 43. Without it, a job of 100,000 events was
    faster, and a replay of two million slower.
    """
    is_small = input_bytes is not None and input_bytes <= SMALL_INPUT_BYTES
    return [FIRST_COMPILER] if is_small and not _COMPILER.search(_user_options() + _session_options()) else []


def _user_options() -> str:
    return " ".join(os.environ.get(name, "") for name in _VARIABLES)


def _session_options() -> str:
    """Return options that a session adds to those of the variable."""
    defaults = conf_folder() / SETTINGS_FILE
    return os.environ.get(SUBMIT_ARGUMENTS, "") + (defaults.read_text() if defaults.is_file() else "")
