"""Name the partitions that hold the watermark, and recommend an idle timeout."""

from __future__ import annotations

from backstream.eventtime.instants import DAY_MS, HOUR_MS
from backstream.eventtime.watermark_holders import (
    ArrivalBucket,
    find_watermark_holders,
    recommend_idle_timeout_ms,
)


def hourly(name: str, *days: range) -> list[ArrivalBucket]:
    """Return a bucket of 100 records in each hour of some days."""
    hours = [hour for each in days for hour in range(24 * each.start, 24 * each.stop)]
    return [
        ArrivalBucket(name, at, at + HOUR_MS - 1_000, at + HOUR_MS - 2_000, 100)
        for at in (hour * HOUR_MS for hour in hours)
    ]


def test_a_partition_that_stops_holds_the_watermark_to_the_end() -> None:
    #  a  day 0 ........................ 100
    #  b  day 0 ... 10
    buckets = [*hourly("a", range(100)), *hourly("b", range(10))]

    first, *_ = find_watermark_holders(buckets, 0)

    assert first.source_partition == "b"
    assert first.held_ms >= 90 * DAY_MS - HOUR_MS
    assert (first.silent_from_ms, first.silent_until_ms) == (10 * DAY_MS - 1_000, 100 * DAY_MS - 1_000)
    assert recommend_idle_timeout_ms(buckets) == HOUR_MS


def test_with_an_idle_timeout_the_silent_partition_holds_it_no_longer_than_that() -> None:
    buckets = [*hourly("a", range(100)), *hourly("b", range(10))]

    held = {each.source_partition: each.held_ms for each in find_watermark_holders(buckets, DAY_MS)}

    assert 23 * HOUR_MS < held["b"] < 12 * DAY_MS
    assert held["a"] > 80 * DAY_MS


def test_the_stretches_of_a_chart_are_within_it_and_touching_ones_are_one() -> None:
    buckets = [*hourly("a", range(100)), *hourly("b", range(10), range(60, 100))]
    chart = (5 * DAY_MS, 70 * DAY_MS)

    found = {each.source_partition: each for each in find_watermark_holders(buckets, 0, charted=chart)}

    second = 1_000
    assert list(found["b"].silences) == [(10 * DAY_MS - second, 60 * DAY_MS)]
    assert found["b"].holds == ((10 * DAY_MS + HOUR_MS - second, 60 * DAY_MS + HOUR_MS - second),)
    assert all(chart[0] <= start < end <= chart[1] for each in found.values() for start, end in each.holds)
    assert found["a"].silences == ()


def test_partitions_that_always_deliver_need_no_timeout() -> None:
    assert recommend_idle_timeout_ms([*hourly("a", range(30)), *hourly("b", range(30))]) is None
    assert recommend_idle_timeout_ms([]) is None
    assert find_watermark_holders([], 0) == []


def test_a_partition_that_never_delivers_holds_it_all_the_time() -> None:
    (holder,) = find_watermark_holders(hourly("a", range(2)), 0, ["b"])

    assert (holder.source_partition, holder.silent_ms) == ("b", 2 * DAY_MS - 1_000)
