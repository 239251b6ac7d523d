"""Read the lines of raw files in blocks, without holding a whole file in memory."""

from __future__ import annotations

import bz2
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa

from backstream.native.preparation.task import Piece, UnusualFileError

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
"""The compressions by suffix. Arrow and Spark read them alike, and both refuse truncated files."""
MAX_LINE_BYTES = 16_000_000
"""The largest line. Jackson, the parser of Spark, limits the length of a text to 20 million characters."""
_BLOCK_BYTES = 4 * 2**20
"""Bytes that are parsed at once. Larger blocks do not fit into the processor's cache."""
_MARK = b"\xef\xbb\xbf"
"""The byte order mark, which Spark leaves out at the start of a file."""


def read_line_blocks(piece: Piece, block_bytes: int = _BLOCK_BYTES) -> Iterator[bytes]:
    r"""Yield the lines of a piece in blocks, each line with `\n` at its end in place of `\r\n` or `\r`.

    Args:
        piece: the part of a file.
        block_bytes: the size of a block without the line that is cut at its end.

    Raises:
        UnusualFileError: if a line is very long.
        ArrowException, OSError: if the file cannot be read.
    """
    is_start = not piece.start
    for block in _read_blocks(piece, block_bytes):
        content = block.removeprefix(_MARK) if is_start else block
        is_start = False
        # Spark's reader ends a line at each of them.
        yield content.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in content else content


def _read_blocks(piece: Piece, block_bytes: int) -> Iterator[bytes]:
    with open_stream(piece) as stream:
        left = None
        if piece.start or piece.end is not None:
            end = None if piece.end is None else _find_line(stream, piece.end)
            start = _find_line(stream, piece.start)
            stream.seek(start)
            left = None if end is None else end - start
        rest = b""
        while block := stream.read(block_bytes if left is None else min(block_bytes, left)):
            left = None if left is None else left - len(block)
            end_of_lines = block.rfind(b"\n") + 1
            if end_of_lines:
                yield rest + block[:end_of_lines]
                rest = block[end_of_lines:]
            else:
                rest += block
            _require_length(rest)
        if rest:
            yield rest + b"\n"


def open_stream(piece: Piece) -> AbstractContextManager[BinaryIO]:
    """Open the file of a piece; its suffix shows how it is compressed.

    Raises:
        UnusualFileError: if it is compressed and empty.
        ArrowException, OSError: if it cannot be read.
    """
    suffix = Path(piece.path).suffix
    compression = COMPRESSIONS.get(suffix)
    if compression is None and suffix != ".bz2":
        return Path(piece.path).open("rb")
    if not piece.size_bytes:  # for Arrow, it has no lines
        msg = "an empty file is not compressed"
        raise UnusualFileError(msg)
    if suffix == ".bz2":
        return cast("AbstractContextManager[BinaryIO]", bz2.open(piece.path))
    stream: Any = pa.input_stream(piece.path, compression=compression)
    return cast("AbstractContextManager[BinaryIO]", stream)


def _find_line(stream: BinaryIO, position: int) -> int:
    """Return the position of the first line that begins at a position or after it."""
    if position == 0:
        return 0
    stream.seek(position - 1)
    before = stream.readline(MAX_LINE_BYTES + 1)
    _require_length(before)
    return position - 1 + len(before)


def _require_length(line: bytes) -> None:
    if len(line) > MAX_LINE_BYTES:
        msg = f"a line is longer than {MAX_LINE_BYTES:,} bytes"
        raise UnusualFileError(msg)
