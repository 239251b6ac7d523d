"""What `make demo` runs: February 2013 replayed by a real Airflow, from the recorded flights to the report."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from rich.console import Console
from rich.markup import escape

from backstream.errors import BackstreamError
from backstream.runs.home import HOME_VARIABLE, Home
from backstream.runs.plan import Plan
from demo.airflow_api import AirflowApi
from demo.flights import prepare
from demo.follow import Followed
from demo.processes import StackError
from demo.settings import CHECKOUT
from demo.stack import Stack

EXIT_VARIABLE = "BACKSTREAM_DEMO_EXIT"
DAG_ID = "backfill_flights"
# The definition's schedule is monthly: the run of this date covers the month that begins with it.
FEBRUARY = datetime(2013, 2, 1, tzinfo=UTC)

console = Console(highlight=False, soft_wrap=True)


def main() -> int:
    """Run the demo; the exit status is 0 when the month is published."""
    # Being asked to end is as good as a Ctrl-C, also where a shell has made its background jobs deaf to it.
    for asked in (signal.SIGTERM, signal.SIGINT):
        signal.signal(asked, signal.default_int_handler)
    home = Home(Path(os.environ.get(HOME_VARIABLE) or CHECKOUT / ".backstream").resolve())
    try:
        return _demo(home)
    except KeyboardInterrupt:
        console.print("stopped before the end")
        return 128 + signal.SIGINT
    except BackstreamError as error:
        console.print(f"[red]failed[/]     {type(error).__name__}: ", end="")
        console.print(str(error), markup=False)
        return 1


def _demo(home: Home) -> int:
    began = time.monotonic()
    console.print("[bold]backstream[/]  February 2013 as New York's airports recorded it, replayed by Airflow")
    _say("state", f"{home.path} (everything the demo leaves)")
    with Stack(home.path) as stack:
        _prepare_flights(home)
        api = _started(stack)
        succeeded = _backfill(api, stack, home)
        _say("took", f"{time.monotonic() - began:.0f} s")
        if os.environ.get(EXIT_VARIABLE) != "1":
            _wait_for_interrupt(stack)
        _say("stopping", "Airflow")
    return 0 if succeeded else 1


def _prepare_flights(home: Home) -> None:
    began = time.monotonic()
    with console.status("preparing flights") as status:
        flights = prepare(home.path, progress=lambda step: status.update(f"flights: {step}"))
    counts = f"{flights.scheduled:,} scheduled, {flights.departed:,} departed"
    _say("flights", f"{counts}, {flights.never_departed:,} never did", began)


def _started(stack: Stack) -> AirflowApi:
    began, parsed_after = time.monotonic(), datetime.now(UTC)
    with console.status("starting Airflow: scheduler, DAG processor, API server"):
        api = stack.start()
        stack.wait_until(f"knows the DAG {DAG_ID}", lambda: _knows_dag(api, parsed_after))
    _say("airflow", f"{stack.place.url}  login {stack.login}", began)
    return api


def _knows_dag(api: AirflowApi, parsed_after: datetime) -> bool:
    if api.has_dag(DAG_ID, parsed_after):
        return True
    if errors := api.import_errors(parsed_after):
        msg = "\n".join(["Airflow cannot import the DAG files", *errors])
        raise StackError(msg)
    return False


def _backfill(api: AirflowApi, stack: Stack, home: Home) -> bool:
    """Have Airflow backfill the month; whether it was published."""
    api.unpause(DAG_ID)
    run_id = api.backfill(DAG_ID, FEBRUARY, {"mode": "replay"})
    _say("backfill", f"asked of Airflow for {FEBRUARY:%B %Y}, mode replay: run {run_id}")
    followed = Followed(api, DAG_ID, run_id, console)
    succeeded = followed.until_finished(stack.require_alive) == "success"
    if not succeeded:
        console.print(f"\n[red]failed[/]     run {run_id}")
        console.print(followed.complaint(), markup=False)
    with suppress(BackstreamError):  # there is no plan to sum up when planning failed
        _sum_up(Plan.read(Path(api.xcom(DAG_ID, run_id, "plan", "plan"))), home, published=succeeded)
    _say("interface", f"{stack.place.url}/dags/{DAG_ID}/runs/{quote(run_id)}  login {stack.login}")
    return succeeded


def _sum_up(plan: Plan, home: Home, *, published: bool) -> None:
    """The run's own summary, and a hash of what is now published, equal for equal rows."""
    from backstream import workflow
    from backstream.lake import reader

    console.print()
    console.print(workflow.publication_text(plan), markup=False)
    if published:
        rows = reader.load_rows(home, plan.dataset, plan.range)
        console.print(f"content    {rows.num_rows:,} rows, hash {reader.content_hash(rows)[:16]}")
    console.print()


def _wait_for_interrupt(stack: Stack) -> None:
    console.print("\nThe interface stays up: look around, and press Ctrl-C to stop it.")
    with suppress(KeyboardInterrupt):
        while True:
            stack.require_alive()
            time.sleep(1)


def _say(name: str, what: str, began: float | None = None) -> None:
    took = f"  [dim]{time.monotonic() - began:.1f} s[/]" if began is not None else ""
    console.print(f"{name:<10} {escape(what)}{took}")


if __name__ == "__main__":
    sys.exit(main())
