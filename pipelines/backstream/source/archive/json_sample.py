"""Read a sample of JSON: objects on lines, several on a line, over several lines, or in arrays within objects."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from backstream.source.archive.encodings import is_decoded, open_decoded
from backstream.source.archive.files import Archive, ArchiveFile
from backstream.source.archive.sampled import Record, Sample, WrittenNumber

_DECODER = json.JSONDecoder(parse_float=WrittenNumber)
_SEPARATOR = re.compile(r"[\s,]*")
_MAX_DEPTH = 4
_ARRAY_NAMES = {
    *("records", "value", "values", "items", "events", "results", "data", "features", "rows", "logs"),
    *("entries", "messages", "hits", "logevents"),
}
"""Names of the arrays of records in the objects that services write, in lower case."""
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}")
_FIRST_EPOCH = 600_000_000
"""Numbers from here on can be seconds since 1970."""

RecordsPath = tuple[str, ...]


def read_json(archive: Archive, file: ArchiveFile, sample: Sample) -> Iterator[Record]:
    """Yield the objects of a file; the option `multiLine` is set if a value continues on the next line."""
    with open_decoded(archive.open(file), sample.encoding) as lines:
        numbered = enumerate(lines, 1)
        number, first = next(((at, line) for at, line in numbered if line.strip()), (1, ""))
        second = next(((at, line) for at, line in numbered if line.strip()), (number, ""))
        if _continues(first, second[1]):
            sample.options["multiLine"] = "true"
            yield from _values_over_lines(first + second[1] + lines.read(), number, file, sample)
            return
        for at, line in chain([(number, first), second], numbered):
            if not line.strip():
                continue
            values = _parse_values(line)[0] if is_decoded(line) else None
            if values is None:
                sample.add_unreadable(file.path, at, line)
            else:
                yield from values


def _continues(first: str, second: str) -> bool:
    """Return whether the first value of a file continues on its second line."""
    text = first.strip()
    if not text.startswith(("{", "[")):
        return False
    if _parse_values(text)[0] is not None:
        return text.startswith("[") and not second  # an array on one line
    return text.startswith("[") or _parse_values(second)[0] is None


def _parse_values(text: str) -> tuple[list[Record] | None, int]:
    """Return the objects of a text, also those in arrays, and the end of the last complete value.

    There are no objects, but None, if anything else is in the text.
    """
    found: list[Record] = []
    position = _skip(text, 0)
    while position < len(text):
        try:
            value, position = _DECODER.raw_decode(text, position)
        except (ValueError, RecursionError):
            return None, position
        each = value if isinstance(value, list) else [value]
        if not all(isinstance(item, dict) for item in each):
            return None, position
        found += each
        position = _skip(text, position)
    return found, position


def _skip(text: str, position: int) -> int:
    match = _SEPARATOR.match(text, position)
    return match.end() if match else position


def _values_over_lines(text: str, first_line: int, file: ArchiveFile, sample: Sample) -> Iterator[Record]:
    """Yield the objects of a text in which a value has several lines; a value that is cut ends it."""
    position = _skip(text, 0)
    while position < len(text):
        try:
            value, end = _DECODER.raw_decode(text, position)
        except (ValueError, RecursionError):
            end = len(text)
            value = None
        objects = [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, dict)]
        if value is None or not is_decoded(text[position:end]) or (value and not objects):
            line = first_line + text.count("\n", 0, position)
            sample.add_unreadable(file.path, line, text[position:end])
        else:
            yield from objects
        position = _skip(text, end)


def find_records_path(objects: Sequence[Record]) -> RecordsPath | None:
    """Return the path of the array that holds the records of all objects; None if the objects are the records."""
    found = {path for each in objects for path in _array_paths(each, ())}
    if len(found) != 1:
        return None
    path = next(iter(found))
    if not all(_has_list(each, path) for each in objects):
        return None
    if all(_is_alone(each, path) for each in objects):
        return path
    is_timed = any(_has_time(each, path) for each in objects)
    return path if path[-1].lower() in _ARRAY_NAMES and not is_timed else None


def _array_paths(value: Any, path: RecordsPath) -> Iterator[RecordsPath]:
    """Yield the paths of the arrays of objects in an object and in the objects within."""
    for name, inner in value.items() if len(path) < _MAX_DEPTH else ():
        if isinstance(inner, dict):
            yield from _array_paths(inner, (*path, name))
        elif isinstance(inner, list) and inner and all(isinstance(each, dict) for each in inner):
            yield from [(*path, name)] if "." not in name else []


def _has_list(value: Any, path: RecordsPath) -> bool:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return isinstance(value, list)


def _is_alone(value: Any, path: RecordsPath) -> bool:
    """Return whether an object has no other field than the array, or the object that holds it."""
    for name in path:
        if len(value) > 1:
            return False
        value = value[name]
    return True


def _has_time(value: Any, path: RecordsPath) -> bool:
    """Return whether an object has a time beside the array of its records."""
    for name in path:
        if any(_is_time(other) for key, other in value.items() if key != name):
            return True
        value = value[name]
    return False


def _is_time(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, str | int | WrittenNumber):
        return False
    return bool(_TIME.match(value)) if isinstance(value, str) else value >= _FIRST_EPOCH


def holds_records_by_name(value: Record) -> bool:
    """Return whether all fields of an object are records: objects with the same fields, among them a time."""
    names = {tuple(inner) if isinstance(inner, dict) else None for inner in value.values()}
    return len(value) > 1 and len(names) == 1 and all(_has_own_time(inner) for inner in value.values())


def _has_own_time(value: Any) -> bool:
    return isinstance(value, dict) and any(_is_time(inner) for inner in value.values())


def records_at(value: Record, path: RecordsPath) -> Iterator[Record]:
    """Yield the records in the array at a path of an object."""
    inner: Any = value
    for name in path:
        inner = inner[name]
    yield from (each for each in inner if isinstance(each, dict))
