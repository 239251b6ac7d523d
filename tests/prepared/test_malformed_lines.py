"""Malformed lines of JSON and CSV go to quarantine with the number of their line, also in compressed files."""

from __future__ import annotations

import bz2
import gzip
import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.prepared.events import make_events, nested, sums_by_hour
from tests.prepared.test_prepared import ORDERS, SOURCES, published, quarantined, write_definition

import backstream
from backstream.definition.prepared_columns import LINE, RECORD
from backstream.quality.evidence import UnreadableRecord
from backstream.runs.home import Home
from backstream.source.user_files import list_user_files
from backstream.workflow.inputs.prepare import prepare_source
from backstream.workflow.runners import SparkRunner

pytestmark = pytest.mark.slow

GOOD = list(map(json.dumps, map(nested, make_events(40))))
COMPRESSIONS: Mapping[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": lambda content: gzip.compress(content[:100]) + gzip.compress(content[100:]),  # as `cat a.gz b.gz`
    ".bz2": bz2.compress,
    ".zst": partial(pa.compress, codec="zstd", asbytes=True),
}


@pytest.mark.usefixtures("spark")
def test_each_malformed_line_has_its_number_and_its_file(tmp_path: Path) -> None:
    home, folder = Home(tmp_path / "home"), tmp_path / "data" / "with space"
    folder.mkdir(parents=True)
    single_quotes = GOOD[0].replace('"', "'")
    lines = [*GOOD[:3], "{broken", "", single_quotes, *GOOD[3:10], "caf\u00e9"]  # line 5 is empty
    for number, (suffix, compress) in enumerate(COMPRESSIONS.items()):
        own = GOOD[10 * number : 10 * number + 10]
        separator = "\r\n" if suffix == ".gz" else "\n"
        content = separator.join([*own[:3], *lines[3:6], *own[3:], lines[-1]])
        (folder / f"events.json{suffix}").write_bytes(compress(content.encode()))
    definition = write_definition(tmp_path, ORDERS, "payload.amount")

    result = backstream.run(definition, "2024-03-01", "2024-03-03", home=home.path, allow_unsealed=True)

    assert published(home, "payload_user_id") == sums_by_hour(make_events(40))
    assert [(row["file"].rpartition("/")[2], row["line"], row["record"]) for row in quarantined(home)] == [
        (f"events.json{suffix}", line, text)
        for suffix in sorted(COMPRESSIONS)
        for line, text in ((4, "{broken"), (6, single_quotes), (14, "caf\u00e9"))
    ]
    assert result.plan.prepared["unreadable"] == 3 * len(COMPRESSIONS)


def test_the_blocks_of_a_file_that_spark_splits_are_counted_together(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    lines = [*GOOD, "{broken", *GOOD, "[broken"]
    (tmp_path / "data/events.json").write_text("\n".join(lines))
    definition = write_definition(tmp_path, ORDERS, "payload.amount")
    before = str(spark.conf.get("spark.sql.files.maxPartitionBytes"))
    spark.conf.set("spark.sql.files.maxPartitionBytes", "4000")
    try:
        prepare_source(definition, Home(tmp_path / "home"), SparkRunner(lambda: spark))
    finally:
        spark.conf.set("spark.sql.files.maxPartitionBytes", before)
    (batch,) = tmp_path.glob("home/prepared/orders/*/batch-*")
    assert list_user_files(f"{batch}/any.parquet") == [f"{tmp_path}/data/events.json"]
    rows = pq.read_table(batch, columns=[LINE, RECORD]).drop_null().to_pylist()
    assert sorted(map(tuple, map(dict.values, rows))) == [(41, "{broken"), (82, "[broken")]


@pytest.mark.usefixtures("spark")
def test_a_malformed_line_of_csv_counts_the_header(tmp_path: Path) -> None:
    write, name, source = SOURCES["csv"]
    home, path = Home(tmp_path / "home"), tmp_path / "data" / f"{name}.gz"
    write(path.parent, name, make_events(20))
    lines = path.with_suffix("").read_text().splitlines()
    lines.insert(5, "2024-03-01 00:00:00.000,1709251200,0,many,a,1")
    path.with_suffix("").unlink()
    path.write_bytes(gzip.compress("\n".join(lines).encode()))

    backstream.run(
        write_definition(tmp_path, source), "2024-03-01", "2024-03-03", home=home.path, allow_unsealed=True
    )

    (row,) = quarantined(home)
    assert (row["reason"], row["line"], row["record"]) == ("malformed_record", 6, lines[5])
    assert row["file"].endswith("/data/events.csv.gz")


def test_the_quality_gate_names_the_line() -> None:
    assert str(UnreadableRecord("malformed_record", "{", "a.json", 1_200)) == "'{' in line 1,200 of a.json"
    assert str(UnreadableRecord("null_event_time", "{}", "a.orc")) == "'{}' in a.orc"
