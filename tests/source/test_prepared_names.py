"""Check the names of prepared files in texts for people."""

from __future__ import annotations

from pathlib import Path

import pytest

from backstream.runs.home import Home
from backstream.source.prepared import BatchCounts, PreparedBatch, PreparedSource, describe_input_file
from backstream.source.raw_files import RawFile

COUNTS = BatchCounts(2, 2, 0, 0)


@pytest.mark.parametrize(
    ("names", "text"), [(["a.json"], "/data/a.json"), (["a.json", "b.json", "c.json"], "/data/a.json and 2 more")]
)
def test_a_prepared_file_is_named_by_the_raw_files_of_its_batch(
    tmp_path: Path, names: list[str], text: str
) -> None:
    source = PreparedSource(Home(tmp_path / "home").path / "prepared/orders/0123")
    with source.new_batch() as draft:
        source.add_batch(PreparedBatch(draft, tuple(RawFile(f"/data/{name}", 1, 0) for name in names), COUNTS))
    (batch,) = source.batches()

    assert describe_input_file(f"{batch.folder}/part-0.parquet") == text


@pytest.mark.parametrize("path", ["/data/batch-1/a.parquet", "/home/prepared/x/0123/batch-gone/a.parquet", "a"])
def test_another_file_keeps_its_path(path: str) -> None:
    assert describe_input_file(path) == path
