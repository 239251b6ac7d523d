"""Test the Java options of a session: huge pages, the collector, and the class archive."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from backstream.errors import SetupError
from backstream.spark import java
from backstream.spark.java import (
    ASK_FOR_HUGE_PAGES,
    ASKED_FOR,
    FIRST_COMPILER,
    LOG_SETTINGS,
    OPTIONS_VARIABLE,
    PARALLEL_COLLECTOR,
    huge_page_options,
    require_java,
    set_java_options,
    tune_java,
)
from backstream.storage.machine import SMALL_INPUT_BYTES
from backstream.variables import CLASS_ARCHIVE_VARIABLE

OTHERS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Clear the variables and the archive, and restore them at the end."""
    for name in (OPTIONS_VARIABLE, *OTHERS):
        monkeypatch.setenv(name, "")  # of a variable that is not there nothing would be put back
        monkeypatch.delenv(name)
    monkeypatch.setenv(CLASS_ARCHIVE_VARIABLE, "")
    return monkeypatch


def requested() -> str | None:
    """Return Spark's variable after two calls."""
    set_java_options()
    set_java_options()
    return os.environ.get(OPTIONS_VARIABLE)


def linux_says(message: str, folder: Path, environment: pytest.MonkeyPatch) -> None:
    actual = folder / "enabled"
    actual.write_text(message)
    environment.setattr(java, "HUGE_PAGES", actual)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, ASK_FOR_HUGE_PAGES),
        ("-Xss4m", f"-Xss4m {ASK_FOR_HUGE_PAGES}"),
        ("-XX:-UseTransparentHugePages", "-XX:-UseTransparentHugePages"),
        ("-XX:+UseLargePages", "-XX:+UseLargePages"),
    ],
)
def test_the_option_for_huge_pages_is_set_unless_the_user_set_another(
    before: str | None, after: str, tmp_path: Path, environment: pytest.MonkeyPatch
) -> None:
    linux_says("always [madvise] never\n", tmp_path, environment)
    if before is not None:
        environment.setenv(OPTIONS_VARIABLE, before)

    assert requested() == after


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_chosen_for_every_java_holds(name: str, tmp_path: Path, environment: pytest.MonkeyPatch) -> None:
    linux_says("always [madvise] never\n", tmp_path, environment)
    environment.setenv(name, "-XX:-UseTransparentHugePages")

    assert requested() is None


@pytest.mark.parametrize("message", ["[always] madvise never\n", "always madvise [never]\n", "what?\n"])
def test_no_option_is_set_if_linux_gives_huge_pages_to_all_or_no_programs(
    message: str, tmp_path: Path, environment: pytest.MonkeyPatch
) -> None:
    linux_says(message, tmp_path, environment)

    assert requested() is None


@pytest.mark.parametrize("place", ["nowhere", "."])
def test_no_option_is_set_if_the_huge_page_setting_of_linux_cannot_be_read(
    place: str, tmp_path: Path, environment: pytest.MonkeyPatch
) -> None:
    environment.setattr(java, "HUGE_PAGES", tmp_path / place)

    assert huge_page_options() is None
    assert requested() is None


@pytest.mark.skipif(huge_page_options() != ASKED_FOR, reason="no huge pages for who asks")
@pytest.mark.skipif("UseTransparentHugePages" in os.environ.get(OPTIONS_VARIABLE, ""), reason="chosen otherwise")
def test_the_java_of_a_session_has_the_option_for_huge_pages(spark: SparkSession) -> None:
    jvm = spark._jvm  # noqa: SLF001 - Spark does not tell it
    assert jvm is not None

    actual = jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()

    assert ASK_FOR_HUGE_PAGES in list(actual)


@pytest.mark.parametrize(
    ("spark", "version", "is_refused"),
    [("4.0.5", "25.0.3", True), ("3.5.9", "24", True), ("4.0.5", "21.0.1", False), ("4.1.4", "25.0.3", False)],
)
def test_a_java_that_is_too_new_for_the_installed_spark_is_refused(
    spark: str, version: str, is_refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / f"spark-core_2.13-{spark}.jar").touch()
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-01' >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    if not is_refused:
        require_java()
        return
    with pytest.raises(SetupError) as refused:
        require_java()
    assert str(refused.value) == (
        f"Spark {spark} does not run on Java {version.partition('.')[0]} ({program})\n\n"
        "hint: install a Java 17 runtime, and set JAVA_HOME to its folder"
    )


LOGS = f"-Dlog4j2.configurationFile={LOG_SETTINGS}"


def options_within(heap: str | None, input_bytes: int | None = None) -> list[str]:
    """Return the options of a Java that is started on a machine without huge pages, except that for logs."""
    with tune_java(heap, input_bytes):
        return [option for option in os.environ.get(OPTIONS_VARIABLE, "").split() if option != LOGS]


@pytest.fixture
def no_huge_pages(tmp_path: Path, environment: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    linux_says("always madvise [never]\n", tmp_path, environment)
    environment.setenv("SPARK_CONF_DIR", str(tmp_path))
    return environment


@pytest.mark.usefixtures("no_huge_pages")
def test_a_large_heap_is_collected_by_all_cores_at_once_and_does_not_grow() -> None:
    assert options_within("6g") == [PARALLEL_COLLECTOR, "-Xms6g"]


@pytest.mark.parametrize("heap", ["1g", "2999m", None])
@pytest.mark.usefixtures("no_huge_pages")
def test_a_small_heap_or_that_of_others_is_left_alone(heap: str | None) -> None:
    assert options_within(heap) == []


@pytest.mark.parametrize("name", [OPTIONS_VARIABLE, "PYSPARK_SUBMIT_ARGS", "spark-defaults.conf"])
def test_the_garbage_collector_of_a_user_is_kept(
    name: str, tmp_path: Path, no_huge_pages: pytest.MonkeyPatch
) -> None:
    chosen = "-XX:+UseZGC"
    if name == "spark-defaults.conf":
        (tmp_path / name).write_text(f"spark.driver.extraJavaOptions {chosen}\n")
    else:
        no_huge_pages.setenv(name, chosen)

    assert options_within("6g") == ([chosen] if name == OPTIONS_VARIABLE else [])


@pytest.mark.parametrize(
    ("input_bytes", "asked_for"),
    [(0, FIRST_COMPILER), (SMALL_INPUT_BYTES, FIRST_COMPILER), (SMALL_INPUT_BYTES + 1, ""), (None, "")],
)
@pytest.mark.usefixtures("no_huge_pages")
def test_for_little_input_the_first_compiler_has_to_do(input_bytes: int | None, asked_for: str) -> None:
    assert options_within("1g", input_bytes) == asked_for.split()


@pytest.mark.parametrize("option", ["-XX:TieredStopAtLevel=3", "-XX:ReservedCodeCacheSize=64m"])
def test_the_java_compiler_option_of_a_user_is_kept(option: str, no_huge_pages: pytest.MonkeyPatch) -> None:
    no_huge_pages.setenv(OPTIONS_VARIABLE, option)

    assert options_within("1g", 0) == [option]


def test_the_options_of_one_java_are_not_passed_to_the_next(no_huge_pages: pytest.MonkeyPatch) -> None:
    no_huge_pages.setenv(OPTIONS_VARIABLE, "-Xss4m")

    assert options_within("6g") == ["-Xss4m", PARALLEL_COLLECTOR, "-Xms6g"]
    assert os.environ[OPTIONS_VARIABLE] == "-Xss4m"


@pytest.mark.parametrize("place", ["nowhere", OPTIONS_VARIABLE, "log4j2.properties"])
def test_spark_logs_errors_only_unless_the_user_has_settings_for_its_logs(
    place: str, tmp_path: Path, no_huge_pages: pytest.MonkeyPatch
) -> None:
    if place == OPTIONS_VARIABLE:
        no_huge_pages.setenv(place, "-Dlog4j2.configurationFile=/etc/spark/logs.properties")
    elif place != "nowhere":
        (tmp_path / place).write_text("rootLogger.level = info\n")

    with tune_java("1g"):
        options = os.environ.get(OPTIONS_VARIABLE, "").split()

    assert (LOGS in options) == (place == "nowhere")
