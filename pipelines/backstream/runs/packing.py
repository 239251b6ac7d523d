"""Encode sequences compactly for JSON: columns of fields, run lengths, deltas and ranges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from itertools import groupby, pairwise
from typing import Any


def to_columns(items: Sequence[object], kind: type) -> dict[str, list[Any]]:
    """Return the values of each field of a dataclass over all items."""
    return {column.name: [getattr(item, column.name) for item in items] for column in fields(kind)}


def from_columns(by_name: Mapping[str, Sequence[Any]], kind: type) -> Iterable[tuple[Any, ...]]:
    """Return the values of each item, in the order of the dataclass's fields."""
    return zip(*(by_name[column.name] for column in fields(kind)), strict=True)


def run_lengths(values: Sequence[Any]) -> list[list[Any]]:
    """Return each run of equal values as the value and its length."""
    return [[value, len([*run])] for value, run in groupby(values)]


def expand_run_lengths(pairs: Sequence[tuple[Any, int]]) -> list[Any]:
    """Return the values of `run_lengths`."""
    return [value for value, count in pairs for _ in range(count)]


def to_deltas(values: Sequence[int]) -> list[int]:
    """Return the first value, then the difference of each value to the one before.

    `itertools.accumulate` is the inverse.
    """
    return [*values[:1], *(after - before for before, after in pairwise(values))]


def to_ranges(numbers: Sequence[int]) -> str:
    """Return numbers as text, such as `0-3,7`."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] + 1 == number:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def expand_ranges(text: str) -> tuple[int, ...]:
    """Return the numbers of `to_ranges`."""
    bounds = [part.split("-") for part in text.split(",") if part]
    return tuple(number for ends in bounds for number in range(int(ends[0]), int(ends[-1]) + 1))
