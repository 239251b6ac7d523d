"""The sessions that start in an interval may need events around it; one native task finds how far."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backstream.eventtime.intervals import Interval
from backstream.native.sessions.halo import HaloTask
from backstream.native.task import ReadSpec
from backstream.native.task_runner import run_halo_task
from backstream.runs.plan import InputFile

OWNED = Interval(1_000, 2_000)
READING = ReadSpec("at", "at", None, None, {"at": "timestamp", "key": "string"}, Interval(-(10**9), 10**9))
Event = tuple[str | None, int]


def halo_of(folder: Path, events: list[Event], gap_ms: int = 100, *, is_replay: bool) -> Interval:
    """Return the halo of events that are dealt out to three files."""
    inputs = []
    for number in range(3):
        some, path = events[number::3], str(folder / f"{number}-{is_replay}.parquet")
        times_ms = [at_ms for _, at_ms in some]
        times = pa.array([at_ms * 1_000 for at_ms in times_ms], pa.timestamp("us", tz="UTC"))
        pq.write_table(pa.table({"key": pa.array([key for key, _ in some], pa.string()), "at": times}), path)
        first_ms, last_ms = (min(times_ms), max(times_ms)) if some else (None, None)
        inputs.append(InputFile(path, len(some), 1, first_ms, last_ms))
    task = HaloTask(READING, ["key"], gap_ms, OWNED, inputs, is_replay, 256)
    return run_halo_task(task).interval


def expected_halo(events: list[Event], gap_ms: int, *, is_replay: bool) -> Interval:
    """Return the halo from all islands of all events."""
    islands: list[list[int]] = []
    for key in {key for key, _ in events}:
        times_ms = sorted(at_ms for other, at_ms in events if other == key)
        for number, at_ms in enumerate(times_ms):
            if number and at_ms - times_ms[number - 1] <= gap_ms:
                islands[-1].append(at_ms)
            else:
                islands.append([at_ms])
    begin_ms, end_ms = OWNED.start_ms, OWNED.end_ms
    later = [each for each in islands if each[0] < end_ms <= each[-1] and (is_replay or each[0] >= begin_ms)]
    last_ms = max([each[-1] + 1 for each in later] + [end_ms])
    if not is_replay:
        return Interval(begin_ms - gap_ms, last_ms)
    earlier = [each for each in islands if each[0] < begin_ms <= each[-1]]
    return Interval(min([each[0] for each in earlier] + [begin_ms]), last_ms)


@pytest.mark.parametrize(
    ("times_ms", "recompute", "replay"),
    [
        #                      nothing crosses
        ([1_200, 1_500], (900, 2_000), (1_000, 2_000)),
        #                      one gap before the end, and one after
        ([1_950, 2_050], (900, 2_051), (1_000, 2_051)),
        ([1_950, 2_051], (900, 2_000), (1_000, 2_000)),
        #                      it goes on for many gaps
        ([1_950, *range(2_000, 9_950, 100)], (900, 9_901), (1_000, 9_901)),
        #                      it began before: a recompute leaves it to others, a replay reads all of it
        ([*range(-3_000, 1_200, 100)], (900, 2_000), (-3_000, 2_000)),
        ([*range(-3_000, 5_000, 100)], (900, 2_000), (-3_000, 4_901)),
        ([899, 1_000], (900, 2_000), (1_000, 2_000)),
        ([], (900, 2_000), (1_000, 2_000)),
    ],
)
def test_a_task_finds_no_more_than_the_sessions_need(
    tmp_path: Path, times_ms: list[int], recompute: tuple[int, int], replay: tuple[int, int]
) -> None:
    events: list[Event] = [("x", at_ms) for at_ms in times_ms] + [("y", 500), ("y", 1_500), (None, 2_500)]

    found = [halo_of(tmp_path, events, is_replay=is_replay) for is_replay in (False, True)]

    assert found == [Interval(*recompute), Interval(*replay)]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("is_replay", [False, True])
def test_a_task_finds_what_all_islands_show(tmp_path: Path, seed: int, is_replay: bool) -> None:
    chance = random.Random(seed)  # noqa: S311 - cases, not secrets
    count, gap_ms = chance.choice([20, 60, 120]), chance.choice([20, 60, 150])
    events: list[Event] = [
        (chance.choice(["a", "b", None]), chance.randrange(-2_000, 6_000)) for _ in range(count)
    ]

    found = halo_of(tmp_path, events, gap_ms, is_replay=is_replay)

    assert found == expected_halo(events, gap_ms, is_replay=is_replay)
