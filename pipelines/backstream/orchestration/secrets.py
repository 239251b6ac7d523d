"""What a task may know and nothing else may hold: the address of the lake's catalog, password and all."""

from __future__ import annotations

import os
from urllib.parse import quote

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from backstream.core.errors import SpecError
from backstream.core.folders import CATALOG_VARIABLE

CATALOG_CONNECTION_ID = "backstream_catalog"
_DIALECTS = {"postgres": "postgresql+psycopg2"}


def provide_catalog() -> None:
    """Let this process find the catalog: by its Airflow connection, else as the environment says.

    Whatever the connection holds is masked in the logs by Airflow. A Spark driver inherits it, executors do not.

    Raises:
        SpecError: when the connection is of a type that no catalog has here.
    """
    try:
        found = BaseHook.get_connection(CATALOG_CONNECTION_ID)
    except AirflowNotFoundException:
        return
    if found.conn_type not in _DIALECTS:
        msg = (
            f"connection {CATALOG_CONNECTION_ID!r} must be of type {', '.join(_DIALECTS)}, got {found.conn_type!r}"
        )
        raise SpecError(msg)
    place = f"{found.host}:{found.port}" if found.port else found.host or ""
    user = f"{quote(found.login or '', safe='')}:{quote(found.password or '', safe='')}"
    # A host that is a folder is that of a socket, and goes where a path may stand.
    where = f"@/{found.schema}?host={place}" if place.startswith("/") else f"@{place}/{found.schema}"
    os.environ[CATALOG_VARIABLE] = f"{_DIALECTS[found.conn_type]}://{user}{where}"
