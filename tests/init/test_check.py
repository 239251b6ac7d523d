"""`check` finds what is wrong with a definition, and shows what a run would read of its source."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.init.archives import COUNT, Order, access_logs, debezium, flat, json_lines, orders, parquet_by_pandas
from tests.lake.store import BUCKET, Store
from typer.testing import CliRunner

from backstream.cli import app
from backstream.runs.home import Home
from backstream.variables import HOME_VARIABLE
from backstream.workflow.checks.check_sample import check_sample

Backstream = Callable[..., Any]


@pytest.fixture
def backstream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Backstream:
    """Run a command in a folder of its own; its result has the output and the errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "home"))
    runner = CliRunner(env={"COLUMNS": "250", "NO_COLOR": "1", "TERM": "dumb"})
    return lambda *arguments: runner.invoke(app, arguments)


def write_bad_orders(folder: Path) -> None:
    """Write the orders, and three records that a run would quarantine."""
    json_lines(folder)
    good = {**flat(orders()[0]), "ordered_at": "soon", "received_at": 1_767_225_600_000}
    lines = [json.dumps(good), json.dumps({**good, "ordered_at": None}), '{"order_id": "cut off']
    with (folder / "0.jsonl").open("a") as file:
        file.write("\n".join(lines) + "\n")


def hourly(rows: list[Order]) -> dict[tuple[str, datetime], tuple[int, float]]:
    """Return the number and the sum of the amounts of orders by shop and hour."""
    counts, sums = Counter[tuple[str, datetime]](), Counter[tuple[str, datetime]]()
    for row in rows:
        place = row.shop, row.at.replace(minute=0, second=0, microsecond=0)
        counts[place] += 1
        sums[place] += row.amount  # type: ignore[assignment]
    return {place: (count, sums[place]) for place, count in counts.items()}


@pytest.mark.usefixtures("spark")
def test_a_sample_shows_records_quarantine_and_two_windows(tmp_path: Path, backstream: Backstream) -> None:
    write_bad_orders(tmp_path / "orders")
    assert backstream("init", "orders", "--from", "orders").exit_code == 0

    ended = backstream("check", "orders.toml", "--sample", "1000")

    assert ended.exit_code == 0, ended.output
    lines = ended.output.splitlines()
    assert lines[0] == "definition  orders, tumbling windows of 1h"
    assert "source      json, 2 files, " in lines[1]
    assert lines[1].endswith("; prepared, because source.format is json")
    assert "result      shop string, events long, sum_amount double" in lines
    assert "engine      native" in lines
    assert f"records: 5 of {COUNT + 3} in the sample" in lines
    gate = "above 1 %, nothing is published (quality.quarantined_ratio)"
    assert f"quarantine: 3 of {COUNT + 3} records (2.4 %); {gate}" in lines
    assert '  malformed_record: {"order_id": "cut off' in lines
    reasons = [line.split(":")[0].strip() for line in lines if line.startswith("  ")]
    assert {"malformed_record", "null_event_time", "unparsable_event_time"} <= set(reasons)
    assert "0.jsonl" in ended.output
    assert not (tmp_path / "home/warehouse").exists()


def test_the_windows_of_a_sample_are_those_of_its_records(
    tmp_path: Path, backstream: Backstream, spark: SparkSession
) -> None:
    parquet_by_pandas(tmp_path / "orders")
    assert backstream("init", "orders", "--from", "orders").exit_code == 0

    sample = check_sample(spark, tmp_path / "orders.toml", 1_000, Home(tmp_path / "home"))

    expected = hourly(orders())
    by_hour = Counter[datetime]()
    for (_, hour), (count, _) in expected.items():
        by_hour[hour] += count
    chosen = {hour for hour, _ in sorted(by_hour.items(), key=lambda item: (-item[1], item[0]))[:2]}
    rows = {
        (row["shop"], row["window_start"]): (row["events"], row["sum_amount"]) for row in sample.rows.to_pylist()
    }
    assert rows == {place: value for place, value in expected.items() if place[1] in chosen}
    assert {row["window_end"] - row["window_start"] for row in sample.rows.to_pylist()} == {timedelta(hours=1)}
    assert sample.windows == len(by_hour)
    assert sum(sample.fates.values()) == sample.read == COUNT


def test_the_fates_of_a_sample_are_those_of_a_replay(
    tmp_path: Path, backstream: Backstream, spark: SparkSession
) -> None:
    """The watermark of the only partition is the largest event time before a record, less 1,001 ms."""
    parquet_by_pandas(tmp_path / "orders")
    assert backstream("init", "orders", "--from", "orders").exit_code == 0
    text = re.sub(r"(?m)^(partition|sequence|deduplicate_on) = .*\n", "", (tmp_path / "orders.toml").read_text())
    text = re.sub(r'(?m)^delay = "1h"', 'emit = "on_event"\ndelay = "1s"', text)
    (tmp_path / "orders.toml").write_text(text)

    fates = check_sample(spark, tmp_path / "orders.toml", 1_000, Home(tmp_path / "home")).fates

    dropped, largest = 0, orders()[0].at
    for row in orders():
        end = row.at.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
        dropped += end - timedelta(milliseconds=1) <= largest - timedelta(seconds=1, milliseconds=1)
        largest = max(largest, row.at)
    assert dropped > 5
    assert fates == {"on_time": COUNT - dropped, "dropped": dropped}


def test_half_a_sample_is_read_from_each_of_two_files(
    tmp_path: Path, backstream: Backstream, spark: SparkSession
) -> None:
    json_lines(tmp_path / "orders")
    assert backstream("init", "orders", "--from", "orders").exit_code == 0

    sample = check_sample(spark, tmp_path / "orders.toml", 20, Home(tmp_path / "home"))

    made = orders()
    expected = sorted(row.received for row in [*made[:10], *made[COUNT // 2 : COUNT // 2 + 10]])
    assert [row["arrival_time"] for row in sample.records.to_pylist()] == expected


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("write", [access_logs, debezium], ids=["access logs", "debezium"])
def test_a_preset_gives_a_definition_without_quarantine(
    write: Callable[[Path], None], tmp_path: Path, backstream: Backstream
) -> None:
    write(tmp_path / "events")
    assert backstream("init", "events", "--from", "events").exit_code == 0

    ended = backstream("check", "events.toml", "--sample", "1000")

    assert ended.exit_code == 0, ended.output
    assert "quarantine: no record of the sample" in ended.output


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        (
            'key = ["shop"]',
            'key = ["shpo"]',
            "error: source.key names 'shpo', which is not a column (orders.toml)",
        ),
        ("sum(amount)", "sum(shop)", "error: aggregates.sum_amount of orders must be over numbers"),
        (
            "sum(amount)",
            "sum(amnt)",
            "error: aggregates.sum_amount names 'amnt', which is not a column, in 'sum(amnt)' (orders.toml)",
        ),
        ('size = "1h"', 'size = "1x"', "error: window.size must be a duration such as"),
        ('path = "orders"', 'path = "oders"', "error: no file or folder at"),
        ("[quality]", '[quality]\nsuite = "mine"', "error: no suite"),
        (
            "[aggregates]",
            '[backfill]\nengine = "native"\n[aggregates]\nmedian = "cast(percentile(amount, 0.5) as double)"',
            'error: backfill.engine = "native" cannot run orders: aggregates.median is',
        ),
    ],
    ids=["key", "type", "aggregate", "duration", "path", "suite", "engine"],
)
def test_each_problem_is_an_error_and_the_exit_status_is_1(
    old: str, new: str, error: str, tmp_path: Path, backstream: Backstream
) -> None:
    json_lines(tmp_path / "orders")
    assert backstream("init", "orders", "--from", "orders").exit_code == 0
    definition = tmp_path / "orders.toml"
    text = re.sub(r"  +#.*", "", definition.read_text())
    assert old in text
    definition.write_text(text.replace(old, new))

    ended = backstream("check", "orders.toml")

    assert ended.exit_code == 1
    assert error in ended.output


def test_parquet_is_checked_by_its_footers(tmp_path: Path, backstream: Backstream) -> None:
    parquet_by_pandas(tmp_path / "orders")
    assert backstream("init", "orders", "--from", "orders").exit_code == 0

    assert "source      parquet, 2 files, " in backstream("check", "orders.toml").output

    text = (tmp_path / "orders.toml").read_text()
    (tmp_path / "orders.toml").write_text(
        text.replace('"sum(amount)"', '"sum(amnt)"').replace('["shop"]', '["shpo"]')
    )
    ended = backstream("check", "orders.toml")
    assert ended.exit_code == 1
    assert "error: 2 problems in orders.toml" in ended.output
    assert "source.key names 'shpo', which is not a column" in ended.output


@pytest.mark.usefixtures("spark")
def test_a_transformation_is_applied_to_the_sample(
    tmp_path: Path, backstream: Backstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    json_lines(tmp_path / "orders")
    assert backstream("init", "orders", "--from", "orders").exit_code == 0
    (tmp_path / "shop_cleaning.py").write_text(
        'def double(rows):\n    return rows.withColumn("amount", rows.amount * 2)\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    text = (tmp_path / "orders.toml").read_text()
    path = 'path = "orders"\n'

    (tmp_path / "orders.toml").write_text(text.replace(path, f'{path}transform = "shop_cleaning:double"\n'))
    ended = backstream("check", "orders.toml", "--sample", "1000")
    assert ended.exit_code == 0, ended.output
    doubled = [line.split()[-1] for line in ended.output.splitlines() if re.match(r"(north|south|west) ", line)]
    assert doubled
    assert set(map(float, doubled)) <= {2 * amount for _, amount in hourly(orders()).values()}
    assert any(float(value) not in {amount for _, amount in hourly(orders()).values()} for value in doubled)

    (tmp_path / "orders.toml").write_text(text.replace(path, f'{path}transform = "shop_cleaning:tripple"\n'))
    ended = backstream("check", "orders.toml")
    assert ended.exit_code == 1
    assert "shop_cleaning:tripple" in ended.output


UNION = """
name = "sales"
[[source]]
name = "shop"
format = "json"
path = "orders"
event_time = "ordered_at"
key = ["shop"]
columns = { ordered_at = "string", shop = "string", amount = "double" }
[[source]]
name = "app"
path = "app"
event_time = "ordered_at"
key = ["shop"]
[window]
kind = "tumbling"
size = "1h"
[aggregates]
orders = "count(*)"
revenue = "sum(amount)"
[derive_after]
mean = "revenue / orders"
[having]
condition = "orders > 2"
"""


def test_a_union_with_derived_columns_and_a_condition_is_sampled(
    tmp_path: Path, backstream: Backstream, spark: SparkSession
) -> None:
    """Both sources have the same orders, so all counts are twice as large."""
    json_lines(tmp_path / "orders")
    parquet_by_pandas(tmp_path / "app")
    (tmp_path / "sales.toml").write_text(UNION)
    assert backstream("check", "sales.toml").exit_code == 0

    sample = check_sample(spark, tmp_path / "sales.toml", 1_000, Home(tmp_path / "home"))

    expected = {place: (2 * count, 2 * amount) for place, (count, amount) in hourly(orders()).items()}
    rows = sample.rows.to_pylist()
    assert rows
    for row in rows:
        assert (row["orders"], row["revenue"]) == expected[row["shop"], row["window_start"]]
        assert row["mean"] == row["revenue"] / row["orders"]
        assert row["orders"] > 2
    assert sample.read == 2 * COUNT


def test_a_sample_is_read_from_an_object_store(
    tmp_path: Path, backstream: Backstream, spark: SparkSession, s3: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    json_lines(tmp_path / "orders")
    place = f"{BUCKET}/{tmp_path.name}/sample"
    for file in (tmp_path / "orders").iterdir():
        with s3.filesystem.open_output_stream(f"{place}/{file.name}", compression=None) as stream:
            stream.write(file.read_bytes())
    for name, value in (
        ("ENDPOINT_URL", s3.endpoint),
        ("ACCESS_KEY_ID", s3.key_id),
        ("SECRET_ACCESS_KEY", s3.secret),
    ):
        monkeypatch.setenv(f"AWS_{name}", value)
    assert backstream("init", "orders", "--from", f"s3://{place}").exit_code == 0

    local, remote = (
        backstream("check", "orders.toml"),
        check_sample(spark, tmp_path / "orders.toml", 1_000, Home(tmp_path / "home")),
    )

    assert (local.exit_code, "result      shop string, events long" in local.output) == (0, True), local.output
    assert (remote.read, remote.quarantined.num_rows) == (COUNT, 0)


def test_the_sum_of_a_decimal_field_has_a_type(tmp_path: Path, backstream: Backstream) -> None:
    nets = [{"net": Decimal("1.25")}]
    table = pa.table(
        {"at": pa.array([datetime(2026, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC")), "order": nets}
    )
    pq.write_table(table, tmp_path / "orders.parquet")
    (tmp_path / "orders.toml").write_text(
        'name = "orders"\n[source]\npath = "orders.parquet"\nevent_time = "at"\n'
        '[window]\nkind = "tumbling"\nsize = "1h"\n[aggregates]\ntotal = "sum(order.net)"\n'
    )

    ended = backstream("check", "orders.toml")

    assert ended.exit_code == 0, ended.output
    assert "result      total decimal(13,2)" in ended.output.splitlines()


def test_records_without_an_id_are_no_duplicates_and_are_counted(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "in").mkdir()
    lines = ['{"id": "a", "at": "2024-03-01T08:10:00Z"}', *['{"id": null, "at": "2024-03-01T08:20:00Z"}'] * 2]
    (tmp_path / "in/a.json").write_text("\n".join([*lines, lines[0]]) + "\n")
    (tmp_path / "t.toml").write_text(
        f'name = "t"\n[source]\nformat = "json"\npath = "{tmp_path}/in"\nevent_time = "at"\n'
        'deduplicate_on = ["id"]\n'
        'columns = { id = "string", at = "string" }\n[window]\nkind = "tumbling"\nsize = "1h"\n'
        '[aggregates]\nn = "count(*)"\n'
    )

    sample = check_sample(spark, tmp_path / "t.toml", 100, Home(tmp_path / "home"))

    assert (sample.read, sample.duplicates, sample.without_id) == (4, 1, 2)
