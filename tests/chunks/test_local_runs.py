"""Runs in processes of this machine have the results of the reference, for every window and every stream."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.spark.histories import Expected, definition_of, random_history, write_history
from tests.spark.native_runs import cut_finely
from tests.spark.runs import STREAMS, WINDOWS, fates, panes, planned, published

from backstream.chunks.native_engine import NativeEngine
from backstream.chunks.processes import Processes
from backstream.chunks.replay import replay_chunks
from backstream.definition.loader import parse_definition
from backstream.native.supported import reason_not_native
from backstream.runs.plan import Mode

BACKFILL = {"engine": "native", "chunk": "1d"}
CASES = [
    *((window, "bounded") for window in WINDOWS if window != "sliding with holes"),
    *(("tumbling", stream) for stream in STREAMS),
    *(("session", stream) for stream in ("time lag, idle", "micro batches", "gate with idleness", "operator")),
]


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    started = Processes(slots=2)
    yield started
    started.cancel()


@pytest.mark.parametrize(("window", "stream"), CASES)
def test_a_replay_has_the_panes_and_fates_of_the_reference(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: str, stream: str
) -> None:
    cut_finely(monkeypatch)
    history = random_history(seed=21, rows=500)
    write_history(tmp_path / "data", history)
    sections: dict[str, Any] = {"window": WINDOWS[window], "backfill": BACKFILL, **STREAMS.get(stream, {})}
    content = definition_of(tmp_path / "data", **sections)
    plan = planned(tmp_path, content, Mode.REPLAY, since=0, until=3)
    definition = parse_definition(content, "test")
    assert reason_not_native(definition, plan.columns) is None
    expected = Expected(history, definition, plan.range)

    manifests = list(replay_chunks(NativeEngine(processes), plan, plan.chunks))

    assert fates(manifests) == expected.fates()
    assert panes(manifests) == expected.values()
    assert [*plan.folder.path.rglob("*.scratch*")] == []


def test_a_stream_without_a_readable_record_has_custom_watermarks(processes: Processes, tmp_path: Path) -> None:
    write_history(tmp_path / "data", random_history(seed=23, rows=30))
    for file in (tmp_path / "data").rglob("*.parquet"):
        table = pq.read_table(file, partitioning=None)
        nothing = pa.nulls(table.num_rows, pa.int64())
        pq.write_table(table.set_column(table.column_names.index("seq"), "seq", nothing), file)
    content = definition_of(tmp_path / "data", window=WINDOWS["tumbling"], backfill=BACKFILL, **STREAMS["custom"])
    plan = planned(tmp_path, content, Mode.REPLAY, since=0, until=3)

    manifests = list(replay_chunks(NativeEngine(processes), plan, plan.chunks))

    assert {fate for counts in fates(manifests).values() for fate in counts} == {"quarantined"}


@pytest.mark.parametrize("window", ["tumbling", "sliding", "session", "cumulate"])
def test_a_recompute_has_every_record_on_time(processes: Processes, tmp_path: Path, window: str) -> None:
    history = random_history(seed=22, rows=300)
    write_history(tmp_path / "data", history)
    content = definition_of(tmp_path / "data", window=WINDOWS[window], backfill=BACKFILL)
    plan = planned(tmp_path, content, Mode.RECOMPUTE, since=0, until=3)
    expected = Expected(history, parse_definition(content, "test"), plan.range)

    manifests = list(replay_chunks(NativeEngine(processes), plan, plan.chunks))

    assert published(manifests) == expected.published()
