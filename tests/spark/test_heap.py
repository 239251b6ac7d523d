"""Test the size of Java's heap, and the error message if it is too small."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark import SparkContext
from typer.testing import CliRunner

from backstream.cli import app
from backstream.errors import HeapError, SpecError
from backstream.spark import heap
from backstream.spark.failures import explain_heap_errors
from backstream.spark.heap import OUT_OF_MEMORY_STATUS, Heap, driver_heap
from backstream.storage import machine
from backstream.storage.machine import machine_memory_bytes

GB = 2**30
VARIABLES = (
    "BACKSTREAM_DRIVER_MEMORY",
    "PYSPARK_SUBMIT_ARGS",
    "SPARK_CONF_DIR",
    "SPARK_HOME",
    "SPARK_DRIVER_MEMORY",
)


@pytest.fixture(autouse=True)
def nobody_has_said_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def container(monkeypatch: pytest.MonkeyPatch, folder: Path, *limits: str) -> None:
    """Write the files in which Linux stores the memory limits of a container."""
    files = [folder / f"limit{number}" for number in range(len(limits))]
    for file, limit in zip(files, limits, strict=True):
        file.write_text(f"{limit}\n")
    monkeypatch.setattr(machine, "CONTAINER_LIMITS", (*files, folder / "not there"))


@pytest.mark.parametrize(
    ("memory_bytes", "heap_mb"),
    [(int(1.5 * GB), 1_024), (3 * GB, 1_536)],
    ids=["at least a gigabyte", "half of the memory"],
)
def test_the_heap_is_a_share_of_the_memory_of_the_container(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, memory_bytes: int, heap_mb: int
) -> None:
    container(monkeypatch, tmp_path, str(memory_bytes))

    text = (
        f"{heap_mb:,} MB of this machine's {memory_bytes // 2**20:,} MB; set BACKSTREAM_DRIVER_MEMORY to change it"
    )
    assert driver_heap() == Heap(f"{heap_mb}m", text, "BACKSTREAM_DRIVER_MEMORY")


def test_a_container_without_a_limit_has_the_memory_of_the_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    container(monkeypatch, tmp_path, "max", str(2**63 - 4096))

    assert machine_memory_bytes() == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_a_large_machine_gives_no_more_than_java_has_short_pointers_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap, "machine_memory_bytes", lambda: 512 * GB)

    assert driver_heap().settings == {"spark.driver.memory": "31744m"}


def test_the_variable_sets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKSTREAM_DRIVER_MEMORY", "6GB")

    assert driver_heap() == Heap("6g", "6GB, set by BACKSTREAM_DRIVER_MEMORY", "BACKSTREAM_DRIVER_MEMORY")


@pytest.mark.parametrize(
    ("requested", "text"),
    [
        ("much", 'BACKSTREAM_DRIVER_MEMORY must be an amount of memory, e.g., "8g" or "6000m", got \'much\''),
        ("8", "BACKSTREAM_DRIVER_MEMORY must be at least 512m, the minimum of Spark, got '8'"),
        ("300m", "BACKSTREAM_DRIVER_MEMORY must be at least 512m, the minimum of Spark, got '300m'"),
    ],
)
def test_an_amount_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, requested: str, text: str) -> None:
    monkeypatch.setenv("BACKSTREAM_DRIVER_MEMORY", requested)

    with pytest.raises(SpecError) as refused:
        driver_heap()

    assert str(refused.value) == text


def test_a_run_refuses_it_before_anything_is_planned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BACKSTREAM_DRIVER_MEMORY", "0")
    monkeypatch.setenv("BACKSTREAM_HOME", str(tmp_path / "home"))

    result = CliRunner().invoke(app, ["run", "flights", "--since", "2013-02-01", "--until", "2013-02-02"])

    text = "error: BACKSTREAM_DRIVER_MEMORY must be at least 512m, the minimum of Spark, got '0'\n"
    assert (result.exit_code, result.stderr) == (1, text)
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("arguments", ["--driver-memory 2g pyspark-shell", "--conf spark.driver.memory=2g x"])
def test_what_spark_was_text_by_its_arguments_counts(monkeypatch: pytest.MonkeyPatch, arguments: str) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", arguments)
    monkeypatch.setenv("BACKSTREAM_DRIVER_MEMORY", "6g")

    where = "spark.driver.memory in PYSPARK_SUBMIT_ARGS"
    assert driver_heap() == Heap(None, f"set by {where}", where)
    assert driver_heap().settings == {}


@pytest.mark.parametrize("variable", ["SPARK_CONF_DIR", "SPARK_HOME"])
def test_what_spark_was_text_by_its_file_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str
) -> None:
    folder = tmp_path if variable == "SPARK_CONF_DIR" else tmp_path / "conf"
    folder.mkdir(exist_ok=True)
    monkeypatch.setenv(variable, str(tmp_path))
    file = folder / "spark-defaults.conf"

    file.write_text("# spark.driver.memory 2g\nspark.driver.memoryOverhead 1g\n")
    assert driver_heap().by == "BACKSTREAM_DRIVER_MEMORY"

    file.write_text("spark.ui.enabled=false\nspark.driver.memory  2g\n")
    assert driver_heap() == Heap(None, f"set by spark.driver.memory in {file}", f"spark.driver.memory in {file}")


def test_sparks_own_variable_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_DRIVER_MEMORY", "2g")

    assert driver_heap().by == "SPARK_DRIVER_MEMORY"


TOO_MUCH = """
import sys
from pathlib import Path
from pyspark.sql import functions as F
from tests.workflow.history import planned, write_clicks, write_definition, at
from backstream.errors import HeapError
from backstream.spark.failures import explain_heap_errors, silence_java_traces
from backstream.spark.heap import driver_heap
from backstream.spark.session import local_session

folder = Path(sys.argv[1])
write_clicks(folder / "data/a.parquet", [(at("1"), at("1"), "A", 0, "home")])
plan = planned(folder, write_definition(folder))
spark = local_session("too much")
silence_java_traces(spark)
print(spark.sparkContext._jvm.java.lang.Runtime.getRuntime().maxMemory() >> 20, plan.run_id, flush=True)
large = spark.range(0, 60_000_000, 1, 2)
try:
    with explain_heap_errors(spark, plan, driver_heap().by):
        half = large.groupBy((F.col("id") % 2).alias("half"))
        half.agg(F.collect_list("id").alias("ids")).write.parquet(str(folder / "out"))
except HeapError as error:
    sys.exit(f"error: {error}")
"""


def test_who_runs_out_of_memory_reads_which_setting_to_raise_and_no_trace_of_java(tmp_path: Path) -> None:
    child = subprocess.run(
        [sys.executable, "-c", TOO_MUCH, str(tmp_path)],
        cwd=Path(__file__).parents[2],
        # The collector that other tests choose reports a smaller heap.
        env={**os.environ, "SPARK_SUBMIT_OPTS": "", "BACKSTREAM_DRIVER_MEMORY": "512m", "PYTHONPATH": "."},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )

    heap_mb, run_id = child.stdout.split()
    assert (child.returncode, int(heap_mb)) == (1, 512), child.stderr
    assert child.stderr.partition("error: ")[2] == (
        f"could not run the chunks of {run_id}: Spark's Java has no memory left\n"
        "  its heap was 512m\n\n"
        "hint: increase BACKSTREAM_DRIVER_MEMORY, and run the same command again; finished chunks are kept\n"
    ), child.stderr
    assert "\tat " not in child.stderr


class EndedJavaError(Exception):
    """An error of Java whose message is gone with Java."""

    def __str__(self) -> str:
        raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))


LOST_CLASS_ERROR = Py4JError("py4j.reflection does not exist in the JVM")
"""Java ended while PySpark converted its error."""


@pytest.mark.parametrize(
    "error",
    [EndedJavaError(), LOST_CLASS_ERROR, AttributeError("'NoneType' object has no attribute 'sendall'")],
    ids=["no message", "no class", "no connection"],
)
@pytest.mark.parametrize("status", [OUT_OF_MEMORY_STATUS, 0])
def test_java_can_end_before_its_error_is_read(
    monkeypatch: pytest.MonkeyPatch, status: int, error: Exception
) -> None:
    java = subprocess.Popen(["sh", "-c", f"exit {status}"])
    monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=java))
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(getConf=lambda: {"spark.driver.memory": "512m"}))
    plan: Any = SimpleNamespace(run_id="a-run")
    with pytest.raises(HeapError if status else type(error)), explain_heap_errors(spark, plan):
        raise error
    assert java.wait() == status
