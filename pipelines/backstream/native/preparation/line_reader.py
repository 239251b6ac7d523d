"""Read the lines of a piece, and set those apart that Spark must read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from backstream.native.preparation.exact_lines import ExactLines
from backstream.native.preparation.line_blocks import MAX_LINE_BYTES, read_line_blocks
from backstream.native.preparation.lines import Lines
from backstream.native.preparation.pieces import estimate_bytes
from backstream.native.preparation.rows import RowMaker
from backstream.native.preparation.task import (
    Piece,
    RewrittenText,
    UnusualFileError,
    UnusualLineError,
    UnusualLines,
    UnusualLinesError,
    UnusualRowsError,
)
from backstream.native.preparation.text_check import (
    LineFile,
    TextFileError,
    TextForm,
    is_utf8,
    require_encoding,
    split_line,
)
from backstream.source.files import read_error_text

_PARTS, _MAX_PART_LINES = 8, 16
"""Lines with an unusual one are divided into parts until a part has few lines; Spark reads all of these."""
_FREE_LINES, _FREE_BYTES, _MAX_SHARE = 10, 65_536, 0.05
"""Above this share of unusual lines, Spark reads the whole file; some lines and bytes are always accepted."""
_ATTEMPT_BYTES, _FREE_ATTEMPTS, _MAX_ATTEMPTS = 65_536, 200, 2
"""An attempt costs as much as these bytes. Attempts are limited to this number, and this multiple of the piece."""
_LONG_LINE_BYTES = 1_000
"""Jackson, the parser of Spark, limits the length of numbers and the depth of nesting to this number."""
_MAX_DEPTH, _MAX_NUMBER_BYTES = 900, 900
_MAX_NAME_BYTES = 45_000
"""Jackson limits names to 50,000 characters."""
_DIGITS = 64
"""Number of adjacent digits in a long line that can belong to a number that is too long."""
_OPEN, _CLOSE, _OPEN_LIST, _ZERO, _NINE = b"{}[09"
_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_NAME_END = re.compile(rb"[ \t]*:")
_LONG_NUMBER = re.compile(rb"[-+.0-9eE]{%d}" % _MAX_NUMBER_BYTES)
_INEXACT = "a number has more digits than a double"
_NOT_A_NUMBER = {b"NaN": re.compile(rb"NaN\s*[,\]}]"), b"Inf": re.compile(rb"Inf(?:inity)?\s*[,\]}]")}
"""Words that Arrow accepts as numbers; Spark knows other spellings. Few texts contain a word of this form."""
_ROW, _VALUE = re.compile(r" in row (\d+)$"), re.compile(r"couldn't parse:(.+)$")
"""The place of an error of Arrow: the row, if it is no JSON or has another type, or else the number."""
_DEPTHS = np.array([(byte in b"{[") - (byte in b"}]") for byte in range(256)], np.int8)
"""The change of the depth by each byte."""


class LineReader:
    """Reader of one piece."""

    def __init__(self, piece: Piece, maker: RowMaker, schema: pa.Schema) -> None:
        self._piece, self._maker, self._schema = piece, maker, schema
        self._exact_lines = ExactLines(maker.spec)
        self._unusual: list[bytes] = []
        self._numbers: list[int] = []
        self._bytes_left = _FREE_BYTES + int(_MAX_SHARE * estimate_bytes(piece))
        self._attempt_bytes_left = _FREE_ATTEMPTS * _ATTEMPT_BYTES + _MAX_ATTEMPTS * estimate_bytes(piece)
        self._reason = ""
        self.lines = 0

    def prepared_tables(self) -> Iterator[pa.Table]:
        """Yield the prepared rows of the ordinary lines, and count all lines.

        Raises:
            UnusualFileError: with the reason, if Spark must read the whole file.
        """
        try:
            if not self._piece.start:
                require_encoding(self._piece, TextForm("json"))
            for block in read_line_blocks(self._piece):
                lines, count = Lines.from_block(block, self.lines)
                self.lines += count
                plain = self._keep(lines, _find_plain_lines(lines), "a line is no ordinary JSON object")
                yield from self._parse(self._keep(plain, self._exact_lines.find(plain), _INEXACT))
        except (pa.ArrowException, OSError) as error:
            raise UnusualFileError(read_error_text(error)) from None
        except TextFileError as error:
            raise UnusualFileError(str(error)) from None
        if len(self._numbers) > _FREE_LINES + _MAX_SHARE * self.lines:
            raise UnusualFileError(self._reason)

    def write_unusual_lines(self, folder: str, attempt: str) -> UnusualLines | None:
        """Write the lines that are set apart to files with the path of the raw file and a suffix."""
        if not self._numbers:
            return None
        target = f"{folder}{self._piece.path}~{attempt}"
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        lines = b"".join(self._unusual).split(b"\n")[:-1]
        with LineFile(target) as records, LineFile(f"{target}-rejected") as rejected:
            for line, number in zip(lines, self._numbers, strict=True):
                try:
                    split_line(line.decode(), number, records, rejected)
                except UnicodeDecodeError:
                    rejected.append(line.decode(errors="backslashreplace"), number)
        return UnusualLines(
            self._piece.path,
            RewrittenText(records.path, records.numbers, rejected.path, rejected.numbers),
            len(lines),
            self._reason,
        )

    def _parse(self, lines: Lines) -> Iterator[pa.Table]:
        records: pa.Table | None = None
        while len(lines):
            try:
                if records is None:
                    records = _parse_json_lines(lines, self._schema)
                table = self._maker.prepared_rows(records, self._piece)
            except UnusualRowsError as error:
                self._count_attempt(lines if records is None else None)
                records = None if records is None else records.filter(pa.array(~error.rows))
                lines = self._keep(lines, ~error.rows, str(error))
            except UnusualLineError as error:
                lines = self._keep(lines, self._find_accepted(lines, error), str(error))
            except UnusualLinesError as error:
                self._count_attempt(lines)
                if len(lines) > _MAX_PART_LINES:
                    for part in lines.split(_PARTS):
                        yield from self._parse(part)
                else:
                    self._set_apart(lines, str(error))
                return
            else:
                yield table
                return

    def _find_accepted(self, lines: Lines, error: UnusualLineError | None) -> np.ndarray:
        """Return for each line whether Arrow accepts it, with the first error; lines are parsed once for that."""
        is_accepted, start = np.ones(len(lines), bool), 0
        while error is not None:
            self._count_attempt(lines.select(slice(start, start + error.row + 1)))
            start += error.row + 1
            is_accepted[start - 1] = False
            rest = lines.select(slice(start, None))
            try:
                if len(rest):
                    _parse_json_lines(rest, self._schema)
            except UnusualLineError as next_error:
                error = next_error
            except UnusualLinesError:  # the next attempt with all accepted lines shows it
                error = None
            else:
                error = None
        return is_accepted

    def _count_attempt(self, lines: Lines | None) -> None:
        """Count the bytes of an attempt that failed; too many are slower than Spark."""
        size_bytes = int((lines.ends - lines.starts).sum()) if lines is not None else 0
        self._attempt_bytes_left -= size_bytes + _ATTEMPT_BYTES
        if self._attempt_bytes_left < 0:
            msg = "many of its lines are unusual"
            raise UnusualFileError(msg)

    def _keep(self, lines: Lines, is_kept: np.ndarray, reason: str) -> Lines:
        """Return the lines that are kept, and set the others apart."""
        if is_kept.all():
            return lines
        self._set_apart(lines.select(~is_kept), reason)
        return lines.select(is_kept)

    def _set_apart(self, lines: Lines, reason: str) -> None:
        self._reason = self._reason or reason
        content = lines.content
        self._bytes_left -= len(content)
        if self._bytes_left < 0:
            raise UnusualFileError(self._reason)
        self._unusual.append(content)
        self._numbers += lines.numbers.tolist()


def _find_plain_lines(lines: Lines) -> np.ndarray:
    """Return for each line whether it begins with `{`, ends with `}`, and is within the limits."""
    data = np.frombuffer(lines.block, np.uint8)
    is_plain: np.ndarray = (data[lines.starts] == _OPEN) & (data[lines.ends - 1] == _CLOSE)
    lengths = lines.ends - lines.starts
    if lengths.max(initial=0) > _LONG_LINE_BYTES:
        suspects = np.flatnonzero(is_plain & _find_suspects(data, lines, lengths))
        is_plain[suspects] = [_is_within_limits(line) for line in lines.select(suspects)]
    return is_plain


def _find_suspects(data: np.ndarray, lines: Lines, lengths: np.ndarray) -> np.ndarray:
    """Return for each line whether it can exceed a limit, by fast checks that can find others, too."""
    opened = np.cumsum((data == _OPEN) | (data == _OPEN_LIST), dtype=np.int32)
    is_suspect: np.ndarray = (lengths > _MAX_NAME_BYTES) | (opened[lines.ends] - opened[lines.starts] > _MAX_DEPTH)
    # A number of 900 characters has more than 200 digits in a row, and so all of an aligned block.
    is_digit = (data - _ZERO <= _NINE - _ZERO)[: len(data) // _DIGITS * _DIGITS]
    blocks = np.flatnonzero(is_digit.reshape(-1, _DIGITS).all(axis=1))
    is_suspect[np.searchsorted(lines.ends, blocks * _DIGITS)] = True
    return is_suspect


def _is_within_limits(line: bytes) -> bool:
    """Return whether a line that is valid JSON has no name, number, or depth that is near a limit."""
    if len(line) > MAX_LINE_BYTES:
        return False
    for text in _TEXT.finditer(line):
        if text.end() - text.start() > _MAX_NAME_BYTES and _NAME_END.match(line, text.end()):
            return False
    rest = _TEXT.sub(b"", line)
    depth = np.cumsum(_DEPTHS[np.frombuffer(rest, np.uint8)], dtype=np.int32).max()
    return bool(depth <= _MAX_DEPTH) and _LONG_NUMBER.search(rest) is None


def _parse_json_lines(lines: Lines, schema: pa.Schema) -> pa.Table:
    """Return a row per line, with the columns of a schema in one chunk each; other fields are ignored.

    Args:
        lines: lines that `_find_plain_lines` accepts; at least one.
        schema: the columns.

    Raises:
        UnusualLineError: if Arrow refuses a line.
        UnusualRowsError: if Spark could read lines in another way.
        UnusualLinesError: if this is so, and the lines are not known.
    """
    content = lines.content
    _require_finite_utf8(content, lines)
    try:
        table = pj.read_json(
            pa.BufferReader(content),
            pj.ReadOptions(use_threads=False, block_size=len(content) + 1),
            pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except pa.ArrowInvalid as error:
        raise _locate(str(error), content, lines) from None
    if table.num_rows != len(lines):
        msg = "a line is not one JSON object"
        raise UnusualLinesError(msg)
    return table


def _require_finite_utf8(content: bytes, lines: Lines) -> None:
    # Python finds a single byte much faster than a word.
    patterns = [pattern for word, pattern in _NOT_A_NUMBER.items() if word[:1] in content]
    if positions := [match.start() for pattern in patterns for match in pattern.finditer(content)]:
        msg = "a number is not finite"
        raise UnusualRowsError(msg, lines.find_rows(positions))
    if not content.isascii() and not is_utf8(content):
        msg = "a line is not valid UTF-8"
        raise UnusualRowsError(msg, np.array([not is_utf8(line) for line in lines]))


def _locate(reason: str, content: bytes, lines: Lines) -> UnusualLinesError:
    """Return the error of Arrow with the line, or with the lines that have the value."""
    if (row := _ROW.search(reason)) and int(row[1]) < len(lines):
        return UnusualLineError(reason.removesuffix(row[0]), int(row[1]))
    if value := _VALUE.search(reason):
        number = re.compile(rb"(?<![-+.\w])" + re.escape(value[1].encode()) + rb"(?![-+.\w])")
        if positions := [match.start() for match in number.finditer(content)]:
            return UnusualRowsError(reason, lines.find_rows(positions))
    return UnusualLinesError(reason)
