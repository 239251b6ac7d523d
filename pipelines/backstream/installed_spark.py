"""Find the installed Spark and its version, without importing it."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path

from backstream.errors import SpecError

QUERIES_SINCE = "4.0"
"""The oldest version on which queries of this package run. Spark 3.5 runs tasks of the native engine."""
_CORE = re.compile(r"spark-core_[\d.]+-(\d+\.\d+\S*)\.jar")


def spark_home() -> Path:
    """Return the folder of Spark; the working directory if it is not installed."""
    if configured := os.environ.get("SPARK_HOME"):
        return Path(configured).resolve()
    installed = importlib.util.find_spec("pyspark")
    return Path(installed.origin).parent.resolve() if installed and installed.origin else Path()


def spark_version() -> str | None:
    """Return the version of Spark by the name of its jar, such as 4.0.5; None if there is no such jar.

    The version of the Python package is not asked: `SPARK_HOME` can be another Spark, and a vendor's Spark may be
    installed without the package.
    """
    matches = (_CORE.fullmatch(jar.name) for jar in (spark_home() / "jars").glob("spark-core_*.jar"))
    return next((match[1] for match in matches if match), None)


def find_older_spark(since: str) -> str | None:
    """Return the version of the installed Spark if it is older than another version; None if not, or unknown.

    Args:
        since: the other version by its first two numbers, such as 4.1.
    """
    version = spark_version()
    return version if version and _numbers(version) < _numbers(since) else None


def require_queries(action: str, where: str = "") -> None:
    """Check that the installed Spark can run queries; without an installed Spark, nothing is checked.

    Args:
        action: the command and its object, and the reason why it needs queries.
        where: the file of the definition.

    Raises:
        SpecError: when it is Spark 3.5.
    """
    if version := find_older_spark(QUERIES_SINCE):
        place = f" ({where})" if where else ""
        msg = (
            f"Spark {version} cannot {action}{place}\n\n"
            f"hint: before version {QUERIES_SINCE}, Spark can only run tasks of the native engine:"
            f" pip install 'pyspark>={QUERIES_SINCE},<4.4'"
        )
        raise SpecError(msg)


def _numbers(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])
