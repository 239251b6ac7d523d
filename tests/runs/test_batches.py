from __future__ import annotations

import pytest

from backstream.eventtime.instants import DAY_MS
from backstream.runs.chunk_groups import MOST_BATCHES, batch_groups, batch_name
from backstream.runs.plan import Chunk

AIRFLOWS_LIMIT = 1_024
"""Of tasks that one task is mapped to, unless `[core] max_map_length` says otherwise."""


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
    cut = batch_groups(chunks(count), most_events, parallelism)
    assert [len(batch) for batch in cut] == sizes
    assert [chunk for batch in cut for chunk in batch] == chunks(count)


def test_no_run_is_mapped_beyond_what_airflow_allows() -> None:
    assert max(len(batch_groups(chunks(count), 0)) for count in (1, 99, 101, 3_000, 40_000)) == MOST_BATCHES
    assert MOST_BATCHES < AIRFLOWS_LIMIT


def test_a_batch_is_named_by_what_it_does() -> None:
    one, several = batch_groups(chunks(4), 0, 3)[0], batch_groups(chunks(4), 0, 3)[2]
    assert batch_name("clicks", one) == "clicks 0000: 1970-01-01T00:00Z to 1970-01-02T00:00Z"
    assert batch_name("clicks", several) == "clicks 0002-0003: 1970-01-03T00:00Z to 1970-01-05T00:00Z (2 chunks)"
