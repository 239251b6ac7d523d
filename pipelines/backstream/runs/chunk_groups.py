"""Group chunks into Spark jobs and batches, so that the fixed cost of a job is paid once for several chunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from backstream.eventtime.intervals import Interval
from backstream.runs.plan import Chunk

MAX_CHUNKS_PER_JOB = 64
"""Limit of chunks in one group: each is a column when records are counted."""
MAX_BATCHES = 100
"""Limit of Spark jobs per run; a run with more chunks has several chunks per job."""


def group_chunks(chunks: Sequence[Chunk], max_events: int) -> Iterator[Sequence[Chunk]]:
    """Return groups of chunks that run as one: adjacent, equally long except the last, with few events in total.

    Args:
        chunks: in the order of time.
        max_events: limit of expected events in a group; a chunk with more is a group of its own.
    """
    group: list[Chunk] = []
    for chunk in chunks:
        if group and not (_fits(chunk, group) and _count_events([*group, chunk]) <= max_events):
            yield group
            group = []
        group.append(chunk)
    if group:
        yield group


def _fits(chunk: Chunk, group: Sequence[Chunk]) -> bool:
    last, length_ms = group[-1], group[0].end_ms - group[0].start_ms
    is_next = chunk.start_ms == last.end_ms and last.end_ms - last.start_ms == length_ms
    return is_next and chunk.end_ms - chunk.start_ms <= length_ms and len(group) < MAX_CHUNKS_PER_JOB


def _count_events(chunks: Sequence[Chunk]) -> int:
    """Count each chunk as one event at least, so that a limit of 0 puts each chunk into its own group."""
    return sum(max(1, chunk.expected_events) for chunk in chunks)


def batch_groups(
    chunks: Sequence[Chunk], max_events: int, parallelism: int | None = None
) -> list[tuple[Chunk, ...]]:
    """Return the chunks in order, in batches whose sizes differ by one at most.

    Args:
        chunks: of one plan.
        max_events: limit of expected events in a group; see `group_chunks`.
        parallelism: number of batches; by default the number of groups, up to `MAX_BATCHES`, which Airflow
            still shows well.
    """
    groups = sum(1 for _ in group_chunks(chunks, max_events))
    count = min(len(chunks), parallelism or min(groups, MAX_BATCHES))
    bounds = [len(chunks) * number // count for number in range(count + 1)] if count else [0]
    return [tuple(chunks[start:end]) for start, end in pairwise(bounds)]


def batch_name(dataset: str, batch: Sequence[Chunk]) -> str:
    """Return a name such as `flights 0000: 2013-02-01T00:00Z to 2013-02-08T00:00Z`.

    For several chunks: `flights 0000-0029: .. (30 chunks)`.
    """
    first, last = batch[0], batch[-1]
    if len(batch) == 1:
        return f"{dataset} {first.chunk_id}: {first.interval}"
    span = Interval(first.start_ms, last.end_ms)
    return f"{dataset} {first.chunk_id}-{last.chunk_id}: {span} ({len(batch)} chunks)"
