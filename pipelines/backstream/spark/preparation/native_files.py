"""Prepare the raw files that the native reader supports, in tasks that Spark distributes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from backstream.native.preparation.folders import FolderValue, find_folder_texts, parse_folder_values
from backstream.native.preparation.pieces import group_pieces, reason_against_file
from backstream.native.preparation.supported import json_spec, reason_against_columns, reason_against_settings
from backstream.native.preparation.task import JsonSpec, Piece, PreparationResult, PreparationTask
from backstream.native.preparation.task_runner import run_preparation_task
from backstream.native.task import task_file_path
from backstream.source.reader import UnreadableError
from backstream.spark.native.engine import can_fall_back, task_error_text
from backstream.spark.preparation.raw_records import load_files_of_format, raw_file_uri, root_of_folders
from backstream.spark.preparation.settings import LineFiles, Preparation
from backstream.spark.session import ship_package
from backstream.text import text_logger

log = text_logger(__name__)
_UNCLEAR_FOLDERS = "the names of its folders have an unusual form"


@dataclass(frozen=True, slots=True)
class NativeFiles:
    """The raw files that are prepared, the prepared files with their rows, and why each other raw file is not.

    `remaining` are the settings by which Spark prepares the other files, and some lines of these ones.
    `unusual_lines` is the number of these lines, and `line_reasons` has the reason by file.
    """

    remaining: Preparation
    paths: Sequence[str] = ()
    outputs: Sequence[Path] = ()
    rows: int = 0
    reasons: Mapping[str, str] = field(default_factory=dict)
    line_reasons: Mapping[str, str] = field(default_factory=dict)
    unusual_lines: int = 0


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
    if reason := reason_against_settings(preparation.definition, preparation.source):
        return NativeFiles(preparation, reasons=dict.fromkeys(paths, reason))
    folders = _find_folder_columns(spark, preparation, paths)
    if folders is None:
        return NativeFiles(preparation, reasons=dict.fromkeys(paths, _UNCLEAR_FOLDERS))
    remaining = _declare_folder_columns(preparation, folders.types)
    if reason := reason_against_columns(preparation.definition, preparation.source, folders.types):
        return NativeFiles(remaining, reasons=dict.fromkeys(paths, reason))
    reasons = {path: reason for path in paths if (reason := reason_against_file(path))}
    reasons = dict.fromkeys({*paths} - folders.values.keys(), _UNCLEAR_FOLDERS) | reasons
    files = [
        Piece(path, raw_file_uri(path, preparation), size_bytes, folder_values=folders.values[path])
        for path in paths
        if path not in reasons and (size_bytes := _find_size(path)) is not None
    ]
    spec = json_spec(preparation.definition, preparation.source, folders.types)
    tasks = list(_plan_tasks(spark, spec, files, folder))
    try:
        results = _run_tasks(spark, tasks)
    except Exception as error:
        if not can_fall_back(preparation.definition, error):
            raise
        log.warning("%s; Spark prepares the files instead", task_error_text(error))
        return NativeFiles(remaining, reasons=dict.fromkeys(paths, task_error_text(error)))
    reasons |= {path: reason for result in results for path, reason in result.unusual_files.items()}
    # A task of several files has left out the unusual ones. The parts of a large file are valid together only.
    valid = [
        result
        for task, result in zip(tasks, results, strict=True)
        if len(task.pieces) > 1 or task.pieces[0].path not in reasons
    ]
    line_files, line_reasons = _number_lines(tasks, results, reasons, _lines_folder(folder))
    return NativeFiles(
        replace(remaining, line_files=line_files) if line_files.numbers else remaining,
        [file.path for file in files if file.path not in reasons],
        [Path(result.output) for result in valid if result.output],
        sum(result.rows for result in valid),
        reasons,
        line_reasons,
        sum(lines.count for result in results for lines in result.unusual_lines if lines.raw_path not in reasons),
    )


def _number_lines(
    tasks: Sequence[PreparationTask],
    results: Sequence[PreparationResult],
    left_out: Container[str],
    folder: Path,
) -> tuple[LineFiles, dict[str, str]]:
    """Return the files of unusual lines with the numbers in their raw files, and the reason by raw file."""
    files = LineFiles(folder)
    reasons: dict[str, str] = {}
    before = Counter[str]()
    for task, result in zip(tasks, results, strict=True):
        for lines in result.unusual_lines:
            if lines.raw_path not in left_out:
                files |= LineFiles.from_texts(folder, [lines.files], before[lines.raw_path])
                reasons.setdefault(lines.raw_path, lines.reason)
        if len(task.pieces) == 1:  # the next task may have the next part of this file
            before[task.pieces[0].path] += result.lines
    return files, reasons


def _find_size(path: str) -> int | None:
    """Return the size of a file in bytes; None if it was removed, which Spark's preparation explains."""
    try:
        return Path(path).stat().st_size
    except OSError:
        return None


def _plan_tasks(
    spark: SparkSession, spec: JsonSpec, files: Sequence[Piece], folder: Path
) -> Iterator[PreparationTask]:
    for number, group in enumerate(group_pieces(files, spark.sparkContext.defaultParallelism)):
        output = task_file_path(folder, number, "native")
        yield PreparationTask(spec, group, output, str(_lines_folder(folder)))


def _lines_folder(folder: Path) -> Path:
    return folder / "lines"


def _run_tasks(spark: SparkSession, tasks: Sequence[PreparationTask]) -> list[PreparationResult]:
    if not tasks:
        return []
    Path(tasks[0].output).parent.mkdir()
    ship_package(spark.sparkContext)
    return spark.sparkContext.parallelize(tasks, len(tasks)).map(run_preparation_task).collect()


@dataclass(frozen=True, slots=True)
class _FolderColumns:
    """The types of the columns of folders, and their values by file; files with unusual values are not in it."""

    types: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Mapping[str, FolderValue]] = field(default_factory=dict)


def _find_folder_columns(
    spark: SparkSession, preparation: Preparation, paths: Sequence[str]
) -> _FolderColumns | None:
    """Return the columns of the folders of raw files; None if only Spark can find them.

    Spark lists the files, and reads none of them.
    """
    root = root_of_folders(preparation.source)
    if root is None:
        return _FolderColumns(values={path: {} for path in paths})
    texts = find_folder_texts(paths, root)
    if texts is None:
        return None
    names = next(iter(texts.values()), {})
    types = _load_types(spark, preparation, paths, names) if names else {}
    if len(types) < len(names):  # a declared column has another spelling
        return None
    values = {path: parse_folder_values(own, types) for path, own in texts.items()}
    return _FolderColumns(types, {path: own for path, own in values.items() if own is not None})


def _load_types(
    spark: SparkSession, preparation: Preparation, paths: Sequence[str], names: Container[str]
) -> dict[str, str]:
    try:
        schema = load_files_of_format(spark, preparation.source, paths).schema
    except (AnalysisException, UnreadableError):  # Spark's preparation explains it
        return {}
    return {column.name: column.dataType.simpleString() for column in schema if column.name in names}


def _declare_folder_columns(preparation: Preparation, types: Mapping[str, str]) -> Preparation:
    """Return settings with the types of folders' columns; from fewer files, Spark would derive other types."""
    definition = preparation.definition
    source = definition.source.model_copy(update={"columns": {**definition.source.columns, **types}})
    return replace(preparation, definition=definition.model_copy(update={"source": source}))
