"""Define the sources of a union: several sources in one stream, each with its own watermark strategy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from backstream.errors import SpecError
from backstream.eventtime.watermark_generators import StrategyKind, WatermarkStrategy

SEPARATOR = "/"
"""The text between the name of a source and the name of its partition."""


@dataclass(frozen=True, slots=True)
class UnionSource:
    """A source of a union: its name, its watermark strategy, and the numbers of its partitions.

    Its partitions are named `<name>/<partition>`.
    """

    name: str
    strategy: WatermarkStrategy
    partitions: tuple[int, ...] = ()


def source_name(partition: str) -> str:
    """Return the name of the source that a partition of a union belongs to."""
    return partition.split(SEPARATOR, maxsplit=1)[0]


def assign_partitions(sources: Sequence[UnionSource], partitions: Sequence[str]) -> tuple[UnionSource, ...]:
    """Return the sources of a union with the numbers of their partitions.

    Args:
        sources: in the order of the union.
        partitions: the names of all partitions; a number is a position in this list.

    Raises:
        SpecError: when a partition belongs to no source.
    """
    numbers: dict[str, list[int]] = {source.name: [] for source in sources}
    for number, partition in enumerate(partitions):
        if source_name(partition) not in numbers:
            names = ", ".join(numbers)
            msg = f"source partition must begin with one of the sources {names}, got {partition!r}"
            raise SpecError(msg)
        numbers[source_name(partition)].append(number)
    return tuple(replace(source, partitions=tuple(numbers[source.name])) for source in sources)


def complete_partitions(sources: Iterable[str], partitions: Iterable[str]) -> list[str]:
    """Return the partitions of a union, sorted, with one for each named source that has none.

    A source without partitions counts as one without records, so it holds the watermark back.
    """
    names = set(partitions)
    known = {source_name(partition) for partition in names}
    return sorted(names | {f"{source}{SEPARATOR}" for source in sources if source not in known})


def common_strategy(sources: Sequence[UnionSource]) -> WatermarkStrategy:
    """Return the strategy of a union's emission, which has only the interval of its sources.

    Raises:
        SpecError: when the sources have different intervals, since all of them emit at the same ticks.
    """
    intervals_ms = sorted({source.strategy.interval_ms for source in sources})
    if len(intervals_ms) != 1:
        msg = f"sources of a union must emit watermarks at the same interval, got {intervals_ms} ms"
        raise SpecError(msg)
    return WatermarkStrategy(StrategyKind.PER_SOURCE, interval_ms=intervals_ms[0])
