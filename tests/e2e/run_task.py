"""Execute the task `replay` of a run as Airflow's worker and triggerer do, without the services of Airflow.

    python -m tests.e2e.run_task RESULT.json CONNECTION PLAN CHUNK..

The output is the log of the task. A SIGTERM cancels the task. The result is the class and message of the error.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any


def main(result: str, connection: str, plan: str, *chunks: str) -> None:
    """Execute the task, and write its error."""
    from airflow.sdk.exceptions import TaskDeferred

    from backstream.orchestration.job_operators import ReplayOperator

    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s", force=True)
    task = ReplayOperator(
        task_id="replay",
        name="events",
        definition_path="/nowhere/events.toml",
        conn_id=connection,
        application_args=["--plan", plan, *(word for chunk in chunks for word in ("--chunk", chunk))],
    )
    _on_cancel(task.on_kill)
    error = ["", ""]
    try:
        try:
            task.execute({})
        except TaskDeferred as deferred:
            event = asyncio.run(_wait(deferred.trigger.serialize()))
            task.execute_complete({}, event)
    except Exception as failed:  # noqa: BLE001 - the result is which one it is
        error = [type(failed).__name__, str(failed)]
    Path(result).write_text(json.dumps(error), encoding="utf-8")


async def _wait(serialized: Any) -> dict[str, Any]:
    """Return the event of a trigger that is made again, as in a triggerer."""
    from backstream.orchestration import triggers

    name, arguments = json.loads(json.dumps(serialized))
    trigger = getattr(triggers, name.rpartition(".")[2])(**arguments)
    _on_cancel(lambda: asyncio.run(trigger.on_kill()))
    async for event in trigger.run():
        return dict(json.loads(json.dumps(event.payload)))
    return {}


def _on_cancel(end: Callable[[], None]) -> None:
    """Call a function in a thread of its own when this process is asked to end."""
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=end).start())


if __name__ == "__main__":
    main(*sys.argv[1:])
