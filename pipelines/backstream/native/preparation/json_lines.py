"""Parse JSON lines, and find those that Spark could read in another way."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from backstream.native.preparation.exact_lines import ExactLines
from backstream.native.preparation.kinds import arrow_schema
from backstream.native.preparation.line_blocks import MAX_LINE_BYTES
from backstream.native.preparation.lines import Lines
from backstream.native.preparation.task import TextSpec, UnusualLineError, UnusualLinesError, UnusualRowsError
from backstream.native.preparation.text_check import is_utf8

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


class JsonLines:
    """Parser of JSON lines with the declared columns."""

    def __init__(self, spec: TextSpec) -> None:
        self._schema, self._exact_lines = arrow_schema(spec.kinds), ExactLines(spec)

    def select(self, lines: Lines, keep: Callable[[Lines, np.ndarray, str], Lines]) -> Lines:
        """Return the lines that `parse` may read.

        Args:
            lines: the lines.
            keep: returns the lines with true values, and sets the others apart with a reason.
        """
        plain = keep(lines, _find_plain_lines(lines), "a line is no ordinary JSON object")
        return keep(plain, self._exact_lines.find(plain), _INEXACT)

    def parse(self, lines: Lines) -> pa.Table:
        """Return a row per line, with the declared columns in one chunk each; other fields are ignored.

        Args:
            lines: lines that `select` returns; at least one.

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
                pj.ParseOptions(explicit_schema=self._schema, unexpected_field_behavior="ignore"),
            )
        except pa.ArrowInvalid as error:
            raise _locate(str(error), content, lines) from None
        if table.num_rows != len(lines):
            msg = "a line is not one JSON object"
            raise UnusualLinesError(msg)
        return table


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
