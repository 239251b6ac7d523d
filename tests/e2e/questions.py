"""Questions of Airflow to approvers, and the moment from which a test may answer them."""

from __future__ import annotations

from typing import Any

from demo.stack import Stack


def can_answer(stack: Stack, task: dict[str, Any]) -> bool:
    """Return whether a task waits for an answer, and the executor has told so.

    Airflow shows a question some seconds before, and takes a task for lost that is answered in between: then its
    retry asks again. Nobody reads as fast as a test.
    """
    if task["state"] != "awaiting_input":
        return False
    log = (stack.logs / "scheduler.log").read_text(encoding="utf-8", errors="replace")
    return any(f"ti_id={task['id']}, " in line and "state=awaiting_input, " in line for line in log.splitlines())
