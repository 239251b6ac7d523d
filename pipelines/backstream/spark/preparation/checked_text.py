"""Check text files before Spark reads them, and rewrite those of which it would lose records."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

from backstream.chunks.preparation.settings import LineFiles, Preparation
from backstream.definition.source_section import Source
from backstream.native.preparation.pieces import group_pieces
from backstream.native.preparation.task import Piece, RewrittenText, UnusualFileError
from backstream.native.preparation.text_check import (
    TextFileError,
    is_ordinary,
    rewrite_text,
)
from backstream.native.preparation.text_form import TextForm
from backstream.source.files import read_error_text
from backstream.source.raw_files import TEXT_FORMATS
from backstream.source.reader import UnreadableError
from backstream.source.text_files import require_known_compressions
from backstream.spark.session import ship_package

_MAX_LOCAL_BYTES = 8 * 2**20
"""Files that are smaller together are checked by the driver: a job of Spark would take longer to start."""
_SUFFIX = "~text"
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@contextmanager
def check_text_files(
    spark: SparkSession, preparation: Preparation, paths: Sequence[str], folder: Path, limit: int | None = None
) -> Iterator[tuple[Preparation, list[str]]]:
    """Yield the settings with the files that are read in place of raw files, and the raw files that remain.

    Args:
        spark: the session.
        preparation: the settings.
        paths: local raw files of the source.
        folder: the prepared files. The rewritten files are beside it, and are removed after the block.
        limit: the number of lines of each file that a sample needs; None: all lines.

    Raises:
        UnreadableError: when a file is not in the form that the options of the source say.
    """
    known = preparation.line_files
    own = folder.with_name(f"{folder.name}-text")
    try:
        lines = rewrite_text_files(spark, preparation.source, paths, known.folder if known else own, limit)
        rewritten, merged = lines.raw_paths, lines | known if known else lines
        remaining = [path for path in paths if path not in rewritten]
        yield replace(preparation, line_files=merged if merged.numbers else None), remaining
    finally:
        shutil.rmtree(own, ignore_errors=True)


def rewrite_text_files(
    spark: SparkSession, source: Source, paths: Sequence[str], folder: Path, limit: int | None = None
) -> LineFiles:
    """Write the files that are read in place of raw files, below a folder.

    Args:
        spark: the session.
        source: the source of the files, or a side input as a source.
        paths: local raw files.
        folder: the folder.
        limit: the number of lines of each file that a sample needs; None: all lines.

    Raises:
        UnreadableError: when a file is not in the form that the options of the source say.
    """
    if source.format not in TEXT_FORMATS:
        return LineFiles(folder)
    require_known_compressions(source, paths)
    form = TextForm.from_options(source.format, source.options, source.records)
    files = [piece for path in paths if (piece := _piece(path)) is not None]
    slots = spark.sparkContext.defaultParallelism
    groups = group_pieces(files, slots)
    is_local = sum(file.size_bytes for file in files) <= _MAX_LOCAL_BYTES
    run = _run_here if is_local else partial(_run_tasks, spark)
    verdicts = [each for found in run(partial(_check_group, form=form, limit=limit), groups) for each in found]
    unordinary = dict.fromkeys(path for path, is_plain in verdicts if not is_plain)
    wanted = [file for file in files if file.path in unordinary]
    results = run(partial(_rewrite, form=form, folder=str(folder), limit=limit), wanted)
    texts = []
    for file, result in zip(wanted, results, strict=True):
        if isinstance(result, str):
            raise UnreadableError(file.path, result)
        texts.append(result)
    empty = {file.path for file, text in zip(wanted, texts, strict=True) if not text.numbers_by_path}
    empty |= {path for path in paths if Path(path).exists()} - {file.path for file in files}
    return replace(LineFiles.from_texts(folder, texts), empty=frozenset(empty))


def _piece(path: str) -> Piece | None:
    """Return a file as one piece; None if it is empty or removed."""
    try:
        size_bytes = Path(path).stat().st_size
    except OSError:
        return None
    return Piece(path, "", size_bytes) if size_bytes else None


def _run_here(function: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
    return [function(item) for item in items]


def _run_tasks(spark: SparkSession, function: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
    if not items:
        return []
    ship_package(spark.sparkContext)
    return spark.sparkContext.parallelize(items, len(items)).map(function).collect()


_DAMAGES = (OSError, EOFError, zlib.error, pa.ArrowException, UnusualFileError)


def _check_group(pieces: Sequence[Piece], form: TextForm, limit: int | None) -> list[tuple[str, bool]]:
    """Return the path of each piece, and whether Spark reads it as it is. Spark explains a damaged file."""
    return [(piece.path, _is_ordinary(piece, form, limit)) for piece in pieces]


def _is_ordinary(piece: Piece, form: TextForm, limit: int | None) -> bool:
    try:
        return is_ordinary(piece, form, limit)
    except TextFileError:  # the second task returns the reason
        return False
    except _DAMAGES:
        return not form.is_rewritten


def _rewrite(piece: Piece, form: TextForm, folder: str, limit: int | None) -> RewrittenText | str:
    """Return the files in place of a file, or the reason why it cannot be read."""
    try:
        return rewrite_text(piece, form, f"{folder}{piece.path}{_SUFFIX}", limit)
    except TextFileError as error:
        return str(error)
    except _DAMAGES as error:
        return read_error_text(error)
