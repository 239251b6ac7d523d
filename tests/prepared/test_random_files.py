"""Random files, also damaged ones, give the records that plain readers find in them, or are refused."""

from __future__ import annotations

import os
import random
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.prepared.random_files import SOURCES, UNKNOWN, Expected, Row, Source, describe, normalized, write_files

import backstream
from backstream.definition.loader import load_definition
from backstream.definition.prepared import prepared_folder
from backstream.definition.prepared_columns import EVENT_TIME, FILE, REASON
from backstream.runs.home import Home
from backstream.source.prepared import PreparedSource
from backstream.workflow.inputs.prepare import prepare_source

SEED, FILES = (int(os.environ.get(f"RANDOM_{name}", "0")) for name in ("SEED", "FILES"))
"""Another seed and number of files than those of the tests, e.g., `RANDOM_SEED=7 RANDOM_FILES=500`."""

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
records = "count(*)"
ids = "max(id)"
amount = "max(amount)"
[quality]
quarantined_ratio = {{ warn = 1.0, fail = 1.0 }}
missing_ratio = {{ warn = 1.0, fail = 1.0 }}
[backfill]
engine = "{engine}"
"""


SHORT = [(source, "auto", 1, 12) for source in SOURCES]
LONG = [
    (source, engine, 2, 150) for source in SOURCES for engine in ("auto", "spark")[: 1 + (source.name == "lines")]
]


@pytest.mark.parametrize(
    ("source", "engine", "seed", "count"),
    [*SHORT, *(pytest.param(*case, marks=pytest.mark.slow) for case in LONG)],
)
def test_each_record_of_a_random_file_is_read_or_counted(
    spark: SparkSession, tmp_path: Path, source: Source, engine: str, seed: int, count: int
) -> None:
    written = write_files(tmp_path / "data", source, random.Random(SEED or seed), FILES or count)  # noqa: S311 - test data
    definition = write_definition(tmp_path, source, engine)

    found, skipped = prepare(definition, Home(tmp_path / "home"), spark)

    differences = [
        f"{path}: {difference}\n  {content[:300]!r}"
        for path, (content, expected) in written.items()
        if (difference := compare(expected, path, found, skipped))
    ]
    assert not differences, f"{len(differences)} of {len(written)} files\n" + "\n".join(differences[:4])


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("engine", ["auto", "spark"])
@pytest.mark.parametrize("name", ["lines", "csv"])
def test_a_run_publishes_the_records_of_random_files(tmp_path: Path, name: str, engine: str) -> None:
    (source,) = (each for each in SOURCES if each.name == name)
    written = write_files(tmp_path / "data", source, random.Random(3), 60)  # noqa: S311 - test data
    for path, (_, expected) in written.items():
        if expected.unclear or expected.is_refused:
            Path(path).unlink()
    clear = [expected for path, (_, expected) in written.items() if Path(path).exists()]
    rows = sum((expected.rows for expected in clear), Counter[Row]())

    result = backstream.run(
        write_definition(tmp_path, source, engine),
        "2024-03-01",
        "2024-03-04",
        home=tmp_path / "home",
        allow_unsealed=True,
    )

    published = backstream.read("events", home=tmp_path / "home").to_pylist()
    counts = Counter({(row["k"], row["window_start"].day): row["records"] for row in published})
    assert counts == by_day(rows)
    assert result.plan.prepared["unreadable"] == sum(expected.unreadable for expected in clear)


def by_day(rows: Counter[Row]) -> Counter[tuple[str, int]]:
    """Return the number of records by key and day of March 2024."""
    counts = Counter[tuple[str, int]]()
    for (_, key, _, micros), count in rows.items():
        counts[key, datetime.fromtimestamp(micros // 1_000_000, UTC).day] += count
    return counts


def write_definition(folder: Path, source: Source, engine: str) -> Path:
    """Write a definition that skips damaged files, and publishes with any share of unreadable records."""
    path = folder / "events.toml"
    path.write_text(DEFINITION.format(folder=folder / "data", keys=source.keys, engine=engine))
    return path


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
    if expected.unclear == UNKNOWN.unclear:
        return None
    return describe(expected, rows, unreadable)
