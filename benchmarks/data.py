"""The recorded streams of the benchmark. They are the same on every machine, and each is written once.

Spark computes each column as a hash of the row number, so a row is independent of the Spark partitions.
A generator with a seed draws small streams, and streams over years, without Spark.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from backstream.eventtime.instants import DAY_MS, HOUR_MS, SECOND_MS, epoch_ms

FIRST_DAY_MS = epoch_ms(datetime(2024, 3, 1, tzinfo=UTC))
KEYS = 100_000
PARTITIONS = 8
IDLE_HOURS: Mapping[int, tuple[tuple[float, float], ...]] = {
    5: ((11, 11.5), (18, 20)),
    6: ((0, 4),),
    7: ((2, 6), (22, 24)),
}
"""The idle hours of each day by source partition: one begins late, one ends early, one has short gaps."""

VERSION = 2
"""The version of the rows. Raise it after a change of the rows, so that no benchmark uses an older stream."""

_ALWAYS_AWAKE = PARTITIONS - len(IDLE_HOURS)
# A hash has 64 bits; a double holds 53 of them exactly.
_UNUSED_BITS, _RANGE = 11, float(2**53)
# Lateness is `1 s / (1.0001 - chance)`: one record in x is late by more than x seconds. The maximum is 10,000 s.
_LONGEST_SHARE = 1.0001


@dataclass(frozen=True, slots=True)
class Stream:
    """A recorded stream: its events, days and files. With `has_hot_key`, one key has half of the events."""

    rows: int
    days: int = 1
    files: int = 24
    has_hot_key: bool = False
    even_keys: int = 0
    """The number of keys with equally many events. If it is 0, the stream has `KEYS` keys by zipf."""
    is_shuffled: bool = False
    """A flag: each file has events from the whole stream, in no order. Otherwise, files are in arrival order."""

    @property
    def name(self) -> str:
        """The name of the folder of the stream."""
        hot = "-hot-key" if self.has_hot_key else ""
        even = f"-{self.even_keys}-even-keys" if self.even_keys else ""
        shuffled = "-shuffled" if self.is_shuffled else ""
        return f"events-v{VERSION}-{self.rows}-in-{self.days}d-{self.files}-files{hot}{even}{shuffled}"


@dataclass(frozen=True, slots=True)
class Sparse:
    """A recorded stream of few events on each of many days. The key is the source partition."""

    rows: int
    since_ms: int
    days: int
    partitions: int
    files: int

    @property
    def name(self) -> str:
        """The name of the folder of the stream."""
        span = f"{self.days}d-since-{self.since_ms}"
        return f"sparse-v{VERSION}-{self.rows}-in-{span}-{self.partitions}-partitions-{self.files}-files"


def events(spark: SparkSession, stream: Stream) -> DataFrame:
    """Return the stream, with one Spark partition per file.

    Returns:
        `event_time`, `arrival_time` (instants, whole ms), `source_partition` (a number, as Kafka's),
        `arrival_seq`, `key` (zipf of exponent 1), `value` (0 to 999).
    """
    ids = spark.range(0, stream.rows, 1, stream.files)
    span_ms = F.lit(float(stream.days * DAY_MS))
    since_first_ms = F.floor((F.col("id") + _chance(0)) / F.lit(float(stream.rows)) * span_ms)
    lateness_ms = F.floor(F.lit(float(SECOND_MS)) / (F.lit(_LONGEST_SHARE) - _chance(3)))
    key = F.floor(F.pow(F.lit(float(KEYS + 1)), _chance(4))) - F.lit(1)
    if stream.even_keys:
        key = F.floor(_chance(4) * F.lit(stream.even_keys))
    if stream.has_hot_key:
        key = F.when(_chance(6) < F.lit(0.5), F.lit(0)).otherwise(key)
    arrivals = ids.withColumn("arrival_time_ms", F.lit(FIRST_DAY_MS) + since_first_ms)
    rows = arrivals.select(
        F.timestamp_millis(F.col("arrival_time_ms") - lateness_ms).alias("event_time"),
        F.timestamp_millis("arrival_time_ms").alias("arrival_time"),
        _source_partition(F.col("arrival_time_ms")).cast("int").alias("source_partition"),
        F.col("id").alias("arrival_seq"),
        key.alias("key"),
        F.floor(_chance(5) * F.lit(1000)).alias("value"),
    )
    if not stream.is_shuffled:
        return rows
    place = F.xxhash64("arrival_seq", F.lit(7))
    return rows.repartitionByRange(stream.files, place).sortWithinPartitions(place)


def parquet(spark: SparkSession, stream: Stream, folder: Path) -> Path:
    """Return the folder of the stream in Parquet files. Write it if it is absent.

    The order of the files by name and by age is the order of the stream.
    """
    return _write_once(parquet_folder(stream, folder), lambda new: _write_parquet(spark, stream, new))


def parquet_folder(stream: Stream, folder: Path) -> Path:
    """Return the folder of the stream that `parquet` writes."""
    return folder / stream.name / "parquet"


JSON_COLUMNS = {
    "event_time": "timestamp",
    "arrival_time": "timestamp",
    "source_partition": "int",
    "arrival_seq": "bigint",
    "key": "bigint",
    "value": "bigint",
}
"""The columns of the JSON lines, with their types in Spark SQL."""


def json_lines(spark: SparkSession, stream: Stream, folder: Path) -> Path:
    """Return the folder of the stream in files of JSON lines. Write it if it is absent."""
    return _write_once(json_folder(stream, folder), lambda new: events(spark, stream).write.json(str(new)))


def json_folder(stream: Stream, folder: Path) -> Path:
    """Return the folder of the stream that `json_lines` writes."""
    return folder / stream.name / "json"


ICEBERG_CATALOG, ICEBERG_TABLE = "benchmark", "events.recorded"
_COMPLETE = "complete"


def iceberg(spark: SparkSession, stream: Stream, folder: Path) -> Path:
    """Return the folder of the stream as an Iceberg table, one append per Parquet file. Write it if it is absent.

    The metadata of a table has absolute paths, so the folder cannot be renamed at the end; a file marks its end.
    """
    target, source = iceberg_folder(stream, folder), parquet(spark, stream, folder)
    if not (target / _COMPLETE).exists():
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        with closing(SqlCatalog(ICEBERG_CATALOG, **_catalog_properties(target))) as catalog:
            catalog.create_namespace(ICEBERG_TABLE.partition(".")[0])
            files = sorted(source.glob("*.parquet"))
            table = catalog.create_table(ICEBERG_TABLE, pq.read_schema(files[0]).remove_metadata())
            for file in files:
                table.append(pq.read_table(file).cast(table.schema().as_arrow()))
        (target / _COMPLETE).touch()
    return target


def iceberg_folder(stream: Stream, folder: Path) -> Path:
    """Return the folder of the stream that `iceberg` writes."""
    return folder / stream.name / "iceberg"


def iceberg_variables(target: Path) -> dict[str, str]:
    """Return the environment variables by which PyIceberg finds the catalog of a folder."""
    prefix = f"PYICEBERG_CATALOG__{ICEBERG_CATALOG.upper()}__"
    return {f"{prefix}{name.upper()}": value for name, value in _catalog_properties(target).items()}


def _catalog_properties(target: Path) -> dict[str, str]:
    return {"uri": f"sqlite:///{target}/catalog.db", "warehouse": f"file://{target}/warehouse"}


def csv(spark: SparkSession, stream: Stream, folder: Path) -> Path:
    """Return the folder of the stream in two CSV files in arrival order: key, value, event time in ms.

    Each file has every second record, so that two readers, one per file, are at the same moment of the stream.
    """
    source = parquet(spark, stream, folder)
    return _write_once(folder / stream.name / "csv", lambda new: _write_csv(spark.read.parquet(str(source)), new))


def sparse_parquet(stream: Sparse, folder: Path) -> Path:
    """Return the folder of the stream in Parquet files in arrival order. Write it if it is absent."""
    return _write_once(folder / stream.name, lambda new: _write_sparse(stream, new))


def _write_sparse(stream: Sparse, target: Path) -> None:
    draw = np.random.default_rng(stream.rows)
    event_ms = stream.since_ms + draw.integers(0, stream.days * DAY_MS, stream.rows)
    arrival_ms = event_ms + SECOND_MS + draw.exponential(HOUR_MS, stream.rows).astype("int64")
    partition = draw.integers(0, stream.partitions, stream.rows)
    order, instant = np.argsort(arrival_ms, kind="stable"), pa.timestamp("ms", "UTC")
    columns = {
        "event_time": pa.array(event_ms[order], instant),
        "arrival_time": pa.array(arrival_ms[order], instant),
        "source_partition": pa.array(partition.astype("int32")),
        "arrival_seq": pa.array(np.arange(stream.rows)),
        "key": pa.array(partition),
        "value": pa.array(draw.integers(0, 1000, stream.rows)),
    }
    target.mkdir(parents=True)
    rows, size = pa.table(columns), math.ceil(stream.rows / stream.files)
    for number, first in enumerate(range(0, stream.rows, size)):
        pq.write_table(rows.slice(first, size), target / f"sparse-{number:05}.parquet")


def _chance(number: int) -> Column:
    """Return a number in [0, 1) from the row number and the number of the draw."""
    return F.shiftrightunsigned(F.xxhash64("id", F.lit(number)), _UNUSED_BITS) / F.lit(_RANGE)


def _source_partition(arrival_time_ms: Column) -> Column:
    """Return a skewed source partition. The first has a third of all records.

    If the first choice is idle, return a partition that is never idle.
    """
    choice = F.floor(F.pow(_chance(1), F.lit(2)) * F.lit(PARTITIONS))
    of_day_ms = F.pmod(arrival_time_ms, F.lit(DAY_MS))
    is_idle = F.expr("false")
    for partition, stretches in IDLE_HOURS.items():
        for begin, end in stretches:
            is_inside = of_day_ms.between(int(begin * HOUR_MS), int(end * HOUR_MS) - 1)
            is_idle = is_idle | ((choice == F.lit(partition)) & is_inside)
    return F.when(is_idle, F.floor(_chance(2) * F.lit(_ALWAYS_AWAKE))).otherwise(choice)


def _write_parquet(spark: SparkSession, stream: Stream, target: Path) -> None:
    events(spark, stream).write.parquet(str(target))
    files = sorted(target.glob("part-*.parquet"))
    last_s = files[-1].stat().st_mtime
    for behind, file in enumerate(reversed(files)):
        # Structured Streaming reads files by age.
        os.utime(file, (last_s - behind, last_s - behind))


def _write_csv(rows: DataFrame, target: Path) -> None:
    target.mkdir(parents=True)
    columns = [F.col("key"), F.col("value"), F.unix_millis("event_time").alias("event_time_ms")]
    for half in (0, 1):
        half_rows = rows.where(F.pmod("arrival_seq", F.lit(2)) == F.lit(half)).repartition(1)
        part = target / f"_half-{half}"
        half_rows.sortWithinPartitions("arrival_seq").select(*columns).write.csv(str(part))
        next(part.glob("part-*.csv")).rename(target / f"half-{half}.csv")
        shutil.rmtree(part)


def _write_once(target: Path, write: Callable[[Path], None]) -> Path:
    if not target.exists():
        with _rename_when_done(target) as new:
            write(new)
    return target


@contextmanager
def _rename_when_done(target: Path) -> Iterator[Path]:
    """Yield a temporary path, and rename it at the end, so that a partial result never counts as complete."""
    new = target.with_name(f"_{target.name}")
    shutil.rmtree(new, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    yield new
    new.rename(target)
