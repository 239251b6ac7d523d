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


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("yyyy-MM-dd HH:mm:ss", None),
        ("%Y-%m-%d %H:%M:%S", 'is in the notation of strftime: write "yyyy-MM-dd HH:mm:ss"'),
    ],
)
def test_a_pattern_that_means_something_else_is_refused(pattern: str, reason: str | None) -> None:
    assert reason_against_pattern(pattern) == reason
