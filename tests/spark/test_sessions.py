"""Compare sessions on Spark with the reference interpreter, with mergeable and other aggregates."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.spark.runs import physical_plan
from tests.spark.session_streams import Expected, Place, Stream, Value, random_stream, rows

from backstream.eventtime.instants import MIN_MS
from backstream.eventtime.windows import Session
from backstream.native.sessions.arrow_replay import FIRST, LAST
from backstream.native.sessions.arrow_replay import MET as MET_MS
from backstream.spark.sessions.found_sessions import Sessions, aggregate_sessions, find_sessions, persist_sessions
from backstream.spark.sessions.islands import EVENTS, SessionColumns
from backstream.spark.sessions.session_panes import session_firings, session_panes, session_records

pytestmark = pytest.mark.slow

MERGING = {"events": "count(*)", "total": "sum(value)"}
NOT_MERGING = {**MERGING, "kinds": "count(distinct value)"}
MET = (
    "key string, event_time_ms long, watermark_ms long, arrival_time_ms long, arrival_seq long, "
    "source_partition string"
)
KEYS = ("stream", "key")
PYTHON = r"BatchEvalPython|ArrowEvalPython|MapInPandas|MapInArrow|FlatMapGroups|PythonUDF"


def streams_of(seed: int, many: int = 120) -> list[Stream]:
    chance = random.Random(seed)  # noqa: S311 - cases, not secrets
    return [random_stream(chance) for _ in range(many)]


def of_row() -> SessionColumns:
    return SessionColumns(F.col("gap_ms"), F.col("allowed_lateness_ms"))


def played(
    spark: SparkSession, streams: list[Stream], aggregates: Mapping[str, str], *, is_replay: bool = True
) -> Sessions:
    return find_sessions(spark.createDataFrame(rows(streams)), KEYS, of_row(), aggregates, is_replay=is_replay)


def by_stream(frame: DataFrame, many: int) -> list[list[dict[str, Any]]]:
    found_rows: list[list[dict[str, Any]]] = [[] for _ in range(many)]
    for row in frame.collect():
        found_rows[row["stream"]].append(row.asDict())
    return found_rows


def place(row: dict[str, Any]) -> Place:
    return row["key"], row["window_start_ms"], row["window_end_ms"]


def pane(row: dict[str, Any], name: str) -> Value:
    events = row[f"events__{name}"]
    assert row[f"record_count__{name}"] == (events or 0)
    return None if events is None else (events, row[f"total__{name}"])


def keyed(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


@pytest.mark.parametrize("aggregates", [MERGING, NOT_MERGING], ids=["merging", "not merging"])
def test_first_live_and_final_panes_of_sessions_equal_the_reference(
    spark: SparkSession, aggregates: dict[str, str]
) -> None:
    streams = streams_of(seed=2_013)

    results = by_stream(session_panes(played(spark, streams, aggregates)), len(streams))

    actual = [
        keyed(
            [
                (place(row), (*(pane(row, name) for name in ("first", "live", "final")), row["late_firings"]))
                for row in rows_of
            ]
        )
        for rows_of in results
    ]
    expected = [Expected(stream).values() for stream in streams]
    assert actual == expected
    is_alike = [first == live == final for each in expected for first, live, final, _ in each.values()]
    assert 300 < sum(is_alike) < len(is_alike) - 300


def test_every_record_has_the_fate_that_the_reference_gives_it(spark: SparkSession) -> None:
    streams = streams_of(seed=2_014)

    results = by_stream(session_records(played(spark, streams, MERGING)), len(streams))

    fates = [[row["fate"] for row in sorted(each, key=lambda row: row["arrival_seq"])] for each in results]
    assert fates == [Expected(stream).fates() for stream in streams]
    assert {fate for each in fates for fate in each} == {"on_time", "late", "dropped"}


@pytest.mark.parametrize("aggregates", [MERGING, NOT_MERGING], ids=["merging", "not merging"])
def test_firings_of_sessions_equal_the_reference_in_content_and_order(
    spark: SparkSession, aggregates: dict[str, str]
) -> None:
    streams = streams_of(seed=2_015)

    results = by_stream(session_firings(played(spark, streams, aggregates)), len(streams))

    actual: list[dict[Place, list[tuple[str, int | None, Value]]]] = []
    for each in results:
        actual.append({})
        for row in sorted(each, key=lambda row: row["pane_index"]):
            fired = actual[-1].setdefault(place(row), [])
            assert row["pane_index"] == len(fired)
            fired.append((row["pane_timing"], row["watermark_ms"], (row["events"], row["total"])))
    assert actual == [Expected(stream).firings() for stream in streams]


@pytest.mark.parametrize("aggregates", [MERGING, NOT_MERGING], ids=["merging", "not merging"])
def test_a_recompute_classifies_no_record_as_late(spark: SparkSession, aggregates: dict[str, str]) -> None:
    streams = streams_of(seed=2_016)
    these = played(spark, streams, aggregates, is_replay=False)

    results = by_stream(aggregate_sessions(these), len(streams))

    actual = [keyed([(place(row), (row["events"], row["total"])) for row in each]) for each in results]
    assert actual == [Expected(stream).final() for stream in streams]
    assert {row["fate"] for row in session_records(these).collect()} == {"on_time"}


def test_skew_and_a_known_size_change_the_plan_and_nothing_else(spark: SparkSession) -> None:
    events = spark.createDataFrame(rows(streams_of(seed=2_017, many=40)))
    plain = find_sessions(events, KEYS, of_row(), MERGING, is_replay=True)
    other = persist_sessions(
        find_sessions(events, KEYS, of_row(), MERGING, is_replay=True, is_skewed=True), DataFrame.cache
    )

    assert other.is_broadcast
    for result in (session_panes, session_records, session_firings):
        assert sorted(map(str, result(other).collect())) == sorted(map(str, result(plain).collect()))


def test_keys_that_are_null_are_one_key(spark: SparkSession) -> None:
    stream = Stream([*streams_of(seed=1, many=1)[0].events], 40, 3)
    events = spark.createDataFrame(rows([stream])).withColumn("key", F.lit(None).cast("string"))

    these = find_sessions(events, ["key"], SessionColumns.from_settings(Session(40), 3), MERGING, is_replay=True)

    as_one = Stream([event._replace(key="None") for event in stream.events], 40, 3)
    results = {(str(row["key"]), *row[1:3]): row["events__final"] for row in session_panes(these).collect()}
    expected = {at: final and final[0] for at, (_, _, final, _) in Expected(as_one).values().items()}
    assert results == expected
    assert session_records(these).count() == len(stream.events)


def test_an_event_at_the_bound_may_miss_a_session_that_has_just_fired(spark: SparkSession) -> None:
    #  gap 10       0         10
    #  watermark  9 when the second arrives: [0, 10) has fired and is gone, though the two events touch
    events = spark.createDataFrame([("x", 0, -5, 0, 0, "A"), ("x", 10, 9, 1, 1, "A")], MET)

    results = session_panes(
        find_sessions(
            events, ["key"], SessionColumns.from_settings(Session(10), 0), {"n": "count(*)"}, is_replay=True
        )
    ).collect()

    values = {tuple(row[1:3]): (row["n__first"], row["n__live"], row["n__final"]) for row in results}
    assert values == {(0, 10): (1, 1, None), (10, 20): (1, 1, None), (0, 20): (None, None, 2)}


def test_a_bucket_before_1970_is_no_wider_than_the_gap(spark: SparkSession) -> None:
    #  gap 10     -9 .. 9     18 apart, yet both next to 0
    events = spark.createDataFrame([("x", -9), ("x", 9)], "key string, event_time_ms long")

    these = find_sessions(
        events, ["key"], SessionColumns.from_settings(Session(10), 0), {"n": "count(*)"}, is_replay=False
    )

    assert sorted(tuple(row[1:3]) for row in aggregate_sessions(these).collect()) == [(-9, 1), (9, 19)]


@pytest.mark.parametrize("is_skewed", [False, True])
def test_stragglers_that_are_alike_in_every_column_are_units_each(spark: SparkSession, is_skewed: bool) -> None:
    late = ("x", 10, 9, 1, 1, "A")
    events = spark.createDataFrame([("x", 0, -5, 0, 0, "A"), late, late], MET)
    window, counted = SessionColumns.from_settings(Session(10), 0), {"n": "count(*)"}

    units = find_sessions(events, ["key"], window, counted, is_replay=True, is_skewed=is_skewed).units

    assert sorted((row[FIRST], row[EVENTS]) for row in units.collect()) == [(0, 1), (10, 1), (10, 1)]


def test_a_straggler_needs_no_bucket_where_there_is_no_room_for_one(spark: SparkSession) -> None:
    first_ms = MIN_MS + 5  # a bucket of 10 ms would begin before 64 bits do
    events = spark.createDataFrame([("x", first_ms, first_ms, 0, 0, "A")], MET)

    (row,) = find_sessions(
        events, ["key"], SessionColumns.from_settings(Session(10), 0), {"n": "count(*)"}, is_replay=True
    ).units.collect()

    assert (row[FIRST], row[LAST], row[MET_MS], row[EVENTS]) == (first_ms, first_ms, first_ms, 1)


def test_no_python_runs_in_a_recompute_nor_where_no_lateness_is(spark: SparkSession) -> None:
    streams = streams_of(seed=1, many=2)
    offline = played(spark, streams, MERGING, is_replay=False)
    replayed = played(spark, streams, MERGING)

    for frame in (
        aggregate_sessions(offline),
        session_records(offline),
        session_panes(offline),
        replayed.units,
        replayed.islands,
    ):
        assert not re.search(PYTHON, physical_plan(frame))
    assert len(re.findall(PYTHON, physical_plan(session_panes(replayed)))) == 1


def test_stragglers_are_separated_from_timely_events_in_one_scan_and_one_exchange(spark: SparkSession) -> None:
    events = spark.createDataFrame([("x", 0, -5, 0, 0, "A"), ("x", 10, 9, 1, 1, "A")], MET)
    units = find_sessions(
        events, ["key"], SessionColumns.from_settings(Session(10), 0), {"n": "count(*)"}, is_replay=True
    ).units

    assert [row[MET_MS] for row in units.orderBy(FIRST).collect()] == [None, 9]
    plan = physical_plan(units)
    assert len(re.findall(r"Scan ExistingRDD|LocalTableScan", plan)) == 1
    assert len(re.findall(r"Exchange", plan)) == 1
