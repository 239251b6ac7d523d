"""The fold of one key's sessions against the reference, on streams of any shape."""

from __future__ import annotations

import random

import pytest

from backstream.core.errors import PlanError
from backstream.core.instants import MAX_MS, MIN_MS
from backstream.core.panes import PaneTiming, panes
from backstream.core.records import Record
from backstream.core.windows import Session
from backstream.spark.sessions.fold import Folded, as_met, folded

Stream = tuple[list[int], list[int], int, int]
"""Event times, watermarks in force, gap, lateness."""


def random_stream(chance: random.Random) -> Stream:
    gap_ms = chance.choice([1, 3, 10])
    span_ms = chance.choice([10, 60, 300])
    lateness_ms = chance.choice([0, 0, 1, 5, 40, 1_000, MAX_MS])
    watermark_ms, event_times_ms, in_force_ms = MIN_MS, [], []
    for position in range(chance.randrange(40)):
        now_ms = span_ms * position // 40
        event_times_ms.append(now_ms - chance.choice([0, 0, chance.randrange(5), chance.randrange(span_ms)]))
        if chance.random() < 0.3:
            watermark_ms = max(watermark_ms, now_ms - chance.choice([0, 2, 12]))
        if chance.random() < 0.002:
            watermark_ms = MAX_MS
        in_force_ms.append(watermark_ms)
    return event_times_ms, in_force_ms, gap_ms, lateness_ms


def by_the_reference(stream: Stream) -> object:
    event_times_ms, in_force_ms, gap_ms, lateness_ms = stream
    records = [Record(0, 0, "", event_ms) for event_ms in event_times_ms]
    try:
        played = panes(records, as_met(in_force_ms), Session(gap_ms), lateness_ms)
    except PlanError as error:
        return str(error)
    fired = [
        (*pane.window, pane.by if pane.timing is PaneTiming.LATE else None, list(pane.records))
        for pane in played.panes
    ]
    return [fate.value for fate in played.fates], fired


def folded_records(event_times_ms: list[int], in_force_ms: list[int], gap_ms: int, lateness_ms: int) -> Folded:
    return folded([(event_ms, event_ms) for event_ms in event_times_ms], in_force_ms, gap_ms, lateness_ms)


def by_the_fold(stream: Stream) -> object:
    fold = folded_records(*stream)
    if fold.refusal:
        return fold.refusal
    return fold.fates, [(*each[:3], sorted(each.members[: each.size])) for each in fold.firings]


def test_the_fold_does_what_the_reference_does() -> None:
    chance = random.Random(1_969)  # noqa: S311 - cases, not secrets
    streams = [random_stream(chance) for _ in range(6_000)]

    differing = [stream for stream in streams if by_the_fold(stream) != by_the_reference(stream)]

    assert differing == []


def test_these_streams_fail_merge_and_fire_in_every_way() -> None:
    chance = random.Random(1_969)  # noqa: S311 - cases, not secrets
    folds = [folded_records(*random_stream(chance)) for _ in range(1_000)]

    assert sum(fold.refusal is not None for fold in folds) > 30
    assert {fate for fold in folds for fate in fold.fates} == {"on_time", "late", "dropped"}
    assert sum(len({each.start_ms for each in fold.firings}) > 3 for fold in folds) > 100


def test_a_lateness_near_the_limit_fails_the_first_merge_after_a_watermark() -> None:
    #  arrival     0   |   4           watermark 1 in between
    #  session   [0, 10)
    #  merge     [0, 14)               its last millisecond + lateness overflows
    fold = folded_records([0, 4, 5], [MIN_MS, 1, 1], 10, MAX_MS)

    assert fold.fates == ["on_time"]
    assert fold.refusal == (
        "session cannot merge to end before the watermark: lateness overflows"
        "\n  session 0 to 14 ms"
        f"\n  watermark 1 ms, allowed lateness {MAX_MS} ms"
    )


@pytest.mark.parametrize(("distance_ms", "sessions"), [(10, 1), (11, 2)])
def test_events_one_gap_apart_touch(distance_ms: int, sessions: int) -> None:
    assert len(folded_records([0, distance_ms], [MIN_MS, MIN_MS], 10, 0).firings) == sessions
