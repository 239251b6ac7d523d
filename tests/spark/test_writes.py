"""Test the row counts of tasks in a Spark session with a short history of stages."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from backstream.spark import counted_writes

pytestmark = pytest.mark.slow

SHARED = """
import sys
from pathlib import Path

from pyspark.sql import functions as F

from backstream.spark import counted_writes, session

spark = session.local_session("shares")
rows = spark.range(1000).repartition(3, "id").select("id", F.rand(1).alias("drawn"))
sevens, fives = (rows.groupBy((F.col("id") % F.lit(by)).alias("rest")).agg(F.sum("drawn")) for by in (7, 5))
try:
    written = counted_writes.write_parquet(spark, sevens.unionAll(fives).write, Path(sys.argv[1]))
    print(sum(each.rows for each in written))
except Exception as error:
    print(error)
"""
"""Two parallel jobs that skip the same stage: Spark reports the skip for the first one only."""

JOB = """
import sys
from pathlib import Path

from pyspark.sql import functions as F

from backstream.spark import counted_writes, session

folder, what, kept, others = sys.argv[1:]
spark = session.local_session("forgets", {f"spark.ui.retained{what}": kept})
rows = spark.range(1000).groupBy((F.col("id") % 7).alias("seven")).count().persist()
rows.count()
load_task_writes = counted_writes._load_task_writes

def after_other_jobs(spark, group):
    # As other threads run them.
    for _ in range(int(others)):
        spark.range(1).count()
    return load_task_writes(spark, group)

counted_writes._load_task_writes = after_other_jobs
try:
    print(sum(each.rows for each in counted_writes.write_parquet(spark, rows.write, Path(folder))))
except Exception as error:
    print(error)
"""


def _said(folder: Path, *, kept: int, others: int, what: str = "Stages") -> list[str]:
    command = [sys.executable, "-c", JOB, str(folder / "rows"), what, str(kept), str(others)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def test_what_tasks_wrote_is_known_although_spark_forgets_the_stages_it_skipped(tmp_path: Path) -> None:
    assert _said(tmp_path, kept=20, others=8) == ["7"]


def test_what_tasks_wrote_is_known_although_two_jobs_skip_the_same_stage(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SHARED, str(tmp_path / "rows")]

    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines() == ["12"]


def test_stages_that_wrote_and_are_forgotten_are_an_error_that_names_the_setting(tmp_path: Path) -> None:
    first, *rest = _said(tmp_path, kept=20, others=40)
    assert re.fullmatch(r"Spark's history has no task metrics of stage \d+", first)
    assert rest == ["", "hint: increase spark.ui.retainedStages"]


def test_a_job_that_wrote_and_is_forgotten_is_an_error_that_names_the_setting(tmp_path: Path) -> None:
    assert _said(tmp_path, kept=5, others=20, what="Jobs") == [
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
