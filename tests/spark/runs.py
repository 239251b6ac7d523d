"""Run ranges of small histories, and read the staged results."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from tests.spark.histories import MARKER, Place, Value, days

from backstream.chunks.replay import replay_chunks
from backstream.runs.home import Home
from backstream.runs.manifest import Manifest, sum_fates
from backstream.runs.plan import Chunk, Mode, Plan
from backstream.spark.engine import SparkEngine
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.plan.planning import plan_run

Told = TypeVar("Told")
WINDOWS = {
    "tumbling": {"kind": "tumbling", "size": "1h"},
    "tumbling with an offset": {"kind": "tumbling", "size": "2h", "offset": "-15m"},
    "sliding": {"kind": "sliding", "size": "3h", "slide": "1h"},
    "sliding with holes": {"kind": "sliding", "size": "20m", "slide": "1h", "offset": "10m"},
    "sliding, size no multiple": {"kind": "sliding", "size": "150m", "slide": "1h"},
    "session": {"kind": "session", "gap": "40m"},
    "session of days": {"kind": "session", "gap": "4h"},
    "cumulate": {"kind": "cumulate", "size": "6h", "step": "2h"},
}
BOUNDED = {"strategy": "bounded_out_of_orderness", "delay": "10m", "emit_interval": "30s"}
STREAMS: dict[str, dict[str, Any]] = {
    "punctuated": {"watermark": {"strategy": "punctuated", "marker": MARKER, "delay": "20m"}},
    "time lag, idle": {
        "watermark": {"strategy": "time_lag", "delay": "30m", "emit_interval": "1m", "idle_timeout": "1h"}
    },
    "custom": {
        "watermark": {
            "strategy": "custom",
            "class": "backstream.examples.generators:SmoothedLag",
            "kwargs": {"records": 5},
            "emit_interval": "1m",
        }
    },
    "after each record": {"watermark": {**BOUNDED, "emit": "on_event"}},
    "micro batches": {"watermark": {**BOUNDED, "emit": "micro_batch", "emit_interval": "30m"}},
    "gate with idleness": {"watermark": {**BOUNDED, "topology": "subtasks", "idle_timeout": "1h"}},
    "operator": {"watermark": {**BOUNDED, "topology": "operator", "idle_timeout": "1h"}},
    "ended partitions": {"watermark": {**BOUNDED, "finished_partitions": "release"}},
    "ingestion time": {"time": "ingestion", "watermark": BOUNDED},
    "processing time": {
        "time": "processing",
        "watermark": {"strategy": "none"},
        "lateness": {"allowed": "0s"},
    },
}


def toml_value(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml_value(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def planned(folder: Path, definition: dict[str, Any], mode: Mode, *, since: int, until: int) -> Plan:
    path = folder / "events.toml"
    path.write_text("".join(f"{key} = {toml_value(value)}\n" for key, value in definition.items()))
    interval = days(since, until)
    home = Home(folder / "home")
    return plan_run(PlanRequest(path, interval, mode=mode, trigger="test", home=home))


def replay_chunk(spark: SparkSession, plan: Plan, chunk: Chunk) -> Manifest:
    """Run one chunk alone."""
    (manifest,) = replay_chunks(SparkEngine(spark), plan, [chunk])
    return manifest


def rows(manifests: list[Manifest], suffix: str) -> list[dict[str, Any]]:
    tables = [pq.read_table(file.path) for each in manifests for file in each.files[suffix]]
    return pa.concat_tables(tables, promote_options="default").to_pylist() if tables else []


def in_ms(row: dict[str, Any]) -> Place:
    start, end = (int(row[name].timestamp() * 1000) for name in ("window_start", "window_end"))
    return row["key"], start, end


def fates(manifests: list[Manifest]) -> dict[str, dict[str, int]]:
    """Return the fates in the form of `Expected.fates`."""
    return {name: dict(sorted(each.items())) for name, each in sorted(sum_fates(manifests).items())}


def panes(manifests: list[Manifest]) -> dict[Place, tuple[Value | None, ...]]:
    """Return the first, live, and final value of each window, in the form of `Expected.values`."""
    return _by_place(
        (in_ms(row), tuple(_pane(row, name) for name in ("first", "live", "final")))
        for row in rows(manifests, "panes")
    )


def published(manifests: list[Manifest]) -> dict[Place, Value]:
    """Return the published rows in the form of `Expected.published`."""
    return _by_place((in_ms(row), (row["events"], row["total"])) for row in rows(manifests, ""))


def _by_place(pairs: Iterable[tuple[Place, Told]]) -> dict[Place, Told]:
    """Return the rows by place, after a check that no place has two rows."""
    result = sorted(pairs, key=lambda pair: pair[0])
    assert len(dict(result)) == len(result)
    return dict(result)


def _pane(row: dict[str, Any], name: str) -> Value | None:
    events = row[f"events__{name}"]
    return None if events is None else (events, row[f"total__{name}"])


def physical_plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())  # noqa: SLF001 - the only way to read it
