"""Java is asked to take huge pages of memory where the machine gives them to who asks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from backstream.spark import java
from backstream.spark.java import ASK_FOR_HUGE_PAGES, ASKED_FOR, OPTIONS_VARIABLE, ask_for_huge_pages, huge_pages

OTHERS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """None of the variables set; at the end they are as they were."""
    for name in (OPTIONS_VARIABLE, *OTHERS):
        monkeypatch.setenv(name, "")  # of a variable that is not there nothing would be put back
        monkeypatch.delenv(name)
    return monkeypatch


def asked() -> str | None:
    """Spark's variable after two calls."""
    ask_for_huge_pages()
    ask_for_huge_pages()
    return os.environ.get(OPTIONS_VARIABLE)


def linux_says(said: str, folder: Path, environment: pytest.MonkeyPatch) -> None:
    told = folder / "enabled"
    told.write_text(said)
    environment.setattr(java, "HUGE_PAGES", told)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, ASK_FOR_HUGE_PAGES),
        ("-Xss4m", f"-Xss4m {ASK_FOR_HUGE_PAGES}"),
        ("-XX:-UseTransparentHugePages", "-XX:-UseTransparentHugePages"),
        ("-XX:+UseLargePages", "-XX:+UseLargePages"),
    ],
)
def test_who_asks_gets_them(
    before: str | None, after: str, tmp_path: Path, environment: pytest.MonkeyPatch
) -> None:
    linux_says("always [madvise] never\n", tmp_path, environment)
    if before is not None:
        environment.setenv(OPTIONS_VARIABLE, before)

    assert asked() == after


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_chosen_for_every_java_holds(name: str, tmp_path: Path, environment: pytest.MonkeyPatch) -> None:
    linux_says("always [madvise] never\n", tmp_path, environment)
    environment.setenv(name, "-XX:-UseTransparentHugePages")

    assert asked() is None


@pytest.mark.parametrize("said", ["[always] madvise never\n", "always madvise [never]\n", "what?\n"])
def test_nobody_asks_where_all_or_none_get_them(
    said: str, tmp_path: Path, environment: pytest.MonkeyPatch
) -> None:
    linux_says(said, tmp_path, environment)

    assert asked() is None


@pytest.mark.parametrize("place", ["nowhere", "."])
def test_nobody_asks_where_nothing_can_be_read(
    place: str, tmp_path: Path, environment: pytest.MonkeyPatch
) -> None:
    environment.setattr(java, "HUGE_PAGES", tmp_path / place)

    assert huge_pages() is None
    assert asked() is None


@pytest.mark.skipif(huge_pages() != ASKED_FOR, reason="no huge pages for who asks")
@pytest.mark.skipif("UseTransparentHugePages" in os.environ.get(OPTIONS_VARIABLE, ""), reason="chosen otherwise")
def test_the_java_of_a_session_asks(spark: SparkSession) -> None:
    jvm = spark._jvm  # noqa: SLF001 - Spark does not tell it
    assert jvm is not None

    told = jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()

    assert ASK_FOR_HUGE_PAGES in list(told)
