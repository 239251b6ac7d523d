"""Rank the rows of each window in an order, as `ROW_NUMBER` and `RANK` of SQL do; top-N are the first ranks."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from itertools import groupby
from typing import Any, TypeVar

_Row = TypeVar("_Row")


def rank_rows(
    rows: Iterable[_Row],
    window_of: Callable[[_Row], Hashable],
    order_of: Callable[[_Row], Any],
    *,
    keeps_ties: bool = False,
) -> list[tuple[_Row, int]]:
    """Return rows with their ranks from 1 on, in the order of the ranks of a window.

    Args:
        rows: the rows of any windows.
        window_of: the window of a row, or a part of the window with ranks of its own.
        order_of: the value by which the rows of a window are ordered, ascending.
        keeps_ties: equal values have one rank, the number of smaller ones plus 1. Else they follow each other.
    """
    by_window: dict[Hashable, list[_Row]] = {}
    for row in rows:
        by_window.setdefault(window_of(row), []).append(row)
    ranked = []
    for of_window in by_window.values():
        number = 1
        for _, equal in groupby(sorted(of_window, key=order_of), order_of):
            tied = list(equal)
            ranked += [(row, number if keeps_ties else number + place) for place, row in enumerate(tied)]
            number += len(tied)
    return ranked
