"""Java is asked to take huge pages of memory where the machine gives them to who asks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from backstream.spark.java import HUGE_PAGES, OPTIONS_VARIABLE, ask_for_huge_pages

OPTION = "-XX:+UseTransparentHugePages"


def asked(told: Path, before: str | None, patch: pytest.MonkeyPatch) -> str | None:
    """Spark's variable after two calls."""
    patch.setenv(OPTIONS_VARIABLE, before or "")  # put back at the end, which a variable that is not there is not
    if before is None:
        patch.delenv(OPTIONS_VARIABLE)
    ask_for_huge_pages(told)
    ask_for_huge_pages(told)
    return os.environ.get(OPTIONS_VARIABLE)


def test_who_asks_gets_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = tmp_path / "enabled"
    told.write_text("always [madvise] never\n")

    assert asked(told, None, monkeypatch) == OPTION
    assert asked(told, "-Xss4m", monkeypatch) == f"-Xss4m {OPTION}"
    assert asked(told, "-XX:-UseTransparentHugePages", monkeypatch) == "-XX:-UseTransparentHugePages"


@pytest.mark.parametrize("said", ["[always] madvise never\n", "always madvise [never]\n", None])
def test_nobody_asks_where_all_or_none_get_them_or_nothing_is_said(
    said: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "enabled"
    if said is not None:
        told.write_text(said)

    assert asked(told, None, monkeypatch) is None
    assert asked(told, "-Xss4m", monkeypatch) == "-Xss4m"


@pytest.mark.skipif(
    not HUGE_PAGES.exists() or "[madvise]" not in HUGE_PAGES.read_text(), reason="no huge pages for who asks"
)
def test_the_java_of_a_session_asks(spark: SparkSession) -> None:
    jvm = spark._jvm  # noqa: SLF001 - Spark does not tell it
    assert jvm is not None

    told = jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()

    assert OPTION in list(told)
