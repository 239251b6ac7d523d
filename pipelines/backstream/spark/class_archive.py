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
import shutil
import sys
import time
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from backstream.spark.heap import CONF_VARIABLE, SETTINGS_FILE, conf_folder, spark_home

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


def options_to_read() -> str:
    """The options of a Java that starts with the archive; none where there is none yet."""
    path = archive()
    return f"-XX:SharedArchiveFile={path} {QUIET}" if path and is_complete(path) else ""


def options_to_read_or_write() -> str:
    """The same; where there is none yet, those of a Java that writes it when it ends, which takes it some seconds.

    Nobody should wait for that Java: PySpark's ends by itself after the process that started it.
    """
    path = archive()
    if path is None or is_complete(path):
        return options_to_read()
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


def archive() -> Path | None:
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


def is_complete(path: Path) -> bool:
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
