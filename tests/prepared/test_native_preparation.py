"""JSON lines that are prepared natively have the rows and the schema that Spark gives them."""

from __future__ import annotations

from collections import Counter
from dataclasses import astuple
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from tests.prepared.json_inputs import COLUMNS, LINE, SOURCE, VALUES, write_files

from backstream.definition.loader import load_definition
from backstream.definition.prepared import list_single_sources
from backstream.runs.home import Home
from backstream.source.prepared import BatchCounts
from backstream.spark.preparation.native_files import prepare_native_files
from backstream.spark.preparation.prepare import prepare_files
from backstream.spark.preparation.settings import Preparation
from backstream.workflow.prepare import prepare_source

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
    return schemas, Counter(repr(row) for table in instants for row in table.to_pylist())


def _numbers(schema: pa.Schema) -> pa.Schema:
    """Return a schema with numbers in place of instants, since Python's have no year after 9999."""
    kinds = [(field.name, pa.int64() if pa.types.is_timestamp(field.type) else field.type) for field in schema]
    return pa.schema(kinds)


def test_native_rows_equal_those_of_spark_and_unusual_files_are_left_to_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    readers = {str(path): reader for path, reader in write_files(tmp_path / "data")}
    preparation = preparation_of(tmp_path / "data", SOURCE, VALUES)

    native = prepare_native_files(spark, preparation, [*readers], tmp_path / "native")
    counts = prepare_files(spark, preparation, native.paths, tmp_path / "spark")

    assert counts == BatchCounts(native.rows, native.rows, 0, 0)
    schemas, rows = rows_of([*native.outputs])
    expected_schemas, expected_rows = rows_of([*(tmp_path / "spark").glob("*.parquet")])
    assert schemas == expected_schemas
    assert rows == expected_rows
    taken = {path: "native" if path in native.paths else "spark" for path in readers}
    wrong = {
        path: native.reasons.get(path) for path, reader in readers.items() if reader not in ("any", taken[path])
    }
    assert not {Path(path).read_bytes()[:200]: reason for path, reason in wrong.items()}
    assert native.reasons.keys() == readers.keys() - {*native.paths}
    random = Counter(taken[path] for path, reader in readers.items() if reader == "any")
    assert min(random["native"], random["spark"]) > 30, random


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


def test_other_times_and_the_columns_of_a_union_equal_those_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "a.json").write_text(
        "\n".join(
            f'{{"t":"2024-03-01T08:00:00.{number}Z","ms":{17 * 10**17 - number * 3**34},"h":{-number},'
            f'"i":{number},"b":null,"s":"{number}","n":{{"at":"2024-03-01 08:00:00.{number:03}+01:00","x":1}}}}'
            for number in range(1, 300, 7)
        )
    )
    for name, (source, values) in OTHER_SOURCES.items():
        preparation = preparation_of(folder, f'format = "json"\n{source}\n{COLUMNS}', values)
        native = prepare_native_files(spark, preparation, [str(folder / "a.json")], tmp_path / f"{name} native")
        prepare_files(spark, preparation, native.paths, tmp_path / f"{name} spark")
        assert native.reasons == {}, name
        assert rows_of([*native.outputs]) == rows_of([*(tmp_path / f"{name} spark").glob("*.parquet")]), name


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
        result = prepare_source(path, home, lambda: spark, notes.append)
        assert result is not None
        assert astuple(result.counts) == (4, 4, 0, 1)
        (batch,) = home.path.glob("prepared/orders/*/batch-*")
        assert [name.name for name in batch.parent.iterdir() if name.name not in (".lock", "_listed.json")] == [
            batch.name
        ]
        found.append(rows_of([*batch.glob("*.parquet")])[1])
    assert found[0] == found[1]
    counts = "prepared 2 new files, 4 records, 1 unreadable"
    reason = f"a line does not begin with {{ and end with }}, e.g., {folder}/b.json"
    assert notes[1::2] == [
        f"{counts}; natively 1, by Spark 1, because {reason}",
        f"{counts}; natively 0, by Spark 2, because backfill.engine is spark",
    ]
