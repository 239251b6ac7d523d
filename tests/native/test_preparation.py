"""Raw files are cut into pieces of lines, and only sources of a whitelist are prepared natively."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from backstream.definition.loader import load_definition
from backstream.native.preparation.line_blocks import read_line_blocks
from backstream.native.preparation.pieces import group_pieces, reason_against_file
from backstream.native.preparation.supported import reason_against_columns, reason_against_settings
from backstream.native.preparation.task import Piece, UnusualFileError


@pytest.mark.parametrize(
    "content",
    [b"", b"\n", b"a\nbc\n\ndef\ng", b"a\nbc\n\ndef\ng\n", b"abcdefg", b"a\r\nbc\r\r\nd\r\n\r\n", b"a\rb\r"],
)
def test_any_two_cuts_of_a_file_give_each_line_once(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(content)
    expected = [line + b"\n" for line in content.splitlines()]
    for first in range(len(content) + 1):
        for second in range(first, len(content) + 1):
            bounds = [(0, first), (first, second), (second, None)]
            pieces = [Piece(str(file), "", len(content), start, end) for start, end in bounds]
            blocks = [block for piece in pieces for block in read_line_blocks(piece, block_bytes=3)]
            assert all(block.endswith(b"\n") for block in blocks)
            assert b"".join(blocks).splitlines(keepends=True) == expected, (first, second)


def test_a_line_without_end_is_refused_before_it_fills_the_memory(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    size = 20_000_000
    file.write_bytes(b"x" * size)
    for start in (0, 1_000_000):
        with pytest.raises(UnusualFileError, match=r"^a line is longer than 16,000,000 bytes$"):
            next(read_line_blocks(Piece(str(file), "", size, start, size - 1), block_bytes=4_000_000))


def test_an_empty_file_is_no_compressed_file(tmp_path: Path) -> None:
    file = tmp_path / "a.json.gz"
    for content in (b"", gzip.compress(b"")):
        file.write_bytes(content)
        piece = Piece(str(file), "", len(content))
        if content:
            assert not list(read_line_blocks(piece))
            continue
        with pytest.raises(UnusualFileError, match=r"^an empty file is not compressed$"):
            next(read_line_blocks(piece))


MB = 2**20


def test_large_files_are_cut_and_small_ones_share_a_task() -> None:
    small = [Piece(f"/a/{number}.json", "", MB) for number in range(8)]
    large, packed = Piece("/a/large.json", "", 90 * MB), Piece("/a/packed.json.gz", "", 20 * MB)
    groups = group_pieces([*small, large, packed], slots=2)
    assert [[(piece.path, piece.start, piece.end) for piece in group] for group in groups] == [
        [("/a/large.json", 0, 30 * MB)],
        [("/a/large.json", 30 * MB, 60 * MB)],
        [("/a/large.json", 60 * MB, None)],
        [("/a/packed.json.gz", 0, None)],
        [(piece.path, 0, None) for piece in small],
    ]
    assert [len(group) for group in group_pieces(small, slots=1)] == [2, 2, 2, 2]
    assert [len(group) for group in group_pieces(small * 4, slots=1)] == [8, 8, 8, 8]
    assert group_pieces([], slots=2) == []


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/a b/x.json", None),
        ("/a/part-0-1", None),
        ("/a/x.log.gz", None),
        ("/a/x.txt.zst", None),
        ("/a/orders+0+0000000001.json", None),
        ("/a/x.json.bz2", "it has the suffix .bz2"),
        ("/a/x.json.GZ", "it has the suffix .GZ"),
        ("/a/x.gz.gz", "it has the suffix .gz"),
        ("/a/dt=2024-03-01/x.json", None),
        ("/a/_x.json", "its name begins with _ or ."),
        ("/a/../x.json", "its path has unusual characters"),
        ("x.json", "its path has unusual characters"),
        ("/caf\u00e9/x.json", "its path has unusual characters"),
    ],
)
def test_spark_reads_files_whose_path_has_a_meaning_for_it(path: str, reason: str | None) -> None:
    assert reason_against_file(path, "json") == reason


DEFINITION = """
name = "orders"
[source]
path = "/data"
format = "json"
event_time = "t"
arrival_time = "ms"
arrival_time_unit = "ms"
key = ["s"]
[source.columns]
t = "timestamp"
ms = "bigint"
s = "string"
n = "struct<at: string, x: int>"
[window]
kind = "tumbling"
size = "1h"
[aggregates]
count = "count(*)"
"""


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("", "", None),
        ('event_time = "t"', 'event_time = "n.at"', None),
        ('event_time = "t"', 'event_time = "n.at"\ntime_zone = "America/New_York"', None),
        ('key = ["s"]', 'key = ["s", "n.x"]', None),
        ('format = "json"', 'format = "csv"', "column n has fields"),
        ('key = ["s"]', 'key = ["s"]\noptions = { multiLine = "true" }', "source.options.multiLine is set"),
        ('key = ["s"]', 'key = ["s"]\nwhere = "s = 1"', "source.where is set"),
        ('key = ["s"]', 'key = ["s"]\nderive = { a = "1" }', "source.derive is set"),
        ('key = ["s"]', 'key = ["s"]\ntransform = "a:b"', "source.transform is set"),
        (
            'event_time = "t"',
            'event_time = "s"\nevent_time_pattern = "yyyy-MM-dd"',
            "source.event_time_pattern is set",
        ),
        ('s = "string"', 's = "array<int>"', "column s has the type array<int>"),
        ('s = "string"', 's = "string not null"', "column s has the type string not null"),
        ('s = "string"', 's = "string"\nT = "string"', "the names of the columns are not unique and plain"),
        ('s = "string"', 's = "string"\n"a.b" = "int"', "the names of the columns are not unique and plain"),
        (
            's = "string"',
            's = "string"\nprepared_file = "int"',
            "the names of the columns are not unique and plain",
        ),
        ('event_time = "t"', 'event_time = "ms"', "source.event_time is not a column with a time: ms"),
        ('event_time = "t"', 'event_time = "T"', "source.event_time is not a column with a time: T"),
        ('event_time = "t"', 'event_time = "null"', "source.event_time is not a column with a time: null"),
        ('event_time = "t"', 'event_time = "n"', "source.event_time is not a column with a time: n"),
        (
            'arrival_time = "ms"',
            'arrival_time = "ms + 1"',
            "source.arrival_time is not a column with a time: ms + 1",
        ),
        ('arrival_time = "ms"', 'arrival_time = "s"', "source.arrival_time is not a column with a time: s"),
        ('key = ["s"]', 'key = ["n"]', "n is not a plain value"),
        ('key = ["s"]', 'key = ["S"]', "S is no column of source.columns"),
        ("[window]", '[backfill]\nengine = "spark"\n[window]', "backfill.engine is spark"),
    ],
)
def test_a_whitelist_decides_which_sources_are_prepared_natively(
    old: str, new: str, reason: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "orders.toml"
    path.write_text(DEFINITION.replace(old, new))
    definition = load_definition(path)
    source = definition.source
    found = reason_against_settings(definition, source) or reason_against_columns(
        definition, source, {"dt": "date"}
    )
    assert found == reason
    if reason is None:
        by_folders = reason_against_columns(definition, source, {"dt": "double"})
        assert by_folders == "column dt has the type double"
