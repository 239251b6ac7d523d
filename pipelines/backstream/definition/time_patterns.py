"""Read times by patterns in Spark's notation as Spark does, and find patterns that mean something else.

Spark hands patterns to Java's `DateTimeFormatter`, and resolves strictly. Its table of letters is
https://spark.apache.org/docs/latest/sql-ref-datetime-pattern.html.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache
from itertools import dropwhile, takewhile

from backstream.definition.time_texts import WHITESPACE, WrittenTime

_PART = re.compile(r"'(?:[^']|'')*'|([A-Za-z])\1*|.", re.DOTALL)
_MONTH = "ML"
_ZONES = "XxZzVO"
_LENGTHS = {
    **dict.fromkeys("dHhmsV", 2),
    **dict.fromkeys("MLzO", 4),
    **dict.fromkeys("XxZ", 5),
    "y": 4,
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
    **dict.fromkeys(("VV", "z", "zz", "zzz", "zzzz"), f"Z|UTC|GMT|{_HOURS}:{_MINUTES}|{_REGION}"),
    "O": f"GMT(?:[+-][0-9]{{1,2}}(?::{_MINUTES})?)?",
    "OOOO": f"GMT(?:{_HOURS}:{_MINUTES})?",
}
"""The forms of time zones. Spark reads more names, such as `PST`, and guesses the zone that they mean."""


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
class PatternForm:
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
def pattern_form(pattern: str) -> PatternForm:
    """Return the form of a pattern that `reason_against_pattern` accepts."""
    parts = _parts(pattern.strip(WHITESPACE))
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
    return PatternForm(f"(?i)^{''.join(forms)}$", tuple(fields), has_zone)


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

    Whitespace around the text has no meaning. This reads only years from 1 to 9999, and no other names of zones
    than UTC, GMT, and regions.

    Args:
        pattern: a pattern that `reason_against_pattern` accepts.
        text: the text of a time.
    """
    form = pattern_form(pattern)
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
    """Return an offset as `+hhmm` or `+hhmmss`, or the name of a region."""
    if text.upper() in ("Z", "UTC", "GMT"):
        return "+0000"
    offset = re.fullmatch(r"(?:GMT)?([+-])([0-9]{1,2})((?::?[0-9]{2})*)", text, re.IGNORECASE)
    return text if offset is None else f"{offset[1]}{offset[2]:0>2}{offset[3].replace(':', '') or '00'}"


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
    "u": ("y", "is no year in Spark"),
    "k": ("H", "is an hour from 1 to 24"),
    "K": ("H", "is an hour from 0 to 11"),
    "A": ("a", "is the millisecond of a day"),
    "n": ("S", "is a nanosecond, which Spark cannot parse"),
    "t": ("a", "is no letter of a pattern"),
    "f": ("S", "is no letter of a pattern"),
    "T": ("'T'", "is no letter of a pattern"),
}
"""Letters that mean something else, with the letter that is meant, and the reason."""
_NEEDS_DATE = (("y", "year (yyyy)"), ("ML", "month (MM)"), ("d", "day (dd)"))


def reason_against_pattern(pattern: str) -> str | None:
    """Return why a pattern does not read whole instants, with the right one if it is known; None if it does."""
    if re.search("%[A-Za-z]", re.sub("'[^']*'", "", pattern)):
        return _reason_against_strftime(pattern)
    if pattern.count("'") % 2:
        return "a quote has no end"
    parts = _parts(pattern.strip(WHITESPACE))
    if reason := _reason_against_signs(parts):
        return reason
    corrections = [_correction(parts, index) for index in range(len(parts))]
    reasons = [
        f"{part.text} {found[1]}" for part, found in zip(parts, corrections, strict=True) if found is not None
    ]
    if reasons:
        pairs = zip(parts, corrections, strict=True)
        right = "".join(_pattern_text(part) if found is None else found[0] for part, found in pairs)
        remedy = "" if reason_against_pattern(right) else f'; write "{right}"'
        *first, last = reasons
        return f"{', '.join(first)}{', and ' if first else ''}{last}{remedy}"
    return next(_list_reasons(parts), None)


def _reason_against_strftime(pattern: str) -> str:
    translated = re.sub(r"%-?(.)|([A-Za-z]+)", _translation, pattern)
    is_known = "?" not in translated and reason_against_pattern(translated) is None
    remedy = f'write "{translated}"' if is_known else 'write letters, e.g., "yyyy-MM-dd HH:mm:ss"'
    return f"% belongs to the notation of strftime; {remedy}"


def _translation(found: re.Match[str]) -> str:
    return _STRFTIME.get(found[1], "?") if found[1] else f"'{found[2]}'"


def _reason_against_signs(parts: Sequence[_Part]) -> str | None:
    plain = [part.text for part in parts if not part.is_letters and not part.is_quoted]
    is_closed_twice = any(part.text == "]" and not part.sections for part in parts if part.is_bracket)
    if is_closed_twice or plain.count("[") != plain.count("]"):
        return "a bracket has no counterpart"
    reserved = next((text for text in plain if text in "{}#"), None)
    return f"{reserved} is reserved; write it in quotes, '{reserved}'" if reserved else None


def _pattern_text(part: _Part) -> str:
    if not part.is_quoted:
        return part.text
    return "''" if part.text == "'" else "'{}'".format(part.text.replace("'", "''"))


def _correction(parts: Sequence[_Part], index: int) -> tuple[str, str] | None:
    """Return the letters that are meant instead of a part, and the reason; None for a part that is right."""
    part = parts[index]
    if not part.is_letters:
        return None
    letters = [each.letter for each in parts if each.is_letters]
    before = next((each.letter for each in reversed(parts[:index]) if each.is_letters), "")
    after = next((each.letter for each in parts[index + 1 :] if each.is_letters), "")
    found = _OTHER_LETTERS.get(part.letter) or _other_meaning(part.letter, letters, before, after)
    if found is None:
        return None
    right, reason = found
    if right == "H" and not {*"aAt"}.isdisjoint(letters):
        right = "h"
    return right * len(part.text) if right in "yMdHhmsS" else right, reason


def _other_meaning(letter: str, letters: Sequence[str], before: str, after: str) -> tuple[str, str] | None:
    """Return the letter that is meant instead of a letter of times, and the reason; None if it is right.

    Args:
        letter: the letter.
        letters: the letters of the pattern in their order.
        before: the letter before it; empty if there is none.
        after: the letter after it; empty if there is none.
    """
    has_hours = not {*"HhKk"}.isdisjoint(letters)
    has_months = not {*"ML"}.isdisjoint(letters)
    months = letters.count("M") + letters.count("L")
    is_beside_hours = before in {*"HhKk"}
    is_beside_date = before in {*"yYuDd"} or after in {*"yYuDd"}
    found = {
        "D": (
            "d",
            "is the day of the year",
            "d" not in letters and (has_months or letters.count("m") > has_hours),
        ),
        "m": ("M", "is the minute", is_beside_date and not is_beside_hours and after not in {*"sS"}),
        "M": ("m", "is the month", is_beside_hours and (months > 1 or "m" in letters)),
        "h": ("H", "is an hour from 1 to 12 without AM or PM (a)", {*"aAt"}.isdisjoint(letters)),
        "S": ("s", "is the fraction of a second", "s" not in letters),
        "s": ("S", "is the second again", before == "s"),
    }
    right, reason, is_wrong = found.get(letter, ("", "", False))
    return (right, reason) if is_wrong else None


def _list_reasons(parts: Sequence[_Part]) -> Iterator[str]:
    """Yield the reasons why Spark refuses a pattern, or would guess a part of an instant."""
    fields = [part for part in parts if part.is_letters]
    for part in fields:
        if part.letter in "EFecwW":
            yield (
                f"{part.text} is a week or its day, which Spark cannot parse; leave it out of the text by SQL, "
                "e.g., substring(at, 6)"
            )
        if part.letter not in _LENGTHS:
            yield f"{part.text} is no letter of an instant; write text in quotes, '{part.text}'"
        if len(part.text) > _LENGTHS[part.letter] or (part.letter in _ZONES and part.text not in _ZONE_FORMS):
            yield f"{part.text} has a wrong number of letters"
    certain = {part.letter for part in fields if not part.sections}
    letters = {part.letter for part in fields}
    needed = _NEEDS_DATE[:1] if "D" in certain else _NEEDS_DATE
    if absent := [name for own, name in needed if certain.isdisjoint(own)]:
        yield f"it has no {', no '.join(absent)}" + (
            " outside of [ ]" if "[" in {part.text for part in parts} else ""
        )
    if letters.isdisjoint("Hh") and not letters.isdisjoint("msSa"):
        yield "it has parts of hours, and no hour (HH)"
    for index, part in enumerate(parts):
        rest = [*dropwhile(lambda each: each.is_fixed, parts[index + 1 :])]
        if part.is_number and not part.is_fixed and rest and (rest[0].is_number or rest[0].letter == "S"):
            yield (
                f"Spark takes digits of {rest[0].text} for {part.text}; separate them by SQL, "
                "e.g., concat(substring(at, 1, 14), '.', substring(at, 15))"
            )
