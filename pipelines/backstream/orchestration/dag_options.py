"""Collect what a team chooses for its DAGs: pool, connection, and arguments of Airflow's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from backstream.orchestration.airflow_versions import EXPONENTIAL_BACKOFF
from backstream.orchestration.priority import WEIGHT_RULE

POOL = "spark"
CONNECTION_ID = "backstream_spark"

TASK_DEFAULTS: dict[str, Any] = {
    "weight_rule": WEIGHT_RULE,
    "retries": 2,
    "retry_delay": timedelta(seconds=20),
    "retry_exponential_backoff": EXPONENTIAL_BACKOFF,
    "max_retry_delay": timedelta(minutes=10),
}


@dataclass(frozen=True, slots=True)
class DagOptions:
    """Options of the DAGs of a team.

    Attributes:
        pool: pool of the tasks that run Spark jobs.
        spark_connection: id of the Airflow connection to Spark.
        default_args: arguments of each task, such as `owner`, `queue`, `executor`, and `priority_weight`.
        tags: further tags of each DAG.
        dag_args: further arguments of each DAG, such as `access_control` and `on_failure_callback`.
    """

    pool: str = POOL
    spark_connection: str = CONNECTION_ID
    default_args: Mapping[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    dag_args: Mapping[str, Any] = field(default_factory=dict)

    @property
    def job_arguments(self) -> dict[str, Any]:
        """The arguments of a task that runs a Spark job."""
        return {"pool": self.pool, "conn_id": self.spark_connection}
