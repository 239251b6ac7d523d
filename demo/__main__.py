"""Run `make demo`: replay February 2013 with a local Airflow, from recorded flights to the report."""

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
from backstream.runs.home import Home
from backstream.runs.plan import Plan
from backstream.variables import HOME_VARIABLE
from demo.airflow_api import AirflowApi
from demo.flights import prepare
from demo.follow import Followed
from demo.processes import StackError
from demo.settings import CHECKOUT
from demo.stack import Stack

EXIT_VARIABLE = "BACKSTREAM_DEMO_EXIT"
DAG_ID = "backfill_flights"
# The schedule of the definition is monthly, so the run of this date covers the month that begins then.
FEBRUARY = datetime(2013, 2, 1, tzinfo=UTC)

console = Console(highlight=False, soft_wrap=True)


def main() -> int:
    """Run the demo, and return the exit status: 0 when the month is published."""
    # SIGTERM must work like Ctrl+C. A shell can make background jobs ignore SIGINT, so this restores the handler.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    home = Home(Path(os.environ.get(HOME_VARIABLE) or CHECKOUT / ".backstream").resolve())
    try:
        return _demo(home)
    except KeyboardInterrupt:
        console.print("interrupted")
        return 128 + signal.SIGINT
    except BackstreamError as error:
        console.print(f"[red]failed[/]     {type(error).__name__}: ", end="")
        console.print(str(error), markup=False)
        return 1


def _demo(home: Home) -> int:
    start_s = time.monotonic()
    console.print("[bold]backstream[/]  flights of February 2013 from New York, replayed by Airflow")
    _print_line("state", f"{home.path} (all files of the demo)")
    with Stack(home.path) as stack:
        _prepare_flights(home)
        api = _start_airflow(stack)
        succeeded = _backfill(api, stack, home)
        _print_line("took", f"{time.monotonic() - start_s:.0f} s")
        if os.environ.get(EXIT_VARIABLE) != "1":
            _wait_for_interrupt(stack)
        _print_line("stopping", "Airflow")
    return 0 if succeeded else 1


def _prepare_flights(home: Home) -> None:
    start_s = time.monotonic()
    with console.status("preparing flights") as status:
        flights = prepare(home.path, progress=lambda step: status.update(f"flights: {step}"))
    counts = f"{flights.scheduled:,} scheduled, {flights.departed:,} departed"
    _print_line("flights", f"{counts}, {flights.never_departed:,} canceled", start_s)


def _start_airflow(stack: Stack) -> AirflowApi:
    start_s, parsed_after = time.monotonic(), datetime.now(UTC)
    with console.status("starting Airflow: scheduler, DAG processor, API server"):
        api = stack.start()
        stack.wait_until(f"has the DAG {DAG_ID}", lambda: _has_dag(api, parsed_after))
    _print_line("airflow", f"{stack.place.url}  login {stack.login}", start_s)
    return api


def _has_dag(api: AirflowApi, parsed_after: datetime) -> bool:
    if api.has_dag(DAG_ID, parsed_after):
        return True
    if errors := api.import_errors(parsed_after):
        msg = "\n".join(["Airflow cannot import the DAG files", *errors])
        raise StackError(msg)
    return False


def _backfill(api: AirflowApi, stack: Stack, home: Home) -> bool:
    """Backfill the month with Airflow, and return whether it was published."""
    api.unpause(DAG_ID)
    run_id = api.backfill(DAG_ID, FEBRUARY, {"mode": "replay"})
    _print_line("backfill", f"{FEBRUARY:%B %Y}, mode replay: run {run_id}")
    followed_run = Followed(api, DAG_ID, run_id, console)
    succeeded = followed_run.until_finished(stack.require_alive) == "success"
    if not succeeded:
        console.print(f"\n[red]failed[/]     run {run_id}")
        console.print(followed_run.complaint(), markup=False)
    with suppress(BackstreamError):  # there is no plan if planning failed
        _print_summary(Plan.read(Path(api.xcom(DAG_ID, run_id, "plan", "plan"))), home, published=succeeded)
    _print_line("interface", f"{stack.place.url}/dags/{DAG_ID}/runs/{quote(run_id)}  login {stack.login}")
    return succeeded


def _print_summary(plan: Plan, home: Home, *, published: bool) -> None:
    """Print the summary of the run, and a hash of the published rows."""
    from backstream.lake import reader
    from backstream.workflow.publish import publication_text

    console.print()
    console.print(publication_text(plan), markup=False)
    if published:
        rows = reader.load_rows(home, plan.dataset, plan.range)
        console.print(f"content    {rows.num_rows:,} rows, hash {reader.content_hash(rows)[:16]}")
    console.print()


def _wait_for_interrupt(stack: Stack) -> None:
    console.print("\nAirflow is still running. Press Ctrl+C to stop it.")
    with suppress(KeyboardInterrupt):
        while True:
            stack.require_alive()
            time.sleep(1)


def _print_line(label: str, text: str, start_s: float | None = None) -> None:
    """Print a labelled line, with the seconds since `start_s`."""
    took = f"  [dim]{time.monotonic() - start_s:.1f} s[/]" if start_s is not None else ""
    console.print(f"{label:<10} {escape(text)}{took}")


if __name__ == "__main__":
    sys.exit(main())
