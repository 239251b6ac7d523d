"""Code of a user: jobs as teams have them, some of them wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from backstream.eventtime.process_functions import Context

KEY_AND_WINDOW = ("key", "window_start", "window_end")


def totals(records: DataFrame) -> DataFrame:
    """Return an existing aggregation of a team."""
    totals = {"events": F.count("*"), "total": F.sum("value")}
    return records.groupBy(*KEY_AND_WINDOW).agg(*(column.alias(name) for name, column in totals.items()))


def totals_in_pandas(records: DataFrame) -> DataFrame:
    """Return the same with a function over pandas frames."""

    def add_up(frame: pd.DataFrame) -> pd.DataFrame:
        first = frame.iloc[0]
        place = {name: first[name] for name in KEY_AND_WINDOW}
        return pd.DataFrame([{**place, "events": len(frame), "total": int(frame["value"].sum())}])

    schema = "key string, window_start timestamp, window_end timestamp, events bigint, total bigint"
    return records.groupBy(*KEY_AND_WINDOW).applyInPandas(add_up, schema)


def lateness(records: DataFrame) -> DataFrame:
    """Return what a job is told about the records of each window, as text."""
    told = F.concat_ws(
        "|",
        "arrival_time_ms",
        "arrival_seq",
        F.coalesce("fate", F.lit("-")),
        F.coalesce(F.col("pane_index").cast("string"), F.lit("-")),
        F.coalesce("pane_timing", F.lit("-")),
        "watermark_ms",
    )
    return records.groupBy(*KEY_AND_WINDOW).agg(
        F.array_join(F.array_sort(F.collect_list(told)), ";").alias("told")
    )


def busy_only(records: DataFrame, least: int = 2) -> DataFrame:
    """Return only windows with several records."""
    return totals(records).where(F.col("events") >= least)


def narrow(records: DataFrame) -> DataFrame:
    """Return a column of another type, and lose another."""
    return totals(records).withColumn("events", F.col("events").cast("int")).drop("total", "key")


def twice(records: DataFrame) -> DataFrame:
    """Return each row twice."""
    return totals(records).unionByName(totals(records))


def shifted(records: DataFrame) -> DataFrame:
    """Return windows that no record is in."""
    return totals(records).withColumn("window_start", F.expr("window_start - interval 7 seconds"))


def failing(records: DataFrame) -> DataFrame:
    """Fail on the driver."""
    return records.sparkSession.range(int(rate_of("EUR"))).toDF("key")


def failing_on_executors(records: DataFrame) -> DataFrame:
    """Fail while records are read."""

    def convert(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            rate_of("EUR")
            yield frame

    schema = "key string, window_start timestamp, window_end timestamp, events bigint, total bigint"
    return totals(records).mapInPandas(convert, schema)


def rate_of(currency: str) -> Any:
    """Raise an error of the user's own."""
    rates: dict[str, float] = {}
    return rates[currency]


class Silence:
    """Report the sum of a key at zeros, and when the key is silent; late records are a side output."""

    def __init__(self, silence_ms: int = 3_600_000) -> None:
        self.silence_ms = silence_ms
        self.total = 0
        self.pending_ms: int | None = None

    def process_element(self, record: Mapping[str, Any], context: Context) -> None:
        """Add the value, and wait for silence from here on."""
        self.total += record["value"]
        context.state["records"] = context.state.get("records", 0) + 1
        if context.timestamp_ms <= context.current_watermark_ms:
            context.output("late", {"value": record["value"], "watermark_ms": context.current_watermark_ms})
        if record["value"] == 0:
            self.emit("zero", context)
            self.emit("zero", context)
        if self.pending_ms is not None:
            context.timer_service.delete(self.pending_ms)
        self.pending_ms = context.timestamp_ms + self.silence_ms
        context.timer_service.register(self.pending_ms)

    def on_timer(self, timestamp_ms: int, context: Context) -> None:
        """Report silence, and sometimes again later."""
        self.emit("silent", context)
        if self.total % 3 == 0:
            self.total += 1
            context.timer_service.register(timestamp_ms + self.silence_ms)

    def emit(self, what: str, context: Context) -> None:
        """Emit a row that shows all that the function knows."""
        context.emit(
            {
                "what": what,
                "total": self.total,
                "records": context.state["records"],
                "watermark_ms": context.current_watermark_ms,
            }
        )


class Pause:
    """Report the time since the record before, whose memory ends there."""

    def __init__(self) -> None:
        self.last_ms: int | None = None

    def process_element(self, record: Mapping[str, Any], context: Context) -> None:
        """Emit the pause."""
        if self.last_ms is not None:
            context.emit({"what": "pause", "total": context.timestamp_ms - self.last_ms})
        self.last_ms = context.timestamp_ms


class Broken:
    """Fail in one of several ways."""

    def __init__(self, how: str) -> None:
        self.how = how

    def process_element(self, record: Mapping[str, Any], context: Context) -> None:
        """Fail at a record, or register a timer."""
        if self.how == "record":
            rate_of(record["key"])
        if self.how == "column":
            context.emit({"sum": 1})
        if self.how == "type":
            context.emit({"what": "sum", "total": "seven"})
        if self.how == "timer":
            context.timer_service.register(context.timestamp_ms)

    def on_timer(self, timestamp_ms: int, context: Context) -> None:
        """Fail at a timer."""
        rate_of("EUR")


class Columns:
    """Report the columns of each record."""

    def process_element(self, record: Mapping[str, Any], context: Context) -> None:
        """Emit the names of the columns, and a value."""
        context.emit({"what": ",".join(sorted(record)), "total": record["value"]})


def nested_totals(records: DataFrame) -> DataFrame:
    """Return a sum over a field of a column."""
    return records.groupBy(*KEY_AND_WINDOW).agg(F.sum("payload_amount").alias("total"))
