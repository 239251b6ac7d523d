"""Chunks in batches: Airflow maps over batches, so that a run of thousands of chunks stays within its limits."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from backstream.core.intervals import Interval
from backstream.core.plan import Chunk
from backstream.core.together import together

MOST_BATCHES = 100
"""Spark jobs per run, at most; a run of more chunks has several chunks per job."""


def batches(chunks: Sequence[Chunk], most_events: int, parallelism: int | None = None) -> list[tuple[Chunk, ...]]:
    """The chunks in their order, in batches whose sizes differ by one at most.

    Args:
        chunks: of one plan.
        most_events: up to which chunks are run as one; see `together`.
        parallelism: how many batches; None: as many as are not run as one, and no more than Airflow shows well.
    """
    apart = sum(1 for _ in together(chunks, most_events))
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
