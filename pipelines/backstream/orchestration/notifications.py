"""Send alerts about failed and late runs, and about verdicts below pass.

`VerdictNotifier` calls any notifier of Airflow. It adds `backstream` to the context of the task, so that templates
of the notifier can use it:

    audit = task(
        on_success_callback=VerdictNotifier(SlackNotifier(text="{{ backstream.text }}")),
        on_failure_callback=VerdictNotifier(SlackNotifier(text="{{ backstream.text }}")),
    )
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, MutableMapping
from copy import copy
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

from airflow.sdk import BaseHook, BaseNotifier
from airflow.sdk.definitions.context import Context

from backstream.orchestration.airflow_versions import AirflowNotFoundException
from backstream.runs.home import RunFolder
from backstream.runs.plan import Plan
from backstream.text import text_logger, visible_line, visible_text

PLAN_TASK, PLAN_KEY = "plan", "plan"
"""Task that pushes the plan file, and the XCom key of the file."""
REPORT_ROUTE = "plugin/backstream_report"
"""Route of the report tab of a DAG run: the `url_route` of the view in the plugin."""

_PASSED = "pass"
_MAX_SENTENCE = 1_000
"""The most characters of a sentence in a message."""


class VerdictNotifier(BaseNotifier):
    """Notifier that calls another notifier if the verdict of the run is below pass.

    The context of the other notifier has `backstream` with `verdict`, `sentence` (a summary of the run), `link`
    (the report tab), `failing` (the failed checks with up to ten rows each), and `text` (all of these). Without
    another notifier, the text is logged as a warning and posted.
    """

    def __init__(self, notifier: Callable[[Any], None] | None = None) -> None:
        super().__init__()
        self.notifier = notifier

    def notify(self, context: Context) -> None:
        """Send the message about the verdict, unless there is no verdict or it is a pass."""
        message = verdict_message(context)
        if message is None:
            return
        if self.notifier is None:
            post_alert(message["text"], logging.WARNING)
            return
        # Rendering replaces the template of a notifier, so each call needs a copy.
        copy(self.notifier)({**context, "backstream": message})


def verdict_message(context: Context | MutableMapping[str, Any]) -> dict[str, str] | None:
    """Return the message about the verdict of a run; None for a pass, and for a run without a verdict."""
    ti = context["ti"]
    group = ti.task_id.rpartition(".")[0]  # a run in a task group has the task `<group>.plan`
    plan_file = ti.xcom_pull(task_ids=f"{group}.{PLAN_TASK}" if group else PLAN_TASK, key=PLAN_KEY)
    if not plan_file:
        return None
    folder = RunFolder.from_plan(plan_file)
    if not (folder.plan.exists() and folder.audit_result.exists()):
        return None
    from backstream.report.failing_rows import failing_lines
    from backstream.workflow.report import load_run_summary

    plan = Plan.read(folder.plan)
    summary = load_run_summary(plan)
    if summary.audit is None or summary.verdict == _PASSED:
        return None
    link = report_link(ti)
    server = link.partition("/dags/")[0]
    rows = failing_lines(summary.audit, summary.definition.unit_ms, plan.dataset, server)
    lines, sentence = [visible_text(line) for line in rows], visible_line(summary.sentence, _MAX_SENTENCE)
    return {
        "verdict": summary.verdict,
        "sentence": sentence,
        "link": link,
        "failing": "\n".join(lines),
        "text": "\n".join([sentence, link, *lines]),
    }


def report_link(ti: Any) -> str:
    """Return the link to the report tab of a DAG run, on the server of the log link of the task."""
    server = str(ti.log_url).partition("/dags/")[0]
    return f"{server}/dags/{quote(ti.dag_id)}/runs/{quote(ti.run_id, safe='')}/{REPORT_ROUTE}"


CONNECTION_ID = "backstream_alerts"
_TIMEOUT_S = 10

log = text_logger(__name__)


def notify_run_failure(context: Any) -> None:
    """Send an alert about a failed run. The DAG processor calls this once per run."""
    run = context["dag_run"]
    reason = visible_line(str(context.get("reason") or "a task failed"))
    post_alert(f"{run.dag_id}: run {visible_line(run.run_id)} failed ({reason})")


def notify_late_run(context: dict[str, Any] | None = None, **kwargs: Any) -> None:
    """Send an alert about a run that missed its deadline. An executor calls this."""
    run = (context or {}).get("dag_run") or {}
    name = f"{run.get('dag_id')}: run {run.get('dag_run_id') or run.get('run_id')}" if run else "a run"
    name = visible_line(name, _MAX_SENTENCE)
    post_alert(f"{name} has not ended {kwargs.get('after', '')} after it was queued")


def post_alert(text: str, level: int = logging.ERROR) -> None:
    """Log the text, and post `{"text": ..}` to the address of the connection, if the connection exists.

    If the post fails, the function only logs this.
    """
    text = visible_text(text)
    log.log(level, "%s", text)
    try:
        connection = BaseHook.get_connection(CONNECTION_ID)
    except AirflowNotFoundException:
        log.info("connection %r not found; the alert is only logged", CONNECTION_ID)
        return
    try:
        _post(connection, text)
    except (OSError, ValueError) as error:
        # The text of the error can contain the address, which includes the token.
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
    # The password is the secret end of the path, as in the webhooks of chat services.
    address = f"{address.rstrip('/')}/{(connection.password or '').lstrip('/')}".rstrip("/")
    body = json.dumps({"text": text}).encode()
    request = Request(address, data=body, headers={"Content-Type": "application/json"})  # noqa: S310 - checked above
    urlopen(request, timeout=_TIMEOUT_S).close()  # noqa: S310 - checked above
