"""Read times by patterns in Spark's notation as Spark does, and find patterns that mean something else.

Spark hands patterns to Java's `DateTimeFormatter`, and resolves strictly. Its table of letters is
https://spark.apache.org/docs/latest/sql-ref-datetime-pattern.html.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import lru_cache
from itertools import takewhile

from backstream.definition.time_texts import WHITESPACE, WrittenTime

_PART = re.compile(r"'(?:[^']|'')*'|([A-Za-z])\1*|.", re.DOTALL)
_YEAR, _MONTH, _DAY, _HOUR = "y", "ML", "d", "Hh"
_ZONES = "XxZzVO"
_LENGTHS = {
    **dict.fromkeys("dHhmsV", 2),
    **dict.fromkeys("MLzO", 4),
    **dict.fromkeys("XxZ", 5),
    "y": 10,
    "D": 3,
    "S": 9,
    "a": 1,
}
"""The letters that this module reads, and how often a letter can be repeated."""
_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
_HOURS, _MINUTES = "[+-](?:0[0-9]|1[0-8])", "[0-5][0-9]"
_REGION = "[a-z]+/[a-z0-9_+/-]+"
_ZONE_FORMS = {
    "X": f"Z|{_HOURS}(?:{_MINUTES})?",
    "XX": f"Z|{_HOURS}{_MINUTES}",
    "XXX": f"Z|{_HOURS}:{_MINUTES}",
    "XXXX": f"Z|{_HOURS}{_MINUTES}(?:{_MINUTES})?",
    "XXXXX": f"Z|{_HOURS}:{_MINUTES}(?::{_MINUTES})?",
    "x": f"[+]00|{_HOURS}(?:{_MINUTES})?",
    "xx": f"{_HOURS}{_MINUTES}",
    "xxx": f"{_HOURS}:{_MINUTES}",
    "xxxx": f"[+]0000|{_HOURS}{_MINUTES}(?:{_MINUTES})?",
    "xxxxx": f"[+]00:00|{_HOURS}:{_MINUTES}(?::{_MINUTES})?",
    **dict.fromkeys(("Z", "ZZ", "ZZZ"), f"{_HOURS}{_MINUTES}"),
    "ZZZZ": f"GMT(?:{_HOURS}:{_MINUTES})?",
    "ZZZZZ": f"Z|{_HOURS}:{_MINUTES}(?::{_MINUTES})?",
    "VV": f"Z|UTC|GMT|{_HOURS}:{_MINUTES}|{_REGION}",
    **dict.fromkeys(("z", "zz", "zzz", "zzzz"), f"UTC|GMT|{_REGION}"),
    "O": f"GMT(?:[+-][0-9]{{1,2}}(?::{_MINUTES})?)?",
    "OOOO": f"GMT(?:{_HOURS}:{_MINUTES})?",
}
"""The forms of time zones. Of the names that Spark reads with `z`, only UTC, GMT, and regions are among them."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a pattern: repeated letters, a literal text, or a bracket.

    `sections` are the numbers of the optional sections around it, from the outer one to the inner one.
    """

    text: str
    is_letters: bool = False
    is_quoted: bool = False
    sections: tuple[int, ...] = ()

    @property
    def letter(self) -> str:
        """The letter that is repeated; empty for a literal text."""
        return self.text[0] if self.is_letters else ""

    @property
    def is_bracket(self) -> bool:
        return not self.is_quoted and self.text in "[]"

    @property
    def is_zone(self) -> bool:
        """True for a time zone: letters, or the literal name of UTC."""
        return self.letter in _ZONES if self.is_letters else self.text.strip() in ("Z", "UTC", "GMT")

    @property
    def is_number(self) -> bool:
        return (
            self.letter != ""
            and self.letter in "yMLdDHhms"
            and not (self.letter in _MONTH and len(self.text) in {3, 4})
        )

    @property
    def is_fixed(self) -> bool:
        """True for a number with a fixed number of digits."""
        return self.is_number and len(self.text) == (3 if self.letter == "D" else 2)


def _parts(pattern: str) -> list[_Part]:
    quote = "" if "S" in pattern else "'"  # Spark splits patterns with fractions at quotes
    parts: list[_Part] = []
    open_sections: list[int] = []
    for number, found in enumerate(_PART.finditer(pattern)):
        text = found[0]
        if text == "[":
            open_sections.append(number)
        sections = tuple(open_sections)
        if text == "]" and open_sections:
            open_sections.pop()
        if text[0] == "'" and len(text) > 1:
            literal = text[1:-1].replace("''", quote) if len(text) > 2 else quote  # noqa: PLR2004 - two quotes
            parts.append(_Part(literal, is_quoted=True, sections=sections))
        else:
            parts.append(_Part(text, is_letters=found[1] is not None, sections=sections))
    return parts


@dataclass(frozen=True, slots=True)
class _PatternForm:
    """The form of texts with a pattern: a regular expression for Python and Java.

    `fields` are the letters of its groups. The groups of time zones have a letter of them.
    """

    expression: str
    fields: Sequence[str]
    has_zone: bool | None
    """True if texts with the pattern have a time zone; None if some of them can have one."""

    @property
    def zone_groups(self) -> list[int]:
        """The numbers of the groups with time zones, from 1."""
        return [number for number, field in enumerate(self.fields, 1) if field[0] in _ZONES]


@lru_cache
def _pattern_form(pattern: str) -> _PatternForm:
    """Return the form of a pattern that `reason_against_pattern` accepts."""
    parts = _parts(pattern)
    forms, fields = [], []
    for index, part in enumerate(parts):
        if part.is_bracket:
            forms.append("(?>(?:" if part.text == "[" else ")?)")
            continue
        form = _form(part, parts[index + 1 :])
        forms.append(form)
        if form.startswith("("):
            fields.append(part.text if part.is_letters else "Z")
    zones = [part for part in parts if part.is_zone]
    has_zone = True if any(not part.sections for part in zones) else None if zones else False
    return _PatternForm(f"(?i)^{''.join(forms)}$", tuple(fields), has_zone)


def _form(part: _Part, following: Sequence[_Part]) -> str:
    """Return the regular expression of a part: a group if it is a field of the time."""
    if not part.letter:
        literal = re.escape(part.text)
        return f"({literal})" if part.is_zone else literal
    if part.is_number:
        return _form_of_number(part, following)
    if part.letter in _MONTH:
        return f"({'|'.join(month if part.text[3:] else month[:3] for month in _MONTHS)})"
    if part.is_zone:
        return f"((?>{_ZONE_FORMS[part.text]}))"
    return "(AM|PM)" if part.letter == "a" else f"([0-9]{{1,{len(part.text)}}}+)"


def _form_of_number(part: _Part, following: Sequence[_Part]) -> str:
    """Return the regular expression of a number.

    It takes all digits, except those of the numbers with a fixed number of digits that follow directly.
    """
    count = len(part.text)
    if part.is_fixed:
        return f"([0-9]{{{count}}})"
    longest = {"yyyy": 4, "DD": 3}.get(part.text, 19)
    reserved = sum(len(each.text) for each in takewhile(lambda each: each.is_fixed, following))
    if reserved:
        return f"([0-9]{{{count},{longest}}})(?=[0-9]{{{reserved}}}(?![0-9]))"
    return f"([0-9]{{{count},{longest}}}+)" + ("(?![0-9])" if part.letter == "y" else "")


def parse_pattern(pattern: str, text: str) -> WrittenTime | None:
    """Return the instant that Spark's `try_to_timestamp` reads with a pattern; None if it cannot read the text.

    Whitespace around the text has no meaning. Unlike Spark, this reads only years from 1 to 9999. For the letter
    `z`, it reads only UTC, GMT, and regions.

    Args:
        pattern: a pattern that `reason_against_pattern` accepts.
        text: the text of a time.
    """
    form = _pattern_form(pattern.strip(WHITESPACE))
    found = re.match(form.expression, text.strip(WHITESPACE), re.ASCII)
    if found is None:
        return None
    values: dict[str, int | str] = {}
    for field, group in zip(form.fields, found.groups(), strict=True):
        if group is None:
            continue
        name, value = _field_value(field, group)
        if values.setdefault(name, value) != value:
            return None
    numbers = {name: value for name, value in values.items() if isinstance(value, int)}
    time_us = _time_us(numbers)
    if time_us is None:
        return None
    zone = values.get("zone")
    year, month, day = numbers["y"], numbers.get("M", 1), numbers.get("d", 1)
    if "D" in numbers:
        try:
            found_day = date(year, 1, 1) + timedelta(numbers["D"] - 1)
        except (ValueError, OverflowError):
            return None
        if found_day.year != year:
            return None
        month, day = found_day.month, found_day.day
    return WrittenTime.from_parts(year, month, day, time_us, None if zone is None else str(zone))


def _field_value(field: str, text: str) -> tuple[str, int | str]:
    """Return the name of a field, and its value."""
    letter = field[0]
    if letter in _ZONES:
        return "zone", _zone(text)
    if letter == "a":
        return "a", int(text.upper() == "PM")
    if letter == "S":
        return "S", int(f"{text:0<9}") // 1_000
    if text.isalpha():
        return "M", [month[:3].lower() for month in _MONTHS].index(text[:3].lower()) + 1
    value = int(text)
    return ("M" if letter == "L" else letter), value + 2_000 if field == "yy" else value


def _zone(text: str) -> str:
    """Return an offset with two digits for its hours, or a name."""
    offset = text[3:] if re.match("GMT[+-]", text, re.IGNORECASE) else text
    return re.sub(r"^([+-])([0-9])(?=:|$)", r"\g<1>0\2", offset)


_RANGES = {"H": (0, 23), "h": (1, 12), "m": (0, 59), "s": (0, 59)}


def _time_us(fields: Mapping[str, int]) -> int | None:
    """Return the microseconds since midnight; None if a field is out of range, or contradicts another one."""
    if any(name in fields and not first <= fields[name] <= last for name, (first, last) in _RANGES.items()):
        return None
    half = fields.get("a")
    hour = fields.get("H", (half or 0) * 12 + fields["h"] % 12 if "h" in fields else (half or 0) * 12)
    if half is not None and hour // 12 != half:
        return None
    if "h" in fields and hour % 12 != fields["h"] % 12:
        return None
    seconds = hour * 3_600 + fields.get("m", 0) * 60 + fields.get("s", 0)
    return seconds * 1_000_000 + fields.get("S", 0)


_DIRECTIVES = (
    "Y=yyyy y=yy m=MM d=dd e=d j=DDD b=MMM B=MMMM h=MMM H=HH I=hh M=mm S=ss f=SSSSSS L=SSS p=a z=Z Z=z %=%"
    " F=yyyy-MM-dd T=HH:mm:ss R=HH:mm D=MM/dd/yy"
)
_STRFTIME = {key: letters for key, _, letters in (each.partition("=") for each in _DIRECTIVES.split())}
"""Directives of `strftime`, with the letters of Spark."""
_OTHER_LETTERS = {
    "Y": ("y", "is the year of a week"),
    "u": ("y", "is no year for Spark"),
    "A": ("a", "is the millisecond of the day"),
    "t": ("a", "is no letter of Spark's notation"),
    "T": ("'T'", "is no letter of Spark's notation"),
    "f": ("S", "is no letter of Spark's notation"),
    "n": ("S", "is the nanosecond, which Spark does not read"),
    "k": ("H", "is an hour from 1 to 24"),
    "K": ("H", "is an hour from 0 to 11"),
}
"""Letters that mean something else, with the letter that is meant, and the reason."""


def reason_against_pattern(pattern: str) -> str | None:
    """Return why a pattern is refused, with the right one if it is known; None if it reads instants.

    The reason is the end of a sentence that begins with the pattern.
    """
    if re.search(r"%[A-Za-z]", re.sub("'[^']*'", "", pattern)):
        return _reason_against_strftime(pattern)
    if pattern.count("'") % 2:
        return "has a quote without its end"
    parts = _parts(pattern.strip(WHITESPACE))
    if reason := _reason_against_signs(parts):
        return reason
    corrected, reasons = list(parts), []
    for index in range(len(parts)):
        part, reason = _correction(corrected, index)
        if reason:
            reasons.append(f"{parts[index].text} {reason}")
            corrected[index] = part
    if reasons:
        right = "".join(map(_pattern_text, corrected))
        said = " and ".join(reasons)
        return f"is not what it seems, as {said}" + ("" if reason_against_pattern(right) else f': write "{right}"')
    return next(_list_missing(parts), None)


def _pattern_text(part: _Part) -> str:
    if part.is_quoted:
        return "'{}'".format(part.text.replace("'", "''") if part.text != "'" else "")
    return part.text


def _reason_against_strftime(pattern: str) -> str:
    translated = re.sub(r"%-?(.)|([A-Za-z]+)", _translation, pattern)
    is_known = "?" not in translated and reason_against_pattern(translated) is None
    remedy = f': write "{translated}"' if is_known else ': Spark\'s has letters, e.g., "yyyy-MM-dd HH:mm:ss"'
    return f"is in the notation of strftime{remedy}"


def _translation(found: re.Match[str]) -> str:
    return _STRFTIME.get(found[1], "?") if found[1] else f"'{found[2]}'"


def _reason_against_signs(parts: Sequence[_Part]) -> str | None:
    plain = [part.text for part in parts if not part.is_letters and not part.is_quoted]
    is_open = any(part.is_bracket and not part.sections for part in parts)
    if is_open or plain.count("[") != plain.count("]"):
        return "has a bracket without its counterpart"
    reserved = next((text for text in plain if text in "{}#"), None)
    return f"has the reserved character {reserved}: write it in quotes, '{reserved}'" if reserved else None


def _correction(parts: Sequence[_Part], index: int) -> tuple[_Part, str | None]:
    """Return the part that is meant instead of a part, and the reason; None if there is none."""
    part = parts[index]
    if not part.is_letters:
        return part, None
    letters = [each.letter for each in parts if each.is_letters]
    before = next((each.letter for each in reversed(parts[:index]) if each.is_letters), "")
    after = next((each.letter for each in parts[index + 1 :] if each.is_letters), "")
    letter, count = part.letter, len(part.text)
    right, reason = _OTHER_LETTERS.get(letter, (letter, None))
    if letter == "D" and not {*letters}.isdisjoint("MLm") and "d" not in letters:
        right, reason = "d", "is the day of the year"
    elif (
        letter == "m"
        and before not in {*"HhKk"}
        and (after in {*"yYdDu"} or before in {*"yYdDu"})
        and after != "s"
    ):
        right, reason = "M", "are minutes"
    elif (
        letter == "M" and letters.count("M") + letters.count("L") > 1 and (before in {*"HhKk"} or after in {*"sS"})
    ):
        right, reason = "m", "is the month"
    elif letter == "S" and "s" not in letters:
        right, reason = "s", "is the fraction of a second"
    elif letter == "s" and before == "s":
        right, reason = "S", "is the second again"
    elif letter == "h" and "a" not in letters:
        right, reason = "H", "is an hour from 1 to 12 without a for AM or PM"
    return replace(part, text=right * count if len(right) == 1 else right), reason


def _list_missing(parts: Sequence[_Part]) -> Iterator[str]:
    letters = {part.letter for part in parts}
    certain = {part.letter for part in parts if not part.sections}
    yield from (
        f"has {part.text}: {part.letter} is no letter that Spark reads in times"
        for part in parts
        if part.is_letters and part.letter not in _LENGTHS
    )
    yield from (
        f"has too many letters: {part.text}"
        for part in parts
        if part.is_letters and len(part.text) > _LENGTHS[part.letter]
    )
    if "y" not in certain or (certain.isdisjoint("D") and (certain.isdisjoint("ML") or "d" not in certain)):
        yield "has no whole date: year, month, and day must be outside of optional sections"
    if letters & {*"ms"} and letters.isdisjoint(_HOUR):
        yield "has minutes or seconds, but no hours (HH)"
