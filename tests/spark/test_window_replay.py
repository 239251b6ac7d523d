"""Compare the replay of one key's sessions with the reference on random streams."""

from __future__ import annotations

import random

import pytest

from backstream.errors import PlanError
from backstream.eventtime.instants import MAX_MS, MIN_MS
from backstream.eventtime.records import Record
from backstream.eventtime.window_operator import PaneTiming, fire_windows
from backstream.eventtime.windows import Session
from backstream.native.sessions.window_replay import ReplayedIsland, replay_island, to_watermarks

Stream = tuple[list[int], list[int], int, int]
"""Event times, watermarks in force, gap, and allowed lateness."""


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
        played = fire_windows(records, to_watermarks(in_force_ms), Session(gap_ms), lateness_ms)
    except PlanError as error:
        return str(error)
    fired = [
        (*pane.window, pane.by if pane.timing is PaneTiming.LATE else None, list(pane.records))
        for pane in played.panes
    ]
    return [fate.value for fate in played.fates], fired


def folded_records(
    event_times_ms: list[int], in_force_ms: list[int], gap_ms: int, lateness_ms: int
) -> ReplayedIsland:
    return replay_island([(event_ms, event_ms) for event_ms in event_times_ms], in_force_ms, gap_ms, lateness_ms)


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


def in_units(stream: Stream, ahead_ms: int) -> list[list[int]]:
    """Return the units: records in time by bucket first, then each out-of-order record. By number."""
    event_times_ms, in_force_ms, gap_ms, _ = stream
    stretches: dict[int, list[int]] = {}
    stragglers = []
    for number, (event_ms, watermark_ms) in enumerate(zip(event_times_ms, in_force_ms, strict=True)):
        if watermark_ms < event_ms - ahead_ms:
            stretches.setdefault(event_ms // gap_ms, []).append(number)
        else:
            stragglers.append([number])
    return [*(stretches[stretch] for stretch in sorted(stretches)), *stragglers]


def by_units(stream: Stream, ahead_ms: int = 1) -> object:
    event_times_ms, in_force_ms, gap_ms, lateness_ms = stream
    units = in_units(stream, ahead_ms)
    times_ms = [[event_times_ms[number] for number in unit] for unit in units]
    met_ms = [
        in_force_ms[unit[0]] if in_force_ms[unit[0]] >= event_times_ms[unit[0]] - ahead_ms else MIN_MS
        for unit in units
    ]
    fold = replay_island([(min(times), max(times)) for times in times_ms], met_ms, gap_ms, lateness_ms)
    fates = {number: fate for unit, fate in zip(units, fold.fates, strict=True) for number in unit}
    fired = [
        (
            *each[:2],
            None if each.by is None else units[each.by][0],
            sorted(number for member in each.members[: each.size] for number in units[member]),
        )
        for each in fold.firings
    ]
    return [fates[number] for number in range(len(event_times_ms))], sorted(fired, key=str)


def by_records(stream: Stream) -> object:
    fold = folded_records(*stream)
    fired = [(*each[:3], sorted(each.members[: each.size])) for each in fold.firings]
    return fold.fates, sorted(fired, key=str)


def test_records_in_time_may_be_played_first_and_together() -> None:
    chance = random.Random(1_970)  # noqa: S311 - cases, not secrets
    streams = [random_stream(chance) for _ in range(6_000)]
    bounded = [stream for stream in streams if stream[3] < MAX_MS]

    assert [stream for stream in bounded if by_units(stream) != by_records(stream)] == []
    # One millisecond less would not do.
    assert any(by_units(stream, ahead_ms=0) != by_records(stream) for stream in bounded)
