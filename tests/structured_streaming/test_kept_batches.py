"""Batches are copied out of a checkpoint: incrementally, while Spark writes it, and once each."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tests.lake.store import BUCKET, Store
from tests.structured_streaming.recorded import JOBS, checkpoint_of, log_of
from typer.testing import CliRunner

from backstream.cli import app
from backstream.errors import SpecError
from backstream.storage.stores import Stores
from backstream.structured_streaming.batches import Batch, BatchLog
from backstream.structured_streaming.kept_batches import keep_batches, read_kept


def part_of(job: str, first: int, last: int, target: Path) -> str:
    """Write the checkpoint of a job as it was after batch `last`, when Spark had removed those before `first`."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(JOBS / job / "checkpoint", target)
    for folder in ("offsets", "commits"):
        for file in (target / folder).iterdir():
            if not file.name.isdecimal() or not first <= int(file.name) <= last:
                file.unlink()
    return str(target)


def without_counts(log: BatchLog) -> list[Batch]:
    """Return batches without their numbers of records and starts, which only reports have."""
    return [replace(batch, records=None, start_id=None) for batch in log.batches]


def test_each_batch_is_kept_once(tmp_path: Path) -> None:
    folder = str(tmp_path / "kept")
    first = keep_batches(part_of("sessions", 0, 9, tmp_path / "checkpoint"), folder)
    second = keep_batches(part_of("sessions", 5, 20, tmp_path / "checkpoint"), folder)
    third = keep_batches(part_of("sessions", 5, 20, tmp_path / "checkpoint"), folder)
    last = keep_batches(part_of("sessions", 15, 99, tmp_path / "checkpoint"), folder)

    assert [len(each.new) for each in (first, second, third, last)] == [10, 11, 0, 7]
    assert last.lost == []
    kept = read_kept(folder, Stores())
    assert kept
    assert without_counts(kept) == without_counts(log_of("sessions"))
    assert len(list((tmp_path / "kept").iterdir())) == 3


def test_kept_batches_have_the_files_that_they_read(tmp_path: Path) -> None:
    keep_batches(part_of("join", 0, 9, tmp_path / "checkpoint"), str(tmp_path / "kept"))
    keep_batches(part_of("join", 5, 99, tmp_path / "checkpoint"), str(tmp_path / "kept"))

    kept = read_kept(str(tmp_path / "kept"), Stores())

    assert kept
    assert kept.files == checkpoint_of("join").files


def test_lost_batches_are_named_and_reports_fill_the_gap(tmp_path: Path) -> None:
    checkpoint, folder = part_of("orders", 25, 37, tmp_path / "checkpoint"), str(tmp_path / "kept")

    assert keep_batches(checkpoint, folder).lost == [range(25)]
    filled = keep_batches(checkpoint, folder, [str(JOBS / "orders/progress.jsonl")])

    assert (len(filled.new), filled.lost) == (25, [])
    kept = read_kept(folder, Stores())
    assert kept
    assert without_counts(kept) == without_counts(log_of("orders"))
    assert kept.batches[:25] == log_of("orders").batches[:25]
    assert kept.files == checkpoint_of("orders").files


def test_a_batch_without_a_commit_waits_for_it(tmp_path: Path) -> None:
    checkpoint, folder = part_of("sessions", 0, 9, tmp_path / "checkpoint"), str(tmp_path / "kept")
    commit = tmp_path / "checkpoint/commits/9"
    text = commit.read_text()
    commit.unlink()
    (tmp_path / "checkpoint/commits/.9.2f.tmp").write_text("v1")

    assert keep_batches(checkpoint, folder).new == [*range(9)]

    commit.write_text(text)
    assert keep_batches(checkpoint, folder).new == [9]


def test_batches_of_another_query_are_refused(tmp_path: Path) -> None:
    keep_batches(part_of("join", 0, 9, tmp_path / "checkpoint"), str(tmp_path / "kept"))
    before = sorted((tmp_path / "kept").iterdir())

    with pytest.raises(SpecError, match=r"the logs are those of 2 queries|has another"):
        keep_batches(part_of("sessions", 0, 9, tmp_path / "checkpoint"), str(tmp_path / "kept"))

    assert sorted((tmp_path / "kept").iterdir()) == before


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    keep_batches(part_of("join", 0, 9, tmp_path / "checkpoint"), str(tmp_path / "kept"))
    (file,) = (tmp_path / "kept").iterdir()
    file.write_text(file.read_text() + '{"batch": "ten"}\n')
    (tmp_path / "kept/batches-of-mine.jsonl").write_text("a file of somebody else")

    with pytest.raises(SpecError, match="line 11 is no kept batch: ") as refused:
        read_kept(str(tmp_path / "kept"), Stores())
    assert str(file) in str(refused.value)


def test_batches_are_kept_in_a_store(s3: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    checkpoint, folder = f"s3://{BUCKET}/jobs/join/checkpoint", f"s3://{BUCKET}/kept/join"
    local = Path(part_of("join", 0, 99, tmp_path / "checkpoint"))
    stores = Stores.from_environment()
    for file in local.rglob("*"):
        if file.is_file():
            stores.upload(file, f"{checkpoint}/{file.relative_to(local)}")

    assert len(keep_batches(checkpoint, folder).new) == 23
    assert keep_batches(checkpoint, folder).new == []
    kept = read_kept(folder, stores)
    assert kept
    assert kept.batches == checkpoint_of("join").batches
    assert {path.rpartition("/")[2] for path in kept.files["0"]} == {f"{number:04}.json" for number in range(14)}


def test_the_command_says_what_it_kept_and_what_was_lost(tmp_path: Path) -> None:
    checkpoint = part_of("orders", 25, 37, tmp_path / "checkpoint")

    done = CliRunner().invoke(app, ["keep-batches", checkpoint, "--to", str(tmp_path / "kept")])

    assert done.output.splitlines() == [
        "kept  13 batches from 25 to 37",
        "lost  25 batches from 0 to 24: Spark had removed what it wrote down",
    ]


def test_only_files_near_the_batches_of_the_job_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    for last in (4, 9, 14):
        keep_batches(part_of("sessions", last - 4, last, tmp_path / "checkpoint"), str(folder))
    (folder / "batches-000000000000-000000000004.jsonl").write_text("damaged")

    assert keep_batches(part_of("sessions", 12, 16, tmp_path / "checkpoint"), str(folder)).new == [15, 16]


def test_batches_that_were_lost_between_two_calls_are_named(tmp_path: Path) -> None:
    keep_batches(part_of("sessions", 0, 4, tmp_path / "checkpoint"), str(tmp_path / "kept"))

    kept = keep_batches(part_of("sessions", 9, 12, tmp_path / "checkpoint"), str(tmp_path / "kept"))

    assert (kept.new, kept.lost) == ([9, 10, 11, 12], [range(5, 9)])


def test_each_line_has_the_files_of_its_batch(tmp_path: Path) -> None:
    log = checkpoint_of("join")
    keep_batches(str(JOBS / "join/checkpoint"), str(tmp_path / "kept"))

    (file,) = (tmp_path / "kept").iterdir()
    lines = [json.loads(line) for line in file.read_text().splitlines()]

    listed = {(line["batch"], path) for line in lines for path in line["files"]["1"]}
    assert listed == {(log.batch_of_file("1", path), path) for path in log.files["1"]}
