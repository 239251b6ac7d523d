"""Prepare the raw files that the native reader supports, in tasks that Spark distributes."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from backstream.native.preparation.pieces import group_pieces, reason_against_file
from backstream.native.preparation.supported import json_spec, reason_left_to_spark
from backstream.native.preparation.task import Piece, PreparationResult, PreparationTask
from backstream.native.preparation.task_runner import run_preparation_task
from backstream.native.task import task_file_path
from backstream.spark.native.engine import can_fall_back, task_error_text
from backstream.spark.preparation.raw_records import raw_file_uri
from backstream.spark.preparation.settings import Preparation
from backstream.spark.session import ship_package

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NativeFiles:
    """The raw files that are prepared, the prepared files with their rows, and why each other raw file is not."""

    paths: Sequence[str] = ()
    outputs: Sequence[Path] = ()
    rows: int = 0
    reasons: Mapping[str, str] = field(default_factory=dict)


def prepare_native_files(
    spark: SparkSession, preparation: Preparation, paths: Sequence[str], folder: Path
) -> NativeFiles:
    """Write prepared files of the raw files that the native reader supports. Runs a job.

    Args:
        spark: the session.
        preparation: the settings.
        paths: local raw files of the source.
        folder: the folder to write; it must not exist. Lost attempts of tasks may leave other files in it.
    """
    if reason := reason_left_to_spark(preparation.definition, preparation.source):
        return NativeFiles(reasons=dict.fromkeys(paths, reason))
    reasons = {path: reason for path in paths if (reason := reason_against_file(path))}
    files = [
        Piece(path, raw_file_uri(path, preparation), size_bytes)
        for path in paths
        if path not in reasons and (size_bytes := _find_size(path)) is not None
    ]
    tasks = list(_plan_tasks(spark, preparation, files, folder))
    try:
        results = _run_tasks(spark, tasks)
    except Exception as error:
        if not can_fall_back(preparation.definition, error):
            raise
        log.warning("%s; Spark prepares the files instead", task_error_text(error))
        return NativeFiles(reasons=dict.fromkeys(paths, task_error_text(error)))
    reasons |= {path: reason for result in results for path, reason in result.unusual.items()}
    # A task of several files has left out the unusual ones. The parts of a large file are valid together only.
    valid = [
        result
        for task, result in zip(tasks, results, strict=True)
        if len(task.pieces) > 1 or task.pieces[0].path not in reasons
    ]
    return NativeFiles(
        [file.path for file in files if file.path not in reasons],
        [Path(result.output) for result in valid if result.output],
        sum(result.rows for result in valid),
        reasons,
    )


def _find_size(path: str) -> int | None:
    """Return the size of a file in bytes; None if it was removed, which Spark's preparation explains."""
    try:
        return Path(path).stat().st_size
    except OSError:
        return None


def _plan_tasks(
    spark: SparkSession, preparation: Preparation, files: Sequence[Piece], folder: Path
) -> Iterator[PreparationTask]:
    spec = json_spec(preparation.definition, preparation.source)
    for number, group in enumerate(group_pieces(files, spark.sparkContext.defaultParallelism)):
        yield PreparationTask(spec, group, task_file_path(folder, number, "native"))


def _run_tasks(spark: SparkSession, tasks: Sequence[PreparationTask]) -> list[PreparationResult]:
    if not tasks:
        return []
    Path(tasks[0].output).parent.mkdir()
    ship_package(spark.sparkContext)
    return spark.sparkContext.parallelize(tasks, len(tasks)).map(run_preparation_task).collect()
