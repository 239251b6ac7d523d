"""Write random files of each format with other libraries, mutate their bytes, and read them with plain Python.

The plain readers share no code with backstream: `json` and `csv`; `random_tables` has those of other formats.
"""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import io
import json
import math
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa

Row = tuple[Any, Any, Any, Any]
"""The id, the key, the amount as text, and the event time in microseconds since 1970."""
FIRST = datetime(2024, 3, 1, tzinfo=UTC)
COLUMNS = ("id", "k", "amount", "ts")
_CANONICAL = re.compile(r"2024-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z")
_JUNK = (
    "",
    "yesterday",
    "2024-02-30T00:00:00Z",
    "08:00",
    "2024",
    "-1",
    "2024-03-01T25:00:00Z",
    "T08:00:00",
    "2024-03",
)
_KEYS = ("a", "b", "caf\u00e9", "\u4e2d", "x y", "", 'say "hi"', "back\\slash", "}{", "tab\there", "\U0001f600")
_PALETTE = [bytes([each]) for each in b'{}[],:"\n\r\t 0159eE.-+xTZ'] + [
    b"\xff",
    b"\xc3",
    b"\0",
    b"}{",
    b'""',
    b"\\",
]


@dataclass(frozen=True, slots=True)
class Expected:
    """The content of a file for a plain reader.

    `rows` are the records that must be read, and `reasons` has the numbers of those that must not. The reading of
    `unclear` ones is a matter of opinion, such as a time with a missing digit, but each must be counted. A file
    that is `refused` has no clear records; one that is not `intact` may be refused. With `other_types`, the damage
    has changed the type of a column.
    """

    rows: Counter[Row] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    unclear: int = 0
    is_refused: bool = False
    is_intact: bool = False
    has_other_types: bool = False

    @property
    def total(self) -> int:
        """The number of all records."""
        return sum(self.rows.values()) + self.unreadable + self.unclear

    @property
    def unreadable(self) -> int:
        """The number of the records that must not be read."""
        return sum(self.reasons.values())


UNKNOWN = Expected(unclear=10**9)
"""The content of a file of which the number of records is a matter of opinion."""
Verdict = Row | str | None
"""A row that must be read, `unclear`, the reason of an unreadable record, or None for a malformed one."""


def count_verdicts(verdicts: Iterable[Verdict]) -> Expected:
    """Return the content of a file by the verdicts over its records."""
    each = list(verdicts)
    rows = Counter(verdict for verdict in each if isinstance(verdict, tuple))
    reasons = Counter(verdict or "malformed_record" for verdict in each if not isinstance(verdict, tuple))
    unclear = reasons.pop("unclear", 0)
    return Expected(rows, reasons, unclear)


@dataclass(frozen=True)
class Source:
    """A kind of source: its definition, the writer of a file, and the plain reader of its bytes."""

    name: str
    keys: str
    suffix: str
    write: Callable[[random.Random], bytes]
    read: Callable[[bytes], Expected]
    is_mutated: bool = True

    def __str__(self) -> str:
        """Return the name."""
        return self.name


def describe(found: Expected, rows: Counter[Row] | None, reasons: Counter[str] | None = None) -> str | None:
    """Return how a preparation differs from a plain reader; None if it does not. Without rows, it was refused."""
    if rows is None:
        return "an intact file is refused" if found.is_intact else None
    reasons = reasons or Counter()
    unreadable = sum(reasons.values())
    if found.is_refused:
        return f"a file that cannot be read gave {sum(rows.values())} records and {unreadable} unreadable ones"
    if missing := found.rows - rows:
        others = (rows - found.rows).most_common(3)
        return f"records are missing: {dict(missing.most_common(3))}; others: {dict(others)}"
    if sum(rows.values()) + unreadable != found.total:
        return f"{sum(rows.values())} + {unreadable} records instead of {found.total}"
    # As all counts are equal, an unreadable record that is read is missing among the reasons.
    is_equal = not found.reasons - reasons and (found.unclear or reasons == found.reasons)
    return None if is_equal else f"the reasons are {dict(reasons)} instead of {dict(found.reasons)}"


def normalized(identity: Any, key: Any, amount: Any, micros: Any) -> Row:
    """Return a row with the exact amount as text, so that NaN equals NaN, and 1 equals 1.0."""
    if amount is not None:
        is_plain = math.isfinite(amount) and amount != 0
        amount = str(Fraction(amount)) if is_plain else repr(float(amount))
    return identity, key, amount, micros


def record(generator: random.Random) -> dict[str, Any]:
    """Return a record, some values of which are null, junk, or of another type."""
    at = FIRST + timedelta(milliseconds=generator.randrange(3 * 86_400_000))
    text = at.isoformat(timespec=generator.choice(["seconds", "milliseconds", "microseconds"]))
    values: dict[str, Any] = {
        "id": generator.choice([generator.randrange(100), 2**53 + 1, -(2**63), 2**63 - 1, 0]),
        "k": generator.choice(_KEYS),
        "amount": generator.choice([0, 1.5, -3, 0.1, 1e300, generator.random(), 12345678901234]),
        "ts": text.replace("+00:00", "Z"),
    }
    if generator.random() < 0.05:
        values["ts"] = generator.choice(_JUNK)
    if generator.random() < 0.05:
        values[generator.choice(COLUMNS)] = None
    return values


# --- JSON


def json_lines(generator: random.Random) -> bytes:
    """Return lines of JSON with other spaces, separators, and types from record to record."""
    parts = []
    for _ in range(generator.randrange(1, 12)):
        values: dict[str, Any] = record(generator)
        if generator.random() < 0.05:
            values[generator.choice(COLUMNS)] = generator.choice([1.5, "5", True, [1], {"a": None}, 2**63, 1e5])
        if generator.random() < 0.2:
            values["more"] = generator.choice([[1, {"a": "}{"}], {"k": "inner"}, None, "\\", 10**40])
        text = json.dumps(values, ensure_ascii=generator.random() < 0.5)
        newline = generator.choice(["\n"] * 8 + ["\r\n", "\n\n", "", ",", ",\n", " \n"])
        parts.append(text + newline)
    return "".join(parts).encode()


class Number(str):
    """The text of a number of JSON."""

    __slots__ = ()


_DECODER = json.JSONDecoder(parse_float=Number, parse_int=Number)


def read_json_lines(content: bytes) -> Expected:
    """Read each line of JSON as objects in a row, or as one unreadable record."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return Expected(is_refused=True)
    verdicts: list[Verdict] = []
    for line in re.split(rb"\r\n|\n|\r", _without_marks(content)):
        if not line.strip(b" \t\n\r\x0b\x0c"):
            continue
        found = _read_line(line)
        if found == [None] and re.search(rb"\}\s*,?\s*[{\[]", line):
            return UNKNOWN  # a part of the line may be readable, or not
        verdicts += found
    return count_verdicts(verdicts)


def _without_marks(content: bytes) -> bytes:
    """Return the content without byte order marks: the readers skip a doubled one, too."""
    while content.startswith(codecs.BOM_UTF8):
        content = content.removeprefix(codecs.BOM_UTF8)
    return content


def _read_line(line: bytes) -> list[Verdict]:
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return [None]
    values: list[Any] = []
    position = len(text) - len(text.lstrip(" ,\t\r\x0b\x0c"))
    if position == len(text):
        return [] if "," in text[1:] or text.startswith(",") else [None]
    while position < len(text):
        try:
            value, position = _DECODER.raw_decode(text, position)
        except ValueError:
            return [None]
        if not isinstance(value, dict | list):
            return [None]
        values += value if isinstance(value, list) else [value]
        position += len(text[position:]) - len(text[position:].lstrip(" ,\t\r\x0b\x0c"))
    if not all(isinstance(value, dict) for value in values):
        return ["unclear" if len(values) == 1 else None]
    return [_read_object(value) for value in values]


def _read_object(values: Mapping[str, Any]) -> Verdict:
    identity, key, amount, ts = (values.get(name) for name in COLUMNS)
    if any(isinstance(each, bool | dict | list) for each in (key, ts)):
        return "unclear"
    if isinstance(identity, Number):
        if not re.fullmatch(r"-?\d+", identity) or not -(2**63) <= int(identity) < 2**63:
            return None
        identity = int(identity)
    elif identity is not None:
        return None
    if isinstance(amount, Number):
        amount = float(amount)
    elif isinstance(amount, float):  # NaN and infinity
        return "unclear"
    elif amount is not None:
        return None
    return read_row(identity, None if key is None else str(key), amount, ts)


def read_row(identity: Any, key: Any, amount: Any, ts: Any) -> Verdict:
    """Return the verdict over a record whose time is a text."""
    if ts is None:
        return "null_event_time"
    if str(ts) in _JUNK:
        return "unparsable_event_time"
    if isinstance(ts, Number) or not _CANONICAL.fullmatch(ts):
        return "unclear"
    try:
        at = datetime.fromisoformat(ts)
    except ValueError:
        return "unparsable_event_time"
    if amount is not None and math.isinf(amount):
        return "unclear"
    return normalized(identity, key, amount, (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1))


def json_document(generator: random.Random) -> bytes:
    """Return records in arrays, or one after the other, each in several lines."""
    records = [record(generator) for _ in range(generator.randrange(1, 8))]
    indent = generator.choice([None, 1, 4])
    if generator.random() < 0.5:
        return json.dumps(records, indent=indent).encode()
    return (
        generator.choice(["\n", " ", "", ",\n"]).join(json.dumps(each, indent=indent) for each in records).encode()
    )


def read_json_document(content: bytes) -> Expected:
    """Read values of JSON one after the other; what cannot be read makes the file unclear."""
    return _sum(_elements(content))


def json_envelopes(generator: random.Random) -> bytes:
    """Return arrays of records in a field of an object, as AWS CloudTrail writes them."""
    return "\n".join(
        json.dumps({"v": 1, "Records": [record(generator) for _ in range(generator.randrange(4))], "w": [{}]})
        for _ in range(generator.randrange(1, 3))
    ).encode()


def read_json_envelopes(content: bytes) -> Expected:
    """Read the records in the field `Records` of each object."""
    return _sum(_elements(content), "Records")


def _elements(content: bytes) -> list[Any] | None:
    try:
        text, position, values = content.decode().removeprefix("\ufeff"), 0, []
        while position < len(text):
            if text[position] in " \t\r\n,":
                position += 1
                continue
            value, position = _DECODER.raw_decode(text, position)
            values.append(value)
    except ValueError:
        return None
    return values


def _sum(values: list[Any] | None, field_name: str | None = None) -> Expected:
    if values is None or (field_name and not all(isinstance(each, dict) for each in values)):
        return UNKNOWN
    inner = [value.get(field_name, 0) if field_name else value for value in values]
    records = [each for value in inner for each in (value if isinstance(value, list) else [value])]
    return count_verdicts(_read_object(each) if isinstance(each, dict) else None for each in records)


# --- CSV


def csv_writer(**dialect: Any) -> Callable[[random.Random], bytes]:
    """Return a writer of CSV with the dialect of Python's `csv`, and the keys `header` and `encoding`."""
    has_header, encoding = dialect.pop("header", True), dialect.pop("encoding", "utf-8")

    def write(generator: random.Random) -> bytes:
        text = io.StringIO(newline="")
        lines = generator.choice(["\n", "\n", "\r\n"])
        dialect["quoting"] = generator.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
        writer = csv.writer(text, lineterminator=lines, **dialect)
        order = generator.sample(COLUMNS, 4) if has_header else COLUMNS
        if has_header:
            writer.writerow(order)
        for _ in range(generator.randrange(12)):
            values = record(generator)
            values["k"] = "".join(each for each in values["k"] or "" if _is_in(each, encoding)) or "k"
            writer.writerow([values[name] for name in order])
            if generator.random() < 0.03:
                text.write(generator.choice(["\n", "only one\n", "a,b,c,d,e,f\n", "1;2;3;4;5\n", "\t\t\t\t\t\n"]))
        return text.getvalue().encode(encoding)

    return write


def _is_in(character: str, encoding: str) -> bool:
    return character.encode(encoding, "ignore") != b"" and character != "\t"


def csv_reader(
    *, header: bool = True, encoding: str = "utf-8", is_multi_line: bool = False, delimiter: str = ","
) -> Callable[[bytes], Expected]:
    """Return a reader of CSV in which quotes within quotes are doubled."""

    def read(content: bytes) -> Expected:
        is_whole = encoding == "utf-16" or is_multi_line
        try:
            text = content.decode(encoding, "strict" if is_whole else "surrogateescape").removeprefix("\ufeff")
            if text.startswith("\ufeff"):  # a doubled mark is a part of the first name or cell, or skipped
                return UNKNOWN
            lines = _read_csv_lines(text, delimiter, is_multi_line=is_multi_line)
        except (UnicodeError, csv.Error):
            return Expected(is_refused=True)
        if encoding == "utf-8" and content.startswith((b"\xff\xfe", b"\xfe\xff")):
            return Expected(is_refused=True)
        columns: Sequence[str] = COLUMNS
        if header and lines:
            columns = [cell.strip().lower() for cell in lines.pop(0) or [_NO_TEXT]]
            if len({*columns}) < len(columns) or not {*COLUMNS} <= {*columns} or _NO_TEXT in "".join(columns):
                return UNKNOWN
        return count_verdicts(_read_cells(columns, cells) for cells in lines)

    return read


_NO_TEXT = "\udcff"


def _read_csv_lines(text: str, delimiter: str, *, is_multi_line: bool) -> list[list[str] | None]:
    if is_multi_line:
        found: list[list[str] | None] = [
            *csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        ]
    else:
        found = [_read_csv_line(line, delimiter) for line in re.split(r"\r\n|\n|\r", text)]
    return [cells for cells in found if cells != []]


def _read_csv_line(line: str, delimiter: str) -> list[str] | None:
    if not line.strip(" \t") and delimiter not in line:
        return []
    try:
        return next(csv.reader([line], delimiter=delimiter, strict=True), [])
    except csv.Error:
        return None


def _read_cells(columns: Sequence[str], cells: list[str] | None) -> Verdict:
    if cells is None or len(cells) != len(columns) or any("\udc80" <= each <= "\udcff" for each in "".join(cells)):
        return None
    if any(ord(each) < 32 or ord(each) == 127 for each in "".join(cells)):
        return "unclear"
    values = dict(zip(columns, cells, strict=True))
    identity: Any = values["id"]
    amount: Any = values["amount"]
    if identity:
        if not re.fullmatch(r"[+-]?[0-9]+", identity) or not -(2**63) <= int(identity) < 2**63:
            return None
        identity = int(identity)
    if amount:
        if not re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", amount):
            return "unclear" if re.search(r"[0-9a-zA-Z]", amount) else None
        amount = float(amount)
    return read_row(
        None if identity == "" else identity,
        values["k"] or None,
        None if amount == "" else amount,
        values["ts"] or None,
    )


# --- files


def mutate(generator: random.Random, content: bytes) -> bytes:
    """Return content with some bytes cut, doubled, inserted, or in another encoding."""
    for _ in range(generator.choice([1, 1, 1, 2, 5])):
        start = generator.randrange(len(content) + 1)
        end = min(len(content), start + generator.choice([1, 1, 2, 5, 40]))
        match generator.randrange(6):
            case 0:
                content = content[:start] + content[end:]
            case 1:
                content = content[:end] + content[start:]
            case 2 | 3:
                content = content[:start] + generator.choice(_PALETTE) + content[start:]
            case 4:
                content = content[:start]
            case _:
                encoding = generator.choice(["utf-16", "latin-1", "utf-8-sig"])
                content = content.decode("utf-8", "replace").encode(encoding, "replace")
    return content


_COMPRESS: Mapping[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": lambda content: pa.compress(content, codec="zstd", asbytes=True),
}


def write_files(
    folder: Path, source: Source, generator: random.Random, count: int
) -> dict[str, tuple[bytes, Expected]]:
    """Write files of a source into a folder, and return their content with the expected records by path."""
    folder.mkdir(parents=True)
    found = {}
    for number in range(count):
        content = source.write(generator)
        intact = source.read(content)
        is_mutated = source.is_mutated and generator.random() < 0.7
        if is_mutated:
            content = mutate(generator, content)
        expected = source.read(content) if is_mutated else intact
        if not is_mutated:
            expected = replace(expected, is_intact=True)
        elif expected.has_other_types:  # the whole source would be refused, because no type unites them
            continue
        is_text = source.suffix in (".json", ".csv")
        compression = generator.choice(["", "", *_COMPRESS]) if is_text else ""
        path = folder / f"{number:04}{source.suffix}{compression}"
        path.write_bytes(_COMPRESS[compression](content))
        found[str(path)] = content, expected
    return found


_TEXT = 'columns = { id = "bigint", k = "string", amount = "double", ts = "string" }\n'
_DOUBLED = "escape = '\"'"
SOURCES = [
    Source("lines", f'format = "json"\n{_TEXT}', ".json", json_lines, read_json_lines),
    Source(
        "documents",
        f'format = "json"\noptions = {{ multiLine = "true" }}\n{_TEXT}',
        ".json",
        json_document,
        read_json_document,
    ),
    Source(
        "envelopes", f'format = "json"\nrecords = "Records"\n{_TEXT}', ".json", json_envelopes, read_json_envelopes
    ),
    Source(
        "csv",
        f'format = "csv"\noptions = {{ header = "true", {_DOUBLED} }}\n{_TEXT}',
        ".csv",
        csv_writer(),
        csv_reader(),
    ),
    Source(
        "tabs",
        f'format = "csv"\noptions = {{ sep = "\\t", {_DOUBLED} }}\n{_TEXT}',
        ".csv",
        csv_writer(header=False, delimiter="\t"),
        csv_reader(header=False, delimiter="\t"),
    ),
    Source(
        "western",
        'format = "csv"\n'
        f'options = {{ header = "true", sep = ";", encoding = "windows-1252", {_DOUBLED} }}\n{_TEXT}',
        ".csv",
        csv_writer(delimiter=";", encoding="cp1252"),
        csv_reader(delimiter=";", encoding="cp1252"),
    ),
    Source(
        "wide",
        f'format = "csv"\noptions = {{ header = "true", encoding = "UTF-16", {_DOUBLED} }}\n{_TEXT}',
        ".csv",
        csv_writer(encoding="utf-16"),
        csv_reader(encoding="utf-16"),
    ),
    Source(
        "cells with lines",
        f'format = "csv"\noptions = {{ header = "true", multiLine = "true", {_DOUBLED} }}\n{_TEXT}',
        ".csv",
        csv_writer(),
        csv_reader(is_multi_line=True),
    ),
]
