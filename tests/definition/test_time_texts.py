"""ISO 8601 texts that are instants, and texts that are none."""

from __future__ import annotations

import pytest

from backstream.definition.time_texts import WrittenTime, parse_iso
from backstream.eventtime.instants import instant_ms

MARCH = instant_ms("2024-03-01", "a day") * 1_000
HOUR, SECOND = 3_600_000_000, 1_000_000
EIGHT = MARCH + 8 * HOUR

ZONED = {
    "2024-03-01T08:00:00Z": EIGHT,
    "2024-03-01 08:00:00Z": EIGHT,
    "2024-03-01t08:00:00z": EIGHT,
    "2024-03-01T08:00Z": EIGHT,
    "2024-03-01T08:00:00.5Z": EIGHT + SECOND // 2,
    "2024-03-01T08:00:00,123Z": EIGHT + 123_000,
    "2024-03-01T08:00:00.123456789Z": EIGHT + 123_456,
    "20240301T080000Z": EIGHT,
    "20240301T0800Z": EIGHT,
    "20240301T080000.25+0100": EIGHT - HOUR + SECOND // 4,
    "20240301T08:00:00Z": EIGHT,
    "2024-03-01T08:00:00+01": EIGHT - HOUR,
    "2024-03-01T08:00:00+0100": EIGHT - HOUR,
    "2024-03-01T08:00:00-01:00": EIGHT + HOUR,
    "2024-03-01 08:00:00.123456+00": EIGHT + 123_456,
    "2024-03-01T08:00:00 UTC": EIGHT,
    "2024-03-01T08:00:00 GMT": EIGHT,
    "2024-03-01 08:00:00.5 +0000 UTC": EIGHT + SECOND // 2,
    "2024-03-01 08:00:00 +0100 CET m=+0.001": EIGHT - HOUR,
    "2024-03-01T08:00+02:00[Europe/Berlin]": EIGHT - 2 * HOUR,
    "2024-03-01T08:00Z[Anything]": EIGHT,
    "2024-03-01T08:00[Europe/Berlin]": EIGHT - HOUR,
    "2024-03-01T08:00:00 Europe/Berlin": EIGHT - HOUR,
    "2024-02-29T24:00Z": MARCH,
    "2024-02-29T24:00:00.000Z": MARCH,
    "20240229T240000Z": MARCH,
    "2024-02-29T24:00:00+01:00": MARCH - HOUR,
    " 2024-03-01T08:00:00Z\r\n": EIGHT,
}
LOCAL = {
    "2024-03-01": MARCH,
    "2024-03-01T08:00": EIGHT,
    "2024-03-01 08:00:00,5": EIGHT + SECOND // 2,
    "20240301 080000": EIGHT,
    "2024-02-29 24:00": MARCH,
    "1969-12-31T23:59:59.9999999": -1,
}
NO_INSTANTS = (
    *("", " ", "null", "now", "today", "epoch", "1709280000", "170928", "2024", "2024-03", "20240301", "202403"),
    *("08:00", "T08:00", "T08:00:00", "T08:00:00Z", "2024-03-01T", "2024-03-01T08", "2024-03-01T08Z"),
    *("2024-03-01Z", "2024-03-01+01:00", "2024-061", "2024-061T08:00", "2024-W09-5", "2024-W09-5T08:00"),
    *("2024-02-30", "2024-02-30T08:00", "2023-02-29T24:00Z", "2024-13-01", "2024-00-01", "2024-03-00"),
    *("2024-03-01T25:00", "2024-03-01T24:01", "2024-03-01T24:00:00.1", "2024-03-01T08:60", "2024-03-01T08:00:60"),
    *("2024-03-01T08:00:61Z", "2024-03-01T08:00:00.", "2024-03-01T08:00:00.1234567890", "2024-03-01T08:30.5"),
    *("2024-3-1", "2024-03-01T8:00", "24-03-01T08:00", "0000-03-01", "12024-03-01T08:00", "-2024-03-01T08:00"),
    *("2024-0301T08:00", "2024-03-01T08:0000", "2024-03-01T0800:00", "2024-03-01  08:00", "2024-03-01_08:00"),
    *(
        "2024/03/01 08:00",
        "01.03.2024 08:00",
        "2024-03-01T08:00+1",
        "2024-03-01T08:00+19:00",
        "2024-03-01T08:00+18:01",
    ),
    *(
        "2024-03-01T08:00 CET",
        "2024-03-01T08:00 PST",
        "2024-03-01T08:00Europe/Berlin",
        "2024-03-01T08:00[Moon/Base]",
    ),
    *(
        "2024-03-01T08:00 Europe/Nowhere",
        "2024-03-01T08:00 Europe/",
        "2024-03-01T08:00[Europe/Berlin",
        "\u0662024-03-01",
    ),
    *("2024-03-01T08:00GMT+1", "2024-03-01T08:00:00Z and more", "2024-03-01T08:00:00Z2024-03-01T08:00:00Z"),
)


@pytest.mark.parametrize("text", ZONED)
def test_a_text_with_a_zone_is_an_instant(text: str) -> None:
    assert parse_iso(text) == WrittenTime(ZONED[text], has_zone=True)


@pytest.mark.parametrize("text", LOCAL)
def test_a_text_without_a_zone_is_a_local_time(text: str) -> None:
    assert parse_iso(text) == WrittenTime(LOCAL[text], has_zone=False)


@pytest.mark.parametrize("text", NO_INSTANTS)
def test_no_part_of_an_instant_is_guessed(text: str) -> None:
    assert parse_iso(text) is None


def test_a_local_time_that_exists_twice_is_the_first_and_one_that_clocks_skip_is_later() -> None:
    twice, skipped = parse_iso("2024-10-27T02:30[Europe/Berlin]"), parse_iso("2024-03-31T02:30[Europe/Berlin]")
    assert twice == parse_iso("2024-10-27T02:30+02:00")
    assert skipped == parse_iso("2024-03-31T03:30+02:00")
