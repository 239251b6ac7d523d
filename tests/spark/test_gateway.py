"""The lines that Java writes to the standard error of a process with a session."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from pyspark.sql import SparkSession

STARTED = """\
import sys
from backstream.spark.session import SMALL_DATA_SETTINGS, local_session
session = local_session("lines", SMALL_DATA_SETTINGS, input_bytes=0)
error = session._jvm.java.lang.System.err
print("from Python", file=sys.stderr, flush=True)
error.println("ERROR Executor: lost")
error.println("WARNING: package a.b not in java.base")
error.println("OpenJDK 64-Bit Server VM warning: out of memory")
error.print("no end of li")
error.println("ne, WARNING: not at its start")
error.flush()
session.stop()
"""


def test_only_the_warnings_that_each_java_of_spark_writes_are_left_out() -> None:
    variables = os.environ | {"JAVA_TOOL_OPTIONS": "-Dbackstream.test=yes", "BACKSTREAM_CLASS_ARCHIVE": ""}

    ended = subprocess.run(
        [sys.executable, "-c", f"{STARTED}\nimport time; time.sleep(1)"],
        env=variables,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )

    assert ended.stdout == ""
    assert ended.stderr.splitlines() == [
        "from Python",
        "ERROR Executor: lost",
        "OpenJDK 64-Bit Server VM warning: out of memory",
        "no end of line, WARNING: not at its start",
    ]


def test_java_is_asked_once_for_a_method_that_sql_functions_call(spark: SparkSession) -> None:
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - the classes that PySpark uses

    assert jvm.functions.col is jvm.functions.col
    assert jvm.PythonUtils.toSeq is jvm.PythonUtils.toSeq
