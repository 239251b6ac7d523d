"""Parse JSON lines with PyArrow, and refuse whatever Spark could read in another way.

Arrow reads a sequence of objects and ignores lines. Two checks make both the same: each line begins with `{`
and ends with `}`, and there are as many objects as lines. A newline between `}` and `{` cannot be inside an object
or a string, so each line is one object.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from backstream.native.preparation.lines import Lines
from backstream.native.preparation.task import UnusualLineError, UnusualLinesError, UnusualRowsError

_NOT_A_NUMBER = {b"NaN": re.compile(rb"NaN\s*[,\]}]"), b"Inf": re.compile(rb"Inf(?:inity)?\s*[,\]}]")}
"""Words that Arrow accepts as numbers; Spark knows other spellings. Few texts contain a word of this form."""
_ROW, _VALUE = re.compile(r" in row (\d+)$"), re.compile(r"couldn't parse:(.+)$")
"""The place of an error of Arrow: the row, if it is no JSON or has another type, or else the number."""


def parse_json_lines(lines: Lines, schema: pa.Schema) -> pa.Table:
    """Return a row per line, with the columns of a schema in one chunk each; other fields are ignored.

    Args:
        lines: lines that `find_plain_lines` accepts; at least one.
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
    if not content.isascii() and not _is_utf8(content):
        msg = "a line is not valid UTF-8"
        raise UnusualRowsError(msg, np.array([not _is_utf8(line) for line in lines]))


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _locate(reason: str, content: bytes, lines: Lines) -> UnusualLinesError:
    """Return the error of Arrow with the line, or with the lines that have the value."""
    if (row := _ROW.search(reason)) and int(row[1]) < len(lines):
        return UnusualLineError(reason.removesuffix(row[0]), int(row[1]))
    if value := _VALUE.search(reason):
        number = re.compile(rb"(?<![-+.\w])" + re.escape(value[1].encode()) + rb"(?![-+.\w])")
        if positions := [match.start() for match in number.finditer(content)]:
            return UnusualRowsError(reason, lines.find_rows(positions))
    return UnusualLinesError(reason)
