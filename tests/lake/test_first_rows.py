"""The first rows of a large day equal the first of all sorted rows, while few other rows are read or held."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.lake.conftest import Lake

from backstream.eventtime.instants import DAY_MS, HOUR_MS, instant_ms
from backstream.eventtime.intervals import Interval
from backstream.lake.scans import scan_rows_by_day

DAY = Interval(instant_ms("2024-03-01", "day"), instant_ms("2024-03-02", "day"))


def file_of_a_day(lake: Lake) -> Path:
    """Publish one row of a day, and return its file."""
    lake.publish("2024-03-01", "2024-03-02", {"2024-03-01T00:00Z": 1})
    (task,) = lake.table().scan().plan_files()
    return Path(task.file.file_path.removeprefix("file://"))


def write_rows(file: Path, starts_ms: np.ndarray, row_group_size: int, seed: int = 0) -> pa.Table:
    """Replace the rows of a file, in this order."""
    random, count, schema = np.random.default_rng(seed), len(starts_ms), pq.read_schema(file)
    starts = pa.array(starts_ms * 1_000, pa.timestamp("us", "UTC"))
    carriers = pa.array(random.choice(["UA", "AA", "Ü"], count), pa.string())
    departures = pa.array(random.integers(0, 50, count), pa.int64(), mask=random.random(count) < 0.1)
    values = {
        "window_start": starts,
        "window_end": starts,
        "carrier": carriers,
        "departures": departures,
        "mean_delay_min": pa.array(random.random(count)),
        "record_count": departures,
        "run_id": pa.array(["run"] * count),
    }
    table = pa.table([values[name] for name in schema.names], schema=schema)
    pq.write_table(table, file, row_group_size=row_group_size)
    return table


def first(lake: Lake, interval: Interval | None, limit: int | None) -> list[dict[str, object]]:
    return [row for day in scan_rows_by_day(lake.table(), interval, None, limit) for row in day.to_pylist()]


@pytest.mark.parametrize("order", ["sorted", "reversed", "random", "equal"])
def test_the_first_rows_are_independent_of_the_order_in_a_file(lake: Lake, order: str) -> None:
    file, chance = file_of_a_day(lake), np.random.default_rng(7)
    random = DAY.start_ms + chance.integers(0, DAY_MS // HOUR_MS, 5_000) * HOUR_MS
    starts_ms = {
        "sorted": np.sort(random),
        "reversed": np.sort(random)[::-1],
        "random": random,
        "equal": np.full(5_000, DAY.start_ms),
    }
    write_rows(file, starts_ms[order], row_group_size=300)
    half = Interval(DAY.start_ms + 5 * HOUR_MS, DAY.start_ms + 9 * HOUR_MS)

    for interval in (None, DAY, half):
        expected = first(lake, interval, None)
        for limit in (1, 20, 700, 6_000):
            assert first(lake, interval, limit) == expected[:limit]


def test_row_groups_after_the_last_row_are_not_read(lake: Lake) -> None:
    file = file_of_a_day(lake)
    write_rows(file, DAY.start_ms + np.arange(10_000), row_group_size=1_000)
    expected = first(lake, None, 20)
    offset = pq.read_metadata(file).row_group(1).column(0).dictionary_page_offset
    content = bytearray(file.read_bytes())
    content[offset : offset + 500] = bytes(500)
    file.write_bytes(content)

    assert first(lake, None, 20) == expected
    with pytest.raises(OSError, match="page header"):
        first(lake, None, 2_000)


def test_memory_does_not_grow_with_the_rows_of_a_day(lake: Lake) -> None:
    file, chance = file_of_a_day(lake), np.random.default_rng(7)
    write_rows(file, DAY.start_ms + chance.integers(0, DAY_MS, 1_000_000), row_group_size=1_000_000)
    default_pool = pa.default_memory_pool()
    counting_pool = pa.proxy_memory_pool(default_pool)

    pa.set_memory_pool(counting_pool)
    try:
        rows = first(lake, None, 20)
    finally:
        pa.set_memory_pool(default_pool)

    assert len(rows) == 20
    assert counting_pool.max_memory() < 20_000_000
