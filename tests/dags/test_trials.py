"""What people do in Airflow gets around no gate and no approval, and leaves one truth."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

Ask = Callable[..., Any]
PUBLISHED = ["nothing", ""]


@pytest.fixture(scope="module")
def marked(ask: Ask, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return ask("marked", tmp_path_factory.mktemp("marked"))


@pytest.fixture(scope="module")
def left_out(ask: Ask, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return ask("left_out", tmp_path_factory.mktemp("left_out"))


@pytest.fixture(scope="module")
def same_ids(ask: Ask, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return ask("same_ids", tmp_path_factory.mktemp("same_ids"))


@pytest.fixture(scope="module")
def final(ask: Ask, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return ask("final", tmp_path_factory.mktemp("final"))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("always approve", "requires an approval, and no approver was asked"),
        ("always approve while it waits", "the approval request has no answer"),
        ("always replay, audit, and approve", "was not audited"),
        ("always approve after a rejection", "rejected by ada"),
        ("always audit of other results", "asked about an earlier audit"),
        ("never audit of other results", "staged results after its audit"),
        ("never audit", "was not audited"),
        ("restatement approve", "requires an approval, and no approver was asked"),
    ],
)
def test_a_task_that_is_marked_as_success_publishes_nothing(marked: Any, name: str, reason: str) -> None:
    kind, message, _, rows, (state, *_) = marked[name]
    assert kind == "AirflowFailException"
    assert reason in message
    assert (rows[-1][0], state) in {("failed", "failed"), ("refused", "refused"), ("refused", "awaiting_approval")}
    if rows[-1][0] == "failed":
        assert rows[-1][4] == message.partition("\n")[0]


@pytest.mark.parametrize("name", ["always nothing", "restatement nothing to ask", "warn nothing to ask"])
def test_a_run_with_all_that_its_plan_demands_is_published(marked: Any, name: str) -> None:
    assert (marked[name][:3], marked[name][3][-1][0]) == ([*PUBLISHED, 1], "published")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("audit", r"run .* of 1 chunk: 1 left no manifest \(0000\)"),
        ("ask", r"run .* was not audited"),
        ("removed", r"cannot run .*: 1 input file of 1 cannot be read as planned"),
    ],
)
def test_a_step_without_its_input_ends_at_once_with_a_sentence(left_out: Any, name: str, sentence: str) -> None:
    kind, message, rows = left_out[name]
    first, _, rest = message.partition("\n")
    assert kind == "AirflowFailException"
    assert re.search(sentence, first)
    assert "hint: " in rest
    assert [(row[0], row[4]) for row in rows] == [("failed", first)]


def test_a_report_that_was_written_too_early_is_written_again(left_out: Any) -> None:
    assert left_out["early"] == [True, False]


def test_runs_of_two_dags_with_one_id_are_two_runs(same_ids: Any) -> None:
    assert same_ids["reports"] == [True, True]
    assert same_ids["triggers"] == [1, 1]
    assert [state[:2] for state in same_ids["states"]] == [
        ["reprocess_clicks", "awaiting_approval"],
        ["backfill_clicks", "awaiting_approval"],
    ]


def test_a_run_of_another_dag_resumes_no_plan(same_ids: Any) -> None:
    assert same_ids["other"] == ["by the schedule DAG", True, False]


def test_a_cleared_run_resumes_its_plan_and_says_what_it_does_not_read(same_ids: Any) -> None:
    is_same, log = same_ids["cleared"]
    assert is_same
    assert any(line.endswith(": 1 file, 2 records; replan to read them") for line in log)
    assert same_ids["cleared report"]


def test_a_run_that_was_deleted_and_created_again_is_another_run(same_ids: Any) -> None:
    files, reason, is_resumed, rows = same_ids["recreated"]
    assert (files, reason, is_resumed) == (2, "second", False)
    assert [(row[0], row[3]) for row in rows] == [("published", "second")]
    assert [state[:2] for state in same_ids["recreated states"]] == [
        ["reprocess_clicks", "interrupted"],
        ["reprocess_clicks", "published"],
    ]


def test_a_plan_that_can_only_be_refused_is_not_resumed(same_ids: Any) -> None:
    assert same_ids["overtaken"] == [True, False, "nothing"]


@pytest.mark.parametrize("task", ["audit", "ask", "publish", "report", "plan"])
def test_a_task_that_is_cleared_after_the_publication_changes_nothing(final: Any, task: str) -> None:
    assert final[f"after {task}"]


def test_a_repeated_task_says_that_there_is_nothing_to_do(final: Any) -> None:
    said = r"run .* is published with the verdict pass: there is nothing to do"
    assert final["first events"] == 2
    assert final["audit"][0] == "pass"
    assert final["ask"][0] is None
    assert final["publish"][0] == 0
    for task in ("audit", "publish"):
        (line,) = final[task][1]
        assert re.search(said, line)
    is_same, log = final["plan"]
    assert is_same
    assert any(re.search(said, line) for line in log)


def test_a_published_run_is_judged_again_with_another_suite_and_keeps_its_verdict(final: Any) -> None:
    first, second, third = final["judged again"]
    said = "judged again on .*: fail, with expectations that changed after the audit"
    for verdict, is_same, (line,), texts in (first, second):
        assert (verdict, is_same) == ("pass", True)
        assert re.search(said, line)
        assert texts == [True] * 5
    assert first[2] == second[2], "the same suite was judged twice"
    assert third[:2] == ["pass", True]
    assert third[2][0].endswith("there is nothing to do")


def test_a_suite_that_does_not_exist_changes_nothing_of_a_published_run(final: Any) -> None:
    kind, message, rows, state = final["without suite"]
    assert kind == "AirflowFailException"
    assert "broken" in message
    assert ([row[0] for row in rows], state) == (["published"], ["published", "pass", None])


def test_a_run_that_was_rolled_back_gets_no_row_and_sends_no_event(final: Any) -> None:
    kind, message, _, is_same = final["rolled back"]
    assert (kind, is_same) == ("AirflowFailException", True)
    assert "rolled back" in message
    assert final["audit of a rolled back run"] == [*PUBLISHED, True]
    assert final["plan after a rollback"]


def test_a_run_whose_rows_were_replaced_sends_no_event(final: Any) -> None:
    events, (line,) = final["replaced"]
    assert events == 0
    assert "there is nothing to do" in line


def test_events_that_airflow_never_got_are_sent_by_the_next_attempt_even_after_the_report(final: Any) -> None:
    assert final["killed"] == [2, 0]


def test_what_tasks_hand_to_each_other_through_airflow_has_no_hidden_character(
    ask: Ask, tmp_path_factory: pytest.TempPathFactory
) -> None:
    values = ask("handed", tmp_path_factory.mktemp("handed"))
    assert len(values) > 1
    assert [value for value in values if not value.isprintable()] == []
