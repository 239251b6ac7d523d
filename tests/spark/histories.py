"""Write small recorded histories, and compute the expected results with the reference interpreter."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from backstream.definition.model import Definition
from backstream.definition.source_section import Source
from backstream.eventtime.instants import DAY_MS, MIN_MS, epoch_ms, utc_datetime
from backstream.eventtime.intervals import Interval
from backstream.eventtime.records import Fate, Record, SourceClock
from backstream.eventtime.watermark_sources import compute_watermarks
from backstream.eventtime.window_operator import PaneTiming, WindowResults, fire_windows
from backstream.eventtime.windows import Sliding, window_start_ms
from backstream.native.sessions.window_replay import to_watermarks

Row = tuple[int, int, str, int, str, int]
"""Event time and arrival time in ms, partition, sequence, key, and value."""

Place = tuple[str, int, int]
"""Key, window start, and window end in ms."""
Value = tuple[int, int]
"""Number of events, and the sum of their values."""

MARKER = "value = 3"
"""SQL expression that is true for records with a punctuated watermark."""

DAY_ONE_MS = epoch_ms(datetime(2024, 3, 1, tzinfo=UTC))


_IDS: dict[str, tuple[pa.DataType, Callable[[Row], str | int | None]]] = {
    "device": (pa.string(), lambda row: f"{row[4]}{row[5]}" if row[5] > 1 else None),
    "counter": (pa.int64(), lambda row: row[5] or None),
}
"""The columns of an id that few records share: both are null for a value of 0, and one for a value of 1."""


def random_history(seed: int, rows: int = 400, days: int = 3) -> list[Row]:
    """Return a stream of three partitions with late events, silent periods, and duplicate rows."""
    chance = random.Random(seed)  # noqa: S311 - a test's history, not a secret
    arrivals = sorted(DAY_ONE_MS + chance.randrange(days * DAY_MS) for _ in range(rows))
    sequences: Counter[str] = Counter()
    history: list[Row] = []
    for arrival_ms in arrivals:
        hour = arrival_ms // 3_600_000 % 24
        partition = chance.choice("AB" if hour < 8 else "ABC")
        lateness_ms = chance.choice([0, 60_000, 1_800_000, 5_400_000, 20_000_000]) * chance.random()
        event_ms = arrival_ms - int(lateness_ms)
        history.append(
            (event_ms, arrival_ms, partition, sequences[partition], chance.choice("xyz"), chance.randrange(9))
        )
        sequences[partition] += 1
        if chance.random() < 0.05:
            history.append(history[-1])
    return history


def write_history(folder: Path, history: Sequence[Row]) -> None:
    """Write one Parquet file per day of arrival."""
    by_day: dict[int, list[Row]] = {}
    for row in history:
        by_day.setdefault(row[1] // DAY_MS, []).append(row)
    for day, rows in by_day.items():
        columns = list(zip(*rows, strict=True))
        instants = pa.timestamp("us", "UTC")
        table = pa.table(
            {
                "happened_at": pa.array([utc_datetime(value) for value in columns[0]], instants),
                "arrived_at": pa.array([utc_datetime(value) for value in columns[1]], instants),
                "origin": pa.array(columns[2]),
                "seq": pa.array(columns[3], pa.int64()),
                "key": pa.array(columns[4]),
                "value": pa.array(columns[5], pa.int64()),
                **{name: pa.array(map(value_of, rows), kind) for name, (kind, value_of) in _IDS.items()},
            }
        )
        target = folder / f"arrival_day={utc_datetime(day * DAY_MS):%Y-%m-%d}" / "part-0.parquet"
        target.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, target)


def definition_of(folder: Path, **sections: Mapping[str, Any]) -> dict[str, Any]:
    """Return a definition for such a history, as the content of a TOML file."""
    return {
        "name": "events",
        "source": {
            "path": str(folder),
            "event_time": "happened_at",
            "arrival_time": "arrived_at",
            "partition": "origin",
            "sequence": "seq",
            "key": ["key"],
            "deduplicate_on": ["origin", "seq"],
        },
        "aggregates": {"events": "count(*)", "total": "sum(value)"},
        "watermark": {
            "strategy": "bounded_out_of_orderness",
            "delay": "10m",
            "emit_interval": "30s",
            "idle_timeout": "1h",
        },
        "lateness": {"allowed": "1h"},
        **sections,
        # What is tested here are Spark's own kernels, if nothing else is said.
        "backfill": {"engine": "spark", **sections.get("backfill", {})},
    }


class Expected:
    """The expected results of a range: fates per partition, and panes per key and window."""

    def __init__(self, history: Sequence[Row], definition: Definition, interval: Interval) -> None:
        """Run the reference on the whole history, and select the range."""
        self.interval, self.window, self.cells = interval, definition.window.spec(), definition.metric_windows
        if definition.time != "event":
            history = [(row[1], *row[1:]) for row in history]
        arrived = sorted(history, key=lambda row: (row[1], row[3], row[2]))
        marks = _mark_duplicates(arrived, definition.source)
        kept_at = [position for position, is_duplicate in enumerate(marks) if not is_duplicate]
        self.unique = [arrived[position] for position in kept_at]
        partitions = sorted({row[2] for row in arrived})
        clock = SourceClock(arrived[0][1], definition.watermark.emit_interval, arrived[-1][1])
        is_marked = definition.watermark.marker == MARKER
        records = [
            Record(row[1], partitions.index(row[2]), row[4], row[0], row[5], is_marked and row[5] == 3)
            for row in arrived
        ]
        timeline = compute_watermarks(records, definition.watermark.spec(), clock, range(len(partitions)))
        kept = [records[position] for position in kept_at]
        met = [timeline.in_force_ms[position] for position in kept_at]
        self.met = met
        self.panes: WindowResults = fire_windows(
            kept, to_watermarks(met), self.window, definition.lateness.allowed
        )
        self.offline: WindowResults = fire_windows(kept, to_watermarks([MIN_MS] * len(kept)), self.window, 0)
        self.copies = [row for row, is_duplicate in zip(arrived, marks, strict=True) if is_duplicate]

    def fates(self) -> dict[str, dict[str, int]]:
        """Return the counts by source partition and fate, for records whose latest window starts in the range."""
        counted: dict[str, Counter[str]] = {}
        for row, fate in zip(self.unique, self.panes.fates, strict=True):
            if self._owns(row):
                counted.setdefault(row[2], Counter())[fate.value] += 1
        for row in self.copies:
            if self._owns(row):
                counted.setdefault(row[2], Counter())[Fate.DUPLICATE.value] += 1
        return {partition: dict(sorted(counts.items())) for partition, counts in sorted(counted.items())}

    def _owns(self, row: Row) -> bool:
        every_ms = self.cells.slide_ms if isinstance(self.cells, Sliding) else self.cells.size_ms
        start_ms = window_start_ms(row[0], self.cells.offset_ms, every_ms)
        return self.interval.start_ms <= start_ms < self.interval.end_ms

    def values(self) -> dict[Place, tuple[Value | None, Value | None, Value | None]]:
        """Return the first, live, and final pane by key, window start, and end."""
        first, live = self._fired(self.panes)
        _, final = self._fired(self.offline)
        return {place: (first.get(place), live.get(place), final.get(place)) for place in sorted({*live, *final})}

    def published(self) -> dict[Place, Value]:
        """Return the final pane by key, window start, and end."""
        return {place: final for place, (_, _, final) in self.values().items() if final}

    def _fired(self, panes: WindowResults) -> tuple[dict[Place, Value], dict[Place, Value]]:
        """Return the value of the first firing, if it was on time, and of the last firing of each window."""
        first: dict[Place, Value] = {}
        last: dict[Place, Value] = {}
        for pane in panes.panes:
            if self.interval.start_ms <= pane.window.start_ms < self.interval.end_ms:
                place = (str(pane.key), *pane.window)
                if pane.timing is PaneTiming.ON_TIME and place not in last:
                    first[place] = self._value(pane.records)
                last[place] = self._value(pane.records)
        return first, last

    def _value(self, numbers: Sequence[int]) -> Value:
        return len(numbers), sum(self.unique[number][5] for number in numbers)


def _mark_duplicates(arrived: Sequence[Row], source: Source) -> list[bool]:
    """Return whether each record is a duplicate: each is compared with each other one."""
    columns = {"origin": 2, "seq": 3}
    ids = [
        tuple(_IDS[name][1](row) if name in _IDS else row[columns[name]] for name in source.deduplicate_on)
        for row in arrived
    ]

    def is_duplicate(number: int) -> bool:
        others = range(number) if source.deduplicate_keep == "first" else range(number + 1, len(arrived))
        return any(value is not None for value in ids[number]) and any(
            ids[other] == ids[number] and abs(arrived[other][0] - arrived[number][0]) <= source.deduplicate_within
            for other in others
        )

    return [is_duplicate(number) for number in range(len(arrived))]


def days(start: int, end: int) -> Interval:
    """Return an interval of whole days, counted from the first day of the history."""
    first_ms = epoch_ms(utc_datetime(DAY_ONE_MS) + timedelta(days=start))
    return Interval(first_ms, first_ms + (end - start) * DAY_MS)
