"""Spark sessions: the few settings that results depend on, in one place."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from backstream.core.errors import SetupError

OLDEST_JAVA = 17
JAVA_HINT = "bin/setup installs one, or says how"

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    # Iceberg wants microseconds; Spark's default INT96 has no statistics.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.fieldId.write.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
    # What a chunk keeps is read a few times and given back seconds later. Spark packs what it stores as a whole;
    # to look at each column for a shorter form of it before costs more than it saves.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    # Chunks have about 100 generated classes, and the next chunks have the same. Spark's default keeps 100 of an
    # application: each would be thrown away just before it is wanted again, and compiled anew.
    "spark.sql.codegen.cache.maxEntries": "1000",
    # For its error messages Spark notes where each column of a plan was asked for, in Python and in Java, which is
    # half of all that Python and Java say to each other. These places are ours; a user's SQL is quoted either way.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.dataFrameQueryContext.enabled": "false",
}

LOCAL_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # A machine has few cores; Spark's default of 200 is made for clusters.
    "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
}

SMALL_DATA_SETTINGS = {
    "spark.master": "local[1]",
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    # For a few rows, planning and compiling cost more than running.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def submitted(name: str) -> SparkSession:
    """The session of an application that spark-submit started: master and resources come from there."""
    return _built(SparkSession.builder.appName(name), SETTINGS)


def local(name: str, settings: Mapping[str, str] | None = None) -> SparkSession:
    """A session inside this process, on all its cores."""
    require_java()
    # Workers must run the same Python as the driver.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name).master("local[*]")
    return _built(builder, {**LOCAL_SETTINGS, **SETTINGS, **(settings or {})})


def require_java() -> None:
    """Check that Spark will find a Java runtime that it can run on.

    Raises:
        SetupError: when there is none, or an older one than 17.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        where = f"at JAVA_HOME={home}" if home else "on PATH, and JAVA_HOME is not set"
        msg = f"no Java runtime {where}; Spark needs version {OLDEST_JAVA} or newer\n\nhint: {JAVA_HINT}"
        raise SetupError(msg)
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(?:1\.)?(\d+)', said)
    if version is None or int(version[1]) < OLDEST_JAVA:
        found = said.splitlines()[0] if said else "no answer"
        msg = f"Spark needs Java {OLDEST_JAVA} or newer, got {found} ({java})\n\nhint: {JAVA_HINT}"
        raise SetupError(msg)


def _built(builder: SparkSession.Builder, settings: Mapping[str, str]) -> SparkSession:
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
