"""Read instants from columns of files, as far as possible without Spark."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from backstream.definition.source_section import COLUMN_OF_NUMBERS
from backstream.errors import PlanError
from backstream.eventtime.instants import DAY_MS
from backstream.eventtime.suspect_times import UNITS_US

Longs = np.ndarray[Any, np.dtype[np.int64]]

_MS_RATIOS = {"s": (1_000, 1), "ms": (1, 1), "us": (1, 1_000), "ns": (1, 1_000_000)}
_MS_PER_NUMBER = {"timestamp_millis": 1, "timestamp_seconds": 1_000}


@dataclass(frozen=True, slots=True)
class TimeColumn:
    """A column of instants (`factor` 0), or of numbers of `factor` ms each; `label` is its name in messages."""

    name: str
    factor: int
    label: str

    @classmethod
    def from_expression(cls, expression: str, label: str) -> TimeColumn:
        """Return the column of an expression such as `at`, `timestamp_millis(at)` or `timestamp_seconds(at)`.

        Raises:
            PlanError: for any other expression.
        """
        text = expression.strip()
        if match := COLUMN_OF_NUMBERS.fullmatch(text):
            return cls(match[2], _MS_PER_NUMBER[match[1]], label)
        if re.fullmatch(r"\w+", text):
            return cls(text, 0, label)
        raise _spark_only_error(label, expression)

    def us_per_number(self, kind: pa.DataType) -> float | None:
        """Return the microseconds of one number in a column of this type; None if its values are no numbers."""
        if self.factor:
            return self.factor * 1_000 if pa.types.is_integer(kind) else None
        if pa.types.is_date32(kind):
            return DAY_MS * 1_000
        return UNITS_US[kind.unit] if pa.types.is_timestamp(kind) else None

    def values_ms(self, column: pa.ChunkedArray) -> Longs:
        """Return epoch milliseconds of a column without nulls, floored.

        Raises:
            PlanError: when its type does not represent instants.
        """
        kind = column.type
        if self.factor and pa.types.is_integer(kind):
            return _longs(column) * self.factor
        if self.factor or not (pa.types.is_timestamp(kind) and kind.tz):
            raise _spark_only_error(self.label, self.name)
        factor, divisor = _MS_RATIOS[kind.unit]
        return _longs(column) * factor // divisor


def _spark_only_error(label: str, expression: str) -> PlanError:
    """Return the error for an expression that only Spark can evaluate."""
    msg = (
        f"only Spark can evaluate {label}: {expression!r}\n\n"
        "hint: use a timestamp column with a zone, timestamp_millis(column) or timestamp_seconds(column)"
    )
    return PlanError(msg)


def _longs(column: pa.ChunkedArray) -> Longs:
    return np.asarray(column.cast(pa.int64()).to_numpy(), dtype=np.int64)
