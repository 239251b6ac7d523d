"""The sessions of a replay are compared with those of the job, to the millisecond."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from tests.structured_streaming.recorded import JOBS
from tests.structured_streaming.test_replay import TOPIC, run, write_definition
from typer.testing import CliRunner

from backstream.cli import app
from backstream.variables import HOME_VARIABLE


def test_reconcile_finds_no_difference_to_the_sessions_of_the_job(tmp_path: Path) -> None:
    """The starts and ends of sessions are event times, with microseconds."""
    window = 'kind = "session"\ngap = "5m"'
    definition = write_definition(tmp_path, "sessions", window=window, **TOPIC)
    lines = (JOBS / "sessions/emitted.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    instants = pa.timestamp("us", "UTC")
    live = pa.table(
        {
            "key": [row["key"] for row in rows],
            "window_start": pa.array([row["start_us"] for row in rows], instants),
            "window_end": pa.array([row["end_us"] for row in rows], instants),
            "n": [len(row["ids"]) for row in rows],
            "ids": [sum(row["ids"]) for row in rows],
        }
    )
    pq.write_table(live, tmp_path / "live.parquet")
    moved = live.set_column(
        2,
        "window_end",
        pa.array([rows[0]["end_us"] + 1_000, *live["window_end"].cast(pa.int64()).to_pylist()[1:]], instants),
    )
    pq.write_table(moved, tmp_path / "moved.parquet")
    asked = [
        ["reconcile", str(definition), "--against", str(tmp_path / name)]
        for name in ("live.parquet", "moved.parquet")
    ]
    run(definition)

    same, other = (CliRunner().invoke(app, each, env={HOME_VARIABLE: str(tmp_path / "home")}) for each in asked)

    assert f"{len(rows)} of {len(rows)} windows are equal" in same.output
    assert "6 of 8 windows are equal, 2 differ" in other.output, (
        "a moved session is missing, and another one is there"
    )
