"""Test the row counts of tasks in a Spark session with a short history of stages."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from backstream.spark import counted_writes

pytestmark = pytest.mark.slow

PROGRAM = """
import json
import sys
from pathlib import Path

from pyspark.sql import functions as F

from backstream.spark import counted_writes, session

load_task_writes = counted_writes._load_task_writes


def count_written(spark, rows, name):
    try:
        written = counted_writes.write_parquet(spark, rows.write, Path(sys.argv[1], name))
        return str(sum(each.rows for each in written))
    except Exception as error:
        return str(error)
    finally:
        spark.stop()


def shares(name):
    spark = session.local_session(name)
    rows = spark.range(1000).repartition(3, "id").select("id", F.rand(1).alias("drawn"))
    sevens, fives = (rows.groupBy((F.col("id") % F.lit(by)).alias("rest")).agg(F.sum("drawn")) for by in (7, 5))
    return count_written(spark, sevens.unionAll(fives), name)


def forgets(name, what, kept, others):
    spark = session.local_session(name, {f"spark.ui.retained{what}": str(kept)})
    rows = spark.range(1000).groupBy((F.col("id") % 7).alias("seven")).count().persist()
    rows.count()

    def after_other_jobs(spark, group):
        # As other threads run them.
        for _ in range(others):
            spark.range(1).count()
        return load_task_writes(spark, group)

    counted_writes._load_task_writes = after_other_jobs
    try:
        return count_written(spark, rows, name)
    finally:
        counted_writes._load_task_writes = load_task_writes


results = {
    "shared": shares("shared"),
    "skipped": forgets("skipped", "Stages", 20, 8),
    "forgotten stages": forgets("forgotten stages", "Stages", 20, 40),
    "forgotten jobs": forgets("forgotten jobs", "Jobs", 5, 20),
}
print(json.dumps(results))
"""
"""Sessions with other settings, one after another in one Java.

Two parallel jobs of `shares` skip the same stage: Spark reports the skip for the first one only.
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path_factory.mktemp("rows"))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def test_what_tasks_wrote_is_known_although_spark_forgets_the_stages_it_skipped(results: dict[str, str]) -> None:
    assert results["skipped"] == "7"


def test_what_tasks_wrote_is_known_although_two_jobs_skip_the_same_stage(results: dict[str, str]) -> None:
    assert results["shared"] == "12"


def test_stages_that_wrote_and_are_forgotten_are_an_error_that_names_the_setting(results: dict[str, str]) -> None:
    first, *rest = results["forgotten stages"].splitlines()
    assert re.fullmatch(r"Spark's history has no task metrics of stage \d+", first)
    assert rest == ["", "hint: increase spark.ui.retainedStages"]


def test_a_job_that_wrote_and_is_forgotten_is_an_error_that_names_the_setting(results: dict[str, str]) -> None:
    assert results["forgotten jobs"].splitlines() == [
        "Spark's history has no job of this write",
        "",
        "hint: increase spark.ui.retainedJobs",
    ]


def test_the_footer_counts_the_nulls_of_long_texts(spark: SparkSession, tmp_path: Path) -> None:
    texts = spark.range(4).selectExpr("if(id = 0, null, repeat('x', 9000)) as text").coalesce(1)

    counted_writes.write_parquet(spark, texts.write, tmp_path / "rows")

    (file,) = (tmp_path / "rows").glob("*.parquet")
    statistics = pq.read_metadata(file).row_group(0).column(0).statistics
    assert statistics.has_null_count
    assert statistics.null_count == 1
