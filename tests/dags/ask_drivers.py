"""Questions about drivers on a standalone cluster, whose master is played; `tests/e2e` has a real one."""

from __future__ import annotations

import asyncio
import http.server
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
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
    from pathlib import Path

    from backstream.orchestration import remote_driver, triggers
    from backstream.orchestration.standalone_cluster import StandaloneCluster

    vars(triggers).update(_POLL_S=0.01, _MAX_SILENCE_S=0.1)
    with _master() as (port, requests):
        cluster = StandaloneCluster.from_connection("spark://127.0.0.1:7077", {"rest-port": port})

        def follow(driver_id: str, limit_s: float | None = None) -> str:
            ends_at_s = None if limit_s is None else time.time() + limit_s
            trigger = triggers.DriverTrigger(cluster.master, cluster.url, driver_id, "error.txt", ends_at_s)
            name, arguments = trigger.serialize()
            again = getattr(triggers, name.rpartition(".")[2])(**arguments)
            return str(asyncio.run(_first_event(again))["state"])

        states = {name: follow(name) for name in ("good", "bad", "unknown")} | {"slow": follow("slow", 0.05)}
        not_started = raised(lambda: cluster.submit(["job.py"], {}, {}))
    Path("error.txt").write_text("SpecError: the key is wrong\n", encoding="utf-8")

    def end(state: str, file: str = "error.txt") -> list[Any]:
        error = remote_driver.find_error("far 0000", {"driver_id": "d-1", "state": state, "error_file": file})
        return [str(error), error.is_retryable] if error else []

    return {
        "states": states,
        "requests": requests,
        "not started": not_started,
        "not reached": raised(lambda: cluster.load_state("good")),
        "masters": raised(lambda: StandaloneCluster.from_connection("spark://a:7077,b:7077", {})),
        "ends": [end("FINISHED"), end("FAILED"), end("FAILED", "none.txt"), end("LOST", "none.txt")],
        "port": port,
    }


async def _first_event(trigger: Any) -> dict[str, Any]:
    async for event in trigger.run():
        return dict(event.payload)
    return {}
