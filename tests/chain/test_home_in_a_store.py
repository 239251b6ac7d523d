"""Each step of a run is done on another machine, and they share only an object store and a catalog."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.chain.stored import HISTORY, home_address, settings, write_dataset
from tests.lake.store import Store
from tests.spark.histories import Expected, days
from tests.spark.runs import in_ms

from backstream.chunks.replay import replay_chunks
from backstream.definition.loader import parse_definition
from backstream.lake.reader import load_rows
from backstream.pages.store import find_day_totals
from backstream.runs.home import Home
from backstream.runs.manifest import load_manifests
from backstream.runs.plan import Mode, Plan
from backstream.runs.status import RunStatus
from backstream.spark.engine import SparkEngine
from backstream.variables import CACHE_VARIABLE
from backstream.workflow.audit import audit_run
from backstream.workflow.checks.check_installation import check_installation
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.plan.planning import plan_run
from backstream.workflow.publish import publish_run
from backstream.workflow.report import report_run
from backstream.workflow.resume import find_interrupted_run
from backstream.workflow.status import list_run_states

PLACE = "chain"
ADDRESS = home_address(PLACE)


def test_every_step_of_a_run_may_be_on_another_machine(
    spark: SparkSession, s3: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def move_to(machine: str) -> Home:
        monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / machine))
        return Home.from_location(ADDRESS)

    definition = write_dataset(tmp_path, s3, PLACE)
    for name, text in settings(tmp_path, s3, PLACE).items():
        monkeypatch.setenv(name, text)
    request = PlanRequest(definition, days(0, 4), mode=Mode.REPLAY, trigger="cli", home=move_to("planner"))
    planned = plan_run(request)
    location = planned.location
    assert location == f"{ADDRESS}/runs/events/{planned.run_id}/plan.json"

    move_to("first driver")
    plan = Plan.load(location)
    assert plan == planned
    assert plan.folder.path.is_relative_to(tmp_path / "first driver")
    (done,) = replay_chunks(SparkEngine(spark), plan, plan.chunks[:1])
    shutil.rmtree(tmp_path / "first driver")

    move_to("second driver")
    interrupted = find_interrupted_run(definition, days(0, 4), Mode.REPLAY, Home.from_environment())
    assert interrupted
    plan = Plan.load(location)
    assert [manifest.chunk_id for manifest in load_manifests(plan)] == [done.chunk_id]
    list(replay_chunks(SparkEngine(spark), plan, plan.chunks))
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
    assert find_day_totals(home, "events", planned.run_id)
    expected = Expected(HISTORY, parse_definition(plan.definition, "plan"), plan.range).published()
    rows = load_rows(home, "events").to_pylist()
    assert {in_ms(row): (row["events"], row["total"]) for row in rows} == expected
    assert next(str(each) for each in check_installation(home) if each.part == "home").startswith("ok")
