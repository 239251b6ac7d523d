"""Tasks of the native engine run in this process without Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.lake.store import Store

from backstream.eventtime.duplicates import Identity
from backstream.eventtime.instants import DAY_MS, HOUR_MS
from backstream.eventtime.intervals import Interval
from backstream.eventtime.windows import Tumbling
from backstream.native.footers import list_files_with_rest
from backstream.native.task import (
    Aggregate,
    ChunkGrid,
    ReadSpec,
    RestTask,
    TaskOutput,
    TaskResult,
    WindowTask,
)
from backstream.native.task_runner import run_native_task
from backstream.storage.columns import load_columns
from backstream.storage.stores import Stores
from backstream.variables import WAREHOUSE_VARIABLE
from backstream.watermarks.firing_times import WindowGrid

START_MS = 19_783 * DAY_MS
DAY = Interval(START_MS, START_MS + DAY_MS)
TYPES = {"at": "timestamp", "key": "bigint", "value": "bigint"}
READING = ReadSpec("at", "at", None, None, TYPES, Interval(0, 2 * START_MS))
COLUMNS = [
    ("window_start", "timestamptz", 1),
    ("window_end", "timestamptz", 2),
    ("key", "long", 3),
    ("total", "long", 4),
    ("record_count", "long", 5),
    ("run_id", "string", 6),
]


def task_of(folder: Path, files: list[Path], memory_mb: int = 256) -> WindowTask:
    (folder / "out").mkdir(exist_ok=True)  # in a run, the driver creates the folder of counts
    return WindowTask(
        number=3,
        reading=READING,
        grid=WindowGrid(Tumbling(HOUR_MS), START_MS + HOUR_MS, 24),
        keys=["key"],
        aggregates=[Aggregate("total", "sum", "value")],
        firing_times=None,
        chunks=ChunkGrid(START_MS, DAY_MS, 1),
        numbers=range(24),
        stretch=DAY,
        files=[str(file) for file in files],
        windows=TaskOutput(str(folder / "out/windows.parquet"), COLUMNS, "run"),
        panes=None,
        dropped=None,
        owned=DAY,
        published="final",
        identity=Identity(),
        counts_path=str(folder / "out/counts.parquet"),
        memory_mb=memory_mb,
    )


def write_events(file: Path, rows: int, keys: int) -> pa.Table:
    numbers = np.arange(rows, dtype=np.int64)
    times_us = (START_MS + numbers * 7_919 % DAY_MS) * 1_000
    table = pa.table(
        {
            "at": pa.array(times_us, pa.timestamp("us", "UTC")),
            "key": numbers * 2_654_435_761 % keys,
            "value": numbers,
        }
    )
    pq.write_table(table, file)
    return table


def written(done: TaskResult) -> str:
    (path,) = done.written[""].paths
    return path


def test_two_tries_of_a_task_do_not_write_into_one_file(tmp_path: Path) -> None:
    write_events(tmp_path / "events.parquet", rows=100, keys=5)
    task = task_of(tmp_path, [tmp_path / "events.parquet"])

    one, other = run_native_task(task), run_native_task(task)

    assert pq.read_table(written(one)).num_rows == pq.read_table(written(other)).num_rows == one.written[""].rows
    assert {written(one), written(other), one.counts, other.counts} == {
        str(path) for path in (tmp_path / "out").iterdir()
    }


def test_a_task_reads_objects_and_writes_objects(
    tmp_path: Path, s3: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(WAREHOUSE_VARIABLE, s3.new_warehouse())
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    events = write_events(tmp_path / "events.parquet", rows=100, keys=5)
    stores = Stores.from_environment()
    place = f"{stores.warehouse}/a=b/x y"  # no partition value, and a name that addresses quote
    task = task_of(tmp_path, [tmp_path / "events.parquet"])
    here = run_native_task(task)
    stores.upload(tmp_path / "events.parquet", f"{place}/events.parquet")
    there = replace(
        task,
        files=[f"{place}/events.parquet"],
        windows=replace(task.windows, path=f"{place}/windows.parquet"),
        counts_path=f"{place}/counts.parquet",
    )

    done = run_native_task(there, stores)

    (file,) = done.written[""].stored
    assert done.counts is not None
    assert {key for key in s3.keys(place.removeprefix("s3://")) if "/events." not in key} == {
        path.removeprefix("s3://") for path in (file.path, done.counts)
    }
    assert (done.scanned, file.rows, file.records) == (here.scanned, here.written[""].rows, events.num_rows)
    assert load_columns(file.path, ["total"], stores) == load_columns(written(here), ["total"])
    assert stores.read_footer(file.path).digest == file.digest
    assert list((tmp_path / "scratch").iterdir()) == []

    s3.delete(f"{place}/events.parquet".removeprefix("s3://"))
    with pytest.raises(
        RuntimeError, match=rf"could not compute .* \({place}/events.parquet .*Path does not exist"
    ):
        run_native_task(there, stores)


def test_a_task_spills_to_disk_and_removes_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(scratch))
    events = write_events(tmp_path / "events.parquet", rows=3_000_000, keys=2_000_003)

    done = run_native_task(task_of(tmp_path, [tmp_path / "events.parquet"], memory_mb=64))

    found = pq.read_table(written(done))
    assert done.scanned == pc.sum(found["record_count"]).as_py() == events.num_rows
    assert done.written[""].rows == found.num_rows > 2_000_000
    assert pc.sum(found["total"]).as_py() == pc.sum(events["value"]).as_py()
    assert list(scratch.iterdir()) == []


def test_columns_have_the_types_and_ids_of_the_table(tmp_path: Path) -> None:
    write_events(tmp_path / "events.parquet", rows=100, keys=5)

    done = run_native_task(task_of(tmp_path, [tmp_path / "events.parquet"]))

    schema = pq.read_schema(written(done))
    ids = [int(schema.field(name).metadata[b"PARQUET:field_id"]) for name, _, _ in COLUMNS]
    assert (schema.names, ids) == ([name for name, _, _ in COLUMNS], [1, 2, 3, 4, 5, 6])
    assert [str(kind) for kind in schema.types] == ["timestamp[us, tz=UTC]"] * 2 + ["int64"] * 3 + ["string"]


def test_a_task_without_records_leaves_no_file(tmp_path: Path) -> None:
    write_events(tmp_path / "events.parquet", rows=0, keys=5)

    done = run_native_task(task_of(tmp_path, [tmp_path / "events.parquet"]))

    assert (done.scanned, done.counts, done.written) == (0, None, {})
    assert list((tmp_path / "out").iterdir()) == []


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "events.parquet"
    write_events(file, rows=50_000, keys=5)
    content = bytearray(file.read_bytes())
    content[200:5_000] = bytes(4_800)
    file.write_bytes(content)

    with pytest.raises(RuntimeError) as failed:
        run_native_task(task_of(tmp_path, [file]))

    assert str(failed.value).startswith("the native engine could not compute the windows of ")
    assert str(file) in str(failed.value)


def test_a_column_of_another_type_is_named_with_its_file(tmp_path: Path) -> None:
    file = tmp_path / "events.parquet"
    table = write_events(file, rows=10, keys=5)
    pq.write_table(table.set_column(2, "value", table["value"].cast(pa.string())), file)

    with pytest.raises(RuntimeError) as failed:
        run_native_task(task_of(tmp_path, [file]))

    wanted = f"column 'value' must be int8 or int16 or int32 or int64 for the native engine, got string\n  {file}"
    assert str(failed.value).endswith(wanted)


def test_records_outside_the_interval_are_counted_by_the_rest_task(tmp_path: Path) -> None:
    file = tmp_path / "events.parquet"
    table = write_events(file, rows=8_000, keys=5)
    times = table["at"].to_pylist()
    outside = pa.array([None if n < 3 else time for n, time in enumerate(times)], pa.timestamp("us", "UTC"))
    pq.write_table(table.set_column(0, "at", outside), file)
    half = Interval(START_MS, START_MS + DAY_MS // 2)
    task = RestTask(0, READING, half, [str(file)], {str(file): 7}, str(tmp_path / "rest.parquet"), 256)

    done = run_native_task(task)

    late = sum(time.hour >= 12 for time in times[3:])
    assert isinstance(done, TaskResult)
    assert done.scanned == late + 3
    assert done.counts is not None
    (row,) = pq.read_table(done.counts).to_pylist()
    assert (row["fate"], row["events"], row["chunk_number"]) == ("quarantined", 3, 7)


def test_only_files_whose_footers_leave_a_doubt_are_read_for_the_rest(tmp_path: Path) -> None:
    whole, hour = Interval(START_MS, START_MS + DAY_MS), Interval(START_MS, START_MS + HOUR_MS)
    names = ("plain", "null", "without statistics")
    files = {name: tmp_path / f"{name}.parquet" for name in names}
    table = write_events(files["plain"], rows=1_000, keys=5)
    times = pa.array([None, *table["at"].to_pylist()[1:]], pa.timestamp("us", "UTC"))
    pq.write_table(table.set_column(0, "at", times), files["null"])
    pq.write_table(table, files["without statistics"], write_statistics=False)
    paths = [str(file) for file in files.values()]

    assert list_files_with_rest(paths, READING, whole) == paths[1:]
    assert list_files_with_rest(paths, READING, hour) == paths
    last_ms = table["at"].to_pylist()[-1].timestamp() * 1000
    assert list_files_with_rest(paths[:1], READING, Interval(START_MS, int(last_ms))) == paths[:1]
    assert list_files_with_rest(paths[:1], READING, Interval(START_MS, int(last_ms) + 1)) == []
    assert list_files_with_rest(paths[:1], READING, Interval(START_MS + 1, START_MS + DAY_MS)) == paths[:1]
    assert list_files_with_rest(paths[:1], replace(READING, sequence="seq"), whole) == paths[:1]
    assert list_files_with_rest(paths[:1], replace(READING, valid=hour), whole) == paths[:1]
