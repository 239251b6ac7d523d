"""Compare the search for duplicates on both engines with a comparison of each record with each other one."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.histories import Expected, definition_of, random_history, write_history
from tests.spark.native_runs import cut_finely
from tests.spark.runs import WINDOWS, fates, panes, planned, published

from backstream.definition.loader import parse_definition
from backstream.native import task_cuts
from backstream.runs.plan import Mode
from backstream.spark.chunk_job import replay_chunks

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


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("mode", Mode)
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

    manifests = list(replay_chunks(spark, plan, plan.chunks))

    assert published(manifests) == expected.published()
    if mode is Mode.REPLAY:
        assert fates(manifests) == expected.fates()
        assert panes(manifests) == expected.values()
    else:
        counted = {partition: counts.get("duplicate", 0) for partition, counts in fates(manifests).items()}
        assert counted == {name: counts.get("duplicate", 0) for name, counts in expected.fates().items()}
