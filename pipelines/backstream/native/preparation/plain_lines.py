"""Find the lines that can be JSON objects within the limits of Spark's parser."""

from __future__ import annotations

import re

import numpy as np

from backstream.native.preparation.line_blocks import MAX_LINE_BYTES
from backstream.native.preparation.lines import Lines

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
_DEPTHS = np.array([(byte in b"{[") - (byte in b"}]") for byte in range(256)], np.int8)
"""The change of the depth by each byte."""


def find_plain_lines(lines: Lines) -> np.ndarray:
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
