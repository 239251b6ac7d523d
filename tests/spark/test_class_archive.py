"""Test the archive of Spark's classes: which process writes it, and that Java uses it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.class_archive import QUICK_OPTIONS

from backstream.spark.java import (
    QUIET,
    archive_options,
    archive_path,
    archive_read_options,
    is_archive_complete,
    settings_beside_class_path,
)
from backstream.variables import CLASS_ARCHIVE_VARIABLE

pytestmark = pytest.mark.slow

TO_STDERR = "-XX:+DisplayVMOutputToStderr"
JOB = """
from backstream.spark.session import local_session
spark = local_session("archive")
jvm = spark._jvm
print([each for each in jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
       if "Archive" in each][-1])
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CLASS_ARCHIVE_VARIABLE, str(tmp_path / "archives"))
    result = archive_path()
    assert result is not None
    return result


def test_the_first_java_writes_it_and_a_second_one_at_the_same_time_does_not(path: Path) -> None:
    assert archive_read_options() == ""
    assert archive_options() == f"-XX:ArchiveClassesAtExit={path} {TO_STDERR} {QUIET}"
    assert archive_options() == ""


def test_an_unfinished_archive_is_not_read_and_later_written_again(path: Path) -> None:
    archive_options()
    path.write_bytes(bytes(4096))
    mark = path.with_suffix(".mark")
    old = time.time() - 3_600
    os.utime(mark, (old, old))

    assert archive_read_options() == ""
    assert archive_options() == f"-XX:ArchiveClassesAtExit={path} {TO_STDERR} {QUIET}"


def test_a_new_archive_for_changed_jars_replaces_the_old_one(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jar = spark_of(tmp_path / "spark", monkeypatch)
    first = archive_path()
    archive_options()
    os.utime(jar, (1, 1))
    second = archive_path()
    archive_options()

    assert second is not None
    assert len({path, first, second}) == 3
    assert [each.name for each in path.parent.iterdir()] == [second.with_suffix(".mark").name]


def test_two_sparks_of_one_python_environment_keep_both_archives(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive_options()
    path.write_bytes(b"complete")
    spark_of(tmp_path / "other", monkeypatch)
    other = archive_path()
    archive_options()

    assert other is not None
    assert {each.name for each in path.parent.iterdir()} == {
        path.name,
        path.with_suffix(".mark").name,
        other.with_suffix(".mark").name,
    }


def spark_of(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use a Spark with one jar."""
    jar = folder / "jars" / "spark-core.jar"
    jar.parent.mkdir(parents=True)
    jar.touch()
    monkeypatch.setenv("SPARK_HOME", str(folder))
    return jar


def test_no_archive_is_written_to_an_unusable_or_empty_path(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CLASS_ARCHIVE_VARIABLE, "/proc/nowhere")
    assert archive_options() == ""
    monkeypatch.setenv(CLASS_ARCHIVE_VARIABLE, "")
    assert (archive_path(), archive_options()) == (None, "")
    monkeypatch.setenv(CLASS_ARCHIVE_VARIABLE, f"{path.parent}/with space")
    assert archive_path() is None


@pytest.mark.parametrize("name", ["SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH"])
def test_none_is_written_where_the_class_path_has_a_folder_of_files(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder = tmp_path / "conf"
    folder.mkdir()
    monkeypatch.setenv(name, str(folder))
    (folder / "spark-defaults.conf").write_text("spark.ui.enabled false\n")
    assert archive_options() == ""

    (folder / "spark-defaults.conf").unlink()
    assert archive_options().startswith(f"-XX:ArchiveClassesAtExit={path} ")


def test_a_folder_with_only_spark_defaults_is_passed_as_that_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, home = tmp_path / "conf", tmp_path / "spark"
    file = folder / "spark-defaults.conf"
    folder.mkdir()
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    assert settings_beside_class_path(home) is None

    monkeypatch.setenv("SPARK_CONF_DIR", str(folder))
    assert settings_beside_class_path(home) is None
    file.write_text("spark.ui.enabled false\n")
    assert settings_beside_class_path(home) == file

    # Spark would take its own settings, where it is told of no others.
    (home / "conf").mkdir(parents=True)
    assert settings_beside_class_path(home) == file
    (home / "conf" / "log4j2.properties").touch()
    assert settings_beside_class_path(home) is None


def test_a_folder_with_more_than_settings_stays_on_the_class_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.ui.enabled false\n")
    (tmp_path / "log4j2.properties").touch()
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert settings_beside_class_path(tmp_path / "spark") is None


def test_java_says_nothing_of_an_archive_that_it_cannot_write(path: Path, tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.ui.enabled false\n")
    environment = {"SPARK_SUBMIT_OPTS": f"{QUICK_OPTIONS} -XX:ArchiveClassesAtExit={path} {TO_STDERR} {QUIET}"}
    refused = _session(**environment, SPARK_CONF_DIR=str(tmp_path))

    assert refused.stdout.split() == [f"-XX:ArchiveClassesAtExit={path}"]
    assert refused.stderr == ""


def test_java_writes_one_that_the_next_java_starts_with_without_a_word(path: Path) -> None:
    first, seconds = _session(), time.monotonic()
    while not is_archive_complete(path) and time.monotonic() - seconds < 120:
        time.sleep(0.1)
    second = _session()

    assert first.stdout.split() == [f"-XX:ArchiveClassesAtExit={path}"]
    assert second.stdout.split() == [f"-XX:SharedArchiveFile={path}"]
    assert "cds" not in first.stderr + second.stderr


def _session(**changed: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"SPARK_SUBMIT_OPTS": QUICK_OPTIONS} | changed
    return subprocess.run([sys.executable, "-c", JOB], env=environment, capture_output=True, text=True, check=True)
