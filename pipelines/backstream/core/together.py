"""Which chunks of a run run as one: what a Spark job costs however little it does is then paid once for all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from backstream.core.plan import Chunk

MOST_TOGETHER = 64
"""Chunks: each is a column where records are counted."""


def together(chunks: Sequence[Chunk], most_events: int) -> Iterator[Sequence[Chunk]]:
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
