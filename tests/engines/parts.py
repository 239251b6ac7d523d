"""Fetch the engines that read published tables: Spark 4.1 with Iceberg from Maven, and ClickHouse from PyPI.

    python -m tests.engines.parts

The jars are in Maven's own repository, the packages in an environment of their own in `.tools/engines`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from demo.settings import CHECKOUT
from tests.package.installed import run_uv

from backstream.lake.connect import ICEBERG_FOR_SPARK

PACKAGES = ("pyspark==4.1.4", "chdb==4.4.0")
JARS = (ICEBERG_FOR_SPARK, "org.xerial:sqlite-jdbc:3.50.3.0")
NESSIE = "org.projectnessie.nessie:nessie-quarkus:0.99.0:jar:runner"
_GET = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:get"
_ENVIRONMENT = CHECKOUT / ".tools" / "engines"
_LIMIT_S = 300.0


class UnreachableError(Exception):
    """A part is missing here, and its registry does not answer."""


def jar_file(coordinates: str) -> Path:
    """Return where Maven keeps a jar, whether it was fetched or not."""
    group, name, version, *rest = coordinates.split(":")
    classifier = f"-{rest[1]}" if rest else ""
    folder = Path.home() / ".m2" / "repository" / group.replace(".", "/") / name / version
    return folder / f"{name}-{version}{classifier}.jar"


def fetch_jar(coordinates: str) -> Path:
    """Fetch a jar unless it is here, and return its file.

    Raises:
        UnreachableError: if it is missing, and Maven cannot fetch it.
    """
    file = jar_file(coordinates)
    if file.exists():
        return file
    if shutil.which("mvn") is None:
        msg = f"no program `mvn`, which fetches {coordinates}"
        raise UnreachableError(msg)
    command = ["mvn", "-q", "-B", _GET, f"-Dartifact={coordinates}", "-Dtransitive=false"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_LIMIT_S)
    if ended.returncode or not file.exists():
        msg = f"Maven cannot fetch {coordinates}: {(ended.stdout + ended.stderr).strip()[-300:]}"
        raise UnreachableError(msg)
    return file


def fetch_python() -> Path:
    """Install the packages of the engines unless they are here, and return the Python that has them.

    Raises:
        UnreachableError: if they are missing, and cannot be installed.
    """
    python, done = _ENVIRONMENT / "bin" / "python", _ENVIRONMENT / ".packages"
    if not done.exists() or done.read_text() != " ".join(PACKAGES):
        try:
            run_uv("venv", "--quiet", "--clear", "--python", sys.executable, _ENVIRONMENT)
            run_uv("pip", "install", "--quiet", "--python", python, *PACKAGES)
        except AssertionError as error:
            msg = f"cannot install {' '.join(PACKAGES)}: {str(error).strip()[-300:]}"
            raise UnreachableError(msg) from None
        done.write_text(" ".join(PACKAGES))
    return python


if __name__ == "__main__":
    print(fetch_python(), *map(fetch_jar, JARS), sep="\n")  # noqa: T201 - for a person
