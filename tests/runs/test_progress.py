"""Test the progress of a run and the estimate of its remaining time."""

from __future__ import annotations

import pytest

from backstream.eventtime.instants import MINUTE_MS
from backstream.runs.progress import ChunkTiming, Progress, estimate_seconds_left, is_alive


def sequential(*chunks: tuple[int, float]) -> list[ChunkTiming]:
    """Return timings of chunks that ran one after another, from their events and seconds."""
    done, now_ms = [], 0.0
    for events, seconds in chunks:
        now_ms += seconds * 1_000
        done.append(ChunkTiming(events, seconds, int(now_ms)))
    return done


def test_without_a_finished_chunk_there_is_no_estimate() -> None:
    assert estimate_seconds_left([], [100, 100]) is None
    assert estimate_seconds_left(sequential((0, 0.1)), [100]) is None


def test_after_the_last_chunk_no_time_is_left() -> None:
    assert estimate_seconds_left(sequential((100, 10.0)), []) == (0.0, 0.0)


def test_one_chunk_gives_one_rate() -> None:
    assert estimate_seconds_left(sequential((100, 10.0)), [50, 150]) == (20.0, 20.0)


def test_the_interval_spans_the_quartiles_of_seconds_per_event() -> None:
    # seconds per event: 0.1, 0.2, 0.3, 0.4, 5.0; quartiles 0.2 and 0.4: one slow chunk does not move them
    done = sequential((100, 10.0), (100, 20.0), (100, 30.0), (100, 40.0), (10, 50.0))

    assert estimate_seconds_left(done, [1_000]) == pytest.approx((200.0, 400.0))


def test_parallel_chunks_finish_sooner() -> None:
    #  0......10s
    #  first  |
    #  second |      third and fourth are left
    done = [ChunkTiming(100, 10.0, 10_000), ChunkTiming(100, 10.0, 10_000)]

    assert estimate_seconds_left(done, [100, 100]) == (10.0, 10.0)
    assert estimate_seconds_left(done, [100]) == (10.0, 10.0)  # the last one runs alone


def test_a_run_counts_as_dead_after_ten_minutes_or_twice_its_longest_chunk() -> None:
    slow = sequential((100, 30 * 60.0))

    assert [is_alive(10 * MINUTE_MS, 0, []), is_alive(10 * MINUTE_MS + 1, 0, [])] == [True, False]
    assert [is_alive(60 * MINUTE_MS, 0, slow), is_alive(60 * MINUTE_MS + 1, 0, slow)] == [True, False]


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (Progress(0, 4, None), "0 of 4 chunks are done"),
        (Progress(12, 3_000, (290.0, 480.0)), "12 of 3,000 chunks are done, 5 to 8 min left"),
        (Progress(2, 4, (31.0, 59.0)), "2 of 4 chunks are done, 1 min left"),
        (Progress(4, 4, (0.0, 0.0)), "4 of 4 chunks are done"),
    ],
)
def test_progress_is_shown_in_minutes(progress: Progress, text: str) -> None:
    assert str(progress) == text
