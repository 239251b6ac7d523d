"""Find the JSON lines whose numbers a `double` holds digit by digit; Spark reads and counts the others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backstream.native.preparation.kinds import DOUBLE, list_leaves
from backstream.native.preparation.lines import Lines
from backstream.native.preparation.task import TextSpec
from backstream.source.inexact_numbers import NUMBER, stored_text

_DIGITS = 16
"""A number with fewer digits is exact, unless its exponent has three digits."""
_WORD = _DIGITS // 2
"""Each number of 16 digits with a point has all of an aligned word of 8 bytes."""
_BYTES = 0x0101010101010101
"""A word with 1 in each byte; its product with a byte has this byte in all places."""
_IS_DIGIT = np.array([byte in b".0123456789" for byte in range(256)])
_HIGH_BITS, _SIGN = 0xC0, 0x80
_DOT, _ZERO, _NINE, _MINUS, _SMALL_E, _LARGE_E = b".09-eE"
_MIN_LENGTH = 5
"""The shortest number that a double cannot hold is `9e999`."""


class ExactLines:
    r"""Search for numbers in the columns of type `double` that prepared files have.

    A name with an escape such as `\u0061` may be the name of such a column.
    """

    def __init__(self, spec: TextSpec) -> None:
        leaves = dict(list_leaves(spec.kinds))
        names = {leaf[-1] for leaf in spec.payload.values() if leaves.get(leaf) == DOUBLE}
        self._number = _number_pattern(names) if names else None
        self._escaped = _number_pattern(names, rb'|[^"\\]*\\u[^"]*')

    def find(self, lines: Lines) -> np.ndarray:
        """Return for each line whether all of its numbers are exact; numbers above all doubles are not found."""
        is_exact = np.ones(len(lines), bool)
        if self._number is None or not len(lines):
            return is_exact
        positions = _find_doubtful(np.frombuffer(lines.block, np.uint8))
        rows = np.unique(np.searchsorted(lines.ends, positions))
        rows = rows[rows < len(lines)]
        if not len(rows):
            return is_exact
        doubtful = lines.select(rows)
        content = doubtful.content
        pattern = self._escaped if b"\\u" in content else self._number
        found = [*pattern.finditer(content)]
        unusual = find_unusual_numbers([number[1] for number in found])
        inexact = [found[row].start() for row in unusual if is_inexact_number(found[row][1].decode())]
        is_exact[rows[doubtful.find_rows(inexact)]] = False
        return is_exact


def _number_pattern(names: Iterable[str], other_names: bytes = b"") -> re.Pattern[bytes]:
    known = b"|".join(re.escape(name.encode()) for name in sorted(names))
    return re.compile(rb'"(?:%s%s)"\s*:\s*(-?[0-9][-+.0-9eE]{%d,})' % (known, other_names, _MIN_LENGTH - 1))


def find_unusual_numbers(numbers: Sequence[bytes] | pa.StringArray) -> Sequence[int]:
    """Return the positions of the numbers that are not the shortest text of a double, which most programs use."""
    texts = pa.array(numbers, pa.string())
    try:
        shortest = texts.cast(pa.float64()).cast(pa.string())
    except pa.ArrowInvalid:  # some are no numbers
        return range(len(numbers))
    positions: list[int] = np.flatnonzero(pc.not_equal(shortest, texts)).tolist()
    return positions


def is_inexact_number(text: str) -> bool:
    """Return whether a text is a number that a double cannot hold digit by digit."""
    return re.fullmatch(NUMBER, text) is not None and stored_text(text, DOUBLE) is not None


def _find_doubtful(data: np.ndarray) -> np.ndarray:
    """Return the positions of bytes in numbers of many digits, and of negative exponents of three digits."""
    words = data[: len(data) // _WORD * _WORD].view(np.uint64)
    places = np.flatnonzero((words & (_BYTES * _HIGH_BITS)) == 0)
    similar = words[places]  # sums of their bytes have no carry
    is_high = (similar + _BYTES * (_SIGN - _DOT)) & (_BYTES * _SIGN) == _BYTES * _SIGN
    is_low = (similar + _BYTES * (_SIGN - _NINE - 1)) & (_BYTES * _SIGN) == 0
    starts = places[is_high & is_low] * _WORD
    steps = np.arange(_WORD)
    is_word = _IS_DIGIT[data[starts[:, None] + steps]].all(axis=1)
    before = _IS_DIGIT[data[np.maximum(starts[:, None] - 1 - steps, 0)]] & (starts > 0)[:, None]
    after = _IS_DIGIT[data[np.minimum(starts[:, None] + _WORD + steps, len(data) - 1)]]
    is_long = _WORD + _count_leading(before) + _count_leading(after) >= _DIGITS
    return np.concatenate([starts[is_word & is_long], _find_exponents(data)])


def _count_leading(is_digit: np.ndarray) -> np.ndarray:
    counts: np.ndarray = np.logical_and.accumulate(is_digit, axis=1).sum(axis=1)
    return counts


def _find_exponents(data: np.ndarray) -> np.ndarray:
    minus = np.flatnonzero(data[1:-3] == _MINUS) + 1
    minus = minus[(data[minus - 1] == _SMALL_E) | (data[minus - 1] == _LARGE_E)]
    digits = data[minus[:, None] + np.arange(1, 4)] - _ZERO
    found: np.ndarray = minus[(digits <= _NINE - _ZERO).all(axis=1)]
    return found
