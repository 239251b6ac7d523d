"""Numbers of text files whose digits the declared type cannot hold are counted, whoever reads the files."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import backstream
from backstream.cli.check import _inexact_lines
from backstream.errors import QualityError
from backstream.native.preparation.exact_lines import ExactLines
from backstream.native.preparation.lines import Lines
from backstream.native.preparation.task import TextSpec, TimeSpec
from backstream.native.preparation.text_form import TextForm
from backstream.runs.home import Home
from backstream.runs.input_files import InexactNumbers
from backstream.workflow.checks.check_sample import check_sample
from backstream.workflow.inputs.prepare import prepare_source
from backstream.workflow.inputs.prepared_batches import PreparedFiles
from backstream.workflow.runners import SparkRunner

TYPES = {
    "double": ("1765233417000000001", "0.5"),
    "float": ("0.123456789", "0.1"),
    "decimal(10,2)": ("1.235", "1.2300"),
}
DEFINITION = """
name = "orders"
[source]
format = "{format}"
path = "{folder}"
event_time = "at"
columns = {{ at = "string", other = "double", {columns} }}
{source}
[window]
kind = "tumbling"
size = "1h"
[aggregates]
n = "count(*)"
values = "max({value})"
[backfill]
engine = "{engine}"
"""


def prepare(spark: SparkSession, folder: Path, **parts: str) -> PreparedFiles:
    """Prepare the files in a folder by a definition with these parts."""
    given = {"engine": "auto", "format": "json", "source": "", "value": "x", "folder": str(folder)} | parts
    path = folder.parent / f"{folder.name}.toml"
    path.write_text(DEFINITION.format_map(given))
    prepared = prepare_source(path, Home(folder.parent / f"{folder.name}-home"), SparkRunner(lambda: spark))
    assert prepared is not None
    return prepared


def write_lines(folder: Path, name: str, lines: Sequence[str]) -> str:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(f"{line}\n" for line in lines))
    return str(folder / name)


@pytest.mark.parametrize("engine", ["auto", "spark"])
def test_json_numbers_that_a_type_cannot_hold_are_counted(
    spark: SparkSession, tmp_path: Path, engine: str
) -> None:
    columns = ", ".join(f'x{number} = "{kind}"' for number, kind in enumerate(TYPES))
    lines = [
        json.dumps({"at": f"2024-03-01T00:{row % 60:02}:00Z", "other": 0.5})[:-1]
        + "".join(f', "x{number}": {texts[row > 0]}' for number, texts in enumerate(TYPES.values()))
        + "}"
        for row in range(400)
    ]
    path = write_lines(tmp_path / "data", "a.json", lines)

    prepared = prepare(spark, tmp_path / "data", engine=engine, columns=columns, value="x0 + x1 + x2", source="")

    assert prepared.inexact == (
        InexactNumbers("x0", "double", 1, "1765233417000000001", "1.765233417e+18", path),
        InexactNumbers("x1", "float", 1, "0.123456789", "0.12345679", path),
        InexactNumbers("x2", "decimal(10,2)", 1, "1.235", "1.24", path),
    )


DOUBLES = {
    "1": 0, "9007199254740992": 0, "9007199254740993": 1, "0.1234567890123456": 0, "0.12345678901234567891": 1,
    "40.712775999999998": 0, "-1e-400": 1, "1e400": 1, "12345678.123456789": 0, "1234567890123456789e-9": 1,
    "0.10000000000000001": 0, "-1765233417000000001": 1, "1E+2": 0, "1.5e300": 0,
}  # fmt: skip
"""True by the number if its digits get lost in a double."""


@pytest.mark.parametrize("form", ['"x": %s', '"x":%s', '"x" :\t %s', '"\\u0078": %s', '"p": {"x": %s}'])
def test_native_reader_leaves_inexact_numbers_to_spark(form: str) -> None:
    spec = TextSpec(
        TextForm("json"),
        {"x": "double", "id": "bigint", "p": {"x": "double"}},
        TimeSpec("event_time", ("at",)),
        None,
        {"x": ("x",), "p_x": ("p", "x")},
    )
    texts = [text for text in DOUBLES if text != "1e400"]  # the parser finds numbers above all doubles
    texts += random.Random(1).sample(texts * 50, 500)  # noqa: S311
    ids = ["1765233417000000001", "7"]
    lines = [
        f'{{"id": {ids[row % 2]}, {form % text}, "at": "2024-03-01T00:00:00.123456Z", "e-100": "e-100"}}'
        for row, text in enumerate(texts)
    ]
    found, _ = Lines.from_block("".join(f"{line}\n" for line in lines).encode())

    is_exact = ExactLines(spec).find(found)

    wrong = [text for text, exact in zip(texts, is_exact, strict=True) if exact == DOUBLES[text]]
    assert wrong == []


CSV_COLUMNS = 'x = "double", "a b" = "decimal(10,2)", unread = "double"'


@pytest.mark.parametrize("text", ["9007199254740993", "+0.12345678901234567891", " 1e400 "])
def test_csv_numbers_are_counted_in_the_columns_that_are_read(
    spark: SparkSession, tmp_path: Path, text: str
) -> None:
    longer = write_lines(
        tmp_path / "data", "a.csv", ["at,a b,x,unread", f"2024-03-01T00:00:00Z,1.5,{text},{text}"]
    )
    write_lines(tmp_path / "data", "b.csv", ["x,at", "NaN,2024-03-01T00:00:00Z", f"{text},2024-03-01T00:00:00Z"])
    write_lines(tmp_path / "data", "c.csv", ["x,at", "Infinity,2024-03-01T00:00:00Z", "1e5,2024-03-01T00:00:00Z"])

    prepared = prepare(
        spark,
        tmp_path / "data",
        format="csv",
        columns=CSV_COLUMNS,
        source='options = { header = "true" }\nwhere = "`a b` is null or `a b` > 0"',
    )

    stored = repr(float(text))
    assert prepared.inexact == (InexactNumbers("x", "double", 2, text.strip(), stored, longer),)
    assert f"5 records, 2 numbers of column 'x' (double), e.g., {text.strip()} is stored as {stored} (" in str(
        prepared
    )


def test_inexact_numbers_are_found_in_fields_lists_and_maps(spark: SparkSession, tmp_path: Path) -> None:
    lines = [
        '{"at": "2024-03-01T00:00:00Z", "p": {"q": [{"r": 1.5}, null, {"r": 9007199254740993}], "s": 1e400}}',
        '{"at": "2024-03-01T00:00:00Z", "m": {"a": [0.12345678901234567891, 2], "b": null}, "l": [[1e400]]}',
        '{"at": "2024-03-01T00:00:00Z", "p": null, "m": null, "l": null}',
        '{"at": "2024-03-01T00:00:00Z", "p": {"q": null}, "m": {}, "l": [null, []]}',
    ]
    path = write_lines(tmp_path / "data", "a.json", lines)
    columns = (
        'p = "struct<q: array<struct<r: double>>, s: double>", m = "map<string, array<double>>",'
        ' l = "array<array<double>>"'
    )

    prepared = prepare(spark, tmp_path / "data", columns=columns, value="p.q[0].r + m['a'][0] + l[0][0]")

    assert [(each.column, each.count, each.text) for each in prepared.inexact] == [
        ("p.q.r", 1, "9007199254740993"),
        ("m", 1, "0.12345678901234567891"),
        ("l", 1, "1e400"),
    ]
    assert {each.path for each in prepared.inexact} == {path}


def write_tweets(folder: Path) -> Path:
    rows = [f"{1765233417000000000 + number},2024-03-01T00:{number:02}:00Z" for number in range(60)]
    write_lines(folder / "data", "a.csv", ["x,at", *rows])
    text = DEFINITION.format(
        folder=folder / "data",
        format="csv",
        columns='x = "double"',
        source='options = { header = "true" }',
        value="x",
        engine="auto",
    )
    (folder / "tweets.toml").write_text(text)
    return folder / "tweets.toml"


def test_ids_of_19_digits_in_a_double_are_not_published(tmp_path: Path) -> None:
    definition = write_tweets(tmp_path)
    found = (
        "59 numbers of column 'x' (double), e.g., 1765233417000000001 is stored as 1.765233417e+18"
        f" ({tmp_path}/data/a.csv)"
    )

    with pytest.raises(QualityError, match=re.escape(f"{found}; 23 of 24 windows have no event")):
        backstream.run(definition, "2024-03-01", "2024-03-02", home=tmp_path / "home", allow_unsealed=True)


def test_a_sample_shows_inexact_numbers(spark: SparkSession, tmp_path: Path) -> None:
    sample = check_sample(spark, write_tweets(tmp_path), 10, Home(tmp_path / "home"))

    path = tmp_path / "data" / "a.csv"
    found = "9 numbers of column 'x' (double), e.g., 1765233417000000001 is stored as 1.765233417e+18"
    assert [*_inexact_lines(sample)] == [
        f"inexact: {found} ({path}); above 1 %, nothing is published (quality.inexact_ratio)",
        "  in source.columns, declare a type that holds all digits: bigint, decimal(38,9), or string",
    ]
