"""The few calls of Airflow's REST API that the demo makes."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any
from urllib.parse import quote

import httpx

from backstream.errors import BackstreamError

FINISHED = ("success", "failed")

_ATTEMPTS = 10
_PAUSE_S = 1.0
_TIMEOUT_S = 90.0  # longer than a process waits for SQLite's lock


class ApiError(BackstreamError):
    """Airflow's API refused a call."""


class AirflowApi:
    """A client of one Airflow."""

    def __init__(self, url: str, user: str, password: str) -> None:
        # Not by the user's proxy: the server is on this machine.
        self._http = httpx.Client(base_url=url, timeout=_TIMEOUT_S, trust_env=False)
        self._credentials = {"username": user, "password": password}

    def close(self) -> None:
        """Give up the connections to the server."""
        self._http.close()

    def health(self) -> dict[str, Any]:
        """What Airflow says of its parts; empty as long as it does not answer."""
        try:
            answer = self._http.get("/api/v2/monitor/health", timeout=5)
        except httpx.HTTPError:
            return {}
        return dict(answer.json()) if answer.is_success else {}

    def log_in(self) -> None:
        """Get a token for all later calls.

        Raises:
            ApiError: when another server answers on this port, or the password is wrong.
        """
        token = self._call("POST", "/auth/token", json=self._credentials)["access_token"]
        self._http.headers["Authorization"] = f"Bearer {token}"

    def set_pool(self, name: str, slots: int) -> None:
        """Make the pool, or change its size."""
        pool = {"name": name, "slots": slots, "include_deferred": False}
        if self._http.get(f"/api/v2/pools/{name}").status_code == httpx.codes.NOT_FOUND:
            self._call("POST", "/api/v2/pools", json=pool)
        else:
            self._call("PATCH", f"/api/v2/pools/{name}", json=pool)

    def has_dag(self, dag_id: str, parsed_after: datetime) -> bool:
        """Whether the DAG has been parsed since then."""
        answer = self._http.get(f"/api/v2/dags/{dag_id}")
        parsed = answer.json().get("last_parsed_time") if answer.is_success else None
        return parsed is not None and datetime.fromisoformat(parsed) >= parsed_after

    def import_errors(self, found_after: datetime) -> list[str]:
        """What is wrong with DAG files that were parsed since then."""
        found = self._call("GET", "/api/v2/importErrors")["import_errors"]
        new = [each for each in found if datetime.fromisoformat(each["timestamp"]) >= found_after]
        return [f"{each['filename']}: {each['stack_trace']}" for each in new]

    def unpause(self, dag_id: str) -> None:
        """Let the DAG run."""
        self._call("PATCH", f"/api/v2/dags/{dag_id}", json={"is_paused": False})

    def backfill(self, dag_id: str, date: datetime, conf: dict[str, str]) -> str:
        """Have Airflow backfill the one run of a date, also when it ran before; return the run's id."""
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
            # On SQLite it may fail halfway, when another process writes, and leave a Backfill without runs.
            halfway = answer.is_server_error or answer.status_code == httpx.codes.CONFLICT
            if not halfway or not attempts_left:
                _require_success(answer)
                break
            time.sleep(_PAUSE_S)
            self.settle()
        at = {"logical_date_gte": date.isoformat(), "logical_date_lte": date.isoformat()}
        runs = self._call("GET", f"/api/v2/dags/{dag_id}/dagRuns", params=at)["dag_runs"]
        return str(runs[0]["dag_run_id"])

    def trigger(self, dag_id: str, conf: dict[str, str]) -> str:
        """Start a run of a DAG without a date; return the run's id."""
        request = {"logical_date": None, "conf": conf}
        return str(self._call("POST", f"/api/v2/dags/{dag_id}/dagRuns", json=request)["dag_run_id"])

    def settle(self) -> None:
        """End what is unfinished: cancel Backfills, of which a DAG may have one at a time, and fail runs."""
        for dag in self._call("GET", "/api/v2/dags", params={"limit": 100})["dags"]:
            for each in self._call("GET", "/api/v2/backfills", params={"dag_id": dag["dag_id"]})["backfills"]:
                if each["completed_at"] is None:
                    self._call("PUT", f"/api/v2/backfills/{each['id']}/cancel")
        unfinished = {"state": ["queued", "running"], "limit": 100}
        for run in self._call("GET", "/api/v2/dags/~/dagRuns", params=unfinished)["dag_runs"]:
            self._call("PATCH", _run(run["dag_id"], run["dag_run_id"]), json={"state": "failed"})

    def run_state(self, dag_id: str, run_id: str) -> str:
        """Such as running, success or failed."""
        return str(self._call("GET", _run(dag_id, run_id))["state"])

    def task_instances(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        """Every task of the run, a mapped one once per chunk."""
        found = self._call("GET", f"{_run(dag_id, run_id)}/taskInstances", params={"limit": 1000})
        return list(found["task_instances"])

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str) -> Any:
        """What a task left for others."""
        entries = f"{_run(dag_id, run_id)}/taskInstances/{task_id}/xcomEntries"
        return self._call("GET", f"{entries}/{key}")["value"]

    def log(self, task: dict[str, Any]) -> list[dict[str, Any]]:
        """What the last attempt of a task logged: each entry has an `event`, most a `logger`."""
        run = _run(task["dag_id"], task["dag_run_id"])
        attempt = f"{run}/taskInstances/{task['task_id']}/logs/{task['try_number']}"
        content = self._call("GET", attempt, params={"map_index": task["map_index"], "full_content": True})
        return [each if isinstance(each, dict) else {"event": each} for each in content["content"]]

    def _call(self, method: str, path: str, **options: Any) -> Any:
        """The answer's JSON. A server in trouble is asked again: SQLite may refuse whoever writes second.

        Raises:
            ApiError: when it is not a success.
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
        asked = f"{answer.request.method} {answer.request.url.path}"
        msg = f"Airflow answered {answer.status_code} to {asked}\n  {answer.text[:500]}"
        raise ApiError(msg)


def _run(dag_id: str, run_id: str) -> str:
    return f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id, safe='')}"
