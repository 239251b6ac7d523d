"""Find the numbers of text files that the type of their column cannot hold digit by digit."""

from __future__ import annotations

import math
import re
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation

import numpy as np

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_FULL_DIGITS = {"double": 17, "float": 9}
"""Digits by which many programs write each number of the type."""
_DOUBTFUL = {
    "double": r"(?:\.?[0-9]){16}|[eE][-+]?[0-9]{3}",
    "float": r"(?:\.?[0-9]){7}|[eE][-+]?[0-9]{2}",
}
_MAX_DIGITS = 2_000
NUMBER = r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
"""The form of a number in JSON and CSV; Java's regular expressions and Python's have this syntax."""


def doubtful_pattern(kind: str) -> str | None:
    """Return the pattern of the numbers that a type may not hold; None for a type that refuses all such numbers.

    Whatever an integer type cannot hold makes its record malformed.

    Args:
        kind: the name of a type in Spark SQL.
    """
    if scale := _DECIMAL.fullmatch(kind):
        return rf"\.[0-9]{{{int(scale[2]) + 1}}}|[eE]"
    return _DOUBTFUL.get(kind)


def stored_text(text: str, kind: str) -> str | None:
    """Return the number that is stored for a text; None if it has the value of the text.

    The value of a float is that of its shortest text, or of its text with 17 digits (`float`: 9), which many
    programs write: `0.1` and `0.10000000000000001` are exact. The double for 1765233417000000001 is not, because
    its shortest text is 1.765233417e+18. A decimal number has the digits of its scale.

    Args:
        text: a text of the form `NUMBER`.
        kind: a type that has a `doubtful_pattern`.
    """
    if scale := _DECIMAL.fullmatch(kind):
        return _rounded_text(Decimal(text), int(scale[2]))
    shortest = _shortest_text(text, kind)
    return None if shortest == text or _has_value(text, shortest, kind) else shortest


def _shortest_text(text: str, kind: str) -> str:
    number = float(text)
    if kind == "double":
        return repr(number)
    with np.errstate(over="ignore"):
        return str(np.float32(number))


def _has_value(text: str, shortest: str, kind: str) -> bool:
    """Return whether a text is the number of its type, in one of the two forms."""
    stored = float(shortest)
    if not math.isfinite(stored):
        return False
    full = f"{stored if kind == 'double' else np.float32(stored):.{_FULL_DIGITS[kind]}g}"
    try:
        return Decimal(text) in (Decimal(shortest), Decimal(full))
    except InvalidOperation:  # an exponent of 19 digits, so the stored number is zero
        return not text.lower().partition("e")[0].strip("+-0.")


def _rounded_text(number: Decimal, scale: int) -> str | None:
    rounded = number.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, Context(_MAX_DIGITS))
    return None if rounded == number else str(rounded)
