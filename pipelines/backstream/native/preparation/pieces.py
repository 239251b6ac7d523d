"""Cut raw files into pieces of similar size, and group small files, so that each task has enough to do."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from backstream.native.preparation.line_blocks import COMPRESSIONS
from backstream.native.preparation.task import Piece
from backstream.source.raw_files import SUFFIXES_BY_FORMAT

_MIN_BYTES, _MAX_BYTES = 2 * 2**20, 64 * 2**20
"""Bounds of the size of a task's input."""
_TASKS_PER_SLOT = 4
_OPEN_COST_BYTES = 65_536
"""Assumed cost of opening a file, as in Spark's preparation."""
_INFLATION = 8
"""Assumed size of a compressed file's content, in times of its own size."""


def reason_against_file(path: str, text_format: str) -> str | None:
    """Return why Spark must read a file, by its path; None if the native reader finds the same lines in it.

    Spark chooses the compression by the suffix.

    Args:
        path: the path.
        text_format: the format of the source.
    """
    file = Path(path)
    if not path.isascii() or os.path.normpath(path) != path or not file.is_absolute():
        return "its path has unusual characters"
    if file.name.startswith(("_", ".")):
        return "its name begins with _ or ."
    suffix = Path(file.stem).suffix if file.suffix in COMPRESSIONS else file.suffix
    return None if suffix in SUFFIXES_BY_FORMAT[text_format] else f"it has the suffix {file.suffix}"


def group_pieces(files: Sequence[Piece], slots: int) -> list[list[Piece]]:
    """Return the pieces of whole files in groups, one group per task.

    Args:
        files: one piece per file.
        slots: the number of tasks that run at the same time.
    """
    target = min(max(sum(map(_cost, files)) // (slots * _TASKS_PER_SLOT), _MIN_BYTES), _MAX_BYTES)
    groups: list[list[Piece]] = []
    small, size_bytes = list[Piece](), 0
    for file in files:
        if _cost(file) > target:
            groups += [[piece] for piece in _cut(file, target)]
            continue
        if small and size_bytes + _cost(file) > target:
            groups.append(small)
            small, size_bytes = [], 0
        small.append(file)
        size_bytes += _cost(file)
    return [*groups, small] if small else groups


def estimate_bytes(piece: Piece) -> int:
    """Return the assumed size of the content of a piece in bytes."""
    end = piece.size_bytes if piece.end is None else piece.end
    return (end - piece.start) * (_INFLATION if _is_compressed(piece) else 1)


def _cost(file: Piece) -> int:
    return estimate_bytes(file) + _OPEN_COST_BYTES


def _is_compressed(file: Piece) -> bool:
    return Path(file.path).suffix in COMPRESSIONS


def _cut(file: Piece, target: int) -> Iterator[Piece]:
    """Yield the parts of a file; a compressed file can't be read from its middle."""
    count = 1 if _is_compressed(file) else math.ceil(file.size_bytes / target)
    bounds = [file.size_bytes * number // count for number in range(count)]
    for start, end in zip(bounds, [*bounds[1:], None], strict=True):
        yield replace(file, start=start, end=end)
