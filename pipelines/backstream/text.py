"""Format texts for people, print and log them, and list the formats of outputs."""

from __future__ import annotations

import json
import logging
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, TextIO


def share_text(part: float, whole: float = 1) -> str:
    """Return the share as text, such as `94.2 %`.

    A positive share is never rounded to 0 %, and a share other than all never to 100 %. Without a whole the text
    is `-`.
    """
    if not whole:
        return "-"
    share = round(part / whole, 3)
    if share in (0, 1) and part not in (0, whole):
        return "< 0.1 %" if share == 0 else f"{'>' if part < whole else '<'} {99.9 if part < whole else 100.1} %"
    return f"{share * 100:,.1f}".removesuffix(".0") + " %"


def count_of(count: int, one: str, many: str | None = None) -> str:
    """Return a count with its noun: `1 file`, `1,484 files`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def align_cells(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Return a line per row, in columns with two spaces between them; hidden characters are visible.

    Args:
        rows: the cells of each row; all rows have the same number.
        right: the numbers of the columns that are aligned to the right.
    """
    rows = [[visible_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


_HIDDEN = ("Cc", "Cf", "Zl", "Zp")
"""Unicode categories of characters without a shape: controls, directions, and separators of lines."""


_MAX_LINE = 300
"""The most characters of a value in a line: the id of a Dag run has up to 250."""


def visible_text(text: str, kept: str = "\n\t") -> str:
    """Return the text with each hidden character as its code point, such as `<U+202E>`, apart from the kept ones.

    Such a character in data can reverse, hide, or overwrite other text on a page or in a terminal.
    """
    if text.isprintable():
        return text
    return "".join(
        f"<U+{ord(char):04X}>" if char not in kept and unicodedata.category(char) in _HIDDEN else char
        for char in text
    )


def visible_line(text: str, limit: int = _MAX_LINE) -> str:
    """Return a value such as a reason, a name, or a key as one short line; its line breaks are visible too."""
    line = visible_text(text[: limit + 1], kept="")
    return line if len(text) <= limit else f"{line[:limit]}.."


def print_text(*texts: object, end: str = "\n", file: TextIO | None = None, flush: bool = False) -> None:
    """Print texts for people, in which hidden characters are visible."""
    print(visible_text(" ".join(map(str, texts))), end=end, file=file, flush=flush)


class TextLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger whose messages have visible characters only, wherever a handler writes them."""

    def log(self, level: int, msg: object, *args: object, **options: Any) -> None:
        """Log a message with its arguments; numbers stay numbers."""
        if self.isEnabledFor(level):
            options["stacklevel"] = options.get("stacklevel", 1) + 1
            super().log(level, visible_text(str(msg)), *map(_visible_argument, args), **options)


def text_logger(name: str) -> TextLogger:
    """Return the logger of a module."""
    return TextLogger(logging.getLogger(name), {})


def _visible_argument(value: object) -> object:
    if isinstance(value, int | float):
        return value
    if isinstance(value, Mapping):
        return {name: _visible_argument(each) for name, each in value.items()}
    return visible_text(str(value))


def describe_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return a line per key with different values, sorted by key, such as `window.size: "1h" -> "2h"`.

    The value of a missing key is `absent`.
    """
    before, after = (
        {key: json.dumps(value, ensure_ascii=False) for key, value in list_values(content)}
        for content in (old, new)
    )
    changed = sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
    return [f"{key}: {before.get(key, 'absent')} -> {after.get(key, 'absent')}" for key in changed]


def list_values(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted keys of a definition with their values, e.g., `source.sources[0].path`.

    A list is a value, unless it is a list of tables.
    """
    for key, value in content.items():
        if isinstance(value, Mapping) and value:
            yield from list_values(value, f"{prefix}{key}.")
        elif isinstance(value, list) and value and all(isinstance(each, Mapping) for each in value):
            yield from list_values({f"{key}[{at}]": each for at, each in enumerate(value)}, prefix)
        else:
            yield f"{prefix}{key}", value


class ReadingEngine(StrEnum):
    """An engine that can read a published table."""

    SPARK = "spark"
    TRINO = "trino"
    DUCKDB = "duckdb"
    POLARS = "polars"
    CLICKHOUSE = "clickhouse"
    PYICEBERG = "pyiceberg"


class RowFormat(StrEnum):
    """An output format of rows."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    """One JSON object per line."""
    ARROW = "arrow"
    """An Arrow stream, for programs."""


class ReportFormat(StrEnum):
    """An output format of reports."""

    HTML = "html"
    """The report page, one self-contained file."""
    MD = "md"
    """Markdown for a pull request or a chat."""
    JSON = "json"
