"""Check the Airflow of an installation: its version, the connections, the pool, and its database."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from airflow.jobs.job import most_recent_job
from airflow.models import Connection
from airflow.models.pool import Pool
from airflow.utils.session import create_session
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from backstream.errors import SpecError
from backstream.orchestration.airflow_versions import AIRFLOW, AirflowNotFoundException, list_switched_off
from backstream.orchestration.connections import CATALOG_CONNECTION_ID, WAREHOUSE_CONNECTION_ID, provide_lake
from backstream.orchestration.dag_options import CONNECTION_ID, POOL
from backstream.orchestration.runners.selection import find_runner
from backstream.variables import CATALOG_CONNECTION_VARIABLE, WAREHOUSE_CONNECTION_VARIABLE
from backstream.workflow.checks.findings import Finding, check_clock, fail, ok, warn

_LOWEST, _EXCLUDED = (3, 1), (3, 4)


def check_airflow() -> Iterator[Finding]:
    """Yield a finding per part of the Airflow of this environment."""
    installed = version("apache-airflow-core")
    if _LOWEST <= AIRFLOW < _EXCLUDED:
        yield ok("airflow", installed)
    else:
        text_ = f"must be 3.1, 3.2, or 3.3, got {installed}"
        yield fail("airflow", text_, "pip install 'apache-airflow>=3.1,<3.4'")
    for sentence in list_switched_off(AIRFLOW):
        yield warn("airflow", f"switched off: {sentence}")
    try:
        yield from _check_spark_connection()
        yield from _check_lake_connections()
        yield from _check_triggerer()
        yield from _check_clock()
    except SQLAlchemyError as error:
        cause = str(getattr(error, "orig", error)).splitlines()[0]
        yield fail("airflow", f"cannot read its database: {cause}", "airflow db migrate")


def provide_connections() -> None:
    """Set the variables of the catalog and the warehouse from Airflow's connections, as a task does.

    Raises:
        SpecError: when a connection is not valid, or one that is set is missing.
    """
    try:
        provide_lake(_load_connection)
    except SQLAlchemyError:
        return  # the check of Airflow reports it


def _load_connection(connection_id: str) -> Any:
    # Outside of a task, the class of airflow.sdk does not read the database.
    return Connection.get_connection_from_secrets(connection_id)  # noqa: AIR311 - see above


def _check_spark_connection() -> Iterator[Finding]:
    try:
        connection = _load_connection(CONNECTION_ID)
    except AirflowNotFoundException:
        remedy = f"airflow connections add {CONNECTION_ID} --conn-type spark --conn-host 'local[*]'"
        yield fail("connection", f"no Airflow connection {CONNECTION_ID}", remedy)
        yield from _check_pool(is_deferred=False)
        return
    try:
        is_deferred = find_runner(connection).is_detached
        yield ok("connection", f"{CONNECTION_ID}: {connection.conn_type}, {connection.host}")
    except SpecError as error:
        yield Finding.from_error("connection", error)
        is_deferred = False
    yield from _check_pool(is_deferred=is_deferred)


def _check_lake_connections() -> Iterator[Finding]:
    named = {
        CATALOG_CONNECTION_VARIABLE: CATALOG_CONNECTION_ID,
        WAREHOUSE_CONNECTION_VARIABLE: WAREHOUSE_CONNECTION_ID,
    }
    for variable, default_id in named.items():
        connection_id = os.environ.get(variable) or default_id
        try:
            connection = _load_connection(connection_id)
        except AirflowNotFoundException:
            if os.environ.get(variable):
                remedy = f"airflow connections add {connection_id}, or unset {variable}"
                yield fail("connection", f"no Airflow connection {connection_id} ({variable})", remedy)
            continue
        yield ok("connection", f"{connection_id}: {connection.conn_type}, {connection.host}")
    try:
        provide_lake(_load_connection)
    except SpecError as error:
        if "no Airflow connection" not in str(error):
            yield Finding.from_error("connection", error)


def _check_pool(*, is_deferred: bool) -> Iterator[Finding]:
    pool = Pool.get_pool(POOL)
    if pool is None:
        remedy = f"airflow pools set {POOL} 2 'Spark jobs at the same time'"
        yield fail("pool", f"no Airflow pool {POOL}, so Spark jobs wait forever", remedy)
    elif is_deferred and not pool.include_deferred:
        found = f"{POOL} does not count tasks that wait for a driver on the cluster, so it limits no drivers"
        yield warn("pool", found, f"airflow pools set {POOL} {pool.slots} 'Spark jobs' --include-deferred")
    else:
        yield ok("pool", f"{POOL}: {pool.slots} slots")


def _check_triggerer() -> Iterator[Finding]:
    """Check the triggerer, if the scheduler runs: approvals and drivers on a cluster wait in it."""
    scheduler, triggerer = most_recent_job("SchedulerJob"), most_recent_job("TriggererJob")
    if triggerer and triggerer.is_alive():
        yield ok("triggerer", "is running")
    elif scheduler and scheduler.is_alive():
        found = "not running, so approvals and drivers on a cluster wait forever"
        yield fail("triggerer", found, "airflow triggerer")


def _check_clock() -> Iterator[Finding]:
    """Compare the clock of the database with that of this machine; SQLite has none of its own."""
    with create_session() as session:
        if session.get_bind().dialect.name == "sqlite":
            return
        database_now = session.execute(text("SELECT CURRENT_TIMESTAMP")).scalar_one()
    difference_s = (database_now - datetime.now(UTC)).total_seconds()
    yield from check_clock("Airflow's database", difference_s)
