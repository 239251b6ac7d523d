"""Frames that one task each makes, put together without an exchange.

Spark moves every row to the task of its group. Where all rows of a group lie in the same files anyway, or where it
does not matter that a group is found twice, one task reads these files and groups them where it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import TypeVar

from pyspark.sql import DataFrame

MOST = 64
"""Each frame is a part of the plan, and with more of them Spark plans for longer than it saves."""
LARGEST = 15_000_000
"""Events of a task; of more it would have to spill groups to disk."""

_Part = TypeVar("_Part")


def parts(rows: int, tasks: int) -> int:
    """Into how many parts so many rows are cut, when so many tasks run at the same time; 0: it does not pay."""
    count = tasks * math.ceil(rows / (tasks * LARGEST))
    return count if count <= MOST else 0


def united(of: Sequence[_Part], frame: Callable[[_Part], DataFrame]) -> DataFrame:
    """The frames of at least one part; each is made by one task out of what `frame` reads with `coalesce(1)`."""
    with ThreadPoolExecutor() as pool:  # Spark takes a while to look at each
        first, *others = pool.map(frame, of)
    # Spark would make a single task of a union of frames that are all known to have a single partition. There is
    # still one after `coalesce(2)`, but that is not known.
    return reduce(DataFrame.unionAll, others, first.coalesce(2))
