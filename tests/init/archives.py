"""Write archives as other tools write them: Kafka Connect, Debezium, nginx, pandas, pyarrow, and fastavro."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import fastavro
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

FIRST = datetime(2026, 1, 1, 6, tzinfo=UTC)
PARIS = ZoneInfo("Europe/Paris")
COUNT = 120


@dataclass(frozen=True, slots=True)
class Order:
    """An order, and its record in a stream with two partitions."""

    number: int
    at: datetime
    received: datetime
    partition: int
    offset: int
    shop: str
    amount: float


def orders() -> list[Order]:
    """Return orders in arrival order; some are late."""
    made = []
    for number in range(COUNT):
        received = FIRST + timedelta(minutes=17 * number, milliseconds=137 * (number % 7))
        at = received - timedelta(seconds=(2, 3, 5, 8, 4_000)[number % 5])
        shop = ("north", "south", "west")[number * 7 % 3]
        made.append(Order(number, at, received, number % 2, number // 2, shop, 1.5 * (number % 9)))
    return made


def iso(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def epoch_ms(at: datetime) -> int:
    return round(at.timestamp() * 1_000)


def flat(order: Order) -> dict[str, Any]:
    return {
        "order_id": f"o{order.number}",
        "ordered_at": order.at,
        "received_at": order.received,
        "shard": order.partition,
        "seq": order.offset,
        "shop": order.shop,
        "amount": order.amount,
    }


def halves() -> Iterator[tuple[int, list[Order]]]:
    made = orders()
    yield 0, made[: COUNT // 2]
    yield 1, made[COUNT // 2 :]


def write_lines(path: Path, lines: Sequence[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "\n".join(lines) + "\n"
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)


def parquet_by_pandas(folder: Path) -> None:
    folder.mkdir(parents=True)
    for number, rows in halves():
        frame = pd.DataFrame(map(flat, rows)).astype(
            {"ordered_at": "datetime64[us, UTC]", "received_at": "datetime64[us, UTC]"}
        )
        frame.to_parquet(folder / f"{number}.parquet")


def parquet_without_zone(folder: Path) -> None:
    """Write local times of Paris as pandas does by default: nanoseconds without a zone."""
    folder.mkdir(parents=True)
    for number, rows in halves():
        frame = pd.DataFrame(map(flat, rows))
        for name in ("ordered_at", "received_at"):
            frame[name] = frame[name].dt.tz_localize(None).astype("datetime64[us]")
        pq.write_table(pa.Table.from_pandas(frame), folder / f"{number}.parquet", coerce_timestamps="us")


def json_lines(folder: Path) -> None:
    for number, rows in halves():
        lines = [
            json.dumps({**flat(row), "ordered_at": iso(row.at), "received_at": epoch_ms(row.received)})
            for row in rows
        ]
        write_lines(folder / f"{number}.jsonl{'.gz' if number else ''}", lines)


def json_array(folder: Path) -> None:
    folder.mkdir(parents=True)
    rows = [{"id": row.number, "measured": row.at.timestamp(), "sensor": {"id": row.shop}} for row in orders()]
    (folder / "all.json").write_text(json.dumps(rows, indent=1))


def csv_with_header(folder: Path) -> None:
    """Write a spreadsheet's CSV: semicolons, German dates, and amounts."""
    folder.mkdir(parents=True)
    with (folder / "orders.csv").open("w", newline="") as file:
        writer = csv.writer(file, delimiter=";")
        writer.writerow(["Nr", "Shop", "ordered", "amount"])
        for row in orders():
            writer.writerow([f"{row.number:05}", row.shop, f"{row.at:%d.%m.%Y %H:%M:%S}", row.amount])


def csv_with_other_orders(folder: Path) -> None:
    """Write two CSV files; the second one has its columns in another order, and one more."""
    folder.mkdir(parents=True)
    headers = [["number", "shop", "ordered_at"], ["ordered_at", "shop", "note", "number"]]
    for place, header in enumerate(headers):
        with (folder / f"{place}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, header)
            writer.writeheader()
            for row in [row for row in orders() if row.number % 2 == place]:
                cells = {"number": row.number, "shop": row.shop, "ordered_at": row.at.isoformat(), "note": "x"}
                writer.writerow({name: cells[name] for name in header})


def orc_by_pyarrow(folder: Path) -> None:
    folder.mkdir(parents=True)
    orc.write_table(pa.Table.from_pylist(list(map(flat, orders()))), folder / "orders.orc")


AVRO_SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "ordered_at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "received_at", "type": "long"},
        {"name": "shard", "type": "int"},
        {"name": "seq", "type": "long"},
        {"name": "shop", "type": ["null", "string"]},
        {"name": "amount", "type": "double"},
    ],
}


def avro_by_fastavro(folder: Path) -> None:
    folder.mkdir(parents=True)
    rows = [{**flat(row), "received_at": epoch_ms(row.received)} for row in orders()]
    with (folder / "orders.avro").open("wb") as file:
        fastavro.writer(file, AVRO_SCHEMA, rows, codec="deflate")


def kafka_parquet(folder: Path) -> None:
    """Write Spark's columns of a Kafka source, with values that are JSON in bytes."""
    folder.mkdir(parents=True)
    rows = [
        {
            "key": None,
            "value": json.dumps({"orderedAt": epoch_ms(row.at), "shop": row.shop, "amount": row.amount}).encode(),
            "topic": "orders",
            "partition": row.partition,
            "offset": row.offset,
            "timestamp": row.received,
            "timestampType": 0,
        }
        for row in orders()
    ]
    pq.write_table(pa.Table.from_pylist(rows), folder / "orders.parquet", coerce_timestamps="us")


def kafka_connect_json(folder: Path) -> None:
    """Write the folders and names of Kafka Connect's sink, whose files have only the values of records."""
    for partition in (0, 1):
        lines = [
            json.dumps({"ordered_at": iso(row.at), "shop": row.shop, "amount": row.amount})
            for row in orders()
            if row.partition == partition
        ]
        write_lines(folder / f"topics/orders/partition={partition}/orders+{partition}+0000000000.json", lines)


def change(row: Order) -> dict[str, Any]:
    """Return a change event of Debezium for PostgreSQL; every tenth change deletes a row."""
    image = {"id": row.number, "amount": row.amount}
    is_deleted = row.number % 10 == 9
    return {
        "before": image if is_deleted else None,
        "after": None if is_deleted else image,
        "source": {
            "connector": "postgresql",
            "ts_ms": epoch_ms(row.at),
            "db": "shop",
            "table": ("orders", "customers")[row.number % 2],
            "lsn": 24_023_128 + 56 * row.number,
        },
        "op": "d" if is_deleted else ("c", "u", "r")[row.number % 3],
        "ts_ms": epoch_ms(row.received),
        "transaction": None,
    }


def debezium(folder: Path) -> None:
    write_lines(folder / "changes.json", [json.dumps(change(row)) for row in orders()])


def debezium_with_schema(folder: Path) -> None:
    """Write the envelopes of Kafka Connect's JSON converter, which repeats the schema in each record."""
    lines = [
        json.dumps({"schema": {"type": "struct", "optional": False}, "payload": change(row)}) for row in orders()
    ]
    write_lines(folder / "changes.json", lines)


def cloudevents(folder: Path) -> None:
    lines = [
        json.dumps(
            {
                "specversion": "1.0",
                "id": f"{row.number:04}",
                "source": f"/shops/{row.shop}",
                "type": ("com.example.ordered", "com.example.paid")[row.number % 2],
                "time": iso(row.at),
                "datacontenttype": "application/json",
                "data": {"amount": row.amount},
            }
        )
        for row in orders()
    ]
    write_lines(folder / "events.ndjson", lines)


def access_line(row: Order) -> str:
    user, size = "-" if row.number % 2 else "ann", "-" if row.number % 11 == 0 else 100 + row.number
    time = f"{row.at.astimezone(PARIS):%d/%b/%Y:%H:%M:%S %z}"
    request = f'"GET /item?q=\\"{row.shop}\\" HTTP/1.1"'
    status = (200, 200, 404, 503)[row.number % 4]
    return f'10.0.0.{row.number % 9} - {user} [{time}] {request} {status} {size} "-" "Mozilla/5.0 (X11; Linux)"'


def access_logs(folder: Path) -> None:
    """Write nginx's combined format: local time with its offset, quoted quotes, and `-` for missing values."""
    for number, rows in halves():
        lines = [access_line(row) for row in rows]
        write_lines(folder / ("access.log", "access.log.1.gz")[number], lines)


def json_access_logs(folder: Path) -> None:
    lines = [
        json.dumps(
            {
                "time_iso8601": row.at.astimezone(PARIS).isoformat(timespec="seconds"),
                "remote_addr": f"10.0.0.{row.number % 9}",
                "request": "GET / HTTP/1.1",
                "status": (200, 503)[row.number % 2],
                "body_bytes_sent": 100 + row.number,
            }
        )
        for row in orders()
    ]
    write_lines(folder / "access.json", lines)


def to_seconds(at: datetime) -> datetime:
    return at.replace(microsecond=0)


def to_milliseconds(at: datetime) -> datetime:
    return at.replace(microsecond=at.microsecond // 1_000 * 1_000)


def to_microseconds(at: datetime) -> datetime:
    return at


@dataclass(frozen=True, slots=True)
class Archive:
    """An archive, the keys of the source that a person would write, and the precision of its event times."""

    write: Callable[[Path], None]
    source: Mapping[str, Any]
    aggregates: Mapping[str, str] = field(
        default_factory=lambda: {"events": "count(*)", "sum_amount": "sum(amount)"}
    )
    precision: Callable[[datetime], datetime] = to_milliseconds
    sub_tables: tuple[str, ...] = ()


LOG = {"partition": "shard", "sequence": "seq", "key": ["shop"], "deduplicate_on": ["shard", "seq"]}
ENVELOPE = {"event_time_unit": "ms", "arrival_time_unit": "ms"}


def changes(op: str) -> dict[str, str]:
    kinds = {"inserts": "c", "updates": "u", "deletes": "d"}
    return {"changes": "count(*)"} | {
        name: f"count(*) FILTER (WHERE {op} = '{letter}')" for name, letter in kinds.items()
    }


ARCHIVES = {
    "parquet": Archive(
        parquet_by_pandas,
        {"format": "parquet", "event_time": "ordered_at", "arrival_time": "received_at", **LOG},
        precision=to_microseconds,
    ),
    "parquet without a zone": Archive(
        parquet_without_zone,
        {
            "format": "parquet",
            "event_time": "ordered_at",
            "arrival_time": "received_at",
            "time_zone": "UTC",
            **LOG,
        },
        precision=to_microseconds,
    ),
    "json": Archive(
        json_lines,
        {
            "format": "json",
            "event_time": "ordered_at",
            "arrival_time": "received_at",
            "arrival_time_unit": "ms",
            **LOG,
        },
        sub_tables=("columns",),
    ),
    "json array": Archive(
        json_array,
        {
            "format": "json",
            "event_time": "measured",
            "event_time_unit": "s",
            "deduplicate_on": ["id"],
        },
        {"events": "count(*)"},
        to_microseconds,
        ("columns", "options"),
    ),
    "csv": Archive(
        csv_with_header,
        {
            "format": "csv",
            "event_time": "ordered",
            "event_time_pattern": "dd.MM.yyyy HH:mm:ss",
            "time_zone": "UTC",
            "key": ["Shop"],
        },
        precision=to_seconds,
        sub_tables=("columns", "options"),
    ),
    "csv with other orders of columns": Archive(
        csv_with_other_orders,
        {"format": "csv", "event_time": "ordered_at", "key": ["shop"]},
        {"events": "count(*)"},
        sub_tables=("columns", "options"),
    ),
    "orc": Archive(
        orc_by_pyarrow,
        {"format": "orc", "event_time": "ordered_at", "arrival_time": "received_at", **LOG},
        precision=to_microseconds,
    ),
    "avro": Archive(
        avro_by_fastavro,
        {
            "format": "avro",
            "event_time": "ordered_at",
            "arrival_time": "received_at",
            "arrival_time_unit": "ms",
            **LOG,
        },
        precision=to_microseconds,
    ),
    "kafka": Archive(
        kafka_parquet,
        {
            "format": "parquet",
            "event_time": "ordered_at",
            "event_time_unit": "ms",
            "arrival_time": "timestamp",
            "partition": "partition",
            "sequence": "offset",
            "key": ["shop"],
            "deduplicate_on": ["partition", "offset"],
        },
        sub_tables=("derive",),
    ),
    "kafka connect": Archive(
        kafka_connect_json,
        {"format": "json", "event_time": "ordered_at", "partition": "partition", "key": ["shop"]},
        sub_tables=("columns",),
    ),
    "debezium": Archive(
        debezium,
        {
            "format": "json",
            "event_time": "source.ts_ms",
            "arrival_time": "ts_ms",
            "sequence": "source.lsn",
            "key": ["source.table"],
            **ENVELOPE,
        },
        changes("op"),
        sub_tables=("columns",),
    ),
    "debezium with schema": Archive(
        debezium_with_schema,
        {
            "format": "json",
            "event_time": "payload.source.ts_ms",
            "arrival_time": "payload.ts_ms",
            "sequence": "payload.source.lsn",
            "key": ["payload.source.table"],
            **ENVELOPE,
        },
        changes("payload.op"),
        sub_tables=("columns",),
    ),
    "cloudevents": Archive(
        cloudevents,
        {"format": "json", "event_time": "time", "key": ["type"], "deduplicate_on": ["source", "id"]},
        {"events": "count(*)", "sum_data_amount": "sum(data.amount)"},
        sub_tables=("columns",),
    ),
    "access logs": Archive(
        access_logs,
        {"format": "csv", "event_time": "logged_at", "event_time_pattern": "dd/MMM/yyyy:HH:mm:ss Z"},
        {"requests": "count(*)", "server_errors": "count_if(status >= 500)", "bytes_sent": "sum(size)"},
        to_seconds,
        ("columns", "derive", "options"),
    ),
    "json access logs": Archive(
        json_access_logs,
        {"format": "json", "event_time": "time_iso8601"},
        {"requests": "count(*)", "server_errors": "count_if(status >= 500)", "bytes_sent": "sum(body_bytes_sent)"},
        to_seconds,
        ("columns",),
    ),
}
