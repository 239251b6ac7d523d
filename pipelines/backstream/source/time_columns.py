"""Instants in columns of files, as far as they can be told without Spark."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from backstream.errors import PlanError

Longs = np.ndarray[Any, np.dtype[np.int64]]

_PER_UNIT = {"s": (1_000, 1), "ms": (1, 1), "us": (1, 1_000), "ns": (1, 1_000_000)}
_EPOCH_COLUMN = re.compile(r"(timestamp_millis|timestamp_seconds)\((\w+)\)")
_FACTORS = {"timestamp_millis": 1, "timestamp_seconds": 1_000}


@dataclass(frozen=True, slots=True)
class TimeColumn:
    """A column that holds instants, or numbers of `factor` ms each (0: instants); `said` names it to people."""

    name: str
    factor: int
    said: str

    @classmethod
    def from_expression(cls, expression: str, said: str) -> TimeColumn:
        """The column of an expression such as `at`, `timestamp_millis(at)` or `timestamp_seconds(at)`.

        Raises:
            PlanError: when it is anything else.
        """
        written = expression.strip()
        if found := _EPOCH_COLUMN.fullmatch(written):
            return cls(found[2], _FACTORS[found[1]], said)
        if re.fullmatch(r"\w+", written):
            return cls(written, 0, said)
        raise spark_only_error(said, expression)

    def values_ms(self, column: pa.ChunkedArray) -> Longs:
        """Epoch milliseconds of a column without nulls, floored.

        Raises:
            PlanError: when its type names no instant.
        """
        kind = column.type
        if self.factor and pa.types.is_integer(kind):
            return _longs(column) * self.factor
        if self.factor or not (pa.types.is_timestamp(kind) and kind.tz):
            raise spark_only_error(self.said, self.name)
        multiplied, divided = _PER_UNIT[kind.unit]
        return _longs(column) * multiplied // divided


def spark_only_error(said: str, expression: str) -> PlanError:
    """What is said of an expression that cannot be evaluated here."""
    msg = (
        f"only Spark can evaluate {said}: {expression!r}\n\n"
        "hint: a timestamp column with a zone, timestamp_millis(column) or timestamp_seconds(column) can be read"
    )
    return PlanError(msg)


def _longs(column: pa.ChunkedArray) -> Longs:
    return np.asarray(column.cast(pa.int64()).to_numpy(), dtype=np.int64)
