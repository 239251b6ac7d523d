"""A source that is prepared gives the same rows with a home in an object store as with one on a disk."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.chain.stored import home_address, settings
from tests.lake.store import BUCKET, Store
from tests.spark.histories import days, random_history

from backstream.chunks.replay import replay_chunks
from backstream.eventtime.instants import instant_text
from backstream.lake.reader import load_published_rows, load_rows
from backstream.runs.home import Home
from backstream.runs.plan import Mode, Plan
from backstream.spark.engine import SparkEngine
from backstream.storage.home_copy import HomeCopy
from backstream.variables import CACHE_VARIABLE, CATALOG_VARIABLE, HOME_VARIABLE, WAREHOUSE_VARIABLE
from backstream.workflow.audit import audit_run
from backstream.workflow.inputs.prepare import prepare_source
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.plan.planning import plan_run
from backstream.workflow.publish import publish_run
from backstream.workflow.runners import SparkRunner

pytestmark = pytest.mark.slow

EVENTS: list[dict[str, Any]] = [
    {
        "at": instant_text(event_ms),
        "seen": instant_text(arrival_ms),
        "origin": partition,
        "seq": sequence,
        "key": key,
        "value": value,
    }
    for event_ms, arrival_ms, partition, sequence, key, value in random_history(seed=3, rows=400, days=2)
]
DEFINITION = """\
name = "events"

[source]
path = "{path}"
format = "{format}"
{more}
event_time = "at"
arrival_time = "seen"
partition = "origin"
sequence = "seq"
key = ["key"]
deduplicate_on = ["origin", "seq"]

[window]
kind = "tumbling"
size = "1h"

[watermark]
strategy = "bounded_out_of_orderness"
delay = "10m"

[aggregates]
events = "count(*)"
total = "sum(value)"

[quality]
verify = 1_000
missing_ratio = {{ warn = 1.0, fail = 1.0 }}
late_ratio = {{ warn = 1.0, fail = 1.0 }}
dropped_ratio = {{ warn = 1.0, fail = 1.0 }}
duplicate_ratio = {{ warn = 1.0, fail = 1.0 }}
quarantined_ratio = {{ warn = 1.0, fail = 1.0 }}
"""
COLUMNS = """
[source.columns]
at = "string"
seen = "string"
origin = "string"
seq = "long"
key = "string"
value = "long"
"""


def json_lines(events: Sequence[dict[str, Any]]) -> str:
    return "".join(f"{json.dumps(event)}\n" for event in events)


def csv_lines(events: Sequence[dict[str, Any]]) -> str:
    lines = (",".join("" if value is None else str(value) for value in event.values()) for event in events)
    return "\n".join([",".join(events[0]), *lines, ""])


KINDS = {
    "json": (json_lines, '{"at": "soon", "seen": "2024-03-01T03:00:00Z", "origin": "A"}\n{"cut'),
    "csv": (csv_lines, "soon,2024-03-01T03:00:00Z,A,1,k,7\n"),
}


class Installation:
    """One installation on a disk, or in a store with a machine per step."""

    def __init__(self, spark: SparkSession, folder: Path, home: str, patch: pytest.MonkeyPatch) -> None:
        self.spark, self.folder, self.home, self._patch, self._machines = spark, folder, home, patch, 0
        folder.mkdir()

    def move(self) -> Home:
        """Go on at a new machine, and return its home."""
        self._machines += 1
        self._patch.setenv(CACHE_VARIABLE, str(self.folder / f"machine-{self._machines}"))
        self._patch.setenv(HOME_VARIABLE, self.home)
        home = Home.from_location(self.home)
        if home.address:
            HomeCopy(home.address, home.path).fetch()  # this process has fetched within the last second
        return home

    def prepare(self, definition: Path) -> str:
        """Return the counts of the preparation."""
        return str(prepare_source(definition, self.move(), SparkRunner(lambda: self.spark)))

    def publish(self, definition: Path, mode: Mode, trigger: str = "first") -> list[list[dict[str, Any]]]:
        """Return the published rows and the quarantined records, after a run with a machine per step."""
        request = PlanRequest(
            definition, days(0, 2), mode=mode, trigger=trigger, home=self.move(), is_unsealed_allowed=True
        )
        location = plan_run(request).location
        self.move()
        plan = Plan.load(location)
        list(replay_chunks(SparkEngine(self.spark), plan, plan.chunks))
        self.move()
        audit_run(Plan.load(location))
        self.move()
        publish_run(Plan.load(location))
        home = self.move()
        rows = load_rows(home, "events").select(["window_start", "key", "events", "total"]).to_pylist()
        bad = load_published_rows(home, "events", "quarantine").to_pylist()
        own = [row | {"run_id": ""} for row in bad if row["run_id"] == plan.run_id]
        return [sorted(each, key=str) for each in (rows, own)]


@pytest.mark.parametrize("kind", KINDS)
def test_prepared_records_are_the_same_in_a_store(
    kind: str, spark: SparkSession, s3: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = f"{BUCKET}/raw-{kind}"
    for name, text in settings(tmp_path, s3, f"prepared-{kind}").items():
        if name.startswith("AWS_"):
            monkeypatch.setenv(name, text)
    more = "" if kind == "json" else 'options = { header = "true" }'
    definition = tmp_path / "events.toml"
    definition.write_text(DEFINITION.format(path=f"s3://{archive}", format=kind, more=more) + COLUMNS)

    def deliver(name: str, text: str) -> None:
        with s3.filesystem.open_output_stream(f"{archive}/{name}.{kind}") as stream:
            stream.write(text.encode())

    on_disk, in_store = (
        _outcomes(installation, definition, kind, deliver)
        for installation in _installations(spark, kind, tmp_path, monkeypatch)
    )

    assert in_store == on_disk
    _, (rows, quarantined), _, (later_rows, later_quarantined) = in_store
    assert len(later_rows) > len(rows) > 10
    assert len(quarantined) == len(KINDS[kind][1].splitlines())
    assert later_quarantined == []
    prepared = {key.rpartition("/")[0] for key in s3.keys(f"{BUCKET}/prepared-{kind}/home/prepared")}
    assert len([folder for folder in prepared if "/batch-" in folder]) == 1


def _installations(
    spark: SparkSession, kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Installation]:
    """Yield one with a home and a warehouse on a disk, and one with both in the store."""
    place = f"prepared-{kind}"
    homes = {
        "disk": (str(folder / "home"), str(folder / "tables")),
        "store": (home_address(place), f"s3://{BUCKET}/{place}/tables"),
    }
    for name, (home, warehouse) in homes.items():
        with monkeypatch.context() as patch:
            patch.setenv(WAREHOUSE_VARIABLE, warehouse)
            patch.setenv(CATALOG_VARIABLE, f"sqlite:///{folder / name}.db?timeout=60")
            yield Installation(spark, folder / name, home, patch)


def _outcomes(
    installation: Installation, definition: Path, kind: str, deliver: Callable[[str, str], None]
) -> list[Any]:
    """Return what is said about two preparations, and the results: of each mode, and after other deliveries."""
    write, bad_lines = KINDS[kind]
    deliver("c", "")
    deliver("a", write(EVENTS[:200]) + bad_lines)
    outcomes = [
        installation.prepare(definition),
        installation.publish(definition, Mode.REPLAY),
    ]
    deliver("a", write(EVENTS[:200]))
    deliver("c", write(EVENTS[200:]))
    later = [installation.prepare(definition), installation.publish(definition, Mode.RECOMPUTE, "later")]
    return [*outcomes, *later]
