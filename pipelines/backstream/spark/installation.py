"""Import the PySpark that belongs to the installed Spark, although pip has overwritten its files.

The package `pyspark-client`, which Airflow's Spark provider requires, has the same file names as `pyspark`. pip
installs both, and the files of the later one stay. The jars of `pyspark` come with an archive of its Python files,
which Spark's own scripts use. This module puts the archive in front of the overwritten files.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path


@dataclass(frozen=True, slots=True)
class OverwrittenSpark:
    """A PySpark among whose Python files are some of `pyspark-client`."""

    folder: Path
    version: str
    client_version: str
    has_added_modules: bool = False
    """True if `pyspark-client` has modules that this version does not have."""

    @property
    def archive(self) -> Path:
        """The archive with the Python files of the right version."""
        return self.folder / "python" / "lib" / "pyspark.zip"

    @property
    def remedy(self) -> str:
        """The command that restores the files."""
        restore = f"pip install --force-reinstall --no-deps pyspark=={self.version}"
        return f"pip uninstall -y pyspark-client && {restore}" if self.has_added_modules else restore


def find_overwritten_spark() -> OverwrittenSpark | None:
    """Return the installed PySpark if files of `pyspark-client` are among its own; None if not.

    The list of installed files has the size of each file. Installers unpack packages in any order, or at once, so
    every file is compared. A module of another version hides an own one, too: Spark 4 has the folder
    `sql/functions` in place of the file `sql/functions.py` of Spark 3.5.
    """
    spark, client = _find_distribution("pyspark"), _find_distribution("pyspark-client")
    if spark is None or client is None or spark.version == client.version:
        return None
    sources = [file for file in spark.files or () if file.suffix == ".py" and file.size is not None]
    added = {str(file) for file in client.files or () if file.suffix == ".py"}.difference(map(str, sources))
    if not added and all(_has_size(Path(str(file.locate())), file.size or 0) for file in sources):
        return None
    return OverwrittenSpark(Path(str(spark.locate_file("pyspark"))), spark.version, client.version, bool(added))


def find_scripts_folder(module_file: Path) -> Path:
    """Return the folder with the jars and the script `bin/spark-submit` of a PySpark.

    Args:
        module_file: the file of the module `pyspark`, which can be in the archive `python/lib/pyspark.zip`.
    """
    archive = module_file.parents[1]
    return archive.parents[2] if archive.is_file() else module_file.parent


def _find_distribution(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def _has_size(file: Path, size: int) -> bool:
    try:
        return file.stat().st_size == size
    except OSError:
        return False


def use_matching_python_files() -> None:
    """Put the archive of the right version first on the module search path, if the files were overwritten."""
    found = find_overwritten_spark()
    if found and found.archive.is_file() and "pyspark" not in sys.modules and not os.environ.get("SPARK_HOME"):
        sys.path.insert(0, str(found.archive))
        os.environ["SPARK_HOME"] = str(found.folder)  # PySpark looks for the jars beside its files
