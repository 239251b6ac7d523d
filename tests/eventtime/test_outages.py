"""Outages as they are written, and what they do to an arrival."""

from __future__ import annotations

import pytest

from backstream.errors import SpecError
from backstream.eventtime.instants import instant_ms
from backstream.eventtime.outages import Outage


@pytest.mark.parametrize(
    ("text", "partition", "start"),
    [
        ("EWR:2013-02-10/2013-02-12", "EWR", "2013-02-10"),
        ("topic:3:2013-02-10T06:30Z/2013-02-12", "topic:3", "2013-02-10T06:30Z"),
    ],
)
def test_an_outage_has_a_partition_and_an_interval(text: str, partition: str, start: str) -> None:
    outage = Outage.from_text(text)
    start_ms, end_ms = instant_ms(start, "start"), instant_ms("2013-02-12", "end")
    assert (outage.source_partition, outage.interval.start_ms, outage.interval.end_ms) == (
        partition,
        start_ms,
        end_ms,
    )
    assert outage.arrival_ms(partition, start_ms) == end_ms
    assert outage.arrival_ms(partition, start_ms - 1) == start_ms - 1
    assert outage.arrival_ms(partition, end_ms) == end_ms
    assert outage.arrival_ms("JFK", start_ms) == start_ms


@pytest.mark.parametrize("text", ["EWR", "EWR:2013-02-10", ":2013-02-10/2013-02-12", "2013-02-10/2013-02-12"])
def test_another_form_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="an outage must be PARTITION:START/END"):
        Outage.from_text(text)


def test_an_empty_interval_is_refused() -> None:
    with pytest.raises(SpecError, match="the end of an outage must be after its start"):
        Outage.from_text("EWR:2013-02-12/2013-02-12")
