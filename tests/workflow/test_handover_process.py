"""Hand over a process function: restored from the bundle, it does what it does without interruption."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.spark.histories import DAY_ONE_MS, random_history, write_history
from tests.spark.user_functions import Silence

import backstream
from backstream.definition.loader import parse_definition
from backstream.errors import SpecError
from backstream.eventtime.instants import HOUR_MS, instant_text
from backstream.eventtime.records import Record, SourceClock
from backstream.eventtime.stream_state import ProcessState
from backstream.eventtime.timers import ProcessOperator
from backstream.eventtime.watermark_sources import new_source_run
from backstream.runs.handover_bundle import HandoverBundle

DEFINITION = """
name = "silence"
window = {{kind = "tumbling", size = "1h"}}
watermark = {{strategy = "bounded_out_of_orderness", delay = "10m", idle_timeout = "2h"}}

[source]
path = "{folder}/data"
event_time = "happened_at"
arrival_time = "arrived_at"
partition = "origin"
sequence = "seq"
key = ["key"]
{more}

[process]
class = "tests.spark.user_functions:Silence"
columns = {{what = "string", total = "bigint", records = "int", watermark_ms = "bigint"}}

[backfill]
mode = "replay"
"""


def fields(record: Record) -> Mapping[str, Any]:
    return {"value": record.value}


@pytest.mark.parametrize("hours", [10, 20, 37])
def test_a_restored_process_function_emits_what_it_emits_without_interruption(tmp_path: Path, hours: int) -> None:
    history = sorted(set(random_history(seed=6, rows=300)), key=lambda row: (row[1], row[3], row[2]))
    write_history(tmp_path / "data", history)
    path = tmp_path / "silence.toml"
    path.write_text(DEFINITION.format(folder=tmp_path, more=""), encoding="utf-8")
    plan = backstream.plan(path, "2024-03-01", "2024-03-02", home=tmp_path / "home", allow_unsealed=True)
    at_ms = DAY_ONE_MS + hours * HOUR_MS + 1

    folder = backstream.hand_over(plan, instant_text(at_ms), tmp_path / "bundle", home=tmp_path / "home")

    bundle = HandoverBundle.read(folder)
    assert set(bundle.files) == {"partitions.parquet", "timers.parquet", "states.parquet"}
    assert bundle.files["timers.parquet"] > 0
    emission = parse_definition(plan.definition, "plan").emission.with_partitions(bundle.partitions)
    clock = SourceClock(bundle.clock_start_ms, emission.strategy.interval_ms, history[-1][1])
    records = [Record(row[1], bundle.partitions.index(row[2]), row[4], row[0], row[5]) for row in history]
    numbers = range(len(bundle.partitions))
    whole = new_source_run(emission, clock, numbers, None)
    whole.process(records)
    whole.finish()
    expected = ProcessOperator(Silence, fields).run(records, whole.output)

    timers = pq.read_table(folder / "timers.parquet").to_pylist()
    restored = ProcessOperator(Silence, fields)
    restored.restore(
        ProcessState(
            row["key"],
            tuple(timer["timestamp_ms"] for timer in timers if timer["key"] == row["key"]),
            json.loads(row["state"]),
            json.loads(row["function"]),
        )
        for row in pq.read_table(folder / "states.parquet").to_pylist()
    )
    rest = [record for record in records if record.arrival_time_ms >= at_ms]
    continued = new_source_run(emission, clock, numbers, bundle.stream)
    continued.process(rest)
    continued.finish()
    result = restored.run(rest, continued.output)

    fired = [(firing.key, firing.timestamp_ms, firing.watermark_ms) for firing in result.firings]
    assert len(result.firings) > 5
    assert sorted(fired) == sorted(
        (firing.key, firing.timestamp_ms, firing.watermark_ms)
        for firing in expected.firings
        if firing.watermark_ms > bundle.watermark_ms
    )
    for key, rows in result.emitted.items():
        assert rows == expected.emitted[key][len(expected.emitted[key]) - len(rows) :]


def test_a_process_function_with_duplicates_is_refused(tmp_path: Path) -> None:
    write_history(tmp_path / "data", random_history(seed=6, rows=30))
    path = tmp_path / "silence.toml"
    path.write_text(DEFINITION.format(folder=tmp_path, more='deduplicate_on = ["seq"]'), encoding="utf-8")
    plan = backstream.plan(path, "2024-03-01", "2024-03-02", home=tmp_path / "home", allow_unsealed=True)
    with pytest.raises(SpecError) as refused:
        backstream.hand_over(plan, "2024-03-02", home=tmp_path / "home")
    assert str(refused.value) == (
        "cannot hand over silence: a process function does not get duplicates, and source.deduplicate_on is set"
        f" (run {plan.run_id})"
    )
