"""Sources in other formats are prepared once, and give the windows that the events have."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.prepared import events as made
from tests.prepared.events import NO_TIME, Write, make_events, sums_by_hour

import backstream
from backstream.errors import BackstreamError, ContractError, QualityError, SpecError
from backstream.eventtime.instants import instant_ms
from backstream.lake.catalog import open_catalog
from backstream.runs.home import Home
from backstream.runs.input_notes import describe_inputs
from backstream.workflow.inputs.prepare import prepare_source
from backstream.workflow.late_data.stale import find_stale_days
from backstream.workflow.runners import SparkRunner

pytestmark = pytest.mark.slow

NESTED_COLUMNS = """
[source.columns]
partition = "int"
offset = "bigint"
received = "bigint"
payload = "struct<at: string, user: struct<id: string>, amount: int>"
"""
SOURCES: Mapping[str, tuple[Write, str, str]] = {
    "json": (
        made.write_json,
        "events.json",
        """
format = "json"
event_time = "payload.at"
arrival_time = "received"
arrival_time_unit = "ms"
partition = "partition"
sequence = "offset"
key = ["payload.user.id"]
"""
        + NESTED_COLUMNS,
    ),
    "json.gz": (
        made.write_json,
        "events.json.gz",
        """
format = "json"
event_time = "payload.at"
arrival_time = "timestamp_millis(received)"
key = ["payload.user.id"]
"""
        + NESTED_COLUMNS,
    ),
    "csv": (
        made.write_csv,
        "events.csv",
        """
format = "csv"
event_time = "at"
event_time_pattern = "yyyy-MM-dd HH:mm:ss.SSS"
time_zone = "America/New_York"
arrival_time = "received_s"
arrival_time_unit = "s"
partition = "partition"
sequence = "offset"
key = ["user"]
options = { header = "true" }
[source.columns]
at = "string"
received_s = "double"
partition = "int"
offset = "bigint"
user = "string"
amount = "int"
""",
    ),
    "avro": (
        made.write_avro,
        "events.avro",
        """
format = "avro"
event_time = "at"
arrival_time = "received"
arrival_time_unit = "us"
partition = "partition"
sequence = "offset"
key = ["user"]
""",
    ),
    "orc": (
        made.write_orc,
        "events.orc",
        'format = "orc"\nevent_time = "at"\narrival_time = "received"\nkey = ["user"]\n',
    ),
    "int96": (
        made.write_int96,
        "events.parquet",
        'event_time = "at"\narrival_time = "received"\nkey = ["user"]\n',
    ),
    "nanoseconds": (
        made.write_nanoseconds,
        "events.parquet",
        'event_time = "at"\narrival_time = "received"\npartition = "partition"\nkey = ["user"]\n',
    ),
    "hive": (made.write_hive, "events.parquet", 'event_time = "at"\narrival_time = "received"\nkey = ["user"]\n'),
}
REST = """
[window]
kind = "tumbling"
size = "1h"
[watermark]
strategy = "bounded_out_of_orderness"
delay = "30m"
[aggregates]
orders = "count(*)"
revenue = "sum({amount})"
[quality]
late_ratio = {{ warn = 1.0, fail = 1.0 }}
dropped_ratio = {{ warn = 1.0, fail = 1.0 }}
missing_ratio = {{ warn = 1.0, fail = 1.0 }}
quarantined_ratio = {{ warn = 1.0, fail = 1.0 }}
"""


def write_definition(folder: Path, source: str, amount: str = "amount") -> Path:
    path = folder / "orders.toml"
    path.write_text(f'name = "orders"\n[source]\npath = "{folder}/data"\n{source}{REST.format(amount=amount)}')
    return path


def published(home: Home, key: str) -> dict[tuple[str, datetime], tuple[int, int]]:
    rows: list[dict[str, Any]] = backstream.read("orders", home=home.path).to_pylist()
    assert len({(row[key], row["window_start"]) for row in rows}) == len(rows)
    return {(row[key], row["window_start"]): (row["orders"], row["revenue"]) for row in rows}


@pytest.mark.parametrize("name", SOURCES)
def test_each_format_is_run_in_both_modes_with_late_and_bad_records(
    name: str, spark: SparkSession, tmp_path: Path
) -> None:
    write, file_name, source = SOURCES[name]
    home, nested = Home(tmp_path / "home"), name.startswith("json")
    all_events = make_events()
    first, late = all_events[:150], all_events[150:]
    write(tmp_path / "data", f"a-{file_name}", first)
    definition = write_definition(tmp_path, source, "payload.amount" if nested else "amount")
    key = "payload_user_id" if nested else "user"

    backstream.run(definition, "2024-03-01", "2024-03-03", mode="recompute", home=home.path, allow_unsealed=True)
    assert published(home, key) == sums_by_hour(first)

    write(tmp_path / "data", f"b-{file_name}", [*late, NO_TIME])
    prepare_source(definition, home, SparkRunner(lambda: spark))
    assert [day.day_ms for day in find_stale_days(definition, home).days] == [instant_ms("2024-03-02", "day")]
    backstream.run(definition, "2024-03-01", "2024-03-03", mode="replay", home=home.path, allow_unsealed=True)
    assert published(home, key) == sums_by_hour(all_events)
    (bad,) = quarantined(home)
    assert (bad["reason"], bad["file"].rpartition("/")[2]) == ("null_event_time", f"b-{file_name}")
    assert json.loads(bad["record"])["offset"] == NO_TIME.offset


ORDERS = SOURCES["json"][2]
BAD_LINES = [
    "{not json",
    '{"partition": 0, "offset": 900, "received": 1709251200000, "payload": {"at": "yesterday"}}',
    '{"partition": 0, "offset": 901, "received": 1709251200000, "payload": {"user": {"id": "a"}}}',
    '{"partition": 0, "offset": 902, "payload": {"at": "2024-03-01T00:00:01Z", "user": {"id": "a"}}}',
    '{"partition": "zero", "offset": 903, "payload": {"at": "2024-03-01T00:00:01Z", "user": {"id": "a"}}}',
]


def quarantined(home: Home) -> list[dict[str, Any]]:
    with open_catalog(home) as catalog:
        rows: list[dict[str, Any]] = (
            catalog.load_table("backstream.orders__quarantine").scan().to_arrow().to_pylist()
        )
    return sorted(rows, key=lambda row: (row["reason"], row["file"], row["line"] or 0))


@pytest.mark.usefixtures("spark")
def test_records_that_cannot_be_read_go_to_quarantine_with_their_text(tmp_path: Path) -> None:
    home, events = Home(tmp_path / "home"), make_events(50)
    made.write_json(tmp_path / "data", "events.json", events, BAD_LINES)
    definition = write_definition(tmp_path, ORDERS, "payload.amount")
    backstream.run(definition, "2024-03-01", "2024-03-03", home=home.path, allow_unsealed=True)
    assert published(home, "payload_user_id") == sums_by_hour(events)
    rows = quarantined(home)
    assert all(row["file"].endswith("/data/events.json") for row in rows)
    assert [(row["reason"], row["line"]) for row in rows] == [
        ("malformed_record", 51),
        ("malformed_record", 55),
        ("null_arrival_time", None),
        ("null_event_time", None),
        ("unparsable_event_time", None),
    ]
    assert [row["record"] for row in rows[:2]] == [BAD_LINES[0], BAD_LINES[4]]
    assert json.loads(rows[-1]["record"])["payload"]["at"] == "yesterday"

    (tmp_path / "data/only-bad.json").write_text(f"{BAD_LINES[0]}\n{BAD_LINES[2]}\n")
    backstream.run(definition, "2024-03-01", "2024-03-03", mode="replay", home=home.path, allow_unsealed=True)
    assert published(home, "payload_user_id") == sums_by_hour(events)
    assert len(quarantined(home)) == 2 * len(rows) + 2  # of both runs


@pytest.mark.usefixtures("spark")
def test_a_changed_and_a_removed_file_are_prepared_again(tmp_path: Path) -> None:
    home, events = Home(tmp_path / "home"), make_events(60)
    for number in range(3):
        made.write_json(tmp_path / "data", f"{number}.json", events[number * 20 : number * 20 + 20])
    definition = write_definition(tmp_path, ORDERS, "payload.amount")

    def run() -> None:
        backstream.run(definition, "2024-03-01", "2024-03-03", home=home.path, allow_unsealed=True)

    run()
    made.write_json(tmp_path / "data", "1.json", events[20:30])
    run()
    assert published(home, "payload_user_id") == sums_by_hour(events[:30] + events[40:])
    (tmp_path / "data/2.json").rename(tmp_path / "data/3.json")
    run()
    assert published(home, "payload_user_id") == sums_by_hour(events[:30] + events[40:])
    (tmp_path / "data/3.json").unlink()
    with pytest.raises(QualityError, match=f"removed: {tmp_path}/data/3.json;"):
        run()
    backstream.run(
        definition, "2024-03-01", "2024-03-03", home=home.path, allow_unsealed=True, gate_override="3 was a test"
    )
    assert published(home, "payload_user_id") == sums_by_hour(events[:30])


@pytest.mark.usefixtures("spark")
def test_where_and_derived_columns(tmp_path: Path) -> None:
    home, events = Home(tmp_path / "home"), make_events(60)
    made.write_json(tmp_path / "data", "events.json", events)
    settings = """
where = "user = 'a' and cents % 200 = 0"
derive = { user = "payload.user.id", cents = "payload.amount * 100" }
"""
    definition = write_definition(
        tmp_path,
        ORDERS.replace('["payload.user.id"]', '["user"]').replace(
            "[source.columns]", settings + "[source.columns]"
        ),
        "cents",
    )
    backstream.run(definition, "2024-03-01", "2024-03-03", home=home.path, allow_unsealed=True)
    kept = [event for event in events if event.user == "a" and event.amount % 2 == 0]
    expected = {place: (count, total * 100) for place, (count, total) in sums_by_hour(kept).items()}
    assert published(home, "user") == expected


@pytest.mark.usefixtures("spark")
def test_a_truncated_file_is_named_or_skipped(tmp_path: Path) -> None:
    home, events = Home(tmp_path / "home"), make_events(60)
    made.write_json(tmp_path / "data", "good.json.gz", events[:30])
    made.write_json(tmp_path / "data", "bad.json.gz", events[30:])
    bad = tmp_path / "data/bad.json.gz"
    bad.write_bytes(bad.read_bytes()[:200])
    definition = write_definition(tmp_path, ORDERS, "payload.amount")
    with pytest.raises(ContractError, match=f"^cannot read input file {bad}: .*EOF"):
        backstream.plan(definition, "2024-03-01", "2024-03-03", home=home.path, allow_unsealed=True)
    write_definition(tmp_path, 'corrupt_files = "skip"\n' + ORDERS, "payload.amount")
    result = backstream.run(definition, "2024-03-01", "2024-03-03", home=home.path, allow_unsealed=True)
    assert [file.path for file in result.plan.skipped] == [str(bad)]
    assert published(home, "payload_user_id") == sums_by_hour(events[:30])


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            ("payload.at", "payload.time"),
            "source.event_time names 'payload.time', which is not a column .*orders.toml",
        ),
        (
            ('arrival_time_unit = "ms"', ""),
            "source.arrival_time must be an instant, got bigint from 'received' .*_unit to",
        ),
        (("payload.user.id", "payload.nobody"), "source.key names 'payload.nobody', which is not a column"),
    ],
)
def test_a_wrong_column_is_named_before_anything_is_written(
    wrong: tuple[str, str], message: str, tmp_path: Path
) -> None:
    made.write_json(tmp_path / "data", "events.json", make_events(5))
    definition = write_definition(tmp_path, ORDERS.replace(*wrong), "payload.amount")
    with pytest.raises(SpecError, match=f"(?s)^{message}"):
        backstream.plan(definition, "2024-03-01", "2024-03-03", home=tmp_path / "home", allow_unsealed=True)
    assert not list((tmp_path / "home").glob("prepared/*/*/batch-*"))


@pytest.mark.usefixtures("spark")
def test_two_fields_that_would_become_one_column_are_refused(tmp_path: Path) -> None:
    made.write_json(tmp_path / "data", "events.json", make_events(5))
    source = ORDERS.replace("[source.columns]", '[source.columns]\npayload_amount = "int"')
    definition = write_definition(tmp_path, source, "payload.amount + payload_amount")
    with pytest.raises(SpecError, match="both become the column 'payload_amount'"):
        backstream.plan(definition, "2024-03-01", "2024-03-03", home=tmp_path / "home", allow_unsealed=True)


@pytest.mark.usefixtures("spark")
def test_a_column_that_spark_cannot_read_is_an_error_without_a_stack(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    rows = [{**made.columns(event), "time": event.at.time()} for event in make_events(5)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "data/a.parquet")
    definition = write_definition(tmp_path, 'prepare = true\nevent_time = "at"\nkey = ["user"]\n')
    with pytest.raises(
        ContractError, match=r"^column '.*' is of a type that Spark cannot read: time64\[us\] \(.*parquet\)"
    ):
        backstream.plan(definition, "2024-03-01", "2024-03-03", home=tmp_path / "home", allow_unsealed=True)


TRANSFORM = """
from pyspark.sql import DataFrame, functions as F


def copy_late_users(orders: DataFrame) -> DataFrame:
    twice = orders.where("payload.user.id <> 'b'").withColumn("copy", F.explode(F.array(F.lit(0), F.lit(1))))
    return twice.withColumn("offset", F.expr("2 * offset + copy"))


def fail(orders: DataFrame) -> DataFrame:
    raise ValueError("no such orders")


def nothing(orders: DataFrame) -> None:
    pass
"""


@pytest.fixture
def own_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module of the user on the path."""
    module = tmp_path / "own_code.py"
    module.write_text(TRANSFORM)
    monkeypatch.syspath_prepend(tmp_path)
    yield module
    sys.modules.pop("own_code", None)


@pytest.mark.usefixtures("spark", "own_code")
def test_a_transformation_may_multiply_and_remove_records_which_are_counted(tmp_path: Path) -> None:
    home, events = Home(tmp_path / "home"), make_events(60)
    made.write_json(tmp_path / "data", "events.json", events)
    definition = write_definition(tmp_path, 'transform = "own_code:copy_late_users"\n' + ORDERS, "payload.amount")
    result = backstream.run(definition, "2024-03-01", "2024-03-03", home=home.path, allow_unsealed=True)
    kept = [event for event in events if event.user != "b"]
    assert published(home, "payload_user_id") == sums_by_hour(kept + kept)
    sentence = f"source.transform read 60 records and returned {2 * len(kept)}"
    assert ("Transformed", sentence) in describe_inputs(result.plan)


@pytest.mark.usefixtures("spark", "own_code")
@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            "own_code:fail",
            r"transformation own_code:fail failed over .*events.json: ValueError: no such orders\n.*in fail",
        ),
        ("own_code:nothing", "transformation own_code:nothing must return a DataFrame, got NoneType"),
        (
            "own_code:missing",
            "transformation own_code:missing cannot be imported: own_code has no function 'missing'",
        ),
    ],
)
def test_an_error_of_a_transformation_shows_its_own_lines(function: str, message: str, tmp_path: Path) -> None:
    made.write_json(tmp_path / "data", "events.json", make_events(5))
    definition = write_definition(tmp_path, f'transform = "{function}"\n' + ORDERS, "payload.amount")
    with pytest.raises(BackstreamError, match=f"(?s)^{message}"):
        backstream.plan(definition, "2024-03-01", "2024-03-03", home=tmp_path / "home", allow_unsealed=True)
