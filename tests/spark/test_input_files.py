"""Test that files with different schemas make one history, and that a damaged file has a readable error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.source.days import damage_pages, write_days
from tests.source.test_inputs import empty
from tests.workflow.history import AT_ONE_TIME, CLICKS, COLUMNS, at, planned, write_clicks, write_definition

from backstream.chunks.replay import replay_chunks
from backstream.errors import ContractError
from backstream.eventtime.instants import epoch_ms
from backstream.eventtime.windows import Tumbling
from backstream.runs.manifest import Manifest, sum_fates
from backstream.runs.plan import Mode
from backstream.spark.engine import SparkEngine
from backstream.variables import HOME_VARIABLE

pytestmark = pytest.mark.slow

AGGREGATES = """\
[aggregates]
clicks = "count(*)"
total = "sum(amount)"
paid = "sum(price)"
referred = "count(referrer)"
last_seq = "max(seq)"
"""
MIXED = CLICKS.partition("[aggregates]")[0] + AGGREGATES
OLD = {
    "page": pa.string(),
    "seq": pa.int16(),
    "amount": pa.float32(),
    "price": pa.decimal128(6, 2),
    "happened_at": pa.timestamp("ms", "UTC"),
    "origin": pa.string(),
    "arrived_at": pa.timestamp("us", "UTC"),
    "unused": pa.int64(),
}
NEW = {
    **COLUMNS,
    "seq": pa.int64(),
    "amount": pa.float64(),
    "price": pa.decimal128(30, 2),
    "referrer": pa.string(),
    "unused": pa.string(),
}
Row = Mapping[str, Any]


def clicks(first: int, count: int) -> list[Row]:
    """Return a click every seven minutes, from 2024-03-01T00:00Z on."""
    return [
        {
            "happened_at": (
                moment := datetime.fromtimestamp(at("1").timestamp() + number * 420, tz=at("1").tzinfo)
            ),
            "arrived_at": moment,
            "origin": "A",
            "seq": number,
            "page": "home" if number % 3 else "help",
            "amount": number / 4,
            "price": f"{number}.25",
            "referrer": None if number % 5 else "mail",
            "unused": None,
        }
        for number in range(first, first + count)
    ]


def write_rows(file: Path, rows: list[Row], kinds: Mapping[str, pa.DataType], **options: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    columns = {
        name: pa.array([row[name] for row in rows]).cast(kind)
        if name == "price"
        else pa.array([row[name] for row in rows], kind)
        for name, kind in kinds.items()
    }
    pq.write_table(pa.table(columns), file, **options)


def results(manifests: list[Manifest]) -> dict[tuple[str, int], tuple[Any, ...]]:
    tables = [pq.read_table(file.path) for each in manifests for file in each.files[""]]
    names = ("clicks", "total", "paid", "referred", "last_seq")
    return {
        (row["page"], epoch_ms(row["window_start"])): tuple(row[name] for name in names)
        for row in pa.concat_tables(tables).to_pylist()
    }


def expected(old: list[Row], new: list[Row]) -> dict[tuple[str, int], tuple[Any, ...]]:
    """Return the result of the same rows from a simple loop, with windows by the reference's formula."""
    result: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in [*({**row, "referrer": None} for row in old), *new]:
        for window in Tumbling(3_600_000).assign(epoch_ms(row["happened_at"])):
            result[row["page"], window.start_ms].append(row)
    return {
        place: (
            len(rows),
            sum(row["amount"] for row in rows),
            sum(pa.scalar(row["price"]).cast(pa.decimal128(30, 2)).as_py() for row in rows),
            sum(row["referrer"] is not None for row in rows),
            max(row["seq"] for row in rows),
        )
        for place, rows in result.items()
    }


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("is_newest_first", [False, True])
def test_columns_that_were_promoted_added_or_reordered_are_read_as_one(
    spark: SparkSession, tmp_path: Path, mode: Mode, *, is_newest_first: bool
) -> None:
    old, new = clicks(0, 50), clicks(50, 50)
    names = ("b", "a") if is_newest_first else ("a", "b")
    write_rows(tmp_path / f"data/{names[0]}.parquet", old, OLD, use_dictionary=["page"])
    write_rows(tmp_path / f"data/{names[1]}.parquet", new, NEW)

    plan = planned(tmp_path, write_definition(tmp_path, MIXED), mode=mode)
    manifests = list(replay_chunks(SparkEngine(spark), plan, plan.chunks))

    assert results(manifests) == expected(old, new)
    assert sum_fates(manifests) == {"A": {"on_time": 100}}


@pytest.mark.parametrize("mode", Mode)
def test_all_records_of_a_file_without_the_event_time_column_are_quarantined(
    spark: SparkSession, tmp_path: Path, mode: Mode
) -> None:
    write_days(tmp_path, 1)
    timeless = {name: kind for name, kind in COLUMNS.items() if name != "happened_at"}
    write_clicks(tmp_path / "data/b.parquet", [(at("1 06:00"), "A", 7, "home")], timeless)

    plan = planned(tmp_path, write_definition(tmp_path), mode=mode)
    manifests = list(replay_chunks(SparkEngine(spark), plan, plan.chunks))

    assert sum_fates(manifests) == {"A": {"on_time": 1, "quarantined": 1}}


def test_what_spark_has_written_as_int96_is_read(spark: SparkSession, tmp_path: Path) -> None:
    written = spark.createDataFrame(
        [(at("1 05:00"), at("1 05:01"), "A", 0, "home"), (at("1 05:30"), at("1 05:31"), "A", 1, "home")],
        "happened_at timestamp, arrived_at timestamp, origin string, seq bigint, page string",
    )
    spark.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    try:
        written.coalesce(1).write.parquet(str(tmp_path / "data"))
    finally:
        spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")

    plan = planned(tmp_path, write_definition(tmp_path), mode=Mode.RECOMPUTE)
    manifests = list(replay_chunks(SparkEngine(spark), plan, plan.chunks))

    assert sum_fates(manifests) == {"A": {"on_time": 2}}


def quarantined(manifests: list[Manifest]) -> dict[str, dict[str, Any]]:
    """Return the stored record by file name."""
    tables = [pq.read_table(file.path) for each in manifests for file in each.files["quarantine"]]
    return {Path(row["file"]).name: json.loads(row["record"]) for row in pa.concat_tables(tables).to_pylist()}


def test_records_of_files_that_differ_in_other_columns_are_kept_whole(spark: SparkSession, tmp_path: Path) -> None:
    bad = (None, at("1 05:01"), "A", 0, "home")
    write_days(tmp_path, 1)
    write_clicks(tmp_path / "data/a.parquet", [(*bad, 7)], {**COLUMNS, "extra": pa.int64()})
    write_clicks(tmp_path / "data/b.parquet", [(*bad, "seven")], {**COLUMNS, "extra": pa.string()})
    nested = pa.struct([("in side", pa.list_(pa.int32()))])
    write_clicks(tmp_path / "data/c.parquet", [(*bad, {"in side": [1]})], {**COLUMNS, "a.b `c`": nested})
    write_clicks(tmp_path / "data/d.parquet", [(*bad, at("1 06:00"))], {**COLUMNS, "extra": pa.timestamp("ns")})
    write_clicks(tmp_path / "data/e.parquet", [(*bad[:3], 5, bad[4])], {**COLUMNS, "seq": pa.int32()})
    pageless = {name: kind for name, kind in COLUMNS.items() if name != "page"}
    write_clicks(tmp_path / "data/f.parquet", [bad[:4]], pageless)

    plan = planned(tmp_path, write_definition(tmp_path))
    kept = quarantined(list(replay_chunks(SparkEngine(spark), plan, plan.chunks)))

    common = {
        "happened_at": None,
        "arrived_at": "2024-03-01T05:01:00.000Z",
        "origin": "A",
        "seq": 0,
        "page": "home",
    }
    assert kept == {
        "a.parquet": {**common, "extra": 7},
        "b.parquet": {**common, "extra": "seven"},
        "c.parquet": {**common, "a.b `c`": {"in side": [1]}},
        "d.parquet": {**common, "extra": "2024-03-01T06:00:00.000"},
        "e.parquet": {**common, "seq": 5},
        "f.parquet": {name: value for name, value in common.items() if name != "page"},
    }


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """Write three days; the file of the second has damaged pages and an intact footer."""
    write_days(tmp_path, 1, 2, 3)
    damage_pages(tmp_path / "data/2.parquet")
    return tmp_path


def test_damaged_pages_fail_only_runs_that_read_them_with_a_short_error(
    spark: SparkSession, damaged: Path
) -> None:
    definition = write_definition(damaged, AT_ONE_TIME)
    sound = [planned(damaged, definition, f"2024-03-0{day}", f"2024-03-0{day + 1}") for day in (1, 3)]
    for plan in sound:
        assert sum_fates(list(replay_chunks(SparkEngine(spark), plan, plan.chunks))) == {"A": {"on_time": 1}}

    plan = planned(damaged, definition, "2024-03-02", "2024-03-03")
    with pytest.raises(ContractError) as refused:
        list(replay_chunks(SparkEngine(spark), plan, plan.chunks))

    (account,) = plan.folder.errors.iterdir()
    first, cause, where, _, hint = str(refused.value).splitlines()
    assert first == f"cannot read input file {damaged}/data/2.parquet: its pages are damaged"
    assert cause.startswith("  ")
    assert "\tat " not in cause
    assert where == f"  Spark's full message is in {account}"
    assert hint == (
        'hint: restore the file, move it away, or set source.corrupt_files = "skip"; then create a new plan'
    )
    assert "\tat org.apache.spark" in account.read_text()


def test_a_replay_runs_into_damaged_pages_wherever_they_are(spark: SparkSession, damaged: Path) -> None:
    plan = planned(damaged, write_definition(damaged), mode=Mode.REPLAY)

    with pytest.raises(ContractError, match=r"^cannot read input file .*/2\.parquet: its pages are damaged\n"):
        list(replay_chunks(SparkEngine(spark), plan, plan.chunks))


@pytest.mark.parametrize("name", ["é {1} [a]*/%41 #+;.parquet"])
def test_a_damaged_file_is_named_as_it_is_called(spark: SparkSession, tmp_path: Path, name: str) -> None:
    write_clicks(tmp_path / "data" / name, [(at("1 05:00"), at("1 05:01"), "A", 0, "home")])
    damage_pages(tmp_path / "data" / name)
    plan = planned(tmp_path, write_definition(tmp_path))

    with pytest.raises(ContractError) as refused:
        list(replay_chunks(SparkEngine(spark), plan, plan.chunks))

    assert str(refused.value).splitlines()[0] == (
        f"cannot read input file {tmp_path}/data/{name}: its pages are damaged"
    )


def test_a_session_that_reaches_into_a_damaged_file_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    #  file   a            b           c (damaged)
    #  event  1T23:50      2T00:30     2T01:20       gap 1h: one session
    text = AT_ONE_TIME.replace('kind = "tumbling"\nsize = "1h"', 'kind = "session"\ngap = "1h"')
    for number, (name, moment) in enumerate({"a": "1 23:50", "b": "2 00:30", "c": "2 01:20"}.items()):
        write_clicks(tmp_path / f"data/{name}.parquet", [(at(moment), at(moment), "A", number, "home")])
    definition = write_definition(tmp_path, text)
    planned(tmp_path, definition)
    empty(tmp_path / "data/c.parquet")

    plan = planned(tmp_path, definition)
    with pytest.raises(ContractError) as refused:
        list(replay_chunks(SparkEngine(spark), plan, plan.chunks))

    assert [Path(file.path).name for file in plan.damaged] == ["c.parquet"]
    first, _, hint = str(refused.value).splitlines()
    assert first.startswith(
        f"cannot read input file {tmp_path}/data/c.parquet: it is damaged, and may have an event of "
    )
    assert hint == (
        'hint: restore the file, move it away, or set source.corrupt_files = "skip"; then create a new plan'
    )


def test_the_command_line_and_the_job_print_one_error_without_a_trace(damaged: Path) -> None:
    definition = write_definition(damaged)
    environment = {HOME_VARIABLE: str(damaged / "home")}

    ran = backstream(environment, "run", str(definition), "--since", "2024-03-02", "--until", "2024-03-03")

    message = [line for line in ran.stderr.splitlines() if line.startswith("error: ")]
    assert (ran.returncode, message) == (
        1,
        [f"error: cannot read input file {damaged}/data/2.parquet: its pages are damaged"],
    )
    assert "\tat " not in ran.stderr + ran.stdout
    (plan,) = (damaged / "home/runs/clicks").glob("*/plan.json")
    job = python(environment, "-m", "backstream.jobs.replay", "--plan", str(plan), "--chunk", "0000")
    assert job.returncode == 3
    assert f"ContractError: cannot read input file {damaged}/data/2.parquet: its pages are damaged" in job.stderr
    assert "\tat " not in job.stderr + job.stdout


def backstream(environment: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return python(environment, "-m", "backstream.cli", *arguments)


def python(environment: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
