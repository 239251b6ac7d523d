"""What executors lack: Python of ours runs there for a user's own generator, and for late records of sessions.

So this package is sent along, and the generator's. What they import from others has to be installed there.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from zipfile import ZipFile

from pyspark import SparkContext

_OURS = "backstream"
_shipped: dict[tuple[str, str], TemporaryDirectory[str]] = {}
"""The archives by application and package: a driver serves them as long as it lives."""
_lock = Lock()


def ship(context: SparkContext, generator: str | None = None) -> None:
    """Send this package to the executors of an application, and that of a generator, `package.module:Class`; once.

    Executors of a local master are this process's own, and find what it finds.
    """
    master = context.master or ""
    if master == "local" or master.startswith("local["):
        return
    theirs = [generator.partition(":")[0].partition(".")[0]] if generator else []
    with _lock:  # chunks run in several threads
        for package in dict.fromkeys((_OURS, *theirs)):
            if (context.applicationId, package) not in _shipped:
                _shipped[context.applicationId, package] = _sent(context, package)


def _sent(context: SparkContext, package: str) -> TemporaryDirectory[str]:
    folder, path = TemporaryDirectory(prefix="backstream-"), list(sys.path)
    archive = Path(folder.name) / f"{package}.zip"
    with ZipFile(archive, "w") as file:
        for source, name in _sources(package):
            file.write(source, name)
    context.addPyFile(str(archive))
    sys.path[:] = path  # the driver goes on with what it has: beside its modules lie files that are not sent
    return folder


def _sources(package: str) -> list[tuple[Path, str]]:
    """The Python files of an importable package, or of a module, and their names in an archive."""
    found = importlib.util.find_spec(package)
    if found is None:
        return []
    if found.submodule_search_locations is None:
        return [(Path(found.origin), f"{package}.py")] if found.origin else []
    roots = [Path(each) for each in found.submodule_search_locations]
    return [(file, f"{package}/{file.relative_to(root)}") for root in roots for file in sorted(root.rglob("*.py"))]
