"""The recorded streams that are measured: the same on every machine, written once.

Every column that Spark makes is a hash of the row's number, so a row does not depend on how Spark cuts the work.
What is small, or spans years, is drawn without Spark, by a generator with a seed.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
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
"""When a source partition is silent, as hours of each day: one begins late, one ends early, one has short gaps."""

VERSION = 2
"""Rises when other rows come out, so that nobody measures with a stream of yesterday's kind."""

_ALWAYS_AWAKE = PARTITIONS - len(IDLE_HOURS)
# A hash has 64 bits; a double holds 53 of them exactly.
_UNUSED_BITS, _RANGE = 11, float(2**53)
# Lateness is `1 s / (1.0001 - chance)`: one record in x is late by more than x seconds, none by more than 10,000.
_LONGEST_SHARE = 1.0001


@dataclass(frozen=True, slots=True)
class Stream:
    """A recorded stream: how many events, over how many days, in how many files; has one key half of them?"""

    rows: int
    days: int = 1
    files: int = 24
    has_hot_key: bool = False
    even_keys: int = 0
    """So many keys, each with as many events as any other; 0: `KEYS` keys, by zipf."""
    is_shuffled: bool = False
    """Each file has events from all over the stream, in no order; else files lie in arrival order."""

    @property
    def name(self) -> str:
        """The folder it is kept in."""
        hot = "-hot-key" if self.has_hot_key else ""
        even = f"-{self.even_keys}-even-keys" if self.even_keys else ""
        shuffled = "-shuffled" if self.is_shuffled else ""
        return f"events-v{VERSION}-{self.rows}-in-{self.days}d-{self.files}-files{hot}{even}{shuffled}"


@dataclass(frozen=True, slots=True)
class Sparse:
    """A recorded stream of few events on each of many days; the key is the source partition."""

    rows: int
    since_ms: int
    days: int
    partitions: int
    files: int

    @property
    def name(self) -> str:
        """The folder it is kept in."""
        span = f"{self.days}d-since-{self.since_ms}"
        return f"sparse-v{VERSION}-{self.rows}-in-{span}-{self.partitions}-partitions-{self.files}-files"


def events(spark: SparkSession, stream: Stream) -> DataFrame:
    """The stream, one Spark partition per file.

    Returns:
        `event_time`, `arrival_time` (instants, whole ms), `source_partition` (a number, as Kafka's),
        `arrival_seq`, `key` (zipf of exponent 1), `value` (0 to 999).
    """
    numbered = spark.range(0, stream.rows, 1, stream.files)
    span_ms = F.lit(float(stream.days * DAY_MS))
    since_first_ms = F.floor((F.col("id") + _chance(0)) / F.lit(float(stream.rows)) * span_ms)
    lateness_ms = F.floor(F.lit(float(SECOND_MS)) / (F.lit(_LONGEST_SHARE) - _chance(3)))
    key = F.floor(F.pow(F.lit(float(KEYS + 1)), _chance(4))) - F.lit(1)
    if stream.even_keys:
        key = F.floor(_chance(4) * F.lit(stream.even_keys))
    if stream.has_hot_key:
        key = F.when(_chance(6) < F.lit(0.5), F.lit(0)).otherwise(key)
    made = numbered.withColumn("arrival_time_ms", F.lit(FIRST_DAY_MS) + since_first_ms)
    rows = made.select(
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
    """The stream as Parquet files whose order by name and by age is the stream's; made when absent."""
    return _once(parquet_folder(stream, folder), lambda new: _write_parquet(spark, stream, new))


def parquet_folder(stream: Stream, folder: Path) -> Path:
    """Where `parquet` keeps the stream."""
    return folder / stream.name / "parquet"


def csv(spark: SparkSession, stream: Stream, folder: Path) -> Path:
    """The stream as two CSV files in arrival order, every second record in each: key, value, event time in ms.

    Two readers that each play one file are then always at the same moment of the stream.
    """
    source = parquet(spark, stream, folder)
    return _once(folder / stream.name / "csv", lambda new: _write_csv(spark.read.parquet(str(source)), new))


def sparse_parquet(stream: Sparse, folder: Path) -> Path:
    """The stream as Parquet files in arrival order; made when absent."""
    return _once(folder / stream.name, lambda new: _write_sparse(stream, new))


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
    rows, each = pa.table(columns), math.ceil(stream.rows / stream.files)
    for number, first in enumerate(range(0, stream.rows, each)):
        pq.write_table(rows.slice(first, each), target / f"sparse-{number:05}.parquet")


def _chance(number: int) -> Column:
    """In [0, 1), by the row's number and that of the draw."""
    return F.shiftrightunsigned(F.xxhash64("id", F.lit(number)), _UNUSED_BITS) / F.lit(_RANGE)


def _source_partition(arrival_time_ms: Column) -> Column:
    """Skewed: the first has a third of all. A record drawn for one that is silent goes to one that never is."""
    drawn = F.floor(F.pow(_chance(1), F.lit(2)) * F.lit(PARTITIONS))
    of_day_ms = F.pmod(arrival_time_ms, F.lit(DAY_MS))
    is_idle = F.expr("false")
    for partition, stretches in IDLE_HOURS.items():
        for begin, end in stretches:
            is_inside = of_day_ms.between(int(begin * HOUR_MS), int(end * HOUR_MS) - 1)
            is_idle = is_idle | ((drawn == F.lit(partition)) & is_inside)
    return F.when(is_idle, F.floor(_chance(2) * F.lit(_ALWAYS_AWAKE))).otherwise(drawn)


def _write_parquet(spark: SparkSession, stream: Stream, target: Path) -> None:
    events(spark, stream).write.parquet(str(target))
    files = sorted(target.glob("part-*.parquet"))
    last_s = files[-1].stat().st_mtime
    for behind, file in enumerate(reversed(files)):
        # Structured Streaming takes files by age.
        os.utime(file, (last_s - behind, last_s - behind))


def _write_csv(rows: DataFrame, target: Path) -> None:
    target.mkdir(parents=True)
    columns = [F.col("key"), F.col("value"), F.unix_millis("event_time").alias("event_time_ms")]
    for half in (0, 1):
        mine = rows.where(F.pmod("arrival_seq", F.lit(2)) == F.lit(half)).repartition(1)
        part = target / f"_half-{half}"
        mine.sortWithinPartitions("arrival_seq").select(*columns).write.csv(str(part))
        next(part.glob("part-*.csv")).rename(target / f"half-{half}.csv")
        shutil.rmtree(part)


def _once(target: Path, write: Callable[[Path], None]) -> Path:
    if not target.exists():
        with _renamed_when_done(target) as new:
            write(new)
    return target


@contextmanager
def _renamed_when_done(target: Path) -> Iterator[Path]:
    """What was cut short is never taken for the whole."""
    new = target.with_name(f"_{target.name}")
    shutil.rmtree(new, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    yield new
    new.rename(target)
