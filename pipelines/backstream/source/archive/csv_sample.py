"""Read a sample of CSV: find its separator, quotes, and header, and type each column by all of its cells."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from backstream.errors import PlanError
from backstream.source.archive.encodings import is_decoded, open_decoded, split_lines
from backstream.source.archive.files import Archive, ArchiveFile
from backstream.source.archive.sampled import Record, Sample, Value, WrittenNumber
from backstream.source.header_names import name_header

_SNIFFED_CHARACTERS = 65_536
_SNIFFED_ROWS = 100
_SEPARATOR_LINE = re.compile("sep=.", re.IGNORECASE)
_SEPARATORS = (",", "\t", ";", "|", "\x01")
_INTEGER = re.compile(r"-?(0|[1-9]\d*)", re.ASCII)
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+([eE][+-]?\d+)?|[eE][+-]\d+)?", re.ASCII)
"""A number as programs write it. `1e5`, `0012`, and `+49` are codes, since a number would lose their digits."""
_MAX_DIGITS = 4_000
_LIKE_A_DATE = re.compile(r"[+-]?\d+([.,:/\- T]+\d+)+\D?\Z")
_COMMENT = "#"
_WORD = re.compile(r"[^\W\d][\w.-]*")


@dataclass(frozen=True, slots=True)
class _Dialect:
    """The separator and the quotes of a CSV file."""

    separator: str
    quote: str = '"'
    escape: str | None = None
    """The character before a quote within quotes; None if the quote is doubled."""

    def rows(self, lines: Iterable[str]) -> Any:
        """Return the reader of the rows, which counts lines."""
        return csv.reader(lines, delimiter=self.separator, quotechar=self.quote, escapechar=self.escape)

    def options(self) -> dict[str, str]:
        """Return the options of Spark's reader; the separator is always there."""
        return {"sep": self.separator, **({"quote": self.quote} if self.quote != '"' else {})}


def read_csv(archive: Archive, file: ArchiveFile, sample: Sample) -> Iterator[Record]:
    """Yield the rows of a file by the names of its columns; cells are text.

    The options of the sample are completed: by the first file the separator, quotes, and header, and by each row
    what Spark needs for its quotes and line breaks.

    Raises:
        PlanError: when the first line is for Excel only, or the header is not in the encoding of the source.
    """
    with open_decoded(archive.open(file), sample.encoding, newline="") as text:
        head = text.read(_SNIFFED_CHARACTERS)
        first = head.lstrip("\ufeff").partition("\n")[0].strip()
        if _SEPARATOR_LINE.fullmatch(first):
            msg = (
                f"the first line of {file.path} is {first!r} (--from), which only Excel takes for the separator;"
                " a run reads it as a record\n\nhint: remove this line from the files, e.g., by sed -i 1d"
            )
            raise PlanError(msg)
        if not sample.columns:
            _detect_layout(head, sample)
        dialect = _Dialect(
            sample.options["sep"],
            sample.options.get("quote", '"'),
            "\\" if sample.options.get("escape") == "\\" else None,
        )
        comment = sample.options.get("comment")
        rows = dialect.rows(_without_comments(_lines_of(head, text), comment))
        columns = sample.columns
        if "header" in sample.options:
            header: list[str] = next((row for row in rows if row), [])
            if not all(map(is_decoded, header)):
                msg = f"the header of {file.path} is not in {sample.encoding} (--from)\n\nhint: convert the file"
                raise PlanError(msg)
            sample.options |= _quoting_options(header, dialect)
            columns = name_header(header)  # files can have their columns in another order
            sample.columns += tuple(name for name in columns if name not in sample.columns)
        for row in rows:
            if row and len(row) == len(columns) and all(map(is_decoded, row)):
                sample.options |= _quoting_options(row, dialect)
                if len(row) > 1 or row[0].strip():
                    yield {name: cell or None for name, cell in zip(columns, row, strict=True)}
            elif row:
                sample.add_unreadable(file.path, rows.line_num, dialect.separator.join(row))


def _lines_of(head: str, rest: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a text of which the begin has been read already."""
    *lines, last = split_lines(head) or [""]
    yield from lines
    rest = iter(rest)
    yield last if last.endswith("\n") else last + next(rest, "")
    yield from rest


def _without_comments(lines: Iterable[str], comment: str | None) -> Iterator[str]:
    """Yield the lines, with an empty one in place of a comment, so that their numbers stay."""
    for line in lines:
        yield "\n" if comment and line.startswith(comment) else line


def _quoting_options(row: Sequence[str], dialect: _Dialect) -> dict[str, str]:
    """Return the options that Spark needs for quotes, backslashes, and line breaks in cells."""
    text = "".join(row)
    is_doubled = dialect.escape is None and (dialect.quote in text or "\\" in text)
    return ({"escape": dialect.quote} if is_doubled else {}) | ({"multiLine": "true"} if "\n" in text else {})


def _detect_layout(head: str, sample: Sample) -> None:
    """Set the separator, the quotes, the comments, the header, and the columns by the first lines of a file."""
    lines = split_lines(head)
    if len(head) >= _SNIFFED_CHARACTERS:
        lines = lines[:-1] or lines
    comments = sum(line.startswith(_COMMENT) for line in lines)
    leading = next((at for at, line in enumerate(lines) if not line.startswith(_COMMENT)), 0)
    has_comments = 0 < comments == leading
    commented, lines = (lines[:leading], lines[leading:]) if has_comments else ([], lines)
    dialect = max(_dialects(lines), key=lambda each: _fitness(each, lines))
    sample.options |= dialect.options()
    if dialect.escape:
        sample.options["escape"] = dialect.escape
    rows = [row for row in islice(dialect.rows(lines), _SNIFFED_ROWS) if row]
    first, rest = (rows[0], [row for row in rows[1:] if len(row) == len(rows[0])]) if rows else ([], [])
    if not _is_header(first, rest) and (names := _names_in_comment(commented, dialect, len(first))):
        first, commented = names, []
    if commented:
        sample.options["comment"] = _COMMENT
    if _is_header(first, rest):
        sample.options["header"] = "true"
        sample.columns = name_header(first)
    else:
        sample.columns = tuple(f"column_{number}" for number in range(1, len(first) + 1))


def _names_in_comment(comments: Sequence[str], dialect: _Dialect, width: int) -> list[str]:
    """Return the cells of a single comment that is the header, such as `#id,time`; else none."""
    cells: list[str] = next(dialect.rows(comments), []) if len(comments) == 1 else []
    is_header = 1 < len(cells) == width and all(_WORD.fullmatch(cell.strip(f"{_COMMENT} \r")) for cell in cells)
    return cells if is_header else []


def _dialects(lines: Sequence[str]) -> Iterator[_Dialect]:
    """Yield the dialects that are possible; a later one must fit better than those before it."""
    text = "".join(lines[:_SNIFFED_ROWS])
    for separator in _SEPARATORS:
        if separator in text or separator == ",":
            yield _Dialect(separator)
            if '\\"' in text:
                yield _Dialect(separator, escape="\\")
            if re.search(f"(^|{re.escape(separator)})'[^'\n]*'({re.escape(separator)}|\\s*$)", text, re.MULTILINE):
                yield _Dialect(separator, quote="'")


def _fitness(dialect: _Dialect, lines: Sequence[str]) -> tuple[bool, float, bool, int]:
    """Return how well a dialect fits: rows of one length, no quotes left in cells, many columns."""
    try:
        rows = [row for row in islice(dialect.rows(lines), _SNIFFED_ROWS) if row]
    except csv.Error:
        return False, 0.0, False, 0
    lengths = Counter(map(len, rows))
    width, count = lengths.most_common(1)[0] if lengths else (0, 0)
    share = count / max(1, len(rows))
    left = sum(cell[:1] in "\"'" and cell[:1] == cell[-1:] for row in rows for cell in row if len(cell) > 1)
    left += sum('"' in cell and dialect.escape is None and cell.endswith('"') for row in rows for cell in row)
    return width > 1, round(share, 1), not left, width


def _is_header(first: Sequence[str], rest: Sequence[Sequence[str]]) -> bool:
    """Return whether the first row has the names of the columns: it is text, and unlike the rows below.

    Names can be empty or repeated if the cells below one of them are all numbers or times.
    """
    named = [cell for cell in first if cell.strip()]
    if not named or any(_is_typed(cell) for cell in named):
        return False
    cells = [{row[at] for row in rest} for at in range(len(first))]
    recurring = [cell in below for cell, below in zip(first, cells, strict=True) if cell.strip()]
    if any(recurring) and not all(recurring):
        return False
    if len({name.lower() for name in named}) == len(first):
        return True
    below = [column - {""} for column in cells]
    return any(column and all(map(_is_typed, column)) for column in below) or all(map(_WORD.fullmatch, named))


def _is_typed(cell: str) -> bool:
    """Return whether a cell is a number, a boolean, or like a date or a time."""
    is_value = _NUMBER.fullmatch(cell) or _LIKE_A_DATE.match(cell) or cell.lower() in _BOOLEANS
    return bool(is_value) or (cell[:1].isdigit() and not _WORD.search(cell))


_BOOLEANS = {"true": True, "false": False}


def typed_cells(records: Sequence[Record]) -> list[Record]:
    """Return the records with the cells of each column as numbers or booleans if all cells are written as such."""
    columns: dict[str, None] = dict.fromkeys(name for record in records for name in record)
    typed: Mapping[str, dict[str, Value]] = {
        name: _values_by_cell({record.get(name) for record in records}) for name in columns
    }
    return [
        {name: typed[name].get(cell, cell) if isinstance(cell, str) else cell for name, cell in record.items()}
        for record in records
    ]


def _values_by_cell(cells: Iterable[Value]) -> dict[str, Value]:
    """Return the value of each cell of a column; empty for text.

    Numbers of which two are equal and written differently, such as `1.1` and `1.10`, are codes.
    """
    texts = [cell for cell in cells if isinstance(cell, str)]
    if all(text.lower() in _BOOLEANS for text in texts):
        return {text: _BOOLEANS[text.lower()] for text in texts}
    if any(len(text) > _MAX_DIGITS for text in texts):
        return {}
    if all(_INTEGER.fullmatch(text) for text in texts):
        numbers: dict[str, Value] = {text: int(text) for text in texts}
    elif all(_NUMBER.fullmatch(text) for text in texts):
        numbers = {text: WrittenNumber(text) for text in texts}
    else:
        return {}
    return numbers if len(set(numbers.values())) == len(numbers) else {}
