"""Patterns of times: what Spark reads with them, and which of them mean something else."""

from __future__ import annotations

import pytest

from backstream.definition.time_patterns import parse_pattern, reason_against_pattern
from backstream.definition.time_texts import parse_iso


@pytest.mark.parametrize(
    ("pattern", "text", "instant"),
    [
        ("yyyy-MM-dd HH:mm:ss.SSS", "2024-03-01 08:00:00.5", "2024-03-01T08:00:00.5"),
        ("dd/MMM/yyyy:HH:mm:ss Z", "01/Mar/2024:08:00:00 +0100", "2024-03-01T08:00+01:00"),
        ("M/d/yyyy h:mm:ss a", "3/1/2024 8:00:00 pm", "2024-03-01T20:00"),
        ("MM/dd/yyyy hh:mm a", "03/01/2024 12:30 AM", "2024-03-01T00:30"),
        ("yyyyMMdd", "20240301", "2024-03-01"),
        ("yyyyMMddHHmmss", "20240301080000", "2024-03-01T08:00"),
        ("yyyy-MM-dd[ HH:mm[:ss]][XXX]", "2024-03-01 08:00+01:00", "2024-03-01T08:00+01:00"),
        ("yyyyDDD", "2024061", "2024-03-01"),
        ("dd.MM.yy", "01.03.24", "2024-03-01"),
        ("yyyy-MM-dd'T'HH:mm:ss'Z'", "2024-03-01T08:00:00Z", "2024-03-01T08:00Z"),
        ("d MMMM yyyy", "1 march 2024", "2024-03-01"),
        ("yyyy-MM-dd", "2024-3-1", None),
        ("yyyy-MM-dd", "2024-02-30", None),
        ("yyyy-MM-dd", "12024-03-01", None),
        ("yyyy-MM-dd HH:mm", "2024-03-01 24:00", None),
        ("yyyy-MM-dd hh:mm a", "2024-03-01 13:00 AM", None),
        ("yyyy-MM-dd", "2024-03-01 08:00", None),
    ],
)
def test_a_pattern_reads_whole_texts_strictly(pattern: str, text: str, instant: str | None) -> None:
    assert parse_pattern(pattern, text) == (None if instant is None else parse_iso(instant))


WEEKDAY = (
    "EEE is a week or its day, which Spark cannot parse; leave it out of the text by SQL, e.g., substring(at, 6)"
)
JOINED = (
    "Spark takes digits of SSS for yyyy; separate them by SQL, "
    "e.g., concat(substring(at, 1, 14), '.', substring(at, 15))"
)
MEANINGS = [
    ("yyyy-MM-dd HH:mm:ss", None),
    ("yyyy-MM-dd'T'HH:mm:ss.SSSX", None),
    ("M/d/yy h:mm a", None),
    ("yyyy-DDD HH", None),
    ("yyyy-MM-dd[ HH:mm[:ss]]", None),
    ("yyyy-MM-dd HH 'o''clock'", None),
    (
        "YYYY-MM-DD HH:mm:ss",
        'YYYY is the year of a week, and DD is the day of the year; write "yyyy-MM-dd HH:mm:ss"',
    ),
    ("dd.mm.yyyy", 'mm is the minute; write "dd.MM.yyyy"'),
    ("mm/dd/yyyy HH:mm", 'mm is the minute; write "MM/dd/yyyy HH:mm"'),
    ("yyyy-mm-dd HH:MM:ss", 'mm is the minute, and MM is the month; write "yyyy-MM-dd HH:mm:ss"'),
    ("yyyy-MM-dd HH:MM:ss", 'MM is the month; write "yyyy-MM-dd HH:mm:ss"'),
    ("yyyy-MM-dd HH:mm:SS", 'SS is the fraction of a second; write "yyyy-MM-dd HH:mm:ss"'),
    ("yyyy-MM-dd HH:mm:ss.sss", 'sss is the second again; write "yyyy-MM-dd HH:mm:ss.SSS"'),
    ("yyyy-MM-dd hh:mm:ss", 'hh is an hour from 1 to 12 without AM or PM (a); write "yyyy-MM-dd HH:mm:ss"'),
    ("dd/MM/yyyy kk:mm", 'kk is an hour from 1 to 24; write "dd/MM/yyyy HH:mm"'),
    ("dd/MM/yyyy KK:mm a", 'KK is an hour from 0 to 11; write "dd/MM/yyyy hh:mm a"'),
    ("uuuu-MM-dd", 'uuuu is no year in Spark; write "yyyy-MM-dd"'),
    ("MM/dd/yyyy hh:mm tt", 'tt is no letter of a pattern; write "MM/dd/yyyy hh:mm a"'),
    (
        "yyyy-MM-ddTHH:mm:ss.fff",
        "T is no letter of a pattern, and fff is no letter of a pattern; write \"yyyy-MM-dd'T'HH:mm:ss.SSS\"",
    ),
    ("%Y-%m-%d %H:%M:%S", '% belongs to the notation of strftime; write "yyyy-MM-dd HH:mm:ss"'),
    ("%d/%b/%Y:%H:%M:%S %z", '% belongs to the notation of strftime; write "dd/MMM/yyyy:HH:mm:ss Z"'),
    ("%Y-%m-%dT%H:%M:%S", "% belongs to the notation of strftime; write \"yyyy-MM-dd'T'HH:mm:ss\""),
    ("%c", '% belongs to the notation of strftime; write letters, e.g., "yyyy-MM-dd HH:mm:ss"'),
    (
        "EEE MMM dd HH:mm:ss yyyy",
        WEEKDAY,
    ),
    ("yyyy-MM-dd Q", "Q is no letter of an instant; write text in quotes, 'Q'"),
    ("yyyy-MM-dd HHH", "HHH has a wrong number of letters"),
    ("yyyy-MM-dd HH:mm V", "V has a wrong number of letters"),
    ("yyyy-MM-dd'T", "a quote has no end"),
    ("yyyy-MM-dd]", "a bracket has no counterpart"),
    ("yyyy-MM-dd [HH", "a bracket has no counterpart"),
    ("yyyy-MM-dd {HH}", "{ is reserved; write it in quotes, '{'"),
    ("HH:mm:ss", "it has no year (yyyy), no month (MM), no day (dd)"),
    ("yyyy-MM", "it has no day (dd)"),
    ("yyyy-MM[-dd]", "it has no day (dd) outside of [ ]"),
    ("yyyy-MM-dd mm:ss", "it has parts of hours, and no hour (HH)"),
    (
        "yyyyMMddHHmmssSSS",
        JOINED,
    ),
]


@pytest.mark.parametrize(("pattern", "reason"), MEANINGS)
def test_a_pattern_that_means_something_else_is_refused(pattern: str, reason: str | None) -> None:
    assert reason_against_pattern(pattern) == reason
