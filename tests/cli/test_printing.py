from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal

import pyarrow as pa
import pyarrow.ipc
import pytest

from backstream.cli.output import print_rows
from backstream.text import RowFormat

ROWS = pa.table(
    {
        "at": pa.array([datetime(2013, 2, 1, 5, tzinfo=UTC)], pa.timestamp("us", tz="UTC")),
        "day": [date(2013, 2, 1)],
        "fare": [Decimal("1.10")],
        "mean": [float("nan")],
        "name": ["a,b"],
        "none": pa.array([None], pa.string()),
        "is_late": [True],
    }
)


@pytest.mark.parametrize(
    ("form", "said"),
    [
        (
            RowFormat.JSON,
            (
                '{"at": "2013-02-01T05:00Z", "day": "2013-02-01", "fare": "1.10", "mean": "nan", "name": "a,b",'
                ' "none": null, "is_late": true}\n'
            ),
        ),
        (
            RowFormat.CSV,
            'at,day,fare,mean,name,none,is_late\n2013-02-01T05:00Z,2013-02-01,1.10,nan,"a,b",,true\n',
        ),
        (
            RowFormat.TABLE,
            (
                "at                 day         fare  mean  name  none  is_late\n"
                "2013-02-01T05:00Z  2013-02-01  1.10  nan   a,b            true\n"
            ),
        ),
    ],
)
def test_each_type_of_value_is_printed_so_that_it_reads_back(
    form: RowFormat, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_rows([ROWS], form, None)

    assert capsys.readouterr().out == said


NESTED = pa.table(
    {
        "at": pa.array([[datetime(2013, 2, 1, 5, tzinfo=UTC), None]], pa.list_(pa.timestamp("us", "UTC"))),
        "fares": pa.array([[Decimal("1.10")]]),
        "place": pa.array([{"name": "caf\u00e9", "day": date(2013, 2, 1)}]),
    }
)


@pytest.mark.parametrize(
    ("form", "said"),
    [
        (
            RowFormat.TABLE,
            (
                "at                           fares     place\n"
                '["2013-02-01T05:00Z", null]  ["1.10"]  {"name": "caf\u00e9", "day": "2013-02-01"}\n'
            ),
        ),
        (
            RowFormat.CSV,
            (
                "at,fares,place\n"
                '"[""2013-02-01T05:00Z"", null]","[""1.10""]",'
                '"{""name"": ""caf\u00e9"", ""day"": ""2013-02-01""}"\n'
            ),
        ),
        (
            RowFormat.JSON,
            (
                '{"at": ["2013-02-01T05:00Z", null], "fares": ["1.10"],'
                ' "place": {"name": "caf\\u00e9", "day": "2013-02-01"}}\n'
            ),
        ),
    ],
)
def test_the_elements_of_lists_and_structs_are_printed_as_their_types_are(
    form: RowFormat, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_rows([NESTED], form, None)

    assert capsys.readouterr().out == said


def test_no_more_tables_are_read_than_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    numbers = iter([pa.table({"n": [1, 2]}), pa.table({"n": [3]})])

    print_rows(numbers, RowFormat.CSV, 2)

    assert capsys.readouterr().out == "n\n1\n2\n"
    assert next(numbers)["n"].to_pylist() == [3]


ODD = pa.table(
    {
        "text": ["plain", 'a "word"', "two\nlines", "a\rb", "", None, "grüße 🚕", " space ", "1,5"],
        "a,name": pa.array([0.1, -0.0, 1e16, 1e-5, 1.0, None, 123456789.125, 2.0**60, 1 / 3]),
        "short": pa.array([0.1, 1.5, 3e38, 1e-5, 1.0, None, 0.0, 2.0, 7.0], pa.float32()),
        "count": pa.array([0, -1, 2**63 - 1, None, 4, 5, 6, 7, 8]),
        "fare": [*map(Decimal, ("1.1000000000", "0E-10", "-5", "0.0000001", "1", "2", "3", "4")), None],
        "seen": pa.array([True, None, False] * 3),
        "parts": [[1, 2], None, [], [3], [4, None], [5], [6], [7], [8]],
    }
)


def told(form: RowFormat, capsys: pytest.CaptureFixture[str], *tables: pa.Table) -> str:
    print_rows(tables, form, None)
    return capsys.readouterr().out


def test_text_is_written_as_the_standard_library_writes_it_row_by_row(capsys: pytest.CaptureFixture[str]) -> None:
    rows = ODD.to_pylist()
    wanted = io.StringIO()
    writer = csv.DictWriter(wanted, ODD.column_names, lineterminator="\n")
    writer.writeheader()
    as_json = ("parts", "seen")
    plain = [row | {"fare": None if row["fare"] is None else format(row["fare"], "f")} for row in rows]
    writer.writerows(
        row | {name: None if row[name] is None else json.dumps(row[name]) for name in as_json} for row in plain
    )
    expected = re.sub(r"^,", '"",', wanted.getvalue(), count=1, flags=re.MULTILINE)  # not null

    assert told(RowFormat.CSV, capsys, ODD).replace('"a\rb"', "a\rb") == expected.replace('"a\rb"', "a\rb")
    assert told(RowFormat.JSON, capsys, ODD) == "".join(json.dumps(row) + "\n" for row in plain)


def test_the_stream_of_arrow_holds_the_rows_as_they_are(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    print_rows([ODD, ODD.slice(2)], RowFormat.ARROW, 12)

    assert pa.ipc.open_stream(capfdbinary.readouterr().out).read_all() == pa.concat_tables([ODD, ODD.slice(2, 3)])


@pytest.mark.parametrize("form", [RowFormat.CSV, RowFormat.JSON])
def test_memory_does_not_grow_with_the_rows(form: RowFormat, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []

    def days() -> Iterator[pa.Table]:
        for day in range(12):
            held.append(pa.total_allocated_bytes())
            yield pa.table({"day": [day] * 60_000, "number": range(60_000), "name": ["somebody"] * 60_000})

    with open("/dev/null", "w") as nowhere:  # noqa: PTH123 - a stream
        monkeypatch.setattr("sys.stdout", nowhere)
        print_rows(days(), form, None)

    assert len(held) == 12
    assert max(held[2:]) <= 1.1 * held[1]


@pytest.mark.parametrize("form", [RowFormat.TABLE, RowFormat.CSV, RowFormat.JSON])
def test_no_value_is_printed_as_python_writes_it(form: RowFormat, capsys: pytest.CaptureFixture[str]) -> None:
    kinds = {
        "flag": pa.array([True]),
        "small": pa.array([Decimal("1E-9")], pa.decimal128(20, 9)),
        "bytes": pa.array([b"\x00\xff"]),
        "time": pa.array([time(5, 6, 7)]),
        "gone": pa.array([None], pa.int64()),
        "at": pa.array([datetime(2013, 2, 1, 5, tzinfo=UTC)], pa.timestamp("us", "UTC")),
    }
    nested = {f"{name}s": pa.array([values.to_pylist()], pa.list_(values.type)) for name, values in kinds.items()}

    text = told(form, capsys, pa.table(kinds | nested))

    assert not re.search(r"True|None|Decimal|datetime|E-9|\\x|b['\"]", text)
    assert text.count("0.000000001") == text.count("00ff") == text.count("05:06:07") == 2
