"""The history that the cluster runs, its definitions, and what is read of what came of it."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from demo.airflow_api import FINISHED
from tests.e2e.cluster import Cluster
from tests.spark.histories import Expected, Place, Row, days, random_history

from backstream.definition.loader import apply_overrides, load_definition
from backstream.eventtime.instants import HOUR_MS
from backstream.eventtime.intervals import Interval
from backstream.lake import reader
from backstream.runs.home import Home
from backstream.runs.plan import Plan

DEFINITION = """\
name = "{name}"

[source]
path = "${{BACKSTREAM_HOME}}/data/{name}"
event_time = "happened_at"
arrival_time = "arrived_at"
partition = "origin"
sequence = "seq"
key = ["key"]
deduplicate_on = ["origin", "seq"]
event_time_range = ["2024-01-01", "{end}"]

[window]
kind = "tumbling"
size = "1h"

[watermark]
strategy = "bounded_out_of_orderness"
delay = "10m"
emit_interval = "30s"
idle_timeout = "1h"

[lateness]
allowed = "1h"

[aggregates]
events = "count(*)"
total = "sum(value)"

[backfill]
schedule = "@daily"
{backfill}

[quality]
suite = "lenient"
"""
KINDS = {
    "events": 'mode = "recompute"',
    "live": 'mode = "replay"\npublish = "live"\ndeadline = "15s"\nmax_events_per_job = 0',
    # Longer than the executor takes to tell that its task waits: else Airflow takes that for lost.
    "hasty": 'mode = "recompute"\n\n[approval]\nwhen = "always"\ntimeout = "20s"',
    "nightly": 'mode = "recompute"',
}
ENDS = {"nightly": "2100-01-01"}
"""Where events end, if not with the history: the schedule starts no run beyond it."""
HISTORY = random_history(seed=5)
SLEEPERS = 25
DAYS = days(0, 3)
RANGE = {"since": "2024-03-01T00:00:00Z", "until": "2024-03-04T00:00:00Z"}
BACKFILL = {"dag_id": "backfill_events", "from_date": RANGE["since"], "to_date": "2024-03-02T00:00:00Z"}
LAST_DAY = {"since": "2024-03-03T00:00:00+00:00", "until": "2024-03-04T01:00:00+01:00"}
LATE: list[Row] = [
    (DAYS.start_ms + 5 * HOUR_MS, DAYS.end_ms + number, "A", 100_000 + number, "late", 1) for number in range(3)
]


@dataclass(frozen=True)
class Nights:
    """The history of the dataset `nightly`, which is the others' but for the days: its last is yesterday."""

    today_ms: int

    @property
    def history(self) -> list[Row]:
        """What has come in time."""
        return self._moved(HISTORY)

    @property
    def late(self) -> list[Row]:
        """What has come late, for the first day."""
        return self._moved(LATE)

    def days(self, start: int, end: int) -> Interval:
        """Whole days of the history, counted from its first."""
        interval = days(start, end)
        return Interval(interval.start_ms + self._by_ms, interval.end_ms + self._by_ms)

    @property
    def _by_ms(self) -> int:
        return self.today_ms - DAYS.end_ms

    def _moved(self, history: list[Row]) -> list[Row]:
        return [(row[0] + self._by_ms, row[1] + self._by_ms, *row[2:]) for row in history]


def families_of(jobs: list[psutil.Process]) -> list[list[int]]:
    """Of each job that has begun: the task, the JVM that it waits for, the Python that the JVM has started."""
    found = []
    for job in jobs:
        with suppress(psutil.NoSuchProcess):
            if Path(job.cmdline()[0]).name == "java" and (children := job.children()):
                found.append([job.ppid(), job.pid, *(child.pid for child in children)])
    return found


def clear(cluster: Cluster, dag_id: str, run_id: str, *task_ids: str) -> None:
    """Clear some tasks of a run and what comes after them; all of them when none is named."""
    body: dict[str, Any] = {"dag_run_id": run_id, "dry_run": False, "only_failed": False}
    body |= {"task_ids": task_ids, "include_downstream": True} if task_ids else {}
    path = f"/api/v2/dags/{dag_id}/clearTaskInstances"
    cluster.until("its tasks are cleared", lambda: cluster.admin.post(path, json=body).status_code == 200)


def backfilled_again(cluster: Cluster, behaviour: str, since: str) -> set[str]:
    """The runs that a Backfill of the same days, or of those from one on, runs again."""
    before = {run["dag_run_id"]: run["start_date"] for run in cluster.runs("backfill_events")}
    asked = BACKFILL | {"from_date": since, "reprocess_behavior": behaviour}
    answer = cluster.admin.post("/api/v2/backfills", json=asked)
    assert answer.status_code == 200, answer.text

    def done() -> list[dict[str, Any]]:
        found = cluster.runs("backfill_events")
        return found if all(run["state"] in FINISHED for run in found) else []

    after = cluster.until(f"the Backfill that runs {behaviour} has ended", done)
    # Airflow looks every half a minute only whether a Backfill has ended, and allows one at a time.
    cancelled = cluster.admin.put(f"/api/v2/backfills/{answer.json()['id']}/cancel")
    assert cancelled.status_code in {200, 409}, cancelled.text
    assert {run["state"] for run in after} == {"success"} or behaviour == "none"
    return {run["dag_run_id"] for run in after if run["start_date"] != before.get(run["dag_run_id"])}


def scheduled(cluster: Cluster) -> list[dict[str, Any]]:
    """The runs that the schedule has started."""
    return cluster.runs("backfill_nightly", run_type="scheduled")


def attempts(cluster: Cluster, name: str) -> dict[str, str]:
    """Finished chunks of all runs of a dataset to the attempts that did them."""
    files = (cluster.home / "runs" / name).glob("*/chunks/*.json")
    return {f"{file.parents[1].name} {file.stem}": json.loads(file.read_text())["attempt"] for file in files}


def published(cluster: Cluster, name: str, interval: Interval = DAYS) -> dict[Place, tuple[int, int]]:
    """The published windows of an interval, with their events and total."""
    rows = reader.load_rows(Home(cluster.home), name, interval).to_pylist()
    return {_place(row): (row["events"], row["total"]) for row in rows}


def _place(row: dict[str, Any]) -> Place:
    start, end = (int(row[name].timestamp() * 1000) for name in ("window_start", "window_end"))
    return row["key"], start, end


def run_ids(cluster: Cluster, name: str, interval: Interval) -> set[str]:
    """The runs that published what is there of an interval."""
    return set(reader.load_rows(Home(cluster.home), name, interval)["run_id"].to_pylist())


def expected(
    cluster: Cluster, name: str, history: list[Row], interval: Interval = DAYS, **overrides: str
) -> Expected:
    """What the reference interpreter makes of a history, with keys of the definition taken otherwise."""
    definition = load_definition(cluster.home.parent / "definitions" / f"{name}.toml")
    taken = {key.replace("__", "."): value for key, value in overrides.items()}
    return Expected(history, apply_overrides(definition, taken, definition.backfill.mode), interval)


def plans(cluster: Cluster, name: str) -> list[Plan]:
    """The plans of all runs of a dataset."""
    return [Plan.read(path) for path in (cluster.home / "runs" / name).glob("*/plan.json")]
