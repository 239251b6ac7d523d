"""The batches of a job are read from its checkpoint, its progress reports, and event logs, and are checked."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from tests.structured_streaming.recorded import JOBS, checkpoint_of, progress_of

from backstream.errors import SpecError
from backstream.storage.stores import Stores
from backstream.structured_streaming.batch_lookup import BatchLookup
from backstream.structured_streaming.batches import Batch, BatchLog, Offset, merge_logs, require_sound
from backstream.structured_streaming.checkpoint import read_checkpoint
from backstream.structured_streaming.progress import read_progress


@pytest.mark.parametrize("job", ["orders", "sessions", "join"])
def test_the_checkpoint_and_the_reports_have_the_same_batches(job: str) -> None:
    checkpoint, progress = checkpoint_of(job), progress_of(job)
    by_number = {batch.number: batch for batch in progress.batches}

    for batch in checkpoint.batches:
        reported = by_number[batch.number]
        assert (batch.watermark_ms, batch.ends) == (reported.watermark_ms, reported.ends)
    assert checkpoint.query_ids == progress.query_ids
    assert require_sound(merge_logs([checkpoint, progress])).gaps == []


def test_a_checkpoint_that_spark_has_shortened_begins_later() -> None:
    log = checkpoint_of("orders")

    assert [batch.number for batch in log.batches] == [*range(25, 38)]
    assert log.gaps == [range(25)]
    assert len(log.files["0"]) == 24, "compacted lists have the files of all batches"


def test_an_event_log_has_the_reports_of_a_query(tmp_path: Path) -> None:
    reports = [json.loads(line) for line in (JOBS / "orders/progress.jsonl").read_text().splitlines()]
    for report in reports:
        del report["numInputRows"]  # in an event log, only the sources have it
    name = "org.apache.spark.sql.streaming.StreamingQueryListener$QueryProgressEvent"
    events = [{"Event": "SparkListenerApplicationStart", "App Name": "clicks"}]
    events += [{"Event": name, "progress": report} for report in reports]
    (tmp_path / "eventlog").write_text("".join(f"{json.dumps(event)}\n" for event in events))

    assert read_progress(str(tmp_path / "eventlog"), Stores()).batches == progress_of("orders").batches


@pytest.mark.parametrize(("suffix", "codec"), [("", None), (".zstd", "zstd"), (".gz", "gzip")])
def test_a_folder_of_reports_is_read_in_its_order(tmp_path: Path, suffix: str, codec: str | None) -> None:
    """As Spark writes an event log: `events_10` comes after `events_2`, and the last file is being written."""
    lines = (JOBS / "orders/progress.jsonl").read_text().splitlines()
    folder = tmp_path / "eventlog_v2_app-1"
    folder.mkdir()
    (folder / "appstatus_app-1.inprogress").write_text("")
    again = json.dumps(json.loads(lines[0]) | {"numInputRows": 0})
    parts = {2: [again, *lines[1:10]], 10: [lines[0], *lines[10:]]}
    for number, part in parts.items():
        content = "".join(f"{line}\n" for line in part).encode() + b'{"batchId": 99, "sour'
        with pa.OSFile(str(folder / f"events_{number}_app-1{suffix}"), "wb") as file:
            stream = pa.CompressedOutputStream(file, codec) if codec else file
            stream.write(content)
            stream.close()

    assert read_progress(str(folder), Stores()).batches == progress_of("orders").batches


def test_a_compressed_log_is_read_as_far_as_it_goes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lines = (JOBS / "orders/progress.jsonl").read_text().splitlines()
    parts = ["".join(f"{line}\n" for line in part).encode() for part in (lines[:20], lines[20:])]
    frames = [pa.compress(part, "zstd", asbytes=True) for part in parts]
    path = tmp_path / "eventlog.zstd"
    path.write_bytes(frames[0] + frames[1][: len(frames[1]) // 2])

    read = read_progress(str(path), Stores())

    assert read.batches == progress_of("orders").batches[: len(read.batches)]
    assert len(read.batches) >= 18
    assert f"the log is not complete, and read as far as it goes: {path}" in caplog.text


def test_a_log_of_a_codec_that_only_spark_reads_is_refused(tmp_path: Path) -> None:
    (tmp_path / "eventlog.lz4").write_bytes(b"LZ4Block")

    with pytest.raises(SpecError, match="cannot read the event log, which is compressed by lz4: "):
        read_progress(str(tmp_path / "eventlog.lz4"), Stores())


def test_reports_of_other_queries_of_the_application_are_left_out(tmp_path: Path) -> None:
    lines = (JOBS / "orders/progress.jsonl").read_text().splitlines()
    others = [json.dumps(json.loads(line) | {"id": "another", "batchId": 7}) for line in lines]
    (tmp_path / "progress.jsonl").write_text("\n".join([*lines, *others]))
    (own,) = progress_of("orders").query_ids

    assert read_progress(str(tmp_path / "progress.jsonl"), Stores(), own).batches == progress_of("orders").batches
    with pytest.raises(SpecError, match="no progress report of a streaming query third; those of another one are"):
        read_progress(str(tmp_path / "progress.jsonl"), Stores(), "third")


def test_a_report_of_an_idle_time_is_no_batch(tmp_path: Path) -> None:
    lines = (JOBS / "orders/progress.jsonl").read_text().splitlines()
    idle = json.loads(lines[-1]) | {"batchId": 99, "durationMs": {"latestOffset": 1}}
    (tmp_path / "progress.jsonl").write_text("\n".join([*lines, json.dumps(idle)]))

    assert read_progress(str(tmp_path / "progress.jsonl"), Stores()).batches == progress_of("orders").batches


def test_the_second_format_of_offsets_names_its_sources(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    header = '{"batchWatermarkMs":5,"batchTimestampMs":7,"conf":{}}'
    (tmp_path / "offsets/0").write_text(f'v2\n{header}\nclicks:{{"logOffset":1}}\nviews:{{"t":{{"0":3}}}}')

    (batch,) = read_checkpoint(str(tmp_path), Stores()).batches

    ends: dict[str, Offset] = {"clicks": {"logOffset": 1}, "views": {"t": {"0": 3}}}
    assert batch == Batch(0, 5, ends, None, is_finished=False, began_ms=7)


@pytest.mark.parametrize(
    ("file", "text", "sentence"),
    [
        ("offsets/37", "", "unknown version '' of the log of offsets; v1 and v2 are known"),
        ("offsets/37", "v3\n{}\n", "unknown version 'v3' of the log of offsets; v1 and v2 are known"),
        ("offsets/37", "v1\n{}\n", "no batchWatermarkMs in the log of offsets: {}"),
        ("offsets/37", "v1\nnothing\n", "not a JSON object: 'nothing'"),
        ("commits/37", "", "unknown version '' of the log of commits; v1 is known"),
        ("commits/37", "v2\n{}\n", "unknown version 'v2' of the log of commits; v1 is known"),
    ],
)
def test_an_unknown_file_of_a_checkpoint_is_refused(tmp_path: Path, file: str, text: str, sentence: str) -> None:
    folder = tmp_path / "checkpoint"
    shutil.copytree(JOBS / "orders/checkpoint", folder)
    (folder / file).write_text(text)

    with pytest.raises(SpecError, match=sentence.replace("{", r"\{").replace("}", r"\}")) as refused:
        read_checkpoint(str(folder), Stores())
    assert str(folder / "offsets/37") in str(refused.value)


def _change(log: BatchLog, number: int, **values: object) -> BatchLog:
    batches = [replace(batch, **values) if batch.number == number else batch for batch in log.batches]  # type: ignore[arg-type]
    return replace(log, batches=tuple(batches))


SENTENCES: list[tuple[Callable[[BatchLog], BatchLog], str]] = [
    (
        lambda log: _change(log, 30, watermark_ms=0),
        "the watermark falls from 2026-01-05T13:40:25.084Z in batch 29 to 1970-01-01T00:00Z in batch 30",
    ),
    (
        lambda log: _change(log, 30, next_watermark_ms=1),
        "batch 30 ended with the watermark 1970-01-01T00:00:00.001Z, batch 31 began with 2026-01-05T",
    ),
    (
        lambda log: _change(log, 30, ends={"0": {"logOffset": 3}}),
        "source 0 goes back from 18 in batch 29 to 3 in batch 30",
    ),
    (lambda log: _change(log, 30, ends={}), "source 0 goes back from 18 in batch 29 to nothing in batch 30"),
    (lambda log: _change(log, 30, is_finished=False), "batch 30 has no commit, and a later batch exists"),
    (lambda log: replace(log, query_ids=frozenset("ab")), "the logs are those of 2 queries: a, b"),
    (lambda log: replace(log, batches=()), "no batch of the query has ended"),
]


@pytest.mark.parametrize(("change", "sentence"), SENTENCES)
def test_batches_that_contradict_each_other_are_refused(
    change: Callable[[BatchLog], BatchLog], sentence: str
) -> None:
    log = checkpoint_of("orders")
    assert require_sound(log) == log

    with pytest.raises(SpecError) as refused:
        require_sound(change(log))

    assert sentence in str(refused.value)
    assert str(refused.value).endswith(f"({log.place})")


def test_a_partition_that_goes_back_is_named() -> None:
    log = checkpoint_of("sessions")
    end = {"0": {"clicks": {"0": 40, "1": 39, "2": 1}}}

    with pytest.raises(SpecError, match=r"partition 2 of clicks of source 0 goes back from .* to 1 in batch 27"):
        require_sound(_change(log, 27, ends=end))


def test_an_unfinished_last_batch_is_left_out() -> None:
    log = checkpoint_of("orders")

    assert require_sound(_change(log, 37, is_finished=False)).batches == log.batches[:-1]


def test_two_logs_of_other_values_are_refused() -> None:
    checkpoint, progress = checkpoint_of("orders"), progress_of("orders")

    with pytest.raises(SpecError) as refused:
        merge_logs([checkpoint, _change(progress, 30, watermark_ms=1)])

    assert str(refused.value) == (
        f"batch 30 has another watermark in two logs: 2026-01-05T13:40:25.084Z in {checkpoint.place},"
        f" 1970-01-01T00:00:00.001Z in {progress.place}\n\nhint: name the logs of one query only"
    )


def test_a_list_of_files_without_a_file_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    shutil.copytree(JOBS / "orders/checkpoint", folder)
    (folder / "sources/0/23").write_text('v1\n{"timestamp": 7}')

    with pytest.raises(SpecError, match=r"no file and batch: .*sources/0/23"):
        read_checkpoint(str(folder), Stores())


@pytest.mark.parametrize(
    "report",
    [
        {"batchId": 0, "sources": [{}]},
        {"batchId": 0, "sources": [{"endOffset": "seven"}]},
        {"batchId": 0, "sources": [], "eventTime": {"watermark": "now"}},
    ],
)
def test_a_report_of_another_form_is_refused(tmp_path: Path, report: dict[str, object]) -> None:
    (tmp_path / "progress.jsonl").write_text(f"[1]\n{json.dumps(report)}")

    with pytest.raises(SpecError, match="a progress report has another form than Spark's: "):
        read_progress(str(tmp_path / "progress.jsonl"), Stores())


def lookup_of(*files: str) -> BatchLookup:
    """Return the lookup of a job that read each file in a batch of its own."""
    batches = [Batch(number, 0, {"0": {"logOffset": number}}) for number in range(len(files))]
    listed = {file: number for number, file in enumerate(files)}
    return BatchLookup.from_log(BatchLog(frozenset(), tuple(batches), {"0": listed}, "checkpoint"), None)


def test_a_moved_file_is_the_one_with_the_longest_equal_end() -> None:
    lookup = lookup_of("s3://old/in/01/a.json", "s3://old/in/02/a.json", "s3://old/in/02/b%20c.json")

    found = lookup.find_rows_of_files(
        ["/new/in/02/a.json", "/new/in/01/a.json", "/new/in/02/b c.json", "/x/d.json"]
    )

    assert found == {"/new/in/02/a.json": 1, "/new/in/01/a.json": 0, "/new/in/02/b c.json": 2}


def test_a_new_file_is_no_file_that_was_removed() -> None:
    lookup = lookup_of("/old/00/a.json", "/old/01/a.json", "/old/02/a.json")

    found = lookup.find_rows_of_files(["/new/01/a.json", "/new/02/a.json", "/new/03/a.json"])

    assert found == {"/new/01/a.json": 1, "/new/02/a.json": 2}


@pytest.mark.parametrize(
    ("paths", "files", "sentence"),
    [
        (
            ["/x/1/a.json", "/x/2/a.json"],
            ["/y/3/a.json"],
            "/x/1/a.json and /x/2/a.json of the source may be /y/3/a",
        ),
        (
            ["/x/1/a.json"],
            ["/y/3/a.json", "/y/4/a.json"],
            "/x/1/a.json of the source may be /y/3/a.json and /y/4/a",
        ),
    ],
)
def test_files_whose_paths_end_alike_are_refused(paths: list[str], files: list[str], sentence: str) -> None:
    with pytest.raises(SpecError, match=re.escape(sentence)):
        lookup_of(*files).find_rows_of_files(paths)
