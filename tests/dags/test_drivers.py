"""Drivers on a standalone cluster whose master is played: what a task learns of each end."""

from __future__ import annotations

from typing import Any

import pytest
from tests.dags.conftest import Ask


@pytest.fixture(scope="module")
def seen(ask: Ask) -> dict[str, Any]:
    answers: dict[str, Any] = ask("drivers")
    return answers


def test_a_trigger_waits_for_the_end_of_its_driver(seen: dict[str, Any]) -> None:
    assert seen["states"] == {
        "good": ["succeeded", ""],
        "bad": ["failed", "its state is FAILED; the log is on its worker"],
        "unknown": ["failed", "the Spark master no longer knows it (for 0 seconds)"],
        "slow": ["failed", "it was ended after the execution timeout of the task"],
    }


def test_a_driver_that_takes_too_long_is_ended(seen: dict[str, Any]) -> None:
    assert "/v1/submissions/kill/slow" in seen["requests"]


def test_a_driver_that_is_not_started_has_the_reason_of_the_master(seen: dict[str, Any]) -> None:
    url = f"http://127.0.0.1:{seen['port']}"
    message = f"the Spark master did not start the driver: no worker has 9 cores ({url})"
    assert seen["not started"] == ["JobError", message]


def test_a_master_that_cannot_be_reached_is_an_error_with_its_remedy(seen: dict[str, Any]) -> None:
    kind, message = seen["not reached"]
    assert kind == "JobError"
    assert message == (
        "cannot reach the REST server of the Spark master: [Errno 111] Connection refused"
        f" (http://127.0.0.1:{seen['port']})\n\n"
        "hint: set spark.master.rest.enabled = true for the master, and `rest-port` in the extra of the connection"
    )


def test_several_masters_are_refused(seen: dict[str, Any]) -> None:
    assert seen["masters"] == [
        "SpecError",
        "a driver on a standalone cluster needs the address of one master, got 'spark://a:7077,b:7077'",
    ]


def test_the_error_of_a_driver_has_its_own_message_and_decides_about_a_retry(seen: dict[str, Any]) -> None:
    assert seen["ends"] == [
        [
            "job far 0000 failed: SpecError: the key is wrong\ndriver d-1\nSpecError: the key is wrong",
            False,
        ],
        ["job far 0000 failed: why\ndriver d-1\nwhy", True],
        ["job far 0000 failed\ndriver d-1\nthe last line", False],
    ]
