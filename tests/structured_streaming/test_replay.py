"""A run takes the watermarks of a job from its logs, and publishes the rows that the job emitted."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.lake.store import BUCKET, Store
from tests.structured_streaming.recorded import JOBS, log_of, records_of, rows_of
from typer.testing import CliRunner

import backstream
from backstream.chunks.threads import Threads
from backstream.cli import app
from backstream.errors import PlanError, SpecError
from backstream.eventtime.instants import epoch_us, instant_text
from backstream.lake.reader import load_published_rows, load_rows
from backstream.native.preparation.parquet_files import ParquetCopies, run_copy_task
from backstream.runs.home import Home
from backstream.runs.manifest import load_manifests, sum_fates
from backstream.runs.plan import Plan
from backstream.runs.table_schemas import DROPPED
from backstream.storage.stores import Stores
from backstream.structured_streaming.rules import (
    BatchRecord,
    BatchWatermarks,
    EmittedWindow,
    JobWindows,
    emit_windows,
    update_windows,
)
from backstream.variables import CACHE_VARIABLE, CATALOG_VARIABLE, WAREHOUSE_VARIABLE
from backstream.workflow.inputs.prepare import prepare_source
from backstream.workflow.late_data.stale import find_stale_days
from backstream.workflow.runners import LocalRunner

HOUR_US = 3_600_000_000
RANGE = ("2026-01-05", "2026-01-06")
DEFINITION = """\
name = "clicks"

[source]
path = "{input}"
format = "json"
columns = {{ id = "bigint", key = "string", ts_us = "bigint", value = "bigint"{columns} }}
event_time = "ts_us"
event_time_unit = "us"
key = ["key"]
{source}

[window]
{window}

[watermark]
strategy = "structured_streaming"
{watermark}

[aggregates]
n = "count(*)"
ids = "sum(id)"

[backfill]
mode = "replay"
publish = "{publish}"
engine = "{engine}"

[quality]
late_ratio = {{ warn = 1.0, fail = 1.0 }}
dropped_ratio = {{ warn = 1.0, fail = 1.0 }}
missing_ratio = {{ warn = 1.0, fail = 1.0 }}
undecided_ratio = {{ warn = 1.0, fail = 1.0 }}
"""
CHECKPOINT = 'checkpoint = "{folder}/checkpoint"'
PROGRESS = 'progress = "{folder}/progress.jsonl"'
BOTH = f"{CHECKPOINT}\n{PROGRESS}"
TUMBLING = 'kind = "tumbling"\nsize = "1h"'
SLIDING = 'kind = "sliding"\nsize = "1h"\nslide = "20m"'
TOPIC = {
    "columns": ', "partition" = "int", "offset" = "bigint"',
    "source": 'partition = "partition"\nsequence = "offset"',
}


def write_definition(folder: Path, job: str, **parts: str) -> Path:
    """Write the definition of a recorded job; the job is copied, so that a test can change its files."""
    if not (folder / job).exists():
        shutil.copytree(JOBS / job, folder / job)
    values = {
        "input": str(folder / job / "input"),
        "columns": "",
        "source": "",
        "window": TUMBLING,
        "watermark": BOTH,
        "publish": "first",
        "engine": "native",
    } | parts
    values["watermark"] = values["watermark"].replace("{folder}", str(folder / job))
    path = folder / "clicks.toml"
    path.write_text(DEFINITION.format(**values))
    return path


def run(definition: Path, since: str = RANGE[0], until: str = RANGE[1]) -> None:
    """Run a range without a day's seal."""
    backstream.run(definition, since, until, home=definition.parent / "home", runner="local", allow_unsealed=True)


def published(definition: Path, home: Home | None = None) -> set[tuple[str, int, int, int, int]]:
    """Return key, start, and end in microseconds, the number of records, and the sum of their ids of each row."""
    rows = load_rows(home or Home(definition.parent / "home"), "clicks").to_pylist()
    ends = ("window_start", "window_end")
    return {(row["key"], *(epoch_us(row[end]) for end in ends), row["n"], row["ids"]) for row in rows}


def summary(windows: set[EmittedWindow] | list[EmittedWindow]) -> set[tuple[str, int, int, int, int]]:
    """Return the same of the rows of a job, of which the last one of a window counts."""
    last = {(str(each.key), each.start_us, each.end_us): each.records for each in sorted(windows)}
    return {(*window, len(records), sum(records)) for window, records in last.items()}


def test_a_run_publishes_what_the_job_emitted(tmp_path: Path) -> None:
    definition = write_definition(tmp_path, "orders", watermark=f'{BOTH}\ndelay = "30m"')

    run(definition)

    assert published(definition) == summary(rows_of("orders"))


def test_parquet_files_are_prepared_without_spark(tmp_path: Path) -> None:
    definition = write_definition(tmp_path, "orders", watermark=f'{BOTH}\ndelay = "30m"')
    for file in (tmp_path / "orders/input").rglob("*.json"):
        rows = pa.Table.from_pylist([json.loads(line) for line in file.read_text().splitlines()])
        instants = rows["ts_us"].cast(pa.timestamp("us", "UTC"))
        pq.write_table(rows.append_column("at", instants), file.with_name(f"{file.name}.parquet"))
        file.unlink()
    text = definition.read_text()
    for old in ('format = "json"\n', *re.findall(r"columns = .*\n", text), 'event_time_unit = "us"\n'):
        text = text.replace(old, "")
    text = text.replace('event_time = "ts_us"', 'event_time = "at"')
    definition.write_text(text.replace("[aggregates]\n", '[aggregates]\nlast = "max(at)"\n'))
    logs = tmp_path / "orders/checkpoint/sources/0"
    for file in logs.iterdir():
        file.write_text(file.read_text().replace('.json"', '.json.parquet"'))

    run(definition)

    assert published(definition) == summary(rows_of("orders"))


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ({"at": [None], "key": ["a"]}, "a record has no at"),
        ({"at": [0], "offset": [1]}, "it has no column key"),
        ({"at": [0], "key": [b"\xff"]}, "a text is not UTF-8"),
    ],
)
def test_spark_prepares_parquet_files_that_are_not_plain(
    tmp_path: Path, rows: dict[str, list[Any]], reason: str
) -> None:
    path = str(tmp_path / "a.parquet")
    table = pa.table({"at": pa.array(rows["at"], pa.timestamp("us", "UTC"))})
    for name in rows.keys() - {"at"}:
        values = pa.array(rows[name])
        table = table.append_column(name, values.view(pa.string()) if values.type == pa.binary() else values)
    pq.write_table(table, path)
    task = ParquetCopies({path: f"file:{path}"}, "at", ["key"], [], str(tmp_path / "copy.parquet"))

    result = run_copy_task(task, Stores())

    assert (result.outputs, result.rows, result.reasons) == ([], 0, {path: reason})


@pytest.mark.slow
@pytest.mark.parametrize("is_home_in_store", [False, True])
def test_input_and_logs_can_be_in_a_store(
    s3: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_home_in_store: bool
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    place = f"s3://{BUCKET}/{tmp_path.name}"
    for file in (each for each in (JOBS / "orders").rglob("*") if each.is_file()):
        Stores.from_environment().upload(file, f"{place}/orders/{file.relative_to(JOBS / 'orders')}")
    logs = f'checkpoint = "{place}/orders/checkpoint"\nprogress = "{place}/orders/progress.jsonl"\ndelay = "30m"'
    definition = write_definition(tmp_path, "orders", watermark=logs, input=f"{place}/orders/input")
    shutil.rmtree(tmp_path / "orders")
    home = Home(tmp_path / "home")
    if is_home_in_store:
        monkeypatch.setenv(WAREHOUSE_VARIABLE, s3.new_warehouse())
        monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
        monkeypatch.setenv(CATALOG_VARIABLE, f"sqlite:///{tmp_path}/catalog.db")
        home = Home.from_location(f"{place}/home")

    backstream.run(definition, *RANGE, home=home.location, runner="local", allow_unsealed=True)
    backstream.run(definition, *RANGE, home=home.location, runner="local", allow_unsealed=True)

    assert published(definition, home) == summary(rows_of("orders"))


def test_an_open_window_is_explained(tmp_path: Path) -> None:
    definition = write_definition(tmp_path, "orders")
    run(definition)
    asked = ["explain", str(definition), "--window", "2026-01-05T15:00Z", "--key", "key=porto"]

    printed = CliRunner().invoke(app, asked, env={"BACKSTREAM_HOME": str(tmp_path / "home")})

    assert printed.exit_code == 0, printed.output
    assert "has no row either from 6 records" in printed.output
    assert "not yet: the window is open at the end of the job's logs" in printed.output


@pytest.mark.parametrize("assumed", [[], ["--outage", "all:2026-01-05/2026-01-06"]])
def test_no_other_delay_or_outage_is_weighed(tmp_path: Path, assumed: list[str]) -> None:
    definition = write_definition(tmp_path, "orders")
    asked = ["advise", str(definition), "--since", RANGE[0], "--until", RANGE[1], *assumed]

    printed = CliRunner().invoke(app, asked, env={"BACKSTREAM_HOME": str(tmp_path / "home")})

    assert printed.exit_code == 1
    reason = "with another delay or an outage, the job would have had other batches, and no log shows which"
    assert reason in str(printed.exception) + printed.output


def test_a_preview_finds_no_change_after_the_run(tmp_path: Path) -> None:
    definition = write_definition(tmp_path, "orders")
    asked = ["preview", str(definition), "--since", RANGE[0], "--until", RANGE[1], "--format", "json"]
    asked += ["--keys", "100%"]
    run(definition)
    before = CliRunner().invoke(app, asked, env={"BACKSTREAM_HOME": str(tmp_path / "home")})
    definition.write_text(definition.read_text().replace('"sum(id)"', '"max(id)"'))

    after = CliRunner().invoke(app, asked, env={"BACKSTREAM_HOME": str(tmp_path / "home")})

    assert (before.exit_code, after.exit_code) == (0, 0), before.output + after.output
    kinds = [json.loads(each.output)["kinds"] for each in (before, after)]
    assert kinds == [{"added": 0, "removed": 0, "changed": count} for count in (0, 24)]


def test_the_reference_verifies_the_run(tmp_path: Path) -> None:
    definition = write_definition(tmp_path, "orders")
    run(definition)
    (run_folder,) = (tmp_path / "home/runs/clicks").iterdir()

    printed = CliRunner().invoke(app, ["verify", run_folder.name], env={"BACKSTREAM_HOME": str(tmp_path / "home")})

    assert printed.exit_code == 0, printed.output
    assert "the reference engine agrees with the table" in printed.output


@pytest.mark.slow
def test_spark_publishes_the_same(tmp_path: Path) -> None:
    definition = write_definition(tmp_path, "orders", engine="spark")

    backstream.run(definition, *RANGE, home=tmp_path / "home", allow_unsealed=True)

    assert published(definition) == summary(rows_of("orders"))


SESSIONS = {"window": 'kind = "session"\ngap = "5m"', **TOPIC}


@pytest.mark.parametrize("engine", ["native", pytest.param("spark", marks=pytest.mark.slow)])
def test_sessions_are_those_that_the_job_emitted(tmp_path: Path, engine: str) -> None:
    definition = write_definition(tmp_path, "sessions", engine=engine, **SESSIONS)

    backstream.run(definition, *RANGE, home=tmp_path / "home", allow_unsealed=True)

    assert published(definition) == summary(rows_of("sessions"))
    assert any(start_us % 1_000 for _, start_us, *_ in published(definition))


def test_the_reference_verifies_sessions(tmp_path: Path) -> None:
    definition = write_definition(tmp_path, "sessions", **SESSIONS)
    run(definition)
    (run_folder,) = (tmp_path / "home/runs/clicks").iterdir()
    env = {"BACKSTREAM_HOME": str(tmp_path / "home")}

    printed = CliRunner().invoke(app, ["verify", run_folder.name, "--sample", "1000"], env=env)
    asked = ["explain", str(definition), "--window", "2026-01-05T07:48:37.514Z", "--key", "key=berlin"]
    explained = CliRunner().invoke(app, asked, env=env)

    assert printed.exit_code == 0, printed.output
    assert "the reference engine agrees with the table" in printed.output
    assert explained.exit_code == 0, explained.output
    assert "2026-01-05T07:53:37.514Z" in explained.output


def test_open_sessions_are_stale_when_the_job_has_emitted_them(tmp_path: Path) -> None:
    definition, folder = write_definition(tmp_path, "sessions", **SESSIONS), tmp_path / "sessions"
    home, runner = Home(tmp_path / "home"), LocalRunner(Threads(2))
    forget_batches_after(folder, 12)
    run(definition)
    assert published(definition) < summary(rows_of("sessions"))
    assert find_stale_days(definition, home).days == ()

    shutil.copytree(JOBS / "sessions", folder, dirs_exist_ok=True)
    prepare_source(definition, home, runner)
    (day,) = find_stale_days(definition, home).days

    assert "the job has emitted windows since" in day.reasons[0]
    run(definition)
    assert published(definition) == summary(rows_of("sessions"))


@pytest.mark.parametrize("publish", ["first", "live"])
@pytest.mark.parametrize(("window", "slide_us"), [(TUMBLING, HOUR_US), (SLIDING, HOUR_US // 3)])
def test_offsets_of_a_topic_name_the_batch(tmp_path: Path, publish: str, window: str, slide_us: int) -> None:
    """The job had sessions; the same records and batches in other windows follow the rules of Spark."""
    definition = write_definition(tmp_path, "sessions", window=window, publish=publish, **TOPIC)
    log = log_of("sessions")
    watermarks = BatchWatermarks([batch.watermark_ms for batch in log.batches])
    records, windows = list(records_of("sessions", log)), JobWindows(HOUR_US, slide_us)
    emitted, updated = (summary(emit(records, watermarks, windows)) for emit in (emit_windows, update_windows))
    assert emitted < updated, "some windows are open"

    run(definition)

    assert published(definition) == (emitted if publish == "first" else updated)


def test_spark_3_3_judges_a_record_by_its_own_batch(tmp_path: Path) -> None:
    definition = write_definition(tmp_path, "sessions", watermark=f'{BOTH}\nlate_by = "own_batch"', **TOPIC)
    log = log_of("sessions")
    values_ms = [batch.watermark_ms for batch in log.batches]
    records, windows = list(records_of("sessions", log)), JobWindows(HOUR_US, HOUR_US)
    own = emit_windows(records, BatchWatermarks(values_ms, is_late_by_own=True), windows)
    assert summary(own) != summary(emit_windows(records, BatchWatermarks(values_ms), windows))

    run(definition)

    assert published(definition) == summary(own)


def test_lost_logs_refuse_the_windows_that_they_leave_undecided(tmp_path: Path) -> None:
    definition = write_definition(tmp_path, "orders", watermark=CHECKPOINT)

    with pytest.raises(PlanError) as refused:
        run(definition)

    text = str(refused.value)
    assert "are lost, and with them which records were late, up to 149 records of the source" in text
    assert "windows that end until 2026-01-05T12:47:39.988Z" in text
    assert "hint: begin on 2026-01-06T00:00Z" in text


def test_undecided_records_count_or_are_dropped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sums = {}
    for undecided in ("count", "drop"):
        watermark = f'{CHECKPOINT}\nundecided = "{undecided}"'
        definition = write_definition(tmp_path / undecided, "orders", watermark=watermark)
        run(definition)
        assert "up to 149 records of the source may have been late, and they" in caplog.text
        sums[undecided] = {row[:2]: row[3] for row in published(definition)}
    exact = {row[:2]: row[3] for row in summary(rows_of("orders"))}
    known_from_us = max(batch.watermark_ms for batch in log_of("orders").batches[:26]) * 1_000

    assert sum(sums["drop"].values()) < sum(exact.values()) < sum(sums["count"].values())
    for window, count in exact.items():
        assert sums["drop"].get(window, 0) <= count <= sums["count"][window]
        if window[1] + HOUR_US > known_from_us:
            assert sums["drop"][window] == count == sums["count"][window]


def fates_of(definition: Path) -> Counter[str]:
    """Return the number of records by fate of the only run."""
    (folder,) = (definition.parent / "home/runs/clicks").iterdir()
    fates = Counter[str]()
    for counts in sum_fates(load_manifests(Plan.read(folder / "plan.json"))).values():
        fates.update(counts)
    return fates


def forget_other_batches(folder: Path, known: Sequence[int]) -> None:
    """Leave only some batches in the checkpoint of a job."""
    for name in ("offsets", "commits"):
        for file in (folder / "checkpoint" / name).iterdir():
            if file.name.isdecimal() and int(file.name) not in known:
                file.unlink()


def fate_of_each(
    records: list[BatchRecord], known: Sequence[int], windows: JobWindows, undecided: str
) -> list[str]:
    """Return the fates of records by what the known batches decide about each of their windows."""
    watermarks_ms = [batch.watermark_ms for batch in log_of("sessions").batches]
    fates = []
    for record in records:
        batch = min(number for number in known if number >= record.batch)
        before = max((number for number in known if number < batch), default=-1)
        low_us, high_us = (watermarks_ms[number] * 1_000 if number >= 0 else 0 for number in (before, batch))
        high_us = low_us if before == batch - 1 else high_us
        ends_us = [end_us for _, end_us in windows.assign(record.time_us or 0)]
        is_counted = max(ends_us) > (low_us if undecided == "count" else high_us)
        if any(low_us < end_us <= high_us for end_us in ends_us):
            fates.append("undecided_counted" if is_counted else "undecided_dropped")
        else:
            fates.append("on_time" if is_counted else "dropped")
    return fates


BY_10_MINUTES, BY_2_MINUTES = (
    JobWindows(size * 60_000_000, slide * 60_000_000) for size, slide in ((10, 10), (6, 2))
)


@pytest.mark.parametrize(
    ("window", "undecided", "engine"),
    [
        (BY_10_MINUTES, "count", "native"),
        (BY_2_MINUTES, "drop", "native"),
        pytest.param(BY_2_MINUTES, "drop", "spark", marks=pytest.mark.slow),
    ],
)
def test_an_undecided_record_has_a_fate_of_its_own(
    tmp_path: Path, window: JobWindows, undecided: str, engine: str
) -> None:
    size, slide = (f"{size_us // 60_000_000}m" for size_us in (window.size_us, window.slide_us))
    kind = "tumbling" if size == slide else "sliding"
    slide_line = "" if size == slide else f'\nslide = "{slide}"'
    definition = write_definition(
        tmp_path,
        "sessions",
        watermark=f'{CHECKPOINT}\nundecided = "{undecided}"',
        window=f'kind = "{kind}"\nsize = "{size}"{slide_line}',
        engine=engine,
        publish="live",
        **TOPIC,
    )
    log = log_of("sessions")
    known = [batch.number for batch in log.batches if batch.number % 4 in {1, 2}]
    records = [record for record in records_of("sessions", log) if record.batch <= known[-1]]
    forget_other_batches(tmp_path / "sessions", known)
    expected = Counter(fate_of_each(records, known, window, undecided))
    assert {"dropped", "undecided_counted" if undecided == "count" else "undecided_dropped"} <= {*expected}

    backstream.run(
        definition,
        *RANGE,
        home=tmp_path / "home",
        runner="local" if engine == "native" else None,
        allow_unsealed=True,
    )

    found = fates_of(definition)
    found["on_time"] -= found.total() - len(records)  # no known batch has read the others
    assert found == expected
    side_output = load_published_rows(Home(tmp_path / "home"), "clicks", DROPPED)
    assert side_output.num_rows == expected["dropped"] + expected["undecided_dropped"]


def delay_by(folder: Path, shift_ms: int) -> None:
    """Change the times of a job's records and watermarks, so that they are around midnight."""
    for file in (folder / "input").rglob("*.json"):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        file.write_text(
            "".join(json.dumps({**row, "ts_us": row["ts_us"] + shift_ms * 1_000}) + "\n" for row in rows)
        )
    for file in (each for name in ("offsets", "commits") for each in (folder / "checkpoint" / name).iterdir()):
        if file.name.isdecimal():
            text = re.sub(
                r'(?<=WatermarkMs":)[1-9]\d*', lambda found: str(int(found[0]) + shift_ms), file.read_text()
            )
            file.write_text(text)


def test_chunks_and_explanations_know_undecided_records(tmp_path: Path) -> None:
    found = []
    for name, chunk in (("together", "2d"), ("apart", "1d")):
        definition = write_definition(
            tmp_path / name,
            "sessions",
            watermark=f'{CHECKPOINT}\nundecided = "count"',
            window='kind = "sliding"\nsize = "6m"\nslide = "2m"',
            **TOPIC,
        )
        chunks = f'[backfill]\nchunk = "{chunk}"\nmax_events_per_job = 0\n'
        definition.write_text(definition.read_text().replace("[backfill]\n", chunks))
        delay_by(tmp_path / name / "sessions", 940 * 60_000)
        forget_other_batches(tmp_path / name / "sessions", [1, 2, 5, 6, 9, 10, 13, 14, 17, 18, 21, 22, 25, 26])
        run(definition, until="2026-01-07")
        found.append((published(definition), fates_of(definition)))
    assert found[0] == found[1]
    rows, fates = found[1]
    assert fates["undecided_counted"] > 0
    assert len({start_us // (24 * HOUR_US) for _, start_us, *_ in rows}) == 2
    key, start_us, *_ = min(rows)
    asked = ["explain", str(definition), "--window", instant_text(start_us // 1_000), "--key", f"key={key}"]
    printed = CliRunner().invoke(app, asked, env={"BACKSTREAM_HOME": str(definition.parent / "home")})
    assert "fates             1 undecided counted\n" in printed.output
    assert "computes the same row" in printed.output


def forget_batches_after(folder: Path, last: int) -> None:
    """Change the logs of a job to those after a batch."""
    for name in ("offsets", "commits"):
        for file in (folder / "checkpoint" / name).iterdir():
            if file.name.isdecimal() and int(file.name) > last:
                file.unlink()
    lines = (folder / "progress.jsonl").read_text().splitlines()
    (folder / "progress.jsonl").write_text(
        "\n".join(line for line in lines if json.loads(line)["batchId"] <= last)
    )


def test_records_after_the_last_batch_get_theirs_later(tmp_path: Path) -> None:
    definition, folder = write_definition(tmp_path, "orders"), tmp_path / "orders"
    home, runner = Home(tmp_path / "home"), LocalRunner(Threads(2))
    forget_batches_after(folder, 26)
    run(definition)
    assert published(definition) < summary(rows_of("orders"))
    assert prepare_source(definition, home, runner) is None, "without new logs, nothing is prepared again"

    assert find_stale_days(definition, home).days == ()

    shutil.copytree(JOBS / "orders", folder, dirs_exist_ok=True)
    prepare_source(definition, home, runner)
    (stale,) = find_stale_days(definition, home).days
    assert stale.reasons == ("the job has emitted windows since, up to 2026-01-05T15:22:31.021Z",)
    run(definition)

    assert published(definition) == summary(rows_of("orders"))
    assert prepare_source(definition, home, runner) is None
    assert find_stale_days(definition, home).days == ()


def test_batches_are_known_after_the_job_has_forgotten_them(tmp_path: Path) -> None:
    definition = write_definition(tmp_path, "orders")
    run(definition)
    (tmp_path / "orders/progress.jsonl").write_text(
        (JOBS / "orders/progress.jsonl").read_text().splitlines()[-1] + "\n"
    )

    run(definition)

    assert published(definition) == summary(rows_of("orders"))


def test_a_checkpoint_that_is_gone_is_not_needed_any_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    definition = write_definition(tmp_path, "orders")
    run(definition)
    shutil.rmtree(tmp_path / "orders/checkpoint")

    run(definition)

    assert published(definition) == summary(rows_of("orders"))
    assert f"the checkpoint is gone: {tmp_path}/orders/checkpoint" in caplog.text
    definition.write_text(definition.read_text().replace("/checkpoint", "/other"))
    with pytest.raises(SpecError, match="no checkpoint of Structured Streaming"):
        run(definition)


def remove_file(folder: Path) -> None:
    next(iter(sorted((folder / "input").rglob("*.json")))).unlink()


def change_times(folder: Path) -> None:
    for file in (folder / "input").rglob("*.json"):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        file.write_text("".join(json.dumps({**row, "ts_us": row["ts_us"] + 1_000}) + "\n" for row in rows))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            remove_file,
            "batch 0 read 14 records, and the source has 0 of them: files are missing, or others were",
        ),
        (
            change_times,
            "after batch 0, the watermark is 2026-01-05T07:42:56.311Z, and 2026-01-05T07:42:56.312Z by the",
        ),
    ],
)
def test_records_that_contradict_the_logs_are_refused(tmp_path: Path, change: Any, sentence: str) -> None:
    definition = write_definition(tmp_path, "orders", watermark=f'{BOTH}\ndelay = "30m"')
    change(tmp_path / "orders")

    with pytest.raises(PlanError) as refused:
        run(definition)

    assert sentence in str(refused.value)


PROBLEMS: Mapping[str, tuple[dict[str, str], str]] = {
    "no logs": ({"watermark": ""}, "checkpoint is missing with strategy = 'structured_streaming'"),
    "arrival": (
        {"source": 'arrival_time = "ts_us"'},
        "source.arrival_time has no meaning with watermark.strategy = 'structured_streaming'",
    ),
    "half a position": ({"source": 'partition = "id"'}, "source.partition and source.sequence belong together"),
    "cumulate": (
        {"window": 'kind = "cumulate"\nsize = "1h"\nstep = "5m"'},
        "window.kind must be tumbling, sliding, or session",
    ),
    "sessions of Spark 3.3": (
        {"window": 'kind = "session"\ngap = "5m"', "watermark": f'{BOTH}\nlate_by = "own_batch"'},
        "watermark.late_by = 'own_batch' is not possible with window.kind = 'session'",
    ),
    "undecided sessions": (
        {"window": 'kind = "session"\ngap = "5m"', "watermark": f'{BOTH}\nundecided = "count"'},
        "watermark.undecided is not possible with window.kind = 'session'",
    ),
    "lateness": ({"watermark": f'{CHECKPOINT}\n\n[lateness]\nallowed = "1h"'}, "lateness.allowed has no meaning"),
    "ticks": ({"watermark": f'{CHECKPOINT}\nemit_interval = "1s"'}, "emit_interval has no meaning"),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_definition_that_no_job_can_have_is_refused(tmp_path: Path, name: str) -> None:
    parts, sentence = PROBLEMS[name]
    definition = write_definition(tmp_path, "orders", **parts)

    with pytest.raises(SpecError) as refused:
        run(definition)

    assert sentence in str(refused.value)


def test_a_topic_needs_the_columns_of_kafka(tmp_path: Path) -> None:
    definition = write_definition(tmp_path, "sessions")

    with pytest.raises(
        PlanError, match="the job read the topic clicks, so they are the columns of Kafka's partition"
    ):
        run(definition)


@pytest.mark.parametrize(("source", "folder"), [(0, "impressions"), (1, "clicks")])
def test_one_of_two_sources_is_replayed_alone(tmp_path: Path, source: int, folder: str) -> None:
    """The reports count the records of both sources, so they are not compared with those of one."""
    definition = write_definition(tmp_path, "join", watermark=f"{BOTH}\nsource = {source}")
    definition.write_text(definition.read_text().replace("/input", f"/input/{folder}"))
    log = log_of("join")
    paths = sorted((tmp_path / "join/input" / folder).rglob("*.json"))
    records = [
        BatchRecord(row["id"], row["key"], row["ts_us"], batch)
        for path in paths
        for row in map(json.loads, path.read_text().splitlines())
        if (batch := log.batch_of_file(str(source), str(path.relative_to(tmp_path)))) is not None
    ]
    watermarks = BatchWatermarks([batch.watermark_ms for batch in log.batches])
    expected = summary(emit_windows(records, watermarks, JobWindows(HOUR_US, HOUR_US)))
    assert expected

    run(definition)

    assert published(definition) == expected


def test_reports_do_not_name_files(tmp_path: Path) -> None:
    definition = write_definition(tmp_path, "orders", watermark=PROGRESS)

    with pytest.raises(SpecError, match="the logs do not have the files that source 0 read; only a checkpoint"):
        run(definition)


@pytest.mark.parametrize(
    ("offset", "sentence"),
    [
        (
            '{"sourceVersion":1,"reservoirId":"a","reservoirVersion":5,"index":-1}',
            "source 0 is a Delta table: its ",
        ),
        (
            '{"version":1,"snapshot_id":7,"position":2}',
            "source 0 is an Iceberg table, so the definition must read this table",
        ),
        (
            '{"shard":"a"}',
            'source 0 has an offset of another kind: {"shard": "a"}; known are those of files',
        ),
    ],
)
def test_an_offset_of_another_source_is_named(tmp_path: Path, offset: str, sentence: str) -> None:
    definition = write_definition(tmp_path, "orders", watermark=CHECKPOINT)
    for file in (each for each in (tmp_path / "orders/checkpoint/offsets").iterdir() if each.name.isdecimal()):
        file.write_text("\n".join([*file.read_text().splitlines()[:2], offset]))
    shutil.rmtree(tmp_path / "orders/checkpoint/sources")

    with pytest.raises(SpecError, match=re.escape(sentence)):
        run(definition)


def test_a_query_of_two_sources_names_one(tmp_path: Path) -> None:
    definition = write_definition(tmp_path, "join")

    with pytest.raises(SpecError, match=r"watermark.source is missing: the query reads 2 sources, 0, 1"):
        run(definition)
