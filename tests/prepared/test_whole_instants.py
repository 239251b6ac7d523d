"""Only whole instants are read, by each engine, from each format, for times and for other columns."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.definition.test_time_texts import LOCAL, NO_INSTANTS, ZONED
from tests.prepared.test_native_preparation import preparation_of, prepare_twice
from tests.prepared.test_prepared import REST, published, quarantined
from typer.testing import CliRunner

import backstream
from backstream.cli import app
from backstream.definition.prepared_columns import EVENT_TIME, REASON
from backstream.runs.home import Home
from backstream.spark.preparation.prepare import prepare_files

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
INSTANTS = {text: EPOCH + timedelta(microseconds=instant_us) for text, instant_us in {**ZONED, **LOCAL}.items()}
NO_TEXTS = [text for text in NO_INSTANTS if text.strip()]  # CSV has no empty texts
SOURCE = """
format = "{form}"
event_time = "at"
{more}
[source.columns]
at = "{kind}"
id = "bigint"
"""


def write_json(path: Path, texts: list[str]) -> None:
    path.write_text("".join(json.dumps({"at": text, "id": number}) + "\n" for number, text in enumerate(texts)))


def write_csv(path: Path, texts: list[str]) -> None:
    with path.open("w", newline="") as file:
        rows = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n")
        rows.writerows([["at", "id"], *([text, number] for number, text in enumerate(texts))])


FORMATS: Mapping[str, tuple[Callable[[Path, list[str]], None], str]] = {
    "json": (write_json, ""),
    "csv": (write_csv, 'options = { header = "true", multiLine = "true" }'),
}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", ["string", "timestamp"])
def test_each_text_is_an_instant_or_is_counted(form: str, kind: str, spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    write, more = FORMATS[form]
    files = {}
    for name, texts in (
        ("whole", [*INSTANTS]),
        ("parts", NO_TEXTS),
        ("like", ["2024-03-01T08:00:00+01:00", "2024-03-01T08:00:00+19:00"]),
    ):
        files[name] = tmp_path / "data" / f"{name}.{form}"
        write(files[name], texts)
    preparation = preparation_of(tmp_path / "data", SOURCE.format(form=form, kind=kind, more=more), ("id",))

    if form == "json":
        prepare_twice(spark, preparation, [*map(str, files.values())], tmp_path)
    else:
        prepare_files(spark, preparation, [*map(str, files.values())], tmp_path / "spark")

    rows = pq.read_table(tmp_path / "spark").to_pylist()
    by_file: dict[str, list[dict[str, Any]]] = {name: [] for name in files}
    for row in rows:
        by_file[Path(row["prepared_file"]).stem].append(row)
    whole = {row["id"]: (row[EVENT_TIME], row[REASON]) for row in by_file["whole"]}
    assert whole == {number: (instant, None) for number, instant in enumerate(INSTANTS.values())}
    assert [row[REASON] for row in by_file["parts"]] == ["unparsable_event_time"] * len(NO_TEXTS)
    assert sorted(str(row[REASON]) for row in by_file["like"]) == ["None", "unparsable_event_time"]


def test_values_of_other_columns_are_not_guessed(spark: SparkSession, tmp_path: Path) -> None:
    good = {
        "at": "2024-03-01T08:00Z",
        "n": {"t": "2024-03-01", "d": "2024-03-01T23:30-05:00"},
        "l": ["2024-03-01"],
    }
    bad = [
        {**good, "t": 1_709_280_000},
        {**good, "t": "2024"},
        {**good, "n": {"t": "08:00"}},
        {**good, "n": {"t": "2024-03-01T08:00Z"}},  # an instant is no local time
        {**good, "n": {"d": "2024-03"}},
        {**good, "l": ["2024-03-01", "x"]},
        {**good, "m": {"k": "170928"}},
    ]
    (tmp_path / "data").mkdir()
    path = tmp_path / "data" / "a.json"
    path.write_text("".join(json.dumps(each) + "\n" for each in [good, {**good, "t": None, "l": None}, *bad]))
    source = """
    format = "json"
    event_time = "at"
    [source.columns]
    at = "string"
    t = "timestamp"
    n = "struct<t: timestamp_ntz, d: date>"
    l = "array<timestamp>"
    m = "map<string, date>"
    """
    preparation = preparation_of(tmp_path / "data", source, ("t", "n.t", "n.d", "l", "m"))

    counts, _ = prepare_files(spark, preparation, [str(path)], tmp_path / "spark")

    assert (counts.read, counts.unreadable) == (9, len(bad))
    rows = [row for row in pq.read_table(tmp_path / "spark").to_pylist() if row[REASON] is None]
    values = [(str(row["n_t"]), str(row["n_d"]), row["t"]) for row in rows]
    assert values == [("2024-03-01 00:00:00", "2024-03-01", None)] * 2


def run(folder: Path, source: str) -> tuple[Home, str]:
    path = folder / "orders.toml"
    rest = f'path = "{folder}/data"\nkey = ["user"]\n{source}\n{REST.format(amount="amount")}'
    path.write_text(f'name = "orders"\n[source]\n{rest}')
    home = Home(folder / "home")
    result = backstream.run(path, "2024-03-01", "2024-03-02", home=home.path, allow_unsealed=True)
    return home, str(result.plan.prepared)


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("engine", ["native", "spark"])
def test_a_run_reads_texts_of_parquet_files_where_they_are(engine: str, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    at = ["2024-03-01T08:00Z", "20240301T080000Z", "2024-02-29T24:00", "2024", "2024-03", "08:00", "170928"]
    pq.write_table(pa.table({"at": at, "user": ["a"] * 7, "amount": [1] * 7}), tmp_path / "data/a.parquet")
    more = '[backfill]\nengine = "spark"' if engine == "spark" else ""

    home, _ = run(tmp_path, f'event_time = "at"\n{more}')

    first, second = datetime(2024, 3, 1, 0, tzinfo=UTC), datetime(2024, 3, 1, 8, tzinfo=UTC)
    assert published(home, "user") == {("a", first): (1, 1), ("a", second): (2, 2)}
    assert [row["reason"] for row in quarantined(home)] == ["unparsable_event_time"] * 4


@pytest.mark.usefixtures("spark")
def test_local_times_with_a_pattern_are_in_the_time_zone_whatever_their_end_is(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    rows = "08:00 01-03-2024\n08:00 01-03-2024Z\n08:00 01-03-2024+01:00\n08:00 31-02-2024\n"
    (tmp_path / "data/a.csv").write_text("\n".join(f"{at},a,1" for at in rows.splitlines()))

    home, _ = run(
        tmp_path,
        'format = "csv"\nevent_time = "at"\nevent_time_pattern = "HH:mm dd-MM-yyyy[XXX]"\n'
        'time_zone = "America/New_York"\ncolumns = { at = "string", user = "string", amount = "int" }',
    )

    hours = (7, 8, 13)
    expected = {("a", datetime(2024, 3, 1, hour, tzinfo=UTC)): (1, 1) for hour in hours}
    assert published(home, "user") == expected
    assert [row["reason"] for row in quarantined(home)] == ["unparsable_event_time"]


def test_check_refuses_a_pattern_that_means_something_else(tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_text(
        'name = "t"\n[source]\nformat = "csv"\npath = "in"\nevent_time = "ts"\n'
        'event_time_pattern = "YYYY-MM-DD HH:mm:ss"\noptions = { timestampFormat = "hh:mm" }\n'
        'columns = { ts = "string" }\n[window]\nkind = "tumbling"\nsize = "1h"\n[aggregates]\nn = "count(*)"\n'
    )
    for command in ("check", "run"):
        more = ["--since", "2024-03-01", "--until", "2024-03-02"] if command == "run" else []
        ended = CliRunner(env={"COLUMNS": "250", "NO_COLOR": "1"}).invoke(app, [command, str(path), *more])
        assert ended.exit_code != 0
        assert (
            "source.event_time_pattern must be a pattern of instants in Spark's notation, got "
            "'YYYY-MM-DD HH:mm:ss': "
            'YYYY is the year of a week, and DD is the day of the year; write "yyyy-MM-dd HH:mm:ss"'
        ) in ended.output
        assert "Traceback" not in ended.output
