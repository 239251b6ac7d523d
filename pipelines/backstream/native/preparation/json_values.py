"""Find the JSON values of a text, and keep each as it is written.

Spark's reader parses the first value of a line, and ignores what follows it. So lines with more than one value are
split before Spark reads them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

_DECODER = json.JSONDecoder(parse_int=str, parse_float=str)
"""It finds the end of a value. Numbers stay text, because Python limits the length of integers."""
_SEPARATORS = re.compile(r"[\s,\x1e]*")
"""Characters between values: space, commas, and the record separator of RFC 7464."""
_SPACE = re.compile(r"\s*")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|[{}\[\]]', re.DOTALL)
_PAIR = re.compile(r"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class JsonTextError(ValueError):
    """A text is no JSON; `position` is the first character that cannot be read."""

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(reason)
        self.position = position


@dataclass(frozen=True, slots=True)
class JsonSpan:
    """The position of a value in a text; `is_record` means that it is an object, or may be one."""

    start: int
    end: int
    is_record: bool = True


def split_json_line(line: str) -> list[str] | None:
    """Return the values of a line; None if something else than values and separators stands on it.

    A line that is no complete JSON value is returned as it is: Spark's reader refuses it.
    """
    values: list[str] = []
    position = _end_of(_SEPARATORS, line, 0)
    while position < len(line):
        end = _find_end(line, position) if line[position] in "{[" else None
        if end is None:
            return None if values else [line]
        values.append(line[position:end])
        position = _end_of(_SEPARATORS, line, end)
    return values


def is_one_value(line: str) -> bool:
    """Return whether a line is empty, or one JSON value, or one that Spark's reader refuses."""
    values = split_json_line(line) if line.strip() else [""]
    return values is not None and len(values) == 1 and line.lstrip().startswith(values[0].lstrip())


def is_strict(value: str) -> bool:
    """Return whether a text is one value of strict JSON, which has no line break within a text."""
    try:
        return _DECODER.raw_decode(value)[1] == len(value)
    except (ValueError, RecursionError):
        return False


def has_lone_surrogate(text: str) -> bool:
    r"""Return whether JSON has an escape such as `\ud800` that is no character without a second one."""
    return _SURROGATE.search(text) is not None and _SURROGATE.search(_PAIR.sub("", text)) is not None


def find_records(text: str, field: Sequence[str]) -> Iterator[JsonSpan]:
    """Yield the records of a text: its objects, the elements of its arrays, or those of arrays in a field.

    Args:
        text: JSON values, one after the other, each in as many lines as it has.
        field: the names from a value down to the array of its records; empty if the values are the records.

    Raises:
        JsonTextError: where the text cannot be read.
    """
    position = _end_of(_SEPARATORS, text, 0)
    while position < len(text):
        if field:
            yield from _records_in_field(text, position, field)
            end = _require_end(text, position)
        elif text[position] == "[":
            end = yield from _elements(text, position)
        else:
            end = _require_end(text, position)
            yield JsonSpan(position, end, text[position] == "{")
        position = _end_of(_SEPARATORS, text, end)


def _records_in_field(text: str, start: int, field: Sequence[str]) -> Iterator[JsonSpan]:
    """Yield the records in a field of the value at a position; a value without the field is no record."""
    position = start
    for name in field:
        found = _find_field(text, position, name)
        if found is None:
            yield JsonSpan(start, _require_end(text, start), is_record=False)
            return
        position = found
    if text[position : position + 1] == "[":
        yield from _elements(text, position)
    else:
        end = _require_end(text, position)
        yield JsonSpan(position, end, text[position] == "{")


def _find_field(text: str, start: int, name: str) -> int | None:
    """Return the position of the value of a field of an object; None if it has none, or is no object."""
    if text[start : start + 1] != "{":
        return None
    position = _end_of(_SPACE, text, start + 1)
    while text[position : position + 1] == '"':
        try:
            key, position = _DECODER.raw_decode(text, position)
        except ValueError as error:
            raise JsonTextError(str(error), position) from None
        position = _require_character(text, position, ":")
        if key == name:
            return position
        position = _end_of(_SPACE, text, _require_end(text, position))
        if text[position : position + 1] != ",":
            break
        position = _end_of(_SPACE, text, position + 1)
    return None


def _elements(text: str, start: int) -> Generator[JsonSpan, None, int]:
    """Yield the elements of the array at a position, and return its end."""
    position = _end_of(_SPACE, text, start + 1)
    while text[position : position + 1] != "]":
        end = _require_end(text, position)
        yield JsonSpan(position, end, text[position] == "{")
        position = _end_of(_SPACE, text, end)
        if text[position : position + 1] != "]":
            position = _require_character(text, position, ",")
    return position + 1


def _require_character(text: str, position: int, character: str) -> int:
    """Return the position of the next value after a character that must follow."""
    position = _end_of(_SPACE, text, position)
    if text[position : position + 1] != character:
        msg = f"{character!r} expected, got {text[position : position + 20]!r}"
        raise JsonTextError(msg, position)
    return _end_of(_SPACE, text, position + 1)


def _require_end(text: str, start: int) -> int:
    end = _find_end(text, start)
    if start == len(text):
        msg = "it ends within a value"
        raise JsonTextError(msg, start)
    if end is None:
        msg = f"a value has no end: {text[start : start + 60]!r}"
        raise JsonTextError(msg, start)
    return end


def _find_end(text: str, start: int) -> int | None:
    """Return the end of the value at a position; of a value that is no strict JSON, the end of its brackets."""
    try:
        return _DECODER.raw_decode(text, start)[1]
    except (ValueError, RecursionError):
        depth = 0
    for token in _TOKEN.finditer(text, start):
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(token[0], 0)
        if depth <= 0:
            return token.end() if token.start() > start else None
    return None


def _end_of(pattern: re.Pattern[str], text: str, position: int) -> int:
    match = pattern.match(text, position)
    return match.end() if match else position
