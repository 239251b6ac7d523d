"""Measure backstream against what one would write by hand, and print ratios.

    make bench                      # 2,000,000 events
    make bench ARGS="--rows 25000000 --rounds 5"

Jobs are interleaved, and each figure is a median over the rounds: a machine's mood then hits all of them alike.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table

from backstream.core.generators import Strategy, StrategyKind
from backstream.core.instants import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, epoch_ms
from backstream.core.records import Clock
from backstream.core.watermarks import Emission
from backstream.core.windows import Sliding, Tumbling
from backstream.spark.fates import timed
from backstream.spark.panes import panes, recomputed
from backstream.spark.schemas import long
from backstream.spark.session import local
from backstream.spark.watermarks import ClockColumns, compressed, heard, watermarked
from backstream.spark.windows import FixedWindow, WindowColumns, windowed

DAY_ONE_MS = epoch_ms(datetime(2024, 3, 1, tzinfo=UTC))
PARTITIONS = 8
AGGREGATES = {"events": "count(*)", "total": "sum(value)"}
EMISSION = Emission(Strategy(StrategyKind.BOUNDED, MINUTE_MS, 200, HOUR_MS))
CLOCK = Clock(DAY_ONE_MS, 200, DAY_ONE_MS + DAY_MS)


def events(spark: SparkSession, rows: int) -> DataFrame:
    """One day of events: skewed keys and partitions, one silent for a stretch, lateness with a long tail."""
    chance = spark.range(rows).select(*(F.rand(seed).alias(f"chance_{seed}") for seed in range(5)))
    arrival_ms = (F.col("chance_0") * F.lit(DAY_MS)).cast("long") + F.lit(DAY_ONE_MS)
    partition = F.floor(F.pow("chance_1", F.lit(2)) * F.lit(PARTITIONS)).cast("string")
    lateness_ms = (F.lit(SECOND_MS) / (F.lit(1.0001) - F.col("chance_2"))).cast("long")
    made = chance.select(
        (arrival_ms - lateness_ms).alias("event_time_ms"),
        arrival_ms.alias("arrival_time_ms"),
        partition.alias("source_partition"),
        F.monotonically_increasing_id().alias("arrival_seq"),
        F.floor(F.pow("chance_3", F.lit(4)) * F.lit(100_000)).alias("key"),
        F.floor(F.col("chance_4") * F.lit(1000)).alias("value"),
    )
    night = F.col("arrival_time_ms") < F.lit(DAY_ONE_MS + 4 * HOUR_MS)
    stamped = made.withColumn("event_time", F.timestamp_millis("event_time_ms"))
    return stamped.where(~((F.col("source_partition") == F.lit("0")) & night))


def by_hand(rows: DataFrame, size: str, slide: str | None = None) -> DataFrame:
    """What one would write."""
    return rows.groupBy("key", F.window("event_time", size, slide)).agg(F.count("*"), F.sum("value"))


def recompute(rows: DataFrame, window: FixedWindow) -> DataFrame:
    """The same by backstream's steps."""
    return recomputed(rows.transform(windowed(WindowColumns.of(window))), ["key"], AGGREGATES)


def replay(rows: DataFrame, window: FixedWindow) -> DataFrame:
    """First, live and final value, and the watermarks that they rest on."""
    cells = compressed(rows, ClockColumns.of(CLOCK)).toArrow()
    watermarks = heard(cells, EMISSION, CLOCK, [str(number) for number in range(PARTITIONS)])
    met = rows.transform(watermarked(rows.sparkSession, watermarks, CLOCK))
    in_windows = met.transform(windowed(WindowColumns.of(window))).transform(timed(long(5 * MINUTE_MS)))
    return panes(in_windows, ["key"], AGGREGATES)


def measured(jobs: Mapping[str, Callable[[], DataFrame]], rounds: int) -> dict[str, float]:
    """Median seconds of each job; one round more runs first and does not count."""
    console = Console(stderr=True)
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for number in range(rounds + 1):
        for name, job in jobs.items():
            with console.status(f"round {number} of {rounds}: {name}"):
                begin = time.perf_counter()
                job().write.format("noop").mode("overwrite").save()
                seconds[name] += [time.perf_counter() - begin] if number else []
    return {name: statistics.median(each) for name, each in seconds.items()}


def main() -> None:
    """Generate, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000, help="events to generate (default 2,000,000)")
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds (default 3, at least 3)")
    options = parser.parse_args()
    minute, sliding = Tumbling(MINUTE_MS), Sliding(HOUR_MS, 5 * MINUTE_MS)
    with tempfile.TemporaryDirectory() as folder:
        spark = local("backstream benchmark", {"spark.driver.memory": "6g"})
        path = str(Path(folder) / "events")
        events(spark, options.rows).write.parquet(path)
        rows = spark.read.parquet(path)
        seconds = measured(
            {
                "tumbling 1 min, by hand": lambda: by_hand(rows, "1 minute"),
                "tumbling 1 min, recompute": lambda: recompute(rows, minute),
                "tumbling 1 min, replay": lambda: replay(rows, minute),
                "sliding 1 h / 5 min, by hand": lambda: by_hand(rows, "1 hour", "5 minutes"),
                "sliding 1 h / 5 min, recompute": lambda: recompute(rows, sliding),
            },
            max(3, options.rounds),
        )
        spark.stop()
    Console().print(_table(seconds, options.rows))


def _table(seconds: Mapping[str, float], rows: int) -> Table:
    table = Table(title=f"{rows:,} events, medians")
    for column in ("job", "x by hand", "seconds"):
        table.add_column(column, justify="left" if column == "job" else "right")
    for name, each in seconds.items():
        hand = seconds[f"{name.partition(',')[0]}, by hand"]
        table.add_row(name, f"{each / hand:.2f}", f"{each:.1f}")
    return table


if __name__ == "__main__":
    main()
