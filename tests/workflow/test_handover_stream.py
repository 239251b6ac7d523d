"""Compare the state at a cut that DuckDB computes with the state of the reference engine, on random streams."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from backstream.definition.loader import parse_definition
from backstream.eventtime.records import Record
from backstream.eventtime.stream_replay import ReplayState, StreamSettings, replay_to_cut
from backstream.handover.handover_stream import CutStream, compute_cut_state
from backstream.native.database import open_database
from backstream.runs.plan import InputFile

BASE_MS = 1_704_067_200_000  # 2024-01-01
NAMES = ["p0", "p1", "p2", "p3"]
COLUMNS = {
    "event_time": "timestamp",
    "arrival_time": "timestamp",
    "partition": "string",
    "seq": "bigint",
    "key": "string",
    "value": "bigint",
    "is_marker": "boolean",
}
AGGREGATES = {
    "records": "count(*)",
    "total": "sum(value)",
    "least": "min(value)",
    "greatest": "max(value)",
    "mean": "avg(value)",
}


def write_records(records: Sequence[Record], path: Path) -> InputFile:
    def instants(values_ms: list[int]) -> pa.Array:
        return pa.array([value * 1000 for value in values_ms], pa.timestamp("us", "UTC"))

    table = pa.table(
        {
            "event_time": instants([record.event_time_ms for record in records]),
            "arrival_time": instants([record.arrival_time_ms for record in records]),
            "partition": pa.array([NAMES[record.source_partition] for record in records], pa.string()),
            "seq": pa.array(range(len(records)), pa.int64()),
            "key": pa.array([record.key for record in records], pa.string()),
            "value": pa.array([record.value for record in records], pa.int64()),
            "is_marker": pa.array([record.marker is True for record in records], pa.bool_()),
        }
    )
    pq.write_table(table, path)
    return InputFile(str(path), len(records), path.stat().st_size)


def cut_of(
    watermark: dict[str, Any], window: dict[str, Any], file: InputFile, at_ms: int, **more: Any
) -> CutStream:
    source: dict[str, Any] = {"path": file.path, "event_time": "event_time", "arrival_time": "arrival_time"}
    source |= {"partition": "partition", "sequence": "seq", "key": ["key"], **more.pop("source", {})}
    content = {
        "name": "cut",
        "source": source,
        "window": window,
        "watermark": watermark,
        "aggregates": AGGREGATES,
        "backfill": {"chunk": "1d"},
        **more,
    }
    definition = parse_definition(content, "test")
    return CutStream(definition, COLUMNS, [file], BASE_MS, at_ms, NAMES)


@st.composite
def streams(draw: st.DrawFn) -> list[Record]:
    arrivals = sorted(draw(st.lists(st.integers(0, 900), min_size=1, max_size=40)))
    return [
        Record(
            BASE_MS + at,
            draw(st.integers(0, 2)),
            draw(st.sampled_from("ab")),
            BASE_MS + at + draw(st.integers(-300, 30)),
            draw(st.integers(-9, 9)),
            draw(st.sampled_from([None, None, True])),
        )
        for at in arrivals
    ]


# Sizes divide a day, as each chunk is a whole number of windows.
WINDOWS = st.one_of(
    st.builds(lambda size: {"kind": "tumbling", "size": f"{size}ms"}, st.sampled_from([1, 20, 100, 250])),
    st.builds(
        lambda size, slide: {"kind": "sliding", "size": f"{size}ms", "slide": f"{slide}ms", "offset": "3ms"},
        st.sampled_from([50, 120, 300]),
        st.sampled_from([20, 50, 100]),
    ),
    st.builds(
        lambda step, count: {"kind": "cumulate", "size": f"{step * count}ms", "step": f"{step}ms"},
        st.sampled_from([10, 50]),
        st.sampled_from([1, 2, 4]),
    ),
    st.builds(lambda gap: {"kind": "session", "gap": f"{gap}ms"}, st.integers(1, 90)),
)


@st.composite
def watermarks(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(["none", "monotonous", "bounded_out_of_orderness", "punctuated", "time_lag"]))
    section: dict[str, Any] = {"strategy": kind}
    if kind == "none":
        return section
    section["emit_interval"] = f"{draw(st.sampled_from([0, 1, 7, 50, 200]))}ms"
    if kind != "monotonous":
        section["delay"] = f"{draw(st.integers(0, 120))}ms"
    if kind == "punctuated":
        section["marker"] = "is_marker"
    if kind in ("monotonous", "bounded_out_of_orderness"):
        section["emit"] = draw(st.sampled_from(["periodic", "periodic", "on_event", "micro_batch"]))
    if section.get("emit") != "micro_batch":
        section["topology"] = draw(st.sampled_from(["splits", "splits", "subtasks", "operator"]))
        if section["emit_interval"] != "0ms":
            section["idle_timeout"] = f"{draw(st.sampled_from([0, 0, 10, 60]))}ms"
    return section


@settings(max_examples=80, deadline=None)
@given(streams(), watermarks(), WINDOWS, st.sampled_from([0, 0, 40, 400]), st.integers(-50, 1200))
def test_the_state_equals_that_of_the_reference(
    records: list[Record], watermark: dict[str, Any], window: dict[str, Any], lateness_ms: int, at: int
) -> None:
    with TemporaryDirectory() as folder, open_database(500) as database:
        file = write_records(records, Path(folder) / "events.parquet")
        lateness = {"allowed": f"{lateness_ms * (watermark['strategy'] != 'none')}ms"}
        cut = cut_of(watermark, window, file, BASE_MS + at, lateness=lateness)
        state = compute_cut_state(database, cut)

    before, reference = reference_state(records, cut)
    assert state.stream == reference.stream
    assert rows_of(state.windows) == sorted(expected_rows(before, reference), key=row_order)


def reference_state(records: Sequence[Record], cut: CutStream) -> tuple[list[Record], ReplayState]:
    before = [record for record in records if record.arrival_time_ms < cut.at_ms]
    definition = cut.definition
    stream = StreamSettings(
        definition.emission, cut.clock, tuple(range(4)), definition.window.spec(), definition.lateness.allowed
    )
    _, state = replay_to_cut(before, stream, at_ms=cut.at_ms, continuing=range(4))
    return before, state


def expected_rows(records: Sequence[Record], state: ReplayState) -> list[dict[str, Any]]:
    rows = []
    for window in state.windows:
        values = [records[number].value for number in window.records]
        rows.append(
            {
                "key": window.key,
                "window_start_ms": window.start_ms,
                "window_end_ms": window.end_ms,
                "record_count": len(values),
                "is_pending": window.is_pending,
                "next_pane_index": window.firings,
                "records": len(values),
                "total": sum(values),
                "least": min(values),
                "greatest": max(values),
                "mean__sum": float(sum(values)),
                "mean__count": len(values),
            }
        )
    return rows


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=row_order)


def row_order(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["key"], row["window_start_ms"], row["window_end_ms"]
