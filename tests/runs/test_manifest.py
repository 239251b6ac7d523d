"""Test manifests: their file, their atomic replacement, and the sum of fates."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from backstream.errors import LedgerError
from backstream.runs.manifest import Manifest, StagedFile, sum_fates
from backstream.storage.files import write_text

MANIFEST = Manifest(
    run_id="cli.0123",
    chunk_id="0000",
    attempt="a1",
    events_read=6,
    fates={"A": {"on_time": 3, "halo": 1}, "B": {"quarantined": 2}},
    files={"": (StagedFile("/lake/part-0.parquet", 100, 3),), "metrics": ()},
    timings_s={"fates": 1.5},
    finished_at="2013-02-01T05:00:00+00:00",
)


def test_a_manifest_is_read_back_unchanged(tmp_path: Path) -> None:
    file = tmp_path / "chunks" / "0000.json"

    MANIFEST.write(file)

    assert Manifest.read(file) == MANIFEST


def test_a_manifest_is_replaced_whole_and_leaves_no_draft(tmp_path: Path) -> None:
    file = tmp_path / "0000.json"
    MANIFEST.write(file)

    replace(MANIFEST, events_read=7).write(file)

    assert Manifest.read(file).events_read == 7
    assert [path.name for path in tmp_path.iterdir()] == ["0000.json"]


def test_a_reader_sees_the_whole_old_manifest_during_a_replacement(tmp_path: Path) -> None:
    file = tmp_path / "0000.json"
    MANIFEST.write(file)
    old = file.read_text()

    with file.open() as reader:
        replace(MANIFEST, events_read=7).write(file)

        assert reader.read() == old


def test_a_failed_write_does_not_change_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    write_text(file, "old")

    with pytest.raises(UnicodeEncodeError):
        write_text(file, "new \ud800")

    assert file.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_an_unfinished_chunk_has_no_manifest(tmp_path: Path) -> None:
    with pytest.raises(LedgerError) as refused:
        Manifest.read(tmp_path / "0000.json")

    assert str(refused.value) == f"no manifest at {tmp_path}/0000.json"


def test_the_sum_of_fates_leaves_out_the_halo() -> None:
    next_chunk = replace(MANIFEST, chunk_id="0001", fates={"A": {"on_time": 1, "late": 4}, "C": {"halo": 9}})

    assert sum_fates([MANIFEST, next_chunk]) == {
        "A": {"on_time": 4, "late": 4},
        "B": {"quarantined": 2},
        "C": {},
    }
