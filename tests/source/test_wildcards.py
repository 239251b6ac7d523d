"""Local files, objects, and the files of an archive follow the same rules for wildcards."""

from __future__ import annotations

from pathlib import Path

import pytest

from backstream.definition.source_section import Source
from backstream.source.archive.files import list_archive
from backstream.source.raw_files import is_wanted, list_raw_files
from backstream.source.wildcards import parts_below, split_pattern

FILES = (
    "dt=1/a.json",
    "dt=1/b.jsonl",
    "dt=1/deep/c.json",
    "dt=2/a.json",
    "dt=2/.hidden.json",
    "dt=2/_temporary/d.json",
    "dt=[x]/e.json",
    "top.json",
)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.json", ["top.json"]),
        ("dt=*", ["dt=1/a.json", "dt=1/b.jsonl", "dt=1/deep/c.json", "dt=2/a.json", "dt=[x]/e.json"]),
        ("dt=1*/", ["dt=1/a.json", "dt=1/b.jsonl", "dt=1/deep/c.json"]),
        ("dt=*/*.json", ["dt=1/a.json", "dt=2/a.json", "dt=[x]/e.json"]),
        ("**/a.json", ["dt=1/a.json", "dt=2/a.json"]),
        ("dt=?/?.json*", ["dt=1/a.json", "dt=1/b.jsonl", "dt=2/a.json"]),
        ("dt=[!1]/*", ["dt=2/a.json"]),
        ("dt=[12]/[ab].json", ["dt=1/a.json", "dt=2/a.json"]),
        ("**/deep", ["dt=1/deep/c.json"]),
        ("dt=[[]*/*", ["dt=[x]/e.json"]),
        ("dt=[x]/*", ["dt=[x]/e.json"]),  # a folder has this name
    ],
)
def test_a_pattern_names_the_same_files_everywhere(pattern: str, expected: list[str], tmp_path: Path) -> None:
    for name in FILES:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('{"at": 1}\n')
    location = f"{tmp_path}/{pattern}"
    source = Source.model_validate(
        {"path": location, "format": "json", "columns": {"at": "int"}, "event_time": "at", "event_time_unit": "s"}
    )
    local = [Path(file.path).relative_to(tmp_path).as_posix() for file in list_raw_files(source, "a.toml")]
    archived = [Path(file.path).relative_to(tmp_path).as_posix() for file in list_archive(location).files]
    root, rest = split_pattern(location)
    below = Path(root).relative_to(tmp_path).parts
    stored = [
        name
        for name in FILES
        if Path(name).parts[: len(below)] == below and is_wanted(Path(name).parts[len(below) :], rest, "json")
    ]
    assert (sorted(local), sorted(archived), sorted(stored)) == (expected, expected, expected)


def test_the_pattern_begins_at_the_first_name_with_a_wildcard() -> None:
    assert split_pattern("/data/dt=*/a.json") == ("/data", "dt=*/a.json")
    assert split_pattern("s3://bucket/orders/2024-*/**") == ("s3://bucket/orders", "2024-*/**")
    assert split_pattern("/*.json") == ("/", "*.json")
    assert split_pattern("/data/a.json") == ("/data/a.json", "")


def test_the_deepest_match_of_a_pattern_decides_the_parts_below() -> None:
    assert parts_below(("a", "b", "c.json"), "**") == ()
    assert parts_below(("a", "b", "c.json"), "a") == ("b", "c.json")
    assert parts_below(("a", "b", "c.json"), "b") is None
