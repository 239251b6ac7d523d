from __future__ import annotations

import pytest

from backstream import formatting
from backstream.eventtime.instants import instant_ms


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (0, 10, "0 %"),
        (1, 3, "33.3 %"),
        (10, 10, "100 %"),
        (1, 100_000, "< 0.1 %"),
        (99_999, 100_000, "> 99.9 %"),
        (100_001, 100_000, "< 100.1 %"),
        (15, 10, "150 %"),
        (0, 0, "-"),
    ],
)
def test_a_share_is_never_rounded_to_none_or_all(part: int, whole: int, text: str) -> None:
    assert formatting.share_text(part, whole) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (1_000, "1.0 kB"), (12_345_678, "12.3 MB"), (10**16, "10,000.0 TB")],
)
def test_bytes_have_a_unit(size: int, text: str) -> None:
    assert formatting.bytes_text(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.04, "0.0 s"), (9.96, "10.0 s"), (16.3, "16 s"), (125.2, "2 min 5 s")]
)
def test_seconds_are_as_exact_as_they_are_short(seconds: float, text: str) -> None:
    assert formatting.seconds_text(seconds) == text


@pytest.mark.parametrize(
    ("value_ms", "text"),
    [(0, "0 s"), (200, "200 ms"), (5_400_000, "1 h 30 min"), (28 * 86_400_000, "28 d"), (-1, "-1 ms")],
)
def test_a_duration_is_formatted_with_units(value_ms: int, text: str) -> None:
    assert formatting.duration_words(value_ms) == text


def test_the_text_of_an_instant_ends_with_utc() -> None:
    at_ms = instant_ms("2013-02-08T21:00Z", "at")

    assert formatting.at_text(at_ms) == "2013-02-08 21:00 UTC"
    assert formatting.at_text(at_ms + 1_500) == "2013-02-08 21:00:01.500 UTC"
    assert formatting.minute_text(at_ms) == "2013-02-08 21:00"
    assert formatting.day_text(at_ms) == "8 Feb 2013"
    assert formatting.short_day_text(at_ms) == "8 Feb"


def test_an_iso_instant_of_any_zone_is_shown_in_utc_and_any_other_text_as_it_is() -> None:
    assert formatting.iso_text("2026-03-01T10:12:04.123+01:00") == "2026-03-01 09:12:04 UTC"
    assert formatting.iso_text("yesterday") == "yesterday"


def test_a_count_agrees_with_its_noun() -> None:
    assert formatting.count_of(1, "file") == "1 file"
    assert formatting.count_of(1_484, "window") == "1,484 windows"


def test_a_sentence_begins_large_and_ends_with_one_full_stop() -> None:
    assert formatting.sentence("all is well.") == "All is well."
    assert formatting.sentence("") == ""


@pytest.mark.parametrize(
    ("before_ms", "text"),
    [
        (59_999, "just now"),
        (60_000, "1 min ago"),
        (86_400_000 - 1, "23 h ago"),
        (86_400_000, "1 day ago"),
        (3 * 365 * 86_400_000, "3 years ago"),
        (-7_200_000, "in 2 h"),
    ],
)
def test_a_relative_time_has_one_unit(before_ms: int, text: str) -> None:
    now_ms = instant_ms("2026-03-01", "now")

    assert formatting.ago_text(now_ms - before_ms, now_ms) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(4.0, "+4"), (-0.25, "-0.25"), (0, "0"), (43_505.3, "+43,505.3"), (12_345_678.9, "+12,345,679")],
)
def test_a_change_has_a_sign_and_separators(value: float, text: str) -> None:
    assert formatting.change_text(value) == text
