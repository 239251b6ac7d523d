from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.crash.world import Forks, Source, World
from tests.workflow.conftest import LENIENT
from tests.workflow.history import CLICKS, at, write_clicks, write_definition

from backstream.eventtime.instants import DAY_MS, instant_ms
from backstream.runs.home import CATALOG_VARIABLE, Home
from backstream.runs.plan import Mode
from backstream.spark.chunk_job import replay_chunk
from backstream.workflow import plan_run

SINCE_MS = instant_ms("2024-03-01", "since")
DAYS = [SINCE_MS + number * DAY_MS for number in range(3)]
REST = '\n[lateness]\nallowed = "30m"\n\n[quality]\nsuite = "lenient"\n\n[backfill]\ntogether = 0\n'


@pytest.fixture(scope="session")
def suites(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a suite that asks for nothing but that no record is lost."""
    folder = tmp_path_factory.mktemp("expectations")
    (folder / "lenient.json").write_text(json.dumps(LENIENT))
    return folder


@contextmanager
def judged_by(suites: Path) -> Iterator[None]:
    """The environment of these tests, and of no other: the catalog is that of each test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BACKSTREAM_EXPECTATIONS", str(suites))
        patch.delenv(CATALOG_VARIABLE, raising=False)
        yield


@pytest.fixture(autouse=True)
def environment(suites: Path) -> Iterator[None]:
    """Each test is judged by the lenient suite."""
    with judged_by(suites):
        yield


@pytest.fixture(scope="session")
def clicks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A definition over three days of clicks: on time, late, dropped, some without an event time."""
    folder = tmp_path_factory.mktemp("clicks")
    for number in range(3):
        write_clicks(folder / f"data/{number}.parquet", list(day_of_clicks(number + 1)))
    return write_definition(folder, CLICKS + REST)


def day_of_clicks(day: int) -> Iterator[tuple[object, ...]]:
    """A click per half hour and partition; each fifth comes 45 minutes late, each ninth three hours."""
    for number in range(48):
        for place, origin in enumerate("AB"):
            seq = (day * 48 + number) * 2 + place
            happened = at(f"{day} {number // 2:02}:{30 * (number % 2):02}")
            delay = 180 if seq % 9 == 0 else 45 if seq % 5 == 0 else 1
            page = ["home", "cart", "help"][seq % 3]
            yield (None if number == 20 else happened, happened + timedelta(minutes=delay), origin, seq, page)


@pytest.fixture(scope="session")
def source(spark: SparkSession, clicks: Path, suites: Path, tmp_path_factory: pytest.TempPathFactory) -> Source:
    """What Spark makes of the three days, a chunk each."""
    home = Home(tmp_path_factory.mktemp("source"))
    until_ms = DAYS[-1] + DAY_MS
    with judged_by(suites):
        plan = plan_run(clicks, SINCE_MS, until_ms, mode=Mode.REPLAY, trigger="source", home=home)
        for chunk in plan.chunks:
            replay_chunk(spark, plan, chunk)
    return Source(plan, clicks)


@pytest.fixture(scope="session")
def forks(source: Source, suites: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """The process that forks runs; its environment is the one it is started in."""
    folder = tmp_path_factory.mktemp("forks")
    with judged_by(suites):
        process = Forks(folder)
    process.run(World(Home(folder / "warm"), source, process, None).job("warm", DAYS, 0, warm=True))
    yield process
    process.close()


@pytest.fixture
def world(
    request: pytest.FixtureRequest, source: Source, forks: Forks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> World:
    """An empty lake, its catalog in the database that the test asks for; SQLite where it asks for none."""
    uri = None
    if getattr(request, "param", "sqlite") == "postgres":
        uri = request.getfixturevalue("postgres").new_database()
        monkeypatch.setenv(CATALOG_VARIABLE, uri)
    return World(Home(tmp_path / "home"), source, forks, uri)
