"""JSON lines and CSV that are prepared natively have the rows and the schema that Spark gives them."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import astuple
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.prepared import csv_inputs
from tests.prepared.json_inputs import COLUMNS, LINE, SOURCE, TIME, VALUES, write_files

from backstream.chunks.preparation.native_files import NativeFiles, prepare_native_files
from backstream.chunks.preparation.settings import Preparation
from backstream.definition.loader import load_definition
from backstream.definition.prepared import list_single_sources
from backstream.definition.prepared_columns import MALFORMED_RECORD, REASON, RECORD
from backstream.runs.home import Home
from backstream.source.prepared import BatchCounts
from backstream.spark.preparation.folder_types import find_folder_types
from backstream.spark.preparation.prepare import prepare_files
from backstream.spark.tasks import SparkTasks
from backstream.workflow.inputs.prepare import prepare_source
from backstream.workflow.runners import SparkRunner

pytestmark = pytest.mark.slow

DEFINITION = """
name = "orders"
{header}
path = "{folder}"
{source}
[window]
kind = "tumbling"
size = "1h"
[watermark]
strategy = "bounded_out_of_orderness"
delay = "30m"
[aggregates]
{aggregates}
"""


OTHER_SOURCE = """
[[source]]
name = "other"
path = "/data"
event_time = "at"
"""


def preparation_of(folder: Path, source: str, values: tuple[str, ...]) -> Preparation:
    """Return how the first source is prepared; with a name, it is a part of a union."""
    header = "[source]"
    if "name =" in source:
        header, source = "[[source]]", source + OTHER_SOURCE
    aggregates = "\n".join(f'a{number} = "max({value})"' for number, value in enumerate(values))
    path = folder.parent / "orders.toml"
    path.write_text(DEFINITION.format(header=header, folder=folder, source=source, aggregates=aggregates))
    return Preparation(list_single_sources(load_definition(path))[0], str(path))


def rows_of(files: list[Path]) -> tuple[set[pa.Schema], Counter[str]]:
    """Return the schemas of prepared files, and how often each row is in them."""
    schemas = {pq.read_schema(file).remove_metadata() for file in files}
    tables = [pq.read_table(file) for file in files]
    instants = [table.cast(_numbers(table.schema)) for table in tables]
    return schemas, Counter(repr(_sort_fields(row)) for table in instants for row in table.to_pylist())


def _sort_fields(row: dict[str, object]) -> dict[str, object]:
    """Return a row with the fields of a rejected record by name: CSV files may have other orders of columns."""
    record = row.get(RECORD)
    if not isinstance(record, str) or row[REASON] == MALFORMED_RECORD:
        return row
    return {**row, RECORD: json.dumps(json.loads(record), sort_keys=True)}


def _numbers(schema: pa.Schema) -> pa.Schema:
    """Return a schema with numbers in place of instants, since Python's have no year after 9999."""
    kinds = [(field.name, pa.int64() if pa.types.is_timestamp(field.type) else field.type) for field in schema]
    return pa.schema(kinds)


def prepare_twice(
    spark: SparkSession, preparation: Preparation, paths: list[str], folder: Path
) -> tuple[NativeFiles, dict[str, str]]:
    """Compare a preparation by both readers with that of Spark alone; return the readers of the files."""
    folder.mkdir(exist_ok=True)
    native = prepare_native_files(
        SparkTasks(spark), partial(find_folder_types, spark), preparation, paths, folder / "native"
    )
    remaining = sorted({*paths}.difference(native.paths))
    own_counts, own_inexact = prepare_files(spark, native.remaining, remaining, folder / "remaining")
    counts, inexact = prepare_files(spark, preparation, paths, folder / "spark")

    assert BatchCounts.sum([own_counts, BatchCounts(native.rows, native.rows, 0, 0)]) == counts
    assert own_inexact == inexact
    schemas, rows = rows_of([*native.outputs, *(folder / "remaining").glob("*.parquet")])
    expected_schemas, expected_rows = rows_of([*(folder / "spark").glob("*.parquet")])
    if counts.unreadable:  # in files with numbers of lines, any column can be null
        schemas, expected_schemas = ({*map(_nullable, each)} for each in (schemas, expected_schemas))
    assert schemas == expected_schemas
    assert rows == expected_rows
    assert native.reasons.keys() == {*remaining}
    readers = dict.fromkeys(native.paths, "native") | dict.fromkeys(native.line_reasons, "lines")
    return native, {path: readers.get(path, "spark") for path in paths}


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([column.with_nullable(nullable=True) for column in schema])


def test_native_rows_equal_those_of_spark_and_unusual_lines_are_left_to_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    expected = {str(path): reader for path, reader in write_files(tmp_path / "data")}
    preparation = preparation_of(tmp_path / "data", SOURCE, VALUES)

    native, readers = prepare_twice(spark, preparation, [*expected], tmp_path)

    reasons = {**native.reasons, **native.line_reasons}
    wrong = [path for path, reader in expected.items() if reader not in ("any", readers[path])]
    assert not {Path(path).read_bytes()[:200]: (readers[path], reasons.get(path)) for path in wrong}
    random = Counter(readers[path] for path, reader in expected.items() if reader == "any")
    assert min(random["native"], random["lines"]) > 30, random


@pytest.mark.parametrize(
    "name", ["usual", *(pytest.param(name, marks=pytest.mark.long) for name in [*csv_inputs.FORMS][1:])]
)
def test_native_rows_of_csv_equal_those_of_spark(name: str, spark: SparkSession, tmp_path: Path) -> None:
    form, folder, paths = csv_inputs.FORMS[name], tmp_path / "data", list[str]()
    folder.mkdir()
    for number, rate in enumerate((0, 0, 0.005, 0.005, 0.02, 0.02, 0.02, 0.05, 0.3)):
        paths.append(str(folder / f"{number}.csv"))
        csv_inputs.write_file(Path(paths[-1]), form, seed=number, rate=rate)
    large = folder / "large.csv"  # several tasks read it
    csv_inputs.write_file(large, form, seed=9, lines=80_000, rate=0.0001)
    preparation = preparation_of(folder, csv_source(form), ("i", "h", "n", "x", "b", "s"))

    native, readers = prepare_twice(spark, preparation, [*paths, str(large)], tmp_path)

    counts = Counter(readers.values())
    assert counts["native"] > 1, native.reasons
    assert counts["lines"] > 1, native.reasons
    assert readers[str(large)] == "lines"
    assert len(native.outputs) > 1


def csv_source(form: csv_inputs.Form) -> str:
    columns = ", ".join(f'{column} = "{kind}"' for column, kind in csv_inputs.COLUMNS.items())
    return f'format = "csv"\ncolumns = {{ {columns} }}\n{form.options}\nevent_time = "at"\nkey = ["s"]'


def test_quotes_that_other_options_read_are_left_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    form, file = csv_inputs.FORMS["usual"], tmp_path / "data/a.csv"
    file.parent.mkdir()
    csv_inputs.write_file(file, form, seed=1, rate=0)
    cells = ['"say ""hi"""'] * file.read_text().partition("\n")[0].count(",")
    file.write_text(f"{file.read_text()}{','.join(cells)},x\n")
    preparation = preparation_of(file.parent, csv_source(form), ("s",))
    find_types = partial(find_folder_types, spark)

    native = prepare_native_files(SparkTasks(spark), find_types, preparation, [str(file)], tmp_path / "native")

    assert native.reasons == {str(file): "quotes within quotes are doubled"}


OTHER_SOURCES = {
    "text": ('event_time = "n.at"\narrival_time = "t"\ntime_zone = "America/New_York"\nkey = ["i"]', ("i", "t")),
    "numbers": (
        'event_time = "ms"\nevent_time_unit = "ns"\narrival_time = "h"\narrival_time_unit = "s"\nkey = ["n.x"]',
        ("ms",),
    ),
    "micros": ('event_time = "ms"\nevent_time_unit = "us"\nprepare = true', ("n.at",)),
    "union": ('event_time = "t"\npartition = "h"\nsequence = "i"\nname = "web"', ("b",)),
    "union of text": ('event_time = "t"\npartition = "s"\nname = "shop"', ("b",)),
    "union without partition": ('event_time = "t"\nname = "shop"', ("b",)),
}
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
FOLDERS = {
    "hours": (["dt=2024-03-01/hour=03", f"dt=2024-03-02/hour={NO_VALUE}"], 'key = ["dt", "hour"]', "lines"),
    "topics": (["orders/partition=0", "orders/partition=12"], 'partition = "partition"\nname = "web"', "lines"),
    "users": (["user=1", "user=a b", "user=02"], 'key = ["user"]', "lines"),
    "long numbers": (["shop=1", "shop=3000000000"], 'key = ["shop"]', "lines"),
    "declared": (["h=7/s=03", "h=-8/s=4"], 'key = ["s", "h"]', "lines"),
    "numbers": (["rate=1.5"], 'key = ["rate"]', "spark"),
    "escaped": (["at=08%3A00", "at=x"], 'key = ["at"]', "spark"),
    "at the root": ([".", "a=1"], 'key = ["s"]', "spark"),
    "below other folders": (["x/y/a=1", "x/y/a=2"], 'key = ["a"]', "lines"),
}
ODD_LINES = ('{"t":null,"s":"x"}', "{broken")


def test_other_times_and_the_columns_of_a_union_equal_those_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    lines = "".join(
        f'{{"t":"2024-03-01T08:00:00.{number}Z","ms":{17 * 10**17 - number * 3**34},"h":{-number},'
        f'"i":{number},"b":null,"s":"{number}","n":{{"at":"2024-03-01 08:00:00.{number:03}+01:00","x":1}}}}\n'
        for number in range(1, 300, 7)
    )
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "a.json").write_text(lines)
    for name, (source, values) in OTHER_SOURCES.items():
        preparation = preparation_of(folder, f'format = "json"\n{source}\n{COLUMNS}', values)
        _, readers = prepare_twice(spark, preparation, [str(folder / "a.json")], tmp_path / name)
        assert [*readers.values()] == ["native"], name


@pytest.mark.parametrize("name", FOLDERS)
def test_columns_of_folders_equal_those_of_spark(name: str, spark: SparkSession, tmp_path: Path) -> None:
    folders, source, reader = FOLDERS[name]
    paths = []
    for number, folder in enumerate(folders):
        path = tmp_path / "data" / folder / f"{number}~.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        odd = ODD_LINES[number % 2 if "dt=" in folder else 0]  # numbers of malformed lines take time
        path.write_text(f'{LINE}\n{{"t":"{TIME}Z","h":1,"s":"x"}}\n{odd}\n')
        paths.append(str(path))
    preparation = preparation_of(
        tmp_path / "data", f'format = "json"\nevent_time = "t"\n{source}\n{COLUMNS}', ("b",)
    )

    native, readers = prepare_twice(spark, preparation, paths, tmp_path)

    assert {*readers.values()} == {reader}
    assert pq.read_table(tmp_path / "spark").num_rows == 3 * len(paths)
    assert native.unusual_lines == (len(paths) if reader == "lines" else 0)


def test_the_log_counts_the_files_of_each_reader_and_a_setting_leaves_all_to_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder, notes = tmp_path / "data", list[str]()
    folder.mkdir()
    (folder / "a.json").write_text(f"{LINE}\n{LINE}\n")
    (folder / "b.json").write_text(f"{LINE}\n{{broken\n")
    found = []
    for engine in ("auto", "spark"):
        path, home = tmp_path / "orders.toml", Home(tmp_path / engine)
        preparation_of(folder, f'{SOURCE}\n[backfill]\nengine = "{engine}"', VALUES)
        result = prepare_source(path, home, SparkRunner(lambda: spark), notes.append)
        assert result is not None
        assert astuple(result.counts) == (4, 4, 0, 1)
        (batch,) = home.path.glob("prepared/orders/*/batch-*")
        assert [
            name.name for name in batch.parent.iterdir() if name.name not in (".lock", "_listed.json", "_contents")
        ] == [batch.name]
        found.append(rows_of([*batch.glob("*.parquet")])[1])
    assert found[0] == found[1]
    counts = "prepared 2 new files, 4 records, 1 unreadable"
    reason = f"a line is no ordinary JSON object, e.g., in {folder}/b.json"
    assert notes[1::2] == [
        f"{counts}; natively 2 except 1 line, because {reason}",
        f"{counts}; natively 0, by Spark 2, because backfill.engine is spark",
    ]
