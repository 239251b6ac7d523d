"""Parse lines of CSV, and find those that Spark could read in another way.

A line is parsed if it has as many cells as the file has columns, if quotes enclose whole cells, and if each cell
is the usual text of its type. All cells are read as text first: Arrow accepts other numbers than Spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from backstream.native.preparation.exact_lines import find_unusual_numbers, is_inexact_number
from backstream.native.preparation.kinds import DOUBLE, INTEGERS, list_leaves
from backstream.native.preparation.lines import Lines
from backstream.native.preparation.task import (
    Piece,
    TextSpec,
    UnusualFileError,
    UnusualLinesError,
    UnusualRowsError,
)
from backstream.native.preparation.text_check import is_utf8
from backstream.source.inexact_numbers import doubtful_pattern

_NEWLINE, _TAB, _SPACE = b"\n\t "
_INTEGER, _NUMBER = "^-?[0-9]{1,18}$", r"^-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?$"
"""The numbers that Spark's reader and Arrow parse alike."""
_OTHER_CELLS = "a line has other cells than the columns"


class CsvLines:
    """Parser of the lines of a CSV file with the declared columns; a column that the file lacks is null."""

    def __init__(self, spec: TextSpec, piece: Piece) -> None:
        self._form, self._separator = spec.form.csv, ord(spec.form.csv.separator)
        self._count = len(piece.columns)
        spellings = {name.lower(): f"f{at}" for at, name in enumerate(piece.columns)}
        self._names = {name: spellings.get(name.lower()) for name in spec.kinds}
        self._kinds = {leaf[0]: kind for leaf, kind in list_leaves(spec.kinds)}
        self._exact = {leaf[0] for leaf in spec.payload.values()}
        self._line = self._quoted_line()

    def _quoted_line(self) -> str:
        """Return the pattern of a line with quotes that Arrow and Spark read alike."""
        quote, separator = re.escape(self._form.quote), re.escape(self._form.separator)
        is_doubled = self._form.escape == self._form.quote
        inner = f"(?:[^{quote}]|{quote}{quote})*" if is_doubled else f"[^{quote}{re.escape(self._form.escape)}]*"
        cell = f"(?:{quote}{inner}{quote}|[^{quote}{separator}]*)"
        return f"^{cell}(?:{separator}{cell}){{{self._count - 1}}}$"

    def select(self, lines: Lines, keep: Callable[[Lines, np.ndarray, str], Lines]) -> Lines:
        """Return the lines that `parse` may read.

        Args:
            lines: the lines.
            keep: returns the lines with true values, and sets the others apart with a reason.

        Raises:
            UnusualFileError: if a line can be read with other options only, which Spark's preparation explains.
        """
        is_plain = self._find_plain(lines)
        kept = keep(lines, is_plain, _OTHER_CELLS)
        for line in () if is_plain.all() else lines.select(~is_plain):
            if self._is_doubled_only(line.decode(errors="replace")):
                msg = "quotes within quotes are doubled"
                raise UnusualFileError(msg)
        return kept

    def _is_doubled_only(self, line: str) -> bool:
        """Return whether a line can be read only if quotes within quotes are doubled."""
        if not self._form.is_doubled(line):
            return False
        block = f"{line}\n".encode()
        return not self._form.find_readable(block, np.array([0]), np.array([len(block) - 1]))[0]

    def _find_plain(self, lines: Lines) -> np.ndarray:
        """Return for each line whether it has a cell per column, in UTF-8 without control characters."""
        if not len(lines):
            return np.ones(0, bool)
        data = np.frombuffer(lines.block, np.uint8)
        is_text: np.ndarray = data[lines.starts] > _SPACE
        is_control = (data < _SPACE) & (data != _NEWLINE) & (data != _TAB)
        if is_control.any():
            is_text &= self._count_in(lines, is_control) == 0
        if not lines.block.isascii() and not is_utf8(lines.block):
            is_text &= np.array([is_utf8(line) for line in lines])
        has_cells: np.ndarray = self._count_in(lines, data == self._separator) == self._count - 1
        if (quote := self._form.quote.encode()) in lines.block:
            rows = np.flatnonzero(self._count_in(lines, data == quote[0]) > 0)
            texts = pa.array([line.decode(errors="replace") for line in lines.select(rows)])
            has_cells[rows] = pc.match_substring_regex(texts, self._line)
        is_plain: np.ndarray = is_text & has_cells
        return is_plain

    @staticmethod
    def _count_in(lines: Lines, is_counted: np.ndarray) -> np.ndarray:
        """Return how many bytes of each line are counted."""
        total = np.cumsum(is_counted, dtype=np.int32)
        counts: np.ndarray = total[lines.ends] - total[lines.starts] + is_counted[lines.starts]
        return counts

    def parse(self, lines: Lines) -> pa.Table:
        """Return a row per line, with the declared columns in one chunk each.

        Args:
            lines: lines that `select` returns; at least one.

        Raises:
            UnusualRowsError: if Spark could read lines in another way.
            UnusualLinesError: if this is so, and the lines are not known.
        """
        content = lines.content
        names = [f"f{at}" for at in range(self._count)]
        wanted = [name for name in self._names.values() if name is not None]
        try:
            table = pcsv.read_csv(
                pa.BufferReader(content),
                pcsv.ReadOptions(use_threads=False, block_size=len(content) + 1, column_names=names),
                pcsv.ParseOptions(
                    delimiter=self._form.separator,
                    quote_char=self._form.quote,
                    double_quote=self._form.escape == self._form.quote,
                    escape_char=False,
                    newlines_in_values=False,
                ),
                pcsv.ConvertOptions(
                    check_utf8=False,
                    column_types=dict.fromkeys(names, pa.string()),
                    null_values=[""],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=True,
                    include_columns=wanted,
                ),
            )
        except pa.ArrowInvalid as error:
            raise UnusualLinesError(str(error)) from None
        if table.num_rows != len(lines):
            msg = "a line is not one record"
            raise UnusualLinesError(msg)
        texts = {
            name: pa.nulls(len(lines), pa.string()) if own is None else table[own].combine_chunks()
            for name, own in self._names.items()
        }
        return pa.table({name: self._convert(name, each) for name, each in texts.items()})

    def _convert(self, name: str, texts: pa.StringArray) -> pa.Array:
        """Return the values of a column; those of timestamps and strings are texts.

        Raises:
            UnusualRowsError: if Spark could read values in another way, or refuses them.
        """
        kind = self._kinds[name]
        if kind in INTEGERS:
            return _to_integers(name, texts, kind)
        if kind == DOUBLE:
            return _to_doubles(name, texts, is_counted=name in self._exact)
        if kind == "boolean":
            lower = pc.utf8_lower(texts)
            is_true = pc.equal(lower, "true")
            _require(pc.or_(is_true, pc.equal(lower, "false")), f"a value of {name} is no boolean")
            return is_true
        return texts


def _to_integers(name: str, texts: pa.StringArray, kind: str) -> pa.Array:
    _require(pc.match_substring_regex(texts, _INTEGER), f"a value of {name} is no usual integer")
    values = texts.cast(pa.int64())
    width = INTEGERS[kind].bit_width
    if width < 64:  # noqa: PLR2004 - the bits of `bigint`
        limit = 2 ** (width - 1)
        is_within = pc.and_(pc.greater_equal(values, -limit), pc.less(values, limit))
        _require(is_within, f"a value of {name} is too large")
    return values.cast(INTEGERS[kind])


def _to_doubles(name: str, texts: pa.StringArray, *, is_counted: bool) -> pa.Array:
    _require(pc.match_substring_regex(texts, _NUMBER), f"a value of {name} is no usual number")
    if is_counted and (pattern := doubtful_pattern(DOUBLE)):
        doubtful = np.flatnonzero(pc.match_substring_regex(texts, pattern).fill_null(fill_value=False))
        found = texts.take(pa.array(doubtful))
        inexact = [row for row in find_unusual_numbers(found) if is_inexact_number(found[row].as_py())]
        if inexact:
            is_inexact = np.zeros(len(texts), bool)
            is_inexact[doubtful[inexact]] = True
            msg = f"a number of {name} has more digits than a double"
            raise UnusualRowsError(msg, is_inexact)
    return texts.cast(pa.float64())


def _require(is_usual: pa.BooleanArray, reason: str) -> None:
    """Check that all values that are not null are usual."""
    values = np.asarray(is_usual.fill_null(fill_value=True))
    if not values.all():
        raise UnusualRowsError(reason, ~values)
