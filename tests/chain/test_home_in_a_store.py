"""Each step of a run is done on another machine, and they share only an object store and a catalog."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.chain.job import KINDS, LENIENT
from tests.lake.store import BUCKET, Store
from tests.spark.histories import Expected, days, definition_of, random_history, write_history
from tests.spark.runs import in_ms, toml_value

from backstream.definition.loader import parse_definition
from backstream.lake.reader import load_rows
from backstream.pages.store import PageStore
from backstream.runs.home import Home
from backstream.runs.manifest import load_manifests
from backstream.runs.plan import Mode, Plan
from backstream.runs.status import RunStatus
from backstream.spark.chunk_job import replay_chunks
from backstream.variables import CACHE_VARIABLE, CATALOG_VARIABLE, HOME_VARIABLE, WAREHOUSE_VARIABLE
from backstream.workflow import audit_run, find_interrupted_run, plan_run, publish_run, report_run
from backstream.workflow.check_installation import check_installation
from backstream.workflow.plan_request import PlanRequest
from backstream.workflow.status import list_run_states

HISTORY = random_history(seed=7, rows=900, days=4)
ADDRESS = f"s3://{BUCKET}/installation"


@pytest.fixture
def definition(tmp_path: Path, s3: Store, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a history into the store, and return its definition, which each machine has."""
    write_history(tmp_path / "history", HISTORY)
    for file in (tmp_path / "history").rglob("*.parquet"):
        path = file.relative_to(tmp_path / "history")
        with s3.filesystem.open_output_stream(f"{BUCKET}/events/{path}") as stream:
            stream.write(file.read_bytes())
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    monkeypatch.setenv(HOME_VARIABLE, ADDRESS)
    monkeypatch.setenv(WAREHOUSE_VARIABLE, f"s3://{BUCKET}/tables")
    monkeypatch.setenv(CATALOG_VARIABLE, f"sqlite:///{tmp_path / 'catalog.db'}")
    backfill = {"engine": "auto", "chunk": "1d"}
    content = definition_of(
        tmp_path, window=KINDS["sliding"], quality=LENIENT | {"verify": 1_000}, backfill=backfill
    )
    content |= {"name": "events", "source": content["source"] | {"path": f"s3://{BUCKET}/events"}}
    path = tmp_path / "events.toml"
    path.write_text("".join(f"{key} = {toml_value(value)}\n" for key, value in content.items()))
    return path


def test_every_step_of_a_run_may_be_on_another_machine(
    spark: SparkSession, definition: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def move_to(machine: str) -> Home:
        monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / machine))
        return Home.from_location(ADDRESS)

    request = PlanRequest(definition, days(0, 4), mode=Mode.REPLAY, trigger="cli", home=move_to("planner"))
    planned = plan_run(request)
    location = planned.location
    assert location == f"{ADDRESS}/runs/events/{planned.run_id}/plan.json"

    move_to("first driver")
    plan = Plan.load(location)
    assert plan == planned
    assert plan.folder.path.is_relative_to(tmp_path / "first driver")
    (done,) = replay_chunks(spark, plan, plan.chunks[:1])
    shutil.rmtree(tmp_path / "first driver")

    move_to("second driver")
    interrupted = find_interrupted_run(definition, days(0, 4), Mode.REPLAY, Home.from_environment())
    assert interrupted
    plan = Plan.load(location)
    assert [manifest.chunk_id for manifest in load_manifests(plan)] == [done.chunk_id]
    list(replay_chunks(spark, plan, plan.chunks))
    assert done in load_manifests(plan)

    move_to("auditor")
    audit_run(Plan.load(location))
    move_to("publisher")
    publish_run(Plan.load(location))
    move_to("reporter")
    report_run(Plan.load(location))

    home = move_to("reader")
    home.fetch()
    (state,) = list_run_states(home)
    assert state.state is RunStatus.PUBLISHED
    assert home.run("events", planned.run_id).report.read_text().startswith("<!doctype html>")
    assert PageStore.from_home(home).figures("events", planned.run_id)
    expected = Expected(HISTORY, parse_definition(plan.definition, "plan"), plan.range).published()
    rows = load_rows(home, "events").to_pylist()
    assert {in_ms(row): (row["events"], row["total"]) for row in rows} == expected
    assert next(str(each) for each in check_installation(home) if each.part == "home").startswith("ok")
