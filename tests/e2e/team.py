"""A team's dataset with a table of the team, its DAG for Backfills, and a DAG with a run between two tasks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import MonthTransform
from pyiceberg.types import LongType, NestedField, StringType, TimestamptzType
from tests.e2e.cluster import Cluster
from tests.e2e.story import DEFINITION, HISTORY
from tests.spark.histories import write_history

from backstream.lake.catalog import open_catalog_for_writing
from backstream.runs.home import Home

POOL = "sales"
TABLE = "sales.hourly"
OPTIONS = {"owner": "sales", "queue": "big", "executor": "LocalExecutor", "priority_weight": 3}
LATER_DAY = {"since": "2024-03-02T00:00:00Z", "until": "2024-03-03T00:00:00Z"}
FIRST_DAY = {"from_date": "2024-03-01T00:00:00Z", "to_date": "2024-03-01T00:00:00Z"}
_TARGET = """

[publish]
table = "sales.hourly"
columns = {key = "product", window_start = "hour", events = "sales", run_id = "loaded_by"}
"""
_DAG_FILE = f'''\
"""The DAGs of a team."""

from datetime import datetime, timezone
from pathlib import Path

from airflow.sdk import DAG, Asset, PartitionedAssetTimetable, task

from backstream.airflow import BackfillTaskGroup, backfill_dags

FOLDER = Path("<folder>")
OPTIONS = {OPTIONS}
KINDS = ["backfill", "restate"]
globals().update(backfill_dags(FOLDER, kinds=KINDS, pool="{POOL}", tags=["sales"], default_args=OPTIONS))

@task
def copy_files():
    """Runs before."""


@task
def refresh_dashboard():
    """Runs after."""


with DAG(
    "sales",
    schedule="@once",
    start_date=datetime(2024, 4, 1, tzinfo=timezone.utc),
    tags=["sales"],
    default_args=OPTIONS,
):

    run = BackfillTaskGroup("sold", FOLDER / "sold.toml", pool="{POOL}", **{LATER_DAY})
    copy_files() >> run >> refresh_dashboard()

with DAG("copy_sales", schedule=Asset("raw_sales"), tags=["sales"]):
    copy_files()

days = PartitionedAssetTimetable(assets=Asset("sold.days", uri="backstream://sold/days"))
with DAG("rebuild", schedule=days, tags=["sales"], is_paused_upon_creation=False):
    copy_files()
'''
_FAR_DAGS = """\
from pathlib import Path

from backstream.airflow import backfill_dags

globals().update(backfill_dags(Path("<folder>"), kinds=["reprocess"], spark_connection="far_spark"))
"""


@dataclass(frozen=True)
class FarRun:
    """A run whose driver ran on the cluster: its driver and the pool meanwhile, and how it ended."""

    run_id: str
    parents: list[str]
    environment: dict[str, str]
    pool: dict[str, Any]
    state: str


def write_far(folder: Path, dags: Path) -> None:
    """Write a dataset whose drivers run on the cluster, and the DAG file."""
    folder.mkdir()
    text = DEFINITION.format(name="far", backfill='mode = "recompute"', end="2024-03-05")
    (folder / "far.toml").write_text(text)
    (dags / "far.py").write_text(_FAR_DAGS.replace("<folder>", str(folder)))


def write_team(folder: Path, dags: Path) -> None:
    """Write the definition into a folder of its own, and the DAG file."""
    folder.mkdir()
    text = DEFINITION.format(name="sold", backfill='mode = "recompute"', end="2024-03-05") + _TARGET
    (folder / "sold.toml").write_text(text.replace("[source]", '[source]\nasset = "raw_sales"'))
    (dags / "team.py").write_text(_DAG_FILE.replace("<folder>", str(folder)))


def create_table(cluster: Cluster) -> None:
    """Create the table of the team, which has a partition per month, and write the events of the dataset."""
    schema = Schema(
        NestedField(1, "product", StringType()),
        NestedField(2, "hour", TimestamptzType()),
        NestedField(3, "sales", LongType()),
        NestedField(4, "total", LongType()),
        NestedField(5, "loaded_by", StringType()),
    )
    write_history(cluster.home / "data" / "sold", HISTORY)
    with open_catalog_for_writing(Home(cluster.home)) as catalog:
        catalog.create_namespace_if_not_exists("sales")
        catalog.create_table(
            TABLE, schema, partition_spec=PartitionSpec(PartitionField(2, 1000, MonthTransform(), "month"))
        )


def rows_of_the_team(cluster: Cluster) -> list[dict[str, Any]]:
    """Return the rows of the team's table."""
    with open_catalog_for_writing(Home(cluster.home)) as catalog:
        rows: list[dict[str, Any]] = catalog.load_table(TABLE).scan().to_arrow().to_pylist()
        return rows
