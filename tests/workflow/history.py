"""Write small recorded histories and their definition, and plan runs of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from backstream.eventtime.instants import instant_ms
from backstream.eventtime.intervals import Interval
from backstream.runs.home import Home
from backstream.runs.plan import Mode, Plan
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.plan.planning import plan_run

INSTANT = pa.timestamp("us", "UTC")
COLUMNS = {
    "happened_at": INSTANT,
    "arrived_at": INSTANT,
    "origin": pa.string(),
    "seq": pa.int64(),
    "page": pa.string(),
}
"""The columns of a click."""

CLICKS = """\
name = "clicks"

[source]
path = "{folder}/data"
event_time = "happened_at"
arrival_time = "arrived_at"
partition = "origin"
sequence = "seq"
key = ["page"]
deduplicate_on = ["origin", "seq"]

[window]
kind = "tumbling"
size = "1h"

[watermark]
strategy = "bounded_out_of_orderness"
delay = "10m"

[aggregates]
clicks = "count(*)"
"""
AT_ONE_TIME = CLICKS.replace("\n[window]", 'deduplicate_within = "0s"\n\n[window]')
"""Only clicks with the same event time are duplicates."""


def at(text: str) -> datetime:
    """Return an instant of March 2024, such as `1 05:30` (day, hour, minute)."""
    day, _, time = text.partition(" ")
    hour, minute = (int(part) for part in (time or "00:00").split(":"))
    return datetime(2024, 3, int(day), hour, minute, tzinfo=UTC)


def write_clicks(file: Path, rows: Sequence[tuple[Any, ...]], types: Mapping[str, pa.DataType] = COLUMNS) -> None:
    """Write one Parquet file; each row has the columns of `types` in their order."""
    file.parent.mkdir(parents=True, exist_ok=True)
    columns = {
        name: pa.array([row[number] for row in rows], kind) for number, (name, kind) in enumerate(types.items())
    }
    pq.write_table(pa.table(columns), file)


def write_definition(folder: Path, text: str = CLICKS, **lines: str) -> Path:
    """Write the definition to a file; `event_time='"at"'` replaces the line of that key."""
    for key, value in lines.items():
        text = "\n".join(f"{key} = {value}" if line.startswith(f"{key} =") else line for line in text.splitlines())
    file = folder / "clicks.toml"
    file.write_text(text.replace("{folder}", str(folder)))
    return file


def planned(
    folder: Path,
    definition: Path,
    since: str = "2024-03-01",
    until: str = "2024-03-02",
    mode: Mode | None = None,
    reason: str = "",
) -> Plan:
    """Plan a range of whole days, with all state in the folder."""
    since_ms, until_ms = instant_ms(since, "since"), instant_ms(until, "until")
    home = Home(folder / "home")
    interval = Interval(since_ms, until_ms)
    return plan_run(PlanRequest(definition, interval, mode=mode, trigger="test", home=home, reason=reason))
