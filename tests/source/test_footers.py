"""Footers are read once for as long as a file is the same, and say what they would say if they were read again."""

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


def both(folder: Path, text: str = CLICKS) -> tuple[FileInspection, FileInspection]:
    """What is kept of the footers, and what they say."""
    home = Home(folder / "home")
    definition = resolve_paths(load_definition(write_definition(folder, text)), home)
    found = list_source_files(definition.source, "here")
    return load_footers(found, definition, home).inspect(), inspect_files(found, definition.timed_source)


def click(day: int, page: str = "home") -> tuple[object, ...]:
    return (at(f"{day} 05:00"), at(f"{day} 07:00"), "A", day, page)


def test_what_is_kept_is_what_the_footers_say_as_files_come_change_and_go(tmp_path: Path) -> None:
    for day in (1, 2, 3):
        write_clicks(tmp_path / f"data/{day}.parquet", [click(day)])
    write_clicks(tmp_path / "data/empty.parquet", [])
    wider = dict(COLUMNS) | {"referrer": pa.string(), "seen_at": INSTANT}
    write_clicks(tmp_path / "data/wider.parquet", [(*click(4), "a", at("4 05:00"))], wider)
    (tmp_path / "data/damaged.parquet").write_bytes(b"no Parquet")

    for _ in range(2):
        kept, said = both(tmp_path)
        assert kept == said
    write_clicks(tmp_path / "data/2.parquet", [click(2), click(5)])
    (tmp_path / "data/3.parquet").unlink()
    write_clicks(tmp_path / "data/damaged.parquet", [click(6)])
    (tmp_path / "data/1.parquet").write_bytes(b"no Parquet any more")

    for _ in range(2):
        kept, said = both(tmp_path)
        assert kept == said
    assert [Path(file.path).stem for file in kept.inputs] == ["2", "damaged", "empty", "wider"]
    assert [Path(file.path).stem for file in kept.damaged] == ["1"]


def test_a_file_of_the_same_size_and_time_of_change_is_known_to_be_another(tmp_path: Path) -> None:
    file = tmp_path / "data/1.parquet"
    write_clicks(file, [click(1)])
    both(tmp_path)
    was = file.stat()

    write_clicks(file, [click(2)])
    os.utime(file, ns=(was.st_atime_ns, was.st_mtime_ns))

    assert file.stat().st_size == was.st_size
    kept, said = both(tmp_path)
    assert kept == said


def test_other_columns_of_time_have_other_bounds(tmp_path: Path) -> None:
    write_clicks(tmp_path / "data/1.parquet", [click(1)])

    for text in (CLICKS, OTHER, CLICKS):
        kept, said = both(tmp_path, text)
        assert kept == said
