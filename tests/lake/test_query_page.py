"""Run each block of the page that shows how to query a published table."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.lake.conftest import Lake

from backstream.runs.home import Home
from backstream.variables import CATALOG_VARIABLE

PAGE = Path(__file__).parents[2] / "docs" / "query.md"
ENGINES = ("pandas", "polars", "duckdb", "pyspark")


def blocks() -> list[str]:
    """Return the Python blocks of the page, in order."""
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture(scope="module")
def namespace(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Publish a table, restate a part of it, empty a range, and return the names that the first block defines."""
    folder = tmp_path_factory.mktemp("readme")
    published = Lake(Home(folder / ".backstream"))
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(CATALOG_VARIABLE, raising=False)
        patch.chdir(folder)
        published.publish("2013-02-01", "2013-02-04", {f"2013-02-0{day}T05:00Z": 10**day for day in (1, 2, 3)})
        published.publish("2013-02-01", "2013-02-02", {"2013-02-01T05:00Z": 7}, trigger="again")
        published.publish("2013-02-03", "2013-02-04", {}, trigger="emptied")
        found: dict[str, Any] = {}
        exec(blocks()[0], found)  # noqa: S102 - our own page
    return found


@pytest.mark.filterwarnings("ignore:Iceberg scan planning with the polars_iceberg plugin")
@pytest.mark.parametrize("engine", ENGINES)
def test_each_engine_reads_the_published_rows(
    engine: str, namespace: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    [block] = [block for block in blocks()[1:] if engine in block]
    if engine == "pyspark":
        _: SparkSession = request.getfixturevalue("spark")

    exec(block, namespace)  # noqa: S102 - our own page

    assert namespace["departures"] == 7 + 100


def test_every_block_is_of_an_engine_that_is_tested() -> None:
    assert len(blocks()) == 1 + len(ENGINES)
