"""Test sessions of ranges cut into chunks: each chunk reads its halo, and results don't depend on the cuts."""

from __future__ import annotations

import random
from functools import reduce
from itertools import pairwise

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.spark.session_streams import Stream, random_stream, rows

from backstream.eventtime.intervals import Interval
from backstream.eventtime.windows import Session
from backstream.spark.sessions.found_sessions import Sessions, aggregate_sessions, find_sessions
from backstream.spark.sessions.islands import SessionColumns
from backstream.spark.sessions.session_panes import session_firings, session_panes, session_records
from backstream.spark.sessions.session_windows import EventsBetween, find_halo

pytestmark = pytest.mark.slow

AGGREGATES = {"events": "count(*)", "total": "sum(value)"}
ORDER = ("event_time_ms", "arrival_seq", "key", "fate")


def between(events: DataFrame) -> EventsBetween:
    def those(start_ms: int, end_ms: int) -> DataFrame:
        return events.where((F.col("event_time_ms") >= F.lit(start_ms)) & (F.col("event_time_ms") < F.lit(end_ms)))

    return those


def long_stream(seed: int) -> Stream:
    """Return a stream whose sessions are long compared with a chunk."""
    chance = random.Random(seed)  # noqa: S311 - cases, not secrets
    while len((stream := random_stream(chance, length=300)).events) < 150 or stream.gap_ms < 40:
        pass
    return stream


def cuts(stream: Stream, seed: int, many: int) -> list[Interval]:
    """Cut the interval of the stream at random instants, some of them event times."""
    chance = random.Random(seed)  # noqa: S311 - cases, not secrets
    times_ms = [event.event_time_ms for event in stream.events]
    inside = [chance.choice(times_ms) + chance.choice([0, 0, 1, stream.gap_ms]) for _ in range(many - 1)]
    ends_ms = sorted({min(times_ms), *inside, max(times_ms) + 2 * stream.gap_ms})
    return [Interval(*pair) for pair in pairwise(ends_ms)]


def chunked(events: DataFrame, stream: Stream, pieces: list[Interval], *, is_replay: bool) -> list[Sessions]:
    """Return the sessions of each chunk, from the events of its halo only."""
    window = SessionColumns.from_settings(Session(stream.gap_ms), stream.allowed_lateness_ms)
    results = []
    for owned in pieces:
        reads = find_halo(between(events), ["key"], stream.gap_ms, owned, is_replay=is_replay)
        read = between(events)(reads.start_ms, reads.end_ms)
        results.append(find_sessions(read, ["key"], window, AGGREGATES, is_replay=is_replay, owned=owned))
    return results


def together(frames: list[DataFrame]) -> list[str]:
    return sorted(map(str, reduce(DataFrame.unionByName, frames).collect()))


def test_no_cut_is_seen_in_a_replay(spark: SparkSession) -> None:
    stream = long_stream(seed := 3)
    events = spark.createDataFrame(rows([stream]))
    window = SessionColumns.from_settings(Session(stream.gap_ms), stream.allowed_lateness_ms)
    uncut = find_sessions(events, ["key"], window, AGGREGATES, is_replay=True)

    chunks = chunked(events, stream, cuts(stream, seed, many=3), is_replay=True)

    for result in (session_panes, session_firings):
        assert together([result(chunk) for chunk in chunks]) == together([result(uncut)])
    ours = [session_records(chunk).where("is_owned").select(*ORDER) for chunk in chunks]
    assert together(ours) == together([session_records(uncut).select(*ORDER)])


def test_no_cut_is_seen_in_a_recompute(spark: SparkSession) -> None:
    stream = long_stream(seed := 5)
    events = spark.createDataFrame(rows([stream]))
    window = SessionColumns.from_settings(Session(stream.gap_ms), stream.allowed_lateness_ms)
    uncut = find_sessions(events, ["key"], window, AGGREGATES, is_replay=False)

    chunks = chunked(events, stream, cuts(stream, seed, many=4), is_replay=False)

    assert together([aggregate_sessions(chunk) for chunk in chunks]) == together([aggregate_sessions(uncut)])
    ours = [session_records(chunk).where("is_owned").select(*ORDER) for chunk in chunks]
    assert together(ours) == together([session_records(uncut).select(*ORDER)])


def at(spark: SparkSession, **times_ms: list[int]) -> DataFrame:
    pairs = [(key, time_ms) for key, times in times_ms.items() for time_ms in times]
    return spark.createDataFrame(pairs, "key string, event_time_ms long")


CHUNK = Interval(1_000, 2_000)


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
        ([900, 1_000], (900, 2_000), (900, 2_000)),
        ([899, 1_000], (900, 2_000), (1_000, 2_000)),
        ([900, 999], (900, 2_000), (1_000, 2_000)),
        ([], (900, 2_000), (1_000, 2_000)),
    ],
)
def test_a_chunk_reads_no_more_than_its_sessions(
    spark: SparkSession, times_ms: list[int], recompute: tuple[int, int], replay: tuple[int, int]
) -> None:
    events = between(at(spark, x=times_ms, y=[500, 1_500, 2_500]))

    actual = [find_halo(events, ["key"], 100, CHUNK, is_replay=is_replay) for is_replay in (False, True)]

    assert actual == [Interval(*recompute), Interval(*replay)]


def test_a_look_back_of_one_millisecond_less_than_the_gap_cuts_a_session(spark: SparkSession) -> None:
    #  gap 100      900        1000 ..        exactly one gap apart: one session, of the chunk before
    events = at(spark, x=[900, 1_000, 1_050])

    def starts(read_from_ms: int) -> list[int]:
        read = between(events)(read_from_ms, 2_000)
        window = SessionColumns.from_settings(Session(100), 0)
        these = find_sessions(read, ["key"], window, {"n": "count(*)"}, is_replay=False, owned=CHUNK)
        return [row["window_start_ms"] for row in aggregate_sessions(these).collect()]

    assert starts(900) == []
    assert starts(901) == [1_000]


def test_keys_are_apart(spark: SparkSession) -> None:
    events = between(at(spark, x=[1_950], y=[2_010], z=[1_990, 2_080, 2_170]))

    assert find_halo(events, ["key"], 100, CHUNK, is_replay=False) == Interval(900, 2_171)


def test_each_event_is_read_once_to_find_the_halo(spark: SparkSession) -> None:
    events, requested = between(at(spark, x=[*range(1_950, 9_950, 100)])), []

    def watched(start_ms: int, end_ms: int) -> DataFrame:
        requested.append((start_ms, end_ms))
        return events(start_ms, end_ms)

    find_halo(watched, ["key"], 100, CHUNK, is_replay=False)

    assert requested == [(900, 2_400), (2_400, 3_200), (3_200, 4_800), (4_800, 8_000), (8_000, 14_400)]


def test_a_cut_without_a_halo_is_seen(spark: SparkSession) -> None:
    """Check that the tests above fail with a smaller halo."""
    stream = long_stream(3)
    events = spark.createDataFrame(rows([stream]))
    window = SessionColumns.from_settings(Session(stream.gap_ms), stream.allowed_lateness_ms)
    pieces = cuts(stream, 3, many=4)

    bare = [
        find_sessions(
            between(events)(each.start_ms, each.end_ms), ["key"], window, AGGREGATES, is_replay=True, owned=each
        )
        for each in pieces
    ]

    uncut = find_sessions(events, ["key"], window, AGGREGATES, is_replay=True)
    assert together([session_panes(each) for each in bare]) != together([session_panes(uncut)])
