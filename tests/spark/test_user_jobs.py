"""Run PySpark functions of a user in place of aggregates, with the lateness decisions of the stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.histories import Expected, Place, definition_of, random_history, write_history
from tests.spark.runs import WINDOWS, fates, in_ms, panes, planned, published, rows

from backstream.chunks.replay import replay_chunks
from backstream.definition.loader import parse_definition, require_unchanged_code
from backstream.errors import BackstreamError, PlanError, SpecError, UserCodeError
from backstream.eventtime.instants import MIN_MS
from backstream.runs.manifest import Manifest
from backstream.runs.plan import Mode, Plan
from backstream.spark.engine import SparkEngine

pytestmark = pytest.mark.slow

MODULE = "tests.spark.user_functions"
COLUMNS = {"events": "bigint", "total": "long"}


def with_job(folder: Path, function: str, **sections: Any) -> dict[str, Any]:
    content = definition_of(folder / "data", **sections)
    del content["aggregates"]
    return content | {"job": {"function": f"{MODULE}:{function}", "columns": COLUMNS}}


def run(spark: SparkSession, plan: Plan) -> list[Manifest]:
    return list(replay_chunks(SparkEngine(spark), plan, plan.chunks))


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("kind", ["tumbling", "sliding", "sliding with holes", "session", "cumulate"])
def test_an_existing_aggregation_gives_the_rows_of_the_same_aggregates(
    spark: SparkSession, tmp_path: Path, kind: str, mode: Mode
) -> None:
    history = random_history(seed=len(kind))
    write_history(tmp_path / "data", history)
    content = with_job(tmp_path, "totals", window=WINDOWS[kind], lateness={"allowed": "30m"})
    plan = planned(tmp_path, content, mode, since=0, until=3)
    expected = Expected(history, parse_definition(content, "test"), plan.range)

    manifests = run(spark, plan)

    assert published(manifests) == expected.published()
    if mode is Mode.REPLAY:
        assert fates(manifests) == expected.fates()
        assert panes(manifests) == expected.values()
        assert {"late", "dropped"} <= set().union(*expected.fates().values())
    assert rows(manifests, "skipped_windows") == []


@pytest.mark.parametrize("kind", ["tumbling", "session"])
def test_a_pandas_function_sees_the_pane_that_is_published(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    history = random_history(seed=8, rows=150)
    write_history(tmp_path / "data", history)
    content = with_job(
        tmp_path, "totals_in_pandas", window=WINDOWS[kind], backfill={"publish": "live", "chunk": "3d"}
    )
    plan = planned(tmp_path, content, Mode.REPLAY, since=0, until=3)
    expected = Expected(history, parse_definition(content, "test"), plan.range)

    manifests = run(spark, plan)

    assert published(manifests) == {place: live for place, (_, live, _) in expected.values().items() if live}


@pytest.mark.parametrize("kind", ["tumbling", "sliding", "session"])
def test_a_user_job_receives_the_fate_pane_and_watermark_of_each_record(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    history = random_history(seed=12, rows=250)
    write_history(tmp_path / "data", history)
    content = with_job(tmp_path, "lateness", window=WINDOWS[kind], backfill={"chunk": "1d"})
    content["job"]["columns"] = {"told": "string"}
    plan = planned(tmp_path, content, Mode.REPLAY, since=0, until=3)
    expected = Expected(history, parse_definition(content, "test"), plan.range)

    manifests = run(spark, plan)

    told = {in_ms(row): row["told__final"] for row in rows(manifests, "panes") if row["told__final"]}
    assert told == told_by_reference(expected)
    assert sum("late" in text for text in told.values()) > 5
    assert sum("|-|-|" in text for text in told.values()) > 1


def told_by_reference(expected: Expected) -> dict[Place, str]:
    """Return for each window of all records what the reference knows about them."""
    first_pane: dict[tuple[Place, int], tuple[object, str]] = {}
    fired: dict[Place, int] = {}
    for pane in expected.panes.panes:
        place = (str(pane.key), *pane.window)
        earlier = fired.get(place, 0)
        fired[place] = earlier + 1
        for number in pane.records:
            first_pane.setdefault((place, number), (earlier, pane.timing.value))
    told: dict[Place, str] = {}
    for pane in expected.offline.panes:
        place = (str(pane.key), *pane.window)
        if expected.interval.start_ms <= pane.window.start_ms < expected.interval.end_ms:
            texts = []
            for number in pane.records:
                row = expected.unique[number]
                index, timing = first_pane.get((place, number), ("-", "-"))
                fate, watermark_ms = expected.panes.fates[number].value, expected.met[number]
                texts.append(f"{row[1]}|{row[3]}|{fate}|{index}|{timing}|{watermark_ms}")
            told[place] = ";".join(sorted(texts))
    return told


def test_in_a_recompute_every_record_is_on_time_in_pane_0(spark: SparkSession, tmp_path: Path) -> None:
    write_history(tmp_path / "data", random_history(seed=12, rows=60))
    content = with_job(tmp_path, "lateness", window=WINDOWS["session"])
    content["job"]["columns"] = {"told": "string"}

    manifests = run(spark, planned(tmp_path, content, Mode.RECOMPUTE, since=0, until=3))

    told = {"|".join(text.split("|")[2:]) for row in rows(manifests, "") for text in row["told"].split(";")}
    assert told == {f"on_time|0|on_time|{MIN_MS}"}


@pytest.mark.parametrize("mode", list(Mode))
def test_a_window_that_the_function_skips_is_counted(spark: SparkSession, tmp_path: Path, mode: Mode) -> None:
    history = random_history(seed=5, rows=200)
    write_history(tmp_path / "data", history)
    content = with_job(tmp_path, "busy_only", window=WINDOWS["tumbling"])
    content["job"]["kwargs"] = {"least": 3}
    plan = planned(tmp_path, content, mode, since=0, until=3)
    expected = Expected(history, parse_definition(content, "test"), plan.range)

    manifests = run(spark, plan)

    skipped = {in_ms(row): row["record_count__final"] for row in rows(manifests, "skipped_windows")}
    assert published(manifests) == {place: value for place, value in expected.published().items() if value[0] >= 3}
    assert {place: count for place, count in skipped.items() if count} == {
        place: events for place, (events, _) in expected.published().items() if events < 3
    }


REFUSALS = {
    "narrow": (
        f"job {MODULE}:narrow returned other columns than job.columns declares:\n"
        "  key: expected string, got no such column\n"
        "  events: expected bigint, got int\n"
        "  total: expected bigint, got no such column\n\n"
        "hint: keep the key and the window, and cast the other columns or change job.columns"
    ),
    "twice": f"job {MODULE}:twice returned 3 keys and windows more than once\n  chunk 0000 of ",
    "shifted": f"job {MODULE}:shifted returned rows of 3 windows without records\n  chunk 0000 of ",
    "failing": f"job {MODULE}:failing failed in chunk 0000 of ",
    "failing_on_executors": f"job {MODULE}:failing_on_executors failed in chunk 0000 of ",
    "rates": f"job {MODULE}:rates cannot be imported: {MODULE} has no function 'rates'",
}


@pytest.mark.parametrize("function", REFUSALS)
def test_rows_that_do_not_fit_are_refused_before_any_is_staged(
    spark: SparkSession, tmp_path: Path, function: str
) -> None:
    write_history(tmp_path / "data", random_history(seed=5, rows=3, days=1))
    content = with_job(tmp_path, function, window=WINDOWS["tumbling"])
    plan = planned(tmp_path, content, Mode.REPLAY, since=0, until=1)

    with pytest.raises(BackstreamError) as refused:
        run(spark, plan)

    assert isinstance(refused.value, SpecError if function == "rates" else UserCodeError)
    assert str(refused.value).startswith(REFUSALS[function])
    if function.startswith("failing"):
        first, *trace = str(refused.value).splitlines()
        assert first.endswith("KeyError: 'EUR'")
        assert f'File "{Path(__file__).with_name("user_functions.py")}"' in trace[0]
        assert not any("pyspark" in line for line in trace)
    assert not list((tmp_path / "home").rglob("chunk=0/*.parquet"))


def test_a_retry_with_changed_code_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop").mkdir()
    for name, text in {"__init__": "", "jobs": "def orders(records): ...\n", "rates": "RATE = 1\n"}.items():
        (tmp_path / f"shop/{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    write_history(tmp_path / "data", random_history(seed=5, rows=3, days=1))
    content = with_job(tmp_path, "totals", window=WINDOWS["tumbling"])
    content["job"]["function"] = "shop.jobs:orders"
    plan = planned(tmp_path, content, Mode.RECOMPUTE, since=0, until=1)
    require_unchanged_code(plan)

    (tmp_path / "shop/rates.py").write_text("RATE = 2\n")

    with pytest.raises(PlanError) as refused:
        require_unchanged_code(plan)
    lines = str(refused.value).splitlines()
    assert (
        lines[0] == f"cannot run {plan.run_id}: the code of the job shop.jobs:orders changed since it was planned"
    )
    assert lines[1].startswith(f"  hash of package shop: {plan.code['shop.jobs:orders']} -> ")
    assert lines[3] == "hint: create a new plan for the range, or undo the change"
