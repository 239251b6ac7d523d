"""Derive patterns of Spark from texts that are times, and the SQL that cuts what no pattern can read.

The patterns are proposals: the parser of a run decides which texts they read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

_MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july", "august", "september", "october"),
    *("november", "december"),
)
_SHORT_MONTHS = frozenset(month[:3] for month in _MONTHS)
_WEEKDAY = r"(?:mon|tue|tues|wed|wednes|thu|thurs|fri|sat|satur|sun)(?:day)?"
_CLOCK = re.compile(r"(?<!\d)(\d{1,2}):(\d{2})(?::(\d{2})([.,:]\d{1,9})?)?(?!\d)")
_OFFSET = re.compile(r"([+-]\d{2}(?::?\d{2})?|[A-Z][a-z]+/[A-Za-z_]+(?:/[A-Za-z_]+)?)(\]?)$")
_OFFSET_BEFORE_YEAR = re.compile(r"( ?)([+-]\d{2}:?\d{2})(?= \d{4}$)")
"""The offset of `Mar 01 08:00:00 +0000 2024`, the order of C's `ctime`."""
_CLOCK_WORDS = {"h", "hrs", "uhr"}
_WEEKS_AND_QUARTERS = {"w", "wk", "week", "kw", "cw", "q", "qtr", "quarter"}
"""Words before a number that is no month, as in the ISO week date `2024-W09-5`."""
_MAX_LENGTH = 60
"""Maximum length of a text that is taken for a time."""
_HAS_CLOCK = re.compile(r":\d{2}|(?:[T _-]|\d{8})\d{4,6}", re.IGNORECASE)
_TOKEN = re.compile(r"[A-Za-z]+|[0-9]+|[^A-Za-z0-9]+")
_COMPACT = {8: "yyyyMMdd", 12: "yyyyMMddHHmm", 14: "yyyyMMddHHmmss", 17: "yyyyMMddHHmmssSSS"}
_COMPACT_CLOCK = {4: "HHmm", 6: "HHmmss"}
_ORDERS = ("dMy", "Mdy", "yMd")
"""Orders of year, month, and day that are in use."""
_NUMBERS_OF_A_DATE = 3


@dataclass(frozen=True, slots=True)
class Cut:
    """A change of a text before it is parsed: as SQL over `{}`, and as a function."""

    sql: str
    apply: Callable[[str], str]


_CUTS: Sequence[tuple[re.Pattern[str], Cut]] = (
    (re.compile(r"^\s|\s$"), Cut("trim({})", lambda text: text.strip(" "))),
    (re.compile(r".\[[^\]]*\]$"), Cut("substring_index({}, '[', 1)", lambda text: text.partition("[")[0])),
    (re.compile(r" \([^)]*\)$"), Cut("substring_index({}, ' (', 1)", lambda text: text.partition(" (")[0])),
    (re.compile(r" GMT[+-]\d{4}$"), Cut("replace({}, 'GMT', '')", lambda text: text.replace("GMT", ""))),
    (
        re.compile(r"[+-]\d{4} [A-Z]{1,5}( m=\S+)?$"),
        Cut("substring_index({}, ' ', 3)", lambda text: " ".join(text.split(" ")[:3])),
    ),
    (
        re.compile(rf"^{_WEEKDAY}\b", re.IGNORECASE),
        Cut("regexp_replace({}, '^[A-Za-z]+,? *', '')", lambda text: re.sub(r"^[A-Za-z]+,? *", "", text)),
    ),
    (re.compile(r"\S  +\S"), Cut("regexp_replace({}, ' +', ' ')", lambda text: re.sub(" +", " ", text))),
)
"""Cuts with the texts that need them."""


def cuts_for(texts: Sequence[str]) -> tuple[Cut, ...]:
    """Return the cuts that texts need, in their order: a cut that one text needs is made in all of them."""
    found = []
    for needed, cut in _CUTS:
        if any(needed.search(text) for text in texts):
            found.append(cut)
            texts = [cut.apply(text) for text in texts]
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Item:
    """A part of a text: literal text, a number of the date, or a field with its pattern letter."""

    kind: str
    text: str

    @property
    def key(self) -> tuple[str, str]:
        """Return what texts of the same shape have in common."""
        is_compact = self.kind in ("compact", "clock")
        return self.kind, self.text if self.kind == "literal" else str(len(self.text)) if is_compact else ""


def propose_patterns(texts: Iterable[str]) -> list[str]:
    """Return patterns for the most frequent shape of texts, the usual order of a date first."""
    shapes = [shape for text in texts if (shape := _split_text(text))]
    keys = Counter(tuple(item.key for item in shape if item.kind != "fraction") for shape in shapes)
    if not keys:
        return []
    most = keys.most_common(1)[0][0]
    alike = [shape for shape in shapes if tuple(i.key for i in shape if i.kind != "fraction") == most]
    return list(dict.fromkeys(_patterns_of_shapes(alike)))


def lacks_year(texts: Iterable[str]) -> bool:
    """Return whether most texts have the name of a month, a day, and a clock, and no year, as in syslog."""
    found = [bool(re.match(r"[A-Z][a-z]{2} +\d{1,2} \d{2}:\d{2}:\d{2}(?!.*\d{4})", text)) for text in texts]
    return bool(found) and sum(found) * 2 > len(found)


def _split_text(text: str) -> list[_Item] | None:
    """Return the parts of a text; None if it has no whole date."""
    if len(text) > _MAX_LENGTH:
        return None
    zone = _OFFSET.search(text)
    if zone and _HAS_CLOCK.search(text[: zone.start()]) and (items := _split_at_zone(text, zone)):
        return items
    return _split_at_zone(text, None)


def _split_at_zone(text: str, zone: re.Match[str] | None) -> list[_Item] | None:
    body = text[: zone.start()] if zone else text
    if clock := _CLOCK.search(body):
        items = [*_split_tokens(body[: clock.start()]), *_clock_items(clock)]
        rest = body[clock.end() :]
        if offset := _OFFSET_BEFORE_YEAR.match(rest):
            items += [_Item("literal", offset[1])] if offset[1] else []
            items.append(_Item("offset", offset[2]))
            rest = rest[offset.end() :]
        items += map(_zone_item, _split_tokens(rest))
    else:
        items = _with_clock_of_numbers(_split_tokens(body))
    if zone:
        items.append(_Item("offset", zone[1]))
        items += [_Item("literal", zone[2])] if zone[2] else []
    has_week = any(item.kind == "literal" and item.text.lower() in _WEEKS_AND_QUARTERS for item in items)
    return items if _numbers_left(items) == 0 and not has_week else None


def _numbers_left(items: Sequence[_Item]) -> int:
    """Return how many numbers a date lacks after these items; a number below 0 is too many."""
    numbers = sum(
        _NUMBERS_OF_A_DATE if item.kind == "compact" else item.kind in ("number", "month") for item in items
    )
    return _NUMBERS_OF_A_DATE - numbers


def _split_tokens(text: str) -> list[_Item]:
    return [_Item(_token_kind(token), token) for token in _TOKEN.findall(text)]


def _token_kind(token: str) -> str:
    lower = token.lower()
    if token.isdecimal():
        return "compact" if len(token) in _COMPACT else "number"
    if lower in _MONTHS or lower in _SHORT_MONTHS:
        return "month"
    return "half" if lower in ("am", "pm") else "literal"


def _zone_item(item: _Item) -> _Item:
    """Return an item behind a clock, where words are a zone; so no zone is ever skipped as literal text."""
    if item.text == "Z":
        return _Item("offset", item.text)
    is_name = item.kind == "literal" and item.text.isalpha() and item.text.lower() not in _CLOCK_WORDS
    return _Item("zone", item.text) if is_name else item


def _clock_items(clock: re.Match[str]) -> Iterator[_Item]:
    hour, minute, second, fraction = clock.groups()
    yield from (_Item("hour", hour), _Item("literal", ":"), _Item("minute", minute))
    if second:
        yield from (_Item("literal", ":"), _Item("second", second))
    if fraction:
        yield _Item("fraction", fraction)


def _with_clock_of_numbers(items: Sequence[_Item]) -> list[_Item]:
    """Return items whose numbers behind the date are the clock, as in `2024-03-01-08.30.00`."""
    result: list[_Item] = []
    fields = iter(("hour", "minute", "second", "fraction"))
    for item in items:
        if _numbers_left(result) > 0:
            result.append(item)
        elif item.kind != "number":
            result.append(_zone_item(item))
        elif _ends_second(result[-2:-1]) and result[-1].text in (".", ","):
            separator = result.pop().text
            result.append(_Item("fraction", separator + item.text))
        elif len(item.text) in _COMPACT_CLOCK:
            result.append(_Item("clock", item.text))
        else:
            result.append(_Item(next(fields, "number"), item.text))
    return result


def _patterns_of_shapes(shapes: Sequence[list[_Item]]) -> Iterator[str]:
    """Yield a pattern for each possible order of the date."""
    fractions = [next((item.text for item in shape if item.kind == "fraction"), "") for shape in shapes]
    columns = [*zip(*([item for item in shape if item.kind != "fraction"] for shape in shapes), strict=True)]
    dates = [at for at, column in enumerate(columns) if column[0].kind in ("number", "month")]
    has_half = any(column[0].kind == "half" for column in columns)
    orders = [*_date_orders([columns[at] for at in dates])] if dates else [""]
    if has_half:  # writers of AM and PM usually write the month first
        orders.sort(key=lambda order: order[0] != "M")
    for order in orders:
        letters = dict(zip(dates, order, strict=True))
        parts = []
        for at, column in enumerate(columns):
            is_date = at in letters
            parts.append(_date_letters(letters[at], column) if is_date else _letters(column, has_half=has_half))
            if _ends_second(column[:1]):
                parts.append(_fraction_letters(fractions))
        yield "".join(parts)


def _ends_second(items: Sequence[_Item]) -> bool:
    """Return whether a fraction of a second can follow an item."""
    return any(
        item.kind == "second" or (item.kind in ("clock", "compact") and len(item.text) in (6, 14))
        for item in items
    )


def _date_orders(columns: Sequence[Sequence[_Item]]) -> Iterator[str]:
    """Yield the orders of year, month, and day that three columns can have."""
    has_name = any(column[0].kind == "month" for column in columns)
    for order in _ORDERS:
        widths = {
            letter: {len(item.text) for item in column} for letter, column in zip(order, columns, strict=True)
        }
        names = {letter for letter, column in zip(order, columns, strict=True) if column[0].kind == "month"}
        is_year = widths["y"] in ({2}, {4})
        is_month = has_name or widths["M"] <= {1, 2}
        if names == ({"M"} if has_name else set()) and is_year and is_month and widths["d"] <= {1, 2}:
            yield order


def _date_letters(letter: str, column: Sequence[_Item]) -> str:
    if column[0].kind == "month":
        return "MMM" if all(len(item.text) == 3 for item in column) else "MMMM"  # noqa: PLR2004 - Jan
    widths = {len(item.text) for item in column}
    if letter == "y":
        return "yyyy" if widths == {4} else "yy"
    return letter * 2 if widths == {2} else letter


def _letters(column: Sequence[_Item], *, has_half: bool) -> str:
    first = column[0]
    match first.kind:
        case "literal":
            return _quote(first.text)
        case "hour":
            return ("h" if has_half else "H") * min(len(item.text) for item in column)
        case "compact":
            return _COMPACT[len(first.text)]
        case "clock":
            return _COMPACT_CLOCK[len(first.text)]
        case "offset":
            return _offset_letters({item.text for item in column})
        case kind:
            return {"minute": "mm", "second": "ss", "half": "a", "zone": "z"}[kind]


def _offset_letters(texts: set[str]) -> str:
    if any("/" in text for text in texts):
        return "VV"
    if any(":" in text for text in texts):
        return "XXX"
    if texts == {"Z"} or any(len(text) == len("+01") for text in texts):
        return "X"
    return "XX" if "Z" in texts else "Z"


def _fraction_letters(fractions: Sequence[str]) -> str:
    """Return the letters of a fraction of a second, in brackets if some texts have none."""
    present = [text for text in fractions if text]
    if not present:
        return ""
    separator = "" if present[0][0].isdigit() else present[0][0]
    letters = separator + "S" * max(len(text) - len(separator) for text in present)
    return letters if len(present) == len(fractions) else f"[{letters}]"


def _quote(text: str) -> str:
    """Return literal text of a pattern; letters and brackets have a meaning without quotes."""
    doubled = text.replace("'", "''")
    return f"'{doubled}'" if re.search(r"[A-Za-z\[\]{}#]", text) else doubled
