"""Check that messages name the files of the user, not the files that backstream makes of them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from backstream.runs.home import Home
from backstream.source.copies import CopyFolder
from backstream.source.prepared import BatchCounts, PreparedBatch, PreparedSource
from backstream.source.raw_contents import RawContents, contents_schema
from backstream.source.raw_files import RawFile
from backstream.source.user_files import list_user_files

COUNTS = BatchCounts(2, 2, 0, 0)


def test_a_prepared_file_is_named_by_the_raw_files_of_its_batch_also_after_it_was_replaced(tmp_path: Path) -> None:
    source = PreparedSource(Home(tmp_path / "home").path / "prepared/orders/0123")
    files = tuple(RawFile(f"/data/{name}", 1, 0) for name in ("a.json", "b.json"))
    with source.new_batch() as draft:
        draft.mkdir(parents=True)
        contents = RawContents(files, "", "", 60_000, contents_schema().empty_table())
        source.add_batch(PreparedBatch(draft, files, COUNTS), contents)
    (batch,) = source.batches()
    assert list_user_files(f"{batch.folder}/part-0.parquet") == ["/data/a.json", "/data/b.json"]

    source.remove_batches([batch.folder])

    assert source.batches() == []
    assert list_user_files(f"{batch.folder}/part-0.parquet") == ["/data/a.json", "/data/b.json"]


def test_the_contents_of_a_replaced_batch_are_removed_after_a_month_if_no_run_read_it(tmp_path: Path) -> None:
    source = PreparedSource(tmp_path / "prepared/orders/0123")
    contents = RawContents((), "", "", 60_000, contents_schema().empty_table())
    for _ in range(3):
        with source.new_batch() as draft:
            draft.mkdir(parents=True)
            source.add_batch(PreparedBatch(draft, (), COUNTS), contents)
    first, second, third = (batch.folder for batch in source.batches())
    source.remove_batches([first, second])

    def kept(read: str, age_days: int) -> set[str]:
        for path in (source.folder / "_contents").glob("*.json"):
            os.utime(path, (time.time() - age_days * 86_400,) * 2)
        source.remove_unused_contents(lambda batch: batch == read)
        return {path.stem for path in (source.folder / "_contents").glob("*.json")}

    assert kept(second.name, 29) == {first.name, second.name, third.name}
    assert kept(second.name, 31) == {second.name, third.name}
    assert kept("", 31) == {third.name}


def test_a_copy_is_named_by_its_raw_file_also_after_it_was_removed(tmp_path: Path) -> None:
    copies = CopyFolder(tmp_path / "home/prepared/orders/0123-copies")
    first, second = (RawFile("s3://raw/2024/a.parquet", size, 1_000) for size in (7, 8))
    copies.write_raw_files([first])
    copies.write_raw_files([second])

    assert copies.path_of(first) != copies.path_of(second)
    for file in (first, second):
        assert list_user_files(str(copies.path_of(file))) == ["s3://raw/2024/a.parquet"]


@pytest.mark.parametrize("path", ["/data/batch-1/a.parquet", "/home/prepared/x/0123/batch-gone/a.parquet", "a"])
def test_another_file_keeps_its_path(path: str) -> None:
    assert list_user_files(path) == [path]
