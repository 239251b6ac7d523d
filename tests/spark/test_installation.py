"""A PySpark whose files another package has overwritten."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from backstream.spark.installation import find_overwritten_spark, find_scripts_folder, use_matching_python_files

SOURCE = "of pyspark\n"


def install(folder: Path, name: str, version: str) -> None:
    """Install a distribution with one module, as an installer does."""
    information = folder / f"{name}-{version}.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (information / "RECORD").write_text(f"pyspark/version.py,sha256=x,{len(SOURCE)}\n")


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment with `pyspark` 4.3.0, the archive of its files, and `pyspark-client` 4.2.0."""
    install(tmp_path, "pyspark", "4.3.0")
    install(tmp_path, "pyspark_client", "4.2.0")
    (tmp_path / "pyspark/python/lib").mkdir(parents=True)
    (tmp_path / "pyspark/python/lib/pyspark.zip").touch()
    (tmp_path / "pyspark/version.py").write_text(SOURCE)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "modules", {name: each for name, each in sys.modules.items() if name != "pyspark"})
    monkeypatch.setenv("SPARK_HOME", "")
    return tmp_path


def test_files_that_are_all_there_are_used(environment: Path) -> None:
    assert find_overwritten_spark() is None
    use_matching_python_files()
    assert sys.path[0] == str(environment)


def test_overwritten_files_are_named_with_the_command_that_restores_them(environment: Path) -> None:
    (environment / "pyspark/version.py").write_text("of another package\n")
    found = find_overwritten_spark()
    assert found is not None
    assert (found.version, found.client_version) == ("4.3.0", "4.2.0")
    assert found.remedy == "pip install --force-reinstall --no-deps pyspark==4.3.0"


def test_the_archive_of_the_right_version_precedes_overwritten_files(environment: Path) -> None:
    (environment / "pyspark/version.py").unlink()
    use_matching_python_files()
    assert sys.path[0] == str(environment / "pyspark/python/lib/pyspark.zip")
    assert os.environ["SPARK_HOME"] == str(environment / "pyspark")


def test_modules_that_only_the_other_package_has_are_named_with_the_command_that_removes_them(
    environment: Path,
) -> None:
    with (environment / "pyspark_client-4.2.0.dist-info/RECORD").open("a") as record:
        record.write("pyspark/sql/functions/__init__.py,sha256=x,3\n")
    found = find_overwritten_spark()
    assert found is not None
    restore = "pip install --force-reinstall --no-deps pyspark==4.3.0"
    assert found.remedy == f"pip uninstall -y pyspark-client && {restore}"
    use_matching_python_files()
    assert sys.path[0] == str(environment / "pyspark/python/lib/pyspark.zip")


def test_the_spark_of_the_user_stays(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (environment / "pyspark/version.py").unlink()
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    use_matching_python_files()
    assert (sys.path[0], os.environ["SPARK_HOME"]) == (str(environment), "/opt/spark")


def test_the_script_that_submits_jobs_is_beside_the_archive_not_in_it(environment: Path) -> None:
    archive = environment / "pyspark/python/lib/pyspark.zip"
    assert find_scripts_folder(archive / "pyspark/__init__.py") == environment / "pyspark"
    assert find_scripts_folder(environment / "pyspark/__init__.py") == environment / "pyspark"
