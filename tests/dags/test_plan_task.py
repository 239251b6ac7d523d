"""The tasks `plan` and `find_intervals`, with a real definition and files, and without an Airflow around it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.prepared.test_partition_filter import Archive
from tests.workflow.history import at, planned, write_clicks, write_definition
from tests.workflow.publishing import publish_counts

import backstream
from backstream.jobs import prepare
from backstream.lake.ledger import record_run, run_row
from backstream.pages.definitions import DefinitionEntry
from backstream.pages.form_check import check_form
from backstream.pages.reprocess import ReprocessForm
from backstream.runs.home import Home
from backstream.runs.plan import Plan
from backstream.runs.status import RunStatus
from backstream.variables import CATALOG_VARIABLE

Ask = Callable[..., Any]
CLICKED = [(at(f"{day} 05:00"), at(f"{day} 05:01"), "A", day, "home") for day in range(1, 5)]


PREPARE_RANGE = ["--since", "2024-03-03T00:00Z", "--until", "2024-03-04T00:00Z", "--mode", "recompute"]


@pytest.fixture(scope="module")
def archive(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """Files in folders of their day, prepared by the job of the task `prepare` for March 3."""
    request.getfixturevalue("spark")  # the job uses this session
    archive = Archive(tmp_path_factory.mktemp("archive"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BACKSTREAM_HOME", str(archive.home.path))
        assert prepare.main(["--definition", str(archive.definition), *PREPARE_RANGE]) == 0
    return archive


@pytest.fixture(scope="module")
def outcomes(ask: Ask, archive: Archive, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the outcome of each run by its name."""
    folder = tmp_path_factory.mktemp("plans")
    write_clicks(folder / "data/a.parquet", CLICKED)
    write_clicks(folder / "late.parquet", [(at("2 05:00"), at("9 05:00"), "A", 9, "late")])
    definition = write_definition(folder)
    _publish_two_days(folder)
    late = folder / "late.parquet"
    outcomes: dict[str, Any] = ask(
        "plans", definition, folder / "home", late, archive.definition, archive.home.path
    )
    return outcomes | {"folder": str(folder)}


def _publish_two_days(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(CATALOG_VARIABLE, raising=False)
        plan = planned(folder, folder / "clicks.toml", until="2024-03-03")
        publish_counts(plan, CLICKED)
        record_run(Home(folder / "home"), run_row(plan, RunStatus.PUBLISHED, (0, 1)))


def test_a_dry_run_logs_the_plan_and_returns_no_job(outcomes: dict[str, Any]) -> None:
    jobs, plan, log = outcomes["dry run"]
    assert (jobs, plan) == ([], "")
    assert "dry run: created the plan only" in log
    lines = log.splitlines()
    assert "0003     2024-03-04T00:00Z to 2024-03-05T00:00Z        1              0  0s" in lines
    assert "cost of the full run" in lines


def test_a_dry_run_leaves_its_result_for_the_pages(outcomes: dict[str, Any]) -> None:
    request = outcomes["requests"]["zero"]
    assert (request["by"], request["reason"], request["is_dry_run"], request["error"]) == ("ada", "why", True, "")
    impact = request["impact"]
    assert (impact["days"], impact["events"], impact["rows_replaced"]) == (4, 3, 2)
    assert [(each["triggered_by"], each["days"]) for each in impact["publishers"]] == [("test", 2)]
    assert impact["changes"] == "2 rows of 2 days would change: not published yet"
    preview = impact["preview"]
    assert (preview["share"], preview["rows"]) == (1.0, {"value": 2, "low": 2, "high": 2})
    assert [day["causes"] for day in preview["days"]] == [{"not published yet": 1}] * 2


def test_a_run_that_died_in_its_plan_leaves_its_error_in_one_sentence(outcomes: dict[str, Any]) -> None:
    request = outcomes["requests"]["three"]
    assert (request["by"], request["run_id"]) == ("ada", "")
    assert request["error"] == outcomes["half a day"][1].partition("\n")[0]
    unclear = outcomes["requests"]["four"]
    assert (unclear["since_ms"], unclear["until_ms"]) == (None, None)
    assert unclear["error"] == outcomes["no range"][1].partition("\n")[0]


def test_a_planned_run_names_its_plan(outcomes: dict[str, Any]) -> None:
    request = outcomes["requests"]["one"]
    assert (request["error"], request["impact"]) == ("", None)
    assert Path(outcomes["asked otherwise"][1]).parent.name == request["run_id"]


def test_the_report_is_written_even_if_the_pages_cannot_be_refreshed(outcomes: dict[str, Any]) -> None:
    report, log = outcomes["reported"]
    assert Path(report).read_text().startswith("<!doctype html>")
    assert log.splitlines() == [
        f"wrote {report}",
        "the pages of clicks are not up to date: its state could not be refreshed",
        "  cannot write clicks.json: Is a directory",
    ]


def test_the_plan_task_splits_a_run_into_the_requested_number_of_jobs(outcomes: dict[str, Any]) -> None:
    jobs, plan, log = outcomes["first"]
    assert jobs == [
        "clicks 0000: 2024-03-01T00:00Z to 2024-03-02T00:00Z",
        "clicks 0001: 2024-03-02T00:00Z to 2024-03-03T00:00Z",
        "clicks 0002-0003: 2024-03-03T00:00Z to 2024-03-05T00:00Z (2 chunks)",
    ]
    assert log.startswith("clicks 2024-03-01T00:00Z to 2024-03-05T00:00Z: recompute in 4 chunks, about 3 events")
    assert re.fullmatch(r"one\.reprocess_clicks\.[0-9a-f]{8}", Plan.read(Path(plan)).triggered_by)
    assert Plan.read(Path(plan)).reason == "why"


def test_a_cleared_run_resumes_its_plan_and_ignores_newer_files(outcomes: dict[str, Any]) -> None:
    jobs, plan, log = outcomes["cleared"]
    assert plan == outcomes["first"][1]
    assert len(jobs) == 1
    assert "resuming plan" in log
    assert len(Plan.read(Path(plan)).inputs) == 1


def test_a_cleared_run_with_changed_parameters_logs_and_creates_a_new_plan(outcomes: dict[str, Any]) -> None:
    _, plan, log = outcomes["asked otherwise"]
    assert plan != outcomes["first"][1]
    assert log.startswith("creating a new plan: the parameters of this run changed since plan ")


def test_the_error_of_a_run_that_cannot_resume_lists_changes_and_how_to_replan(outcomes: dict[str, Any]) -> None:
    assert len(Plan.read(Path(outcomes["another run"][1])).inputs) == 2
    kind, message = outcomes["cannot go on"]
    assert kind == "AirflowFailException"
    assert "removed: " in message
    assert message.splitlines()[-1] == (
        "hint: to create a new plan, start a new run, or a Backfill with the configuration replan = true"
    )
    assert len(Plan.read(Path(outcomes["replanned"][1])).inputs) == 1


def test_errors_found_during_planning_fail_at_once(outcomes: dict[str, Any]) -> None:
    assert outcomes["nonsense"] == [
        "AirflowFailException",
        (
            "watermark.delay has no meaning with the mode recompute, in which nothing is late, got '1h' "
            "(overrides of clicks)"
        ),
    ]
    kind, message = outcomes["half a day"]
    assert kind == "AirflowFailException"
    assert message.startswith("since 2024-03-01T12:00Z is not ")


@pytest.mark.parametrize(
    ("asked", "typed"),
    [
        ("nonsense", {"delay": "1h"}),
        ("future", {"until": "2999-01-01"}),
        ("hours", {"chunk": "5h"}),
        ("no event", {"since": "2004-03-01", "until": "2004-04-01"}),
        ("all years", {"since": "0001-01-01", "until": "9999-12-31"}),
    ],
)
def test_a_run_that_airflow_starts_is_refused_in_the_words_of_the_form(
    outcomes: dict[str, Any], asked: str, typed: dict[str, str]
) -> None:
    kind, message = outcomes[asked]
    file = Path(outcomes["folder"]) / "clicks.toml"
    schemas = {name: {"schema": {"type": "string"}} for name in ("since", "until", "reason", "delay", "chunk")}
    values = {"since": "2024-03-01", "until": "2024-03-05", "reason": "why"} | typed
    entry = DefinitionEntry("clicks", file)

    form = check_form(ReprocessForm("reprocess_clicks", schemas), values, entry, Home(file.parent / "home"))

    assert kind == "AirflowFailException"
    (problem,) = form.problems.values()
    assert _without_now(problem) == _without_now(message)


def _without_now(message: str) -> str:
    return re.sub(r"now is [^)]*", "now", message)


def test_an_unknown_field_is_refused_by_the_task_too(outcomes: dict[str, Any]) -> None:
    kind, message = outcomes["unknown field"]
    assert kind == "AirflowFailException"
    assert message.startswith("colour is not a parameter of reprocess_clicks, got 'red'")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("no event", "no event in range 2004-03-01T00:00Z to 2004-04-01T00:00Z (CLICKS, source.path)"),
        (
            "all years",
            "since must not be before 1970-01-01T00:00Z, got 0001-01-01T00:00Z (CLICKS, source.event_time_range)",
        ),
    ],
)
def test_a_range_without_possible_events_fails_at_once_with_the_possible_range(
    outcomes: dict[str, Any], asked: str, said: str
) -> None:
    kind, message = outcomes[asked]

    assert kind == "AirflowFailException"  # which Airflow does not retry
    assert re.sub(r"/\S*clicks.toml", "CLICKS", message) == (
        f"{said}\n  clicks has events from 2024-03-01T05:00Z to 2024-03-04T05:00Z"
        "\n\nhint: the possible range is since=2024-03-01 until=2024-03-05; until is excluded"
    )


def test_what_is_missing_before_the_interval_of_a_scheduled_run_becomes_a_run(outcomes: dict[str, Any]) -> None:
    (run,) = outcomes["found before"]
    assert run == {
        "trigger_run_id": "restate__2024-03-03T00:00Z__2024-03-04T00:00Z__r",
        "conf": {
            "since": "2024-03-03T00:00:00Z",
            "until": "2024-03-04T00:00:00Z",
            "mode": "as defined",
            "approval": "always",
            "allow_unsealed": False,
            "reason": "again; missing: no run covers it",
        },
    }


def test_without_a_limit_days_are_missing_between_those_that_were_published(outcomes: dict[str, Any]) -> None:
    assert outcomes["found everywhere"] == []


def test_a_day_is_left_to_the_run_of_the_schedule_that_is_unfinished(outcomes: dict[str, Any]) -> None:
    # published  1 2
    # unfinished     3        waits for approval, or is in a Backfill's queue
    # missing        3 4
    (run,) = outcomes["left to others"]
    assert (run["conf"]["since"], run["conf"]["until"]) == ("2024-03-04T00:00:00Z", "2024-03-05T00:00:00Z")


def test_a_run_that_has_published_and_only_waits_is_no_reason_to_leave_its_day(outcomes: dict[str, Any]) -> None:
    (run,) = outcomes["only waited for"]
    assert (run["conf"]["since"], run["conf"]["until"]) == ("2024-03-03T00:00:00Z", "2024-03-05T00:00:00Z")


def test_a_run_opens_the_folders_that_a_command_opens_and_has_the_same_plan(
    outcomes: dict[str, Any], archive: Archive, tmp_path: Path
) -> None:
    """The task `prepare` of a restatement gets no range: its job prepares what earlier runs needed."""
    own = ["--definition", str(archive.definition)]
    assert outcomes["prepare"] == [[*own, *PREPARE_RANGE], own]
    ours = Plan.read(Path(outcomes["filtered"][1]))
    arguments = ("2024-03-03", "2024-03-04")
    theirs = backstream.plan(
        archive.definition, *arguments, mode="recompute", home=tmp_path / "home", allow_unsealed=True
    )

    assert ours.unopened == theirs.unopened
    assert [path.split("/")[-2] for path in ours.unopened.first] == ["dt=2024-03-01", "dt=2024-03-05"]
    assert (ours.prepared, ours.chunks) == (theirs.prepared, theirs.chunks)
    assert [(file.rows, file.min_event_ms) for file in ours.inputs] == [
        (file.rows, file.min_event_ms) for file in theirs.inputs
    ]
