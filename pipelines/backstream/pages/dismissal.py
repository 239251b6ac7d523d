"""Dismiss a run that ended without a publication, with a reason, or undo this."""

from __future__ import annotations

import time
from collections.abc import Mapping

from backstream.eventtime.instants import SECOND_MS
from backstream.pages.airflow import Airflow
from backstream.pages.render import Page
from backstream.pages.run import load_run, run_page
from backstream.pages.runs import RunAddress
from backstream.pages.store import PageStore
from backstream.runs.dismissals import Dismissal

_BAD_REQUEST, _CONFLICT = 400, 409
_MAX_REASON = 500


async def dismiss_page(
    records: PageStore, address: RunAddress, typed: Mapping[str, str], user: str, airflow: Airflow
) -> Page:
    """Record or undo the dismissal of a run by the user, and return its page; no data, day, or count changes."""
    run, reason = await load_run(records, address, airflow), typed.get("reason", "").strip()
    if typed.get("undo") and run.state is not None and run.state.dismissal is not None:
        run.state.dismissal.remove(records.home)
        return run_page(await load_run(records, address, airflow), may_edit=True)
    if run.state is None or not run.state.is_dismissible:
        problem = "The run cannot be dismissed: it has not stopped without a publication, or it is dismissed."
        return run_page(run, may_edit=True, problem=problem, status=_CONFLICT)
    if not reason or len(reason) > _MAX_REASON:
        problem = f"A reason of 1 to {_MAX_REASON} characters is required, got {len(reason)} characters."
        return run_page(run, may_edit=True, problem=problem, status=_BAD_REQUEST)
    now_ms = int(time.time() * SECOND_MS)
    Dismissal(run.state.dataset, run.state.run_id, user, reason, now_ms).write(records.home)
    return run_page(await load_run(records, address, airflow), may_edit=True)
