"""Guess the columns of a definition from a sample, with the evidence for each guess."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import ceil
from typing import Any

from backstream.eventtime.instants import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from backstream.source.archive.columns import ColumnProfile
from backstream.source.archive.name_words import ARRIVAL_WORDS, EVENT_WORDS, OTHER_TIME_WORDS, has_word
from backstream.source.archive.times import SampledTime

_PARTITION_NAMES = ("partition", "kafka_partition", "_partition", "__partition", "shard", "shard_id", "shardid")
_SEQUENCE_NAMES = ("offset", "kafka_offset", "_offset", "__offset", "seq", "sequence", "sequence_number", "lsn")
_KEY_NAMES = ("shop", "store", "country", "page", "type", "device", "sensor", "region", "city", "product", "host")
_ID_NAMES = ("id", "event_id", "eventid", "uuid", "message_id", "record_id", "order_id", "orderid")
_MEASURE_NAMES = ("amount", "price", "total", "revenue", "value", "duration", "size", "bytes", "quantity", "cost")
_MAX_PARTITIONS = 1_000
_MAX_KEYS = 1_000
_MIN_NOT_BEFORE = 0.95
_MAX_IN_FUTURE = 0.1
_MAX_MEDIAN_DELAY_MS = 366 * DAY_MS
_NICE_MS = tuple(
    count * unit_ms
    for unit_ms, counts in (
        (SECOND_MS, (1, 5, 10, 30)),
        (MINUTE_MS, (1, 2, 5, 10, 15, 30)),
        (HOUR_MS, (1, 2, 3, 6, 12)),
        (DAY_MS, (1, 2, 7, 30)),
    )
    for count in counts
)


@dataclass(frozen=True, slots=True)
class Choice:
    """A guess of one key of the definition; None means that the key is left out.

    `candidates` are the possible values, the best first. A guess that is not certain is asked for.
    """

    value: str | None = None
    candidates: tuple[str, ...] = ()
    is_certain: bool = True


@dataclass(frozen=True, slots=True)
class Lateness:
    """Lateness of the records of a sample, at the shares in `QUANTILES`.

    `delay_ms` is the time from event to arrival, `behind_ms` the distance behind the largest event time before.
    `before` counts the records that arrive before their event time.
    """

    delay_ms: tuple[int, ...]
    behind_ms: tuple[int, ...]
    before: int
    records: int


QUANTILES = (0.5, 0.9, 0.99, 1.0)


@dataclass(frozen=True, slots=True)
class Roles:
    """The guesses of all keys, and aggregates that fit the columns."""

    event_time: Choice
    arrival_time: Choice = Choice()
    partition: Choice = Choice()
    sequence: Choice = Choice()
    key: Choice = Choice()
    deduplicate_on: tuple[str, ...] = ()
    aggregates: dict[str, str] = field(default_factory=dict)
    where: str | None = None
    notes: dict[str, str] = field(default_factory=dict)
    """A remark by column."""


def guess_roles(columns: Sequence[ColumnProfile], times: Sequence[SampledTime]) -> Roles:
    """Return the guesses for the columns of a sample, by their values first and their names second."""
    event, arrival = _guess_times(times)
    partition = _guess_partition(columns)
    sequence = _guess_sequence(columns, partition.value, {each.column.path for each in times})
    used = {event.value, arrival.value, partition.value, sequence.value, *(each.column.path for each in times)}
    rest = [column for column in columns if column.path not in used]
    roles = Roles(event, arrival, partition, sequence, _guess_key(rest), _guess_identity(rest))
    if partition.value and sequence.value:
        roles = replace(roles, deduplicate_on=(partition.value, sequence.value))
    return replace(roles, aggregates=suggest_aggregates(rest))


def _guess_times(times: Sequence[SampledTime]) -> tuple[Choice, Choice]:
    if not times:
        return Choice(is_certain=False), Choice()
    by_event = sorted(times, key=_event_rank)
    event = by_event[0]
    paths = tuple(each.column.path for each in by_event)
    rivals = [each for each in by_event[1:] if _event_rank(each) == _event_rank(event)]
    return Choice(paths[0], paths, is_certain=not rivals), guess_arrival(event, times)


def guess_arrival(event: SampledTime, times: Sequence[SampledTime]) -> Choice:
    """Return the guess of the arrival time: a time rarely before the event time, and not years after it."""
    later = [each for each in times if each is not event and _can_be_arrival(event, each)]
    later.sort(key=lambda each: (not _is_named_arrival(each), -share_rising(each)))
    candidates = tuple(each.column.path for each in later)
    named = [each for each in later if _is_named_arrival(each)]
    return Choice(candidates[0] if named else None, candidates, is_certain=len(named) == 1 or not later)


def _can_be_arrival(event: SampledTime, other: SampledTime) -> bool:
    delays = sorted(later - first for first, later in _pairs(event, other))
    is_late = bool(delays) and delays[len(delays) // 2] > _MAX_MEDIAN_DELAY_MS
    return not is_late and share_not_before(event, other) >= _MIN_NOT_BEFORE


def _is_named_arrival(time: SampledTime) -> bool:
    return has_word(time.column.path, ARRIVAL_WORDS)


def _event_rank(time: SampledTime) -> tuple[bool, bool, bool, bool, bool]:
    """Return what counts against an event time, the most important evidence first."""
    path = time.column.path
    is_arrival, is_other = _is_named_arrival(time), has_word(path, OTHER_TIME_WORDS)
    is_future = time.share_in_future > _MAX_IN_FUTURE
    return is_future, is_arrival or is_other, time.is_whole_days, is_arrival, not has_word(path, EVENT_WORDS)


def share_not_before(event: SampledTime, other: SampledTime) -> float:
    """Return the share of records in which another time is not before the event time."""
    pairs = _pairs(event, other)
    return float(sum(later >= first for first, later in pairs) / max(1, len(pairs)))


def share_rising(time: SampledTime, groups: Sequence[Any] | None = None) -> float:
    """Return the share of records whose time is not before that of the record above them in their group."""
    pairs = [pair for values in _by_group(time.times_ms, groups) for pair in pairwise(values)]
    return float(sum(first <= second for first, second in pairs) / max(1, len(pairs)))


def _by_group(values: Sequence[Any], groups: Sequence[Any] | None) -> Iterable[list[Any]]:
    """Return the values of each group in their order, without nulls."""
    by_group: dict[Any, list[Any]] = defaultdict(list)
    for group, value in zip(groups or [None] * len(values), values, strict=True):
        if value is not None:
            by_group[group].append(value)
    return by_group.values()


def _pairs(first: SampledTime, second: SampledTime) -> list[tuple[int, int]]:
    return [
        (one, other)
        for one, other in zip(first.times_ms, second.times_ms, strict=True)
        if one is not None and other is not None
    ]


def _guess_partition(columns: Sequence[ColumnProfile]) -> Choice:
    named = [
        column.path
        for column in columns
        if column.name in _PARTITION_NAMES
        and column.kind in ("bigint", "string")
        and 0 < column.distinct <= _MAX_PARTITIONS
    ]
    return Choice(named[0] if named else None, tuple(named), is_certain=len(named) < 2)  # noqa: PLR2004 - a choice


def _guess_sequence(columns: Sequence[ColumnProfile], partition: str | None, times: set[str]) -> Choice:
    by_path = {column.path: column for column in columns}
    groups = by_path[partition].values if partition else None
    numbers = [column for column in columns if column.kind == "bigint" and column.path not in times]
    unique = [column for column in numbers if column.path != partition and share_unique(column, groups) == 1]
    named = [column.path for column in unique if column.name in _SEQUENCE_NAMES]
    rising = [column.path for column in unique if column.path not in named and _is_rising(column, groups)]
    return Choice(
        named[0] if named else None, (*named, *rising), is_certain=len(named) == 1 or not (named or rising)
    )


def share_unique(column: ColumnProfile, groups: Sequence[Any] | None) -> float:
    """Return the number of distinct values per value, within the groups of another column if given."""
    pairs = [
        pair
        for pair in zip(groups or [None] * len(column.values), column.values, strict=True)
        if pair[1] is not None
    ]
    return len(set(pairs)) / max(1, len(pairs))


def _is_rising(column: ColumnProfile, groups: Sequence[Any] | None) -> bool:
    """Return whether the values of each group rise from record to record."""
    rows = _by_group(column.values, groups)
    return all(first < second for values in rows for first, second in pairwise(values))


def _guess_key(columns: Sequence[ColumnProfile]) -> Choice:
    fitting = [column for column in columns if column.kind in ("string", "bigint", "boolean") and _is_key(column)]
    fitting.sort(key=lambda column: (_key_rank(column), column.distinct))
    named = [column.path for column in fitting if _key_rank(column) == 0]
    return Choice(
        named[0] if named else None, tuple(column.path for column in fitting[:6]), is_certain=not fitting
    )


def _is_key(column: ColumnProfile) -> bool:
    if column.kind == "bigint" and any(word in column.name for word in _MEASURE_NAMES):
        return False
    return 1 < column.distinct <= min(_MAX_KEYS, max(2, len(column.present) // 3)) and not column.nulls


def _key_rank(column: ColumnProfile) -> int:
    if column.name in _KEY_NAMES or column.name.removesuffix("_id") in _KEY_NAMES:
        return 0
    return 1 if column.kind == "string" else 2


def _guess_identity(columns: Sequence[ColumnProfile]) -> tuple[str, ...]:
    """Return the column that identifies a record by its name; some values may be repeated by redelivery."""
    named = [column for column in columns if column.name in _ID_NAMES and not column.nulls]
    unique = [column for column in named if share_unique(column, None) >= _MIN_NOT_BEFORE]
    return (unique[0].path,) if unique else ()


def suggest_aggregates(columns: Sequence[ColumnProfile]) -> dict[str, str]:
    """Return the number of events, and the sum of a column that measures something."""
    measures = [
        column
        for column in columns
        if column.kind.startswith(("double", "bigint", "decimal"))
        and any(word in column.name for word in _MEASURE_NAMES)
    ]
    named = {_column_name(column): f"sum({column.sql})" for column in measures[:2]}
    return {"events": "count(*)", **{f"sum_{name}": call for name, call in named.items()}}


def _column_name(column: ColumnProfile) -> str:
    return "_".join(re.findall(r"[a-z0-9]+", column.path.lower()))


def measure_lateness(
    event: SampledTime, arrival: SampledTime, partition: ColumnProfile | None, sequence: ColumnProfile | None
) -> Lateness | None:
    """Return how late the records of a sample are; None without a record that has both times."""
    size = len(event.times_ms)
    groups = partition.values if partition else [None] * size
    order = sequence.values if sequence else range(size)
    rows = sorted(
        (
            (str(group), arrived, number if isinstance(number, int) else 0, happened)
            for group, arrived, number, happened in zip(
                groups, arrival.times_ms, order, event.times_ms, strict=True
            )
            if arrived is not None and happened is not None
        )
    )
    if not rows:
        return None
    delays = sorted(arrived - happened for _, arrived, _, happened in rows)
    before = sum(delay < 0 for delay in delays)
    return Lateness(_quantiles(delays), _quantiles(sorted(_distances_behind(rows))), before, len(rows))


def _distances_behind(rows: Sequence[tuple[str, int, int, int]]) -> list[int]:
    """Return how far each event is behind the largest event time before it in its partition."""
    largest: dict[str, int] = {}
    distances = []
    for group, _, _, happened in rows:
        distances.append(max(0, largest.get(group, happened) - happened))
        largest[group] = max(largest.get(group, happened), happened)
    return distances


def _quantiles(ascending: Sequence[int]) -> tuple[int, ...]:
    return tuple(ascending[max(0, ceil(share * len(ascending)) - 1)] for share in QUANTILES)


def suggest_delay_ms(lateness: Lateness | None) -> int:
    """Return a round watermark delay, which 99 of 100 records of the sample keep."""
    behind_ms = 0 if lateness is None else lateness.behind_ms[QUANTILES.index(0.99)]
    return next((nice_ms for nice_ms in _NICE_MS if nice_ms >= behind_ms), _NICE_MS[-1])
