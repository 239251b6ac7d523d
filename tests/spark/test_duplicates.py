"""Compare the search for duplicates on both engines with a comparison of each record with each other one."""

from __future__ import annotations

import json
from datetime import datetime
from itertools import cycle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.spark.histories import Expected, definition_of, random_history, write_history
from tests.spark.native_runs import cut_finely
from tests.spark.runs import WINDOWS, fates, panes, planned, published

import backstream
from backstream.chunks.replay import replay_chunks
from backstream.definition.loader import parse_definition
from backstream.native import task_cuts
from backstream.runs.plan import Mode
from backstream.runs.results import CheckOutcome
from backstream.spark.engine import SparkEngine

pytestmark = pytest.mark.slow

RULES = [
    {"deduplicate_on": ["device", "counter"], "deduplicate_within": within, "deduplicate_keep": keep}
    for within, keep in (("9h", "first"), ("5h", "last"), ("0s", "first"), ("0s", "last"), ("4d", "last"))
]
CASES = [
    (kind, chunk, rule, engine)
    for kind, chunk, rules in (
        ("tumbling with an offset", "1d", (0, 1)),
        ("session", "1d", (0, 1)),
        ("sliding", "2d", (2, 3, 4)),
    )
    for rule in rules
    for engine in ("native", "spark")
]
MODES = cycle([Mode.RECOMPUTE, Mode.REPLAY, Mode.REPLAY, Mode.RECOMPUTE])
"""Each engine has each mode with each kind of window."""


@pytest.mark.parametrize(("case", "mode"), [*zip(CASES, MODES, strict=False)], ids=str)
def test_the_records_that_count_are_those_of_the_reference_however_a_range_is_cut(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: Mode,
    case: tuple[str, str, int, str],
) -> None:
    kind, chunk, rule, engine = case
    monkeypatch.setattr(task_cuts, "SMALL_DAY_ROWS", 0)
    cut_finely(monkeypatch)
    history = random_history(17 + rule, rows=250, days=4)
    write_history(tmp_path / "data", history)
    content = definition_of(tmp_path / "data", window=WINDOWS[kind], backfill={"chunk": chunk, "engine": engine})
    content["source"] |= RULES[rule]
    plan = planned(tmp_path, content, mode, since=1, until=3)
    expected = Expected(history, parse_definition(content, "test"), plan.range)

    manifests = list(replay_chunks(SparkEngine(spark), plan, plan.chunks))

    assert published(manifests) == expected.published()
    if mode is Mode.REPLAY:
        assert fates(manifests) == expected.fates()
        assert panes(manifests) == expected.values()
    else:
        counted = {partition: counts.get("duplicate", 0) for partition, counts in fates(manifests).items()}
        assert counted == {name: counts.get("duplicate", 0) for name, counts in expected.fates().items()}


NULL_IDS: list[dict[str, Any]] = [
    {"id": "o2", "ts": "2024-03-01T08:10:00Z", "amount": 20},
    {"id": None, "ts": "2024-03-01T08:20:00Z", "amount": 1},
    {"id": None, "ts": "2024-03-01T08:20:00Z", "amount": 2},
]
TIES: list[dict[str, Any]] = [
    {"id": "a", "ts": "2024-03-01T08:10:00Z", "amount": 7},
    {"id": "a", "ts": "2024-03-01T08:10:00Z", "amount": 3},
    {"id": "a", "ts": "2024-03-01T08:10:00Z", "amount": 5},
    {"id": "", "ts": "2024-03-01T08:20:00Z", "amount": 100},
    {"id": "", "ts": "2024-03-01T08:30:00Z", "amount": 200},
]
NOTES = {
    "null": ("warn", ["the share of records without an id is within its soft limit"]),
    "ties": ("pass", ["no id is an empty text"]),
}


@pytest.mark.parametrize(
    ("layout", "engine", "records", "keep", "expected"),
    [
        ("json", "native", "null", "first", (3, 23)),
        ("parquet", "spark", "null", "first", (3, 23)),
        ("parquet", "native", "ties", "first", (2, 107)),
        ("json", "spark", "ties", "first", (2, 107)),
        ("json", "native", "ties", "last", (2, 205)),
        ("parquet", "spark", "ties", "last", (2, 205)),
    ],
)
def test_records_without_an_id_count_and_ties_are_broken_by_the_position(
    tmp_path: Path, layout: str, engine: str, records: str, keep: str, expected: tuple[int, int]
) -> None:
    rows = NULL_IDS if records == "null" else TIES
    first, second = rows[:2], rows[2:]
    for number, part in enumerate((first, second)):
        write_rows(tmp_path / f"in/{number}.{layout}", part)
    definition = tmp_path / "t.toml"
    definition.write_text(
        f'name = "t"\n[source]\nformat = "{layout}"\npath = "{tmp_path}/in"\nevent_time = "ts"\n'
        f'deduplicate_on = ["id"]\ndeduplicate_keep = "{keep}"\n'
        'columns = { id = "string", ts = "timestamp", amount = "bigint" }\n'
        '[window]\nkind = "tumbling"\nsize = "1h"\n[aggregates]\nn = "count(*)"\namount = "sum(amount)"\n'
        f'[backfill]\nengine = "{engine}"\n'
        "[quality]\nmissing_ratio = { warn = 1.0, fail = 1.0 }\nduplicate_ratio = { warn = 1.0, fail = 1.0 }\n"
    )
    home = tmp_path / "home"

    result = backstream.run(definition, "2024-03-01", "2024-03-02", home=home, allow_unsealed=True)

    (row,) = backstream.read("t", home=home).to_pylist()
    assert (row["n"], row["amount"]) == expected
    verdict, names = NOTES[records]
    assert result.audit.verdict == verdict
    assert [check.name for check in result.audit.checks if check.outcome is not CheckOutcome.PASS] == names


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".json":
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        return
    schema = pa.schema([("id", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("amount", pa.int64())])
    with_times = [row | {"ts": datetime.fromisoformat(row["ts"])} for row in rows]
    pq.write_table(pa.Table.from_pylist(with_times, schema), path)
