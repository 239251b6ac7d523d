"""What every test may use."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession
from tests.class_archive import quick_options
from tests.lake import store
from tests.lake.postgres import Server, binaries, running
from tests.seconds import Seconds
from xdist.scheduler import LoadFileScheduling

from backstream.spark.java import OPTIONS_VARIABLE
from backstream.variables import HEAP_VARIABLE, WAREHOUSE_VARIABLE

SHARED_FOLDERS = ("tests/browser",)
"""Folders whose files share a server that takes long to start: one process runs all of them."""

settings.register_profile("suite", deadline=None)  # other tests use the processor at the same time
settings.load_profile("suite")

FLINK_CASES = Path(__file__).parent / "conformance" / "flink"


def pytest_configure(config: pytest.Config) -> None:
    """Measure where the seconds go."""
    config.pluginmanager.register(Seconds(), "seconds")


def scope_of(nodeid: str) -> str:
    """Return what one process runs: the tests of a file, or those of a shared folder."""
    file = nodeid.partition("::")[0]
    folder = file.rpartition("/")[0]
    return folder if folder in SHARED_FOLDERS else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling:
    """Distribute the tests by their scope."""
    scheduler = LoadFileScheduling(config, log)
    scheduler._split_scope = scope_of  # noqa: SLF001 - the method that pytest-xdist names for this
    return scheduler


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order tests by what they wait for, the longest first, so that no process works alone at the end."""
    spark_files = {item.path for item in items if "spark" in getattr(item, "fixturenames", ())}

    def order(item: pytest.Item) -> tuple[bool, bool, bool]:
        return item.path.parent.name != "e2e", "e2e" not in item.keywords, item.path not in spark_files

    items.sort(key=order)


@pytest.fixture(scope="session", autouse=True)
def own_warehouse() -> Iterator[None]:
    """No test writes to the warehouse of whoever runs it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(WAREHOUSE_VARIABLE, raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def small_heap() -> Iterator[None]:
    """Several runs of tests share a machine: none takes half of its memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(HEAP_VARIABLE, "1g")
        yield


@pytest.fixture(scope="session", autouse=True)
def quick_java() -> Iterator[None]:
    """Each Java has options for little data, also one that starts without the archive by itself, e.g., a job."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(OPTIONS_VARIABLE, quick_options())
        yield


@pytest.fixture(scope="module", autouse=True)
def no_airflow() -> Iterator[None]:
    """Check that no test imports Airflow, which would change the logging of all tests after it."""
    yield
    assert "airflow" not in sys.modules, "a test imported Airflow"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One local Spark for all tests that need it."""
    from backstream.spark.session import SMALL_DATA_SETTINGS, local_session

    session = local_session("tests", SMALL_DATA_SETTINGS, input_bytes=0)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """One PostgreSQL for all tests that need it."""
    folder = binaries()
    if folder is None:
        pytest.skip("no PostgreSQL on this machine: neither in /usr/lib/postgresql/*/bin, nor initdb on the PATH")
    with running(folder) as server:
        yield server


@pytest.fixture(scope="session")
def s3() -> Iterator[store.Store]:
    """One S3 store for all tests that need it."""
    with store.running() as found:
        yield found
