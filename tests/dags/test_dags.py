from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from demo.follow import USUAL_S

CHECKOUT = Path(__file__).parents[2]
FLIGHTS = CHECKOUT / "pipelines" / "definitions" / "flights.toml"
DAG_FILES = sorted((CHECKOUT / "dags").glob("*.py"))

Ask = Callable[..., Any]

OF_FLIGHTS = ["backfill_flights", "reprocess_flights", "restate_flights"]

SPELLINGS = {
    "bad duration": ('size = "1h"', 'size = "one hour"'),
    "unknown key": ("[lateness]", "[laetness]"),
    "bad schedule": ('schedule = "0 0 1 * *"', 'schedule = "monthly"'),
    "hourly": ('schedule = "0 0 1 * *"', 'schedule = "@hourly"'),
    "in the morning": ('schedule = "0 0 1 * *"', 'schedule = "0 6 1 * *"'),
    "twice a day": ('schedule = "0 0 1 * *"', 'schedule = "0 0,12 1 1 *"'),
}


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of definitions: each holds the sound one as `flights.toml`, most a broken one beside it."""
    sound = FLIGHTS.read_text(encoding="utf-8")
    made = {"checkout": FLIGHTS.parent}
    for name, (old, new) in SPELLINGS.items():
        assert sound.count(old) == 1
        broken = sound.replace('name = "flights"', 'name = "broken"').replace(old, new)
        made[name] = _folder(tmp_path_factory, {"flights.toml": sound, "broken.toml": broken})
    made["none"] = tmp_path_factory.mktemp("definitions") / "none"
    made["unreadable"] = _folder(tmp_path_factory, {"flights.toml": sound})
    (made["unreadable"] / "moved.toml").symlink_to("away.toml")
    several = {"flights.toml": sound, "a.toml": "name =", "twin.toml": sound}
    made["several"] = _folder(tmp_path_factory, several)
    lines = [line for line in sound.splitlines() if not line.startswith("event_time_range")]
    ended = "\n".join(lines).replace("[source]", '[source]\nevent_time_range = ["2010-01-01", "2012-01-01"]')
    ended = ended.replace("[backfill]", '[backfill]\ndeadline = "6h"')
    made["ended"] = _folder(tmp_path_factory, {"flights.toml": ended})
    return made


@pytest.fixture(scope="session")
def found(ask: Ask, folders: dict[str, Path]) -> dict[str, Any]:
    """What Airflow finds in this checkout's DAG files, for each of the folders."""
    return dict(zip(folders, ask("dags", CHECKOUT / "dags", *folders.values()), strict=True))


@pytest.fixture(scope="session")
def dags(found: dict[str, Any]) -> Any:
    """The DAGs of the checkout's own definition."""
    return found["checkout"]["dags"]


@pytest.fixture(scope="session")
def flights(found: dict[str, Any]) -> Any:
    """The DAG of the checkout's own definition."""
    return found["checkout"]["dags"]["backfill_flights"]


def _folder(factory: pytest.TempPathFactory, files: dict[str, str]) -> Path:
    folder = factory.mktemp("definitions")
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_every_dag_file_is_imported_without_an_error_or_a_warning(found: dict[str, Any]) -> None:
    assert (found["checkout"]["errors"], found["checkout"]["warnings"]) == ({}, {})


def test_each_definition_has_a_dag_of_each_kind(found: dict[str, Any]) -> None:
    names = sorted(path.stem for path in FLIGHTS.parent.glob("*.toml"))
    kinds = ("backfill", "reprocess", "restate")
    assert sorted(found["checkout"]["dags"]) == [f"{kind}_{name}" for kind in kinds for name in names]


def test_parsing_takes_little_more_than_the_import_of_an_operator(ask: Ask, tmp_path: Path) -> None:
    """The operator is Airflow's own. Seconds of a machine say nothing, so both are measured on it."""
    operator = "from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator\n"
    (tmp_path / "operator.py").write_text(f"from airflow.sdk import DAG\n{operator}")
    (own_s,) = ask("parse_s", tmp_path, FLIGHTS.parent)
    (took_s,) = ask("parse_s", CHECKOUT / "dags", FLIGHTS.parent)
    assert took_s < 2 * own_s


def test_parsing_imports_nothing_heavy(found: dict[str, Any]) -> None:
    assert found["checkout"]["heavy"] == []


def test_a_run_is_planned_replayed_audited_approved_published_and_reported(flights: Any) -> None:
    # The plan's file goes to every task after it, so the plan is before all of them.
    assert flights["chain"] == {
        "plan": ["approve", "audit", "publish", "replay", "report"],
        "replay": ["audit"],
        "audit": ["approve"],
        "approve": ["publish"],
        "publish": ["report"],
        "report": [],
        # Beside it: neither holds the other up, and the run fails when one of them does.
        "restate": [],
    }


def test_the_demo_has_a_usual_duration_for_each_task(flights: Any) -> None:
    assert USUAL_S.keys() == flights["chain"].keys()


def test_only_the_chunks_are_mapped_and_only_they_take_slots_of_the_spark_pool(flights: Any) -> None:
    assert flights["mapped"] == ["replay"]
    assert {task for task, pool in flights["pools"].items() if pool == "spark"} == {"replay"}


def test_the_schedule_gives_whole_data_intervals_and_never_catches_up_by_itself(flights: Any) -> None:
    assert flights["schedule"] == ["CronDataIntervalTimetable", "0 0 1 * *", "UTC"]
    assert (flights["catchup"], flights["max_active_runs"]) == (False, 16)
    assert flights["tags"] == ["backfill", "backstream", "flights"]


def test_a_scheduled_run_needs_no_range_and_no_reason_from_a_user(flights: Any) -> None:
    assert not {"since", "until"} & flights["params"].keys()
    assert flights["defaults"]["reason"] == ""
    assert {"mode": "as defined", "approval": "as defined", "replan": False}.items() <= flights["defaults"].items()


def test_the_form_wants_range_and_reason_and_offers_the_rest(dags: Any) -> None:
    form = dags["reprocess_flights"]
    required = {"type": ["null", "string"], "allOf": [{"type": "string"}]}  # without null, the form begins in red
    wanted = [
        name
        for name, schema in form["params"].items()
        if schema["type"] == "string" or required.items() <= schema.items()
    ]
    assert wanted == ["since", "until", "reason", "mode", "approval"]
    assert [form["defaults"][name] for name in wanted] == [None, None, None, "as defined", "as defined"]
    assert form["params"]["since"]["format"] == form["params"]["until"]["format"] == "date-time"
    assert form["params"]["mode"]["enum"] == ["as defined", "recompute", "replay"]
    assert "30m" in form["params"]["delay"]["description_md"]
    assert set(form["sections"].values()) == {"Range", "Execution", "Publication"}


def test_the_same_tasks_run_however_a_run_is_started(dags: Any) -> None:
    assert dags["reprocess_flights"]["chain"] | {"restate": []} == dags["backfill_flights"]["chain"]


def test_the_reprocess_dag_has_no_schedule_and_is_not_paused(dags: Any) -> None:
    assert dags["reprocess_flights"]["schedule"] == ["NullTimetable"]
    assert (dags["reprocess_flights"]["paused"], dags["reprocess_flights"]["max_active_runs"]) == (False, 16)


def test_the_restate_dag_allows_one_run_at_a_time_and_is_not_paused(dags: Any) -> None:
    found = dags["restate_flights"]
    assert found["chain"] == {"find_intervals": ["reprocess"], "reprocess": []}
    assert (found["schedule"], found["paused"], found["max_active_runs"]) == (["NullTimetable"], False, 1)


def test_waiting_for_a_run_that_failed_is_not_tried_again(dags: Any) -> None:
    # The second attempt would have all of it run once more.
    assert dags["restate_flights"]["retries"] == {"find_intervals": 2, "reprocess": 0}
    assert {task for task, count in dags["backfill_flights"]["retries"].items() if not count} == {"restate"}


@pytest.fixture(scope="session")
def besides(ask: Ask) -> Any:
    """What the task `restate` of runs of all types comes to."""
    return ask("restates")


def test_a_scheduled_run_starts_one_for_the_time_before_its_interval_and_waits(besides: Any) -> None:
    assert besides["scheduled"] == {
        "trigger_dag_id": "restate_flights",
        "dag_run_id": "before__scheduled__2013-03-01T00:00:00+00:00",
        "conf": {"until": "2013-02-01T00:00:00Z", "reason": "found by scheduled__2013-03-01T00:00:00+00:00"},
        "logical_date": None,
        "reset_dag_run": True,
        "wait_for_completion": True,
    }


@pytest.mark.parametrize("run_type", ["backfill", "manual"])
def test_a_run_that_a_user_starts_does_not_restate_earlier_days(besides: Any, run_type: str) -> None:
    assert besides[run_type] == (
        f"only a scheduled run restates earlier days, and this run has the type {run_type}"
    )


def test_who_pauses_the_other_dag_wants_it_left_alone(besides: Any) -> None:
    assert besides["paused"] == "restate_flights is paused: stale and missing days are not reprocessed"


def test_only_a_publication_is_an_event_of_the_assets(dags: Any) -> None:
    assert {name: dag["outlets"] for name, dag in dags.items()} == {
        "backfill_flights": {"publish": ["flights", "flights.days"]},
        "reprocess_flights": {"publish": ["flights", "flights.days"]},
        "restate_flights": {},
    }


def test_a_deadline_runs_from_the_time_a_run_was_queued(found: dict[str, Any], flights: Any) -> None:
    assert flights["deadline"] is None
    assert found["ended"]["dags"]["backfill_flights"]["deadline"] == [
        "DagRunQueuedAtDeadline",
        "6:00:00",
        "backstream.orchestration.notifications.notify_late_run",
    ]


def test_every_task_has_documentation(dags: Any) -> None:
    assert [task for dag in dags.values() for task, doc in dag["docs"].items() if not doc] == []


def test_a_source_that_has_ended_is_not_scheduled_beyond_its_end(found: dict[str, Any]) -> None:
    assert found["ended"]["dags"]["backfill_flights"]["first_and_last"] == [
        "2010-01-01T00:00:00+00:00",
        "2012-01-01T00:00:00+00:00",
    ]


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (
            "bad duration",
            'window.size must be a duration such as "1h", "30m" or "200ms", got \'one hour\' (FILE)',
        ),
        ("unknown key", "laetness is not a known key (FILE)"),
        (
            "bad schedule",
            "backfill.schedule must be a cron expression such as @daily, got 'monthly' (FILE)",
        ),
    ],
)
def test_a_broken_definition_is_an_import_error_and_takes_no_other_dag_down(
    found: dict[str, Any], folders: dict[str, Path], broken: str, complaint: str
) -> None:
    assert sorted(found[broken]["dags"]) == OF_FLIGHTS
    assert [Path(file).name for file in found[broken]["errors"]] == ["broken_definitions.py"]
    (error,) = found[broken]["errors"].values()
    said = complaint.replace("FILE", str(folders[broken] / "broken.toml"))
    assert error.splitlines()[-1] == f"backstream.errors.SpecError: {said}"


@pytest.mark.parametrize(
    ("broken", "schedule", "tick"),
    [
        ("hourly", "@hourly", "2013-01-01T05:00Z to 2013-01-01T06:00Z"),
        ("in the morning", "0 6 1 * *", "2012-12-01T06:00Z to 2013-01-01T06:00Z"),
        ("twice a day", "0 0,12 1 1 *", "2013-01-01T00:00Z to 2013-01-01T12:00Z"),
    ],
)
def test_a_schedule_whose_intervals_are_no_whole_days_is_refused(
    found: dict[str, Any], folders: dict[str, Path], broken: str, schedule: str, tick: str
) -> None:
    assert sorted(found[broken]["dags"]) == OF_FLIGHTS
    (error,) = found[broken]["errors"].values()
    first, _, hint = error.splitlines()[-3:]
    said = f"must have intervals of whole days in UTC, got {schedule!r} with {tick}"
    assert first == f"backstream.errors.SpecError: backfill.schedule {said} ({folders[broken] / 'broken.toml'})"
    assert hint == "hint: use @daily, @weekly, @monthly, or a cron expression that begins with 0 0"


def test_all_broken_definitions_are_named_at_once(found: dict[str, Any], folders: dict[str, Path]) -> None:
    (error,) = found["several"]["errors"].values()
    folder = folders["several"]
    assert error.splitlines()[-7:] == [
        "backstream.errors.SpecError: 2 definitions are invalid",
        f"  definition is not TOML: Invalid value (at end of document) ({folder / 'a.toml'})",
        "  name must be unique, got 'flights' in 2 files, so none becomes a DAG",
        f"    {folder / 'flights.toml'}",
        f"    {folder / 'twin.toml'}",
        "  ",
        "  hint: rename or remove all but one",
    ]


def test_of_two_definitions_with_one_name_none_becomes_a_dag(found: dict[str, Any]) -> None:
    assert found["several"]["dags"] == {}


def test_a_definition_that_cannot_be_read_takes_no_other_dag_down(
    found: dict[str, Any], folders: dict[str, Path]
) -> None:
    (error,) = found["unreadable"]["errors"].values()
    assert str(folders["unreadable"] / "moved.toml") in error.splitlines()[-1]
    assert sorted(found["unreadable"]["dags"]) == OF_FLIGHTS


def test_a_folder_of_definitions_that_does_not_exist_is_an_import_error(
    found: dict[str, Any], folders: dict[str, Path]
) -> None:
    (error,) = found["none"]["errors"].values()
    said = f"no folder of definitions at {folders['none']}"
    assert error.splitlines()[-1] == f"backstream.errors.SpecError: {said}"
    assert found["none"]["dags"] == {}


@pytest.mark.parametrize("path", DAG_FILES, ids=lambda path: str(path.name))
def test_a_dag_file_imports_only_the_functions_for_dag_files(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    modules = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    modules += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    allowed = ("__future__", "backstream.airflow")
    assert [name for name in modules if name and not name.startswith(allowed)] == []


@pytest.mark.parametrize("path", DAG_FILES, ids=lambda path: str(path.name))
def test_a_dag_file_is_seen_by_airflow_and_has_no_logic(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "airflow" in text.lower()  # Airflow skips a file that does not say both
    assert "dag" in text.lower()
    assert ast.get_docstring(ast.parse(text))
    logic = (ast.FunctionDef, ast.ClassDef, ast.If, ast.Try, ast.While)
    assert [type(node).__name__ for node in ast.walk(ast.parse(text)) if isinstance(node, logic)] == []
