"""Prepare the raw files that the native reader supports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from backstream.chunks.engine_choice import can_fall_back, task_error_text
from backstream.chunks.preparation.parquet_files import are_copied, copy_parquet_files
from backstream.chunks.preparation.settings import LineFiles, Preparation, raw_file_uri, root_of_folders
from backstream.chunks.tasks import Tasks
from backstream.definition.source_section import Source
from backstream.native.preparation.folders import FolderValue, find_folder_texts, parse_folder_values
from backstream.native.preparation.pieces import group_pieces, reason_against_file
from backstream.native.preparation.supported import reason_against_columns, reason_against_settings, text_spec
from backstream.native.preparation.task import Piece, PreparationResult, PreparationTask, TextSpec
from backstream.native.preparation.task_runner import run_preparation_task
from backstream.native.preparation.text_form import TextForm
from backstream.native.task import task_file_path
from backstream.source.reader import UnreadableError
from backstream.source.text_files import group_by_header
from backstream.text import text_logger

log = text_logger(__name__)
FindTypes = Callable[[Preparation, Sequence[str], Container[str]], Mapping[str, str]]
"""Returns the types of the columns of folders, by the rules of Spark; without those that it cannot find."""
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
    tasks: Tasks, find_types: FindTypes, preparation: Preparation, paths: Sequence[str], folder: Path
) -> NativeFiles:
    """Write prepared files of the raw files that the native reader supports.

    Args:
        tasks: runs the work.
        find_types: finds the types of the columns of folders.
        preparation: the settings.
        paths: local raw files of the source.
        folder: the folder to write; it must not exist. Lost attempts of tasks may leave other files in it.

    Raises:
        StorageError: when a file was removed since it was listed.
    """
    if are_copied(preparation):
        preparation.require_files(paths)
        copied = copy_parquet_files(tasks, preparation, paths, folder)
        left_out = {path: reason for result in copied for path, reason in result.reasons.items()}
        return NativeFiles(
            preparation,
            [path for path in paths if path not in left_out],
            [Path(output) for result in copied for output in result.outputs],
            sum(result.rows for result in copied),
            left_out,
        )
    if reason := reason_against_settings(preparation.definition, preparation.source):
        return NativeFiles(preparation, reasons=dict.fromkeys(paths, reason))
    folders = _find_folder_columns(find_types, preparation, paths)
    if folders is None:
        return NativeFiles(preparation, reasons=dict.fromkeys(paths, _UNCLEAR_FOLDERS))
    remaining = _declare_folder_columns(preparation, folders.types)
    if reason := reason_against_columns(preparation.definition, preparation.source, folders.types):
        return NativeFiles(remaining, reasons=dict.fromkeys(paths, reason))
    preparation.require_files(paths)
    reasons = {path: reason for path in paths if (reason := reason_against_file(path, preparation.source.format))}
    reasons = dict.fromkeys({*paths} - folders.values.keys(), _UNCLEAR_FOLDERS) | reasons
    spec = text_spec(preparation.definition, preparation.source, folders.types)
    headers = {path: _read_columns(preparation.source, spec.form, path) for path in paths if path not in reasons}
    reasons |= {path: columns for path, columns in headers.items() if isinstance(columns, str)}
    files = [
        Piece(
            path,
            raw_file_uri(path, preparation),
            Path(path).stat().st_size,
            folder_values=folders.values[path],
            columns=columns,
        )
        for path, columns in headers.items()
        if not isinstance(columns, str)
    ]
    planned = list(_plan_tasks(tasks.slots, spec, files, folder))
    try:
        results = _run_tasks(tasks, planned)
    except Exception as error:
        preparation.require_files(paths)
        if not can_fall_back(preparation.definition, error):
            raise
        log.warning("%s; Spark prepares the files instead", task_error_text(error))
        return NativeFiles(remaining, reasons=dict.fromkeys(paths, task_error_text(error)))
    reasons |= {path: reason for result in results for path, reason in result.unusual_files.items()}
    # A task of several files has left out the unusual ones. The parts of a large file are valid together only.
    valid = [
        result
        for task, result in zip(planned, results, strict=True)
        if len(task.pieces) > 1 or task.pieces[0].path not in reasons
    ]
    line_files, line_reasons = _number_lines(planned, results, reasons, _lines_folder(folder))
    return NativeFiles(
        replace(remaining, line_files=line_files) if line_files.numbers else remaining,
        [file.path for file in files if file.path not in reasons],
        [Path(result.output) for result in valid if result.output],
        sum(result.rows for result in valid),
        reasons,
        line_reasons,
        sum(lines.count for result in results for lines in result.unusual_lines if lines.raw_path not in reasons),
    )


def _read_columns(source: Source, form: TextForm, path: str) -> tuple[str, ...] | str:
    """Return the names of the columns of a CSV file, or the reason why only Spark can read it; none for JSON."""
    if form.format != "csv":
        return ()
    if not form.has_header:
        return tuple(source.columns)
    try:
        groups = group_by_header(source, [path])
    except UnreadableError as error:
        return error.reason
    if not groups:
        return "it has no header"
    ((columns, _),) = groups
    return form.csv.reason_against_names([*columns]) or tuple(columns)


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


def _plan_tasks(slots: int, spec: TextSpec, files: Sequence[Piece], folder: Path) -> Iterator[PreparationTask]:
    for number, group in enumerate(group_pieces(files, slots)):
        output = task_file_path(folder, number, "native")
        yield PreparationTask(spec, group, output, str(_lines_folder(folder)))


def _lines_folder(folder: Path) -> Path:
    return folder / "lines"


def _run_tasks(tasks: Tasks, planned: Sequence[PreparationTask]) -> list[PreparationResult]:
    if not planned:
        return []
    Path(planned[0].output).parent.mkdir()
    return tasks.run(run_preparation_task, planned)


@dataclass(frozen=True, slots=True)
class _FolderColumns:
    """The types of the columns of folders, and their values by file; files with unusual values are not in it."""

    types: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Mapping[str, FolderValue]] = field(default_factory=dict)


def _find_folder_columns(
    find_types: FindTypes, preparation: Preparation, paths: Sequence[str]
) -> _FolderColumns | None:
    """Return the columns of the folders of raw files; None if only Spark can find them."""
    root = root_of_folders(preparation.source)
    if root is None:
        return _FolderColumns(values={path: {} for path in paths})
    texts = find_folder_texts(paths, root)
    if texts is None:
        return None
    names = next(iter(texts.values()), {})
    types = find_types(preparation, paths, names) if names else {}
    if len(types) < len(names):  # a declared column has another spelling
        return None
    values = {path: parse_folder_values(own, types) for path, own in texts.items()}
    return _FolderColumns(types, {path: own for path, own in values.items() if own is not None})


def _declare_folder_columns(preparation: Preparation, types: Mapping[str, str]) -> Preparation:
    """Return settings with the types of folders' columns; from fewer files, Spark would derive other types."""
    definition = preparation.definition
    source = definition.source.model_copy(update={"columns": {**definition.source.columns, **types}})
    return replace(preparation, definition=definition.model_copy(update={"source": source}))
