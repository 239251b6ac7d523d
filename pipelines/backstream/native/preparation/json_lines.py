"""Parse JSON lines with PyArrow, and refuse whatever Spark could read in another way.

Arrow reads a sequence of objects and ignores lines. These checks make both the same: each line begins with `{`
and ends with `}`, and there are as many objects as lines. A newline between `}` and `{` cannot be inside an object
or a string, so each line is one object.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from backstream.native.preparation.line_blocks import MAX_LINE_BYTES
from backstream.native.preparation.task import UnusualInputError

_LONG_LINE_BYTES = 1_000
"""Jackson, the parser of Spark, limits the length of numbers and the depth of nesting to this number."""
_MAX_OPENED = 900
"""Number of braces and brackets that a long line can open, whether they are nested or not."""
_DIGITS = 64
"""Number of adjacent digits in a long line that can belong to a number that is too long."""
_NEWLINE, _OPEN, _CLOSE, _OPEN_LIST, _ZERO, _NINE = b"\n{}[09"
_NOT_A_NUMBER = {b"NaN": re.compile(rb"NaN\s*[,\]}]"), b"Inf": re.compile(rb"Inf(?:inity)?\s*[,\]}]")}
"""Words that Arrow accepts as numbers; Spark knows other spellings. Few texts contain a word of this form."""


def parse_json_lines(block: bytes, schema: pa.Schema) -> pa.Table:
    """Return a row per line, with the columns of a schema in one chunk each; other fields are ignored.

    Raises:
        UnusualInputError: with the reason, if Spark could read a line in another way.
    """
    lines = _require_plain_lines(block)
    try:
        table = pj.read_json(
            pa.BufferReader(block),
            pj.ReadOptions(use_threads=False, block_size=len(block) + 1),
            pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except pa.ArrowInvalid as error:
        raise UnusualInputError(str(error)) from None
    if table.num_rows != lines:
        _refuse("a line is not one JSON object")
    return table


def _require_plain_lines(block: bytes) -> int:
    """Return the number of lines of a block that is valid UTF-8, and in which Arrow sees the lines of Spark."""
    data = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(data == _NEWLINE)
    is_framed = data[0] == _OPEN and (data[ends - 1] == _CLOSE).all() and (data[ends[:-1] + 1] == _OPEN).all()
    if not is_framed or b"\r" in block:
        _refuse("a line does not begin with { and end with }")
    # Python finds a single byte much faster than a word.
    if any(word[:1] in block and pattern.search(block) for word, pattern in _NOT_A_NUMBER.items()):
        _refuse("a number is not finite")
    if not block.isascii():
        try:
            block.decode()
        except UnicodeDecodeError:
            _refuse("a line is not valid UTF-8")
    longest = max(int(ends[0]) + 1, int(np.diff(ends).max(initial=0)))
    if longest > _LONG_LINE_BYTES:
        _require_limits(data, ends, longest)
    return len(ends)


def _require_limits(data: np.ndarray, ends: np.ndarray, longest: int) -> None:
    """Check lines that could exceed a limit of Spark's parser; the check can refuse others, too."""
    if longest > MAX_LINE_BYTES:
        _refuse(f"a line is longer than {MAX_LINE_BYTES:,} bytes")
    opened = np.cumsum((data == _OPEN) | (data == _OPEN_LIST), dtype=np.int64)[ends]
    if np.diff(opened, prepend=0).max() > _MAX_OPENED:
        _refuse("a line has too many braces and brackets")
    # A number of 1,000 characters has more than 200 digits in a row, and so all of an aligned block.
    is_digit = (data - _ZERO <= _NINE - _ZERO)[: len(data) // _DIGITS * _DIGITS]
    if is_digit.reshape(-1, _DIGITS).all(axis=1).any():
        _refuse("a number is too long")


def _refuse(reason: str) -> None:
    raise UnusualInputError(reason)
