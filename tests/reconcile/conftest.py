"""Publish twelve days of clicks around a clock change, replayed by Spark once for all tests."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.spark.runs import replay_chunk
from tests.workflow.history import CLICKS, COLUMNS, write_clicks, write_definition

from backstream.eventtime.instants import instant_ms
from backstream.eventtime.intervals import Interval
from backstream.lake.publication.publish import publish_range
from backstream.lake.reader import load_published_rows, load_rows
from backstream.reconcile.comparison import Reconciliation
from backstream.reconcile.reconcile import ReconcileRequest, reconcile_dataset
from backstream.runs.home import Home
from backstream.runs.plan import Mode, Plan
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.plan.planning import plan_run

FIRST_DAY = datetime(2024, 3, 5, tzinfo=UTC)
DAYS = 12
"""Clocks in New York went forward on March 10, 2024."""
DEFINITION = (
    CLICKS.replace('delay = "10m"', 'delay = "10m"\n\n[lateness]\nallowed = "1h"')
    + 'seconds = "sum(dwell)"\nlongest = "max(dwell)"\nmean = "avg(dwell)"\n\n[backfill]\nchunk = "12d"\n'
)
TYPES = {**COLUMNS, "dwell": pa.float64()}
PAGES = ("home", "help", "cart", "shop")
Click = tuple[datetime, datetime, str, int, str, float]


def clicks(origin: str, day: int, seed: int) -> list[Click]:
    """Return clicks of a day: one in thirty is late, one in sixty is dropped, one in twenty has a duplicate."""
    draw, found = random.Random(seed), []  # noqa: S311 - the same clicks each time
    for number in range(500):
        at = FIRST_DAY + timedelta(days=day, seconds=draw.randrange(86_400))
        behind = draw.choices([timedelta(minutes=1), timedelta(minutes=70), timedelta(hours=6)], [57, 2, 1])[0]
        row = (at, at + behind, origin, day * 1_000 + number, draw.choice(PAGES), round(draw.expovariate(0.1), 3))
        found += [row, (row[0], row[1] + timedelta(seconds=5), *row[2:])] if draw.random() < 0.05 else [row]
    return found


@dataclass(frozen=True)
class Published:
    """A published dataset, and functions to compare it."""

    folder: Path
    plan: Plan

    @property
    def home(self) -> Home:
        """Home of the dataset."""
        return Home(self.folder / "home")

    def truth(self) -> pd.DataFrame:
        """Return the published windows."""
        found: pd.DataFrame = load_rows(self.home, "clicks").to_pandas().drop(columns="run_id")
        return found.sort_values(["window_start", "page"], ignore_index=True)

    def panes(self) -> pd.DataFrame:
        """Return the first, live, and final panes, in the order of `truth`."""
        found: pd.DataFrame = load_published_rows(self.home, "clicks", "panes").to_pandas()
        return found.sort_values(["window_start", "page"], ignore_index=True)

    def events(self, *, with_copies: bool = False) -> pd.DataFrame:
        """Return the clicks with their hour, without duplicates by default."""
        found: pd.DataFrame = pq.read_table(self.folder / "data").to_pandas()
        found["window_start"] = found["happened_at"].dt.floor("h")
        return found if with_copies else found.drop_duplicates(["origin", "seq", "happened_at"])

    def compare(self, theirs: pd.DataFrame, **options: object) -> Reconciliation:
        """Compare the dataset with the output of a live system."""
        file = self.folder / "theirs.parquet"
        theirs.to_parquet(file, index=False)
        asked = ReconcileRequest(self.folder / "clicks.toml", str(file), **options)  # type: ignore[arg-type]
        return reconcile_dataset(asked, self.home)


def counted(events: pd.DataFrame) -> pd.DataFrame:
    """Return the windows over events, as a live system would compute them."""
    found = (
        events.groupby(["window_start", "page"])
        .agg(clicks=("dwell", "size"), seconds=("dwell", "sum"), longest=("dwell", "max"), mean=("dwell", "mean"))
        .reset_index()
    )
    found.insert(1, "window_end", found["window_start"] + pd.Timedelta(hours=1))
    return found


@pytest.fixture(scope="package")
def published(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Published:
    """Publish two source partitions with a file per day."""
    folder = tmp_path_factory.mktemp("reconcile")
    for origin, seed in (("A", 1), ("B", 2)):
        for day in range(DAYS):
            write_clicks(folder / f"data/{origin}-{day:02}.parquet", clicks(origin, day, 100 * seed + day), TYPES)
    definition = write_definition(folder, DEFINITION)
    since_ms, until_ms = instant_ms("2024-03-05", "since"), instant_ms("2024-03-17", "until")
    plan = plan_run(
        PlanRequest(
            definition, Interval(since_ms, until_ms), mode=Mode.REPLAY, trigger="test", home=Home(folder / "home")
        )
    )
    publish_range(plan, [replay_chunk(spark, plan, chunk) for chunk in plan.chunks])
    return Published(folder, plan)


def labels(found: Reconciliation) -> dict[tuple[str, str], str]:
    """Return the cause by start and page of each window that differs."""
    return {
        (row["window_start"].strftime("%dT%H:%MZ"), row["page"]): row["cause"]
        for row in found.differing.to_pylist()
    }
