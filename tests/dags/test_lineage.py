"""The lineage and the metrics of a result. `tests/e2e/test_cluster.py` has those of real runs."""

from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.dags.conftest import Ask
from tests.workflow.history import CLICKS, at, planned, write_clicks, write_definition
from tests.workflow.publishing import publish_counts

from backstream.runs.results import Audit, Check, CheckOutcome, Severity, Verdict
from backstream.variables import CATALOG_VARIABLE

ROWS = [(at("1 05:00"), at("1 05:01"), "A", 0, "home"), (at("1 06:00"), at("1 06:01"), "A", 1, "help")]
CHECKS = (
    Check(
        "every window is complete", "expect_column_min", Severity.CRITICAL, CheckOutcome.FAIL, "3", "events", "≥ 4"
    ),
    Check("few records\n\u202eare late", "expect_column_max", Severity.WARNING, CheckOutcome.PASS),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lineage")


@pytest.fixture(scope="module")
def answers(ask: Ask, folder: Path) -> dict[str, Any]:
    """The lineage of a run that was audited and published."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(CATALOG_VARIABLE, raising=False)
        write_clicks(folder / "data/a.parquet", ROWS)
        definition = write_definition(folder, 'description = "Clicks per page"\n' + CLICKS)
        plan = planned(folder, definition, reason="late\x1b[31m\nfiles")
        publish_counts(plan, ROWS)
    Audit(plan.run_id, "clicks", Verdict.FAIL, "1 of 2 failed", CHECKS).write(plan.folder.audit_result)
    answers: dict[str, Any] = ask("lineage", definition, plan.folder.plan)
    return answers | {"run_id": plan.run_id, "plan": str(plan.folder.plan)}


def plain(facet: dict[str, Any]) -> dict[str, Any]:
    """Return a facet without the fields that each has."""
    return {name: value for name, value in facet.items() if not name.startswith("_")}


def test_an_audit_reports_each_check_of_the_table(answers: dict[str, Any], folder: Path) -> None:
    (audited,) = answers["audited"]["inputs"]
    assert (audited["namespace"], audited["name"]) == ("file", f"{folder}/home/warehouse/backstream/clicks")
    assert plain(audited["inputFacets"]["dataQualityAssertions"]) == {
        "assertions": [
            {
                "assertion": "expect_column_min",
                "success": False,
                "column": "events",
                "severity": "error",
                "name": "every window is complete",
                "expected": "≥ 4",
                "actual": "3",
                "params": {},
            },
            {
                "assertion": "expect_column_max",
                "success": True,
                "params": {},
                "severity": "warn",
                "name": "few records<U+000A><U+202E>are late",
            },
        ]
    }


def test_a_rejected_run_reports_its_checks_too(answers: dict[str, Any]) -> None:
    assert answers["rejected"] == answers["audited"]
    assert answers["rejected"]["run_facets"]["backstream"]["verdict"] == "fail"


def test_a_publication_that_failed_reports_no_table(answers: dict[str, Any]) -> None:
    assert answers["not published"] is None


def test_a_publication_names_the_files_that_it_read(answers: dict[str, Any], folder: Path) -> None:
    (read,) = answers["published"]["inputs"]
    assert (read["namespace"], read["name"]) == ("file", f"{folder}/data")
    size_bytes = (folder / "data/a.parquet").stat().st_size
    assert plain(read["inputFacets"]["inputStatistics"]) == {"size": size_bytes, "fileCount": 1}
    fields = {field["name"]: field["type"] for field in read["facets"]["schema"]["fields"]}
    assert fields == {
        "arrived_at": "timestamp",
        "happened_at": "timestamp",
        "origin": "string",
        "page": "string",
        "seq": "bigint",
    }


def test_a_publication_describes_its_table(answers: dict[str, Any], folder: Path) -> None:
    (written,) = answers["published"]["outputs"]
    facets = {name: plain(facet) for name, facet in written["facets"].items()}
    lineage, version = facets.pop("columnLineage"), facets.pop("version")
    catalog = f"sqlite:///{folder}/home/catalog.db"
    assert facets == {
        "documentation": {"description": "Clicks per page"},
        "lifecycleStateChange": {"lifecycleStateChange": "OVERWRITE"},
        "schema": {
            "fields": [
                {"name": "window_start", "type": "timestamptz", "fields": []},
                {"name": "window_end", "type": "timestamptz", "fields": []},
                {"name": "page", "type": "string", "fields": []},
                {"name": "clicks", "type": "long", "fields": []},
                {"name": "record_count", "type": "long", "fields": []},
                {"name": "run_id", "type": "string", "fields": []},
            ]
        },
        "storage": {"storageLayer": "iceberg", "fileFormat": "parquet"},
        "symlinks": {"identifiers": [{"namespace": catalog, "name": "backstream.clicks", "type": "TABLE"}]},
    }
    assert int(version["datasetVersion"]) > 0
    assert written["outputFacets"]["outputStatistics"]["rowCount"] == 2
    place = {"namespace": "file", "name": f"{folder}/data"}
    time = {**place, "field": "happened_at"}
    start = {"type": "DIRECT", "subtype": "TRANSFORMATION", "description": "tumbling"}
    assert lineage["fields"]["window_start"]["inputFields"] == [{**time, "transformations": [start]}]
    assert set(lineage["fields"]) == {"window_start", "window_end", "page"}
    assert {(each["field"], each["transformations"][0]["subtype"]) for each in lineage["dataset"]} == {
        ("happened_at", "WINDOW"),
        ("page", "GROUP_BY"),
        ("origin", "FILTER"),
        ("seq", "FILTER"),
    }


def test_each_event_names_the_run_and_its_range(answers: dict[str, Any]) -> None:
    assert plain(answers["published"]["run_facets"]["backstream"]) == {
        "runId": answers["run_id"],
        "dataset": "clicks",
        "since": "2024-03-01T00:00Z",
        "until": "2024-03-02T00:00Z",
        "mode": "recompute",
        "reason": "late<U+001B>[31m<U+000A>files",
        "verdict": "fail",
    }


def test_statsd_gets_each_metric_under_a_name_with_its_values_too(ask: Ask, answers: dict[str, Any]) -> None:
    lines = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server, suppress(BlockingIOError):
        server.bind(("127.0.0.1", 0))
        ask("metrics", answers["plan"], str(server.getsockname()[1]))
        server.settimeout(0)
        while line := server.recv(1024).decode():
            lines.append(line)

    name = "airflow.backstream"
    assert sorted(line for line in lines if line.startswith(name)) == [
        f"{name}.audits.clicks.fail:1|c",
        f"{name}.audits:1|c",
        f"{name}.published_rows.clicks:2|c",
        f"{name}.published_rows:2|c",
        f"{name}.records.clicks.duplicate:0|c",
        f"{name}.records.clicks.on_time:2|c",
        f"{name}.records:0|c",
        f"{name}.records:2|c",
        f"{name}.replaced_rows.clicks:0|c",
        f"{name}.replaced_rows:0|c",
    ]
