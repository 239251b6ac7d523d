"""Spark sessions: the few settings that results depend on, in one place."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from zipfile import ZipFile

from pyspark import SparkContext
from pyspark.sql import SparkSession

from backstream.spark.heap import SETTING, driver_heap, heap_mb, machine_memory_bytes
from backstream.spark.java import require_java, tune_java

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    # Iceberg wants microseconds; Spark's default INT96 has no statistics.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.fieldId.write.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
    # A cluster may be told to pass over files that are damaged or gone; here that would be a loss without a word.
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
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
    "spark.driver.memory": "1g",
    # For a few rows, planning and compiling cost more than running.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}

_TELLING_OF_TASKS = (
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.spark.sql.execution.datasources.FileFormatWriter",
    "org.apache.spark.util.Utils",
)
"""What logs the trace of a failed task in Java, each its own copy."""


def submitted_session(name: str) -> SparkSession:
    """The session of an application that spark-submit started: master and resources come from there."""
    return _built(SparkSession.builder.appName(name), SETTINGS)


def local_session(
    name: str, settings: Mapping[str, str] | None = None, input_bytes: int | None = None
) -> SparkSession:
    """A session inside this process, on all its cores.

    Args:
        name: of the application.
        settings: in place of ours; without a heap among them it is `driver_heap`.
        input_bytes: how large the files are that will be read, at most; None: nobody knows.
    """
    require_java()
    # Workers must run the same Python as the driver.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name).master("local[*]")
    asked = {**LOCAL_SETTINGS, **SETTINGS, **(settings or {})}
    if SETTING not in asked:
        asked |= driver_heap().settings
    with tune_java(asked.get(SETTING), input_bytes):
        return _built(builder, asked)


def _built(builder: SparkSession.Builder, settings: Mapping[str, str]) -> SparkSession:
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    if (session.sparkContext.master or "").startswith("local"):
        _keep_traces_out_of_the_log(session)
    return session


def _keep_traces_out_of_the_log(session: SparkSession) -> None:
    """Have a task that fails be told once: in one process none is tried again, so Python gets all of it anyway."""
    jvm = session.sparkContext._jvm  # noqa: SLF001 - the only way to the loggers
    log4j = jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    for name in _TELLING_OF_TASKS:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)


_OURS = "backstream"
_shipped: dict[tuple[str, str], TemporaryDirectory[str]] = {}
"""The archives by application and package: a driver serves them as long as it lives."""
_lock = Lock()


def ship_package(context: SparkContext, generator: str | None = None) -> None:
    """Send this package to the executors of an application, and that of a generator, `package.module:Class`; once.

    Executors of a local master are this process's own, and find what it finds.
    """
    master = context.master or ""
    if master == "local" or master.startswith("local["):
        return
    theirs = [generator.partition(":")[0].partition(".")[0]] if generator else []
    with _lock:  # chunks run in several threads
        for package in dict.fromkeys((_OURS, *theirs)):
            if (context.applicationId, package) not in _shipped:
                _shipped[context.applicationId, package] = _sent(context, package)


def _sent(context: SparkContext, package: str) -> TemporaryDirectory[str]:
    folder, path = TemporaryDirectory(prefix="backstream-"), list(sys.path)
    archive = Path(folder.name) / f"{package}.zip"
    with ZipFile(archive, "w") as file:
        for source, name in _sources(package):
            file.write(source, name)
    context.addPyFile(str(archive))
    sys.path[:] = path  # the driver goes on with what it has: beside its modules lie files that are not sent
    return folder


def _sources(package: str) -> list[tuple[Path, str]]:
    """The Python files of an importable package, or of a module, and their names in an archive."""
    found = importlib.util.find_spec(package)
    if found is None:
        return []
    if found.submodule_search_locations is None:
        return [(Path(found.origin), f"{package}.py")] if found.origin else []
    roots = [Path(each) for each in found.submodule_search_locations]
    return [(file, f"{package}/{file.relative_to(root)}") for root in roots for file in sorted(root.rglob("*.py"))]


_LEAST_MB, _MOST_MB = 256, 16_384


def task_memory_mb(spark: SparkSession) -> int:
    """Return the MB of a task: half of what Java leaves of a machine, or what an executor has beside Java."""
    context = spark.sparkContext
    if (context.master or "").startswith("local"):
        free_mb = machine_memory_bytes() // 2**20 - heap_mb(spark.conf.get("spark.driver.memory", "1g") or "1g")
        return min(max(int(free_mb) // (2 * context.defaultParallelism), _LEAST_MB), _MOST_MB)
    settings = ("spark.executor.pyspark.memory", "spark.executor.memoryOverhead")
    beside = next((said for name in settings if (said := spark.conf.get(name, None))), None)
    cores = int(spark.conf.get("spark.executor.cores", None) or 1)
    return max(int(heap_mb(beside)) // cores, _LEAST_MB) if beside else _LEAST_MB
