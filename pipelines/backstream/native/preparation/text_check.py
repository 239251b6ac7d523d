"""Check that Spark's readers find each record of a text file, and rewrite files of which they would lose some.

Spark replaces bytes that are not in the encoding, ignores what follows a JSON value on its line, and reads quotes
that are not closed up to the next ones. A file without such lines is read where it is. Of any other file, a copy
in UTF-8 is written with one record per line, and a second file with the lines that hold no record.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import BinaryIO, Self

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from backstream.native.preparation.csv_lines import DOUBLED_QUOTE, CsvTextError
from backstream.native.preparation.json_values import (
    JsonTextError,
    find_records,
    has_lone_surrogate,
    is_one_value,
    is_strict,
    split_json_line,
)
from backstream.native.preparation.line_blocks import open_stream, read_line_blocks
from backstream.native.preparation.lines import Lines
from backstream.native.preparation.task import Piece, RewrittenText, UnusualFileError
from backstream.native.preparation.text_form import TextForm

_WIDE = re.compile(r"utf-(16|32)")
"""Encodings in which a newline has more than one byte."""
_MARKS = {codecs.BOM_UTF32_LE: "UTF-32", codecs.BOM_UTF16_LE: "UTF-16", codecs.BOM_UTF16_BE: "UTF-16"}
_COMPRESSED = {
    b"\x1f\x8b": ("gzip", ".gz"),
    b"\x28\xb5\x2f\xfd": ("Zstandard", ".zst"),
    b"BZh": ("bzip2", ".bz2"),
}
"""First bytes of compressed files, of which Spark would read the compressed bytes."""
_HEAD_BYTES = 4_096
_OPEN, _CLOSE = b"{}"
_TEXT_BYTES = 4 * 2**20


class TextFileError(Exception):
    """The reason why a text file cannot be read as its options say."""


def is_ordinary(piece: Piece, form: TextForm, limit: int | None = None) -> bool:
    """Return whether Spark reads each record of a piece of a text file as it is written.

    Args:
        piece: the piece.
        form: the form of the file.
        limit: the number of lines after which the check may end.

    Raises:
        TextFileError: if the file cannot be read in this form.
        ArrowException, OSError, EOFError: if it is damaged.
    """
    if not piece.start:
        require_encoding(piece, form)
    if form.is_rewritten:
        return False
    if form.is_multi_line:
        return piece.start > 0 or _is_ordinary_csv(piece, form)  # the first piece stands for the whole file
    count = 0
    try:
        for block in read_line_blocks(piece):
            lines, in_block = Lines.from_block(block)
            if not (is_utf8(block) and _find_ordinary_lines(lines, form).all()):
                return False
            count += in_block
            if limit is not None and count >= limit:
                break
    except UnusualFileError:  # a line is very long
        return False
    return True


def require_encoding(piece: Piece, form: TextForm) -> None:
    """Check by the first bytes of a file that it is in the encoding of its form.

    Raises:
        TextFileError: if it is in another one, or compressed.
        ArrowException, OSError, EOFError, zlib.error: if it is damaged.
    """
    with open_stream(piece) as stream:
        head = stream.read(_HEAD_BYTES)
    if compression := next((name for magic, name in _COMPRESSED.items() if head.startswith(magic)), None):
        name, suffix = compression
        is_twice = piece.path.endswith(suffix)
        remedy = "twice: decompress it once" if is_twice else f"and its name does not end with {suffix}: rename it"
        msg = f"it is compressed with {name}{' ' if is_twice else ', '}{remedy}"
        raise TextFileError(msg)
    mark = next((name for mark, name in _MARKS.items() if head.startswith(mark)), None)
    is_wide = _WIDE.match(form.encoding)
    if mark is None and not is_wide and head.count(0) * 3 > len(head) and 0 in (head[:1] + head[1:2]):
        mark = "UTF-16LE" if head[1:2] == b"\0" else "UTF-16BE"
    if mark and not is_wide:
        msg = f'its encoding is {mark}: set source.options.encoding = "{mark}"'
        raise TextFileError(msg)
    if form.encoding in ("utf-16", "utf-32") and head and mark is None:
        name = form.encoding.upper()
        msg = f'it has no byte order mark: set source.options.encoding = "{name}LE" or "{name}BE", not "{name}"'
        raise TextFileError(msg)


def _is_ordinary_csv(piece: Piece, form: TextForm) -> bool:
    """Return whether Spark finds the records of a file in which they can have several lines.

    Spark takes the first line break as the end of each record, even if it is within quotes.
    """
    with open_stream(piece) as stream:
        content = stream.read()
    newlines = {b"\r\n": content.count(b"\r\n"), b"\n": content.count(b"\n"), b"\r": content.count(b"\r")}
    if newlines[b"\r"] and not newlines[b"\r\n"] == newlines[b"\n"] == newlines[b"\r"]:
        return False
    try:
        form.csv.require_closed_quotes(StringIO(content.decode(), newline=""))
    except UnicodeDecodeError:
        return False
    except CsvTextError as error:
        raise _quote_error(error, form) from None
    return True


def _quote_error(error: CsvTextError, form: TextForm) -> TextFileError:
    advice = "; for doubled quotes within quotes, set source.options.escape = '\"'"
    return TextFileError(
        f"a quote in line {error.line:,} is not closed before a separator ({error})"
        f"{'' if form.csv.escape == form.csv.quote else advice}"
    )


def _find_ordinary_lines(lines: Lines, form: TextForm) -> np.ndarray:
    """Return for each line of valid UTF-8 whether Spark reads all of it as one record, or refuses it."""
    if form.format == "csv":
        return form.csv.find_readable(lines.block, lines.starts, lines.ends)
    data = np.frombuffer(lines.block, np.uint8)
    is_plain = (data[lines.starts] == _OPEN) & (data[lines.ends - 1] == _CLOSE)
    plain = lines.select(is_plain)
    if b"\\u" in lines.block or b"\0" in lines.block or not _are_objects(plain):
        is_plain[:] = False
    for row in np.flatnonzero(~is_plain):
        line = lines.block[lines.starts[row] : lines.ends[row]].decode()
        is_plain[row] = is_one_value(line) and not _has_no_text(line)
    result: np.ndarray = is_plain
    return result


def _are_objects(lines: Lines) -> bool:
    """Return whether Arrow finds as many JSON objects as lines that begin with `{` and end with `}`."""
    if not len(lines):
        return True
    content = lines.content
    try:
        table = pj.read_json(
            pa.BufferReader(content),
            pj.ReadOptions(use_threads=False, block_size=len(content) + 1),
            pj.ParseOptions(explicit_schema=pa.schema([]), unexpected_field_behavior="ignore"),
        )
    except pa.ArrowInvalid:
        return False
    return bool(table.num_rows == len(lines))


def rewrite_text(piece: Piece, form: TextForm, target: str, limit: int | None = None) -> RewrittenText:
    """Write the records of a text file, one per line, and its lines without a record.

    Args:
        piece: the whole file.
        form: its form.
        target: the path of the file with the records.
        limit: the number of lines after which the rest of the file may be left out.

    Raises:
        TextFileError: if the file cannot be read in this form.
        ArrowException, OSError, EOFError: if it is damaged.
    """
    require_encoding(piece, form)
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    try:
        with LineFile(target) as records, LineFile(f"{target}-rejected") as rejected:
            if form.is_whole:
                _rewrite_values(_read_text(piece, form), form, records, rejected)
            elif form.is_multi_line:
                _rewrite_text(_read_text(piece, form), form, records)
            else:
                _rewrite_lines(piece, form, records, rejected, limit)
    except UnusualFileError as error:  # a line is very long, such as one of all records without any separator
        if form.format != "json":
            raise TextFileError(str(error)) from None
        return rewrite_text(piece, replace(form, is_multi_line=True), target)
    return RewrittenText(records.path, records.numbers, rejected.path, rejected.numbers)


def _rewrite_text(text: str, form: TextForm, records: LineFile) -> None:
    """Write a CSV file whose records can have several lines."""
    try:
        form.csv.require_closed_quotes(StringIO(text, newline=""))
    except CsvTextError as error:
        raise _quote_error(error, form) from None
    content = form.csv.unify_newlines(text).encode()
    records.append_block(content, np.arange(1, content.count(b"\n") + 2))


class LineFile:
    """A file of lines with their numbers, which exists once it has a line. Its first line is empty.

    Spark would leave out a byte order mark at the start of a file.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._numbers: list[np.ndarray] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def append(self, text: str, number: int) -> None:
        """Add a line."""
        self.append_block(f"{text}\n".encode(), np.array([number]))

    def append_block(self, content: bytes, numbers: np.ndarray) -> None:
        """Add lines, each with a newline at its end."""
        if self._file is None:
            self._file = Path(self._path).open("wb")  # noqa: SIM115 - it is closed at the end of the block
            self._file.write(b"\n")
        self._file.write(content)
        self._numbers.append(numbers)

    @property
    def path(self) -> str | None:
        """The path; None without lines."""
        return None if self._file is None else self._path

    @property
    def numbers(self) -> np.ndarray:
        """The numbers of the lines."""
        return np.concatenate([np.empty(0, np.int64), *self._numbers])


def _rewrite_lines(piece: Piece, form: TextForm, records: LineFile, rejected: LineFile, limit: int | None) -> None:
    before, has_header = 0, form.has_header
    for block, undecoded in _read_utf8_blocks(piece, form):
        lines, count = Lines.from_block(block, before)
        is_decoded = ~np.isin(lines.numbers - before, undecoded)
        if has_header and len(lines):
            if not (is_decoded[0] and _find_ordinary_lines(lines.select(slice(1)), form)[0]):
                msg = f"its header cannot be read: {next(iter(lines)).decode()[:100]!r}"
                raise TextFileError(msg)
            has_header = False
        _write_lines(lines, is_decoded, form, records, rejected)
        before += count
        if limit is not None and before >= limit:
            return


def write_unusual_lines(
    content: bytes, numbers: np.ndarray, form: TextForm, records: LineFile, rejected: LineFile
) -> None:
    r"""Write lines of UTF-8 that Spark must read.

    Args:
        content: the lines, none of them empty, each with `\n` at its end; they may have other bytes.
        numbers: their numbers in the text file.
        form: the form of the file.
        records: receives lines with records.
        rejected: receives lines without a record.

    Raises:
        TextFileError: if a line of CSV can be read with another option only.
    """
    block, undecoded = _decode_lines(content, form.encoding)
    lines, _ = Lines.from_block(block)
    is_decoded = ~np.isin(lines.numbers, undecoded)
    _write_lines(replace(lines, numbers=numbers), is_decoded, form, records, rejected)


def _write_lines(
    lines: Lines, is_decoded: np.ndarray, form: TextForm, records: LineFile, rejected: LineFile
) -> None:
    is_kept = is_decoded & _find_ordinary_lines(lines, form)
    if is_kept.all() and len(lines):
        records.append_block(lines.content, lines.numbers)
        return
    for row, line in enumerate(lines):
        text, number = line.decode(), int(lines.numbers[row])
        if is_kept[row]:
            records.append(text, number)
        elif is_decoded[row]:
            _rewrite_line(text, number, form, records, rejected)
        else:
            rejected.append(text, number)


def _rewrite_line(line: str, number: int, form: TextForm, records: LineFile, rejected: LineFile) -> None:
    if form.format == "json":
        _split_line(line, number, records, rejected)
    elif form.csv.is_doubled(line):
        msg = (
            f"line {number:,} can be read only if quotes within quotes are doubled: set source.options.escape ="
            f" '{DOUBLED_QUOTE}', got {line[:100]!r}"
        )
        raise TextFileError(msg)
    else:
        rejected.append(line, number)


def _split_line(line: str, number: int, records: LineFile, rejected: LineFile) -> None:
    """Add the records of a line of JSON, or else the line itself to those without a record.

    Args:
        line: the line.
        number: its number in the text file.
        records: receives the records.
        rejected: receives the line if it has no record.
    """
    values = None if _has_no_text(line) else split_json_line(line)
    if values is None:
        rejected.append(line, number)
    for value in values or ():
        records.append(value, number)


def _has_no_text(json: str) -> bool:
    """Return whether JSON has a character that Spark replaces, or NUL, by which it guesses another encoding."""
    return "\0" in json or has_lone_surrogate(json)


def _rewrite_values(text: str, form: TextForm, records: LineFile, rejected: LineFile) -> None:
    """Write the records of JSON values that can have several lines.

    Raises:
        TextFileError: where the text is no JSON, if there are other records in it: nobody knows how many are lost.
    """
    number, counted, written = 1, 0, 0
    try:
        for span in find_records(text, form.records):
            number += text.count("\n", counted, span.start)
            counted = span.start
            value = text[span.start : span.end]
            is_broken = not span.is_record or _has_no_text(value) or not _has_one_line(value)
            (rejected if is_broken else records).append(_as_line(value), number)
            written += 1
    except JsonTextError as error:
        if written or form.records or text[error.position : error.position + 1] == "[":
            line = text.count("\n", 0, error.position) + 1
            msg = f"it is no JSON in line {line:,}: {error}"
            raise TextFileError(msg) from None
        rejected.append(_as_line(text.strip()), text.count("\n", 0, error.position) + 1)


def _has_one_line(value: str) -> bool:
    """Return whether a value has one line, or its lines can be joined, because no text in it has several."""
    return ("\n" not in value and "\r" not in value) or is_strict(value)


def _as_line(value: str) -> str:
    return value.replace("\r", " ").replace("\n", " ")


def _read_text(piece: Piece, form: TextForm) -> str:
    """Return the content of a file, without a byte order mark.

    Raises:
        TextFileError: if it is not in the encoding.
    """
    with open_stream(piece) as stream:
        content = stream.read()
    try:
        text = content.decode(form.encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _encoding_error(line, form) from None
    return text.replace(form.line_separator, "\n") if form.line_separator else text


def _encoding_error(line: int, form: TextForm) -> TextFileError:
    return TextFileError(
        f"line {line:,} has bytes that are not {form.encoding.upper()}: set source.options.encoding to the"
        ' encoding of the file, e.g., "windows-1252"'
    )


def _read_utf8_blocks(piece: Piece, form: TextForm) -> Iterator[tuple[bytes, list[int]]]:
    """Yield the lines of a file in blocks of UTF-8, and the numbers in the block of lines with other bytes."""
    if _WIDE.match(form.encoding) or form.line_separator:
        for text in _read_decoded(piece, form):
            yield text.encode(), []
        return
    for block in read_line_blocks(piece):
        try:
            yield block.decode(form.encoding).encode(), []
        except UnicodeDecodeError:
            yield _decode_lines(block, form.encoding)


def _decode_lines(block: bytes, encoding: str) -> tuple[bytes, list[int]]:
    decoded, undecoded = [], []
    for number, line in enumerate(block.split(b"\n")[:-1], 1):
        try:
            decoded.append(line.decode(encoding))
        except UnicodeDecodeError:
            decoded.append(line.decode(encoding, "backslashreplace"))
            undecoded.append(number)
    return "".join(f"{line}\n" for line in decoded).encode(), undecoded


def _read_decoded(piece: Piece, form: TextForm) -> Iterator[str]:
    """Yield the text of a file in blocks of whole lines.

    Raises:
        TextFileError: if bytes are not in the encoding; nobody knows where the next line begins.
    """
    decoder = codecs.getincrementaldecoder(form.encoding)("strict")
    rest, lines, is_start = "", 0, True
    with open_stream(piece) as stream:
        while True:
            content = stream.read(_TEXT_BYTES)
            try:
                text = rest + decoder.decode(content, final=not content)
            except UnicodeDecodeError as error:
                decoded = rest + error.object[: error.start].decode(form.encoding, "ignore")
                raise _encoding_error(lines + decoded.count("\n") + 1, form) from None
            if is_start and text:
                text, is_start = text.removeprefix("\ufeff"), False
            if form.line_separator:
                *whole, rest = text.split(form.line_separator)
                ready = "".join(f"{line.replace(chr(10), ' ')}\n" for line in whole)
            else:
                # A `\r` at the end may belong to the next block.
                cut = text.rfind("\n") + 1
                ready, rest = text[:cut].replace("\r\n", "\n").replace("\r", "\n"), text[cut:]
            if ready:
                lines += ready.count("\n")
                yield ready
            if not content:
                if rest:
                    newline = " " if form.line_separator else "\n"
                    yield rest.replace("\r\n", newline).replace("\r", newline).replace("\n", newline) + "\n"
                return


def is_utf8(content: bytes) -> bool:
    """Return whether bytes are valid UTF-8."""
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True
