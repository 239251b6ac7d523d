"""Telling people about a verdict below pass, through whatever notifier of Airflow they have.

A task's callback gets the task's context; the sentence and the link are put into it, so that any notifier
whose text is a template can say them:

    audit = task(
        on_success_callback=BelowPass(SlackNotifier(text="{{ backstream.text }}")),
        on_failure_callback=BelowPass(SlackNotifier(text="{{ backstream.text }}")),
    )
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, MutableMapping
from copy import copy
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

from airflow.sdk import BaseHook, BaseNotifier
from airflow.sdk.definitions.context import Context
from airflow.sdk.exceptions import AirflowNotFoundException

from backstream.runs.plan import Plan

PLAN_TASK, PLAN_KEY = "plan", "plan"
"""Which task leaves the plan's file for the tasks after it, and under which key."""
REPORT_ROUTE = "plugin/backstream_report"
"""The report's tab on a DAG run, by the `url_route` of the plugin's view."""

_PASSED = "pass"


class VerdictNotifier(BaseNotifier):
    """Calls another notifier when the run of the task was judged and is not a plain pass.

    The other one finds `backstream` in its context: `verdict`, `sentence` (the run in one sentence), `link` (the
    report's tab) and `text` (both). Without another one, alerts are told: a warning in the log, and to whom the
    connection of `alerts` leads.
    """

    def __init__(self, notifier: Callable[[Any], None] | None = None) -> None:
        super().__init__()
        self.notifier = notifier

    def notify(self, context: Context) -> None:
        """Tell, or stay silent where there is no plan, no verdict yet, or nothing to tell."""
        told = verdict_message(context)
        if told is None:
            return
        if self.notifier is None:
            post_alert(told["text"], logging.WARNING)
            return
        # Rendering changes a notifier in place: the copy leaves the template for the next run.
        copy(self.notifier)({**context, "backstream": told})


def verdict_message(context: Context | MutableMapping[str, Any]) -> dict[str, str] | None:
    """What there is to tell about the run of a task; None for a pass, and where nothing was judged."""
    ti = context["ti"]
    plan_file = ti.xcom_pull(task_ids=PLAN_TASK, key=PLAN_KEY)
    if not plan_file or not Path(plan_file).exists():
        return None
    plan = Plan.read(Path(plan_file))
    if not plan.folder.audit_result.exists():
        return None
    found = import_module("backstream.workflow.report").load_summary_of_run(plan)
    if found.verdict == _PASSED:
        return None
    link = report_link(ti)
    return {
        "verdict": found.verdict,
        "sentence": found.sentence,
        "link": link,
        "text": f"{found.sentence}\n{link}",
    }


def report_link(ti: Any) -> str:
    """The report's tab of a task's DAG run, on the server that the task's log is linked to."""
    server = str(ti.log_url).partition("/dags/")[0]
    return f"{server}/dags/{quote(ti.dag_id)}/runs/{quote(ti.run_id, safe='')}/{REPORT_ROUTE}"


CONNECTION_ID = "backstream_alerts"
_TIMEOUT_S = 10

log = logging.getLogger(__name__)


def notify_run_failure(context: Any) -> None:
    """Say that a run has failed; called once per run, by the DAG processor."""
    run = context["dag_run"]
    post_alert(f"{run.dag_id}: run {run.run_id} failed ({context.get('reason') or 'a task failed'})")


def notify_late_run(context: dict[str, Any] | None = None, **kwargs: Any) -> None:
    """Say that a run is not done although its deadline has passed; called by an executor."""
    run = (context or {}).get("dag_run") or {}
    name = f"{run.get('dag_id')}: run {run.get('dag_run_id') or run.get('run_id')}" if run else "a run"
    post_alert(f"{name} is not done {kwargs.get('after', '')} after it was queued")


def post_alert(text: str, level: int = logging.ERROR) -> None:
    """Log it, and post `{"text": ..}` to the address of the connection, if there is one.

    Whoever cannot be told is not a reason to fail: the log says so.
    """
    log.log(level, text)
    try:
        connection = BaseHook.get_connection(CONNECTION_ID)
    except AirflowNotFoundException:
        log.info("no connection %r: nobody else is told", CONNECTION_ID)
        return
    try:
        _post(connection, text)
    except (OSError, ValueError) as error:
        # Not its text: it may have the address in it, and that the token.
        log.warning("could not post to the connection %r: %s", CONNECTION_ID, type(error).__name__)


def _post(connection: Any, text: str) -> None:
    address = connection.host or ""
    if "://" not in address:
        address = f"{connection.schema or 'https'}://{address}" + (
            f":{connection.port}" if connection.port else ""
        )
    if not address.startswith(("http://", "https://")):
        msg = "neither http nor https"
        raise ValueError(msg)
    # The password is the secret end of the address, as chat services have it.
    address = f"{address.rstrip('/')}/{(connection.password or '').lstrip('/')}".rstrip("/")
    body = json.dumps({"text": text}).encode()
    request = Request(address, data=body, headers={"Content-Type": "application/json"})  # noqa: S310 - checked above
    urlopen(request, timeout=_TIMEOUT_S).close()  # noqa: S310 - checked above
