"""Random files, also damaged ones, give the records that plain readers find in them, or are refused."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.prepared.random_files import SOURCES, Expected, Row, Source, describe, normalized, write_files

from backstream.definition.loader import load_definition
from backstream.definition.prepared import prepared_folder
from backstream.definition.prepared_columns import EVENT_TIME, FILE, REASON
from backstream.runs.home import Home
from backstream.source.prepared import PreparedSource
from backstream.workflow.inputs.prepare import prepare_source

SEED, FILES = int(os.environ.get("DOOR_SEED", "1")), int(os.environ.get("DOOR_FILES", "60"))

DEFINITION = """
name = "events"
[source]
path = "{folder}"
event_time = "ts"
key = ["k"]
corrupt_files = "skip"
event_time_range = ["0001-01-02", "9999-12-30"]
{keys}
[window]
kind = "tumbling"
size = "1d"
[aggregates]
ids = "max(id)"
amount = "max(amount)"
[backfill]
engine = "{engine}"
"""


@pytest.mark.parametrize("engine", ["auto", "spark"])
@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_each_record_of_a_random_file_is_read_or_counted(
    spark: SparkSession, tmp_path: Path, source: Source, engine: str
) -> None:
    if engine == "spark" and source.name != "lines":
        pytest.skip("Spark prepares these files in both cases")
    written = write_files(tmp_path / "data", source, random.Random(SEED), FILES)
    definition = tmp_path / "events.toml"
    definition.write_text(DEFINITION.format(folder=tmp_path / "data", keys=source.keys, engine=engine))

    found, skipped = prepare(definition, Home(tmp_path / "home"), spark)

    differences = [
        f"{path}: {difference}\n  {content[:300]!r}"
        for path, (content, expected) in written.items()
        if (difference := compare(expected, path, found, skipped))
    ]
    assert not differences, f"{len(differences)} of {len(written)} files (DOOR_SEED={SEED})\n" + "\n".join(
        differences[:4]
    )


def prepare(
    definition: Path, home: Home, spark: SparkSession
) -> tuple[dict[str, tuple[Counter[Row], int]], dict[str, str]]:
    """Return the readable records and the number of others by raw file, and the reason of each skipped file."""
    prepare_source(definition, home, lambda: spark)
    prepared = PreparedSource(prepared_folder(load_definition(definition), home))
    found: dict[str, tuple[Counter[Row], int]] = {}
    for batch in prepared.batches():
        for path in batch.folder.glob("*.parquet"):
            table = pq.read_table(path)
            micros = table[EVENT_TIME].cast(pa.int64()).to_pylist()
            for row, at in zip(table.drop_columns([EVENT_TIME]).to_pylist(), micros, strict=True):
                file = unquote(urlparse(row[FILE]).path)
                rows, unreadable = found.get(file, (Counter[Row](), 0))
                if row[REASON] is None:
                    rows[normalized(row["id"], row["k"], row["amount"], at)] += 1
                else:
                    unreadable += 1
                found[file] = rows, unreadable
    skipped = {file.path: file.reason for batch in prepared.batches() for file in batch.skipped}
    return found, skipped


def compare(
    expected: Expected, path: str, found: dict[str, tuple[Counter[Row], int]], skipped: dict[str, str]
) -> str | None:
    """Return how the prepared records of a file differ from the expected ones; None if they do not."""
    rows, unreadable = found.get(path, (Counter[Row](), 0))
    if path in skipped:
        difference = describe(expected, None, 0)
        return difference and f"{difference}: {skipped[path]}"
    if expected.unclear >= 10**9:
        return None
    return describe(expected, rows, unreadable)
