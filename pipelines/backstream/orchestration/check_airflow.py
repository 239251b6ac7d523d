"""Check the Airflow of an installation: its version, the connections, and the pool."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version

from airflow.models import Connection
from airflow.models.pool import Pool
from sqlalchemy.exc import SQLAlchemyError

from backstream.orchestration.airflow_versions import AIRFLOW, AirflowNotFoundException, list_switched_off
from backstream.orchestration.connections import CATALOG_CONNECTION_ID, WAREHOUSE_CONNECTION_ID
from backstream.orchestration.dag_options import CONNECTION_ID, POOL
from backstream.workflow.findings import Finding, fail, ok, warn

_LOWEST, _EXCLUDED = (3, 1), (3, 4)
_REMEDIES = {
    CONNECTION_ID: f"airflow connections add {CONNECTION_ID} --conn-type spark --conn-host 'local[*]'",
    CATALOG_CONNECTION_ID: "",
    WAREHOUSE_CONNECTION_ID: "",
}
"""The connections, and for a required one the command that adds it."""


def check_airflow() -> Iterator[Finding]:
    """Yield a finding per part of the Airflow of this environment."""
    text = version("apache-airflow-core")
    if _LOWEST <= AIRFLOW < _EXCLUDED:
        yield ok("airflow", text)
    else:
        yield fail("airflow", f"must be 3.1, 3.2, or 3.3, got {text}", "pip install 'apache-airflow>=3.1,<3.4'")
    for sentence in list_switched_off(AIRFLOW):
        yield warn("airflow", f"switched off: {sentence}")
    try:
        for connection_id, remedy in _REMEDIES.items():
            yield from _check_connection(connection_id, remedy)
        yield _check_pool()
    except SQLAlchemyError as error:
        cause = str(getattr(error, "orig", error)).splitlines()[0]
        yield fail("airflow", f"cannot read its database: {cause}", "airflow db migrate")


def _check_connection(connection_id: str, remedy: str) -> Iterator[Finding]:
    try:
        # Outside of a task, the class of airflow.sdk does not read the database.
        connection = Connection.get_connection_from_secrets(connection_id)  # noqa: AIR311 - see above
    except AirflowNotFoundException:
        if remedy:
            yield fail("connection", f"no Airflow connection {connection_id}", remedy)
        return
    yield ok("connection", f"{connection_id}: {connection.conn_type}, {connection.host}")


def _check_pool() -> Finding:
    pool = Pool.get_pool(POOL)
    if pool is None:
        remedy = f"airflow pools set {POOL} 2 'Spark jobs at the same time'"
        return fail("pool", f"no Airflow pool {POOL}, so Spark jobs wait forever", remedy)
    return ok("pool", f"{POOL}: {pool.slots} slots")
