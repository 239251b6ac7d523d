"""Create Spark sessions with the settings that results depend on, and distribute this package to executors."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any
from zipfile import ZipFile

from py4j.java_gateway import JavaMember
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from backstream.spark.gateway import start_java
from backstream.spark.heap import SETTING, driver_heap, heap_mb
from backstream.spark.java import require_java, tune_java
from backstream.storage.machine import machine_memory_bytes
from backstream.user_code import UserCode, read_sources

_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    # Iceberg needs microseconds; Spark's default INT96 has no statistics.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.fieldId.write.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
    # A cluster may be configured to skip damaged or missing files. That would silently lose records.
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    # Persisted frames are read a few times and released seconds later. Spark compresses the stored block anyway;
    # encoding each column before costs more than it saves.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    # A chunk uses about 100 generated classes, and the next chunk uses the same. Spark caches 100 by default, so
    # they would be evicted before the next chunk can reuse them.
    "spark.sql.codegen.cache.maxEntries": "1000",
    # For its error messages Spark records the call site of each column, which is half of all calls between Python
    # and Java. The call sites are in this package. Errors quote the user's SQL without them.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.dataFrameQueryContext.enabled": "false",
}

# Py4J logs the traces of errors that it also raises, e.g., of a Java that ended, and uses the root logger for it.
logging.getLogger().addFilter(lambda record: "py4j" not in record.pathname)

_QUERY_ERROR_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")

_LOCAL_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # A single machine has few cores; Spark's default of 200 is meant for clusters.
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

_TRACE_LOGGERS = (
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.spark.sql.execution.datasources.FileFormatWriter",
    "org.apache.spark.util.Utils",
)
"""The Java loggers that each print the trace of a failed task."""


_LOOKED_UP_CLASSES = ("functions", "org.apache.spark.sql.functions", "PythonSQLUtils", "PythonUtils")


_EXECUTOR_OPTIONS = ("spark.executor.extraJavaOptions", "spark.executor.defaultJavaOptions")


def submitted_context(name: str, master: str = "", executor_options: str = "") -> SparkContext:
    """Return the context of an application that spark-submit started.

    Args:
        name: the name of the application.
        master: another master than that of spark-submit.
        executor_options: options for the Java of executors, if the user has not set some.
    """
    SparkContext._ensure_initialized()  # noqa: SLF001 - only Java knows the settings of spark-submit
    conf = SparkConf().setAppName(name).setAll([*_SETTINGS.items()])
    if master:
        conf.setMaster(master)
    if executor_options and not any(map(conf.contains, _EXECUTOR_OPTIONS)):
        conf.set(_EXECUTOR_OPTIONS[0], executor_options)
    context = SparkContext.getOrCreate(conf)
    context.setLogLevel("ERROR")
    return context


def session_in(context: SparkContext) -> SparkSession:
    """Return a session in a context. It takes Java some seconds, in which the context can run tasks."""
    return _get_or_create(SparkSession.builder.appName(context.appName or ""), _SETTINGS)


def local_session(
    name: str, settings: Mapping[str, str] | None = None, input_bytes: int | None = None
) -> SparkSession:
    """Return a session inside this process, on all its cores.

    Args:
        name: the name of the application.
        settings: override the default settings; without a heap among them, `driver_heap` chooses it.
        input_bytes: the maximum size of the files that will be read; None if unknown.
    """
    require_java()
    # Python workers must run the same Python as the driver.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    all_settings = {"spark.master": "local[*]", **_LOCAL_SETTINGS, **_SETTINGS, **(settings or {})}
    if SETTING not in all_settings:
        all_settings |= driver_heap().settings
    with tune_java(all_settings.get(SETTING), input_bytes):
        start_java(SparkConf().setAppName(name).setAll([*all_settings.items()]))
        return _get_or_create(SparkSession.builder.appName(name), all_settings)


def _get_or_create(builder: SparkSession.Builder, settings: Mapping[str, str]) -> SparkSession:
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    # PySpark logs each error of a query as JSON; the caller raises it, and often expects it.
    for name in _QUERY_ERROR_LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    _keep_classes(session)
    if (session.sparkContext.master or "").startswith("local"):
        _silence_trace_loggers(session)
    return session


class _KeptClass:
    """A Java class whose methods are looked up once: at each lookup, Java copies all methods of the class."""

    def __init__(self, java_class: Any) -> None:
        self._java_class = java_class

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._java_class, name)
        if isinstance(member, JavaMember):
            setattr(self, name, member)
        return member


def _keep_classes(session: SparkSession) -> None:
    """Keep the Java classes that PySpark looks up at each call of a SQL function, and their methods.

    A lookup makes Java search all its jars, once per package that PySpark imports. A replay has 1,000 lookups.
    """
    jvm = session.sparkContext._jvm  # noqa: SLF001 - the only way to the classes
    for name in _LOOKED_UP_CLASSES:
        if not isinstance(kept := getattr(jvm, name), _KeptClass):
            setattr(jvm, name, _KeptClass(kept))


def _silence_trace_loggers(session: SparkSession) -> None:
    """Turn off the loggers of task failures: no local task is retried, so Python gets the error."""
    jvm = session.sparkContext._jvm  # noqa: SLF001 - the only way to the loggers
    log4j = jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    for name in _TRACE_LOGGERS:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)


_PACKAGE = "backstream"
_shipped: dict[tuple[str, str], TemporaryDirectory[str]] = {}
"""The archives by application and package; a driver serves them until it ends."""
_lock = Lock()


def ship_package(context: SparkContext, *targets: str) -> None:
    """Send this package to the executors of an application, once.

    The packages of user code, `package.module:name`, are sent too. Python workers of a local master get only the
    packages that they can't import otherwise.
    """
    master = context.master or ""
    packages = [_PACKAGE, *(UserCode("code", target).package for target in targets)]
    if master == "local" or master.startswith("local["):
        packages = [package for package in packages if not _is_found_by_workers(package)]
    with _lock:  # chunks run in several threads
        for package in dict.fromkeys(packages):
            if (context.applicationId, package) not in _shipped:
                _shipped[context.applicationId, package] = _send_archive(context, package)


def _is_found_by_workers(package: str) -> bool:
    """Return whether Python workers on this machine find a package: it is installed, or in PYTHONPATH."""
    spec = find_spec(package)
    folders = [] if spec is None else [*(spec.submodule_search_locations or []), spec.origin or ""]
    known = [sys.prefix, sys.base_prefix, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return package == _PACKAGE or any(Path(folder).is_relative_to(root) for folder in folders for root in known)


def _send_archive(context: SparkContext, package: str) -> TemporaryDirectory[str]:
    folder, path = TemporaryDirectory(prefix="backstream-"), list(sys.path)
    archive = Path(folder.name) / f"{package}.zip"
    with ZipFile(archive, "w") as file:
        for name, content in read_sources(package):
            file.writestr(name, content)
    context.addPyFile(str(archive))
    # The driver keeps its own modules, since the archive has Python files only.
    sys.path[:] = path
    return folder


_MIN_TASK_MB, _MAX_TASK_MB = 256, 16_384


def task_memory_mb(spark: SparkSession) -> int:
    """Return the MB of a native task: half of the memory that Java leaves, or the executor's overhead."""
    context = spark.sparkContext
    if (context.master or "").startswith("local"):
        free_mb = machine_memory_bytes() // 2**20 - heap_mb(spark.conf.get("spark.driver.memory", "1g") or "1g")
        return min(max(int(free_mb) // (2 * context.defaultParallelism), _MIN_TASK_MB), _MAX_TASK_MB)
    settings = ("spark.executor.pyspark.memory", "spark.executor.memoryOverhead")
    overhead = next((size for name in settings if (size := spark.conf.get(name, None))), None)
    cores = int(spark.conf.get("spark.executor.cores", None) or 1)
    return max(int(heap_mb(overhead)) // cores, _MIN_TASK_MB) if overhead else _MIN_TASK_MB
