"""A warehouse in an S3 store behaves like one on a disk, and its errors are readable."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pytest
from tests.lake.store import BUCKET, Store

from backstream.errors import BackstreamError, ContractError, SetupError, SpecError, StorageError
from backstream.eventtime.instants import DAY_MS, HOUR_MS
from backstream.lake import maintenance, storage
from backstream.lake.catalog import open_catalog_for_writing
from backstream.lake.maintenance import vacuum_tables
from backstream.lake.publication import data_files
from backstream.lake.publication import publish as publishing
from backstream.lake.publication.publish import preview_replacement, publish_range
from backstream.lake.publication.rollback import roll_back_run
from backstream.lake.reader import load_published_rows, load_rows
from backstream.lake.storage import Warehouse
from backstream.runs.home import Home
from backstream.runs.manifest import Manifest, StagedFile
from backstream.runs.plan import Plan
from backstream.storage.stores import Stores
from backstream.variables import WAREHOUSE_VARIABLE

if TYPE_CHECKING:
    from tests.lake.conftest import Lake

DAY, LATER = ("2013-02-01", "2013-02-02"), ("2013-02-01", "2013-02-03")
AT = "2013-02-01T05:00Z"
WEEK_MS = 7 * DAY_MS


def place() -> str:
    """Return the bucket and prefix of the test's warehouse."""
    return Warehouse.from_home(Home(Path("nowhere"))).display_text.removeprefix("s3://")


def stored_files(s3: Store, run_id: str = "") -> set[str]:
    """Return the data files of the windows, of one run or of all runs."""
    return s3.keys(f"{place()}/backstream/flights/data/{run_id}".rstrip("/"))


def in_days(monkeypatch: pytest.MonkeyPatch, days: int) -> None:
    """Set the clock of the vacuum forward."""
    monkeypatch.setattr(storage, "time", SimpleNamespace(time=lambda: time.time() + days * 86_400))


def refusal(action: Callable[[], object], kind: type[BackstreamError]) -> str:
    with pytest.raises(kind) as raised:
        action()
    return str(raised.value)


def test_a_range_is_published_replaced_shown_as_it_was_and_rolled_back(lake: Lake, s3: Store) -> None:
    first = lake.publish(*LATER, {AT: 1, "2013-02-02T05:00Z": 2})
    second = lake.publish(*DAY, {AT: 7}, trigger="again")
    assert (second.rows, second.replaced_rows) == (1, 1)

    assert lake.departures() == {AT: 7, "2013-02-02T05:00Z": 2}
    as_of = load_rows(lake.home, "flights", snapshot_id=first.snapshots[""])
    assert as_of["departures"].to_pylist() == [1, 2]
    [change] = [
        row
        for row in load_published_rows(lake.home, "flights", "restatements").to_pylist()
        if row["aggregate"] == "departures"
    ]
    assert (change["old_value"], change["new_value"]) == ("1", "7")

    roll_back_run(lake.home, second.run_id)

    assert lake.departures() == {AT: 1, "2013-02-02T05:00Z": 2}
    locations = [task.file.file_path for task in lake.table().scan().plan_files()]
    assert {location.removeprefix("s3://") for location in locations} <= stored_files(s3)
    assert not lake.home.warehouse.exists()


def test_a_second_attempt_copies_under_new_names_and_publishes_once(
    lake: Lake, s3: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = lake.plan(*DAY)
    manifests = lake.staged(plan, {AT: 1}, metrics=[("EWR", 1)])
    left = _copy_and_die(plan, manifests, s3, monkeypatch)

    done = publish_range(plan, manifests)

    assert (done.already, publish_range(plan, manifests).already) == (False, True)
    [location] = [task.file.file_path for task in lake.table().scan().plan_files()]
    assert location.removeprefix("s3://") not in left
    assert lake.table("flights__metrics").scan().to_arrow().num_rows == 1


def staged_in_warehouse(lake: Lake, plan: Plan, windows: dict[str, int]) -> list[Manifest]:
    """Return manifests of files that a job has staged in the warehouse, and remove those on the disk."""
    stores, moved = Stores.from_environment(), []
    for manifest in lake.staged(plan, windows):
        files: dict[str, tuple[StagedFile, ...]] = {}
        for suffix, staged in manifest.files.items():
            places = {
                file.path: file.path.replace(str(plan.staging(suffix)), plan.stored_staging(suffix))
                for file in staged
            }
            stores.upload_all({place: Path(path) for path, place in places.items()})
            files[suffix] = tuple(replace(file, path=places[file.path]) for file in staged)
        moved.append(replace(manifest, files=files))
    shutil.rmtree(lake.home.staging("flights"))
    return moved


def test_files_that_a_job_staged_in_the_warehouse_are_published_without_copies(lake: Lake, s3: Store) -> None:
    lake.publish(*LATER, {AT: 1, "2013-02-02T05:00Z": 2})
    plan = lake.plan(*DAY, "again")
    manifests = staged_in_warehouse(lake, plan, {AT: 7})
    before = stored_files(s3)

    assert publish_range(plan, manifests).rows == 1

    assert lake.departures() == {AT: 7, "2013-02-02T05:00Z": 2}
    [staged] = [file.path for manifest in manifests for file in manifest.files[""]]
    assert staged in {task.file.file_path for task in lake.table().scan().plan_files()}
    assert {key for key in stored_files(s3) - before if not key.endswith("/.publication")} == set()


def test_files_staged_by_lost_attempts_are_removed_from_the_warehouse(
    lake: Lake, s3: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = lake.plan(*DAY)
    manifests = staged_in_warehouse(lake, plan, {AT: 1})
    publish_range(plan, manifests)
    [used] = [file.path.removeprefix("s3://") for file in manifests[0].files[""]]
    left = used.replace("-0/part-0.", "-lost/part-0.")
    s3.filesystem.copy_file(used, left)
    assert vacuum_tables(lake.home, "flights", WEEK_MS)[0].files == 0

    in_days(monkeypatch, 8)
    assert vacuum_tables(lake.home, "flights", WEEK_MS)[0].files == 2, (
        "the leftover, and the mark of the publication"
    )

    assert stored_files(s3) == {used}
    assert lake.departures() == {AT: 1}


def test_a_publication_and_a_vacuum_of_files_staged_long_ago_do_not_meet(
    lake: Lake, s3: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.publish(*DAY, {AT: 1})
    plan = lake.plan(*DAY, "again")
    manifests = staged_in_warehouse(lake, plan, {AT: 7})
    in_days(monkeypatch, 8)
    listed = maintenance.list_reachable_files

    def list_while_a_run_publishes(table: Any) -> set[str]:
        found = listed(table)
        maintenance.protect_staged_files(plan, manifests)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(maintenance, "list_reachable_files", list_while_a_run_publishes)
        patch.setattr(storage, "is_older_than_grace", lambda *_: False)  # the mark is of today
        vacuum_tables(lake.home, "flights", WEEK_MS)
    assert {file.path.removeprefix("s3://") for file in manifests[0].files[""]} <= stored_files(s3)

    monkeypatch.setattr(storage, "time", time)
    filesystem, folder = Stores.from_environment().open(plan.stored_staging(""))
    storage.write_mark(filesystem, f"{folder}/.vacuum")
    assert refusal(lambda: publish_range(plan, manifests), StorageError).startswith(
        f"vacuum is removing the staged files of run {plan.run_id}\n  {plan.stored_staging('')}\n"
    )
    assert lake.departures() == {AT: 1}
    filesystem.delete_file(f"{folder}/.vacuum")
    publish_range(plan, manifests)
    assert lake.departures() == {AT: 7}


def test_old_copies_that_were_never_committed_are_removed(
    lake: Lake, s3: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.publish(*DAY, {AT: 1})
    plan = lake.plan(*DAY, "abandoned")
    manifests = lake.staged(plan, {AT: 2})
    left = _copy_and_die(plan, manifests, s3, monkeypatch)
    before = stored_files(s3)

    young = vacuum_tables(lake.home, "flights", WEEK_MS)
    in_days(monkeypatch, 8)
    reported = vacuum_tables(lake.home, "flights", WEEK_MS, dry_run=True)
    assert stored_files(s3) == before
    old = vacuum_tables(lake.home, "flights", WEEK_MS)

    assert young[0].files == 0
    assert reported == old
    assert old[0].files == len(left) + 2, "the copy, and what both runs have staged"
    assert stored_files(s3) == before - left
    assert not list(lake.home.staging("flights").rglob("*.parquet"))
    assert lake.departures() == {AT: 1}
    assert refusal(lambda: publish_range(plan, manifests), ContractError).endswith("there is no such file")


def test_an_old_copy_of_an_active_run_is_kept(lake: Lake, s3: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = lake.plan(*DAY)
    manifests = lake.staged(plan, {AT: 2})
    left = _copy_and_die(plan, manifests, s3, monkeypatch)
    in_days(monkeypatch, 8)
    [file] = manifests[0].files[""]
    os.utime(file.path, (time.time() + 8 * 86_400,) * 2)

    vacuum_tables(lake.home, "flights", WEEK_MS)

    assert stored_files(s3) == left


def test_a_grace_period_in_which_a_publication_is_copied_is_too_short(lake: Lake) -> None:
    lake.publish(*DAY, {AT: 1})

    assert refusal(lambda: vacuum_tables(lake.home, "flights", HOUR_MS - 1), SpecError) == (
        "the grace period must be at least 1h in an object store, got 59m59s999ms (table `flights`)\n\n"
        "hint: with --dry-run it may be shorter"
    )
    assert vacuum_tables(lake.home, "flights", 0, dry_run=True)[0].files == 1, "what was staged and is copied"
    assert vacuum_tables(lake.home, "flights", HOUR_MS)[0].files == 0


def test_an_existing_table_stays_on_disk_and_new_ones_are_in_the_store(
    lake: Lake, s3: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.delenv(WAREHOUSE_VARIABLE)
        lake.publish(*DAY, {AT: 1})

    again = lake.publish(*DAY, {AT: 7}, trigger="again")

    assert lake.departures() == {AT: 7}
    assert lake.table().location() == f"file://{lake.home.warehouse}/backstream/flights"
    assert load_published_rows(lake.home, "flights", "restatements").num_rows == 1
    assert {key.split("/")[3] for key in s3.keys(place())} == {"flights__restatements"}
    roll_back_run(lake.home, again.run_id)
    assert {result.files for result in vacuum_tables(lake.home, "flights", WEEK_MS)} == {0}
    assert lake.departures() == {AT: 1}


@pytest.mark.filterwarnings("ignore:Iceberg scan planning with the polars_iceberg plugin")
def test_other_engines_read_the_published_rows(lake: Lake) -> None:
    lake.publish(*DAY, {AT: 1})
    lake.publish(*DAY, {AT: 7}, trigger="again")
    table = lake.table()

    keys = {name: table.io.properties[f"s3.{name}"] for name in ("endpoint", "region", "access-key-id")}
    options = {"aws_" + name.replace("-", "_"): value for name, value in keys.items()}
    options["aws_secret_access_key"] = table.io.properties["s3.secret-access-key"]
    lazy = pl.scan_iceberg(table, storage_options=options | {"aws_allow_http": "true"})

    assert lazy.select(pl.col("departures").sum()).collect().item() == 7
    assert table.scan().to_pandas()["departures"].tolist() == [7]
    with duckdb.connect() as connection:
        table.scan().to_duckdb("flights", connection)
        assert connection.sql("select sum(departures) from flights").fetchall() == [(7,)]


def test_a_deleted_file_is_named(lake: Lake, s3: Store) -> None:
    lake.publish(*DAY, {AT: 1})
    [old] = stored_files(s3)
    second = lake.publish(*DAY, {AT: 7}, trigger="again")
    [new] = stored_files(s3) - {old}
    for key in (old, new):
        s3.delete(key)

    assert new in refusal(lambda: load_rows(lake.home, "flights"), StorageError)
    assert refusal(lambda: roll_back_run(lake.home, second.run_id), StorageError) == (
        f"a file of the lake is missing: s3://{old}\n  the lake is in s3://{place()}"
    )


def test_the_changes_of_a_run_are_previewed_without_copies(lake: Lake, s3: Store) -> None:
    lake.publish(*DAY, {AT: 1})
    before = stored_files(s3)
    plan = lake.plan(*DAY, "again")
    manifests = lake.staged(plan, {AT: 7})

    with open_catalog_for_writing(lake.home) as catalog:
        [changes] = preview_replacement(catalog, plan, manifests).changes()

    reported = {row["aggregate"]: (row["old_value"], row["new_value"]) for row in changes.to_pylist()}
    assert reported["departures"] == ("1", "7")
    assert stored_files(s3) == before


def test_a_copy_that_is_not_whole_is_not_published(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = lake.plan(*DAY)
    manifests = lake.staged(plan, {AT: 1})

    def half(source: str, target: str, **known: Any) -> None:
        with known["destination_filesystem"].open_output_stream(target) as file:
            file.write(Path(source).read_bytes()[:100])

    monkeypatch.setattr(data_files, "copy_files", half)
    error_text = refusal(lambda: publish_range(plan, manifests), StorageError).splitlines()

    assert re.fullmatch(r"a copy has 100 bytes, its file has \d+", error_text[0])
    assert lake.table().current_snapshot() is None


def test_the_error_of_a_store_names_the_attempted_action(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = lake.plan(*DAY)
    manifests = lake.staged(plan, {AT: 1})

    def refused(*_: str, **__: Any) -> None:
        msg = "When writing: AWS Error SLOW_DOWN during UploadPart operation: Reduce your rate. (Request ID: 4f)"
        raise OSError(msg)

    with monkeypatch.context() as patch:
        patch.setattr(data_files, "copy_files", refused)
        error_text = refusal(lambda: publish_range(plan, manifests), StorageError)

    assert error_text == (
        "could not publish flights 2013-02-01T00:00Z to 2013-02-02T00:00Z:"
        " When writing: AWS Error SLOW_DOWN during UploadPart operation: Reduce your rate\n"
        f"  s3://{place()}\n\n"
        "hint: run the same command again when the store is available;"
        " finished chunks are kept, and published ranges are complete"
    )
    assert not publish_range(plan, manifests).already


def test_a_store_that_cannot_be_used_is_named_before_anything_is_made(
    tmp_path: Path, s3: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path / "home")
    closed, wrong = "http://127.0.0.1:9", "wr/ong"
    unusable = "cannot use the warehouse s3://lake/p: When getting information for bucket 'lake': AWS Error"
    addresses = {
        s3.address("lake/p", wrong): f"{unusable} ACCESS_DENIED during HeadBucket operation",
        s3.address("nobodys/p"): "no bucket `nobodys` for the warehouse s3://nobodys/p",
        f"s3://me:wr%2Fong@lake/p?endpoint={closed}": f"{unusable} NETWORK_CONNECTION",
    }
    for address, first in addresses.items():
        monkeypatch.setenv(WAREHOUSE_VARIABLE, address)
        error_text = refusal(lambda: open_catalog_for_writing(home).__enter__(), StorageError)
        assert error_text.startswith(first), error_text
        assert f"\n  endpoint {closed if closed in address else s3.endpoint}\n" in error_text
        assert not any(secret in error_text for secret in (s3.secret, wrong, "wr%2Fong"))
    assert not home.path.exists()


@pytest.mark.parametrize(
    "address",
    [
        "ftp://bucket/prefix",
        "hdfs:///prefix",
        "s3://key:sec/ret@bucket/prefix",
        "s3://key:sec?ret@bucket/prefix",
        "s3://key:sec#ret@bucket/prefix",
        "s3://key:se@c/ret@bucket/prefix",
        "s3://[key:secret@bucket",
        "s3:///prefix",
    ],
)
def test_an_invalid_address_is_not_shown_because_it_may_contain_a_key(
    tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(WAREHOUSE_VARIABLE, address)

    assert refusal(lambda: Warehouse.from_home(Home(tmp_path)), SetupError) == (
        "the address of the warehouse must be a folder, s3://bucket/prefix, gs://bucket/prefix,"
        " abfss://container@account.dfs.core.windows.net/prefix, or hdfs://host:port/folder"
        " (BACKSTREAM_WAREHOUSE)\n\n"
        "hint: BACKSTREAM_WAREHOUSE='s3://bucket/prefix?region=eu-central-1'"
    )


def test_an_address_contains_all_options_of_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)

    def parse(address: str) -> tuple[str, dict[str, str]]:
        monkeypatch.setenv(WAREHOUSE_VARIABLE, address)
        found = Warehouse.from_home(Home(tmp_path))
        assert "secret" not in repr(found)
        return found.location, dict(found.properties)

    assert parse("/srv/lake") == ("file:///srv/lake", {})
    assert parse("file:///srv/lake/") == ("file:///srv/lake", {})
    assert parse("s3://lake") == ("s3://lake", {})
    assert parse("s3://k%2Fey:secret%2B@lake/a/b/?region=eu-central-1&session_token=t%2B1") == (
        "s3://lake/a/b",
        {
            "s3.region": "eu-central-1",
            "s3.session-token": "t+1",
            "s3.access-key-id": "k/ey",
            "s3.secret-access-key": "secret+",
        },
    )
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://minio:9000")
    assert parse("s3://lake/a")[1] == {"s3.region": "us-east-1", "s3.endpoint": "http://minio:9000"}
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    assert parse("s3://lake/a?endpoint=http://other:1")[1] == {
        "s3.region": "eu-west-1",
        "s3.endpoint": "http://other:1",
    }
    assert refusal(lambda: parse("s3://lake/a?secret=1&x=2"), SetupError) == (
        "options of the warehouse address must be region, endpoint, session_token, got secret, x"
        " (BACKSTREAM_WAREHOUSE)"
    )


def test_access_keys_may_be_in_the_aws_variables(
    tmp_path: Path, s3: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    monkeypatch.setenv(WAREHOUSE_VARIABLE, f"s3://{BUCKET}/by-environment")

    with open_catalog_for_writing(Home(tmp_path / "home")) as catalog:
        assert catalog.list_tables("backstream") == []


def _copy_and_die(
    plan: Plan, manifests: Sequence[Manifest], s3: Store, monkeypatch: pytest.MonkeyPatch
) -> set[str]:
    """Return the copies of a publication that was killed before it committed the windows."""
    before = stored_files(s3)

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(publishing, "append_restatements", die)
        with pytest.raises(KeyboardInterrupt):
            publish_range(plan, manifests)
    return stored_files(s3) - before
