"""Which chunks of a run run as one: what a Spark job costs however little it does is then paid once for all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from backstream.eventtime.intervals import Interval
from backstream.runs.plan import Chunk

MOST_TOGETHER = 64
"""Chunks: each is a column where records are counted."""


def group_chunks(chunks: Sequence[Chunk], most_events: int) -> Iterator[Sequence[Chunk]]:
    """Chunks that are to run as one: side by side, all but the last equally long, with few events in all.

    Args:
        chunks: in the order of time.
        most_events: how many they may be expected to have; a chunk that has more is by itself.
    """
    several: list[Chunk] = []
    for chunk in chunks:
        if several and not (_fits(chunk, several) and _events([*several, chunk]) <= most_events):
            yield several
            several = []
        several.append(chunk)
    if several:
        yield several


def _fits(chunk: Chunk, several: Sequence[Chunk]) -> bool:
    last, length_ms = several[-1], several[0].end_ms - several[0].start_ms
    is_next = chunk.start_ms == last.end_ms and last.end_ms - last.start_ms == length_ms
    return is_next and chunk.end_ms - chunk.start_ms <= length_ms and len(several) < MOST_TOGETHER


def _events(chunks: Sequence[Chunk]) -> int:
    """At least one each, so that no two are together where nothing is allowed."""
    return sum(max(1, chunk.expected_events) for chunk in chunks)


MOST_BATCHES = 100
"""Spark jobs per run, at most; a run of more chunks has several chunks per job."""


def batch_groups(
    chunks: Sequence[Chunk], most_events: int, parallelism: int | None = None
) -> list[tuple[Chunk, ...]]:
    """The chunks in their order, in batches whose sizes differ by one at most.

    Args:
        chunks: of one plan.
        most_events: up to which chunks are run as one; see `together`.
        parallelism: how many batches; None: as many as are not run as one, and no more than Airflow shows well.
    """
    apart = sum(1 for _ in group_chunks(chunks, most_events))
    count = min(len(chunks), parallelism or min(apart, MOST_BATCHES))
    bounds = [len(chunks) * number // count for number in range(count + 1)] if count else [0]
    return [tuple(chunks[start:end]) for start, end in pairwise(bounds)]


def batch_name(dataset: str, batch: Sequence[Chunk]) -> str:
    """Such as `flights 0000: 2013-02-01T00:00Z to 2013-02-08T00:00Z`, or `flights 0000-0029: .. (30 chunks)`."""
    first, last = batch[0], batch[-1]
    if len(batch) == 1:
        return f"{dataset} {first.chunk_id}: {first.interval}"
    span = Interval(first.start_ms, last.end_ms)
    return f"{dataset} {first.chunk_id}-{last.chunk_id}: {span} ({len(batch)} chunks)"
