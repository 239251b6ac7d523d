"""Check that failures are recorded in the ledger, and that a resumed run keeps its finished chunks."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from tests.workflow.history import CLICKS, at, write_clicks, write_definition
from tests.workflow.publishing import stage_counts

from backstream.errors import CatalogError, ContractError, LedgerError
from backstream.eventtime.instants import DAY_MS, instant_ms
from backstream.eventtime.intervals import Interval
from backstream.lake.run_rows import list_runs
from backstream.runs.home import Home
from backstream.runs.manifest import Manifest, list_unfinished_chunks
from backstream.runs.plan import Plan
from backstream.runs.status import RunStatus
from backstream.runs.table_schemas import WINDOWS
from backstream.variables import CATALOG_VARIABLE
from backstream.workflow.audit import audit_run
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.plan.planning import plan_run
from backstream.workflow.publish import publish_run, record_failure
from backstream.workflow.report import report_run
from backstream.workflow.resume import find_interrupted_run
from backstream.workflow.status import list_run_states

SINCE_MS = instant_ms("2024-03-01", "since")
DAY = Interval(SINCE_MS, SINCE_MS + DAY_MS)
ROWS = [(at("1 05:00"), at("1 05:01"), "A", 0, "home")]


@pytest.fixture
def plan(tmp_path: Path, lenient_suite: str) -> Plan:
    """Return a run of one day whose only chunk is finished and audited."""
    write_clicks(tmp_path / "data/1.parquet", ROWS)
    definition = write_definition(tmp_path, CLICKS + lenient_suite)
    made = plan_run(PlanRequest(definition, DAY, trigger="cli", home=Home(tmp_path / "home")))
    stage_counts(made, ROWS)
    audit_run(made)
    return made


def staged_file(plan: Plan) -> Path:
    """Return the only file of windows."""
    manifest = Manifest.read(plan.folder.manifest(plan.chunks[0].chunk_id))
    return Path(manifest.files[WINDOWS][0].path)


def test_a_failed_run_is_failed_in_ledger_and_status_until_it_is_resumed(plan: Plan) -> None:
    file = staged_file(plan)
    content = file.read_bytes()
    file.write_bytes(b"not Parquet")
    with pytest.raises(ContractError):
        publish_run(plan)
    (row,) = list_runs(plan.home)
    (state,) = list_run_states(plan.home)
    first_line = "a file staged for table `clicks` breaks its contract"
    assert (row.status, row.error, row.rows, row.events_read) == (RunStatus.FAILED, first_line, None, 1)
    assert (state.state, state.error) == (RunStatus.FAILED, first_line)

    file.write_bytes(content)
    publish_run(plan)
    report_run(plan)

    assert [each.status for each in list_runs(plan.home)] == [RunStatus.PUBLISHED, RunStatus.FAILED]
    (state,) = list_run_states(plan.home)
    assert (state.state, state.error) == (RunStatus.PUBLISHED, None)


def test_an_error_after_the_publication_leaves_the_run_published(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(home: Home, dataset: str) -> None:
        msg = f"cannot reach the catalog of {dataset} in {home.path}"
        raise CatalogError(msg)

    with monkeypatch.context() as broken:
        broken.setattr("backstream.workflow.publish.expire_side_table_snapshots", fail)
        with pytest.raises(CatalogError):
            publish_run(plan)

    assert [row.status for row in list_runs(plan.home)] == [RunStatus.PUBLISHED]
    assert publish_run(plan).already
    assert [row.status for row in list_runs(plan.home)] == [RunStatus.PUBLISHED]


def test_a_resumed_run_continues_with_its_audit(plan: Plan) -> None:
    with pytest.raises(ZeroDivisionError), record_failure(plan):
        _ = 1 / 0
    assert list_run_states(plan.home)[0].error == "division by zero"
    later_s = time.time() + 60
    os.utime(plan.folder.audit_result, (later_s, later_s))

    (state,) = list_run_states(plan.home, now_ms=int(later_s * 1_000) + 1)

    assert (state.state, state.error) == (RunStatus.AUDITED, None)


def test_each_failure_of_a_run_is_kept_and_it_is_published_once(plan: Plan) -> None:
    for error in (LedgerError("one"), LedgerError("two")):
        with pytest.raises(LedgerError), record_failure(plan):
            raise error

    for _ in range(2):
        publish_run(plan)

    found = [(row.status, row.error) for row in list_runs(plan.home)]
    assert found == [(RunStatus.PUBLISHED, None), (RunStatus.FAILED, "two"), (RunStatus.FAILED, "one")]


def test_without_a_catalog_the_first_error_is_reported(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CATALOG_VARIABLE, f"sqlite:///{tmp_path}/nowhere/catalog.db")

    with pytest.raises(CatalogError, match="cannot open the catalog"):
        publish_run(plan)
    with pytest.raises(ZeroDivisionError), record_failure(plan):
        _ = 1 / 0


def test_a_chunk_with_missing_files_is_run_again_until_they_are_published(plan: Plan) -> None:
    assert list_unfinished_chunks(plan) == []
    file = staged_file(plan)
    file.rename(file.with_suffix(".aside"))
    assert list_unfinished_chunks(plan) == [plan.chunks[0].chunk_id]

    file.with_suffix(".aside").rename(file)
    publish_run(plan)
    file.unlink()

    assert list_unfinished_chunks(plan) == []


def test_a_run_without_its_report_is_resumed(plan: Plan) -> None:
    folder = Path(plan.definition_path)
    publish_run(plan)
    found = find_interrupted_run(folder, DAY, None, plan.home)
    assert found
    assert found.plan.run_id == plan.run_id

    report_run(plan)

    assert find_interrupted_run(folder, DAY, None, plan.home) is None
