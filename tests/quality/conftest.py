from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.quality.example_run import SINCE_MS, UNTIL_MS

from backstream.eventtime.instants import HOUR_MS


@pytest.fixture(scope="session")
def timetable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """50 expected events in each hour of the day, for each of the source partitions `a` and `b`."""
    times = [at_ms for at_ms in range(SINCE_MS, UNTIL_MS, HOUR_MS) for _ in range(50)]
    due = pa.array(times * 2, pa.timestamp("ms", "UTC"))
    gates = ["a"] * len(times) + ["b"] * len(times)
    folder = tmp_path_factory.mktemp("timetable")
    pq.write_table(pa.table({"due": due, "gate": gates}), folder / "timetable.parquet")
    return folder
