"""Random files, also damaged ones, give the records that plain readers find in them, or are refused."""

from __future__ import annotations

import os
import random
import tomllib
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.prepared.random_files import SOURCES, UNKNOWN, Expected, Row, Source, describe, normalized, write_files
from tests.prepared.random_tables import TABLES

import backstream
from backstream.definition.loader import load_definition
from backstream.definition.prepared import prepared_folder
from backstream.definition.prepared_columns import EVENT_TIME, FILE, REASON
from backstream.errors import BackstreamError
from backstream.eventtime.instants import epoch_ms
from backstream.runs.home import Home
from backstream.source.archive.definition_text import Settings, write_definition_text
from backstream.source.archive.evidence import evidence_lines, examine_archive
from backstream.source.prepared import PreparedSource
from backstream.spark.source import REASON as REASON_COLUMN
from backstream.workflow.checks.check_definition import check_definition
from backstream.workflow.checks.check_sample import check_sample
from backstream.workflow.inputs.prepare import prepare_source
from backstream.workflow.runners import SparkRunner

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


SHORT = [
    *((source, "auto", 1, 12) for source in SOURCES[::3]),
    *((source, "auto", 1, 8) for source in TABLES[::3]),
]
"""Some of the sources; `LONG`, for `make test-long`, has all of them."""
LONG = [
    *(
        (source, engine, 2, 40)
        for source in SOURCES
        for engine in ("auto", "spark")[: 1 + (source.name == "lines")]
    ),
    *((source, "auto", 2, 30) for source in TABLES),
]


@pytest.mark.parametrize(
    ("source", "engine", "seed", "count"),
    [*SHORT, *(pytest.param(*case, marks=pytest.mark.long) for case in LONG)],
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
    written = write_files(tmp_path / "data", source, random.Random(3), 40)  # noqa: S311 - test data
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


MAX_LINES = 15
"""Lines of the longest message that people may get."""


def require_refusal(error: BackstreamError, place: Path) -> None:
    """Check that a message is short, names a file, and is not the text of a trace."""
    assert len(str(error).splitlines()) <= MAX_LINES, error
    assert str(place) in str(error)
    assert "Traceback" not in str(error)


@pytest.mark.parametrize(
    ("source", "seed", "count"),
    [
        *((source, 5, 3) for source in (*SOURCES[::4], *TABLES[1::4])),
        *(pytest.param(source, 6, 8, marks=pytest.mark.long) for source in (*SOURCES, *TABLES)),
    ],
)
def test_a_check_counts_the_records_of_random_files(
    spark: SparkSession, tmp_path: Path, source: Source, seed: int, count: int
) -> None:
    written = write_files(tmp_path / "data", source, random.Random(SEED or seed), FILES or count)  # noqa: S311 - test data
    clear = [path for path, (_, expected) in written.items() if expected.unclear + expected.is_refused == 0]
    others = [[path] for path in written if path not in clear]

    for number, paths in enumerate([*(clear[at : at + 3] for at in range(0, len(clear), 3)), *others]):
        folder = tmp_path / str(number)
        (folder / "data").mkdir(parents=True)
        for path in paths:
            Path(path).rename(folder / "data" / Path(path).name)
        expected = [written[path][1] for path in paths]
        definition, home = write_definition(folder, source, "auto"), Home(folder / "home")
        try:
            for problem in check_definition(definition, home).problems:
                raise problem
            checked = check_sample(spark, definition, 10**6, home)
        except BackstreamError as error:
            require_refusal(error, folder)
            is_damaged = not all(each.is_intact for each in expected)
            assert is_damaged, error  # noqa: PT017 - other files raise nothing
            continue
        if UNKNOWN.unclear in {each.unclear for each in expected}:
            continue
        rows = Counter(
            normalized(row["id"], row["k"], row["amount"], epoch_ms(row["event_time"]))
            for row in checked.records.to_pylist()
        )
        whole = Expected(
            sum((in_milliseconds(each.rows) for each in expected), Counter[Row]()),
            sum((each.reasons for each in expected), Counter[str]()),
            sum(each.unclear for each in expected),
            any(each.is_refused for each in expected),
        )
        difference = describe(whole, rows, Counter(checked.quarantined[REASON_COLUMN].to_pylist()))
        assert difference is None, f"{paths}: {difference}"


def in_milliseconds(rows: Counter[Row]) -> Counter[Row]:
    """Return rows with times in milliseconds instead of microseconds."""
    return sum((Counter({(*row[:3], row[3] // 1000): count}) for row, count in rows.items()), Counter[Row]())


@pytest.mark.parametrize(
    ("source", "seed", "count"),
    [
        *((source, 7, 15) for source in (*SOURCES[::3], *TABLES[::3])),
        *(pytest.param(source, 8, 30, marks=pytest.mark.long) for source in (*SOURCES, *TABLES)),
    ],
)
def test_init_writes_a_definition_of_a_random_file_or_refuses_it(
    tmp_path: Path, source: Source, seed: int, count: int
) -> None:
    written = write_files(tmp_path / "data", source, random.Random(SEED or seed), FILES or count)  # noqa: S311 - test data
    refused = 0
    for path in written:
        try:
            evidence = examine_archive(path, None)
        except BackstreamError as error:
            require_refusal(error, Path(path))
            refused += 1
            continue
        text = write_definition_text(evidence, Settings("events"))
        assert [*evidence_lines(evidence)]
        assert tomllib.loads(text)["source"]["path"] == path
    assert refused < len(written) or source.name == "envelopes"  # which have two arrays of objects


@pytest.mark.slow
@pytest.mark.parametrize("source", [*SOURCES, *TABLES])
def test_a_run_with_the_definition_of_init_loses_no_record(
    spark: SparkSession, tmp_path: Path, source: Source
) -> None:
    written = write_files(tmp_path / "data", source, random.Random(SEED or 9), FILES or 12)  # noqa: S311 - test data
    for path, (_, expected) in written.items():
        if not expected.is_intact or expected.unclear:
            Path(path).unlink()
    clear = {path: expected for path, (_, expected) in written.items() if Path(path).exists()}
    definition = tmp_path / "events.toml"
    try:
        evidence = examine_archive(str(tmp_path / "data"), None)
        definition.write_text(write_definition_text(evidence, Settings("events")).replace(*PREPARED))
        counts = count_prepared(definition, Home(tmp_path / "home"), spark)
    except BackstreamError as error:
        require_refusal(error, tmp_path)
        return
    totals = {path: expected.total for path, expected in clear.items() if expected.total}
    assert counts == totals


PREPARED = ("[source]\n", "[source]\nprepare = true\n")


def count_prepared(definition: Path, home: Home, spark: SparkSession) -> Counter[str]:
    """Return the number of prepared records by raw file."""
    prepare_source(definition, home, SparkRunner(lambda: spark))
    batches = PreparedSource(prepared_folder(load_definition(definition), home)).batches()
    tables = [pq.read_table(path, columns=[FILE]) for batch in batches for path in batch.folder.glob("*.parquet")]
    return Counter(unquote(urlparse(uri).path) for table in tables for uri in table[FILE].to_pylist())


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
) -> tuple[dict[str, tuple[Counter[Row], Counter[str]]], dict[str, str]]:
    """Return the readable records, the reasons of others by raw file, and the reason of each skipped file."""
    prepare_source(definition, home, SparkRunner(lambda: spark))
    prepared = PreparedSource(prepared_folder(load_definition(definition), home))
    found: dict[str, tuple[Counter[Row], Counter[str]]] = {}
    for batch in prepared.batches():
        for path in batch.folder.glob("*.parquet"):
            table = pq.read_table(path)
            micros = table[EVENT_TIME].cast(pa.int64()).to_pylist()
            for row, at in zip(table.drop_columns([EVENT_TIME]).to_pylist(), micros, strict=True):
                file = unquote(urlparse(row[FILE]).path)
                rows, reasons = found.setdefault(file, (Counter[Row](), Counter[str]()))
                if row[REASON] is None:
                    rows[normalized(row["id"], row["k"], row["amount"], at)] += 1
                else:
                    reasons[row[REASON]] += 1
    skipped = {file.path: file.reason for batch in prepared.batches() for file in batch.skipped}
    return found, skipped


def compare(
    expected: Expected, path: str, found: dict[str, tuple[Counter[Row], Counter[str]]], skipped: dict[str, str]
) -> str | None:
    """Return how the prepared records of a file differ from the expected ones; None if they do not."""
    rows, reasons = found.get(path, (Counter[Row](), Counter[str]()))
    if path in skipped:
        difference = describe(expected, None)
        return difference and f"{difference}: {skipped[path]}"
    if expected.unclear == UNKNOWN.unclear:
        return None
    return describe(expected, rows, reasons)
