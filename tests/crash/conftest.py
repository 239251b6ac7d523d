from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.crash.world import Forks, Source, World
from tests.spark.runs import replay_chunk
from tests.workflow.conftest import LENIENT
from tests.workflow.history import CLICKS, at, write_clicks, write_definition

from backstream.eventtime.instants import DAY_MS, instant_ms
from backstream.eventtime.intervals import Interval
from backstream.runs.home import Home
from backstream.runs.plan import Mode
from backstream.variables import CATALOG_VARIABLE
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.plan.planning import plan_run

SINCE_MS = instant_ms("2024-03-01", "since")
DAYS = [SINCE_MS + number * DAY_MS for number in range(3)]
REST = '\n[lateness]\nallowed = "30m"\n\n[quality]\nsuite = "lenient"\n\n[backfill]\nmax_events_per_job = 0\n'


@pytest.fixture(scope="session")
def suites(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a suite that only checks that no record is lost."""
    folder = tmp_path_factory.mktemp("expectations")
    (folder / "lenient.json").write_text(json.dumps(LENIENT))
    return folder


@contextmanager
def use_suites(suites: Path) -> Iterator[None]:
    """Set the folder of suites and unset the catalog."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BACKSTREAM_EXPECTATIONS", str(suites))
        patch.delenv(CATALOG_VARIABLE, raising=False)
        yield


@pytest.fixture(autouse=True)
def environment(suites: Path) -> Iterator[None]:
    """Use the lenient suite for each test."""
    with use_suites(suites):
        yield


@pytest.fixture(scope="session")
def clicks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write three days of clicks and their definition; some clicks are late, dropped or without event time."""
    folder = tmp_path_factory.mktemp("clicks")
    for number in range(3):
        write_clicks(folder / f"data/{number}.parquet", list(day_of_clicks(number + 1)))
    return write_definition(folder, CLICKS + REST)


def day_of_clicks(day: int) -> Iterator[tuple[object, ...]]:
    """Yield a click per half hour and partition; every fifth is 45 minutes late, every ninth three hours."""
    for number in range(48):
        for place, origin in enumerate("AB"):
            seq = (day * 48 + number) * 2 + place
            happened_at = at(f"{day} {number // 2:02}:{30 * (number % 2):02}")
            delay = 180 if seq % 9 == 0 else 45 if seq % 5 == 0 else 1
            page = ["home", "cart", "help"][seq % 3]
            yield (
                None if number == 20 else happened_at,
                happened_at + timedelta(minutes=delay),
                origin,
                seq,
                page,
            )


@pytest.fixture(scope="session")
def source(spark: SparkSession, clicks: Path, suites: Path, tmp_path_factory: pytest.TempPathFactory) -> Source:
    """Run the three days on Spark, a chunk each."""
    home = Home(tmp_path_factory.mktemp("source"))
    until_ms = DAYS[-1] + DAY_MS
    with use_suites(suites):
        plan = plan_run(
            PlanRequest(clicks, Interval(SINCE_MS, until_ms), mode=Mode.REPLAY, trigger="source", home=home)
        )
        for chunk in plan.chunks:
            replay_chunk(spark, plan, chunk)
    return Source(plan, clicks)


@pytest.fixture(scope="session")
def forks(source: Source, suites: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """Start the process that forks runs; it inherits the environment."""
    folder = tmp_path_factory.mktemp("forks")
    with use_suites(suites):
        process = Forks(folder)
    process.run(World(Home(folder / "warm"), source, process, None).job("warm", DAYS, 0, warm=True))
    yield process
    process.close()


@pytest.fixture
def world(
    request: pytest.FixtureRequest, source: Source, forks: Forks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> World:
    """Return an empty lake with its catalog in the database of the test's parameter, SQLite by default."""
    uri = None
    if getattr(request, "param", "sqlite") == "postgres":
        uri = request.getfixturevalue("postgres").new_database()
        monkeypatch.setenv(CATALOG_VARIABLE, uri)
    return World(Home(tmp_path / "home"), source, forks, uri)
