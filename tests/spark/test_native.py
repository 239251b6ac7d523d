"""Compare the native engine with the reference interpreter and with Spark."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import cycle, product, repeat
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.spark.histories import Expected, definition_of, random_history, write_history
from tests.spark.runs import STREAMS, WINDOWS, fates, panes, planned, published, rows

from backstream.definition.loader import parse_definition
from backstream.errors import SpecError
from backstream.native import task_cuts
from backstream.runs.manifest import Manifest
from backstream.runs.plan import Mode
from backstream.spark.chunk_job import replay_chunks

KINDS = ["tumbling", "tumbling with an offset", "sliding", "sliding, size no multiple", "cumulate", "session"]
DAY = datetime(2024, 3, 1, tzinfo=UTC)


PIECES = [
    *((kind, "1d", "many tasks") for kind in KINDS),
    *zip(KINDS, repeat("1d"), cycle(["days together", "days apart"]), strict=False),
    ("sliding", "3d", "days apart"),
    ("cumulate", "3d", "many tasks"),
    ("session", "3d", "days together"),
]


@pytest.fixture
def pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run with different task sizes; the result must be the same."""
    if request.param != "days together":
        monkeypatch.setattr(task_cuts, "SMALL_DAY_ROWS", 0)
    if request.param == "many tasks":
        cut_finely(monkeypatch)


def cut_finely(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit a task to about twenty records."""
    monkeypatch.setattr(task_cuts, "MIN_TASK_ROWS", 1)
    monkeypatch.setattr(task_cuts, "TASK_ROWS", 20)
    monkeypatch.setattr(task_cuts, "MAX_READ_RATIO", 1_000)


def native_definition(folder: Path, chunk: str = "1d", **sections: Any) -> dict[str, Any]:
    return definition_of(folder, **{"backfill": {"chunk": chunk, "engine": "native"}, **sections})


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize(("kind", "chunk", "pieces"), PIECES, indirect=["pieces"])
def test_a_replay_gives_what_the_reference_gives_however_it_is_cut(
    spark: SparkSession, tmp_path: Path, kind: str, chunk: str
) -> None:
    history = random_history(len(kind))
    write_history(tmp_path / "data", history)
    content = native_definition(tmp_path / "data", chunk, window=WINDOWS[kind])
    plan = planned(tmp_path, content, Mode.REPLAY, since=0, until=3)
    expected = Expected(history, parse_definition(content, "test"), plan.range)

    manifests = list(replay_chunks(spark, plan, plan.chunks))

    assert fates(manifests) == expected.fates()
    assert panes(manifests) == expected.values()
    assert published(manifests) == expected.published()


SESSION_STREAMS = sorted(STREAMS.keys() - {"punctuated", "custom", "after each record"})


@pytest.mark.parametrize(
    ("stream", "kind"), list(zip(SESSION_STREAMS, cycle(["session", "session of days"]), strict=False))
)
def test_sessions_of_every_kind_of_stream_are_replayed_as_the_reference_plays_them(
    spark: SparkSession, tmp_path: Path, kind: str, stream: str
) -> None:
    history = random_history(len(stream) + len(kind), rows=300)
    write_history(tmp_path / "data", history)
    content = native_definition(tmp_path / "data", "1d", window=WINDOWS[kind], **STREAMS[stream])
    plan = planned(tmp_path, content, Mode.REPLAY, since=0, until=3)
    expected = Expected(history, parse_definition(content, "test"), plan.range)

    manifests = list(replay_chunks(spark, plan, plan.chunks))

    assert fates(manifests) == expected.fates()
    assert panes(manifests) == expected.values()
    assert published(manifests) == expected.published()


@pytest.mark.parametrize("stream", STREAMS)
def test_every_kind_of_stream_is_replayed_as_the_reference_plays_it(
    spark: SparkSession, tmp_path: Path, stream: str
) -> None:
    history = random_history(len(stream), rows=150)
    write_history(tmp_path / "data", history)
    window = WINDOWS["sliding"] if stream == "after each record" else WINDOWS["tumbling"]
    content = native_definition(tmp_path / "data", "3d", window=window, **STREAMS[stream])
    plan = planned(tmp_path, content, Mode.REPLAY, since=0, until=3)
    expected = Expected(history, parse_definition(content, "test"), plan.range)

    manifests = list(replay_chunks(spark, plan, plan.chunks))

    assert fates(manifests) == expected.fates()
    assert panes(manifests) == expected.values()


@pytest.mark.parametrize("kind", KINDS)
def test_a_recompute_knows_nothing_late(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    history = random_history(5)
    write_history(tmp_path / "data", history)
    content = native_definition(tmp_path / "data", window=WINDOWS[kind])
    plan = planned(tmp_path, content, Mode.RECOMPUTE, since=0, until=3)
    expected = Expected(history, parse_definition(content, "test"), plan.range)

    manifests = list(replay_chunks(spark, plan, plan.chunks))

    assert set().union(*fates(manifests).values()) == {"on_time", "duplicate"}
    assert published(manifests) == expected.published()


BOTH = ["tumbling with an offset", "sliding, size no multiple", "cumulate"]
EVERY_TABLE = [*product(BOTH, ["time lag, idle", "punctuated"]), ("session", "time lag, idle")]


@pytest.mark.parametrize(("kind", "stream"), EVERY_TABLE)
def test_every_table_of_a_replay_is_that_of_spark(
    spark: SparkSession, tmp_path: Path, kind: str, stream: str
) -> None:
    write_history(tmp_path / "data", random_history(17, rows=300))
    sections = {"window": WINDOWS[kind], **STREAMS[stream]}

    native, other = (
        _run(spark, tmp_path / engine, tmp_path / "data", engine, Mode.REPLAY, sections)
        for engine in ("native", "spark")
    )

    assert {name for name, result in native.items() if result} >= {"", "panes", "metrics"}
    assert native == other


@pytest.mark.parametrize("kind", ["tumbling", "session"])
def test_dropped_records_are_those_of_spark(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    write_history(tmp_path / "data", random_history(23, rows=300))
    sections = {"window": WINDOWS[kind], "lateness": {"allowed": "0s"}}

    native, other = (
        _run(spark, tmp_path / engine, tmp_path / "data", engine, Mode.REPLAY, sections)
        for engine in ("native", "spark")
    )

    assert native["dropped"]
    assert native == other


KEYS = {
    "small": pa.int32(),
    "number": pa.int64(),
    "name": pa.string(),
    "day": pa.date32(),
    "flag": pa.bool_(),
    "price": pa.decimal128(12, 3),
}
VALUES = {
    "b": pa.int8(),
    "i": pa.int32(),
    "l": pa.int64(),
    "d": pa.decimal128(20, 4),
    "f": pa.float32(),
    "x": pa.float64(),
    "s": pa.string(),
    "t": pa.timestamp("us", "UTC"),
}
SUMS = {
    "events": "count(*)",
    "ones": "count(1)",
    "some": "count(x)",
    "sum_of_small": "sum(b)",
    "whole": "sum(l)",
    "money": "sum(d)",
    "least": "min(d)",
    "greatest": "max(l)",
    "first_name": "min(s)",
    "last_time": "max(t)",
    "least_double": "min(x)",
    "greatest_double": "max(x)",
    "greatest_float": "max(f)",
    "mean": "avg(i)",
}
DOUBLES = {"total": "x", "mean": "x", "narrow": "f", "of_narrow": "f"}  # of this column
SUMS_OF_DOUBLES = {
    "total": "sum(x)",
    "mean": "avg(x)",
    "narrow": "sum(f)",
    "of_narrow": "avg(f)",
    "least_x": "min(x)",
    "greatest_x": "max(x)",
    "least_f": "min(f)",
    "greatest_f": "max(f)",
}


@pytest.mark.parametrize("kind", ["tumbling", "sliding", "cumulate", "session"])
@pytest.mark.parametrize("mode", [Mode.RECOMPUTE, Mode.REPLAY])
def test_keys_and_values_of_every_type_give_what_they_give_on_spark(
    spark: SparkSession, tmp_path: Path, kind: str, mode: Mode
) -> None:
    write_records(tmp_path / "data", seed=len(kind), since=DAY)
    sections = {"window": WINDOWS[kind], "aggregates": SUMS}

    native, other = (
        _run(spark, tmp_path / engine, tmp_path / "data", engine, mode, sections, key=list(KEYS))
        for engine in ("native", "spark")
    )

    assert len(native[""]) > 100
    assert repr(native) == repr(other)  # NaN is not equal to itself


def test_sums_of_doubles_differ_by_no_more_than_the_order_of_adding(spark: SparkSession, tmp_path: Path) -> None:
    write_records(tmp_path / "data", seed=3, since=DAY)
    sections = {"window": WINDOWS["sliding"], "aggregates": SUMS_OF_DOUBLES}

    native, other = (
        _run(
            spark, tmp_path / engine, tmp_path / "data", engine, Mode.RECOMPUTE, sections, key=["name", "number"]
        )[""]
        for engine in ("native", "spark")
    )

    ours, theirs = (sorted(result, key=_place) for result in (native, other))
    assert list(map(_place, ours)) == list(map(_place, theirs))
    for name, column in DOUBLES.items():
        for mine, its in zip(ours, theirs, strict=True):
            if its[name] is None:
                assert mine[name] is None
                continue
            # 1e30 and -1e30 cancel each other; the error is in proportion to the largest summand, not to the sum.
            largest = max(map(abs, (its[f"least_{column}"] or 0.0, its[f"greatest_{column}"] or 0.0)))
            error = 1e-12 * largest if math.isfinite(largest) else 0.0
            assert mine[name] == pytest.approx(its[name], rel=1e-12, abs=error, nan_ok=True), (name, mine, its)
    values = [row[name] for row in theirs for name in DOUBLES]
    assert {"nan", "inf", "None"} <= set(map(str, values))


def _place(row: Mapping[str, Any]) -> str:
    """Return the key and the window of a row, as text."""
    return repr([row[name] for name in ("window_start", "window_end", "name", "number")])


def test_times_before_1970_fall_into_the_windows_that_spark_puts_them_in(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_records(tmp_path / "data", seed=9, since=datetime(1969, 12, 30, tzinfo=UTC))
    sections = {
        "window": {"kind": "tumbling", "size": "6h", "offset": "-1ms"},
        "aggregates": {"events": "count(*)"},
    }

    native, other = (
        _run(
            spark,
            tmp_path / engine,
            tmp_path / "data",
            engine,
            Mode.REPLAY,
            sections,
            since=-19785,
            key=["name"],
            event_time_range=["1960-01-01", "2100-01-01"],
        )
        for engine in ("native", "spark")
    )

    assert len({row["window_start"].year for row in native[""]}) == 2
    assert native == other


def test_records_that_cannot_be_read_are_counted_and_kept_as_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    write_records(tmp_path / "data", seed=4, since=DAY, broken=True)
    sections = {"window": WINDOWS["tumbling"], "aggregates": {"events": "count(*)"}}

    native, other = (
        _run(spark, tmp_path / engine, tmp_path / "data", engine, Mode.REPLAY, sections, key=["name"])
        for engine in ("native", "spark")
    )

    reasons = {row["reason"] for row in native["quarantine"]}
    assert reasons == {"null_event_time", "absurd_event_time", "null_source_partition", "null_sequence"}
    assert native == other


def test_files_with_other_columns_and_strange_names_are_read(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "data [1] * ? 'quoted'"
    write_records(folder, seed=6, since=DAY, without=["x"])
    # A second later: which of two copies with the same place in arrival order comes first, nobody can say.
    write_records(folder / "later", seed=7, since=DAY + timedelta(seconds=1), narrow=["l"])
    sections = {"window": WINDOWS["tumbling"], "aggregates": {"some": "count(x)", "whole": "sum(l)"}}

    native, other = (
        _run(spark, tmp_path / engine, folder, engine, Mode.RECOMPUTE, sections, key=["name"])
        for engine in ("native", "spark")
    )

    assert any(row["some"] == 0 for row in native[""])
    assert native == other


@pytest.mark.parametrize("mode", [Mode.RECOMPUTE, Mode.REPLAY])
def test_sessions_without_a_readable_record_are_empty_as_on_spark(
    spark: SparkSession, tmp_path: Path, mode: Mode
) -> None:
    write_history(tmp_path / "data", random_history(5, rows=30))
    for file in (tmp_path / "data").rglob("*.parquet"):
        table = pq.read_table(file, partitioning=None)
        nothing = pa.nulls(table.num_rows, pa.int64())
        pq.write_table(table.set_column(table.column_names.index("seq"), "seq", nothing), file)

    native, other = (
        _run(spark, tmp_path / engine, tmp_path / "data", engine, mode, {"window": WINDOWS["session"]})
        for engine in ("native", "spark")
    )

    assert native[""] == []
    assert {row["reason"] for row in native["quarantine"]} == {"null_sequence"}
    assert native == other


WIDER = [*product(["tumbling", "session"], ["origin", "key", "value"], [False]), ("session", "origin", True)]


@pytest.mark.parametrize(("kind", "name", "has_many_tasks"), WIDER)
def test_a_column_that_became_wider_is_read_as_on_spark(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    name: str,
    has_many_tasks: bool,
) -> None:
    if has_many_tasks:
        cut_finely(monkeypatch)
    write_history(tmp_path / "data", random_history(23, rows=300))
    for number, file in enumerate(sorted((tmp_path / "data").rglob("*.parquet"))):
        table = pq.read_table(file, partitioning=None)
        named = {"A": 1, "B": 2, "C": 3, "x": 1, "y": 2, "z": 3}
        values = [named.get(each, each) + number * 1_000 for each in table[name].to_pylist()]
        column = pa.array(values, pa.int32() if number else pa.int8())
        pq.write_table(table.set_column(table.column_names.index(name), name, column), file)
    sections = {"window": WINDOWS[kind], "lateness": {"allowed": "0s"}}

    native, other = (
        _run(spark, tmp_path / engine, tmp_path / "data", engine, Mode.REPLAY, sections)
        for engine in ("native", "spark")
    )

    assert native["dropped"]
    assert native == other


@pytest.mark.parametrize(
    ("sections", "reason"),
    [
        (
            {"window": WINDOWS["session"], **STREAMS["punctuated"]},
            "windows are sessions, and watermarks may move between two ticks",
        ),
        ({"window": WINDOWS["sliding with holes"]}, "windows have gaps between them"),
        ({"aggregates": {"middle": "median(value)"}}, "aggregates.middle is median(value)"),
    ],
)
def test_what_the_engine_does_not_know_is_refused_with_the_reason(
    tmp_path: Path, sections: dict[str, Any], reason: str
) -> None:
    write_history(tmp_path / "data", random_history(2, rows=50))
    aggregates = {"aggregates": {"middle": "cast(median(value) as double)"}} if "aggregates" in sections else {}
    content = native_definition(tmp_path / "data", **{"window": WINDOWS["tumbling"], **sections, **aggregates})

    with pytest.raises(SpecError) as refused:
        planned(tmp_path, content, Mode.RECOMPUTE, since=0, until=3)

    wanted = reason.replace("median(value)", "cast(median(value) as double)")
    assert str(refused.value) == (
        f'backfill.engine = "native" cannot run events: {wanted} ({tmp_path / "events.toml"})\n\n'
        'hint: with "auto", Spark computes definitions that the native engine does not support'
    )


def test_a_sum_that_is_too_large_is_an_error_and_no_other_number(spark: SparkSession, tmp_path: Path) -> None:
    write_history(tmp_path / "data", [(*row[:5], 2**62) for row in random_history(2, rows=50)])
    content = native_definition(tmp_path / "data", window={"kind": "tumbling", "size": "1d"})
    plan = planned(tmp_path, content, Mode.RECOMPUTE, since=0, until=3)

    with pytest.raises(Exception, match="out of range for the destination type INT64"):
        list(replay_chunks(spark, plan, plan.chunks))


@pytest.mark.parametrize("failing", [1, 3])
def test_where_the_native_engine_fails_spark_computes_and_the_log_says_so(
    spark: SparkSession,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    failing: int,
) -> None:
    monkeypatch.setattr(task_cuts, "SMALL_DAY_ROWS", 0)  # the tasks of other days have written files by then
    write_history(tmp_path / "data", random_history(2, rows=50))
    for file in sorted((tmp_path / "data").rglob("*.parquet"))[-failing:]:
        pq.write_table(_with_column(file), file)
    content = native_definition(tmp_path / "data", window=WINDOWS["tumbling"], backfill={"engine": "auto"})
    plan = planned(tmp_path, content, Mode.RECOMPUTE, since=0, until=3)
    expected = Expected(random_history(2, rows=50), parse_definition(content, "test"), plan.range)

    manifests = list(replay_chunks(spark, plan, plan.chunks))

    assert published(manifests) == expected.published()
    (message,) = {record.getMessage().partition(":")[2] for record in caplog.records}
    assert "cannot read a file with a column 'file_index'" in message
    assert message.endswith("instead")


def _with_column(file: Path) -> pa.Table:
    table = pq.read_table(file, partitioning=None)
    return table.append_column("file_index", pa.array([0] * table.num_rows))


def write_records(
    folder: Path,
    seed: int,
    since: datetime,
    *,
    broken: bool = False,
    without: Sequence[str] = (),
    narrow: Sequence[str] = (),
) -> None:
    """Write three files of records with nulls, extremes, and Unicode in keys and values."""
    chance = random.Random(seed)  # noqa: S311 - a test's records, not a secret
    folder.mkdir(parents=True)
    for number in range(3):
        result = [_record(chance, since, number * 200 + place) for place in range(200)]
        if broken:
            for record in result[::7]:
                record[chance.choice(["happened_at", "origin", "seq"])] = None
            result[1]["happened_at"] = datetime(2150, 1, 1, tzinfo=UTC)
        schema = pa.schema(
            [
                ("happened_at", pa.timestamp("us", "UTC")),
                ("arrived_at", pa.timestamp("us", "UTC")),
                ("origin", pa.string()),
                ("seq", pa.int64()),
                *KEYS.items(),
                *((name, pa.int32() if name in narrow else kind) for name, kind in VALUES.items()),
            ]
        )
        if narrow:
            result = [{**record, **dict.fromkeys(narrow, 7)} for record in result]
        table = pa.Table.from_pylist(result, schema).drop_columns(list(without))
        pq.write_table(table, folder / f"part-{number}.parquet", row_group_size=70)


def _record(chance: random.Random, since: datetime, number: int) -> dict[str, Any]:
    arrived = since + timedelta(microseconds=number * 430_000_123)
    happened = arrived - timedelta(
        microseconds=chance.choice([1, 999, 60_000_000, 9_000_000_000]) * chance.random()
    )
    values: Mapping[str, Sequence[Any]] = {
        "small": [None, -128, 127, 0],
        "number": [None, 2**63 - 1, -(2**63), 5],
        "name": [None, "", "a", "A", "ß", "日本", "\U0001f600", "a\u0000b", "a'b\"c"],
        "day": [None, date(1, 1, 1), date(2024, 2, 29)],
        "flag": [None, True, False],
        "price": [None, Decimal("0.001"), Decimal("-999999999.999")],
        "b": [None, -128, 127],
        "i": [None, -(2**31), 2**31 - 1, 3],
        "l": [None, 2**53 + 1, -7, 0],
        "d": [None, Decimal("9999999999999999.9999"), Decimal("-0.0001")],
        "f": [None, 0.1, 1e30, -1e30],
        "x": [None, 0.1, 0.2, -0.0, 1e300, float("nan"), float("inf"), 1e-300],
        "s": [None, "", "z", "ß", "日本", "\U0001f600", "\uffff"],
        "t": [None, since, since + timedelta(microseconds=1), datetime(1960, 1, 1, 0, 0, 0, 1, tzinfo=UTC)],
    }
    drawn = {name: chance.choice(several) for name, several in values.items()}
    return {"happened_at": happened, "arrived_at": arrived, "origin": chance.choice("AB"), "seq": number, **drawn}


def _run(
    spark: SparkSession,
    folder: Path,
    data: Path,
    engine: str,
    mode: Mode,
    sections: Mapping[str, Any],
    since: int = 0,
    **source: Any,
) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of every table, sorted, and the fates."""
    folder.mkdir()
    content = native_definition(data, **{"backfill": {"engine": engine}, **sections})
    content["source"] = content["source"] | source
    plan = planned(folder, content, mode, since=since, until=since + 3)
    manifests = list(replay_chunks(spark, plan, plan.chunks))
    result = {suffix: _in_order(manifests, suffix) for suffix in plan.tables}
    counted = [{"partition": name, **counts} for name, counts in fates(manifests).items()]
    return {**result, "fates": [*counted, {"read": sum(each.events_read for each in manifests)}]}


def _in_order(manifests: list[Manifest], suffix: str) -> list[dict[str, Any]]:
    result = [{name: value for name, value in row.items() if name != "run_id"} for row in rows(manifests, suffix)]
    return sorted(result, key=lambda row: repr([row[name] for name in sorted(row)]))
