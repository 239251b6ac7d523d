from __future__ import annotations

import pytest

from backstream.runs import chunk_groups as module
from backstream.runs.chunk_groups import group_chunks
from backstream.runs.plan import Chunk

SPANS = {
    "a": (0, 10, 4),
    "b": (10, 20, 6),
    "c": (20, 30, 1),  # too many events with those before it
    "e": (40, 50, 1),  # one lies between
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


def joined(most_events: int) -> list[str]:
    return ["".join(chunk.chunk_id for chunk in several) for several in group_chunks(CHUNKS, most_events)]


def test_chunks_run_as_one_that_lie_side_by_side_and_have_few_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_TOGETHER", 3)

    assert joined(10) == ["ab", "c", "ef", "ghi", "j", "k", "l", "m"]


def test_each_runs_by_itself_where_the_definition_says_so() -> None:
    assert joined(0) == list(SPANS)
