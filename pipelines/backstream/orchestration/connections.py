"""What a task may know and nothing else may hold: where the lake's catalog and warehouse are, with their keys."""

from __future__ import annotations

import os
from urllib.parse import quote, urlencode

from airflow.sdk import BaseHook, Connection
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import mask_secret

from backstream.errors import SpecError
from backstream.runs.home import CATALOG_VARIABLE, WAREHOUSE_VARIABLE

CATALOG_CONNECTION_ID = "backstream_catalog"
WAREHOUSE_CONNECTION_ID = "backstream_warehouse"
_DIALECTS = {"postgres": "postgresql+psycopg2"}
_STORES = ("aws", "generic")
"""`aws` where Amazon's provider is installed: without it Airflow's form does not offer that type."""
_OPTIONS = {"region_name": "region", "endpoint_url": "endpoint", "aws_session_token": "session_token"}
"""As Amazon's provider spells them in a connection's extra, and as the warehouse's address does."""


def provide_lake() -> None:
    """Let this process find catalog and warehouse: by their Airflow connections, else as the environment says.

    Whatever a connection holds is masked in the logs by Airflow. A Spark driver inherits it, executors do not.

    Raises:
        SpecError: when a connection is not of a type that has a catalog or a warehouse here.
    """
    if found := _connection(CATALOG_CONNECTION_ID, tuple(_DIALECTS)):
        os.environ[CATALOG_VARIABLE] = _catalog_uri(found)
    if found := _connection(WAREHOUSE_CONNECTION_ID, _STORES):
        os.environ[WAREHOUSE_VARIABLE] = _warehouse_uri(found)


def _connection(connection_id: str, types: tuple[str, ...]) -> Connection | None:
    try:
        found = BaseHook.get_connection(connection_id)
    except AirflowNotFoundException:
        return None
    if found.conn_type not in types:
        msg = f"connection {connection_id!r} must be of type {' or '.join(types)}, got {found.conn_type!r}"
        raise SpecError(msg)
    return found


def _catalog_uri(found: Connection) -> str:
    place = f"{found.host}:{found.port}" if found.port else found.host or ""
    user = f"{quote(found.login or '', safe='')}:{_masked(found.password)}"
    # A host that is a folder is that of a socket, and goes where a path may stand.
    where = f"@/{found.schema}?host={place}" if place.startswith("/") else f"@{place}/{found.schema}"
    return f"{_DIALECTS[str(found.conn_type)]}://{user}{where}"


def _warehouse_uri(found: Connection) -> str:
    scheme, _, place = (found.host or "").rpartition("://")
    if scheme != "s3" or not place:
        msg = f"the host of connection {WAREHOUSE_CONNECTION_ID!r} must be s3://bucket/prefix, got {found.host!r}"
        raise SpecError(msg)
    keys = f"{quote(found.login, safe='')}:{_masked(found.password)}@" if found.login else ""
    extra = {ours: value for theirs, ours in _OPTIONS.items() if (value := found.extra_dejson.get(theirs))}
    _masked(extra.get("session_token"))
    return f"s3://{keys}{place}" + (f"?{urlencode(extra)}" if extra else "")


def _masked(secret: str | None) -> str:
    """A secret as an address has it, which Airflow does not know to be the one that it masks."""
    quoted = quote(secret or "", safe="")
    if quoted:
        mask_secret(quoted)
    return quoted
