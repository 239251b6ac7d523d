"""`init --from-checkpoint` writes a definition that replays a job of Structured Streaming by its checkpoint."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.structured_streaming.recorded import JOBS
from typer.testing import CliRunner

from backstream.cli import app
from backstream.source.archive.evidence import examine_archive
from backstream.source.archive.job import JobEvidence, JobSource
from backstream.structured_streaming.batches import Batch, BatchLog
from backstream.structured_streaming.kept_batches import keep_batches
from backstream.variables import HOME_VARIABLE

pytestmark = pytest.mark.slow

FIRST_FILE = "file:///data/orders/input/orders/step000/0000.json"
NO_FROM = """\
a definition needs NAME and --from, got no --from

hint: backstream init orders --from data/orders
"""
NO_OFFSET = """\
the job has read the topic clicks (sessions/checkpoint), so the records need source.partition and source.sequence:\
 in orders/input/orders, no column is certainly Kafka's partition, such as `partition` or `kafka_partition`, and\
 no column is certainly Kafka's offset, such as `offset` or `kafka_offset`
"""
OTHER_FILES = """\
the job has read none of the 3 files of sessions/input: its checkpoint has other names (orders/checkpoint)
"""

Backstream = Callable[..., Any]


@pytest.fixture
def backstream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Backstream:
    """Run a command in a folder with the recorded jobs; its result has the output and the errors."""
    for job in JOBS.iterdir():
        shutil.copytree(job, tmp_path / job.name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "home"))
    runner = CliRunner(env={"COLUMNS": "250", "NO_COLOR": "1", "TERM": "dumb"})
    return lambda *arguments: runner.invoke(app, arguments)


def definition_at(path: Path) -> Any:
    return tomllib.loads(path.read_text())


def add_topic(checkpoint: Path, topic: str) -> None:
    """Add a topic to the only source of a query; it has the offsets of the other one."""
    for file in (checkpoint / "offsets").glob("[0-9]*"):
        *head, line = file.read_text().splitlines()
        ends = json.loads(line)
        file.write_text("\n".join([*head, json.dumps({**ends, topic: ends["clicks"]})]))


@pytest.mark.usefixtures("spark")
def test_a_job_of_files_is_replayed_by_its_checkpoint(tmp_path: Path, backstream: Backstream) -> None:
    ended = backstream("init", "orders", "--from", "orders/input/orders", "--from-checkpoint", "orders/checkpoint")

    assert ended.exit_code == 0, ended.output
    content = definition_at(tmp_path / "orders.toml")
    assert content["watermark"] == {
        "strategy": "structured_streaming",
        "checkpoint": "orders/checkpoint",
        "delay": "30m",  # that of the recorded job
    }
    assert content["backfill"] == {"mode": "replay", "publish": "first"}
    source = {key: value for key, value in content["source"].items() if not isinstance(value, dict)}
    assert source == {
        "format": "json",
        "path": "orders/input/orders",
        "event_time": "ts_us",
        "event_time_unit": "us",
    }
    found = [
        "known: 13 batches from 25 to 37",
        "lost: 25 batches from 0 to 24: Spark had removed what it wrote down",
        "records may be undecided in windows that end until 2026-01-05T12:47:39.988Z",
        "watermark: 2026-01-05T12:47:39.988Z to 2026-01-05T15:22:31.021Z",
        "policy of several watermarks: min",
        f"source 0, files: the job has read 24 of 24 files of the events, e.g., {FIRST_FILE}",
    ]
    text = (tmp_path / "orders.toml").read_text()
    assert "".join(f"# {line}\n" for line in found) in text
    assert '# undecided = "count" ' in text
    assert "".join(f"  {line}\n" for line in found) in ended.output

    checked = backstream("check", "orders.toml", "--sample", "1000")

    assert checked.exit_code == 0, checked.output
    assert "replay: 33 on time, 1 dropped" in checked.output
    assert not (tmp_path / "home/prepared").exists()


def test_a_job_of_a_topic_is_replayed_by_partitions_and_offsets(tmp_path: Path, backstream: Backstream) -> None:
    ended = backstream("init", "clicks", "--from", "sessions/input", "--from-checkpoint", "sessions/checkpoint")

    assert ended.exit_code == 0, ended.output
    content = definition_at(tmp_path / "clicks.toml")
    assert content["watermark"] == {
        "strategy": "structured_streaming",
        "checkpoint": "sessions/checkpoint",
        "delay": "1m",
    }
    source = content["source"]
    assert (source["partition"], source["sequence"]) == ("partition", "offset")
    assert source["deduplicate_on"] == ["partition", "offset"]
    read = "  source 0, topic clicks: known batches have read 116 of 116 records of the sample\n"
    assert "  known: 28 batches from 0 to 27\n  watermark: 1970-01-01T00:00Z to 2026-01-05T08:51:12.458Z\n" in (
        ended.output
    )
    assert read in ended.output
    assert "lost" not in ended.output
    assert "undecided" not in (tmp_path / "clicks.toml").read_text()

    for command in (["check"], ["plan", "--since", "2026-01-05", "--until", "2026-01-06"]):
        checked = backstream(command[0], "clicks.toml", *command[1:])
        assert checked.exit_code == 0, checked.output


@pytest.mark.parametrize(("folder", "source"), [("impressions", "0"), ("clicks", "1")])
def test_the_source_of_a_query_is_that_with_the_files(
    folder: str, source: str, tmp_path: Path, backstream: Backstream
) -> None:
    # Both sources have files of the same names, in folders of other names.
    ended = backstream("init", "one", "--from", f"join/input/{folder}", "--from-checkpoint", "join/checkpoint")

    assert ended.exit_code == 0, ended.output
    assert definition_at(tmp_path / "one.toml")["watermark"] == {
        "strategy": "structured_streaming",
        "checkpoint": "join/checkpoint",
        "source": source,
    }


def test_the_files_that_the_job_has_not_read_are_counted(backstream: Backstream) -> None:
    shutil.copy("orders/input/orders/step000/0000.json", "orders/input/orders/step000/later.json")

    ended = backstream("init", "orders", "--from", "orders/input/orders", "--from-checkpoint", "orders/checkpoint")

    assert "source 0, files: the job has read 24 of 25 files of the events" in ended.output


def test_events_of_another_time_fit_no_delay(tmp_path: Path, backstream: Backstream) -> None:
    for file in (tmp_path / "orders/input/orders").rglob("*.json"):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        file.write_text("".join(json.dumps(row | {"ts_us": row["ts_us"] // 7 * 6}) + "\n" for row in rows))

    ended = backstream("init", "orders", "--from", "orders/input/orders", "--from-checkpoint", "orders/checkpoint")

    assert ended.exit_code == 0, ended.output
    assert "delay" not in definition_at(tmp_path / "orders.toml")["watermark"]
    assert "which a plan checks; no delay fits the event times" in (tmp_path / "orders.toml").read_text()


def test_kept_batches_are_as_good_as_a_checkpoint(tmp_path: Path, backstream: Backstream) -> None:
    keep_batches("orders/checkpoint", "kept")

    ended = backstream("init", "orders", "--from", "orders/input/orders", "--from-checkpoint", "kept")

    assert ended.exit_code == 0, ended.output
    assert definition_at(tmp_path / "orders.toml")["watermark"]["checkpoint"] == "kept"
    assert "known: 13 batches from 25 to 37" in ended.output
    assert "policy" not in ended.output


def test_init_asks_for_the_topic_among_several(tmp_path: Path, backstream: Backstream) -> None:
    add_topic(tmp_path / "sessions/checkpoint", "views")
    arguments = ["init", "clicks", "--from", "sessions/input", "--from-checkpoint", "sessions/checkpoint"]

    refused = backstream(*arguments)
    controller, terminal = pty.openpty()
    child = subprocess.Popen(
        [str(Path(sys.executable).with_name("backstream")), *arguments],
        stdin=terminal,
        stdout=subprocess.PIPE,
        text=True,
    )
    os.write(controller, b"1\n2\n15m\n")  # the key, the topic, and the size of a window
    try:
        output, _ = child.communicate(timeout=60)
    finally:
        child.kill()
        os.close(controller)
        os.close(terminal)

    assert refused.exit_code == 1
    assert refused.output == (
        "error: several sources of the query may have read sessions/input (sessions/checkpoint)\n"
        "  source 0, topic clicks: known batches have read 116 of 116 records of the sample\n"
        "  source 0, topic views: known batches have read 116 of 116 records of the sample\n\n"
        "hint: without --yes, init asks for the source on a terminal\n"
    )
    assert child.returncode == 0, output
    assert "Which source of the query has read the events?\n  1  source 0, topic clicks:" in output
    watermark = definition_at(tmp_path / "clicks.toml")["watermark"]
    assert (watermark["topic"], "source" in watermark) == ("views", False)


def test_an_event_time_that_is_chosen_later_has_no_arrival_time(tmp_path: Path, backstream: Backstream) -> None:
    for file in (tmp_path / "orders/input/orders").rglob("*.json"):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        file.write_text("".join(json.dumps(row | {"received_us": row["ts_us"] + 1}) + "\n" for row in rows))
    named = ["--from", "orders/input/orders", "--event-time", "ts_us"]

    for extra in ([], ["--from-checkpoint", "orders/checkpoint"]):
        ended = backstream("init", "orders", *named, *extra, "--force")
        assert ended.exit_code == 0, ended.output
        assert ("arrival_time" in definition_at(tmp_path / "orders.toml")["source"]) == (not extra)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["orders", "--from", "orders/input/orders", "--from-checkpoint", "orders"],
            "no checkpoint of Structured Streaming: there is no folder `offsets` with batches (orders)\n",
        ),
        (
            ["orders", "--from", "orders/input/orders", "--from-checkpoint", "sessions/checkpoint"],
            NO_OFFSET,
        ),
        (
            ["clicks", "--from", "sessions/input", "--from-checkpoint", "orders/checkpoint"],
            OTHER_FILES,
        ),
        (
            ["orders", "--from-checkpoint", "orders/checkpoint"],
            NO_FROM,
        ),
        (
            ["airflow", "--from-checkpoint", "orders/checkpoint"],
            NO_FROM,
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_logs_that_do_not_fit_are_refused(
    arguments: list[str], message: str, tmp_path: Path, backstream: Backstream
) -> None:
    ended = backstream("init", *arguments)

    assert (ended.exit_code, ended.output) == (1, f"error: {message}")
    assert not list(tmp_path.glob("*.toml"))


def test_a_job_without_files_and_topics_is_refused(tmp_path: Path, backstream: Backstream) -> None:
    shutil.rmtree(tmp_path / "orders/checkpoint/sources")

    ended = backstream("init", "orders", "--from", "orders/input/orders", "--from-checkpoint", "orders/checkpoint")

    assert ended.output == (
        "error: the query reads neither files nor topics: its last batch ends at {'0': {'logOffset': 23}}"
        " (orders/checkpoint)\n"
    )


@pytest.mark.usefixtures("backstream")
def test_an_answer_about_a_role_leaves_the_job_in_its_place(tmp_path: Path) -> None:
    for file in (tmp_path / "sessions/input").rglob("*.json"):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        lines = [
            {"partition": row["partition"], "place": row["offset"], "created_us": row["ts_us"], "key": row["key"]}
            | {"updated_us": row["ts_us"] + 1, "received_us": row["ts_us"] + 2}
            for row in rows
        ]
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    evidence = examine_archive("sessions/input", None).with_job("sessions/checkpoint")

    other = next(name for name in ("created_us", "updated_us") if name != evidence.roles.event_time.value)
    answered = evidence.with_choice("event_time", other).with_choice("sequence", "place")

    assert evidence.job is not None
    assert answered.job is not None
    assert (answered.event_time.column.path, answered.arrival_time) == (other, None)
    assert answered.roles.deduplicate_on == ("partition", "place")
    assert (evidence.job.source.read, answered.job.source.read) == (0, 116)


@pytest.mark.parametrize(
    ("watermarks_ms", "events_ms", "delay_ms"),
    [
        ({0: 0, 1: 100, 2: 100, 3: 150}, {0: 110, 1: 105, 2: 160}, 10),  # batch 1 has late records only
        ({0: 0, 1: 100, 2: 150}, {0: 110, 1: 165}, None),
        ({0: 0, 1: 100, 4: 500}, {0: 110, 1: 120}, 10),  # the batches that raised it to 500 are lost
        ({0: 0, 1: 100}, {0: 90}, None),
        ({0: 0, 1: 0}, {0: 90}, None),
    ],
)
def test_the_delay_is_that_of_each_rise_of_the_watermark(
    watermarks_ms: dict[int, int], events_ms: dict[int, int], delay_ms: int | None
) -> None:
    batches = tuple(Batch(number, at_ms, {"0": {"clicks": {"0": 1}}}) for number, at_ms in watermarks_ms.items())
    source = JobSource("0", "clicks", [*events_ms, -1], len(events_ms), len(events_ms) + 1)
    job = JobEvidence("here", BatchLog(frozenset(), batches, {}, "here"), (source,))

    assert job.find_delay_ms([*events_ms.values(), 999]) == delay_ms
