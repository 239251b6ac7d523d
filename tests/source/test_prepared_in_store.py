"""Batches of prepared files in an object store are whole, and each machine finds them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.lake.store import BUCKET, Store

from backstream.runs.home import Home
from backstream.source.prepared import BatchCounts, PreparedBatch, PreparedSource
from backstream.source.raw_contents import RawContents, contents_schema
from backstream.source.raw_files import RawFile
from backstream.variables import CACHE_VARIABLE, WAREHOUSE_VARIABLE

RAW = RawFile("s3://raw/a.json", 7, 1_000)
CONTENTS = RawContents((RAW,), "", "", 60_000, contents_schema().empty_table())


@pytest.fixture
def location(request: pytest.FixtureRequest) -> str:
    return f"s3://{BUCKET}/{request.node.name}/prepared/clicks/0123"


@pytest.fixture
def source(location: str, tmp_path: Path, s3: Store, monkeypatch: pytest.MonkeyPatch) -> PreparedSource:
    """Return an empty source on one machine."""
    monkeypatch.setenv(WAREHOUSE_VARIABLE, s3.new_warehouse())
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "one"))
    return PreparedSource.from_location(location)


def add_batch(source: PreparedSource, raw: RawFile = RAW) -> None:
    with source.lock(), source.new_batch() as draft:
        draft.mkdir(parents=True)
        pq.write_table(pa.table({"n": [1, 2]}), draft / "part-0.parquet")
        source.add_batch(PreparedBatch(draft, (raw,), BatchCounts(2, 2, 0, 0)), CONTENTS)


def test_another_machine_finds_a_batch_and_its_objects(
    source: PreparedSource, location: str, s3: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_batch(source)

    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "another"))
    found = PreparedSource.from_location(location)
    with found.lock():
        (batch,) = found.batches()
        assert not found.find_changes([RAW])
    assert batch.files == (RAW,)
    (file,) = batch.stored
    assert file.path == f"{batch.location}/part-0.parquet"
    assert file.size_bytes == len(s3.content(file.path.removeprefix("s3://")))
    assert not list(Path(tmp_path / "another").rglob("*.parquet"))


def test_an_outdated_batch_is_removed_with_its_objects(source: PreparedSource, location: str, s3: Store) -> None:
    add_batch(source)
    add_batch(source, RawFile("s3://raw/b.json", 8, 1_000))
    with source.lock():
        changes = source.find_changes([RAW, RawFile("s3://raw/b.json", 9, 2_000)])
        source.remove_batches(changes.outdated)

    assert [batch.files for batch in source.batches()] == [(RAW,)]
    assert len([key for key in s3.keys(location[5:]) if key.endswith(".parquet")]) == 1


def test_objects_of_a_killed_preparation_are_removed(source: PreparedSource, location: str, s3: Store) -> None:
    add_batch(source)
    with s3.filesystem.open_output_stream(f"{location[5:]}/batch-dead/part-0.parquet") as stream:
        stream.write(b"half")
    with source.lock():
        source.remove_drafts()

    (batch,) = source.batches()
    assert {key for key in s3.keys(location[5:]) if key.endswith(".parquet")} == {batch.stored[0].path[5:]}


def test_a_plain_path_is_a_folder_on_a_disk(tmp_path: Path) -> None:
    assert PreparedSource.from_location(str(tmp_path)).folder == tmp_path
    assert Home.from_location(str(tmp_path)).location == str(tmp_path)
