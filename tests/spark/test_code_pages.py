"""Run the code on the pages about user code."""

from __future__ import annotations

import re
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from backstream.definition.loader import parse_definition
from backstream.definition.model import Definition
from backstream.eventtime.instants import MAX_MS, MIN_MS
from backstream.eventtime.records import Record
from backstream.eventtime.timers import ProcessOperator
from backstream.eventtime.watermarks import WatermarkEvent, Watermarks

DOCS = Path(__file__).parents[2] / "docs"
MINUTE_MS = 60_000


def block(page: str, language: str) -> str:
    """Return the first block of code in a language."""
    found = re.search(rf"```{language}\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)
    assert found
    return found[1]


def code(page: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(block(page, "python"), names)  # noqa: S102 - the code of our own page
    return names


def parsed(page: str) -> Definition:
    content = tomllib.loads(block(page, "toml"))
    source = {"path": "/data", "event_time": "at", "arrival_time": "arrived", **content.pop("source")}
    window = content.pop("window", {"kind": "tumbling", "size": "1h"})
    return parse_definition({"name": "page", "source": source, "window": window, **content}, page)


def test_the_function_of_the_page_returns_the_columns_of_its_definition(spark: SparkSession) -> None:
    definition, hour = parsed("spark-jobs.md"), [datetime(2024, 3, 1, hour, tzinfo=UTC) for hour in (5, 6)]
    rows = [("north", currency, amount, *hour) for currency, amount in (("EUR", 1.5), ("EUR", 2.0), ("USD", 9.0))]
    orders = spark.createDataFrame(
        rows, "shop string, currency string, amount double, window_start timestamp, window_end timestamp"
    )
    assert definition.job

    (row,) = code("spark-jobs.md")["totals"](orders, **definition.job.kwargs).collect()

    assert (row.shop, row.orders, row.revenue) == ("north", 2, 3.5)
    assert set(definition.job.columns) == {"orders", "revenue"}


def test_the_class_of_the_page_reports_silence() -> None:
    definition, silence = parsed("process-functions.md"), code("process-functions.md")["Silence"]
    records = [
        Record(at * MINUTE_MS, 0, "a7", at * MINUTE_MS, value) for at, value in ((0, 20), (8, 95), (30, 21))
    ]
    # The watermark passes 00:18 between the last two records, since records of other keys arrive.
    rises = [(-1, 0), (20 * MINUTE_MS, 1), (MAX_MS, 2)]
    rising = Watermarks(
        events=[WatermarkEvent(at_ms, after, at_ms) for at_ms, after in rises],
        in_force_ms=[MIN_MS, -1, 20 * MINUTE_MS],
    )
    assert definition.process

    operator = ProcessOperator(
        lambda: silence(**definition.process.kwargs if definition.process else {}),
        lambda record: {"temperature": record.value},
    )
    emitted = operator.run(records, rising).emitted["a7"]

    assert [(row.timestamp_ms // MINUTE_MS, row.tag, row.row) for row in emitted] == [
        (8, "hot", {"temperature": 95}),
        (18, None, {"alert": "silent", "last": 95}),
        (40, None, {"alert": "silent", "last": 21}),
    ]
    assert set(definition.process.columns) == {"alert", "last"}
