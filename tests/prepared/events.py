"""Make recorded events, write them with other tools than backstream's, and count them by hour."""

from __future__ import annotations

import csv
import gzip
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import fastavro
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

FIRST_DAY = datetime(2024, 3, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Event:
    """A recorded event; all times are UTC."""

    at: datetime
    arrived: datetime
    partition: int
    offset: int
    user: str
    amount: int


NO_TIME = Event(None, FIRST_DAY + timedelta(hours=47), 0, 9_000, "a", 1)  # type: ignore[arg-type]  # its time is null on purpose
"""A bad record: it has no event time."""


def make_events(count: int = 200, seed: int = 1) -> list[Event]:
    """Return events of two days, in arrival order."""
    generator = random.Random(seed)  # noqa: S311 - test data
    events = []
    for number in range(count):
        arrived = FIRST_DAY + timedelta(minutes=number * 2800 / count, milliseconds=generator.randrange(1000))
        at = arrived - timedelta(milliseconds=generator.choice([1, 500, 90_000, 5_400_000]))
        user, amount = generator.choice("abc"), generator.randrange(100)
        events.append(Event(max(at, FIRST_DAY), arrived, number % 2, number // 2, user, amount))
    return events


def sums_by_hour(events: Iterable[Event]) -> dict[tuple[str, datetime], tuple[int, int]]:
    """Return the number of events and the sum of amounts by user and hour."""
    numbers, sums = Counter[tuple[str, datetime]](), Counter[tuple[str, datetime]]()
    for event in events:
        place = event.user, event.at.replace(minute=0, second=0, microsecond=0)
        numbers[place] += 1
        sums[place] += event.amount
    return {place: (count, sums[place]) for place, count in numbers.items()}


NEW_YORK = ZoneInfo("America/New_York")


def nested(event: Event) -> dict[str, object]:
    """Return an event as an envelope with a nested payload: ISO text and epoch milliseconds."""
    return {
        "topic": "orders",
        "partition": event.partition,
        "offset": event.offset,
        "received": round(event.arrived.timestamp() * 1000),
        "payload": {
            "at": event.at.isoformat() if event.at else None,
            "user": {"id": event.user},
            "amount": event.amount,
        },
        "unused": [1, 2],
    }


def flat(event: Event) -> dict[str, object]:
    """Return an event as a flat record with times as text without a zone, in New York."""
    local = event.at and event.at.astimezone(NEW_YORK).replace(tzinfo=None)
    return {
        "at": local and local.isoformat(sep=" ", timespec="milliseconds"),
        "received_s": event.arrived.timestamp(),
        "partition": event.partition,
        "offset": event.offset,
        "user": event.user,
        "amount": event.amount,
    }


def write_json(folder: Path, name: str, events: Sequence[Event], extra: Sequence[str] = ()) -> None:
    lines = [*map(json.dumps, map(nested, events)), *extra]
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    content = ("\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)


def write_csv(folder: Path, name: str, events: Sequence[Event]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("w", newline="") as file:
        writer = csv.DictWriter(file, list(flat(events[0])))
        writer.writeheader()
        writer.writerows(map(flat, events))


def write_avro(folder: Path, name: str, events: Sequence[Event]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    schema = {
        "type": "record",
        "name": "order",
        "fields": [
            {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
            {"name": "received", "type": "long"},
            {"name": "partition", "type": "int"},
            {"name": "offset", "type": "long"},
            {"name": "user", "type": "string"},
            {"name": "amount", "type": "int"},
        ],
    }
    rows = [{**columns(event), "received": round(event.arrived.timestamp() * 1_000_000)} for event in events]
    with (folder / name).open("wb") as file:
        fastavro.writer(file, schema, rows)


def columns(event: Event) -> dict[str, object]:
    return {
        "at": event.at,
        "received": event.arrived,
        "partition": event.partition,
        "offset": event.offset,
        "user": event.user,
        "amount": event.amount,
    }


def write_orc(folder: Path, name: str, events: Sequence[Event]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    orc.write_table(pa.Table.from_pylist(list(map(columns, events))), folder / name)


def write_int96(folder: Path, name: str, events: Sequence[Event]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(list(map(columns, events)))
    pq.write_table(table, folder / name, use_deprecated_int96_timestamps=True)


def write_nanoseconds(folder: Path, name: str, events: Sequence[Event]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    frame = pd.DataFrame(list(map(columns, events)))
    frame["at"] = frame["at"].dt.as_unit("ns") + pd.Timedelta(999, "ns")
    frame["received"] = frame["received"].dt.as_unit("ns")
    pq.write_table(pa.Table.from_pandas(frame), folder / name, version="2.6")


def write_hive(folder: Path, name: str, events: Sequence[Event]) -> None:
    """Write one file per day and user, with both in the path only."""
    places = {event: ((event.at or event.arrived).date(), event.user) for event in events}
    for day, user in sorted({*places.values()}):
        rows = [columns(event) for event in events if places[event] == (day, user)]
        table = pa.Table.from_pylist(rows).drop_columns(["user"])
        path = folder / f"dt={day}" / f"user={user}" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path)


Write = Callable[[Path, str, Sequence[Event]], None]
