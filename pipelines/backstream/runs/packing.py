"""Writing many things of one kind in little room: by columns, by steps, by ranges, equal values once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from itertools import groupby, pairwise
from typing import Any


def to_columns(items: Sequence[object], kind: type) -> dict[str, list[Any]]:
    """The values of each field of a dataclass, over all items."""
    return {each.name: [getattr(item, each.name) for item in items] for each in fields(kind)}


def from_columns(by_name: Mapping[str, Sequence[Any]], kind: type) -> Iterable[tuple[Any, ...]]:
    """The values of each item, in the order of the dataclass's fields."""
    return zip(*(by_name[each.name] for each in fields(kind)), strict=True)


def run_lengths(values: Sequence[Any]) -> list[list[Any]]:
    """Each value once for all that follow it and are equal, with how many they are."""
    return [[value, len([*same])] for value, same in groupby(values)]


def expand_run_lengths(pairs: Sequence[tuple[Any, int]]) -> list[Any]:
    """The values that were counted."""
    return [value for value, count in pairs for _ in range(count)]


def to_deltas(values: Sequence[int]) -> list[int]:
    """The first value, then each one's distance from the one before; `itertools.accumulate` undoes it."""
    return [*values[:1], *(after - before for before, after in pairwise(values))]


def to_ranges(numbers: Sequence[int]) -> str:
    """Numbers as text: `0-3,7`."""
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][1] + 1 == number:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in found)


def expand_ranges(text: str) -> tuple[int, ...]:
    """The numbers that `ranges` has written."""
    ends = [each.split("-") for each in text.split(",") if each]
    return tuple(number for each in ends for number in range(int(each[0]), int(each[-1]) + 1))
