"""Test that cached footers equal the footers of the files after every change."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
from tests.workflow.history import CLICKS, COLUMNS, INSTANT, at, write_clicks, write_definition

from backstream.definition.loader import load_definition, resolve_paths
from backstream.runs.home import Home
from backstream.source.files import FileInspection, inspect_files, list_source_files
from backstream.source.footers import load_footers

OTHER = CLICKS.replace('event_time = "happened_at"', 'event_time = "arrived_at"')


def inspect_both(folder: Path, text: str = CLICKS) -> tuple[FileInspection, FileInspection]:
    """Return the inspection from the cache and a fresh one."""
    home = Home(folder / "home")
    definition = resolve_paths(load_definition(write_definition(folder, text)), home)
    files = list_source_files(definition.source, "here")
    return load_footers(files, definition, home).inspect(), inspect_files(files, definition.timed_source)


def click(day: int, page: str = "home") -> tuple[object, ...]:
    return (at(f"{day} 05:00"), at(f"{day} 07:00"), "A", day, page)


def test_the_cache_follows_new_changed_and_removed_files(tmp_path: Path) -> None:
    for day in (1, 2, 3):
        write_clicks(tmp_path / f"data/{day}.parquet", [click(day)])
    write_clicks(tmp_path / "data/empty.parquet", [])
    wider = dict(COLUMNS) | {"referrer": pa.string(), "seen_at": INSTANT}
    write_clicks(tmp_path / "data/wider.parquet", [(*click(4), "a", at("4 05:00"))], wider)
    (tmp_path / "data/damaged.parquet").write_bytes(b"no Parquet")

    for _ in range(2):
        cached, fresh = inspect_both(tmp_path)
        assert cached == fresh
    write_clicks(tmp_path / "data/2.parquet", [click(2), click(5)])
    (tmp_path / "data/3.parquet").unlink()
    write_clicks(tmp_path / "data/damaged.parquet", [click(6)])
    (tmp_path / "data/1.parquet").write_bytes(b"no Parquet any more")

    for _ in range(2):
        cached, fresh = inspect_both(tmp_path)
        assert cached == fresh
    assert [Path(file.path).stem for file in cached.inputs] == ["2", "damaged", "empty", "wider"]
    assert [Path(file.path).stem for file in cached.damaged] == ["1"]


def test_a_rewritten_file_of_the_same_size_and_modification_time_is_detected(tmp_path: Path) -> None:
    file = tmp_path / "data/1.parquet"
    write_clicks(file, [click(1)])
    inspect_both(tmp_path)
    before = file.stat()

    write_clicks(file, [click(2)])
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))

    assert file.stat().st_size == before.st_size
    cached, fresh = inspect_both(tmp_path)
    assert cached == fresh


def test_other_time_columns_have_other_bounds(tmp_path: Path) -> None:
    write_clicks(tmp_path / "data/1.parquet", [click(1)])

    for text in (CLICKS, OTHER, CLICKS):
        cached, fresh = inspect_both(tmp_path, text)
        assert cached == fresh
