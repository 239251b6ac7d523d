"""Files in an object store are a source, by the keys of the environment, and give the windows of their events."""

from __future__ import annotations

import gzip
import json
import uuid
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.lake.store import BUCKET, Store
from tests.prepared.events import NO_TIME, Event, make_events, nested, sums_by_hour
from tests.sources import tables
from tests.sources.definitions import (
    PLAIN,
    published_orders,
    require_one_bad_record,
    rows_of_second_day,
    run_orders,
    write_orders,
)
from tests.sources.tables import Archive, to_rows

from backstream.definition.loader import load_definition, resolve_raw_paths
from backstream.definition.prepared import copies_folder
from backstream.errors import PlanError, SpecError, StorageError
from backstream.lake.reader import load_published_rows
from backstream.runs.home import Home
from backstream.source.raw_files import list_raw_files
from backstream.storage.object_stores import StoreAccess
from backstream.variables import WAREHOUSE_VARIABLE
from backstream.workflow.inputs.prepare import prepare_source
from backstream.workflow.late_data.stale import find_stale_days
from backstream.workflow.runners import SparkRunner

pytestmark = pytest.mark.slow

VARIABLES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL")


class Bucket:
    """A place in the store that is the input of a test."""

    def __init__(self, store: Store) -> None:
        self.store, self.place = store, f"{BUCKET}/in-{uuid.uuid4().hex[:8]}"

    @property
    def address(self) -> str:
        """The address of the place."""
        return f"s3://{self.place}"

    def put(self, name: str, content: bytes) -> None:
        """Write an object."""
        with self.store.filesystem.open_output_stream(f"{self.place}/{name}", compression=None) as file:
            file.write(content)

    def put_parquet(self, name: str, events: Sequence[Event], **options: bool) -> None:
        """Write events with the columns of a table, and a large one that no definition needs."""
        rows = to_rows(events)
        unused = pa.array([uuid.uuid4().hex * 20 for _ in events])
        buffer = pa.BufferOutputStream()
        pq.write_table(rows.append_column("unused", unused), buffer, **options)
        self.put(name, buffer.getvalue().to_pybytes())


@pytest.fixture
def bucket(s3: Store, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    for name, value in zip(VARIABLES, (s3.key_id, s3.secret, s3.endpoint), strict=True):
        monkeypatch.setenv(name, value)
    return Bucket(s3)


def listed(folder: Path, path: str, format_name: str = "parquet") -> list[str]:
    """Return the names of the data files of a path, from the bucket on."""
    columns = '\ncolumns = { at = "string" }' if format_name == "json" else ""
    definition = write_orders(folder, f'format = "{format_name}"\npath = {path}\nevent_time = "at"{columns}')
    files = list_raw_files(load_definition(definition).source, "orders.toml")
    return [file.path for file in files]


def test_prefixes_patterns_and_lists_name_objects(bucket: Bucket, tmp_path: Path) -> None:
    events = make_events(3)
    names = ["a/1.parquet", "a/b/2.parquet", "c/3.snappy.parquet", "c/4.dat", "_d/5.parquet", "a/.6.parquet"]
    for name in [*names, "c/7.json"]:
        bucket.put_parquet(name, events)
    root = bucket.address

    def found(*paths: str, format_name: str = "parquet") -> list[str]:
        given = json.dumps([f"{root}/{path}" for path in paths])
        return [path.removeprefix(f"{root}/") for path in listed(tmp_path, given, format_name)]

    assert found("") == ["a/1.parquet", "a/b/2.parquet", "c/3.snappy.parquet"]
    assert found("a", "c/") == ["a/1.parquet", "a/b/2.parquet", "c/3.snappy.parquet"]
    assert found("a/1.parquet", "a/*.parquet") == ["a/1.parquet"]
    assert found("c/4.dat") == ["c/4.dat"]
    assert found("*/[!1].parquet", "c/?.d*") == ["c/4.dat"]
    assert found("**/2.parquet") == ["a/b/2.parquet"]
    assert found("[ab]") == ["a/1.parquet", "a/b/2.parquet"]
    assert found("", format_name="json") == ["c/7.json"]


def test_addresses_without_data_and_wrong_keys_are_errors(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = "(orders.toml, source.path)"
    with pytest.raises(PlanError) as missing:
        listed(tmp_path, f'"{bucket.address}/nothing"')
    assert str(missing.value) == f"no file or folder at {bucket.address}/nothing {where}"
    bucket.put("x/notes.txt", b"text")
    with pytest.raises(PlanError) as no_data:
        listed(tmp_path, f'"{bucket.address}/x/"')
    assert str(no_data.value) == (
        f"no parquet files under {bucket.address}/x/ {where}\n"
        f"  1 file with another suffix than .parquet, .parq, .pq: {bucket.address}/x/notes.txt"
    )
    with pytest.raises(SpecError) as unknown:
        listed(tmp_path, '"ftp://host/x"')
    known = "s3, s3a, s3n, gs, abfs, abfss"
    assert str(unknown.value) == f"an object store must be one of {known}, got 'ftp' {where}"
    with pytest.raises(SpecError) as with_key:
        listed(tmp_path, '"s3://key:secret@bucket/x"')
    assert str(with_key.value) == (
        f"source.path must not contain keys, because plans and reports show it {where[:-14]})\n\n"
        "hint: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    )
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(StorageError) as refused:
        listed(tmp_path, f'"{bucket.address}/x/"')
    assert str(refused.value).startswith(f"cannot list {bucket.address}/x/: ")
    assert "wrong" not in str(refused.value)


def test_the_keys_of_the_warehouse_are_used_without_others(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.put_parquet("1.parquet", make_events(3))
    for name in VARIABLES:
        monkeypatch.delenv(name)
    monkeypatch.setenv(WAREHOUSE_VARIABLE, bucket.store.new_warehouse())

    assert listed(tmp_path, f'"{bucket.address}"') == [f"{bucket.address}/1.parquet"]
    assert bucket.store.secret not in repr(StoreAccess.from_environment())


@pytest.mark.parametrize("mode", ["recompute", "replay"])
def test_parquet_objects_are_run_and_late_ones_are_found(
    bucket: Bucket, mode: str, spark: SparkSession, tmp_path: Path
) -> None:
    events, home = make_events(), Home(tmp_path / "home")
    definition = write_orders(tmp_path, f'path = "{bucket.address}/"\nkey = ["user"]\n{PLAIN}')
    bucket.put_parquet("day=1/a.parquet", events[:80])
    bucket.put_parquet("day=2/b.parquet", events[80:150])

    run_orders(definition, home, mode)
    assert published_orders(home) == sums_by_hour(events[:150])
    folder = copies_folder(resolve_raw_paths(load_definition(definition), home), home)
    copies = sorted(folder.glob("*.parquet"))
    assert [pq.read_schema(copy).names for copy in copies] == [to_rows(events).column_names] * 2
    assert rows_of_second_day(definition, home) == [70]  # of two files

    assert prepare_source(definition, home, SparkRunner(lambda: spark)) is None
    bucket.put_parquet("late.parquet", [*events[150:], NO_TIME])
    prepare_source(definition, home, SparkRunner(lambda: spark))
    staleness = find_stale_days(definition, home)
    assert set(folder.glob("*.parquet")) > set(copies)
    assert len(staleness.days) == 1
    assert [*staleness.changes] == [f"{bucket.address}/late.parquet"]
    run_orders(definition, home, mode)
    assert published_orders(home) == sums_by_hour(events)
    require_one_bad_record(home)


def test_compressed_json_lines_are_prepared_from_the_store(
    bucket: Bucket, spark: SparkSession, tmp_path: Path
) -> None:
    events, home = make_events(), Home(tmp_path / "home")
    source = f"""
format = "json"
path = ["{bucket.address}/topic=orders/*/", "{bucket.address}/late.json"]
event_time = "payload.at"
arrival_time = "received"
arrival_time_unit = "ms"
partition = "partition"
key = ["payload.user.id", "hour"]
[source.columns]
partition = "int"
received = "bigint"
payload = "struct<at: string, user: struct<id: string>, amount: int>"
"""
    definition = write_orders(tmp_path, source.replace(', "hour"', ""), "payload.amount")
    lines = [json.dumps(nested(event)) for event in events]
    for hour, part in enumerate((lines[:80], lines[80:150])):
        content = "\n".join([*part, "no json"]).encode() + b"\n\xff\xfe"  # no UTF-8 either
        bucket.put(f"topic=orders/hour={hour}/part.json.gz", gzip.compress(content))
    bucket.put("late.json", "\n".join(lines[150:]).encode())

    run_orders(definition, home)

    assert published_orders(home, "payload_user_id") == sums_by_hour(events)
    quarantined = load_published_rows(home, "orders", "quarantine").to_pylist()
    assert sorted(row["file"] for row in quarantined) == [
        f"{bucket.address}/topic=orders/hour={hour}/part.json.gz" for hour in (0, 0, 1, 1)
    ]
    assert prepare_source(definition, home, SparkRunner(lambda: spark)) is None
    assert [path.name for path in (home.path / "prepared/orders").glob("*fetched*")] == []


def test_old_timestamps_and_damaged_objects(bucket: Bucket, spark: SparkSession, tmp_path: Path) -> None:
    events, home = make_events(), Home(tmp_path / "home")
    source = f'path = "{bucket.address}"\nkey = ["user"]\n{PLAIN}'
    definition = write_orders(tmp_path, source)
    bucket.put_parquet("a.parquet", events, use_deprecated_int96_timestamps=True)

    run_orders(definition, home)

    assert published_orders(home) == sums_by_hour(events)
    bucket.put("b.parquet", b"PAR1 cut off")
    with pytest.raises(Exception, match=rf"cannot read input file {bucket.address}/b.parquet"):
        prepare_source(definition, home, SparkRunner(lambda: spark))
    write_orders(tmp_path, source + 'corrupt_files = "skip"\n')
    run_orders(definition, home)
    assert published_orders(home) == sums_by_hour(events)


def test_a_table_in_the_store_is_run(
    bucket: Bucket, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events, home, store = make_events(), Home(tmp_path / "home"), bucket.store
    properties = {
        "s3.endpoint": store.endpoint,
        "s3.access-key-id": store.key_id,
        "s3.secret-access-key": store.secret,
        "s3.region": "us-east-1",
    }
    archive = Archive(f"sqlite:///{tmp_path}/archive.db", bucket.address, properties)
    archive.create()
    archive.configure(monkeypatch.setenv)
    for name in VARIABLES:
        monkeypatch.delenv(name)
    definition = write_orders(
        tmp_path, f'format = "iceberg"\npath = "archive.sales.orders"\nkey = ["user"]\n{PLAIN}'
    )
    archive.append(events[:100])
    prepare_source(definition, home, SparkRunner(lambda: spark))
    archive.append(events[100:])
    tables.compact(archive)
    with archive.table() as table:
        (task,) = table.scan().plan_files()
    tables.delete_positions(archive, task.file.file_path, [0])

    run_orders(definition, home)

    with archive.table() as table:
        (first,) = table.scan(limit=1).to_arrow()["offset"].to_pylist()
    assert first is not None
    assert sum(orders for orders, _ in published_orders(home).values()) == len(events) - 1
