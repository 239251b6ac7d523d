"""Write a home with an oversized plan that no page may read, and a run with thousands of finished chunks.

As a program, it writes such a home with a plan of 100 MB and prints the time of each page:
`python -m tests.plugins.large_home <folder>`.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

from tests.browser.seed import END_MS, FIRST_MS, define, plan_of, write_events

from backstream.eventtime.instants import DAY_MS, instant_text
from backstream.lake.ledger import record_run, run_row
from backstream.runs.dataset_state import DatasetState
from backstream.runs.home import Home
from backstream.runs.manifest import Manifest
from backstream.runs.plan import Chunk, Plan
from backstream.runs.status import RunStatus

CHUNKS = 3_000
PAGES = (
    "overview",
    "runs",
    "runs?dag_id=backfill_flights",
    "dataset?dag_id=backfill_flights",
    "day?dag_id=backfill_flights&day=2016-01-05",
    "watermark?dag_id=backfill_flights",
    "checks?dag_id=backfill_flights",
    "reprocess?dag_id=backfill_flights",
    "reprocess?dag_id=backfill_flights&since=2016-02-01&until=2016-02-03",
    "reprocess?dag_id=backfill_flights&since=2016-02-01&until=2016-02-03&chunk=5h&preview=true",
    "report?dag_id=backfill_flights&run_id=published",
)
FATES = {partition: {"on_time": 1_000, "late": 10, "dropped": 1} for partition in ("EWR", "JFK", "LGA")}


def fill(home: Home, definitions: Path, left: str) -> None:
    """Write runs of `flights`; `left` is the content of the plan files, one of which has no summary."""
    define(definitions)
    write_events(home)
    published = plan_of(home, "flights", FIRST_MS, FIRST_MS + 28 * DAY_MS, trigger="published")
    published.write()
    published.folder.report.write_text("<p>the report", encoding="utf-8")
    record_run(home, run_row(published, RunStatus.PUBLISHED, (1, 2)))
    running, dry = _of_days("running"), _of_days("dry")
    for plan in (running, dry):
        replace(plan, home_location=str(home.path)).write()
    _finish(replace(running, home_location=str(home.path)))
    for file in home.path.glob("runs/flights/*/plan.json"):
        file.write_text(left, encoding="utf-8")
    mistaken = home.run("flights", "mistaken.0123456789ab").plan
    mistaken.parent.mkdir()
    mistaken.write_text(left, encoding="utf-8")
    DatasetState("flights", 3, FIRST_MS, END_MS, None, ()).write(home.dataset_state("flights"))


def _of_days(trigger: str) -> Plan:
    """Return a plan with a chunk per day, one more than the finished ones."""
    whole = plan_of(Home(Path("/nowhere")), "flights", FIRST_MS, FIRST_MS + (CHUNKS + 1) * DAY_MS, trigger=trigger)
    starts = range(whole.since_ms, whole.until_ms, DAY_MS)
    chunks = tuple(
        Chunk(f"{number:04}", start_ms, start_ms + DAY_MS, start_ms + DAY_MS, (number,), 3_033)
        for number, start_ms in enumerate(starts)
    )
    return replace(whole, chunks=chunks)


def _finish(plan: Plan) -> None:
    """Write the manifests of all chunks but the last, one per minute."""
    for number, chunk in enumerate(plan.chunks[:-1]):
        ended = instant_text(END_MS + number * 60_000).replace("Z", "+00:00")
        manifest = Manifest(plan.run_id, chunk.chunk_id, chunk.chunk_id, 3_033, FATES, {}, {"fates": 60.0}, ended)
        manifest.write(plan.folder.manifest(chunk.chunk_id))


def main(folder: Path) -> None:
    """Write the home, and print the time of each page for the first and the second request."""
    from tests.plugins.visit import visitor

    began = time.perf_counter()
    fill(Home(folder / "home"), folder / "definitions", "[" + " " * 100_000_000)
    print(f"made in {time.perf_counter() - began:.1f} s")  # noqa: T201 - the answer
    with visitor(folder) as visit:
        for page in (*PAGES, *PAGES):
            began = time.perf_counter()
            status = visit(page).status_code
            print(f"{time.perf_counter() - began:6.3f} s  {status}  {page}")  # noqa: T201 - the answer


if __name__ == "__main__":
    main(Path(sys.argv[1]))
