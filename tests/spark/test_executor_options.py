"""Executors that only start native tasks get Java options of a quick start, unless the user has set options."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.workflow.history import CLICKS, at, planned, write_clicks, write_definition

from backstream.spark.executor_options import executor_java_options
from backstream.spark.java import FIRST_COMPILER

CONTEXT = """\
from backstream.spark.session import submitted_context

context = submitted_context("options", "local[1]", "-Dours=1")
names = ("spark.executor.extraJavaOptions", "spark.executor.defaultJavaOptions")
print("options:", *(context.getConf().get(name) for name in names))
"""


@pytest.mark.parametrize(
    ("section", "options"),
    [
        ("", FIRST_COMPILER),
        ('[derive_after]\ntwice = "clicks * 2"\n', ""),
        ('[having]\ncondition = "clicks > 1"\n', ""),
        ('[top]\nn = 1\nby = "clicks desc"\n', ""),
        ('[backfill]\nengine = "spark"\n', ""),
    ],
)
def test_options_depend_on_who_computes_the_plan(tmp_path: Path, section: str, options: str) -> None:
    write_clicks(tmp_path / "data/a.parquet", [(at("1 05:00"), at("1 05:01"), "A", 0, "home")])
    plan = planned(tmp_path, write_definition(tmp_path, CLICKS + section))
    assert executor_java_options(plan) == options


@pytest.mark.parametrize(
    ("settings", "is_ours"),
    [
        ("", True),
        ("--conf spark.executor.extraJavaOptions=-Dtheirs=1", False),
        ("--conf spark.executor.defaultJavaOptions=-Dtheirs=1", False),
    ],
)
def test_options_of_the_user_are_kept(settings: str, is_ours: bool) -> None:
    environment = os.environ | {"PYSPARK_SUBMIT_ARGS": f"{settings} pyspark-shell"}
    done = subprocess.run(
        [sys.executable, "-c", CONTEXT], env=environment, capture_output=True, text=True, check=False
    )
    assert "options:" in done.stdout, done.stderr
    assert ("-Dours=1" in done.stdout, "-Dtheirs=1" in done.stdout) == (is_ours, not is_ours)
