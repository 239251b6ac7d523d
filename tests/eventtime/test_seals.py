"""Test the seals of days by hand-written deliveries."""

from __future__ import annotations

from backstream.eventtime.instants import DAY_MS
from backstream.eventtime.seals import DaySeal, Delivery, Seal, SealRule, seal_days

TWO_DAYS_MS = 2 * DAY_MS


def seals(days: int, *deliveries: Delivery, rule: SealRule) -> list[Seal]:
    return [day.seal for day in seal_days([day * DAY_MS for day in range(days)], deliveries, rule)]


def delivery(partition: str, day: int, arrived_day: float, events: int = 1) -> Delivery:
    return Delivery(partition, day * DAY_MS, events, int(arrived_day * DAY_MS))


def test_a_day_is_sealed_by_an_arrival_later_than_its_end_and_the_horizon() -> None:
    #  day     0    1    2    3    4
    #  A                         at 3.0 exactly: day 0 ends at 1, and two days may pass
    rule = SealRule(TWO_DAYS_MS)

    assert seals(2, delivery("A", 0, 0.5), delivery("A", 3, 3.0), rule=rule) == [Seal.OPEN, Seal.OPEN]
    assert seals(2, delivery("A", 0, 0.5), delivery("A", 3, 3.1), rule=rule) == [Seal.SEALED, Seal.OPEN]


def test_a_sealed_day_without_an_event_is_empty() -> None:
    rule = SealRule(0)

    assert seals(3, delivery("A", 0, 0.5), delivery("A", 2, 2.5), rule=rule) == [
        Seal.SEALED,
        Seal.EMPTY,
        Seal.OPEN,
    ]


def test_a_day_is_partial_if_one_partition_stays_behind() -> None:
    deliveries = [delivery("A", 0, 0.5), delivery("B", 0, 0.5), delivery("A", 1, 1.5)]

    assert seal_days([0, DAY_MS], deliveries, SealRule(0)) == [
        DaySeal(0, Seal.PARTIAL, "no arrival of B after 1970-01-02T00:00Z"),
        DaySeal(DAY_MS, Seal.OPEN, "no arrival of A, B after 1970-01-03T00:00Z"),
    ]


def test_an_idle_partition_does_not_delay_the_seal() -> None:
    deliveries = [delivery("A", 0, 0.5), delivery("B", 0, 0.5), delivery("A", 1, 1.5)]

    assert seals(1, *deliveries, rule=SealRule(0, idle_timeout_ms=DAY_MS)) == [Seal.SEALED]
    assert seals(1, *deliveries, rule=SealRule(0, idle_timeout_ms=DAY_MS + 1)) == [Seal.PARTIAL]


def test_each_source_of_a_union_has_its_own_idle_timeout() -> None:
    deliveries = [delivery("web/0", 0, 0.5), delivery("shop/0", 0, 0.5), delivery("web/0", 1, 1.5)]

    def rule(web_ms: int, shop_ms: int, **more: int) -> SealRule:
        return SealRule(0, idle_timeouts_ms={"web": web_ms, "shop": shop_ms, **more})

    assert seals(1, *deliveries, rule=rule(0, DAY_MS)) == [Seal.SEALED]
    assert seals(1, *deliveries, rule=rule(DAY_MS, 0)) == [Seal.PARTIAL]
    assert seals(1, *deliveries, rule=rule(0, DAY_MS, app=1)) == [Seal.PARTIAL]  # it never delivered


def test_an_expected_partition_that_never_delivered_is_never_idle() -> None:
    rule = SealRule(0, ("A", "C"), idle_timeout_ms=1)

    assert seals(1, delivery("A", 0, 0.5), delivery("A", 1, 1.5), rule=rule) == [Seal.PARTIAL]


def test_without_arrivals_every_day_is_open() -> None:
    assert seal_days([0], [], SealRule(0)) == [DaySeal(0, Seal.OPEN, "no arrival after 1970-01-02T00:00Z")]
