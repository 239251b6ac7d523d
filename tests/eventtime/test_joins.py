"""Joins without lateness are plain relational joins, and `intervalJoin` is a condition on pairs."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from backstream.eventtime.instants import MAX_MS
from backstream.eventtime.joins.join_function import JoinFunction
from backstream.eventtime.joins.rule import SIDE
from backstream.eventtime.records import Record
from backstream.eventtime.timers import ProcessOperator
from backstream.eventtime.watermarks import WatermarkEvent, Watermarks

COLUMNS = (("left", "amount"), ("right", "credit"))
INTERVAL = {"kind": "interval", "bounds_ms": (-20, 30)}
WINDOW = {"kind": "window", "window": ("Sliding", {"size_ms": 60, "slide_ms": 20}, 0)}
Pair = tuple[int | None, int | None]


def records_of(seed: int, keys: Sequence[str | None] = ("a", "b")) -> list[Record]:
    """Return records of two sides: the partition is the side."""
    choose = random.Random(seed)  # noqa: S311 - reproducible test data
    return [
        Record(
            number, choose.randrange(2), choose.choice(keys), choose.randrange(1_000, 1_300), choose.randrange(5)
        )
        for number in range(60)
    ]


def joined(records: Sequence[Record], watermarks: Watermarks, **options: Any) -> list[Pair]:
    """Return the pairs of numbers of records that a join emits."""
    numbers = iter(range(len(records)))

    def fields_of(record: Record) -> dict[str, Any]:
        side = record.source_partition
        return {SIDE: side, COLUMNS[side][0]: next(numbers), COLUMNS[side][1]: record.value}

    settings = {"join_type": "inner", "semantics": "flink_sql", "columns": COLUMNS, **options}
    operator = ProcessOperator(lambda: JoinFunction(**settings), fields_of)
    emitted = operator.run(records, watermarks).emitted
    rows = [row.row for rows in emitted.values() for row in rows if row.tag is None]
    return sorted(((row.get("left"), row.get("right")) for row in rows), key=str)


def offline(records: Sequence[Record]) -> Watermarks:
    """Return the watermarks of a recompute."""
    return Watermarks([WatermarkEvent(MAX_MS, len(records) - 1, 0)], in_force_ms=[-(2**63)] * len(records))


def relational(
    records: Sequence[Record], join_type: str, condition: Callable[[Record, Record], int]
) -> Iterator[Pair]:
    """Yield the rows of a join; the condition is the number of rows of a pair, one per common window."""
    sides: tuple[list[int], list[int]] = ([], [])
    for number, record in enumerate(records):
        sides[record.source_partition].append(number)
    pairs = [
        (left, right)
        for left in sides[0]
        for right in sides[1]
        if records[left].key == records[right].key
        for _ in range(condition(records[left], records[right]))
    ]
    yield from pairs
    yield from ((left, None) for left in sides[0] if join_type in ("left", "full") and left not in dict(pairs))
    paired = {right for _, right in pairs}
    yield from ((None, right) for right in sides[1] if join_type in ("right", "full") and right not in paired)


@pytest.mark.parametrize("join_type", ["inner", "left", "right", "full"])
@pytest.mark.parametrize("seed", range(3))
def test_a_recomputed_interval_join_is_the_relational_one(join_type: str, seed: int) -> None:
    records = records_of(seed)
    expected = relational(
        records,
        join_type,
        lambda left, right: -20 <= right.event_time_ms - left.event_time_ms <= 30 and left.value < right.value,
    )

    rows = joined(
        records, offline(records), **INTERVAL, join_type=join_type, conditions=[("amount", "<", "credit")]
    )

    assert rows == sorted(expected, key=str)


def test_a_recomputed_window_join_has_a_row_per_common_window() -> None:
    records = records_of(7)

    def common_windows(left: Record, right: Record) -> int:
        starts = [{(time_ms // 20 - step) * 20 for step in range(3)} for time_ms in times_of(left, right)]
        return len(starts[0] & starts[1])

    assert joined(records, offline(records), **WINDOW) == sorted(
        relational(records, "inner", common_windows), key=str
    )


def times_of(left: Record, right: Record) -> tuple[int, int]:
    return left.event_time_ms, right.event_time_ms


def test_a_recomputed_temporal_join_has_the_latest_version() -> None:
    records = records_of(8)
    versions: dict[tuple[Any, int], int] = {}
    for number, record in enumerate(records):
        if record.source_partition == 1:
            versions[record.key, record.event_time_ms] = number
    expected = []
    for number, record in enumerate(records):
        times = [at_ms for key, at_ms in versions if key == record.key and at_ms <= record.event_time_ms]
        if record.source_partition == 0:
            expected.append((number, versions[record.key, max(times)] if times else None))

    assert joined(records, offline(records), kind="temporal", join_type="left") == sorted(expected, key=str)


def test_a_null_key_equals_nothing() -> None:
    records = records_of(9, keys=[None])
    lefts = [(number, None) for number, record in enumerate(records) if record.source_partition == 0]

    rows = joined(records, offline(records), **INTERVAL, join_type="left")

    assert rows == sorted(lefts, key=str)


@pytest.mark.parametrize(("join_type", "is_paired"), [("semi", True), ("anti", False)])
def test_semi_and_anti_joins_have_left_records_once(join_type: str, is_paired: bool) -> None:
    records = records_of(10)
    window = {"kind": "window", "window": ("Tumbling", {"size_ms": 10}, 0)}
    pairs = joined(records, offline(records), **window)
    paired = {left for left, _ in pairs}
    lefts = {number for number, record in enumerate(records) if record.source_partition == 0}

    rows = joined(records, offline(records), **window, join_type=join_type)

    assert rows == sorted(((left, None) for left in (paired if is_paired else lefts - paired)), key=str)
    assert 0 < len(rows) < len(lefts)


@pytest.mark.parametrize("seed", range(4))
def test_a_pair_of_interval_join_depends_on_two_records_and_their_watermarks(seed: int) -> None:
    records, choose = records_of(seed + 20), random.Random(seed)  # noqa: S311 - reproducible test data
    steps = sorted(choose.sample(range(1_000, 1_300), 20))
    places = sorted(choose.sample(range(len(records)), 20))
    events = [WatermarkEvent(value_ms, after, 0) for value_ms, after in zip(steps, places, strict=True)]
    in_force_ms = [
        max((event.watermark_ms for event in events if event.after < number), default=0)
        for number in range(len(records))
    ]
    watermarks = Watermarks([*events, WatermarkEvent(MAX_MS, len(records) - 1, 0)], in_force_ms=in_force_ms)

    def is_pair(left: int, right: int) -> bool:
        first, second = sorted((left, right))
        times = records[left].event_time_ms, records[right].event_time_ms
        is_late = any(records[each].event_time_ms < in_force_ms[each] for each in (left, right))
        waits_until_ms = records[first].event_time_ms + (30 if first == left else 20)
        is_stored = in_force_ms[second] in (in_force_ms[first], min(in_force_ms[second], waits_until_ms - 1))
        return -20 <= times[1] - times[0] <= 30 and not is_late and is_stored

    expected = [
        (left, right)
        for left, one in enumerate(records)
        for right, other in enumerate(records)
        if (one.source_partition, other.source_partition) == (0, 1)
        and one.key == other.key
        and is_pair(left, right)
    ]
    rows = joined(records, watermarks, **INTERVAL, semantics="flink_datastream")

    assert rows == sorted(expected, key=str)
    assert len(expected) > 5
