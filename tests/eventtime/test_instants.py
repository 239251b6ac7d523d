from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstream.errors import SpecError
from backstream.eventtime.instants import (
    DAY_MS,
    MAX_MS,
    MIN_MS,
    duration_ms,
    duration_text,
    instant_ms,
    instant_text,
    wrap_int64,
)


@pytest.mark.parametrize(
    ("text", "value_ms"),
    [
        ("200ms", 200),
        ("0s", 0),
        ("45s", 45_000),
        ("1h", 3_600_000),
        ("1h30m", 5_400_000),
        ("90m", 5_400_000),
        ("7d", 604_800_000),
        ("-15m", -900_000),
        ("1d1h1m1s1ms", 90_061_001),
    ],
)
def test_a_duration_is_read_as_milliseconds(text: str, value_ms: int) -> None:
    assert duration_ms(text) == value_ms


@pytest.mark.parametrize(
    "text", ["", "-", "1", "h", "1 h", "1.5h", "1H", "1h 30m", "1w", "--1h", "1h-30m", "PT1H"]
)
def test_a_text_that_is_no_duration_is_rejected(text: str) -> None:
    with pytest.raises(SpecError) as refused:
        duration_ms(text)

    assert str(refused.value) == f'must be a duration such as "1h", "30m" or "200ms", got {text!r}'


@pytest.mark.parametrize(
    ("value_ms", "text"),
    [(0, "0s"), (200, "200ms"), (5_400_000, "1h30m"), (-900_000, "-15m"), (90_061_001, "1d1h1m1s1ms")],
)
def test_a_duration_has_the_shortest_exact_text(value_ms: int, text: str) -> None:
    assert duration_text(value_ms) == text


@given(st.integers(min_value=-(10**15), max_value=10**15))
def test_a_duration_reads_back_to_the_same_milliseconds(value_ms: int) -> None:
    assert duration_ms(duration_text(value_ms)) == value_ms


@pytest.mark.parametrize(
    ("text", "value_ms"),
    [
        ("1970-01-01", 0),
        ("2013-02-01", 1_359_676_800_000),
        ("20130201", 1_359_676_800_000),
        ("2013-02-01T05:00Z", 1_359_694_800_000),
        ("2013-02-01T00:00-05:00", 1_359_694_800_000),
        ("2013-02-01 05:00:00+00:00", 1_359_694_800_000),
        ("2013-02-01T05:00:00.123Z", 1_359_694_800_123),
        ("2013-02-01T05:00:00.1239Z", 1_359_694_800_123),
        ("1969-12-31", -DAY_MS),
        ("1969-12-31T23:59:59.999Z", -1),
        ("1969-12-31T23:59:59.9999Z", -1),
        ("0001-01-01", -62_135_596_800_000),
    ],
)
def test_an_instant_is_read_as_epoch_milliseconds_floored(text: str, value_ms: int) -> None:
    assert instant_ms(text, "--since") == value_ms


@pytest.mark.parametrize("text", ["2013-02-01T00:00", "2013-02-01 05:30:00", "2013-02-01T05"])
def test_a_local_time_without_zone_is_rejected_with_a_hint(text: str) -> None:
    with pytest.raises(SpecError) as refused:
        instant_ms(text, "--since")

    assert str(refused.value) == (
        f"--since must name its time zone, got the local time {text!r}\n\n"
        f"hint: write {text}Z for UTC, or {text}-05:00 for New York in winter"
    )
    instant_ms(f"{text}Z", "--since")
    instant_ms(f"{text}-05:00", "--since")


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2013-02-30", "2013-13-01", "01.02.2013", "1359676800", "2013-02"]
)
def test_a_text_that_is_no_instant_is_rejected(text: str) -> None:
    with pytest.raises(SpecError) as refused:
        instant_ms(text, "--since")

    assert (
        str(refused.value) == f"--since must be an instant such as 2013-02-01 or 2013-02-01T05:00Z, got {text!r}"
    )


@pytest.mark.parametrize(
    ("value_ms", "text"),
    [
        (0, "1970-01-01T00:00Z"),
        (1_359_694_800_000, "2013-02-01T05:00Z"),
        (1_359_694_801_000, "2013-02-01T05:00:01Z"),
        (1_359_694_800_007, "2013-02-01T05:00:00.007Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (-60_000, "1969-12-31T23:59Z"),
        (-62_135_596_800_000, "0001-01-01T00:00Z"),
        (MIN_MS, "-inf"),
        (MAX_MS, "+inf"),
        (MAX_MS - 1, "9223372036854775806 ms"),
    ],
)
def test_an_instant_has_the_shortest_exact_text(value_ms: int, text: str) -> None:
    assert instant_text(value_ms) == text


@given(st.integers(min_value=-62_135_596_800_000, max_value=253_402_300_799_999))
def test_an_instant_of_the_calendar_reads_back_to_the_same_milliseconds(value_ms: int) -> None:
    assert instant_ms(instant_text(value_ms), "it") == value_ms


def test_a_number_wraps_at_64_bits_as_in_java() -> None:
    assert wrap_int64(MAX_MS) == MAX_MS
    assert wrap_int64(MAX_MS + 1) == MIN_MS
    assert wrap_int64(MIN_MS - 1) == MAX_MS
    assert wrap_int64(-5) == -5
