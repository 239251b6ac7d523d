"""Spark writes into a table while backstream publishes into it: no row is lost or doubled."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from threading import Event

import pytest
from tests.engines.conftest import Orders, Spark

from backstream.errors import ConflictError

pytestmark = pytest.mark.engines
Record = Callable[[str, str, str], None]
ORDERS = "backstream.backstream.orders"
SECONDS = 60
TIMES = ", ".join(f"window_{name} + make_interval(0, 0, 0, {{days}})" for name in ("start", "end"))
ADD = f"INSERT INTO {ORDERS} SELECT {TIMES}, * EXCEPT (window_start, window_end) FROM {ORDERS} WHERE {{day}}"
FIRST, SECOND = (f"window_start >= '2024-03-0{day}' AND window_start < '2024-03-0{day + 1}'" for day in (1, 2))
THEIRS = "window_start >= '2024-04-01'"


@dataclass
class Writer:
    """Spark's side: it adds days after ours, deletes some of them, compacts, and adds rows to our range."""

    spark: Spark
    stopped: Event = field(default_factory=Event)
    days: set[int] = field(default_factory=set)
    intrusions: list[tuple[float, float]] = field(default_factory=list)
    commits: int = 0

    def write(self) -> None:
        """Write until it is stopped."""
        for number in count():
            if self.stopped.is_set():
                return
            began = time.monotonic()
            if number % 5 == 4:
                self.spark.rows(ADD.format(days=0, day=f"{SECOND} LIMIT 1"))
                self.intrusions.append((began, time.monotonic()))
            elif number % 5 == 3:
                self.spark.rows(
                    "CALL backstream.system.rewrite_data_files(table => 'backstream.backstream.orders')"
                )
            elif number % 5 == 2:
                day = min(self.days)
                theirs = f"window_start >= {_day(day)} AND window_start < {_day(day + 1)}"
                self.spark.rows(f"DELETE FROM {ORDERS} WHERE {theirs}")
                self.days.remove(day)
            else:
                self.spark.rows(ADD.format(days=31 + number, day=FIRST))
                self.days.add(31 + number)
            self.commits += 1


def _day(number: int) -> str:
    return f"timestamp '2024-03-01' + make_interval(0, 0, 0, {number})"


@pytest.mark.long
def test_both_publish_beside_each_other(orders: Orders, spark41: Spark, record: Record) -> None:
    [first] = spark41.rows(f"SELECT count(*) AS rows, sum(n) AS n FROM {ORDERS} WHERE {FIRST}")
    [second] = spark41.rows(f"SELECT count(*) AS rows, sum(n) AS n FROM {ORDERS} WHERE {SECOND}")
    writer, runs = Writer(spark41), 0
    refusals: list[tuple[float, float, str]] = []
    deadline = time.monotonic() + SECONDS
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(writer.write)
        while time.monotonic() < deadline and not writing.done():
            began = time.monotonic()
            try:
                orders.run("2024-03-02", "2024-03-03")
                runs += 1
            except ConflictError as error:
                refusals.append((began, time.monotonic(), str(error)))
        writer.stopped.set()
        writing.result()

    for began, ended, text in refusals:
        assert "made by another program" in text
        assert any(start < ended and end > began for start, end in writer.intrusions), text
    orders.run("2024-03-02", "2024-03-03")
    for condition, expected in ((FIRST, first), (SECOND, second)):
        assert spark41.rows(f"SELECT count(*) AS rows, sum(n) AS n FROM {ORDERS} WHERE {condition}") == [expected]
    by_day = (
        f"SELECT date(window_start) AS day, count(*) AS rows, sum(n) AS n FROM {ORDERS} WHERE {THEIRS} GROUP BY 1"
    )
    kept = spark41.rows(by_day)
    assert len(kept) == len(writer.days)
    assert {(row["rows"], row["n"]) for row in kept} <= {(first["rows"], first["n"])}
    assert runs
    assert runs + len(refusals) > 1
    assert writer.commits > 5
    found = (
        f"{runs} runs, {len(refusals)} true refusals, {writer.commits} commits of Spark, no row lost or doubled"
    )
    record(f"spark {spark41.version}", "writes while we publish", found)
