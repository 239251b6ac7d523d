"""Hand over a run by the command line and the Python API: the bundle, what is refused, and the guide."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import backstream
from backstream.cli import app
from backstream.errors import LedgerError, PlanError, SpecError
from backstream.eventtime.instants import instant_ms
from backstream.runs.handover_bundle import HandoverBundle
from backstream.runs.plan import Plan

GUIDE = Path(__file__).parents[2] / "docs" / "handover.md"
DEFINITION = """
name = "clicks"

[source]
path = "{folder}/events/*.parquet"
event_time = "event_time"
arrival_time = "arrival_time"
partition = "partition"
sequence = "seq"
key = ["key"]

[window]
kind = "tumbling"
size = "1h"

[watermark]
strategy = "bounded_out_of_orderness"
delay = "10m"
idle_timeout = "6h"

[lateness]
allowed = "1h"

[aggregates]
clicks = "count(*)"
mean = "avg(value)"
{more}

[backfill]
mode = "{mode}"
"""


def write_events(folder: Path) -> None:
    """Write two partitions with an event every 20 minutes for two days; each arrives one minute later."""
    (folder / "events").mkdir(parents=True)
    start_us = instant_ms("2026-11-19", "start") * 1000
    for partition in (0, 1):
        times = [start_us + minute * 60_000_000 for minute in range(10 * partition, 2 * 1440, 20)]
        table = pa.table(
            {
                "event_time": pa.array(times, pa.timestamp("us", "UTC")),
                "arrival_time": pa.array([time + 60_000_000 for time in times], pa.timestamp("us", "UTC")),
                "partition": pa.array([f"p{partition}"] * len(times)),
                "seq": pa.array(range(100, 100 + len(times)), pa.int64()),
                "key": pa.array(["a"] * len(times)),
                "value": pa.array(range(len(times)), pa.int64()),
            }
        )
        pq.write_table(table, folder / "events" / f"{partition}.parquet")


def plan_run(folder: Path, more: str = "", mode: str = "replay") -> Plan:
    path = folder / "clicks.toml"
    path.write_text(DEFINITION.format(folder=folder, more=more, mode=mode), encoding="utf-8")
    if not (folder / "events").exists():
        write_events(folder)
    return backstream.plan(path, "2026-11-19", "2026-11-20", home=folder / "home", allow_unsealed=True)


def test_the_command_writes_a_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKSTREAM_HOME", str(tmp_path / "home"))
    plan = plan_run(tmp_path)

    done = CliRunner().invoke(app, ["handover", plan.run_id, "--at", "2026-11-20T00:00Z"])

    folder = plan.folder.path / "handover" / "2026-11-20T0000Z"
    *lines, last = done.output.splitlines()
    assert lines == [
        "clicks at 2026-11-20T00:00Z",
        "  watermark   2026-11-19T23:29:59.999Z",
        "  partitions  2, 144 records so far",
        "  windows     2 open",
    ]
    assert last == f"  bundle      {folder}"
    assert "\n".join(lines) in GUIDE.read_text(encoding="utf-8")
    # The window of 22:00 has fired once, and is kept for late events; that of 23:00 is pending.
    assert pq.read_table(folder / "windows.parquet").select(
        [
            "key",
            "window_end_ms",
            "record_count",
            "is_pending",
            "next_pane_index",
            "clicks",
            "mean__sum",
            "mean__count",
        ]
    ).to_pylist() == [
        window_row("23:00", count=6, is_pending=False, index=1, total=66 + 67 + 68 + 66 + 67 + 68),
        window_row("24:00", count=6, is_pending=True, index=0, total=69 + 70 + 71 + 69 + 70 + 71),
    ]
    assert pq.read_table(folder / "partitions.parquet").select(
        ["source_partition", "records", "next_seq"]
    ).to_pylist() == [
        {"source_partition": "p0", "records": 72, "next_seq": 172},
        {"source_partition": "p1", "records": 72, "next_seq": 172},
    ]


def window_row(end: str, *, count: int, is_pending: bool, index: int, total: float) -> dict[str, object]:
    end_ms = instant_ms("2026-11-19", "day") + int(end[:2]) * 3_600_000
    return {
        "key": "a",
        "window_end_ms": end_ms,
        "record_count": count,
        "is_pending": is_pending,
        "next_pane_index": index,
        "clicks": count,
        "mean__sum": float(total),
        "mean__count": count,
    }


def test_an_aggregate_without_partial_values_adds_the_records_of_open_windows(tmp_path: Path) -> None:
    plan = plan_run(tmp_path, more='median = "percentile(value, 0.5)"')

    folder = backstream.hand_over(plan, "2026-11-20T00:00Z", tmp_path / "bundle", home=tmp_path / "home")

    bundle = HandoverBundle.read(folder)
    records = pq.read_table(folder / "records.parquet")
    assert (bundle.holistic_aggregates, bundle.partials["mean"]) == (("median",), ("mean__sum", "mean__count"))
    assert bundle.files == {"partitions.parquet": 2, "windows.parquet": 2, "records.parquet": 12}
    assert records["value"].to_pylist() == [66, 66, 67, 67, 68, 68, 69, 69, 70, 70, 71, 71]


def test_a_bundle_of_another_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bundle.json").write_text(json.dumps({"schema_version": 7}), encoding="utf-8")

    with pytest.raises(SpecError) as refused:
        HandoverBundle.read(tmp_path)
    with pytest.raises(LedgerError, match=f"no readable bundle at {tmp_path / 'nowhere'}/bundle.json"):
        HandoverBundle.read(tmp_path / "nowhere")

    assert str(refused.value) == (
        f"schema version of a bundle must be 1, got 7 ({tmp_path}/bundle.json)\n\n"
        "hint: create the bundle again with `backstream handover`"
    )


def test_a_recompute_is_refused(tmp_path: Path) -> None:
    plan = plan_run(tmp_path, mode="recompute")

    with pytest.raises(SpecError) as refused:
        backstream.hand_over(plan, "2026-11-20")

    assert str(refused.value) == (
        f"cannot hand over clicks: only a replay has watermarks, and this run is a recompute (run {plan.run_id})"
    )


def test_a_changed_input_file_is_refused(tmp_path: Path) -> None:
    plan = plan_run(tmp_path)
    file = tmp_path / "events" / "0.parquet"
    size = file.stat().st_size
    file.write_bytes(file.read_bytes() + b"more")

    with pytest.raises(PlanError) as refused:
        backstream.hand_over(plan, "2026-11-20")

    assert str(refused.value) == (
        f"input file was changed after run {plan.run_id} was planned: {size:,} bytes then, {size + 4:,} bytes now"
        f" ({file})\n\nhint: create a new run"
    )


def test_positions_that_do_not_ascend_at_the_cut_are_refused(tmp_path: Path) -> None:
    write_events(tmp_path)
    file = tmp_path / "events" / "1.parquet"
    rows = pq.read_table(file)
    backwards = pa.array(rows["seq"].to_pylist()[::-1], pa.int64())
    pq.write_table(rows.set_column(rows.schema.get_field_index("seq"), "seq", backwards), file)
    plan = plan_run(tmp_path)

    with pytest.raises(SpecError) as refused:
        backstream.hand_over(plan, "2026-11-20")

    assert str(refused.value) == (
        "cannot hand over clicks at this instant: no position separates its records\n"
        "  source partition p1: seq 243 arrived before it, and 100 arrived after it\n\n"
        "hint: choose an instant at which arrival times ascend with the sequence"
    )
