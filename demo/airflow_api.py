"""Call the REST API of Airflow."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any
from urllib.parse import quote

import httpx

from backstream.errors import BackstreamError

FINISHED = ("success", "failed")

_ATTEMPTS = 10
_STOP_NOTE = "The demo was stopped before this run had ended. Clear the tasks of the run to continue it."
_PAUSE_S = 1.0
_TIMEOUT_S = 90.0  # longer than the timeout of SQLite's lock


class ApiError(BackstreamError):
    """Failed call of Airflow's API."""


class AirflowApi:
    """Client of one Airflow."""

    def __init__(self, url: str, user: str, password: str) -> None:
        # The server is on this machine, so the client must not use the proxy of the user.
        self._http = httpx.Client(base_url=url, timeout=_TIMEOUT_S, trust_env=False)
        self._credentials = {"username": user, "password": password}

    def close(self) -> None:
        """Close the connections to the server."""
        self._http.close()

    def health(self) -> dict[str, Any]:
        """Return the health of the components of Airflow; an empty dict without an answer."""
        try:
            answer = self._http.get("/api/v2/monitor/health", timeout=5)
        except httpx.HTTPError:
            return {}
        return dict(answer.json()) if answer.is_success else {}

    def log_in(self) -> None:
        """Log in for all later calls.

        Raises:
            ApiError: when the password is wrong, or another server uses this port.
        """
        token = self._call("POST", "/auth/token", json=self._credentials)["access_token"]
        self._http.headers["Authorization"] = f"Bearer {token}"

    def set_pool(self, name: str, slots: int) -> None:
        """Create the pool, or change its size."""
        pool = {"name": name, "slots": slots, "include_deferred": False}
        if self._http.get(f"/api/v2/pools/{name}").status_code == httpx.codes.NOT_FOUND:
            self._call("POST", "/api/v2/pools", json=pool)
        else:
            self._call("PATCH", f"/api/v2/pools/{name}", json=pool)

    def has_dag(self, dag_id: str, parsed_after: datetime) -> bool:
        """Return whether the DAG was parsed after an instant."""
        answer = self._http.get(f"/api/v2/dags/{dag_id}")
        parsed = answer.json().get("last_parsed_time") if answer.is_success else None
        return parsed is not None and datetime.fromisoformat(parsed) >= parsed_after

    def import_errors(self, found_after: datetime) -> list[str]:
        """Return the import errors of DAG files that were parsed after an instant."""
        errors = self._call("GET", "/api/v2/importErrors")["import_errors"]
        new = [error for error in errors if datetime.fromisoformat(error["timestamp"]) >= found_after]
        return [f"{error['filename']}: {error['stack_trace']}" for error in new]

    def unpause(self, dag_id: str) -> None:
        """Unpause the DAG."""
        self._call("PATCH", f"/api/v2/dags/{dag_id}", json={"is_paused": False})

    def backfill(self, dag_id: str, date: datetime, conf: dict[str, str]) -> str:
        """Backfill the run of one date, even if it has run before, and return its run id."""
        request = {
            "dag_id": dag_id,
            "from_date": date.isoformat(),
            "to_date": date.isoformat(),
            "dag_run_conf": conf,
            "reprocess_behavior": "completed",
            "max_active_runs": 1,
        }
        for attempts_left in reversed(range(_ATTEMPTS)):
            answer = self._answer("POST", "/api/v2/backfills", json=request)
            # With SQLite, a concurrent write can fail this call and leave a Backfill without runs.
            is_incomplete = answer.is_server_error or answer.status_code == httpx.codes.CONFLICT
            if not is_incomplete or not attempts_left:
                _require_success(answer)
                break
            time.sleep(_PAUSE_S)
            self.settle()
        dates = {"logical_date_gte": date.isoformat(), "logical_date_lte": date.isoformat()}
        runs = self._call("GET", f"/api/v2/dags/{dag_id}/dagRuns", params=dates)["dag_runs"]
        return str(runs[0]["dag_run_id"])

    def trigger(self, dag_id: str, conf: dict[str, str]) -> str:
        """Trigger a run of a DAG without a logical date, and return its run id."""
        request = {"logical_date": None, "conf": conf}
        return str(self._call("POST", f"/api/v2/dags/{dag_id}/dagRuns", json=request)["dag_run_id"])

    def settle(self) -> None:
        """Cancel unfinished Backfills, because a DAG can have one at a time, and fail unfinished runs.

        A run that waits for approval stays: nothing of it runs, and it continues after its answer.
        """
        for dag in self._call("GET", "/api/v2/dags", params={"limit": 100})["dags"]:
            newest = {"dag_id": dag["dag_id"], "order_by": "-id"}
            for backfill in self._call("GET", "/api/v2/backfills", params=newest)["backfills"]:
                if backfill["completed_at"] is None:
                    self._call("PUT", f"/api/v2/backfills/{backfill['id']}/cancel")
        unfinished = {"state": ["queued", "running"], "limit": 100}
        for run in self._call("GET", "/api/v2/dags/~/dagRuns", params=unfinished)["dag_runs"]:
            if not self._is_waiting(run["dag_id"], run["dag_run_id"]):
                end = {"state": "failed", "note": _STOP_NOTE}
                self._call("PATCH", _run_path(run["dag_id"], run["dag_run_id"]), json=end)

    def _is_waiting(self, dag_id: str, run_id: str) -> bool:
        """Return whether a run waits for approval."""
        return any(task["state"] == "awaiting_input" for task in self.task_instances(dag_id, run_id))

    def run_state(self, dag_id: str, run_id: str) -> str:
        """Return the state of a run, e.g., running, success, or failed."""
        return str(self._call("GET", _run_path(dag_id, run_id))["state"])

    def task_instances(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        """Return all task instances of the run; a mapped task has one per Spark job."""
        answer = self._call("GET", f"{_run_path(dag_id, run_id)}/taskInstances", params={"limit": 1000})
        return list(answer["task_instances"])

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str) -> Any:
        """Return an XCom value of a task."""
        entries = f"{_run_path(dag_id, run_id)}/taskInstances/{task_id}/xcomEntries"
        return self._call("GET", f"{entries}/{key}")["value"]

    def log(self, task: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the log of the last attempt of a task: each entry has an `event`, and most have a `logger`."""
        path = _run_path(task["dag_id"], task["dag_run_id"])
        attempt = f"{path}/taskInstances/{task['task_id']}/logs/{task['try_number']}"
        content = self._call("GET", attempt, params={"map_index": task["map_index"], "full_content": True})
        return [entry if isinstance(entry, dict) else {"event": entry} for entry in content["content"]]

    def _call(self, method: str, path: str, **options: Any) -> Any:
        """Return the JSON of the answer. Server errors are retried, because SQLite can reject concurrent writes.

        Raises:
            ApiError: when the call fails.
        """
        for _ in range(_ATTEMPTS):
            answer = self._answer(method, path, **options)
            if not answer.is_server_error:
                break
            time.sleep(_PAUSE_S)
        _require_success(answer)
        return answer.json() if answer.content else {}

    def _answer(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            return self._http.request(method, path, **options)
        except httpx.HTTPError as error:
            msg = f"no answer from Airflow to {method} {path}: {error or type(error).__name__}"
            raise ApiError(msg) from error


def _require_success(answer: httpx.Response) -> None:
    if not answer.is_success:
        request = f"{answer.request.method} {answer.request.url.path}"
        msg = f"Airflow answered {answer.status_code} to {request}\n  {answer.text[:500]}"
        raise ApiError(msg)


def _run_path(dag_id: str, run_id: str) -> str:
    return f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id, safe='')}"
