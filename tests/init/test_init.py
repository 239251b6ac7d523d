"""`init` writes a definition of an archive that a run reads as the archive is."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import tomllib
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.init.archives import ARCHIVES, COUNT, json_lines, orders, to_milliseconds, write_lines
from tests.lake.store import BUCKET, Store
from typer.testing import CliRunner

import backstream
from backstream.cli import app
from backstream.definition.loader import load_definition, resolve_paths, resolve_raw_paths
from backstream.eventtime.instants import DAY_MS, epoch_ms
from backstream.eventtime.intervals import Interval
from backstream.runs.home import Home
from backstream.source.raw_files import list_raw_files
from backstream.workflow.inputs.prepare import prepare_source
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.plan.planning import plan_run
from backstream.workflow.runners import SparkRunner

pytestmark = pytest.mark.slow


def init(folder: Path, *arguments: str) -> Any:
    """Run the command in a folder, without a terminal."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return CliRunner(env={"COLUMNS": "250", "NO_COLOR": "1"}).invoke(app, ["init", *arguments])


def event_times(definition: Path, home: Home) -> Counter[int]:
    """Return the event times in the files that a run reads, in epoch microseconds."""
    source = resolve_paths(load_definition(definition), home).source
    times = pq.read_table(source.path, columns=[source.event_time])[source.event_time].to_pylist()
    return Counter(round(time.timestamp() * 1_000_000) for time in times)


@pytest.mark.parametrize("name", ARCHIVES)
def test_the_definition_of_an_archive_is_what_a_person_would_write_and_can_be_planned(
    name: str, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = ARCHIVES[name]
    archive.write(tmp_path / "data/orders")

    ended = init(tmp_path, "orders", "--from", "data/orders")

    assert ended.exit_code == 0, ended.output
    definition, home = tmp_path / "orders.toml", Home(tmp_path / "home")
    content = tomllib.loads(definition.read_text())
    source = {key: value for key, value in content["source"].items() if key not in archive.sub_tables}
    assert {key: value for key, value in source.items() if key != "path"} == archive.source
    assert {key for key, value in content["source"].items() if isinstance(value, dict)} == {*archive.sub_tables}
    assert content["aggregates"] == archive.aggregates
    assert content["quality"] == {"missing_ratio": {"warn": 0.0, "fail": 1.0}}  # the archive begins at 6:00

    monkeypatch.chdir(tmp_path)
    prepared = prepare_source(definition, home, SparkRunner(lambda: spark))
    first = epoch_ms(datetime(2026, 1, 1, tzinfo=UTC))
    plan = plan_run(PlanRequest(definition, Interval(first, first + 3 * DAY_MS), trigger="test", home=home))

    assert prepared is None or (prepared.counts.read, prepared.counts.unreadable) == (COUNT, 0)
    assert sum(file.rows for file in plan.inputs) == COUNT
    written = Counter(round(archive.precision(order.at).timestamp() * 1_000_000) for order in orders())
    assert event_times(definition, home) == written


def test_init_prints_what_it_found_in_the_records(tmp_path: Path) -> None:
    json_lines(tmp_path / "orders")
    with (tmp_path / "orders/0.jsonl").open("a") as file:
        file.write('{"order_id": "cut off\n')

    ended = init(tmp_path, "orders", "--from", "orders")

    rows = {line.split()[0]: line for line in ended.output.splitlines() if line.strip()}
    delays = sorted((order.received - order.at).total_seconds() for order in orders())
    assert delays[COUNT // 2] == 5
    assert f"read {COUNT} records of 2 files" in ended.output
    assert "arrival delay: 50% 5s, 90% 1h6m40s, 99% 1h6m40s, maximum 1h6m40s" in ended.output
    assert "not before the event time in 100 %" in rows["received_at"]
    assert rows["shop"].split()[1:] == ["string", "0", "%", "3", "north", "west", "key"]
    assert "distinct in 100 % within a partition" in rows["seq"]
    assert 'unreadable: 1 line, e.g., \'{"order_id": "cut off\' in ' in ended.output
    assert ended.output.splitlines()[-4:] == [
        "next:",
        "  backstream check orders.toml --sample 1000",
        "  backstream plan orders.toml --since 2026-01-01 --until 2026-01-03",
        "  backstream run orders.toml --since 2026-01-01 --until 2026-01-03",
    ]


def test_init_asks_on_a_terminal_about_uncertain_values(tmp_path: Path) -> None:
    lines = [
        f'{{"a": "2026-01-01 0{n % 10}:00:00", "b": "2026-01-01 0{n % 10}:30:00", "kind": "{"xyz"[n % 3]}"}}'
        for n in range(30)
    ]
    write_lines(tmp_path / "clicks/a.json", lines)
    controller, terminal = pty.openpty()
    command = [str(Path(sys.executable).with_name("backstream")), "init", "clicks", "--from", "clicks"]

    child = subprocess.Popen(command, cwd=tmp_path, stdin=terminal, stdout=subprocess.PIPE, text=True)
    os.write(controller, b"2\n1\nEurope/Paris\n15m\n")  # b, kind, the time zone, and the size of a window
    try:
        output, _ = child.communicate(timeout=60)
    finally:
        child.kill()
        os.close(controller)
        os.close(terminal)

    assert child.returncode == 0, output
    assert "Which column has the time at which the event happened?\n  1  a\n  2  b" in output
    content = tomllib.loads((tmp_path / "clicks.toml").read_text())
    assert (content["source"]["event_time"], content["source"]["key"]) == ("b", ["kind"])
    assert "arrival_time" not in content["source"]  # a is before b, so it is no arrival time
    assert content["source"]["time_zone"] == "Europe/Paris"
    assert content["window"]["size"] == "15m"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["orders", "--from", "nowhere"], "error: no file or folder at nowhere (--from)"),
        (["Orders", "--from", "orders"], "error: name must be lower-case words, joined by single underscores"),
        (
            ["orders", "--from", "notes"],
            "error: no events at notes (--from): no file is Parquet, JSON, CSV,",
        ),
        (["orders", "--from", "timeless"], "error: no column of timeless holds times: timestamps, ISO 8601,"),
        (
            ["orders", "--from", "orders", "--preset", "debezium"],
            "error: the archive does not fit --preset debezium:",
        ),
        (["kept", "--from", "orders"], "error: kept.toml exists already"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_a_definition_is_refused(tmp_path: Path, arguments: list[str], message: str) -> None:
    json_lines(tmp_path / "orders")
    write_lines(tmp_path / "notes/readme.md", ["# Notes"])
    write_lines(tmp_path / "timeless/a.json", ['{"name": "x"}'])
    (tmp_path / "kept.toml").write_text("mine")

    ended = init(tmp_path, *arguments)

    assert ended.exit_code == 1
    assert ended.output.startswith(message)
    assert (tmp_path / "kept.toml").read_text() == "mine"
    assert not (tmp_path / "orders.toml").exists()


def test_an_archive_in_an_object_store_is_examined_like_a_folder(
    tmp_path: Path, s3: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    json_lines(tmp_path / "orders")
    place = f"{BUCKET}/{tmp_path.name}/orders"
    for file in (tmp_path / "orders").iterdir():
        with s3.filesystem.open_output_stream(f"{place}/{file.name}", compression=None) as stream:
            stream.write(file.read_bytes())
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret)

    local, remote = (init(tmp_path, name, "--from", at) for name, at in (("a", "orders"), ("b", f"s3://{place}")))

    assert remote.exit_code == 0, remote.output
    assert remote.output.splitlines()[3:-6] == local.output.splitlines()[3:-6]
    content = tomllib.loads((tmp_path / "b.toml").read_text())
    assert content["source"]["path"] == f"s3://{place}"


@pytest.mark.parametrize(
    ("files", "path"),
    [
        (["a.jsonl", "b.jsonl.gz", "shops.csv"], "mixed"),
        (["access.log", "access.log.1.gz", "error.log"], "mixed/access.log*"),
        (["events-1", "events-2", "shops.csv"], "mixed"),
        (["2026/a.dat", "2026/01/b.dat", "c.csv"], "mixed/**/*.dat"),
        (["a.json", "b.dat"], ["mixed/*.dat", "mixed/*.json"]),
        (["access$.log", "access$.log.1.gz", "error.log"], "mixed/access$$.log*"),
    ],
    ids=str,
)
def test_the_path_of_the_definition_names_the_files_of_the_sample_and_no_others(
    files: list[str], path: str | list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    line = '10.0.0.1 - - [01/Jan/2026:06:00:00 +0100] "GET / HTTP/1.1" 200 5'
    line = line if "access" in files[0] else '{"at": "2026-01-01T06:00:00Z", "n": 1}'
    for name in files:
        is_data = name.startswith("access") or not name.endswith((".csv", ".log"))
        write_lines(tmp_path / "mixed" / name, [line] * 40 if is_data else ["shop,city", "north,Oslo"])

    ended = init(tmp_path, "events", "--from", "mixed")

    assert ended.exit_code == 0, ended.output
    assert tomllib.loads((tmp_path / "events.toml").read_text())["source"]["path"] == path
    source = resolve_raw_paths(load_definition(tmp_path / "events.toml"), Home(tmp_path)).source
    found = {str(Path(file.path).relative_to(tmp_path / "mixed")) for file in list_raw_files(source, "here")}
    assert found == {name for name in files if name.startswith("access") or not name.endswith((".csv", ".log"))}


def hourly() -> dict[tuple[str, datetime], tuple[int, float]]:
    """Return the number of orders and the sum of their amounts by shop and hour."""
    result: dict[tuple[str, datetime], tuple[int, float]] = {}
    for order in orders():
        place = order.shop, to_milliseconds(order.at).replace(minute=0, second=0, microsecond=0)
        count, amount = result.get(place, (0, 0.0))
        result[place] = count + 1, amount + order.amount
    return result


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("name", ["parquet", "json", "kafka"])
def test_a_run_of_the_definition_publishes_what_plain_python_computes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ARCHIVES[name].write(tmp_path / "data/orders")
    assert init(tmp_path, "orders", "--from", "data/orders").exit_code == 0
    monkeypatch.chdir(tmp_path)

    backstream.run("orders.toml", "2026-01-01", "2026-01-03", home=tmp_path / "home")

    rows = backstream.read("orders", home=tmp_path / "home").to_pylist()
    assert {(row["shop"], row["window_start"]): (row["events"], row["sum_amount"]) for row in rows} == hourly()
