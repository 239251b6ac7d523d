"""Text files are read as they are, or rewritten so that each record is on a line of its own, or rejected."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path

import pytest

from backstream.native.preparation.task import Piece
from backstream.native.preparation.text_check import TextFileError, is_ordinary, rewrite_text
from backstream.native.preparation.text_form import TextForm

Lines = list[tuple[int, str]]


@dataclass(frozen=True)
class Rewritten:
    """The records and the lines without a record, each with the number of its line."""

    records: Lines
    rejected: Lines


def read(path: Path, content: bytes, form: TextForm) -> Rewritten | None:
    """Return the lines in place of a file; None if it is read as it is."""
    path.write_bytes(content)
    piece = Piece(str(path), "", len(content))
    if is_ordinary(piece, form):
        return None
    text = rewrite_text(piece, form, f"{path}~text")
    found = []
    for each in (text.records, text.rejected):
        lines = Path(each).read_bytes().decode().split("\n")[1:-1] if each else []
        found.append(list(zip(text.numbers_by_path.get(each or "", []), lines, strict=True)))
    return Rewritten(*found)


ORDINARY = {
    "one object per line": b'{"a":1}\n{"a":2}\n',
    "no newline at the end": b'{"a":1}\n{"a":2}',
    "all kinds of newlines, empty lines": b'{"a":1}\r\n\r{"a":2}\r \n',
    "a comma at the end of a line": b'{"a":1},\n',
    "space around a value": b'  {"a":1} \t\n',
    "an array on a line": b'[{"a":1},{"a":2}]\n',
    "a line that Spark refuses": b'not JSON\n{"a":1}\n{"a":\n5\nnull\n',
    "quotes that only Spark accepts": b"{'a':1}\n",
    "braces in texts": b'{"a":"}{"}\n{"b":"\\"}{"}\n',
    "a byte order mark": b'\xef\xbb\xbf{"a":1}\n',
    "a pair of surrogates": b'{"a":"\\ud83d\\ude00 \\\\ud800"}\n',
}


@pytest.mark.parametrize("name", ORDINARY)
def test_spark_reads_an_ordinary_file_of_json_lines(tmp_path: Path, name: str) -> None:
    assert read(tmp_path / "a.json", ORDINARY[name], TextForm("json")) is None


JSON_LINES = {
    b'{"a":1}{"a":2}\n{"a":3}\n': Rewritten([(1, '{"a":1}'), (1, '{"a":2}'), (2, '{"a":3}')], []),
    b'{"a":1},{"a":2} {"a":"}"}\n': Rewritten([(1, '{"a":1}'), (1, '{"a":2}'), (1, '{"a":"}"}')], []),
    b"{'a':1}{'a':'{'}\n": Rewritten([(1, "{'a':1}"), (1, "{'a':'{'}")], []),
    b'\n,{"a":1}\n': Rewritten([(2, '{"a":1}')], []),
    b'{"a":1.10}\n{"a":2} rest\n': Rewritten([(1, '{"a":1.10}')], [(2, '{"a":2} rest')]),
    b'{"a":1}}\n': Rewritten([], [(1, '{"a":1}}')]),
    b'{"a":1}{"a":\n': Rewritten([], [(1, '{"a":1}{"a":')]),
    b'{"a":1} 5\n': Rewritten([], [(1, '{"a":1} 5')]),
    b'{"a":"\xff"}\n{"a":1}\n': Rewritten([(2, '{"a":1}')], [(1, '{"a":"\\xff"}')]),
    b'{"a":"\\ud800"}\n': Rewritten([], [(1, '{"a":"\\ud800"}')]),
}


@pytest.mark.parametrize("content", JSON_LINES)
def test_each_record_of_a_line_of_json_is_found_or_the_line_is_rejected(tmp_path: Path, content: bytes) -> None:
    assert read(tmp_path / "a.json", content, TextForm("json")) == JSON_LINES[content]


def test_a_line_of_any_length_is_split(tmp_path: Path) -> None:
    text = "x" * 1_000_000
    found = read(tmp_path / "a.json", b"".join(b'{"a":"%s"}' % text.encode() for _ in range(17)), TextForm("json"))
    assert found == Rewritten([(1, f'{{"a":"{text}"}}')] * 17, [])


@pytest.mark.parametrize(
    ("records", "content", "expected"),
    [
        (
            "",
            b'[\n {"a":\n1},\n {"a":2}]\n{"a":3}',
            Rewritten([(2, '{"a": 1}'), (4, '{"a":2}'), (5, '{"a":3}')], []),
        ),
        ("", b'[{"a":1}, 5, {"a":"x\ny"}]', Rewritten([(1, '{"a":1}')], [(1, "5"), (1, '{"a":"x y"}')])),
        ("", b'{"a":', Rewritten([], [(1, '{"a":')])),
        ("", b"[]", Rewritten([], [])),
        (
            "Records",
            b'{"id":7,"Records":[{"a":1},{"a":2}]}\n{"Records":[]}\n{"b":{"Records":[1]}}',
            Rewritten([(1, '{"a":1}'), (1, '{"a":2}')], [(3, '{"b":{"Records":[1]}}')]),
        ),
        ("d.items", b'{"d":{"x":[1,{"items":2}],"items":[{"a":1}]}}', Rewritten([(1, '{"a":1}')], [])),
        ("Records", b'{"Records":{"a":1}}', Rewritten([(1, '{"a":1}')], [])),
    ],
)
def test_records_can_be_in_arrays_and_have_several_lines(
    tmp_path: Path, records: str, content: bytes, expected: Rewritten
) -> None:
    form = TextForm.from_options("json", {"multiLine": "true"}, records or None)
    assert read(tmp_path / "a.json", content, form) == expected


@pytest.mark.parametrize(
    ("encoding", "content", "expected"),
    [
        ("ISO-8859-1", b'{"a":"\xe9"}\n', Rewritten([(1, '{"a":"\u00e9"}')], [])),
        (
            "windows-1252",
            b'{"a":"\x80"}\n{"a":"\x81"}',
            Rewritten([(1, '{"a":"\u20ac"}')], [(2, '{"a":"\\x81"}')]),
        ),
        (
            "UTF-16",
            '{"a":"\u00e9"}\r\n{"a":2}'.encode("utf-16"),
            Rewritten([(1, '{"a":"\u00e9"}'), (2, '{"a":2}')], []),
        ),
        (
            "UTF-16BE",
            '\ufeff{"a":1}{"a":2}\n'.encode("utf-16-be"),
            Rewritten([(1, '{"a":1}'), (1, '{"a":2}')], []),
        ),
    ],
)
def test_a_file_is_read_in_its_encoding(
    tmp_path: Path, encoding: str, content: bytes, expected: Rewritten
) -> None:
    form = TextForm.from_options("json", {"encoding": encoding})
    assert read(tmp_path / "a.json", content, form) == expected


CSV_LINES = {
    b"a,b\n1,2\n": None,
    b'a,b\n"1",2\n"x,y","z" \n"",\n 5" pipe,3\n': None,
    b"a,b\n \t \n1,\x002\n": None,
    b'a,b\n"1,2\n3,4\n': Rewritten([(1, "a,b"), (3, "3,4")], [(2, '"1,2')]),
    b'a,b\n"x"y,2\n': Rewritten([(1, "a,b")], [(2, '"x"y,2')]),
    b"a,b\n\x00\x00\n1,2\n": Rewritten([(1, "a,b"), (3, "1,2")], [(2, "\x00\x00")]),
    b"a,b\n1,\xff\n1,2\n": Rewritten([(1, "a,b"), (3, "1,2")], [(2, "1,\\xff")]),
}


@pytest.mark.parametrize("content", CSV_LINES)
def test_lines_of_csv_whose_cells_are_not_clear_are_rejected(tmp_path: Path, content: bytes) -> None:
    assert read(tmp_path / "a.csv", content, TextForm("csv", has_header=True)) == CSV_LINES[content]


def test_empty_cells_between_tabs_are_a_record(tmp_path: Path) -> None:
    form = TextForm.from_options("csv", {"sep": "\\t"})
    assert read(tmp_path / "a.tsv", b"\t\n1\t\n", form) == Rewritten([(2, "1\t")], [(1, "\t")])


ESCAPE = "set source.options.escape = '\"'"
REFUSED = [
    (
        TextForm("json"),
        '{"a":1}'.encode("utf-16"),
        'its encoding is UTF-16: set source.options.encoding = "UTF-16"',
    ),
    (
        TextForm("json"),
        '{"a":1}'.encode("utf-16-le"),
        'its encoding is UTF-16LE: set source.options.encoding = "UTF-16LE"',
    ),
    (
        TextForm("json", "utf-16"),
        '{"a":1}'.encode("utf-16-le"),
        'it has no byte order mark: set source.options.encoding = "UTF-16LE" or "UTF-16BE", not "UTF-16"',
    ),
    (
        TextForm("csv", "utf-16-le"),
        b"1\0\n\0\n\0\x00\xd8\n\0",
        (
            "line 3 has bytes that are not UTF-16-LE: set source.options.encoding to the encoding of the file,"
            ' e.g., "windows-1252"'
        ),
    ),
    (
        TextForm("json"),
        b"\x1f\x8b\x08rest",
        "it is compressed with gzip, and its name does not end with .gz: rename it",
    ),
    (
        TextForm("json", is_multi_line=True),
        b'[{"a":1},\n{"a":',
        "it is no JSON in line 2: a value has no end: '{\"a\":'",
    ),
    (TextForm("json", records=("r",)), b'{"r":[{"a":1},', "it is no JSON in line 1: it ends within a value"),
    (TextForm("json", records=("r",)), b'{"r":', "it is no JSON in line 1: it ends within a value"),
    (
        TextForm("csv"),
        b'1,2\n"say ""hi""",2\n',
        f'line 2 can be read only if quotes within quotes are doubled: {ESCAPE}, got \'"say ""hi""",2\'',
    ),
    (TextForm("csv", has_header=True), b'"a,b\n1,2\n', "its header cannot be read: '\"a,b'"),
    (
        TextForm("csv", is_multi_line=True),
        b'a,b\n"1\n2",3\n"4,5\n',
        (
            "a quote in line 4 is not closed before a separator (unexpected end of data);"
            f" for doubled quotes within quotes, {ESCAPE}"
        ),
    ),
]


def test_a_file_that_is_compressed_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TextFileError) as caught:
        read(tmp_path / "a.json.gz", gzip.compress(gzip.compress(b"{}")), TextForm("json"))
    assert str(caught.value) == "it is compressed with gzip twice: decompress it once"


@pytest.mark.parametrize(("form", "content", "reason"), REFUSED)
def test_a_file_that_cannot_be_read_in_its_form_is_refused(
    tmp_path: Path, form: TextForm, content: bytes, reason: str
) -> None:
    with pytest.raises(TextFileError) as caught:
        read(tmp_path / "a", content, form)
    assert str(caught.value) == reason
