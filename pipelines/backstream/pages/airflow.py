"""Call Airflow's API from the pages: forms, runs, tasks, and answers of approvers.

The calls go through Airflow's routes with the token of the user. Therefore Airflow checks permissions and
parameters, and writes the audit log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import httpx

from backstream.errors import BackstreamError
from backstream.pages.reprocess import ReprocessForm
from backstream.pages.time_limits import LIMIT_S
from backstream.runs.dag_names import BACKFILL, REPROCESS, dag_id_of

APPROVE, REJECT = "Approve", "Reject"
"""The answers to an approval request, as Airflow names them."""
_ENDED = ("success", "failed")
_CANCEL_NOTE = "Canceled on the page of the run in backstream."


class RejectedError(BackstreamError):
    """A request that Airflow rejected, or has not answered in time; `status` is the HTTP status for the user."""

    is_retryable = False  # The user reads the response and changes the request.

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status

    @property
    def is_unanswered(self) -> bool:
        """Return whether Airflow has not responded in time, so that it may still do what was requested."""
        return self.status == HTTPStatus.GATEWAY_TIMEOUT

    def describe(self, action: str) -> str:
        """Return the sentence for the user whose action, such as `start the run`, Airflow did not do."""
        if self.is_unanswered:
            return f"{self}. It may still {action}: look at the run in Airflow before you try again."
        return f"Airflow did not {action}: {self}"


@dataclass(frozen=True, slots=True)
class DagRun:
    """A Dag run: its state, and its unfinished task with the index of its mapped instance (-1: not mapped)."""

    dag_id: str
    run_id: str
    state: str
    task_id: str = ""
    map_index: int = -1

    @property
    def has_ended(self) -> bool:
        """Return whether Airflow has ended the run."""
        return self.state in _ENDED

    @property
    def address(self) -> str:
        """Address of the run in Airflow, relative to the pages."""
        return f"../dags/{quote(self.dag_id, safe='')}/runs/{quote(self.run_id, safe='')}"

    @property
    def log_address(self) -> str:
        """Address of the log of the unfinished task; of the run without one."""
        if not self.task_id:
            return self.address
        task = f"{self.address}/tasks/{quote(self.task_id, safe='')}"
        return task if self.map_index < 0 else f"{task}/mapped/{self.map_index}"

    def form_address(self, task_id: str) -> str:
        """Return the address of Airflow's form for the answer of the approver.

        Args:
            task_id: the task that asks, with its groups.
        """
        return f"{self.address}/tasks/{quote(task_id, safe='')}/required_actions"


@dataclass(frozen=True, slots=True)
class Airflow:
    """Client of Airflow's API in the same process, with the token of the user."""

    application: Any
    token: str

    async def form(self, dataset: str) -> ReprocessForm:
        """Return the form of the `reprocess_` DAG of a dataset, or of its `backfill_` DAG if there is no other.

        Raises:
            RejectedError: when neither exists, or the user has no access.
        """
        for dag_id in (dag_id_of(REPROCESS, dataset), dag_id_of(BACKFILL, dataset)):
            response = await self._request("GET", f"/api/v2/dags/{dag_id}/details")
            if response.status_code != HTTPStatus.NOT_FOUND:
                break
        return ReprocessForm(dag_id, _parse_response(response).get("params") or {})

    async def start_run(self, dag_id: str, conf: Mapping[str, Any]) -> str:
        """Start a run and return its id.

        Raises:
            RejectedError: when Airflow rejects the run, with its message.
        """
        body = {"logical_date": None, "conf": conf}
        response = await self._request("POST", f"/api/v2/dags/{dag_id}/dagRuns", json=body)
        return str(_parse_response(response)["dag_run_id"])

    async def dag_run(self, dag_id: str, run_id: str, task_group: str = "") -> DagRun:
        """Return a Dag run with its unfinished task, or that of one of its task groups.

        Raises:
            RejectedError: when the run does not exist, or the user has no access.
        """
        path = _run_path(dag_id, run_id)
        state = str(_parse_response(await self._request("GET", path))["state"])
        tasks = _parse_response(await self._request("GET", f"{path}/taskInstances")).get("task_instances", [])
        prefix = f"{task_group}." if task_group else ""
        task = _unfinished_task(task for task in tasks if str(task.get("task_id")).startswith(prefix)) or {}
        return DagRun(dag_id, run_id, state, str(task.get("task_id", "")), int(task.get("map_index", -1)))

    async def cancel(self, dag_id: str, run_id: str) -> None:
        """Mark a run as failed, which ends its tasks.

        Raises:
            RejectedError: when Airflow rejects it, with its message.
        """
        end = {"state": "failed", "note": _CANCEL_NOTE}
        _parse_response(await self._request("PATCH", _run_path(dag_id, run_id), json=end))

    async def answer(self, dag_id: str, run_id: str, task_id: str, option: str) -> None:
        """Answer the approval request of a task with one of its options.

        Raises:
            RejectedError: when Airflow rejects it: the user may not answer, or an answer exists.
        """
        path = f"{_run_path(dag_id, run_id)}/taskInstances/{quote(task_id, safe='')}/-1/hitlDetails"
        body = {"chosen_options": [option], "params_input": {}}
        _parse_response(await self._request("PATCH", path, json=body))

    async def _request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Return Airflow's response.

        A route of Airflow that waits for its database cannot be stopped. While one hangs, no other one is called.

        Raises:
            RejectedError: when there is no response within the time limit.
        """
        if not _HANGING:
            request = asyncio.create_task(self._send(method, path, **options))
            await asyncio.wait({request}, timeout=LIMIT_S)
            if request.done():
                return request.result()
            _HANGING.add(request)
            request.add_done_callback(_forget)
        msg = f"Airflow has not responded within {LIMIT_S:g} s"
        raise RejectedError(msg, HTTPStatus.GATEWAY_TIMEOUT)

    async def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        transport = httpx.ASGITransport(app=self.application, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://airflow") as client:
            headers = {"Authorization": f"Bearer {self.token}"}
            return await client.request(method, path, headers=headers, **options)


_HANGING: set[asyncio.Task[httpx.Response]] = set()
"""The requests over the time limit that Airflow has not answered yet."""


def _forget(request: asyncio.Task[httpx.Response]) -> None:
    _HANGING.discard(request)
    if not request.cancelled():
        request.exception()  # Python logs an error that nobody has asked for


def _run_path(dag_id: str, run_id: str) -> str:
    return f"/api/v2/dags/{quote(dag_id, safe='')}/dagRuns/{quote(run_id, safe='')}"


def _unfinished_task(tasks: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the task that runs or waits for an answer, or else the first one that failed."""
    by_state: dict[str, Mapping[str, Any]] = {}
    for task in tasks:
        by_state.setdefault(str(task.get("state")), task)
    states = ("running", "awaiting_input", "queued", "up_for_retry", "failed")
    return next((by_state[state] for state in states if state in by_state), None)


def _parse_response(response: httpx.Response) -> dict[str, Any]:
    try:
        content = dict(response.json())
    except ValueError:
        content = {}
    if not response.is_success:
        detail = str(content.get("detail") or f"Airflow responded with status {response.status_code}")
        first_line, _, _ = detail.partition("\n")  # The JSON schema of the parameter follows.
        raise RejectedError(first_line, response.status_code)
    return content
