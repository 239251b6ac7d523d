"""Write random files of Avro, Parquet, and ORC with types that differ, and read them with plain Python."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import fastavro
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import orc
from tests.prepared.random_files import COLUMNS, Expected, Source, count_verdicts, normalized, read_row, record

AVRO_CODECS = ("null", "deflate", "snappy", "bzip2", "xz", "zstandard")
PARQUET_CODECS = ("none", "snappy", "gzip", "zstd", "lz4")
ORC_CODECS = ("uncompressed", "snappy", "zlib", "lz4", "zstd")
_NUMBERS = ("double", "double", "double", "float", "int", "long")
_EXACT_NUMBERS = ("decimal", "decimal", "int", "long")
"""Types that one type holds together."""
_DECIMALS = 4
_PRECISION = 18
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def _records(generator: random.Random, amount: str, unit: str | None) -> list[dict[str, Any]]:
    """Return records with an amount of a type, and a time as text, or as a number since 1970 in a unit."""
    found = []
    for _ in range(generator.randrange(1, 30)):
        values = record(generator)
        values["amount"] = None if values["amount"] is None else _amount(generator, amount)
        if unit is not None and values["ts"] is not None:
            per_second = _PER_SECOND[unit]
            values["ts"] = 1_709_251_200 * per_second + generator.randrange(3 * 86_400 * per_second)
            values["ts"] *= generator.choice([1] * 20 + [-1])
        found.append(values)
    return found


def _amount(generator: random.Random, kind: str) -> Any:
    match kind:
        case "int":
            return generator.choice([0, -3, 2**31 - 1, generator.randrange(10**6)])
        case "long":
            return generator.choice([0, -3, 12345678901234, 2**53])
        case "decimal":
            digits = generator.randrange(-(10**14), 10**14)
            return Decimal(digits).scaleb(-_DECIMALS)
        case "float":
            return generator.choice([0.0, 1.5, -3.25])
        case _:
            return generator.choice([0.0, 1.5, 0.1, 1e300, generator.random()])


def _small_ids(generator: random.Random, records: Sequence[dict[str, Any]]) -> bool:
    """Replace the ids by small ones, sometimes, and return whether they are small."""
    is_small = generator.random() < 0.3
    for each in records if is_small else ():
        each["id"] = generator.randrange(100) if each["id"] is not None else None
    return is_small


# --- Avro

_AVRO_TIMES: Mapping[str, tuple[Any, str | None]] = {
    "text": ("string", None),
    "milliseconds": ({"type": "long", "logicalType": "timestamp-millis"}, "ms"),
    "microseconds": ({"type": "long", "logicalType": "timestamp-micros"}, "us"),
    "nanoseconds": ({"type": "long", "logicalType": "timestamp-nanos"}, "ns"),
    "local milliseconds": ({"type": "long", "logicalType": "local-timestamp-millis"}, "ms"),
    "local microseconds": ({"type": "long", "logicalType": "local-timestamp-micros"}, "us"),
}
_AVRO_DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": _PRECISION, "scale": _DECIMALS}


def avro_writer(*times: str, amounts: Sequence[str] = _NUMBERS) -> Callable[[random.Random], bytes]:
    """Return a writer of Avro files, each with one of these forms of times and types of amounts."""

    def write(generator: random.Random) -> bytes:
        kind, unit = _AVRO_TIMES[generator.choice(times)]
        amount = generator.choice(amounts)
        records = _records(generator, amount, unit)
        is_small = _small_ids(generator, records)
        kinds = {
            "id": "int" if is_small else "long",
            "k": "string",
            "amount": _AVRO_DECIMAL if amount == "decimal" else amount,
            "ts": kind,
        }
        names = generator.sample(COLUMNS, 4)
        unions = [["null", kinds[name]] if generator.random() < 0.7 else [kinds[name], "null"] for name in names]
        fields = [{"name": name, "type": union} for name, union in zip(names, unions, strict=True)]
        schema = {"type": "record", "name": "event", "fields": fields}
        stream = io.BytesIO()
        own = [each | {"ts": each["ts"] if unit is None else _logical(kind, each["ts"])} for each in records]
        interval = generator.choice([16_000, 100])
        fastavro.writer(stream, schema, own, codec=generator.choice(AVRO_CODECS), sync_interval=interval)
        return stream.getvalue()

    return write


def _logical(kind: Any, value: int | None) -> Any:
    """Return a number as the object from which fastavro writes a logical type."""
    unit = {"millis": 1_000, "micros": 1}.get(kind["logicalType"].rpartition("-")[2])
    if value is None or unit is None:
        return value
    at = _EPOCH + timedelta(microseconds=value * unit)
    return at.replace(tzinfo=None) if kind["logicalType"].startswith("local") else at


def read_avro(content: bytes) -> Expected:
    """Read an Avro file with fastavro; a file without a byte has no records."""
    return _read(lambda: fastavro.reader(io.BytesIO(content)) if content else ())


# --- Arrow


_ARROW_TIMES: Mapping[str, pa.DataType] = {
    "text": pa.string(),
    "seconds": pa.timestamp("s", "UTC"),
    "milliseconds": pa.timestamp("ms", "UTC"),
    "microseconds": pa.timestamp("us", "UTC"),
    "nanoseconds": pa.timestamp("ns", "UTC"),
    "local milliseconds": pa.timestamp("ms"),
    "local microseconds": pa.timestamp("us"),
    "local nanoseconds": pa.timestamp("ns"),
}
_ARROW_AMOUNTS = {
    "double": pa.float64(),
    "float": pa.float32(),
    "int": pa.int32(),
    "long": pa.int64(),
    "decimal": pa.decimal128(_PRECISION, _DECIMALS),
}


def _arrow_table(generator: random.Random, times: Sequence[str], amounts: Sequence[str]) -> pa.Table:
    kind = _ARROW_TIMES[generator.choice(times)]
    amount = generator.choice(amounts)
    records = _records(generator, amount, kind.unit if pa.types.is_timestamp(kind) else None)
    is_small = _small_ids(generator, records)
    kinds = {
        "id": pa.int32() if is_small else pa.int64(),
        "k": pa.string(),
        "amount": _ARROW_AMOUNTS[amount],
        "ts": kind,
    }
    names = generator.sample(COLUMNS, 4)
    columns = {name: pa.array([each[name] for each in records], kinds[name]) for name in names}
    return pa.table(columns)


def parquet_writer(*times: str, amounts: Sequence[str] = _NUMBERS) -> Callable[[random.Random], bytes]:
    """Return a writer of Parquet files, by Arrow or Polars."""

    def write(generator: random.Random) -> bytes:
        table, stream = _arrow_table(generator, times, amounts), io.BytesIO()
        kind = table["ts"].type
        if generator.random() < 0.7:
            pq.write_table(
                table,
                stream,
                compression=generator.choice(PARQUET_CODECS),
                row_group_size=generator.randrange(1, 20),
                version="2.6" if kind in (pa.timestamp("ns"), pa.timestamp("ns", "UTC")) else "1.0",
                data_page_version=generator.choice(["1.0", "2.0"]),
                use_dictionary=generator.random() < 0.5,
                use_deprecated_int96_timestamps=generator.random() < 0.2 and getattr(kind, "tz", None) is not None,
            )
        else:
            codecs: list[Any] = ["zstd", "lz4", "snappy", "gzip", "uncompressed"]
            pl.DataFrame(table).write_parquet(stream, compression=generator.choice(codecs))
        return stream.getvalue()

    return write


def read_parquet(content: bytes) -> Expected:
    """Read a Parquet file with Arrow."""
    return _read(lambda: _rows(pq.read_table(io.BytesIO(content))))


def orc_writer(*times: str, amounts: Sequence[str] = _NUMBERS) -> Callable[[random.Random], bytes]:
    """Return a writer of ORC files.

    Arrow writes times before 1970 with negative nanoseconds, which Java refuses.
    """

    def write(generator: random.Random) -> bytes:
        stream = io.BytesIO()
        table = _arrow_table(generator, times, amounts)
        if pa.types.is_timestamp(table["ts"].type):
            later = pc.abs(table["ts"].cast(pa.int64())).cast(table["ts"].type)
            table = table.set_column(table.column_names.index("ts"), "ts", later)
        orc.write_table(table, stream, compression=generator.choice(ORC_CODECS))
        return stream.getvalue()

    return write


def read_orc(content: bytes) -> Expected:
    """Read an ORC file with Arrow; a file without a byte has no records."""
    return _read(lambda: _rows(orc.ORCFile(io.BytesIO(content)).read()) if content else ())


def _rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    """Yield rows whose instants are numbers of microseconds, rounded down."""
    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        values = column
        if pa.types.is_timestamp(column.type):
            per_second = _PER_SECOND[column.type.unit]
            numbers = column.cast(pa.int64()).to_pylist()
            columns[name] = [None if each is None else each * 10**6 // per_second for each in numbers]
        else:
            columns[name] = values.to_pylist()
    yield from (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))


def _read(load: Callable[[], Any]) -> Expected:
    """Read rows; a file that the library cannot read is refused."""
    try:
        rows = list(load())
    except Exception:  # noqa: BLE001 - libraries raise anything over damaged bytes
        return Expected(is_refused=True)
    if not all(isinstance(each, dict) and {*COLUMNS} <= each.keys() for each in rows):
        return Expected(is_refused=True)
    if any(isinstance(each["amount"], bytes | str) for each in rows):
        return Expected(has_other_types=True)
    return count_verdicts(_read_row(each) for each in rows)


def _read_row(values: Mapping[str, Any]) -> Any:
    identity, key, amount, at = (values[name] for name in COLUMNS)
    if isinstance(at, str | None):
        return read_row(identity, key, amount, at)
    if isinstance(at, datetime):
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        at = (at - _EPOCH) // timedelta(microseconds=1)
    elif isinstance(at, date):
        at = (at - date(1970, 1, 1)).days * 86_400 * 10**6
    return normalized(identity, key, amount, at)


_LOCAL = 'time_zone = "UTC"\n'
TABLES = [
    Source("avro", 'format = "avro"\n', ".avro", avro_writer("text"), read_avro),
    Source(
        "avro instants",
        'format = "avro"\n',
        ".avro",
        avro_writer("milliseconds", "microseconds", "microseconds"),
        read_avro,
    ),
    Source(
        "avro local times",
        f'format = "avro"\n{_LOCAL}',
        ".avro",
        avro_writer("local milliseconds", "local microseconds", amounts=_EXACT_NUMBERS),
        read_avro,
    ),
    Source("parquet", "prepare = true\n", ".parquet", parquet_writer("text"), read_parquet),
    Source(
        "parquet instants",
        "prepare = true\n",
        ".parquet",
        parquet_writer("seconds", "milliseconds", "microseconds", "nanoseconds"),
        read_parquet,
    ),
    Source(
        "parquet local times",
        f"prepare = true\n{_LOCAL}",
        ".parquet",
        parquet_writer("local milliseconds", "local microseconds", "local nanoseconds", amounts=_EXACT_NUMBERS),
        read_parquet,
    ),
    Source("orc", 'format = "orc"\n', ".orc", orc_writer("text"), read_orc),
    Source(
        "orc instants",
        'format = "orc"\n',
        ".orc",
        orc_writer("milliseconds", "microseconds", "nanoseconds", amounts=_EXACT_NUMBERS),
        read_orc,
    ),
]
