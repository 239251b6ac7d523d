"""Define the form of text files by the options of Spark's reader."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from dataclasses import dataclass, field

from backstream.native.preparation.csv_lines import CsvForm

_UTF8 = "utf-8"


@dataclass(frozen=True, slots=True)
class TextForm:
    """The form of the text files of a source.

    `encoding` is a codec of Python, and `line_separator` is empty for the usual newlines. `records` are the names
    from a JSON value down to the array of its records.
    """

    format: str
    encoding: str = _UTF8
    line_separator: str = ""
    is_multi_line: bool = False
    has_header: bool = False
    records: tuple[str, ...] = ()
    csv: CsvForm = field(default_factory=CsvForm)

    @classmethod
    def from_options(cls, format_name: str, options: Mapping[str, str], records: str | None = None) -> TextForm:
        """Return the form of a source with options of Spark's reader, and the path of the records in a value."""
        lower = {name.lower(): value for name, value in options.items()}
        separator = lower.get("linesep", "")
        return cls(
            format_name,
            codecs.lookup(lower.get("encoding", lower.get("charset", _UTF8))).name,
            "" if separator in ("\n", "\r\n", "\r") else separator,
            lower.get("multiline", "").lower() == "true",
            format_name == "csv" and lower.get("header", "").lower() == "true",
            tuple(records.split(".")) if records else (),
            CsvForm.from_options(lower),
        )

    @property
    def is_whole(self) -> bool:
        """True if a file is parsed as a whole, because a record can have several lines."""
        return self.format == "json" and (self.is_multi_line or bool(self.records))

    @property
    def is_rewritten(self) -> bool:
        """True if each file is rewritten, so that Spark reads lines of UTF-8."""
        return self.is_whole or self.encoding != _UTF8 or bool(self.line_separator)
