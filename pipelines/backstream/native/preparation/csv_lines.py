"""Find the lines of CSV whose quotes Spark's reader would read in another way than they are meant."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_SPACE = ord(" ")
_ONLY_CONTROL = re.compile(r"[\x00-\x20]*")
DOUBLED_QUOTE = '"'
"""The value of `escape` with which a quote within quotes is written twice."""


class CsvTextError(ValueError):
    """A file of CSV cannot be read; `line` counts from 1."""

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(reason)
        self.line = line


@dataclass(frozen=True)
class CsvForm:
    """The characters of a CSV file with a meaning; empty if there is none."""

    separator: str = ","
    quote: str = '"'
    escape: str = "\\"
    comment: str = ""

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> CsvForm:
        """Return the form by the options of Spark's reader, whose names are in lower case."""
        separator = options.get("sep", options.get("delimiter", ",")).replace("\\t", "\t")
        quote, escape, comment = options.get("quote", '"'), options.get("escape", "\\"), options.get("comment", "")
        return cls(separator, *(text.strip("\0") for text in (quote, escape, comment)))

    def header(self, columns: Sequence[str]) -> str:
        """Return the line with the names of columns, which `reason_against_names` accepts."""
        return self.separator.join(columns)

    def reason_against_names(self, columns: Sequence[str]) -> str | None:
        """Return why a header needs Spark's reader; None if its names stand in it as they are."""
        special = (self.separator, self.quote, "\n", "\r")
        if any(name != name.strip() or any(each in name for each in special if each) for name in columns):
            return "its header has names with quotes or separators"
        return None

    @cached_property
    def _cell(self) -> str:
        quote, escape = re.escape(self.quote), re.escape(self.escape)
        inner = f"[^{quote}]|{quote}{quote}"
        if self.escape and self.escape != self.quote:
            inner = f"[^{quote}{escape}]|{escape}."
        others = f"[^{re.escape(self.separator)}]"
        plain = f"[^{quote}{re.escape(self.separator)}]"
        return f"(?:{quote}(?:{inner})*{quote} *|(?:{plain}{others}*)?)"

    @cached_property
    def _line(self) -> str:
        """The pattern of a line whose quoted cells end before a separator; RE2 and Python read it alike."""
        return f"(?:{self._cell}{re.escape(self.separator)})*{self._cell}"

    def find_readable(self, block: bytes, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Return for each line of a block whether Spark's reader finds the cells that are written in it.

        Args:
            block: valid UTF-8.
            starts: the positions of the first bytes of the lines.
            ends: those of their newlines.
        """
        is_readable = self._find_visible(block, starts, ends)
        if self.comment:
            is_comment = np.frombuffer(block, np.uint8)[starts] == self.comment.encode()[0]
        else:
            is_comment = np.zeros(len(starts), bool)
        if self.quote and self.quote.encode() in block and len(self.separator) == 1:
            offsets = np.append(starts, ends[-1:] + 1).astype(np.int32)
            buffers = [None, pa.py_buffer(offsets), pa.py_buffer(block)]
            lines = pc.utf8_rtrim(pa.Array.from_buffers(pa.string(), len(starts), buffers), "\n")
            is_quoted = pc.match_substring(lines, self.quote)
            is_readable &= np.asarray(
                pc.match_substring_regex(pc.if_else(is_quoted, lines, ""), f"^(?:{self._line})$")
            )
        result: np.ndarray = is_readable | is_comment
        return result

    def _find_visible(self, block: bytes, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Return for each line whether Spark's reader sees it; it leaves out lines of control characters.

        Lines of spaces and tabs have no record, unless one of them is the separator.
        """
        data = np.frombuffer(block, np.uint8)
        is_visible: np.ndarray = data[starts] > _SPACE
        for row in np.flatnonzero(~is_visible):
            text = block[starts[row] : ends[row]].decode().rstrip("\r")
            is_blank = self.separator not in text and not text.strip(" \t")
            is_visible[row] = is_blank or _ONLY_CONTROL.fullmatch(text) is None
        return is_visible

    def is_doubled(self, line: str) -> bool:
        """Return whether a line is readable if a quote within quotes is written twice, and only then."""
        is_possible = self.quote * 2 in line or f"{self.escape}{self.quote}" in line
        if not self.quote or self.escape == self.quote or not is_possible:
            return False
        doubled = CsvForm(self.separator, self.quote, self.quote, self.comment)
        return re.fullmatch(doubled._line, line) is not None

    def unify_newlines(self, text: str) -> str:
        r"""Return a text whose records end with `\n`; line breaks within quotes stay as they are."""
        quote, escape = re.escape(self.quote), re.escape(self.escape)
        inner = (
            f"[^{quote}]|{quote}{quote}" if self.escape in ("", self.quote) else f"[^{quote}{escape}]|{escape}."
        )
        quoted = f"(?:(?<={re.escape(self.separator)})|(?<=[\r\n])|^){quote}(?:{inner})*{quote}|" if quote else ""
        pattern = re.compile(f"{quoted}(?P<newline>\r\n?)", re.DOTALL)
        return pattern.sub(lambda match: "\n" if match["newline"] else match[0], text)

    def require_closed_quotes(self, lines: Iterable[str]) -> None:
        """Check that each quote of a file is closed before a separator or the end of a line.

        Raises:
            CsvTextError: with the line.
        """
        if len(self.separator) != 1 or not self.quote:
            return
        is_doubled = self.escape == self.quote
        reader = csv.reader(
            lines,
            delimiter=self.separator,
            quotechar=self.quote,
            doublequote=is_doubled,
            escapechar=None if is_doubled else self.escape or None,
            strict=True,
        )
        try:
            for _ in reader:
                pass
        except csv.Error as error:
            raise CsvTextError(str(error), reader.line_num) from None
