"""Questions about drivers on a standalone cluster, whose master is played; `tests/e2e` has a real one."""

from __future__ import annotations

import asyncio
import http.server
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from tests.dags.answers import raised

STATES = {"good": ["SUBMITTED", "RUNNING", "FINISHED"], "bad": ["RUNNING", "FAILED"], "slow": ["RUNNING"] * 99}
"""States of a driver, one after another; the master doesn't know other drivers."""


@contextmanager
def _master() -> Iterator[tuple[int, list[str]]]:
    """A master that forgets each state that it has told; yields its port, and the requests."""
    states, requests = {name: list(each) for name, each in STATES.items()}, []

    class Master(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = states.get(self.path.rpartition("/")[2])
            self._answer({"driverState": known.pop(0)} if known else {"success": False})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            requests.append(self.path)
            self._answer({"success": not body, "message": "no worker has 9 cores"})

        def _answer(self, answer: dict[str, Any]) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_: Any) -> None:
            """Nothing on the terminal."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Master) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port, requests
        server.shutdown()


def drivers() -> dict[str, Any]:
    """Return the events of triggers, errors of jobs by the sentence of their drivers, and rejected connections."""
    from backstream.orchestration import triggers
    from backstream.orchestration.job_operators import ReplayOperator
    from backstream.orchestration.runners import job_runner
    from backstream.orchestration.runners.job_runner import JobPhase, JobState
    from backstream.orchestration.runners.standalone import StandaloneCluster

    vars(triggers).update(_POLL_S=0.01)
    vars(job_runner).update(_MAX_SILENCE_S=0.1)
    with _master() as (port, requests):
        cluster = StandaloneCluster.from_connection(_connection("spark://127.0.0.1:7077", {"rest-port": port}))

        def follow(driver_id: str, limit_s: float | None = None) -> list[str]:
            ends_at_s = None if limit_s is None else time.time() + limit_s
            kind = type(cluster).__name__
            trigger = triggers.JobTrigger(kind, cluster.settings, driver_id, "error.txt", ends_at_s)
            name, arguments = json.loads(json.dumps(trigger.serialize()))
            again = getattr(triggers, name.rpartition(".")[2])(**arguments)
            state = asyncio.run(_first_event(again))["state"]
            return [state["phase"], state["cause"]]

        states = {name: follow(name) for name in ("good", "bad", "unknown")} | {"slow": follow("slow", 0.05)}
        not_started = raised(lambda: cluster._start(["job.py"], {}, {}))  # noqa: SLF001 - the answer of the master
    task = ReplayOperator(task_id="replay", name="far 0000", definition_path="/nowhere")

    def end(cause: str, sentence: str = "", status: int | None = None) -> list[Any]:
        state = JobState(JobPhase.FAILED, cause, status, ("driver d-1",), ("the last line",))
        error = task._job_error(state, sentence)  # noqa: SLF001 - the point
        return [str(error), error.is_retryable]

    return {
        "states": states,
        "requests": requests,
        "not started": not_started,
        "not reached": raised(lambda: cluster.poll("good")),
        "masters": raised(lambda: StandaloneCluster.from_connection(_connection("spark://a:7077,b:7077", {}))),
        "ends": [end("why", "SpecError: the key is wrong"), end("why"), end("", status=3)],
        "port": port,
    }


def _connection(host: str, extra: dict[str, Any]) -> Any:
    return SimpleNamespace(conn_id="backstream_spark", host=host, extra_dejson=extra)


async def _first_event(trigger: Any) -> dict[str, Any]:
    async for event in trigger.run():
        return dict(event.payload)
    return {}
