"""Telling someone: a run has failed, takes too long, or was judged to be less than a pass.

Where to is an Airflow connection and nothing else: no address or token is in a definition, a plan or a log.
"""

from __future__ import annotations

import json
import logging
from typing import Any
from urllib.request import Request, urlopen

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

CONNECTION_ID = "backstream_alerts"
_TIMEOUT_S = 10

log = logging.getLogger(__name__)


def run_failed(context: Any) -> None:
    """Say that a run has failed; called once per run, by the DAG processor."""
    run = context["dag_run"]
    tell(f"{run.dag_id}: run {run.run_id} failed ({context.get('reason') or 'a task failed'})")


def run_is_late(context: dict[str, Any] | None = None, **kwargs: Any) -> None:
    """Say that a run is not done although its deadline has passed; called by an executor."""
    run = (context or {}).get("dag_run") or {}
    name = f"{run.get('dag_id')}: run {run.get('dag_run_id') or run.get('run_id')}" if run else "a run"
    tell(f"{name} is not done {kwargs.get('after', '')} after it was queued")


def tell(text: str, level: int = logging.ERROR) -> None:
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
