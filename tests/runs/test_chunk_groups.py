"""Test the grouping of chunks into Spark jobs and batches."""

from __future__ import annotations

import pytest

from backstream.eventtime.instants import DAY_MS
from backstream.runs import chunk_groups
from backstream.runs.chunk_groups import MAX_BATCHES, batch_groups, batch_name, group_chunks
from backstream.runs.plan import Chunk

MAX_MAP_LENGTH = 1_024
"""Airflow's default limit of mapped tasks, `[core] max_map_length`."""


def chunks(count: int) -> list[Chunk]:
    return [Chunk(f"{n:04}", n * DAY_MS, (n + 1) * DAY_MS, (n + 1) * DAY_MS, (), 1) for n in range(count)]


@pytest.mark.parametrize(
    ("count", "most_events", "parallelism", "sizes"),
    [
        (0, 0, None, []),
        (1, 0, None, [1]),
        (4, 0, None, [1, 1, 1, 1]),
        (4, 4, None, [4]),
        (4, 3, None, [2, 2]),
        (4, 4, 3, [1, 1, 2]),
        (4, 0, 9, [1, 1, 1, 1]),
        (3_000, 0, 2, [1_500, 1_500]),
        (3_000, 0, None, [30] * 100),
        (3_000, 1_000_000, None, [3_000 * (n + 1) // 47 - 3_000 * n // 47 for n in range(47)]),
    ],
)
def test_chunks_are_mapped_in_batches_of_about_the_same_size(
    count: int, most_events: int, parallelism: int | None, sizes: list[int]
) -> None:
    batches = batch_groups(chunks(count), most_events, parallelism)
    assert [len(batch) for batch in batches] == sizes
    assert [chunk for batch in batches for chunk in batch] == chunks(count)


def test_no_run_has_more_batches_than_airflow_maps() -> None:
    assert max(len(batch_groups(chunks(count), 0)) for count in (1, 99, 101, 3_000, 40_000)) == MAX_BATCHES
    assert MAX_BATCHES < MAX_MAP_LENGTH


def test_a_batch_is_named_by_its_chunks_and_range() -> None:
    single, pair = batch_groups(chunks(4), 0, 3)[0], batch_groups(chunks(4), 0, 3)[2]
    assert batch_name("clicks", single) == "clicks 0000: 1970-01-01T00:00Z to 1970-01-02T00:00Z"
    assert batch_name("clicks", pair) == "clicks 0002-0003: 1970-01-03T00:00Z to 1970-01-05T00:00Z (2 chunks)"


SPANS = {
    "a": (0, 10, 4),
    "b": (10, 20, 6),
    "c": (20, 30, 1),  # too many events in total
    "e": (40, 50, 1),  # a gap before it
    "f": (50, 55, 1),  # a shorter one may be the last
    "g": (55, 65, 1),
    "h": (65, 75, 0),
    "i": (75, 85, 0),
    "j": (85, 95, 0),  # too many chunks
    "k": (95, 106, 0),  # longer than those before it
    "l": (106, 117, 11),  # too many events by itself
    "m": (117, 128, 0),
}
CHUNKS = [Chunk(name, start, end, end, (), events) for name, (start, end, events) in SPANS.items()]


def group_ids(most_events: int) -> list[str]:
    return ["".join(chunk.chunk_id for chunk in group) for group in group_chunks(CHUNKS, most_events)]


def test_adjacent_chunks_with_few_events_form_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_groups, "MAX_CHUNKS_PER_JOB", 3)

    assert group_ids(10) == ["ab", "c", "ef", "ghi", "j", "k", "l", "m"]


def test_with_a_limit_of_zero_each_chunk_is_its_own_group() -> None:
    assert group_ids(0) == list(SPANS)
