"""Define the types of values in definitions: durations, instants, names, and the base class of sections."""

from __future__ import annotations

import difflib
import re
from enum import StrEnum
from itertools import accumulate
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
)

from backstream.definition.time_patterns import reason_against_pattern
from backstream.errors import SpecError
from backstream.eventtime.instants import DAY_MS, duration_ms, duration_text, instant_ms, instant_text
from backstream.eventtime.time_zones import list_time_zones
from backstream.user_code import USER_CODE_PATTERN

_MAX_DURATION_MS = 36_500 * DAY_MS
"""Maximum of all durations: a century, so that sums of instants and durations stay far within 64 bits."""


def _parse_duration(value: object) -> int:
    if not isinstance(value, str):
        msg = f'must be a duration such as "1h", "30m" or "200ms", got {value!r}'
        raise ValueError(msg)  # noqa: TRY004 - pydantic reports ValueError, not TypeError
    value_ms = duration_ms(value)
    if abs(value_ms) > _MAX_DURATION_MS:
        msg = f"must be at most {duration_text(_MAX_DURATION_MS)}, got {value}"
        raise ValueError(msg)
    return value_ms


def _require_positive(value_ms: int) -> int:
    if value_ms <= 0:
        msg = f"must be positive, got {value_ms} ms"
        raise ValueError(msg)
    return value_ms


def _require_not_negative(value_ms: int) -> int:
    if value_ms < 0:
        msg = f"must not be negative, got {value_ms} ms"
        raise ValueError(msg)
    return value_ms


def _parse_instant(value: object) -> int:
    try:
        return instant_ms(str(value), "")  # pydantic adds the key
    except SpecError as error:
        raise ValueError(str(error).lstrip()) from None


def require_order(span_ms: tuple[int, int]) -> tuple[int, int]:
    """Return a range in epoch milliseconds, which must begin before it ends."""
    if span_ms[0] >= span_ms[1]:
        msg = f"must begin before it ends, got {instant_text(span_ms[0])} to {instant_text(span_ms[1])}"
        raise ValueError(msg)
    return span_ms


def require_time_zone(name: str) -> str:
    """Return the name of a time zone, which must exist on this machine."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        msg = f"must be a time zone such as America/New_York, got {name!r}"
        raise ValueError(msg) from None
    return name


def _require_window_zone(name: str) -> str:
    """Return the name of a time zone of the time-zone data by which windows are cut."""
    known = list_time_zones()
    if name not in known:
        near = difflib.get_close_matches(name, known, 3, 0.8)
        ends = [zone for zone in known if zone.rpartition("/")[2].lower() == name.lower().replace(" ", "_")]
        names = ", ".join(dict.fromkeys([*ends, *near])) or "America/New_York"
        msg = f"must be a time zone such as {names}, got {name!r}"
        raise ValueError(msg)
    return name


WindowZone = Annotated[str, AfterValidator(_require_window_zone)]
"""The name of a time zone by which windows are cut."""


def require_time_pattern(pattern: str) -> str:
    """Return a pattern of times, which must read whole instants."""
    if reason := reason_against_pattern(pattern):
        msg = f"must be a pattern of instants in Spark's notation, got {pattern!r}: {reason}"
        raise ValueError(msg)
    return pattern


def require_partitions(value: object) -> object:
    """Return `observed`, or a list of source partitions."""
    if value == "observed" or (isinstance(value, list | tuple) and all(isinstance(name, str) for name in value)):
        return value
    msg = f'must be "observed" or a list of source partitions, got {value!r}'
    raise ValueError(msg)


DURATION_PATTERN = r"^-?(\d+(ms|s|m|h|d))+$"


_AS_DURATION = WithJsonSchema({"type": "string", "pattern": DURATION_PATTERN}, mode="validation")


_AS_TEXT = WithJsonSchema({"type": "string"}, mode="validation")


Duration = Annotated[
    int, BeforeValidator(_parse_duration), PlainSerializer(duration_text, when_used="json"), _AS_DURATION
]
"""Duration in milliseconds, written as text, e.g., `1h`."""


PositiveDuration = Annotated[Duration, AfterValidator(_require_positive)]


NonNegativeDuration = Annotated[Duration, AfterValidator(_require_not_negative)]


Instant = Annotated[
    int, BeforeValidator(_parse_instant), PlainSerializer(instant_text, when_used="json"), _AS_TEXT
]
"""Instant in epoch milliseconds, written as ISO 8601 text."""


TimePattern = Annotated[str, Field(min_length=1), AfterValidator(require_time_pattern)]
"""Pattern of texts that are instants, in Spark's notation."""


Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9]*(_[a-z0-9]+)*$", max_length=100)]
"""Name in snake case; two underscores in a row are reserved for the side tables of a dataset."""


UserCodeName = Annotated[str, Field(pattern=USER_CODE_PATTERN)]
"""Name of a class or function: `package.module:name`."""


_SQL_TEXTS = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`")
_SQL_NESTING = re.compile(r"(?P<begin>[(\[]|\bcase\b)|[)\]]|\bend\b", re.IGNORECASE)
_SQL_OPERATORS = re.compile(r"[-+*/%|&^]|\bnot\b", re.IGNORECASE)
_SQL_CHAIN = re.compile(r"(?:\bnot\b\s*)+", re.IGNORECASE)
_MAX_SQL_DEPTH = 30
_MAX_SQL_OPERATORS = 500
"""Limits of an expression: the parsers of SQL call themselves for each level, and for each operator of a chain."""


def require_simple_sql(text: str) -> str:
    """Return an SQL expression that has few levels and operators."""
    plain = _SQL_TEXTS.sub("", text)
    steps = (1 if match["begin"] else -1 for match in _SQL_NESTING.finditer(plain))
    chains = (len(chain.split()) for chain in _SQL_CHAIN.findall(plain))
    depth, operators = max([*accumulate(steps), *chains], default=0), len(_SQL_OPERATORS.findall(plain))
    for count, most, things in (
        (depth, _MAX_SQL_DEPTH, "levels"),
        (operators, _MAX_SQL_OPERATORS, "operators"),
    ):
        if count > most:
            msg = f"must have at most {most} {things}, got {count:,}: split it with source.derive or derive_after"
            raise ValueError(msg)
    return text


Sql = Annotated[str, AfterValidator(require_simple_sql)]
"""Expression in Spark SQL."""


class TimeUnit(StrEnum):
    """Unit of a time that is a number since 1970."""

    SECONDS = "s"
    MILLISECONDS = "ms"
    MICROSECONDS = "us"
    NANOSECONDS = "ns"


class Section(BaseModel):
    """Base class of all sections of a definition: unknown keys are errors, and values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, serialize_by_alias=True)
