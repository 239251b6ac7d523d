"""Functions that put a fault into the rows, the counts, or the results of a good run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pandas as pd
import pyarrow as pa
from tests.quality.example_run import (
    MINUTE_MS,
    SINCE_MS,
    Row,
    fates_of,
    good,
)

from backstream.eventtime.duplicates import RecordGap
from backstream.eventtime.instants import HOUR_MS
from backstream.quality.bands import WEEK_MS
from backstream.runs.input_files import ImplausibleTimes
from backstream.runs.manifest import Manifest

SIX = SINCE_MS + 6 * HOUR_MS


def changed(**values: Any) -> Callable[[list[Row]], list[Row]]:
    """Change row 30, the window 06:00 of source partition b."""

    def mutated(rows: list[Row]) -> list[Row]:
        rows[30] |= values
        return rows

    return mutated


def everywhere(**values: Any) -> Callable[[list[Row]], list[Row]]:
    return lambda rows: [row | values for row in rows]


def in_partition_b(**values: Any) -> Callable[[list[Row]], list[Row]]:
    return lambda rows: rows[:24] + [row | values for row in rows[24:]]


def past_weeks(weeks: int = 4, **values: float) -> pd.DataFrame:
    """Return the hours of past weeks as those of a good run, apart from some values."""
    hours = range(SINCE_MS - weeks * WEEK_MS, SINCE_MS, HOUR_MS)
    starts = pd.to_datetime(pd.Series(list(hours)), unit="ms", utc=True).dt.as_unit("ms")
    usual = {"events": 100.0, "late_ratio": 0.02, "completeness": 1.0} | values
    counts = {"events": usual["events"] / 2, "late": usual["events"] / 2 * usual["late_ratio"], "dropped": 0}
    hours_of_both = {
        "window_start": starts,
        "last_start": starts,
        "windows": 1,
        "completeness": usual["completeness"],
    } | counts
    return pd.concat([pd.DataFrame({"source_partition": name} | hours_of_both) for name in ("a", "b")])


def same(rows: list[Row]) -> list[Row]:
    return rows


def none_at_all(_: list[Row]) -> list[Row]:
    return []


def deleted(rows: list[Row]) -> list[Row]:
    return rows[:30] + rows[31:]


def duplicated(rows: list[Row]) -> list[Row]:
    halves = [{"events": 25, "on_time": 24}, {"events": 25, "on_time": 25, "late": 0}]
    return deleted(rows) + [rows[30] | half for half in halves]


def moved(by_ms: int) -> Callable[[list[Row]], list[Row]]:
    return lambda rows: [
        *deleted(rows),
        rows[30] | {"start_ms": rows[30]["start_ms"] + by_ms, "end_ms": rows[30]["end_ms"] + by_ms},
    ]


def shortened(rows: list[Row]) -> list[Row]:
    rows[30]["end_ms"] -= 20 * MINUTE_MS
    return rows


def without_partition(rows: list[Row]) -> list[Row]:
    return rows[:24]


def unexpected(rows: list[Row]) -> list[Row]:
    return [*rows, rows[30] | {"source_partition": "c"}]


def of_another_chunk(fates: Manifest) -> Manifest:
    return replace(fates, chunk_id="0009")


def with_lost_records(fates: Manifest) -> Manifest:
    return replace(fates, events_read=fates.events_read + 123)


def with_one_more_staged(fates: Manifest) -> Manifest:
    (file,) = fates.files[""]
    return replace(fates, files={"": (replace(file, records=file.records + 1),)})


def of_five_more(_: Manifest) -> Manifest:
    return fates_of(good())


def without_six(results: pa.Table) -> pa.Table:
    return results.filter(pa.array([at != SIX for at in _starts(results)]))


def with_six_twice(results: pa.Table) -> pa.Table:
    return pa.concat_tables([results, results.filter(pa.array([at == SIX for at in _starts(results)]))])


def less_at_six(column: str) -> Callable[[pa.Table], pa.Table]:
    """Reduce the record count of the row at 06:00 by 5."""

    def mutated(rows: pa.Table) -> pa.Table:
        counts = [
            count - 5 * (at == SIX) for count, at in zip(rows[column].to_pylist(), _starts(rows), strict=True)
        ]
        return rows.set_column(rows.column_names.index(column), column, pa.array(counts, pa.int64()))

    return mutated


def with_more(fate: str, count: int) -> Callable[[Manifest], Manifest]:
    """Add records of source partition a with one fate."""

    def mutated(fates: Manifest) -> Manifest:
        of_a = {**fates.fates.get("a", {}), fate: count}
        return replace(fates, events_read=fates.events_read + count, fates={**fates.fates, "a": of_a})

    return mutated


def of_other_fate(old: str, new: str, count: int) -> Callable[[Manifest], Manifest]:
    """Give records of source partition a another fate."""

    def mutated(fates: Manifest) -> Manifest:
        of_a = fates.fates["a"]
        return replace(fates, fates={**fates.fates, "a": {**of_a, old: of_a[old] - count, new: count}})

    return mutated


def with_seconds(count: int) -> dict[str, tuple[ImplausibleTimes, ...]]:
    """Return the plan's field with records of 1 March 2026 in seconds that were read as milliseconds."""
    first_ms = SINCE_MS // 1_000
    file, reason = "/data/clicks.parquet", "with the unit s instead of ms it would be 2026-03-01T00:00Z"
    bounds_ms = first_ms, first_ms + count - 1
    return {
        "implausible": (
            ImplausibleTimes("source.event_time", count, 2_400, *bounds_ms, str(first_ms), file, "s", reason),
        )
    }


def with_gap(gap: RecordGap, count: int) -> Callable[[Manifest], Manifest]:
    """Let some of the records have a gap."""
    return lambda fates: replace(fates, gaps={gap: count})


def as_sessions(results: pa.Table) -> pa.Table:
    """Return a session in the first third of each hour, and one at 06:20, where the session of 06:00 ends."""
    starts = [*_starts(results), SIX + 20 * MINUTE_MS]
    ends = [start + 20 * MINUTE_MS for start in starts]
    instants = pa.timestamp("ms", "UTC")
    counts = [*results["record_count"].to_pylist(), 0]
    columns = {"window_start": pa.array(starts, instants), "window_end": pa.array(ends, instants)}
    return pa.table({**columns, "record_count": pa.array(counts, pa.int64())})


def _starts(results: pa.Table) -> list[int]:
    return [int(at) for at in results["window_start"].cast(pa.int64()).to_pylist()]
