"""`init` reads what a run reads: encodings, forms of JSON and CSV, compressions, and each digit of a number."""

from __future__ import annotations

import gzip
import json
import tomllib
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyarrow.fs import LocalFileSystem

from backstream.errors import PlanError
from backstream.source.archive.columns import ColumnProfile, profile_columns
from backstream.source.archive.definition_text import Settings, write_definition_text
from backstream.source.archive.evidence import Evidence, evidence_lines, examine_archive
from backstream.source.archive.files import list_archive
from backstream.source.archive.sample import read_sample
from backstream.source.archive.sampled import Sample

DAY = "2026-01-01T0{}:00:00Z"
NAMES = ("Jürgen", "Zoë", "ann")


def sample_of(folder: Path, name: str, content: str | bytes) -> Sample:
    """Return the sample of a folder with one file."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_sample(list_archive(str(folder)))


def columns_of(sample: Sample) -> dict[str, ColumnProfile]:
    return {column.path: column for column in profile_columns(sample, ())}


def json_rows(names: tuple[str, ...] = NAMES) -> str:
    lines = [json.dumps({"at": DAY.format(at), "n": n}, ensure_ascii=False) for at, n in enumerate(names)]
    return "\n".join(lines) + "\n"


def csv_rows(names: tuple[str, ...] = NAMES) -> str:
    return "at,n\n" + "".join(f"{DAY.format(at)},{name}\n" for at, name in enumerate(names))


@pytest.mark.parametrize("rows", [json_rows, csv_rows])
@pytest.mark.parametrize(
    ("codec", "option"),
    [
        ("utf-8", None),
        ("utf-8-sig", None),
        ("utf-16", "UTF-16"),
        ("utf-16-le", "UTF-16LE"),
        ("utf-16-be", "UTF-16BE"),
        ("utf-32", "UTF-32"),
        ("latin-1", "ISO-8859-1"),
    ],
)
def test_text_in_a_usual_encoding_is_read_and_the_definition_names_the_encoding(
    codec: str, option: str | None, rows: Any, tmp_path: Path
) -> None:
    sample = sample_of(tmp_path / "in", "a.json" if rows is json_rows else "a.csv", rows().encode(codec))

    assert ([record["n"] for record in sample.records], sample.unreadable) == ([*NAMES], [])
    assert sample.options.get("encoding") == option


@pytest.mark.parametrize("rows", [json_rows, csv_rows])
def test_escape_sequences_tell_the_encoding_of_japanese(rows: Any, tmp_path: Path) -> None:
    content = rows(JAPANESE).encode("iso2022_jp")

    sample = sample_of(tmp_path / "in", "a.json" if rows is json_rows else "a.csv", content)

    assert [record["n"] for record in sample.records] == [*JAPANESE]
    assert sample.options["encoding"] == "ISO-2022-JP"


def test_quotes_of_windows_tell_its_encoding_from_latin_1(tmp_path: Path) -> None:
    names = ("Jürgen", "ann\u2019s", "20 €")

    sample = sample_of(tmp_path / "in", "a.csv", csv_rows(names).encode("cp1252"))

    assert [record["n"] for record in sample.records] == [*names]
    assert sample.options["encoding"] == "windows-1252"


@pytest.mark.parametrize("rows", [json_rows, csv_rows])
def test_a_line_that_is_not_in_the_encoding_is_listed_and_no_key_is_replaced(rows: Any, tmp_path: Path) -> None:
    content = rows(("Jürgen", "Zoë", "bad", "ann")).encode().replace(b"bad", b"b\xfcd\xff")

    sample = sample_of(tmp_path / "in", "a.json" if rows is json_rows else "a.csv", content)

    assert [record["n"] for record in sample.records] == ["Jürgen", "Zoë", "ann"]
    place, text = sample.unreadable[0]
    assert place == f"{tmp_path}/in/a.{'json' if rows is json_rows else 'csv'}, line {3 + (rows is csv_rows)}"
    assert "b?d?" in text


@pytest.mark.parametrize(
    "text",
    [
        '{"at": "2026-01-01", "n": "\\ud800"}\n',
        '{"at": "2026-01-01", "n": "a\\u0000b"}\n',
        "at,n\n2026-01-01,a\0b\n",
    ],
)
def test_lone_surrogates_and_nul_bytes_are_values(text: str, tmp_path: Path) -> None:
    sample = sample_of(tmp_path / "in", "a.json" if text.startswith("{") else "a.csv", text)

    assert len(sample.records) == 1
    assert columns_of(sample)["n"].distinct == 1


def test_an_unreadable_text_is_shown_with_100_printable_characters_at_most(tmp_path: Path) -> None:
    sample = sample_of(tmp_path / "in", "a.json", json_rows() + "\x1b[31m\0" + "x" * 10_000 + "\n")

    assert sample.unreadable == [(f"{tmp_path}/in/a.json, line 4", "?[31m?" + "x" * 93 + "…")]


ROW = {"at": "2026-01-01T00:00:00Z", "n": 1}
LINE = json.dumps(ROW)


@pytest.mark.parametrize(
    ("text", "count", "options"),
    [
        (f"{LINE}{LINE}\n{LINE}\n", 3, {}),
        (f"{LINE}, {LINE}\n{LINE},\n", 3, {}),
        (LINE * 4, 4, {}),
        (f"[{LINE}, {LINE}]\n[{LINE}]\n", 3, {}),
        (f"[{LINE}, {LINE}]", 2, {"multiLine": "true"}),
        (json.dumps([ROW, ROW], indent=2), 2, {"multiLine": "true"}),
        (f"[{LINE},\n{LINE}\n]", 2, {"multiLine": "true"}),
        (f"{json.dumps(ROW, indent=2)}\n{json.dumps(ROW, indent=2)}\n", 2, {"multiLine": "true"}),
    ],
)
def test_the_objects_of_json_are_read_wherever_they_stand(
    text: str, count: int, options: dict[str, str], tmp_path: Path
) -> None:
    sample = sample_of(tmp_path / "in", "a.json", text)

    assert (sample.records, sample.unreadable, sample.options) == ([ROW] * count, [], options)


@pytest.mark.parametrize(
    ("line", "text"),
    [(f"{LINE} rest", f"{LINE} rest"), (f"{LINE}{LINE[:20]}", f"{LINE}{LINE[:20]}"), ("[1, 2]", "[1, 2]")],
)
def test_a_line_with_anything_else_is_unreadable(line: str, text: str, tmp_path: Path) -> None:
    sample = sample_of(tmp_path / "in", "a.json", f"{LINE}\n{line}\n{LINE}\n")

    assert (len(sample.records), sample.unreadable) == (2, [(f"{tmp_path}/in/a.json, line 2", text)])


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (json.dumps({"Records": [ROW, ROW]}), "Records"),
        (json.dumps({"Records": [ROW, ROW]}, indent=1), "Records"),
        (json.dumps({"records": [ROW]}) + "\n" + json.dumps({"records": [ROW]}) + "\n", "records"),
        (json.dumps({"@odata.context": "https://example.com", "value": [ROW, ROW]}), "value"),
        (json.dumps({"data": {"items": [ROW, ROW], "total": 2}, "status": "ok"}), "data.items"),
        (json.dumps({"Records": []}) + json.dumps({"Records": [ROW, ROW]}), "Records"),
    ],
)
def test_records_in_an_array_within_an_object_are_read(text: str, path: str, tmp_path: Path) -> None:
    sample = sample_of(tmp_path / "in", "a.json", text)

    assert (sample.records_path, sample.records, sample.is_complete) == (path, [ROW, ROW], True)


@pytest.mark.parametrize(
    "record",
    [
        {"at": "2026-01-01T00:00:00Z", "items": [{"sku": 1}]},
        {"order": 5, "lines": [{"sku": 1}], "notes": [{"text": "x"}]},
        {"values": [1, 2]},
        {"in": {"at": "2026-01-01T00:00:00Z", "n": 1}, "out": {"at": "2026-01-01T00:00:00Z"}},
    ],
)
def test_an_object_with_fields_of_its_own_is_a_record(record: dict[str, Any], tmp_path: Path) -> None:
    sample = sample_of(tmp_path / "in", "a.json", json.dumps(record) + "\n")

    assert (sample.records_path, sample.records) == (None, [record])


@pytest.mark.parametrize(
    ("cells", "kind", "distinct"),
    [
        (["1", "22", "-3"], "bigint", 3),
        (["1765233417000000001", "1765233417000000002"], "bigint", 2),
        (["9223372036854775807", "9223372036854775808"], "decimal(38,0)", 2),
        (["1" * 39, "2"], "string", 2),
        (["1.5", "2", "1e-05", "2.0E10"], "double", 4),
        (["0.1", "1709251633.137123"], "double", 2),
        (["1709251633.137000123", "1709251633.137000124"], "decimal(19,9)", 2),
        (["1.5", "9007199254740993"], "decimal(17,1)", 2),
        (["1e5", "100000", "2e3"], "string", 3),
        (["2E3", "2E4"], "string", 2),
        (["0012", "12"], "string", 2),
        (["+49123", "49123"], "string", 2),
        (["1.1", "1.10"], "string", 2),
        (["1,234.5", "1.234,5"], "string", 2),
        (["true", "False"], "boolean", 2),
        (["1", "x", "true"], "string", 3),
        (["١٢", "12"], "string", 2),
    ],
)
def test_a_column_of_csv_has_a_type_that_keeps_each_digit(
    cells: list[str], kind: str, distinct: int, tmp_path: Path
) -> None:
    lines = ["at;n", *(f'2026-01-01;"{cell}"' for cell in cells), "2026-01-01;"]

    column = columns_of(sample_of(tmp_path / "in", "a.csv", "\n".join(lines) + "\n"))["n"]

    assert (column.kind, column.distinct, column.nulls) == (kind, distinct, 1)


@pytest.mark.parametrize(
    ("numbers", "kind"),
    [
        (["1", "2"], "bigint"),
        (["1", "1.5", "1.10"], "double"),
        (["1765233417000000001", "1.5"], "decimal(20,1)"),
        (["18446744073709551615"], "decimal(38,0)"),
        (["0.12345678901234567891"], "decimal(21,20)"),
        (["1", '"x"', "1.10"], "string"),
    ],
)
def test_a_column_of_json_has_a_type_that_keeps_each_digit(numbers: list[str], kind: str, tmp_path: Path) -> None:
    sample = sample_of(tmp_path / "in", "a.json", "".join(f'{{"n": {number}}}\n' for number in numbers))

    column = columns_of(sample)["n"]

    assert column.kind == kind
    if kind != "double":
        assert [str(value) for value in column.values] == [number.strip('"') for number in numbers]


@pytest.mark.parametrize(
    ("text", "columns", "options"),
    [
        ("at,n\n2026-01-01,1\n", ("at", "n"), {"header": "true"}),
        (",at,n\n0,2026-01-01,1\n", ("_c0", "at", "n"), {"header": "true"}),
        ("at,n,n\n2026-01-01,1,2\n", ("at", "n1", "n2"), {"header": "true"}),
        ("at,N,n\n2026-01-01,1,2\n", ("at", "N1", "n2"), {"header": "true"}),
        (" at , n\n2026-01-01,1\n", ("at", "n"), {"header": "true"}),
        ("at\tn\n2026-01-01\ta,b\n", ("at", "n"), {"header": "true", "sep": "\t"}),
        ('at|n\n2026-01-01|"a|b"\n', ("at", "n"), {"header": "true", "sep": "|"}),
        ("at\x01n\n2026-01-01\x01a,b\n", ("at", "n"), {"header": "true", "sep": "\x01"}),
        ("'at';'n'\n'2026-01-01';'a;b'\n", ("at", "n"), {"header": "true", "sep": ";", "quote": "'"}),
        ("# made by x\n# 2026, y\nat,n\n2026-01-01,1\n", ("at", "n"), {"header": "true", "comment": "#"}),
        ("#at,n\n2026-01-01,1\n2026-01-02,2\n", ("#at", "n"), {"header": "true"}),
        ("# made by x, y\n2026-01-01,1\n2026-01-02,2\n", ("column_1", "column_2"), {"comment": "#"}),
        ("#at,n\nat,n\n2026-01-01,1\n", ("at", "n"), {"header": "true", "comment": "#"}),
        ("at\n2026-01-01 06:00:00\n2026-01-01 07:00:00\n", ("at",), {"header": "true"}),
        ("2026-01-01 06:00:00\n2026-01-01 07:00:00\n", ("column_1",), {}),
        ("2026-01-01,ann\n2026-01-01,bob\n", ("column_1", "column_2"), {}),
        ("login,ann\nlogin,bob\n", ("column_1", "column_2"), {}),
        ("1st visit,2nd-visit\n2026-01-01,5\n", ("1st visit", "2nd-visit"), {"header": "true"}),
        ('at,n\n2026-01-01,"a ""b"""\n', ("at", "n"), {"header": "true", "escape": '"'}),
        ('at,n\n2026-01-01,"a \\"b\\", c"\n', ("at", "n"), {"header": "true", "escape": "\\"}),
        ('at,n\n2026-01-01,"c:\\"\n', ("at", "n"), {"header": "true", "escape": '"'}),
        ('at,n\n2026-01-01,"a\nb"\n', ("at", "n"), {"header": "true", "multiLine": "true"}),
    ],
)
def test_the_layout_of_csv_is_found(
    text: str, columns: tuple[str, ...], options: dict[str, str], tmp_path: Path
) -> None:
    sample = sample_of(tmp_path / "in", "a.csv", text)

    assert (sample.columns, {"sep": ",", **options}, sample.unreadable) == (columns, sample.options, [])


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "zstandard", "bzip2", "xz"])
def test_avro_of_each_compression_is_read(codec: str, tmp_path: Path) -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "at", "type": "string"}]}
    rows = [{"at": DAY.format(hour)} for hour in range(10)]
    (tmp_path / "in").mkdir()
    with (tmp_path / "in/a.avro").open("wb") as file:
        fastavro.writer(file, schema, rows, codec=codec)

    assert read_sample(list_archive(str(tmp_path / "in"))).records == rows


def test_nanoseconds_of_avro_are_refused_since_no_run_reads_them(tmp_path: Path) -> None:
    kind = {"type": "long", "logicalType": "timestamp-nanos"}
    schema = {"type": "record", "name": "r", "fields": [{"name": "at", "type": kind}]}
    (tmp_path / "in").mkdir()
    with (tmp_path / "in/a.avro").open("wb") as file:
        fastavro.writer(file, schema, [{"at": 1_767_225_600_000_000_000}])

    with pytest.raises(PlanError) as raised:
        read_sample(list_archive(str(tmp_path / "in")))

    assert str(raised.value) == (
        f"no record in {tmp_path}/in can be read as avro (--from)\n  {tmp_path}/in/a.avro:"
        " Spark cannot read its type timestamp-nanos: write it with timestamp-micros"
    )


def test_a_missing_library_is_named_instead_of_unreadable_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = "snappy codec is supported but you need to install one of the following libraries: ('cramjam',)"

    def fail(_: Any) -> Any:
        raise ValueError(message)

    monkeypatch.setattr(fastavro, "reader", fail)
    (tmp_path / "a.avro").write_bytes(b"Obj\x01")

    with pytest.raises(PlanError) as raised:
        read_sample(list_archive(str(tmp_path)))

    assert str(raised.value) == (
        f"cannot read {tmp_path}/a.avro: its records are compressed with snappy, and the Python library for it is"
        ' missing\n\nhint: pip install "fastavro[snappy,zstandard]"'
    )


UNUSUAL = ("a.b", "user id", "x[0]", "@timestamp", "k-v", "q`t", 'd"q', "naïve", "plain")


def evidence_of(folder: Path, name: str, text: str) -> Evidence:
    folder.mkdir()
    (folder / name).write_text(text)
    return examine_archive(str(folder), None)


def test_columns_with_unusual_names_are_described_and_written_quoted(tmp_path: Path) -> None:
    record = {**dict.fromkeys(UNUSUAL, "v"), "in": {"c.d": 1, "e f": {"g": "x"}}}
    lines = [json.dumps({**record, "time of": DAY.format(hour)}) for hour in range(4)]

    evidence = evidence_of(tmp_path / "in", "a.json", "\n".join(lines) + "\n")
    content = tomllib.loads(write_definition_text(evidence, Settings("t")))

    assert [column.sql for column in evidence.columns] == [
        *("`a.b`", "`user id`", "`x[0]`", "`@timestamp`", "`k-v`", "`q``t`", '`d"q`', "`naïve`", "plain"),
        *("in.`c.d`", "in.`e f`.g", "`time of`"),
    ]
    assert content["source"]["event_time"] == "`time of`"
    assert content["source"]["columns"] == {
        **dict.fromkeys(UNUSUAL, "string"),
        "in": "struct<`c.d`: bigint, `e f`: struct<g: string>>",
        "time of": "string",
    }


def test_a_column_that_no_definition_can_name_is_listed_with_its_reason(tmp_path: Path) -> None:
    row = {"at": DAY.format(1), "": 1, "Kind": "a", "kind": "b", "\ud800": 2}

    evidence = evidence_of(tmp_path / "in", "a.json", f"{json.dumps(row)}\n")

    lines = [
        "left out: '', because its name is empty",
        "left out: 'kind', because it differs from 'Kind' only in upper and lower case",
        "left out: '?', because its name is not text",
    ]
    assert [line for line in evidence_lines(evidence) if line.startswith("left out")] == lines
    assert write_definition_text(evidence, Settings("t")).partition("[source.columns]\n")[2].splitlines()[:5] == [
        'at = "string"',
        'Kind = "string"',
        *(f"# {line}" for line in lines),
    ]


def test_an_encoding_that_nothing_proves_is_called_a_guess(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.csv").write_bytes(csv_rows(("J\xfcrgen", "20 \u20ac")).encode("cp1252"))

    lines = [*evidence_lines(examine_archive(str(tmp_path / "in"), None))]

    assert lines[-1] == (
        "encoding: windows-1252 is a guess, since the text is not UTF-8, e.g., 'J\xfcrgen';"
        " if letters are wrong, change encoding in [source.options]"
    )


GERMAN = ("J\xfcrgen", "M\xfcller", "Stra\xdfe", "K\xf6ln", "B\xe4r", "ann")
JAPANESE = ("\u30c6\u30b9\u30c8", "\u6771\u4eac", "\u65e5\u672c\u8a9e")
RUSSIAN = ("\u041c\u043e\u0441\u043a\u0432\u0430", "\u041a\u0430\u0437\u0430\u043d\u044c", "ann")
POLISH = ("\u0141\xf3d\u017a", "Wroc\u0142aw", "Krak\xf3w", "Gda\u0144sk")
CHINESE = ("\u5317\u4eac", "\u4e0a\u6d77", "\u5e7f\u5dde", "\u6df1\u5733")
TURKISH = (
    "\u0130stanbul",
    "\u015ei\u015fli",
    "a\u011fa\xe7",
    "G\xfcne\u015f",
    "\xc7ankaya",
    "K\u0131rm\u0131z\u0131",
)
GREEK = ("\u0391\u03b8\u03ae\u03bd\u03b1", "\u03a0\u03ac\u03c4\u03c1\u03b1")
OTHERS = [
    *((GERMAN, codec) for codec in ("cp437", "cp850", "mac_roman")),
    *((JAPANESE, codec) for codec in ("shift-jis", "euc-jp")),
    *((RUSSIAN, codec) for codec in ("cp1251", "koi8-r", "cp866")),
    *((POLISH, codec) for codec in ("cp1250", "iso8859-2", "cp852")),
    *((CHINESE, codec) for codec in ("gbk", "gb18030")),
    *((GREEK, codec) for codec in ("cp1253", "iso8859-7")),
    *((TURKISH, codec) for codec in ("cp1254", "iso8859-9")),
]


@pytest.mark.parametrize("rows", [json_rows, csv_rows])
@pytest.mark.parametrize(("names", "codec"), OTHERS)
def test_a_text_that_is_not_of_western_europe_is_refused_with_its_option(
    names: tuple[str, ...], codec: str, rows: Any, tmp_path: Path
) -> None:
    with pytest.raises(PlanError) as raised:
        sample_of(tmp_path / "in", "a.json" if rows is json_rows else "a.csv", rows(names).encode(codec))

    message = str(raised.value)
    assert message.startswith(f"the encoding of {tmp_path}/in/a.")
    assert "source.options.encoding" in message
    if codec in ("cp437", "shift-jis", "cp1251", "cp1250", "cp1254", "gbk"):
        assert f"{names[0]!r} in " in message


@pytest.mark.parametrize(
    "names",
    [
        GERMAN,
        (
            "cr\xe9\xe9e",
            "d\xe9j\xe0",
            "l\u2019\xe9t\xe9",
            "\u201cBonjour\u201d",
            "c\u0153ur",
            "\xab\xa0mot\xa0\xbb",
        ),
        ("ma\xf1ana", "\xbfQu\xe9?", "\xa1Hola!", "1.\xba"),
        ("sm\xf8rrebr\xf8d", "\xc6r\xf8", "\xc5rhus"),
        ("\xde\xf3r\xf0ur", "\xd3lafsson", "\xcdsafj\xf6r\xf0ur"),
        ("J\xfcrgen", "M\xfcller", "K\xf6ln", "Gu\xf0run", "Zo\xeb"),
        ("20\xa0\u20ac", "10\xb0C", "5 m\xb2", "ACME\xae", "Berlin\u2013K\xf6ln", "\u201eHallo\u201c"),
    ],
)
def test_a_text_of_western_europe_is_read(names: tuple[str, ...], tmp_path: Path) -> None:
    sample = sample_of(tmp_path / "in", "a.csv", csv_rows(names).encode("cp1252"))

    assert sample.encoding in ("windows-1252", "ISO-8859-1")
    assert [record["n"] for record in sample.records] == [*names]


def test_records_by_their_names_are_refused(tmp_path: Path) -> None:
    text = json.dumps({f"e{number}": {**ROW, "number": number} for number in range(30)})

    with pytest.raises(PlanError) as raised:
        sample_of(tmp_path / "in", "a.json", text)

    assert str(raised.value) == (
        "each JSON value holds records by their names, e.g., 30 with 'e0' (--from); a run reads records on lines"
        " or in an array\n\nhint: write them on lines, e.g., by jq -c '.[]'"
    )


@pytest.mark.parametrize(("name", "format_name"), [("a.json", "json"), ("part-0", "json"), ("a.csv", "csv")])
def test_a_compression_that_the_suffix_does_not_show_is_refused_as_in_a_run(
    name: str, format_name: str, tmp_path: Path
) -> None:
    text = json_rows() if format_name == "json" else csv_rows()

    with pytest.raises(PlanError) as raised:
        sample_of(tmp_path / "in", name, gzip.compress(text.encode()))

    assert str(raised.value) == (
        f"cannot read {tmp_path}/in/{name}: it is compressed with gzip, and its name does not end with .gz"
        " (--from)\n\nhint: rename it"
    )


@pytest.mark.parametrize("suffix", [".deflate", ".lz4", ".snappy", ".xz"])
def test_other_compressions_are_refused_with_the_known_ones(suffix: str, tmp_path: Path) -> None:
    with pytest.raises(PlanError) as raised:
        sample_of(tmp_path / "in", f"a.json{suffix}", b"\x78\x9c\x01")

    assert str(raised.value) == (
        f"cannot read {tmp_path}/in/a.json{suffix}: backstream reads no text with the suffix {suffix}:"
        " compress it with gzip, bzip2, or zstd (--from)"
    )


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst", ".bz2"])
@pytest.mark.parametrize("rows", [json_rows, csv_rows])
def test_text_of_each_compression_is_read(suffix: str, rows: Any, tmp_path: Path) -> None:
    name = f"a{'.json' if rows is json_rows else '.csv'}{suffix}"
    (tmp_path / "in").mkdir()
    codec = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}.get(suffix)
    with LocalFileSystem().open_output_stream(f"{tmp_path}/in/{name}", compression=codec) as stream:
        stream.write(rows().encode("utf-16"))

    sample = read_sample(list_archive(str(tmp_path / "in")))

    assert [record["n"] for record in sample.records] == [*NAMES]


TABLE = pa.table({"at": [DAY.format(hour) for hour in range(9)], "n": list(range(9))})


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "brotli", "zstd", "lz4"])
def test_parquet_of_each_compression_is_read(codec: str, tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "a.parquet", compression=codec)

    assert read_sample(list_archive(str(tmp_path))).records == TABLE.to_pylist()


@pytest.mark.parametrize("codec", ["uncompressed", "snappy", "zlib", "lz4", "zstd"])
def test_orc_of_each_compression_is_read(codec: str, tmp_path: Path) -> None:
    orc.write_table(TABLE, tmp_path / "a.orc", compression=codec)

    assert read_sample(list_archive(str(tmp_path))).records == TABLE.to_pylist()
