"""Aggregates in parts: over records, over what those gave, and the value in the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from backstream.native.sql import alias, quoted
from backstream.native.task import Reading
from backstream.native.types import INTEGERS, Aggregate


def part(aggregate: Aggregate, number: int) -> str:
    """Return the name of a part of an aggregate; no aggregate has a name like it."""
    return f"part__{aggregate.name}__{number}"


def over_records(aggregate: Aggregate, reading: Reading) -> list[str]:
    """Return the parts of an aggregate over records: of an average a sum of doubles and a count."""
    column = "*" if aggregate.column is None else alias(reading, aggregate.column)
    if aggregate.function == "avg":
        return [f"sum({column}::DOUBLE)", f"count({column})"]
    return [f"{aggregate.function}({column})"]


def storable(aggregates: Sequence[Aggregate], reading: Reading) -> dict[str, str]:
    """Return all parts over records by name, of types that a Parquet file holds exactly.

    DuckDB sums integers with 128 bits, and writes such a sum as a double.
    """
    found: dict[str, str] = {}
    for each in aggregates:
        is_whole = each.function == "sum" and each.column and reading.types[each.column] in INTEGERS
        for number, over in enumerate(over_records(each, reading)):
            found[part(each, number)] = f"{over}::BIGINT" if is_whole else over
    return found


def merged(aggregates: Sequence[Aggregate], only: str = "", suffix: str = "") -> dict[str, str]:
    """Return the parts by name over rows that have them, or those of the rows that meet a condition."""
    return {
        name + suffix: f"{each.function if each.function in ('min', 'max') else 'sum'}({quoted(name)}){only}"
        for each in aggregates
        for name in names_of(each)
    }


def names_of(aggregate: Aggregate) -> Iterator[str]:
    """Return the names of an aggregate's parts."""
    for number in range(2 if aggregate.function == "avg" else 1):
        yield part(aggregate, number)


def value_of(aggregate: Aggregate, suffix: str = "") -> str:
    """Return the value of an aggregate out of its parts."""
    first, second = (quoted(part(aggregate, number) + suffix) for number in range(2))
    if aggregate.function == "avg":
        return f"{first} / nullif({second}, 0)"
    return f"coalesce({first}, 0)" if aggregate.function == "count" else first
